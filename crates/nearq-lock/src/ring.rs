//! The threads that wait for a condition, in the order in which they are notified: their records in a ring, under a lock of two bits.
//!
//! # Order
//! More urgent threads come before less urgent ones; threads of the same urgency are in the order of arrival. Threads of ordinary classes
//! have the urgency 0. The urgency of a thread of a real-time class is its priority at its arrival (`LockPlatform::urgency`). A thread that
//! adds an urgent record searches for its place in the ring; a record that is not urgent is added at the end without a search. A notifier
//! takes the first record.
//!
//! # Words
//! The ring's word, zero when no thread waits:
//!
//! | bits | name | meaning | changed by |
//! |---|---|---|---|
//! | 0 | `LOCKED` | a thread reads or changes the ring | any thread from 0 to 1; the thread that holds the lock to 0 |
//! | 1 | `ASLEEP` | a thread sleeps until the ring is free, or is about to | a thread that is about to sleep, while `LOCKED`, to 1; the thread that holds the lock to 0, together with `LOCKED`, and then wakes one, which takes the lock with `ASLEEP`, as it cannot know whether others sleep |
//! | 2 | `AWAITED` | a thread sleeps until the ring is empty | that thread, while it holds the lock, to 1; the thread that empties the ring to 0, and then wakes all |
//! | 3-15 | `EPOCH` | the process that all of this belongs to (`LockPlatform::fork_epoch`) | the thread that takes the lock |
//! | 16-31 | `LAST` | the record that is last in order, or 0 | the thread that holds the lock, when it releases it |
//!
//! A record's `next` is the one behind it in order, its `before` the one before it; the last record's `next` is the first. Only the thread
//! that holds the lock may use either. A record's `slot` says how urgent its owner is; it is written before the record is added.
//!
//! A record's `state`, while its owner waits for a condition:
//!
//! | value | meaning | changed by, to what |
//! |---|---|---|
//! | `LISTED` | in the ring; its owner sleeps or is about to | a notifier that holds the lock to `queue::ASLEEP` (*claim*); its owner to `LEAVING`; a thread that calls the owner away (`summons.rs`) to `LEAVING`, and then wakes the owner |
//! | `LEAVING` | in the ring; its owner's deadline has come, or it was called away, and it needs the lock to take the record out | a notifier that holds the lock to `EXPECTED`; its owner, once it holds the lock, to any value |
//! | `EXPECTED` | a notifier has taken it out, and waits until the owner no longer touches the ring | its owner, once it has released the lock, to any value |
//!
//! # Which thread wins
//! A notifier, a deadline and a call that come at the same time all change `LISTED` by compare-exchange. One of them succeeds, so the
//! record's owner either was notified or was not. A call that comes late may find the record listed again: then that wait ends for no
//! reason.
//!
//! # The ring may be freed as soon as all threads have been notified
//! A claimed record is out of the ring before its owner can know, and its owner does not touch the ring. A thread that leaves at its
//! deadline must take out its record itself, or records would pile up in rings that are never notified. But once no other thread is left in
//! the ring, its memory may be freed. So a thread that notifies all takes the leaving records out too, and waits until their owners have
//! passed the lock (`EXPECTED`). They hold the lock for a few instructions, and never while they wait for anything else.
//!
//! A thread that notifies one thread leaves the records in the ring whose owners are leaving by themselves. A thread that is about to free
//! the memory and did not notify all waits until the ring is empty ([`until_empty`]): then no thread is blocked there, and no thread will
//! lock the ring again. Threads that were notified and only have to take their mutex are not in the ring, and are not waited for.
//!
//! # Forks
//! In the child of a fork, the waiting threads do not exist, and one of them may have held the lock. The first use in the child starts with
//! an empty ring, whatever the word says; the records in it are lost to the child. The word holds the last bits of the process's
//! epoch. In a word of a process with the same last bits, the owner of the last record does not exist either: its record has all bits.
//!
//! The thread that forks may itself be in a wait, if it forks in a signal handler. In the child it continues that wait, but it is not in
//! the child's ring. So there its wait ends for no reason (`Stay::forked`, [`WaiterSlab::sleep_in_ring`]), and it does not take its record
//! out of any ring. If it holds the lock at that time, it does not have it in the child: there the ring was that of another process, and a
//! thread that the handler has started may be in it. So the lock is released by a step from the word as it was taken, which then fails.
//!
//! Orderings: taking the lock is acquire, releasing it is release. That orders all accesses to the ring and the records in it, which are
//! otherwise relaxed. The claim is acquire and release: it hands the record to the queue of a mutex.

use nearq_platform::{Atomic, AtomicInt, Instant, LockPlatform, Ordering, Wait};

use crate::queue::ASLEEP as ASLEEP_IN_QUEUE;
use crate::waiter_slab::WaiterSlab;

const LOCKED: u32 = 1;
const ASLEEP: u32 = 1 << 1;
const AWAITED: u32 = 1 << 2;
const EPOCH: u32 = 0x1fff << EPOCH_SHIFT;
const EPOCH_SHIFT: u32 = 3;
const LAST_SHIFT: u32 = 16;

/// In a record's state: in a ring (`queue.rs` has the values below).
const LISTED: u32 = 7;
/// In a ring, but its owner no longer waits.
const LEAVING: u32 = 8;
/// As `LEAVING`, but no longer in the ring, and a notifier waits for the owner.
const EXPECTED: u32 = 9;

/// How many times to read a locked ring's word before sleeping. The ring is only locked for tens of instructions.
const READS: u32 = 100;

/// The ring's word if a thread is in the ring, as far as the caller can know.
#[inline]
pub(crate) fn peek<P: LockPlatform>(word: &P::AtomicU32) -> Option<u32> {
    // Relaxed: sees the threads that came in before something that the caller has ordered before this; says nothing about other threads.
    let found = word.load(Ordering::Relaxed);
    (found >> LAST_SHIFT != 0).then_some(found)
}

/// A ring that the caller has locked, until it [releases it](Self::unlock).
#[must_use = "the ring stays locked"]
pub(crate) struct Ring<'a, P: LockPlatform> {
    word: *const P::AtomicU32,
    waiters: &'a WaiterSlab<P>,
    last: u32,
    /// `AWAITED`, or 0.
    awaited: u32,
    /// The process in which the lock was taken.
    process: u32,
    /// The word as it was then, or was seen since.
    taken: u32,
}

/// How a sleep in a ring ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    /// A notifier has claimed the record.
    Claimed,
    /// The deadline came first.
    TimedOut,
    /// The owner was called away first.
    Called,
}

/// A process's part of the word.
fn part_of(process: u32) -> u32 {
    process << EPOCH_SHIFT & EPOCH
}

impl<'a, P: LockPlatform> Ring<'a, P> {
    /// Takes the lock. `found` is the word's likely value; 0 if the caller does not know.
    pub(crate) fn lock(word: &P::AtomicU32, found: u32, waiters: &'a WaiterSlab<P>) -> Self {
        let process = WaiterSlab::<P>::epoch();
        let current = part_of(process);
        // A thread that has not slept need not restore `ASLEEP` for other sleepers.
        let mut take = LOCKED;
        let mut spun = false;
        let mut found = found;
        loop {
            let stale = found != 0 && found & EPOCH != current;
            if stale || found & LOCKED == 0 {
                let kept = if stale { 0 } else { found };
                let to = kept | take | current;
                // Acquire: pairs with the release in `unlock`.
                match word.compare_exchange(found, to, Ordering::Acquire, Ordering::Relaxed) {
                    Ok(_) => {
                        let last = kept >> LAST_SHIFT;
                        // Of another process with the same part of the word.
                        let stale = last != 0 && !waiters.owner_exists(last);
                        let (last, awaited) = if stale { (0, 0) } else { (last, kept & AWAITED) };
                        return Ring { word, waiters, last, awaited, process, taken: to };
                    }
                    Err(other) => found = other,
                }
                continue;
            }
            if !spun {
                spun = true;
                P::wait_until_changed(word, found, READS);
                // Relaxed, here and below: each decision is made by a step on the word.
                found = word.load(Ordering::Relaxed);
                continue;
            }
            if found & ASLEEP == 0 {
                // Relaxed: nothing is published by it; the sleep compares the word.
                let asleep = found | ASLEEP;
                if let Err(other) =
                    word.compare_exchange(found, asleep, Ordering::Relaxed, Ordering::Relaxed)
                {
                    found = other;
                    continue;
                }
            }
            P::wait(word, found | ASLEEP, None);
            take = LOCKED | ASLEEP;
            spun = false;
            found = word.load(Ordering::Relaxed);
        }
    }

    /// Releases the lock. The word is not touched after the swap, and may be gone then if no thread is in the ring.
    pub(crate) fn unlock(self) {
        self.unlock_to();
    }

    /// As `unlock`; returns the word as it is then.
    fn unlock_to(mut self) -> u32 {
        let part = part_of(self.process);
        let new = match self.last {
            0 => 0,
            last => last << LAST_SHIFT | self.awaited | part,
        };
        // SAFETY: the thread that has locked the ring was in it, or acts for a caller that may use it, so it exists until the step.
        let word = unsafe { &*self.word };
        // Release: pairs with the acquire in `lock`. Relaxed on failure: only `ASLEEP` has come, or the ring is another process's.
        while let Err(found) =
            word.compare_exchange(self.taken, new, Ordering::Release, Ordering::Relaxed)
        {
            if found & (EPOCH | LOCKED) != part | LOCKED {
                return found;
            }
            self.taken = found;
        }
        if self.taken & ASLEEP != 0 || self.awaited != 0 && new == 0 {
            // A thread that waits for an empty ring sleeps on the same word as the threads that want the lock; none of them may be missed.
            P::wake(self.word, if self.awaited == 0 { 1 } else { usize::MAX });
        }
        new
    }

    /// Adds a record, at the place that its owner's urgency gives it.
    #[inline(always)]
    pub(crate) fn add(&mut self, number: u32, urgency: u32) {
        let record = self.waiters.record(number);
        // Relaxed, here and below: under the lock. The owner may have forked since it prepared the record.
        record.epoch.store(self.process, Ordering::Relaxed);
        if self.last == 0 {
            record.next.store(number, Ordering::Relaxed);
            record.before.store(number, Ordering::Relaxed);
            self.last = number;
            return;
        }
        let first = self.waiters.record(self.last).next.load(Ordering::Relaxed);
        let behind = if urgency == 0 { None } else { self.first_less_urgent(first, urgency) };
        let next = behind.unwrap_or(first);
        let before = self.waiters.record(next).before.load(Ordering::Relaxed);
        record.next.store(next, Ordering::Relaxed);
        record.before.store(before, Ordering::Relaxed);
        self.waiters.record(before).next.store(number, Ordering::Relaxed);
        self.waiters.record(next).before.store(number, Ordering::Relaxed);
        if behind.is_none() {
            self.last = number;
        }
    }

    /// The first record, from `first` on, whose owner is less urgent.
    #[cold]
    fn first_less_urgent(&self, first: u32, urgency: u32) -> Option<u32> {
        let mut at = first;
        loop {
            let record = self.waiters.record(at);
            // Relaxed for both: under the lock.
            if record.slot.load(Ordering::Relaxed) < urgency {
                return Some(at);
            }
            if at == self.last {
                return None;
            }
            at = record.next.load(Ordering::Relaxed);
        }
    }

    /// Takes a record out.
    fn remove(&mut self, number: u32) {
        let record = self.waiters.record(number);
        let next = record.next.load(Ordering::Relaxed);
        if next == number {
            self.last = 0;
            return;
        }
        let before = record.before.load(Ordering::Relaxed);
        self.waiters.record(before).next.store(next, Ordering::Relaxed);
        self.waiters.record(next).before.store(before, Ordering::Relaxed);
        if self.last == number {
            self.last = before;
        }
    }

    /// Calls `what` with each record, in order, until it returns false. `what` may take the record out.
    fn each(&mut self, mut what: impl FnMut(&mut Self, u32) -> bool) {
        let last = self.last;
        if last == 0 {
            return;
        }
        let mut at = self.waiters.record(last).next.load(Ordering::Relaxed);
        loop {
            let next = self.waiters.record(at).next.load(Ordering::Relaxed);
            if !what(self, at) || at == last {
                return;
            }
            at = next;
        }
    }

    /// Takes a record out and turns it into one that sleeps in a mutex's queue, if its owner still waits.
    fn claim(&mut self, number: u32) -> bool {
        let state = &self.waiters.record(number).state;
        // Acquire and release: hands the record to the queue of a mutex. Relaxed on failure: it is left alone.
        let claim =
            state.compare_exchange(LISTED, ASLEEP_IN_QUEUE, Ordering::AcqRel, Ordering::Relaxed);
        if claim.is_ok() {
            self.remove(number);
        }
        claim.is_ok()
    }

    /// Claims the first record whose owner still waits.
    pub(crate) fn claim_first(&mut self) -> Option<u32> {
        let mut claimed = None;
        self.each(|ring, number| {
            claimed = ring.claim(number).then_some(number);
            claimed.is_none()
        });
        claimed
    }

    /// Claims all records whose owners still wait, and takes all others out. The owners that must be waited for meet the caller at `gate`,
    /// which no other thread uses yet: see [`past_the_gate`].
    pub(crate) fn claim_all(&mut self, gate: &P::AtomicU32) -> Claimed<'a, P> {
        let mut claimed = Claimed { waiters: self.waiters, first: 0, count: 0 };
        let (mut last, mut expected) = (0, 0);
        self.each(|ring, number| {
            if ring.claim(number) {
                match last {
                    0 => claimed.first = number,
                    last => ring.waiters.record(last).next.store(number, Ordering::Relaxed),
                }
                ring.waiters.record(number).next.store(0, Ordering::Relaxed);
                last = number;
                claimed.count += 1;
            } else {
                ring.remove(number);
                let record = ring.waiters.record(number);
                // Relaxed: its owner reads it once it holds the lock.
                record.word.store(core::ptr::from_ref(gate).cast_mut(), Ordering::Relaxed);
                record.state.store(EXPECTED, Ordering::Relaxed);
                expected += 1;
            }
            true
        });
        // Relaxed: the threads that count it down take the lock first.
        gate.store(expected, Ordering::Relaxed);
        claimed
    }
}

/// Waits until no thread is in the ring: for a caller that is about to free its memory.
pub(crate) fn until_empty<P: LockPlatform>(word: &P::AtomicU32, waiters: &WaiterSlab<P>) {
    loop {
        let mut ring = Ring::lock(word, 0, waiters);
        ring.awaited = AWAITED;
        let left = ring.unlock_to();
        if left == 0 {
            return;
        }
        P::wait(word, left, None);
    }
}

/// Waits until all owners that must be waited for have passed the lock.
pub(crate) fn past_the_gate<P: LockPlatform>(gate: &P::AtomicU32) {
    loop {
        // Acquire: pairs with the release in `leave`.
        match gate.load(Ordering::Acquire) {
            0 => return,
            expected => P::wait(gate, expected, None),
        };
    }
}

/// Records that were claimed together, in their order in the ring.
pub(crate) struct Claimed<'a, P: LockPlatform> {
    waiters: &'a WaiterSlab<P>,
    first: u32,
    pub(crate) count: usize,
}

impl<P: LockPlatform> Iterator for Claimed<'_, P> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let number = self.first;
        if number == 0 {
            return None;
        }
        // Relaxed: ours alone until it is given out.
        self.first = self.waiters.record(number).next.load(Ordering::Relaxed);
        Some(number)
    }
}

impl<P: LockPlatform> WaiterSlab<P> {
    /// Makes a record ready to be put into a ring. Its owner has the given urgency, and will want the mutex with the given word, or none
    /// (null).
    pub(crate) fn prepare_for_ring(
        &self,
        number: u32,
        place: usize,
        word: *const P::AtomicU32,
        urgency: u32,
    ) {
        self.prepare(number, place);
        let record = self.record(number);
        // Relaxed for all: published by the ring's lock.
        record.slot.store(urgency, Ordering::Relaxed);
        record.word.store(word.cast_mut(), Ordering::Relaxed);
        record.state.store(LISTED, Ordering::Relaxed);
    }

    /// Sleeps by a record in a ring. Unless a notifier has claimed it, the caller [leaves](Self::leave) the ring, which exists at least
    /// until then.
    pub(crate) fn sleep_in_ring(&self, number: u32, deadline: Option<Instant>) -> Slept {
        let state = &self.record(number).state;
        loop {
            if !self.owner_exists(number) {
                return Slept::Called;
            }
            let outcome = self.sleep_while(number, LISTED, deadline);
            // Relaxed: an owner that was claimed waits for a message, which orders; the others continue under the ring's lock.
            let mut now = state.load(Ordering::Relaxed);
            if now == LISTED && outcome == Wait::TimedOut {
                // Relaxed: a thread that leaves continues under the ring's lock, and one that was claimed waits for a message.
                match state.compare_exchange(LISTED, LEAVING, Ordering::Relaxed, Ordering::Relaxed)
                {
                    Ok(_) => return Slept::TimedOut,
                    Err(found) => now = found,
                }
            }
            match now {
                LISTED => {}
                LEAVING | EXPECTED => return Slept::Called,
                _ => return Slept::Claimed,
            }
        }
    }

    /// The caller, the owner of a record in a ring, stops waiting. False if it was notified; otherwise it must [leave](Self::leave) the
    /// ring.
    pub(crate) fn leaves_ring(&self, number: u32) -> bool {
        let state = &self.record(number).state;
        // Relaxed for both: an owner that was claimed waits for a message, which orders; the others continue under the ring's lock.
        match state.compare_exchange(LISTED, LEAVING, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => true,
            Err(found) => matches!(found, LEAVING | EXPECTED),
        }
    }

    /// Makes the owner of a record leave the ring that it is in, if it is in one and was not notified. The number may be arbitrary.
    pub(crate) fn call_away(&self, number: u32) {
        let Some(record) = self.record_if_made(number) else { return };
        let state = &record.state;
        // Relaxed: what the owner does next is under the ring's lock, and the caller orders what the owner is called for.
        if state.compare_exchange(LISTED, LEAVING, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            P::wake(state, 1);
        }
    }

    /// Takes the record of a thread that was not notified out of the ring, and gives it back.
    pub(crate) fn leave(&self, number: u32, ring: &P::AtomicU32) {
        if !self.owner_exists(number) {
            // In the child of a fork, the record is in no ring.
            self.give_back(number);
            return;
        }
        let record = self.record(number);
        let mut ring = Ring::lock(ring, 0, self);
        // Relaxed for both: set under the lock.
        if record.state.load(Ordering::Relaxed) == LEAVING {
            ring.remove(number);
            ring.unlock();
        } else {
            let gate = record.word.load(Ordering::Relaxed).cast_const();
            ring.unlock();
            // SAFETY: the notifier keeps the gate until it has been counted down for each owner that it expects, of which we are one.
            // Release: pairs with the acquire in `past_the_gate`; the ring is not touched any more.
            if unsafe { &*gate }.fetch_sub(1, Ordering::Release) == 1 {
                P::wake(gate, 1);
            }
        }
        self.give_back(number);
    }
}

#[cfg(test)]
mod tests;
