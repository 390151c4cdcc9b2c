//! How a thread waits for a reader-writer lock; the head of `raw_rwlock.rs` has the protocol.

use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Instant, LockPlatform, Ordering, Wait};

use super::RawRwLock;
use super::word::{
    ACTIVE_ONE, KIND, NONE, PHASE, READERS_ASLEEP, RESERVED, UPGRADABLE, WAITING_ONE, WRITER,
    WRITER_ASLEEP, active, has_space, has_writer,
};
use crate::process_state::ProcessState;
use crate::raw::RawMutex;
#[cfg(test)]
use crate::statistics::{Event, seen::note};

/// For how long a thread spins before it sleeps. That is longer than a thread that has the turn of a mutex does: it waits for all readers,
/// or for a writer, who has waited for readers itself.
const SPINNING: Duration = Duration::from_micros(20);
/// For how many microseconds it spins at a time, before it reads the clock.
const MICROS_AT_A_TIME: u32 = 5;
/// For how many reads a thread that lost a race for the state lets others go first, at most.
const MOST_READS_AFTER_LOSS: u32 = 64;
/// How long a reader for which there is no space sleeps before it tries again.
const NO_SPACE: Duration = Duration::from_micros(50);

/// A lock, and a thread that wants it.
pub(super) struct Waiting<'a, P: LockPlatform> {
    state: &'a P::AtomicU32,
    writers: &'a RawMutex<P>,
}

/// How long a thread that waits still spins, and since when it waits.
#[derive(Default)]
struct Patience {
    /// Since when it waits, if it has looked.
    since: Option<Instant>,
    /// Since when it spins; none if it has just begun to.
    spins_since: Option<Instant>,
}

impl Patience {
    /// Whether the thread should spin rather than sleep.
    fn spins<P: LockPlatform>(&mut self) -> bool {
        let now = P::now();
        now - *self.spins_since.get_or_insert(now) < SPINNING
    }

    /// The thread has slept, and may spin again.
    fn has_slept(&mut self) {
        self.spins_since = None;
    }

    /// Whether the thread has waited for that long since it looked first.
    fn is_over<P: LockPlatform>(&mut self, patience: Duration) -> bool {
        let now = P::now();
        now - *self.since.get_or_insert(now) >= patience
    }
}

impl<'a, P: LockPlatform> Waiting<'a, P> {
    #[inline]
    pub(super) fn new(state: &'a P::AtomicU32, writers: &'a RawMutex<P>) -> Self {
        Waiting { state, writers }
    }

    fn load(&self) -> u32 {
        // Acquire: a thread that finds what it waits for has the lock.
        self.state.load(Ordering::Acquire)
    }

    /// A step by which the thread gets the lock, or comes closer to it.
    fn step(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the releases of those who left.
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Makes a remark in the state by which nothing is published.
    fn remark(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    // ---- readers ----------------------------------------------------------------------------------------

    /// Enters as a reader if there is no writer, and space.
    #[cold]
    pub(super) fn try_read(&self) -> bool {
        let mut losses = 0;
        loop {
            let word = self.load();
            if has_writer(word) || !has_space(word) {
                return false;
            }
            if self.step(word, word + ACTIVE_ONE) {
                return true;
            }
            Self::lost(&mut losses);
        }
    }

    /// Waits until the thread has entered as a reader; false if the deadline came first.
    pub(super) fn read(&self, deadline: Option<Instant>) -> bool {
        let mut losses = 0;
        loop {
            let word = self.load();
            if !has_space(word) {
                if deadline.is_some_and(P::has_come) {
                    return false;
                }
                P::sleep(NO_SPACE);
            } else if !has_writer(word) {
                if self.step(word, word + ACTIVE_ONE) {
                    return true;
                }
                Self::lost(&mut losses);
            } else if self.remark(word, word + WAITING_ONE) {
                return self.await_phase(word & PHASE, deadline);
            } else {
                Self::lost(&mut losses);
            }
        }
    }

    /// Lets other threads go first after a step that failed, longer each time.
    fn lost(losses: &mut u32) {
        *losses += 1;
        P::pause((1 << (*losses).min(16)).min(MOST_READS_AFTER_LOSS));
    }

    /// Waits as a reader, which is counted in `WAITING`, until the phase is another one, or the writer has given up; false if the deadline
    /// came first.
    fn await_phase(&self, phase: u32, deadline: Option<Instant>) -> bool {
        let process = ProcessState::<P>::get();
        let domain = process.current_domain();
        let mut patience = Patience::default();
        loop {
            let word = self.load();
            if word & PHASE != phase {
                return true;
            }
            if patience.spins::<P>()
                && process.spin(domain, self.state, word, MICROS_AT_A_TIME, 0, None)
            {
                continue;
            }
            let asleep = word | READERS_ASLEEP;
            if word != asleep && !self.remark(word, asleep) {
                continue;
            }
            #[cfg(test)]
            note(Event::ReaderSlept);
            if P::wait(self.state, asleep, deadline) == Wait::TimedOut {
                return !self.leave_waiting(phase);
            }
            patience.has_slept();
        }
    }

    /// A reader no longer waits. False if it has the lock by now.
    fn leave_waiting(&self, phase: u32) -> bool {
        loop {
            let word = self.load();
            if word & PHASE != phase {
                #[cfg(test)]
                note(Event::LetInLate);
                return false;
            }
            if self.remark(word, word - WAITING_ONE) {
                return true;
            }
        }
    }

    /// Waits until one more reader may be counted.
    pub(super) fn await_space(&self) {
        while !has_space(self.load()) {
            P::sleep(NO_SPACE);
        }
    }

    // ---- writers and upgradable readers -----------------------------------------------------------------

    /// Enters as `kind` if that is possible at once, and the lock is not reserved for the head.
    pub(super) fn try_enter(&self, kind: u32) -> bool {
        loop {
            let word = self.load();
            if word & (KIND | RESERVED) != 0 || kind == WRITER && active(word) > 0 {
                return false;
            }
            if self.step(word, word | kind) {
                return true;
            }
        }
    }

    /// Waits until the thread has entered as `kind`; false if the deadline came first.
    pub(super) fn queue_up(&self, kind: u32, deadline: Option<Instant>) -> bool {
        if self.try_enter(kind) {
            return true;
        }
        match deadline {
            None => self.writers.lock(),
            Some(deadline) => {
                if !self.writers.try_lock_until_in(deadline) {
                    return false;
                }
            }
        }
        let entered = self.as_head(kind, deadline);
        // SAFETY: taken above. If the thread has entered, it has the lock; if not, its caller keeps the lock in existence.
        unsafe { self.writers.unlock() };
        entered
    }

    /// Waits as the head until the thread has entered as `kind`; false if the deadline came first.
    fn as_head(&self, kind: u32, deadline: Option<Instant>) -> bool {
        let process = ProcessState::<P>::get();
        let mut patience = Patience::default();
        loop {
            let word = self.load();
            if word & KIND == NONE {
                if self.step(word, word & !RESERVED | kind) {
                    return kind == UPGRADABLE || self.await_readers_as_head(deadline);
                }
                continue;
            }
            if word & RESERVED == 0 && patience.is_over::<P>(process.settings().patience) {
                // Relaxed: nothing is published by it.
                self.state.fetch_or(RESERVED, Ordering::Relaxed);
            } else if !self.wait(process, word, &mut patience, deadline, |word| word & KIND == NONE)
            {
                // Only the head changes it.
                self.state.fetch_and(!RESERVED, Ordering::Relaxed);
                return false;
            }
        }
    }

    /// As [`await_readers`](Self::await_readers), for the head; if the deadline comes first, the thread gives the lock up.
    fn await_readers_as_head(&self, deadline: Option<Instant>) -> bool {
        if !self.await_readers(deadline) {
            // SAFETY: the thread has made the kind `WRITER`, and the lock is still there.
            unsafe { RawRwLock::<P>::leave(self.state, |word| word & !KIND) };
            return false;
        }
        // Relaxed: what is in the bit comes from this thread: no other one sleeps in the lock's bucket while it is the head and the writer.
        if self.state.load(Ordering::Relaxed) & WRITER_ASLEEP != 0 {
            self.state.fetch_and(!WRITER_ASLEEP, Ordering::Relaxed);
        }
        true
    }

    /// Waits as an upgradable reader until the thread is a writer; false if the deadline came first: then it is an upgradable reader again.
    pub(super) fn upgrade(&self, deadline: Option<Instant>) -> bool {
        // Relaxed: nothing is published by it; `UPGRADABLE` is 1 and `WRITER` is 2.
        self.state.fetch_add(WRITER - UPGRADABLE, Ordering::Relaxed);
        let entered = self.await_readers(deadline);
        if !entered {
            // SAFETY: the thread has made the kind `WRITER`, and the lock is still there.
            unsafe { RawRwLock::<P>::leave(self.state, |word| word & !KIND | UPGRADABLE) };
        }
        entered
    }

    /// Waits until no reader is active; the thread has made the kind `WRITER`. False if the deadline came first.
    fn await_readers(&self, deadline: Option<Instant>) -> bool {
        let mut word = self.load();
        if active(word) == 0 {
            return true;
        }
        let process = ProcessState::<P>::get();
        let mut patience = Patience::default();
        while active(word) > 0 {
            if !self.wait(process, word, &mut patience, deadline, |word| active(word) == 0) {
                return false;
            }
            word = self.load();
        }
        true
    }

    /// Waits for a moment: until the state is another one than `word`, or the thread was woken. False if the deadline came.
    fn wait(
        &self,
        process: &ProcessState<P>,
        word: u32,
        patience: &mut Patience,
        deadline: Option<Instant>,
        over: impl Fn(u32) -> bool,
    ) -> bool {
        let domain = process.current_domain();
        if patience.spins::<P>()
            && process.spin(domain, self.state, word, MICROS_AT_A_TIME, 0, None)
        {
            return true;
        }
        let bucket = process.bucket(core::ptr::from_ref(self.state).addr());
        // Acquire: pairs with the release in `wake_writer`. A thread that finds the count after a step finds what that step has left.
        let count = bucket.load(Ordering::Acquire);
        let word = self.load();
        if over(word) || word & WRITER_ASLEEP == 0 && !self.remark(word, word | WRITER_ASLEEP) {
            return true;
        }
        patience.has_slept();
        #[cfg(test)]
        note(Event::WriterSlept);
        P::wait(bucket, count, deadline) != Wait::TimedOut
    }
}
