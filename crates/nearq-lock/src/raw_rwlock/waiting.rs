//! How a thread waits for a reader-writer lock; the head of `raw_rwlock.rs` has the protocol.

use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Instant, LockPlatform, Ordering, Wait};

use super::RawRwLock;
use super::by_cache::{self, Counted, Place};
use super::word::{
    ACTIVE_ONE, ENDING, HEAD, KIND, NONE, READERS_ASLEEP, RESERVED, UPGRADABLE, WAITING_ONE,
    WRITER, WRITER_ASLEEP, has_space, has_writer, is_open, row, second,
};
use crate::process_state::ProcessState;
use crate::raw::RawMutex;
#[cfg(test)]
use crate::statistics::{Event, seen::note};
use crate::yields::yield_once;

/// For how long a thread spins before it sleeps. That is longer than for a thread that has the turn of a mutex: here it waits for all
/// readers, or for a writer that has waited for readers itself.
const SPINNING: Duration = Duration::from_micros(20);
/// For how many microseconds it spins at a time, before it reads the clock.
const MICROS_AT_A_TIME: u32 = 5;
/// How many times the head tolerates a change of the state that is not for it, while it spins.
const OVERTAKEN: u32 = 4;
/// For how many reads a thread that lost a race for the state lets others go first, at most.
const MOST_READS_AFTER_LOSS: u32 = 64;
/// How long a reader for which there is no space sleeps before it tries again.
const NO_SPACE: Duration = Duration::from_micros(50);

/// A lock, and a thread that wants it.
pub(super) struct Waiting<'a, P: LockPlatform> {
    pub(super) state: &'a P::AtomicU32,
    writers: &'a RawMutex<P>,
    /// The readers that ask the head to let them in first (`requests.rs`), if the lock's readers may ask.
    pub(super) requests: Option<&'a P::AtomicU32>,
}

/// How long a thread that waits still spins, and since when it waits.
#[derive(Default)]
struct Patience {
    /// Since when it waits, if it has looked.
    since: Option<Instant>,
    /// Since when it spins; none if it has just begun to.
    spins_since: Option<Instant>,
    /// How many times the state has changed while it was spinning.
    rounds: u32,
    /// How many times it has let other threads run since it began to wait, or slept.
    yields: u32,
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
        self.rounds = 0;
        self.yields = 0;
    }

    /// Lets other threads run, if that may help: one of them may have been preempted with the lock, or before it noticed that it has it.
    /// Returns whether it did.
    fn lets_others_run<P: LockPlatform>(&mut self, process: &ProcessState<P>) -> bool {
        let most = process.settings().yields;
        if self.yields >= most || self.yields == 0 && P::is_real_time() {
            return false;
        }
        self.yields = yield_once::<P>(self.yields, most);
        true
    }

    /// Whether the thread has waited for that long since it looked first.
    fn is_over<P: LockPlatform>(&mut self, patience: Duration) -> bool {
        let now = P::now();
        now - *self.since.get_or_insert(now) >= patience
    }
}

/// How a reader's wait for the next phase ended.
enum Waited {
    /// It has the lock.
    In,
    /// The writer has given up, or the lock's row is about to be taken away: it is not counted any more, and starts over.
    Anew,
    /// The deadline came, and it is not counted any more.
    GaveUp,
}

impl<'a, P: LockPlatform> Waiting<'a, P> {
    #[inline]
    pub(super) fn new(
        state: &'a P::AtomicU32,
        writers: &'a RawMutex<P>,
        requests: Option<&'a P::AtomicU32>,
    ) -> Self {
        Waiting { state, writers, requests }
    }

    fn load(&self) -> u32 {
        // Acquire: a thread that finds what it waits for has the lock.
        self.state.load(Ordering::Acquire)
    }

    /// A step by which the thread gets the lock, or comes closer to it.
    fn step(&self, from: u32, to: u32) -> bool {
        // Acquire: pairs with the releases of the threads that left.
        self.state.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// A step that keeps new readers out.
    fn step_to_writer(&self, from: u32, to: u32) -> bool {
        // SeqCst: Dekker's pattern with readers that count themselves in the row, and then read the state. Acquire, included: as in `step`.
        let step = self.state.compare_exchange(from, to, Ordering::SeqCst, Ordering::Relaxed);
        P::model_fence();
        step.is_ok()
    }

    /// Makes a remark in the state by which nothing is published.
    fn remark(&self, from: u32, to: u32) -> bool {
        self.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    // ---- readers ----------------------------------------------------------------------------------------

    /// Enters as a reader if there is no writer, and space.
    #[inline(never)]
    pub(super) fn try_read(&self) -> bool {
        let mut losses = 0;
        loop {
            let word = self.load();
            if has_writer(word) {
                return false;
            }
            if row(word) != 0 {
                let process = ProcessState::<P>::of_any_process();
                match self.count_by_cache(process, word) {
                    (Counted::In, _) => return true,
                    (Counted::Waits, place) => place.leave(process),
                    (Counted::No, _) => {}
                }
            } else if !has_space(word) {
                return false;
            } else if self.enter(word, &mut losses) {
                return true;
            }
        }
    }

    /// One attempt to enter as a reader of a lock that had neither a row nor a writer.
    fn enter(&self, word: u32, losses: &mut u32) -> bool {
        if self.step(word, word + ACTIVE_ONE) {
            return true;
        }
        self.lend_row();
        Self::lost(losses);
        false
    }

    /// Waits until the thread has entered as a reader; false if the deadline came first. `found` is the state in which its first attempt to
    /// enter failed, if it knows that.
    #[inline(never)]
    pub(super) fn read(&self, found: Option<u32>, deadline: Option<Instant>) -> bool {
        if found.is_some_and(is_open) {
            // Another thread was faster.
            self.lend_row();
        }
        let mut found = found.filter(|word| row(*word) != 0);
        let mut losses = 0;
        loop {
            let word = found.take().unwrap_or_else(|| self.load());
            let waited = if row(word) != 0 && word & KIND != ENDING {
                match self.count_by_cache(ProcessState::<P>::of_any_process(), word) {
                    (Counted::In, _) => return true,
                    (Counted::Waits, place) => self.await_phase(word, Some(place), deadline),
                    (Counted::No, _) => continue,
                }
            } else if !has_space(word) {
                if deadline.is_some_and(P::has_come) {
                    return false;
                }
                P::sleep(NO_SPACE);
                continue;
            } else if !has_writer(word) {
                if self.enter(word, &mut losses) {
                    return true;
                }
                continue;
            } else if self.remark(word, word + WAITING_ONE) {
                self.await_phase(word, None, deadline)
            } else {
                Self::lost(&mut losses);
                continue;
            };
            match waited {
                Waited::In => return true,
                Waited::Anew => {}
                Waited::GaveUp => return false,
            }
        }
    }

    /// Lets other threads go first after a step that failed, longer each time.
    fn lost(losses: &mut u32) {
        *losses += 1;
        P::pause((1 << (*losses).min(16)).min(MOST_READS_AFTER_LOSS));
    }

    /// Waits as a reader that is counted in `place`, or in `WAITING`, until the phase of `began` is over, or the reader has to start over.
    fn await_phase(&self, began: u32, place: Option<Place>, deadline: Option<Instant>) -> Waited {
        let process = ProcessState::<P>::get();
        let domain = process.current_domain();
        let mut patience = Patience::default();
        loop {
            let word = self.load();
            match place {
                Some(place) if place.is_in(word) => return Waited::In,
                Some(place) if !place.waits(word) => {
                    place.leave(process);
                    return Waited::Anew;
                }
                None if second(word) != second(began) => return Waited::In,
                None if !has_writer(word) => {
                    if self.step(word, word - WAITING_ONE + ACTIVE_ONE) {
                        return Waited::In;
                    }
                    continue;
                }
                _ => {}
            }
            if patience.spins::<P>()
                && process.spin(domain, self.state, word, MICROS_AT_A_TIME, 0, None)
            {
                continue;
            }
            if patience.lets_others_run(process) {
                continue;
            }
            let asleep = word | READERS_ASLEEP;
            if word != asleep && !self.remark(word, asleep) {
                continue;
            }
            #[cfg(test)]
            note(Event::ReaderSlept);
            if P::wait(self.state, asleep, deadline) == Wait::TimedOut {
                return self.leave_waiting(process, began, place);
            }
            patience.has_slept();
        }
    }

    /// The reader no longer waits, unless it has the lock by now.
    fn leave_waiting(&self, process: &ProcessState<P>, began: u32, place: Option<Place>) -> Waited {
        loop {
            let word = self.load();
            let is_in = match place {
                Some(place) => place.is_in(word),
                None => second(word) != second(began),
            };
            if is_in {
                #[cfg(test)]
                note(Event::LetInLate);
                return Waited::In;
            }
            if let Some(place) = place {
                place.leave(process);
                return Waited::GaveUp;
            }
            if self.remark(word, word - WAITING_ONE) {
                return Waited::GaveUp;
            }
        }
    }

    /// Waits a little for readers to leave, so that one more may be counted.
    pub(super) fn await_space() {
        P::sleep(NO_SPACE);
    }

    // ---- writers and upgradable readers -----------------------------------------------------------------

    /// Enters as `kind` if that is possible at once, and the lock is not reserved for the head.
    pub(super) fn try_enter(&self, kind: u32) -> bool {
        loop {
            let word = self.load();
            if word & (KIND | RESERVED) != 0 {
                return false;
            }
            if kind == UPGRADABLE {
                if self.step(word, word | kind) {
                    return true;
                }
            } else if by_cache::readers::<P>(word) > 0 {
                return false;
            } else if let Some(entered) = self.try_as_writer(word, NONE) {
                return entered;
            }
        }
    }

    /// Makes an upgradable reader a writer if there is no other reader.
    pub(super) fn try_upgrade(&self) -> bool {
        loop {
            let word = self.load();
            if by_cache::readers::<P>(word) > 0 {
                return false;
            }
            if let Some(entered) = self.try_as_writer(word, UPGRADABLE) {
                return entered;
            }
        }
    }

    /// Changes the kind of `word`, which is `from`, to that of a writer, and back if readers are left. None if the state is another one.
    fn try_as_writer(&self, word: u32, from: u32) -> Option<bool> {
        let process = ProcessState::<P>::get();
        let kind = by_cache::kind_of_writer(process, word);
        if !self.step_to_writer(word, word & !KIND | kind) {
            return None;
        }
        // Without a row, the step was from a state without readers.
        let entered = row(word) == 0 || by_cache::readers_first(process, word) == 0;
        if !entered {
            self.give_up(from);
        }
        Some(entered)
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
        // Relaxed: this thread has set it.
        if entered && kind == WRITER && self.state.load(Ordering::Relaxed) & HEAD != 0 {
            // It is released by the thread that leaves the lock, which may be another one.
            self.writers.disown();
            return true;
        }
        // SAFETY: taken above. If the thread has entered, it has the lock; if not, its caller keeps the lock in existence.
        unsafe { self.writers.unlock() };
        entered
    }

    /// Waits as the head until the thread has entered as `kind`; false if the deadline came first.
    fn as_head(&self, kind: u32, deadline: Option<Instant>) -> bool {
        let process = ProcessState::<P>::get();
        let domain = process.current_domain();
        let mut patience = Patience::default();
        loop {
            let word = self.load();
            if word & KIND == NONE {
                if kind == UPGRADABLE {
                    if self.step(word, word & !RESERVED | kind) {
                        return true;
                    }
                } else {
                    let kind = by_cache::kind_of_writer(process, word);
                    // With no thread behind, the next one finds `writers` free, and is faster.
                    let keeps = if self.writers.is_queued_for() { HEAD } else { 0 };
                    if self.step_to_writer(word, word & !RESERVED | kind | keeps) {
                        if self.await_readers_as_head(process, word, deadline) {
                            return true;
                        }
                        if !self.has_given_way(deadline) {
                            return false;
                        }
                    }
                }
                continue;
            }
            // As the thread that has the turn of a mutex: if CPUs are left for spinning, the order is kept, because all threads are awake; if
            // not, threads that run are faster than any order.
            let reserves = patience.is_over::<P>(process.settings().patience)
                || patience.rounds > OVERTAKEN && process.another_may_spin(domain);
            if word & RESERVED == 0 && reserves {
                // Relaxed: nothing is published by it.
                self.state.fetch_or(RESERVED, Ordering::Relaxed);
            } else if !self.wait(process, word, &mut patience, deadline, false) {
                // Only the head changes it.
                self.state.fetch_and(!RESERVED, Ordering::Relaxed);
                return false;
            }
        }
    }

    /// As [`await_readers`](Self::await_readers), for the head; if the wait ends without the lock, the thread gives it up.
    fn await_readers_as_head(
        &self,
        process: &ProcessState<P>,
        word: u32,
        deadline: Option<Instant>,
    ) -> bool {
        if !self.await_readers(process, word, deadline) {
            self.give_up(NONE);
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
        let process = ProcessState::<P>::get();
        loop {
            let word = self.load();
            if self.step_to_writer(word, word & !KIND | by_cache::kind_of_writer(process, word)) {
                let entered = self.await_readers(process, word, deadline);
                if !entered {
                    self.give_up(UPGRADABLE);
                }
                return entered;
            }
        }
    }

    /// A thread that has made the kind that of a writer makes it `kind` again, without having had the lock as a writer.
    fn give_up(&self, kind: u32) {
        // SAFETY: the thread has made the kind what it is, and the lock is still there.
        unsafe { RawRwLock::<P>::leave(self.state, |word| word & !(KIND | HEAD) | kind) };
    }

    /// Waits until no reader is left; the thread has made the kind that of a writer, when the state was `before`. False if the deadline came
    /// first, or a reader asks to be let in first.
    fn await_readers(
        &self,
        process: &ProcessState<P>,
        before: u32,
        deadline: Option<Instant>,
    ) -> bool {
        if by_cache::readers_first(process, before) == 0 {
            return true;
        }
        let mut patience = Patience::default();
        loop {
            let word = self.load();
            if by_cache::readers::<P>(word) == 0 {
                return true;
            }
            if self.is_asked() || !self.wait(process, word, &mut patience, deadline, true) {
                return false;
            }
        }
    }

    /// Waits for a moment, for readers (`for_readers`) or for the thread that has the lock: until the state is another one than `word`, or
    /// the thread was woken. False if the deadline came.
    fn wait(
        &self,
        process: &ProcessState<P>,
        word: u32,
        patience: &mut Patience,
        deadline: Option<Instant>,
        for_readers: bool,
    ) -> bool {
        let row_of = |word| match row(word) {
            number if for_readers && number != 0 => Some(process.readers.get(number)),
            _ => None,
        };
        let (spot, value) =
            row_of(word).and_then(|row| row.busy(second(word))).unwrap_or((self.state, word));
        let domain = process.current_domain();
        if patience.spins::<P>() && process.spin(domain, spot, value, MICROS_AT_A_TIME, 0, None) {
            patience.rounds += 1;
            return true;
        }
        if patience.lets_others_run(process) {
            return true;
        }
        let number = ProcessState::<P>::bucket_of(core::ptr::from_ref(self.state).addr());
        let bucket = &process.bucket(number).count;
        // Acquire: pairs with the release in `wake_bucket`. A thread that finds the count after a step finds what that step has left.
        let count = bucket.load(Ordering::Acquire);
        let word = self.load();
        if !for_readers && word & KIND == NONE
            || word & WRITER_ASLEEP == 0 && !self.remark(word, word | WRITER_ASLEEP)
        {
            return true;
        }
        // The row of now: a reader that has lent one since increments the count.
        if let Some(row) = row_of(word) {
            row.falls_asleep(number);
        }
        if for_readers && (by_cache::readers::<P>(word) == 0 || self.is_asked()) {
            return true;
        }
        patience.has_slept();
        #[cfg(test)]
        note(Event::WriterSlept);
        P::wait(bucket, count, deadline) != Wait::TimedOut
    }
}
