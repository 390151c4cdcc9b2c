//! The queues by cache of one mutex: a queue of waiters for each domain, and a word that says which thread has the turn.
//!
//! Slots belong to the process (`process_state.rs`). There are up to 4095, named by 12 bits of a mutex's word. They are made before they
//! are needed, each domain's queue in memory of the domain's node (`lines.rs`). A slot is *bound* to one mutex at a time, from the step
//! that puts `NUMA` into the word to the step that takes it out. The slot's number is written and removed by the same steps.
//!
//! # The turn
//! At most one thread has the slot's *turn*: it may contend for the mutex, and once it holds the mutex it decides which thread has the turn
//! next. `top` is one 64-bit word: the slot's *generation*, whether a thread has the turn, and for each domain whether the thread in front
//! of its queue waits for the turn (*stands up*).
//!
//! | step | by which thread | what |
//! |---|---|---|
//! | *stand up* | the thread in front of a domain's queue | write its number into the domain's `front`; then, in `top` of the same generation: if no thread has the turn, take it; otherwise set the domain's bit, and wait. Another generation: *start over* |
//! | *within* | the thread that has the turn and the mutex | send the turn to the thread behind it (`queue.rs`): it stays in the domain |
//! | *across* | the same | find the thread behind it, put that thread's number into `front` and the domain's bit into `top`; then as *away* |
//! | *away* | the thread that has the turn, if no thread is behind it | clear the next bit after its own domain's, round and round, and send the turn to the thread in that domain's `front`. No bit set: no thread has the turn; or *unbind* |
//! | *bind* | the thread that holds the mutex and has the turn of its plain queue | take a slot that is made and free (none: the mutex stays plain); give each domain's tail the generation of `top`; the turn is taken; put the number into the word |
//! | *unbind* | the thread that holds the mutex and has the turn: if no bit is set; or if the settings no longer allow queues by domain, or batches run dry (`turn.rs`) | take the number out of the word; send the threads that stand up the message to start over; next generation in `top`; give the slot back. If the thread is in front of a domain's queue, it leaves the queue with the message to start over |
//! | *start over* | a thread that gets that message, or finds another generation | leave the front of the domain's queue with the message to start over, and read the mutex's word again |
//!
//! # Why no thread is lost
//! A thread reads the domain's tail with its generation, *then* checks that the word still names the slot, then writes its number into that
//! tail by compare-exchange. If that succeeds, no bind came in between, because a bind changes all tails; so the slot was this mutex's when
//! the word was read. It may have been unbound since. Then either:
//! - the thread is in front. It stands up, finds another generation in `top`, and starts over. Or it stood up before the generation
//!   changed: then the thread that unbinds finds its bit, and sends it the message to start over. Both change `top` by compare-exchange.
//! - the thread is behind another one, which gets the message to start over, or finds that out itself, and passes it on.
//!
//! A slot with a thread left in one of its queues is not bound: *bind* gives up on it.
//!
//! Orderings: `top` and the tails are changed only by acquire-release steps, and are read by acquire loads before that; `front` is
//! published by the step on `top` that follows. What else is in a domain's line is for the thread that has the turn, or a hint.

use nearq_platform::{Atomic, LockPlatform, Ordering};

use crate::lines::{Line, Row};
use crate::process_state::ProcessState;
use crate::queue::{ANEW, Recipient, TURN, Tail, Waking};

/// In `top`: a thread has the turn. The bits below it are those of the domains, and the bits above it are the generation.
const TAKEN: u64 = 1 << 32;
/// The first bit of the generation, in `top` and in tails.
const GENERATION: u32 = 33;
/// In a tail: the number of the last record.
const LAST: u64 = 0xffff;

/// After this many batches of a domain that ended because no thread was left there, the mutex tries one queue again.
const MOST_DRY: u32 = 64;

/// The queues of one mutex.
pub(crate) struct Slot<P: LockPlatform> {
    head: Head<P>,
    /// A line for each domain, on its node.
    lines: Row<P>,
}

/// What changes when the turn goes to another domain. It is on a line of its own, because threads that join their domain's queue read the
/// rest.
#[repr(align(64))]
struct Head<P: LockPlatform> {
    top: P::AtomicU64,
    /// How many times in a row the last waiter left and the turn had not gone to another domain. Only the thread that has the turn uses it.
    quiet: P::AtomicU32,
    /// Whether the turn has gone to another domain since. Only the thread that has the turn uses it.
    crossed: P::AtomicU32,
    /// How many trials of one queue came before this binding. Only the thread that has the turn uses it.
    trials: P::AtomicU32,
}

/// A domain's queue, for joining or leaving it.
pub(crate) struct DomainTail<'a, P: LockPlatform> {
    line: &'a Line<P>,
    generation: u64,
}

impl<P: LockPlatform> Tail for DomainTail<'_, P> {
    #[inline]
    fn clear(&self, number: u32) -> bool {
        let empty = self.generation << GENERATION;
        let last = empty | u64::from(number);
        // Release: what we did in front is over. Acquire on failure: pairs with the release of the thread that joined behind us.
        self.line.tail.compare_exchange(last, empty, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn replace(&self, number: u32, with: u32) -> bool {
        let queue = self.generation << GENERATION;
        let (from, to) = (queue | u64::from(number), queue | u64::from(with));
        // Acquire and release: the thread that takes the place of the last one passes on what that one has released. Relaxed: nothing is
        // read on failure.
        self.line.tail.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }
}

/// The result of standing up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stood {
    /// The turn is ours.
    Turn,
    /// Another thread has it, and will send it to us.
    Wait,
    /// The slot is no longer the mutex's.
    Anew,
}

impl<P: LockPlatform> Slot<P> {
    pub(crate) fn new(lines: Row<P>) -> Self {
        let head = Head {
            top: P::AtomicU64::new(0),
            quiet: P::AtomicU32::new(0),
            crossed: P::AtomicU32::new(0),
            trials: P::AtomicU32::new(0),
        };
        Slot { head, lines }
    }

    /// The domains' lines.
    #[cfg(test)]
    pub(crate) fn lines(&self) -> impl Iterator<Item = &Line<P>> {
        self.lines.iter()
    }

    /// The current tail of a domain, for [`join`](Self::join).
    #[inline]
    pub(crate) fn load_tail(&self, domain: usize) -> u64 {
        // Acquire: the mutex's word is read after this.
        self.lines[domain].tail.load(Ordering::Acquire)
    }

    /// Puts a record at the end of a domain's queue, if the tail is still as the caller read it. Returns the record that was last before
    /// (0: none), and the queue.
    #[inline]
    pub(crate) fn join(
        &self,
        domain: usize,
        seen: u64,
        number: u32,
    ) -> Option<(u32, DomainTail<'_, P>)> {
        let line = &self.lines[domain];
        let new = seen & !LAST | u64::from(number);
        // Release: the record is prepared. Acquire: pairs with the release of the thread that cleared the tail.
        line.tail.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed).ok()?;
        Some(((seen & LAST) as u32, DomainTail { line, generation: seen >> GENERATION }))
    }

    /// The queue of a domain in which a thread waits. While a thread is in the queue, the generation stays the same: *bind* gives up unless
    /// the queue is empty.
    pub(crate) fn queue_of(&self, domain: usize) -> DomainTail<'_, P> {
        let line = &self.lines[domain];
        // Relaxed: the generation is the one that the thread found when it joined.
        DomainTail { line, generation: line.tail.load(Ordering::Relaxed) >> GENERATION }
    }

    /// The thread in front of a domain's queue asks for the turn.
    pub(crate) fn stand_up(&self, domain: usize, number: u32, tail: &DomainTail<'_, P>) -> Stood {
        let line = &self.lines[domain];
        // Acquire: pairs with the steps below; a thread that gives the turn back has finished its changes.
        let mut top = self.head.top.load(Ordering::Acquire);
        let mut noted = false;
        loop {
            if top >> GENERATION != tail.generation {
                return Stood::Anew;
            }
            let free = top & TAKEN == 0;
            if !free && !noted {
                // Relaxed: published by the step below.
                line.front.store(number, Ordering::Relaxed);
                noted = true;
            }
            let new = if free { top | TAKEN } else { top | 1 << domain };
            match self.step(top, new) {
                Ok(()) if free => return Stood::Turn,
                Ok(()) => return Stood::Wait,
                Err(found) => top = found,
            }
        }
    }

    /// Changes `top`, ordered with all other changes to it.
    #[inline]
    fn step(&self, from: u64, to: u64) -> Result<(), u64> {
        // Acquire and release: each step sees what the steps before it have published in the lines.
        self.head.top.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).map(drop)
    }

    /// The turn goes to another domain: the caller, which has it, leaves the domain's front, and `number` is in front now.
    pub(crate) fn sit_behind(&self, domain: usize, number: u32) {
        let line = &self.lines[domain];
        // Relaxed: published by the step below.
        line.front.store(number, Ordering::Relaxed);
        // Acquire: pairs with other threads' steps.
        let mut top = self.head.top.load(Ordering::Acquire);
        while let Err(found) = self.step(top, top | 1 << domain) {
            top = found;
        }
    }

    /// The caller, which is in the domain, holds the mutex and was in no queue.
    pub(crate) fn is_passed_by(&self, domain: usize) {
        let passes = &self.lines[domain].passes;
        // Relaxed for both: a count, which only the thread that holds the mutex changes.
        passes.store(passes.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// The domain's line, for what the thread that has the turn keeps there.
    pub(crate) fn line(&self, domain: usize) -> &Line<P> {
        &self.lines[domain]
    }

    /// How many rounds of the batch were over before this turn: in a round, each thread that waited in the domain when it began has the turn.
    /// Called for each turn of the domain, by the thread that has it, with its record; `begins` says that it is the first turn of the batch.
    ///
    /// This turn is not counted, so that a batch ends one turn after its last round, and the next one with the thread behind. While the turn
    /// is on its way to another domain, the thread that had the mutex last takes it again several times: that should not always be the same
    /// one.
    ///
    /// If the last thread of a round gives up, the round does not end, and the batch is as long as it may be.
    pub(crate) fn count_round(&self, domain: usize, number: u32, begins: bool) -> u32 {
        let line = &self.lines[domain];
        // Relaxed for all: used only by the thread that has the turn. The tail is a hint: a thread that joins now is in this round or the next.
        let before = if begins { 0 } else { line.rounds.load(Ordering::Relaxed) };
        if !begins && line.round_ends.load(Ordering::Relaxed) != number {
            return before;
        }
        let last = line.tail.load(Ordering::Relaxed) & LAST;
        line.round_ends.store(last as u32, Ordering::Relaxed);
        line.rounds.store(before + u32::from(!begins), Ordering::Relaxed);
        before
    }

    /// Whether the turn comes back to the domain so soon that it pays for threads that wait there to stay awake, or to be roused early.
    pub(crate) fn is_brisk(&self, domain: usize) -> bool {
        // Relaxed: a hint.
        self.lines[domain].brisk.load(Ordering::Relaxed) != 0
    }

    /// The turn has come to the domain: notes how soon, and if it was soon, rouses the thread in front of the domain that has it after the
    /// next one. That thread rouses those behind it: they are awake when the turn comes, in about the time of two batches. Only for the
    /// thread that has the turn.
    pub(crate) fn begin_batch(&self, process: &ProcessState<P>, domain: usize, patience: u64) {
        let line = &self.lines[domain];
        let now = P::now().as_nanos();
        // Relaxed, here and below: used only by the thread that has the turn; `brisk` is a hint for others.
        let brisk = now - line.began.load(Ordering::Relaxed) < patience;
        line.began.store(now, Ordering::Relaxed);
        line.brisk.store(brisk.into(), Ordering::Relaxed);
        // Relaxed: a hint.
        let standing = self.head.top.load(Ordering::Relaxed) as u32;
        if !brisk || standing == 0 {
            return;
        }
        let next = Self::next(standing, domain);
        let others = standing & !(1 << next);
        let then = if others == 0 { next } else { Self::next(others, next) };
        let front = self.lines[then].front.load(Ordering::Relaxed);
        if front != 0 {
            process.waiters.rouse(front);
        }
    }

    /// Whether a domain other than this one waits for the turn.
    pub(crate) fn others_wait(&self, domain: usize) -> bool {
        // Relaxed: a hint; a thread that wants the turn gets it sooner or later.
        self.head.top.load(Ordering::Relaxed) as u32 & !(1 << domain) != 0
    }

    /// Takes the turn, if no thread has it and no thread wants it. The slot is bound to the caller's mutex.
    pub(crate) fn take_if_quiet(&self) -> bool {
        self.quiet_top().is_some_and(|top| self.take_turn(top))
    }

    /// `top`, if no thread has the turn and no thread wants it, for [`take_turn`](Self::take_turn).
    pub(crate) fn quiet_top(&self) -> Option<u64> {
        // Acquire: pairs with other threads' steps. The caller may read the mutex's word after this.
        let top = self.head.top.load(Ordering::Acquire);
        (top & TAKEN == 0 && top as u32 == 0).then_some(top)
    }

    /// Takes the turn, which was free when `quiet` was read, if nothing has changed: it is still free, in the same generation.
    pub(crate) fn take_turn(&self, quiet: u64) -> bool {
        self.step(quiet, quiet | TAKEN).is_ok()
    }

    /// Whether no thread has the turn. The slot is bound to the caller's mutex.
    pub(crate) fn is_quiet(&self) -> bool {
        // Acquire: what the last thread to give the turn back did is over.
        self.head.top.load(Ordering::Acquire) & TAKEN == 0
    }

    /// For a caller that only observes: whether a thread has the turn, and in how many domains threads wait.
    pub(crate) fn observe(&self) -> (bool, u32) {
        // Relaxed for both: the values may be out of date, and nothing is concluded from them.
        let taken = self.head.top.load(Ordering::Relaxed) & TAKEN != 0;
        let tails = self.lines.iter().map(|line| line.tail.load(Ordering::Relaxed));
        (taken, tails.filter(|tail| tail & LAST != 0).count() as u32)
    }

    /// Gives the turn to the next domain after `from` that wants it, and returns that domain. None if no domain wants it: then the caller
    /// still has the turn.
    pub(crate) fn give_away(
        &self,
        process: &ProcessState<P>,
        from: usize,
        waking: Waking,
    ) -> Option<usize> {
        // Acquire: the lines of the threads that stand up.
        let mut top = self.head.top.load(Ordering::Acquire);
        loop {
            let standing = top as u32;
            if standing == 0 {
                return None;
            }
            let to = Self::next(standing, from);
            if let Err(found) = self.step(top, top & !(1 << to)) {
                top = found;
                continue;
            }
            top &= !(1 << to);
            if self.send(process, to, top >> GENERATION, TURN, 0, waking) != Recipient::None {
                if to != from {
                    // Relaxed: used only by the thread that has the turn, and ordered by the step or the message that hands the turn over.
                    self.head.crossed.store(1, Ordering::Relaxed);
                }
                return Some(to);
            }
            // All threads of that queue have left.
            top = self.head.top.load(Ordering::Acquire);
        }
    }

    /// Sends a message to the thread in front of a domain's queue, whose bit the caller has cleared.
    fn send(
        &self,
        process: &ProcessState<P>,
        domain: usize,
        generation: u64,
        message: u32,
        passed: u64,
        waking: Waking,
    ) -> Recipient {
        let line = &self.lines[domain];
        // Relaxed: ordered by the step that cleared the bit.
        let front = line.front.load(Ordering::Relaxed);
        let tail = DomainTail { line, generation };
        process.waiters.send_to_first(front, &tail, message, (passed, 0), waking)
    }

    /// The domain whose turn is next: the next one after `from` that stands, round and round. So no domain waits for more than one batch of
    /// each other one. Domains of a node follow one another, so that the turn comes to each node once in a round. No line is
    /// read to decide it: those of all domains that stand would take longer to read than a batch takes.
    fn next(standing: u32, from: usize) -> usize {
        let later = standing & (u32::MAX << 1 << from);
        (if later != 0 { later } else { standing }).trailing_zeros() as usize
    }

    /// The caller has the turn; now no thread has it. False if a thread has stood up in the meantime.
    pub(crate) fn rest(&self) -> bool {
        // Acquire: the lines of the threads that stand up, which get the turn if this step fails.
        let top = self.head.top.load(Ordering::Acquire);
        top as u32 == 0 && self.step(top, top & !TAKEN).is_ok()
    }

    /// The last waiter has left: whether that has happened often enough without another domain having had the turn. Only for the thread
    /// that has the turn.
    pub(crate) fn is_quiet_for(&self, times: u32) -> bool {
        // Relaxed for all: used only by the thread that has the turn.
        if self.head.crossed.load(Ordering::Relaxed) != 0 {
            self.head.crossed.store(0, Ordering::Relaxed);
            self.head.quiet.store(1, Ordering::Relaxed);
            return times <= 1;
        }
        let quiet = self.head.quiet.load(Ordering::Relaxed) + 1;
        self.head.quiet.store(quiet, Ordering::Relaxed);
        quiet >= times
    }

    /// How many trials of one queue came before this binding. Only for the thread that has the turn.
    pub(crate) fn trials(&self) -> u32 {
        // Relaxed: used only by the thread that has the turn.
        self.head.trials.load(Ordering::Relaxed)
    }

    /// Notes how many trials of one queue came before this binding, which the caller makes.
    pub(crate) fn set_trials(&self, trials: u32) {
        // Relaxed: used only by the thread that has the turn.
        self.head.trials.store(trials, Ordering::Relaxed);
    }

    /// A batch of the domain has ended, because no thread was left there, or because others' turn had come. Returns whether the former
    /// happened so often more than the latter that one queue may do as well. Only for the thread that has the turn.
    pub(crate) fn runs_dry(&self, domain: usize, dry: bool) -> bool {
        let line = &self.lines[domain];
        // Relaxed for both: used only by the thread that has the turn.
        let before = line.dry.load(Ordering::Relaxed);
        let now = if dry { before.saturating_add(1) } else { before.saturating_sub(1) };
        line.dry.store(now, Ordering::Relaxed);
        now >= MOST_DRY
    }

    /// Makes the slot, which the caller has taken, ready to be bound, with the turn taken. False if a thread that waited for the slot's
    /// previous mutex is still in a queue.
    pub(crate) fn bind(&self) -> bool {
        // Acquire: pairs with the step that ended the previous binding.
        let top = self.head.top.load(Ordering::Acquire);
        let empty = top >> GENERATION << GENERATION;
        for line in self.lines.iter() {
            let tail = line.tail.load(Ordering::Acquire);
            if tail & LAST != 0
                || line
                    .tail
                    .compare_exchange(tail, empty, Ordering::AcqRel, Ordering::Relaxed)
                    .is_err()
            {
                return false;
            }
        }
        // Relaxed for both: used only by the thread that has the turn.
        self.head.quiet.store(0, Ordering::Relaxed);
        self.head.crossed.store(0, Ordering::Relaxed);
        self.lines.iter().for_each(Line::forget);
        // A late thread of an older generation changes nothing in `top`: it finds this generation and starts over.
        self.step(top, empty | TAKEN).is_ok()
    }

    /// In the child of a fork: no thread waits here. No other thread uses any slot during this call.
    pub(crate) fn renew(&self) {
        // Relaxed for all: there is no other thread, and `ProcessState` publishes it.
        let top = self.head.top.load(Ordering::Relaxed);
        self.head.top.store(top >> GENERATION << GENERATION, Ordering::Relaxed);
        for line in self.lines.iter() {
            let tail = line.tail.load(Ordering::Relaxed);
            line.tail.store(tail & !LAST, Ordering::Relaxed);
        }
    }

    /// Ends the binding, which the mutex's word no longer names. The caller has the turn, or no other thread uses the mutex.
    pub(crate) fn unbind(&self, process: &ProcessState<P>, passed: u64) {
        // Acquire: the lines of the threads that stand up.
        let mut top = self.head.top.load(Ordering::Acquire);
        loop {
            let generation = top >> GENERATION;
            let standing = top as u32;
            if standing == 0 {
                match self.step(top, (generation + 1) << GENERATION) {
                    Ok(()) => return,
                    Err(found) => top = found,
                }
                continue;
            }
            let domain = standing.trailing_zeros() as usize;
            match self.step(top, top & !(1 << domain)) {
                Ok(()) => {
                    top &= !(1 << domain);
                    self.send(process, domain, generation, ANEW, passed, Waking::Now);
                }
                Err(found) => top = found,
            }
        }
    }
}
