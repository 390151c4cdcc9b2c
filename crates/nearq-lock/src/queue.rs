//! Threads in a row, each waiting on its own line of memory until the thread before it sends it a message.
//!
//! The queue itself is a *tail*: the number of the last record, 0 if no thread waits. The user decides where it is kept ([`Tail`]): in a
//! lock's word, or in a domain of a slot. The first record in a queue, and its owner, is *in front*; the user decides what that means too.
//!
//! # Protocol
//! A record's `state` (its owner waits on it):
//!
//! | value | meaning | changed by, to what |
//! |---|---|---|
//! | `WAITING` | in a queue, its owner is awake | its owner to `ASLEEP` or `LEFT`; the one before it to a message |
//! | `ASLEEP` | in a queue, its owner sleeps or is about to | the one before it to a message, and then, or a little later ([`Waking`]), it wakes the owner; its owner to `WAITING`, when it was woken without a message (*roused*), or to `LEFT` |
//! | `LEFT` | in a queue, no thread waits by it | the one before it to a message, and then it has the record; the one behind it to a claim |
//! | a claim | as `LEFT`, for all except the one behind it, which takes it over (`withdraw.rs`) | the one before it as `LEFT`; the one behind it to `WAITING`, and then waits by it, or back to `LEFT` |
//! | `HOLDING` | in front for a while, because its owner wants that | its owner |
//! | a message | its owner has it, and is in front | its owner, when it next waits |
//! | others | not in a queue: `ring.rs` | |
//!
//! A record's `next`: 0, the number of the one behind it, or `GONE` with a message. If the owner may give up, the record's `before` is the
//! one ahead of it, as a hint.
//!
//! - *join*: prepare the record (`WAITING`, no next), swap its number into the tail. If there was none: in front. Otherwise swap the number
//!   into the `next` of the one before (*link*). If there was 0: wait. If there was `GONE`: the one before left in the meantime and could
//!   not wait for us. Its message is ours, and its record is ours to free.
//! - *leave the front* with a message for the one behind: if `next` names a record, send it the message. Otherwise clear the tail if it
//!   still names us: then no record is behind. If it does not, another record has joined and has not linked: swap `GONE` with the message
//!   into `next`. If the other one has linked in between, it is sent the message; otherwise it will find it, and our record stays behind
//!   for it.
//! - *send*: swap the message into `state`. `ASLEEP` before: wake the owner. `LEFT` before: no thread waits there; go on as if that record
//!   were the one that leaves the front, with the same message.
//! - *give up waiting*: from `WAITING` or `ASLEEP` to `LEFT`. The record stays in the queue, for the thread that sends to it. If the
//!   records right ahead of it have been left too, one of them stays and the rest are taken out (`withdraw.rs`). A thread that ends in the
//!   middle of its wait does the same first step (`WaiterSlab::ended`). A thread that ends while its record is `HOLDING` changes nothing:
//!   the front of the queue stays as it is, and no thread behind it ever gets a message. A thread that ends with a message takes the
//!   message with it.
//!
//! A thread that sleeps by its record for another reason can be put into a queue by the thread that may end that sleep (`ring.rs`): the
//! record goes to `ASLEEP` and joins, while its owner sleeps on. It is as if the owner had joined and fallen asleep.
//!
//! Invariants:
//! 1. **No step waits for another thread's step.** A thread may be preempted between any two. It delays the threads behind it because it
//!    sends them no message, never because a list is half made.
//! 2. **Each record in a queue gets exactly one message**: from the one before it, or from itself if it found no record or `GONE`.
//! 3. **A record is used again only when no thread can reach it.** It is reached through the tail, or through the `next` of the one before.
//!    Neither leads to a record that is being sent a message: the one before has taken the number out of its `next`, and a tail that names
//!    a record is overwritten by the thread that joins or by the one that leaves. A joiner that has read the number from the tail has still
//!    to write to `next`: such a record stays behind (`GONE`) until that is done. A record that its thread takes out as it gives up is
//!    named in the tail and in the `next` of the one ahead, both of which the thread changes first.
//! 4. **First come, first served.** A thread that gives up its place makes no other thread's place worse.
//!
//! # Forks
//! In the child of a fork, a queue may hold records of threads that do not exist there. Their epoch shows that. A thread that joins behind
//! such a record is in front (`FRONT`), unless the record is `HOLDING`: then it may belong to the thread that forked, and if it does not,
//! what it holds stays held. A thread that sends to such a record treats it as one that has been left. If a thread was lost between joining
//! and linking, those before it cannot know of it: the turn ends there, and the next thread that joins is in front.
//!
//! Orderings: the swaps of the tail and of `next` are release, and pair with the acquire of the threads that read them: a record is
//! prepared before it is found. A message is a release, and pairs with the acquire of the thread that receives it: it sees what the one
//! before did, and wrote into `passed` and `since`.

use nearq_platform::{Atomic, Instant, LockPlatform, Ordering, Wait};

use crate::stay::Stay;
use crate::waiter_slab::WaiterSlab;

/// In a queue, awake. A new record has this value, zero.
pub(crate) const WAITING: u32 = 0;
/// In a queue, asleep.
pub(crate) const ASLEEP: u32 = 1;
/// In a queue, and no thread waits by it.
pub(crate) const LEFT: u32 = 2;
/// In front, and its owner knows it: the owner holds a lock that is a queue.
const HOLDING: u32 = 6;
/// The message: you have the turn.
pub(crate) const TURN: u32 = 3;
/// The message: start over, this is no longer a queue.
pub(crate) const ANEW: u32 = 4;
/// The message: you are in front, but this has not yet been noted in the place where it belongs.
pub(crate) const FRONT: u32 = 5;

/// The message to a thread that is in no queue: wait for the mutex without a queue.
pub(crate) const ALONE: u32 = 10;

/// In a state that is a claim; the lower bits name the record whose owner makes the claim (`withdraw.rs`).
pub(crate) const CLAIMED: u32 = 1 << 30;

/// The greatest number of a record.
pub(crate) const LAST: u32 = 0xffff;

/// In `next`: the record has left the front; the message is in the lower bits.
const GONE: u32 = 1 << 31;

/// Where a queue keeps the number of the last record.
pub(crate) trait Tail {
    /// Replaces `number` by 0, if it is there. Acquire if it is not; release if it is.
    fn clear(&self, number: u32) -> bool;

    /// Replaces `number` by another record's, if it is there. Release if it is.
    fn replace(&self, number: u32, with: u32) -> bool;
}

/// When to wake a sleeping thread that has been sent a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waking {
    /// At once.
    Now,
    /// When the caller releases the mutex that it holds and that the other thread waits for ([`WaiterSlab::wake_deferred`]). Waking a
    /// thread takes longer than most critical sections, so it is better not to do it while holding a mutex.
    Later,
}

impl Waking {
    /// For a thread that hands a turn on, whether it holds the mutex or not.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Waking::Later } else { Waking::Now }
    }
}

/// Where the message of a record that left the front went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recipient {
    /// No record is in the queue.
    None,
    /// The record of that number.
    Record(u32),
    /// A record that has joined; its owner will find the message.
    Joiner,
}

/// What a waiting thread received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Received {
    /// A message.
    Message(u32),
    /// Nothing, and the thread has given up: its record stays behind.
    Nothing,
}

/// The record from which to hand over.
enum Successor {
    None,
    Record(u32),
    Joiner,
}

impl<P: LockPlatform> WaiterSlab<P> {
    /// The process, as records name it.
    #[inline(always)]
    pub(crate) fn epoch() -> u32 {
        P::fork_epoch() as u32
    }

    /// Makes a record ready to be put into a tail.
    #[inline]
    pub(crate) fn prepare(&self, number: u32, place: usize) {
        let record = self.record(number);
        // Relaxed: no thread can reach it; published by the swap of the tail, or by the lock of a ring.
        record.state.store(WAITING, Ordering::Relaxed);
        record.next.store(0, Ordering::Relaxed);
        record.place.store(place as u32, Ordering::Relaxed);
        record.epoch.store(Self::epoch(), Ordering::Relaxed);
    }

    /// Links a record that has been put into a tail to the one that was there before. Returns the message if the latter has left; `passed`
    /// and `since` are copied then.
    #[inline]
    pub(crate) fn link(&self, number: u32, before: u32) -> Option<u32> {
        let ahead = self.record(before);
        // Release: a thread that finds the number finds the record prepared. Acquire: pairs with the swap of `GONE`.
        let found = ahead.next.swap(number, Ordering::AcqRel);
        let record = self.record(number);
        // Relaxed: written before the record was put into the tail, in which we found it.
        if ahead.epoch.load(Ordering::Relaxed) != Self::epoch()
            && ahead.state.load(Ordering::Relaxed) != HOLDING
        {
            // No thread is there, or before it.
            record.passed.store(0, Ordering::Relaxed);
            record.since.store(0, Ordering::Relaxed);
            return Some(FRONT);
        }
        if found & GONE == 0 {
            return None;
        }
        // Relaxed: ordered by the swap; both records are ours.
        record.passed.store(ahead.passed.load(Ordering::Relaxed), Ordering::Relaxed);
        record.since.store(ahead.since.load(Ordering::Relaxed), Ordering::Relaxed);
        // No thread can reach it: it was in front, and we were the one behind it.
        self.free(before);
        Some(found & !GONE)
    }

    /// Whether the thread whose record is the last of a queue exists. In the child of a fork it may not: then no thread of that queue does.
    pub(crate) fn owner_exists(&self, last: u32) -> bool {
        // Relaxed: written before the record was put into the tail. If it has left since, the caller's step on the tail fails.
        self.record(last).epoch.load(Ordering::Relaxed) == Self::epoch()
    }

    /// The caller's record is in front, and stays there until it leaves.
    pub(crate) fn hold(&self, number: u32) {
        // Relaxed: read by threads that join in the child of a fork.
        self.record(number).state.store(HOLDING, Ordering::Relaxed);
    }

    /// The record behind one that is in front, if it has linked.
    #[inline]
    pub(crate) fn behind(&self, number: u32) -> Option<u32> {
        // Acquire: pairs with the release in `link`.
        match self.record(number).next.load(Ordering::Acquire) {
            0 => None,
            next => Some(next),
        }
    }

    /// The caller's record, which is in front, leaves the queue; the one behind gets `message`, `passed` and `since`. The
    /// record is given back.
    pub(crate) fn leave_front(
        &self,
        number: u32,
        tail: &impl Tail,
        message: u32,
        (passed, since): (u64, u64),
        waking: Waking,
    ) -> Recipient {
        match self.step_out(number, tail, message, passed, since) {
            Successor::None => {
                self.give_back(number);
                Recipient::None
            }
            Successor::Joiner => {
                self.leave_behind(number);
                Recipient::Joiner
            }
            Successor::Record(next) => {
                self.give_back(number);
                self.send_to_first(next, tail, message, (passed, since), waking)
            }
        }
    }

    /// The caller's record, which is in front, leaves the queue. The one behind gets no message, but is returned: it is in front now. One
    /// that has joined and is not linked yet finds the message. The record is given back.
    pub(crate) fn leave_front_quietly(
        &self,
        number: u32,
        tail: &impl Tail,
        message: u32,
    ) -> Option<u32> {
        match self.step_out(number, tail, message, 0, 0) {
            Successor::None => {
                self.give_back(number);
                None
            }
            Successor::Joiner => {
                self.leave_behind(number);
                None
            }
            Successor::Record(next) => {
                self.give_back(number);
                Some(next)
            }
        }
    }

    /// Sends to the record that is in front, or, if no thread waits by it any more, the first one behind it by which a thread waits.
    pub(crate) fn send_to_first(
        &self,
        first: u32,
        tail: &impl Tail,
        message: u32,
        (passed, since): (u64, u64),
        waking: Waking,
    ) -> Recipient {
        let mut first = first;
        loop {
            if self.send(first, message, (passed, since), waking) {
                return Recipient::Record(first);
            }
            // It is ours now.
            match self.step_out(first, tail, message, passed, since) {
                Successor::None => {
                    self.free(first);
                    return Recipient::None;
                }
                // It stays behind, for the record that has joined.
                Successor::Joiner => return Recipient::Joiner,
                Successor::Record(next) => {
                    self.free(first);
                    first = next;
                }
            }
        }
    }

    /// Takes a record that is in front out of its queue, and returns which one is behind. If that is a joiner, it has its message then.
    fn step_out(
        &self,
        number: u32,
        tail: &impl Tail,
        message: u32,
        passed: u64,
        since: u64,
    ) -> Successor {
        if let Some(next) = self.behind(number) {
            return Successor::Record(next);
        }
        if tail.clear(number) {
            return Successor::None;
        }
        let record = self.record(number);
        // Relaxed: published by the swap.
        record.passed.store(passed, Ordering::Relaxed);
        record.since.store(since, Ordering::Relaxed);
        // Release: the joiner sees what we did. Acquire: pairs with the swap in `link`.
        match record.next.swap(GONE | message, Ordering::AcqRel) {
            0 => {
                #[cfg(test)]
                crate::statistics::seen::note(crate::statistics::Event::NotLinked);
                Successor::Joiner
            }
            next => Successor::Record(next),
        }
    }

    /// Sends a message to a record; false if no thread waits by it, and it is the caller's now.
    #[inline]
    pub(crate) fn send(
        &self,
        number: u32,
        message: u32,
        (passed, since): (u64, u64),
        waking: Waking,
    ) -> bool {
        let record = self.record(number);
        // Relaxed: published by the swap.
        record.passed.store(passed, Ordering::Relaxed);
        record.since.store(since, Ordering::Relaxed);
        // Relaxed: written before it was put into the tail. Read before the message is sent, because its owner may use it again after that.
        let epoch = record.epoch.load(Ordering::Relaxed);
        // Release: pairs with the acquire in `wait`. Acquire: the record may be ours now.
        let before = record.state.swap(message, Ordering::AcqRel);
        if before == ASLEEP && !(waking == Waking::Later && self.wake_later(number)) {
            P::wake(&raw const record.state, 1);
        }
        #[cfg(test)]
        if before == LEFT {
            crate::statistics::seen::note(crate::statistics::Event::SentToLeft);
        }
        // A thread that does not exist after a fork no longer waits, like one that has left.
        before != LEFT && before & CLAIMED == 0 && epoch == Self::epoch()
    }

    /// Makes the owner of a record that says `ASLEEP` and is in no queue wait for the mutex without a queue, and wakes it. From then on
    /// the record is the owner's.
    pub(crate) fn let_go(&self, number: u32) {
        if !self.send(number, ALONE, (0, 0), Waking::Now) {
            // The owner has left.
            self.free(number);
        }
    }

    /// Notes that the caller must wake the thread that sleeps by a record that was sent a message; false if it cannot be noted. The caller
    /// holds a mutex that the other thread waits for. While that is so, the mutex's word is more than `LOCKED`, and the unlock takes its
    /// longer path.
    fn wake_later(&self, number: u32) -> bool {
        let Some(kept) = Self::unused() else { return false };
        let record = self.record(kept);
        // Relaxed for both: the caller's alone.
        let free = record.wakes.load(Ordering::Relaxed) == 0;
        if free {
            record.wakes.store(number, Ordering::Relaxed);
        }
        free
    }

    /// Wakes the thread to which the caller has sent a message [for later](Waking::Later). It may be awake already, or wait for something
    /// else by now: a thread that is woken checks why.
    #[inline]
    pub(crate) fn wake_deferred(&self) {
        if let Some(kept) = Self::unused() {
            self.wake_deferred_of(kept);
        }
    }

    /// The same, for the owner of a record, which is the caller.
    #[inline]
    pub(crate) fn wake_deferred_of(&self, waker: u32) {
        let record = self.record(waker);
        // Relaxed for both: the caller's alone.
        let number = record.wakes.load(Ordering::Relaxed);
        if number != 0 {
            record.wakes.store(0, Ordering::Relaxed);
            P::wake(&raw const self.record(number).state, 1);
        }
    }

    /// Wakes the thread that sleeps by a record, without a message: it will soon have the turn, and should be awake. The record may be in
    /// any queue, or in none: a thread that is roused for nothing sleeps again.
    ///
    /// Only the owner says that it is awake. If this said so, and the caller were preempted before it wakes the owner, the thread that sends
    /// the turn would not wake it either, and the owner would sleep, with the turn, until the caller runs again.
    pub(crate) fn rouse(&self, number: u32) {
        let record = self.record(number);
        // Relaxed: a hint; nothing is published by it.
        if record.state.load(Ordering::Relaxed) == ASLEEP {
            P::wake(&raw const record.state, 1);
        }
    }

    /// Rouses the two threads behind a record, whose owner, the caller, was roused: so each of them does, and all are awake when the turn
    /// comes, in half the time that one after the other would take.
    pub(crate) fn rouse_behind(&self, number: u32) {
        let mut at = number;
        for _ in 0..2 {
            // The second of them may have left the queue in the meantime: then this rouses a thread for nothing, which sleeps again.
            match self.behind(at) {
                Some(next) if next <= LAST => {
                    self.rouse(next);
                    at = next;
                }
                _ => return,
            }
        }
    }

    /// Waits until the record receives a message: calls `spin`, then sleeps, at most until `deadline`. Spins again whenever it
    /// was roused. If `sleep` is false, it gives up instead of sleeping. If it received a message, `number` names the record that did.
    pub(crate) fn wait(
        &self,
        number: &mut u32,
        mut spin: impl FnMut(&P::AtomicU32),
        sleep: bool,
        deadline: Option<Instant>,
        stay: Option<&Stay<P>>,
        tail: &impl Tail,
    ) -> Received {
        let state: &P::AtomicU32 = &self.record(*number).state;
        loop {
            spin(state);
            if !sleep {
                return self.withdraw(number, tail);
            }
            if let Some(message) = Self::falls_asleep(state) {
                return Received::Message(message);
            }
            match self.sleep(*number, deadline) {
                None => {}
                Some(Received::Nothing) => {
                    // Done before the step after which the record may be another thread's.
                    if let Some(stay) = stay {
                        stay.goes_on();
                    }
                    return self.withdraw(number, tail);
                }
                Some(received) => return received,
            }
        }
    }

    /// The owner of a record that says `WAITING` is about to sleep by it; or it has a message, which is returned.
    #[inline]
    fn falls_asleep(state: &P::AtomicU32) -> Option<u32> {
        // Acquire: pairs with the release in `send`. A read suffices for a message, and leaves the line with the sender, too.
        let found = state.load(Ordering::Acquire);
        if found != WAITING {
            return Some(found);
        }
        // Relaxed: nothing is published by it. Acquire on failure: pairs with the release in `send`.
        state.compare_exchange(WAITING, ASLEEP, Ordering::Relaxed, Ordering::Acquire).err()
    }

    /// The owner of a record that is in use has ended, and if it was waiting, it no longer does.
    pub(crate) fn stop_waiting(&self, number: u32) {
        let state = &self.record(number).state;
        for waiting in [WAITING, ASLEEP] {
            // Release: a thread that finds `LEFT` has the record. Relaxed on failure: no thread is there to go on.
            if state.compare_exchange(waiting, LEFT, Ordering::Release, Ordering::Relaxed).is_ok() {
                return;
            }
        }
    }

    /// The caller stops waiting by its record, at whatever point of the wait it is. It leaves the record behind, unless it received a
    /// message: then it keeps the record, and must pass the message on.
    pub(crate) fn give_up(&self, number: u32) -> Received {
        let state = &self.record(number).state;
        // Relaxed: decided by the step below.
        let mut found = state.load(Ordering::Relaxed);
        loop {
            if found != WAITING && found != ASLEEP {
                // Acquire: pairs with the release in `send`.
                return Received::Message(state.load(Ordering::Acquire));
            }
            // Release: pairs with the acquire in `send`, whose caller has the record then. Relaxed on failure: decided by the next step.
            match state.compare_exchange(found, LEFT, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => {
                    self.leave_behind(number);
                    return Received::Nothing;
                }
                Err(other) => found = other,
            }
        }
    }

    /// Continues to wait by a record that another thread has put into a queue, as [`wait`](Self::wait) without a deadline: as far as other
    /// threads know, its owner is asleep, or was roused, or sent a message.
    pub(crate) fn wait_on(&self, number: u32, mut spin: impl FnMut(&P::AtomicU32)) -> Received {
        let state: &P::AtomicU32 = &self.record(number).state;
        // Acquire: pairs with the release in `send`.
        match state.load(Ordering::Acquire) {
            WAITING => {}
            ASLEEP => {
                if let Some(received) = self.sleep(number, None) {
                    return received;
                }
            }
            message => return Received::Message(message),
        }
        loop {
            spin(state);
            if let Some(message) = Self::falls_asleep(state) {
                return Received::Message(message);
            }
            if let Some(received) = self.sleep(number, None) {
                return received;
            }
        }
    }

    /// Sleeps by a record that says so, at most until `deadline`. Returns what its owner received, or that it received nothing by the
    /// deadline. None if it was roused.
    fn sleep(&self, number: u32, deadline: Option<Instant>) -> Option<Received> {
        let state = &self.record(number).state;
        loop {
            let outcome = self.sleep_while(number, ASLEEP, deadline);
            // Acquire: pairs with the release in `send`.
            match state.load(Ordering::Acquire) {
                WAITING => return None,
                ASLEEP if outcome == Wait::TimedOut => return Some(Received::Nothing),
                // Roused, or woken for no reason. Relaxed: nothing is published by it; a message is read in the next round.
                ASLEEP => {
                    let awake = state.compare_exchange(
                        ASLEEP,
                        WAITING,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    );
                    if awake.is_ok() {
                        return None;
                    }
                }
                message => return Some(Received::Message(message)),
            }
        }
    }
}
