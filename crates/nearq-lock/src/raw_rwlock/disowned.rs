//! The lock for code that does not know which thread will leave it, or cannot let a thread wait here: an interface to another language.
//!
//! What is taken here is *disowned*: debug builds do not note which thread has it. It must be left by the functions here. The functions in
//! whose names `free` or `unwaited` occurs are one step of the state: a thread may end before or after it, at any moment.

use nearq_platform::{Atomic, Instant, LockPlatform, Ordering};

use super::RawRwLock;
use super::by_cache;
use super::word::{
    ACTIVE_ONE, HEAD, KIND, NONE, PHASE, READERS_ASLEEP, RESERVED, WAITING_ONE, WRITER,
    WRITER_ASLEEP, active, has_space, has_writer, next_phase, row, waiting,
};

#[doc(hidden)]
impl<P: LockPlatform> RawRwLock<P> {
    /// One attempt to take the lock as a reader; false if there is a writer, or another thread was faster, or readers count themselves by
    /// cache.
    #[inline]
    pub fn take_free_read(&self) -> bool {
        self.enter().is_ok()
    }

    /// One attempt to take the lock as a writer; false if another thread has it, was faster, or readers count themselves by cache.
    #[inline]
    pub fn take_free_write(&self) -> bool {
        self.enter_alone(WRITER)
    }

    /// As [`take_free_read`](Self::take_free_read), and again while only other threads' speed prevents it. For processes in which nothing is
    /// made yet that locks share: in those, no reader counts itself by cache.
    pub fn try_read_alone(&self) -> bool {
        loop {
            if self.enter().is_ok() {
                return true;
            }
            // Relaxed: a guess.
            let word = self.state.load(Ordering::Relaxed);
            if has_writer(word) || row(word) != 0 || !has_space(word) {
                return false;
            }
        }
    }

    /// As [`try_read_alone`](Self::try_read_alone), as a writer.
    pub fn try_write_alone(&self) -> bool {
        loop {
            if self.enter_alone(WRITER) {
                return true;
            }
            // Relaxed: a guess.
            if self.state.load(Ordering::Relaxed) & !PHASE != 0 {
                return false;
            }
        }
    }

    /// As [`try_read`](Self::try_read).
    #[cold]
    pub fn try_read_disowned(&self) -> bool {
        self.waiting().try_read()
    }

    /// As [`try_write`](Self::try_write).
    #[cold]
    pub fn try_write_disowned(&self) -> bool {
        self.waiting().try_enter(WRITER)
    }

    /// Joins the readers that have the lock, although a writer may wait for them; false if no reader has it, if readers count themselves by
    /// cache, or if their count is full. One step, which needs nothing from the writer: it is still waiting for those readers.
    #[cold]
    pub fn join_readers(&self) -> bool {
        loop {
            // Relaxed: a guess, which the step below compares.
            let word = self.state.load(Ordering::Relaxed);
            if row(word) != 0 || active(word) == 0 || !has_space(word) {
                return false;
            }
            // Acquire: pairs with the release of the writer that left last.
            if self
                .state
                .compare_exchange(word, word + ACTIVE_ONE, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return true;
            }
        }
    }

    /// As [`read`](Self::read), if that is possible before the deadline.
    #[cold]
    pub fn read_disowned(&self, deadline: Option<Instant>) -> bool {
        self.waiting().read(None, deadline)
    }

    /// As [`write`](Self::write), if that is possible before the deadline.
    #[cold]
    pub fn write_disowned(&self, deadline: Option<Instant>) -> bool {
        self.waiting().queue_up(WRITER, deadline)
    }

    /// One attempt to leave the lock as a reader. False if a thread may have to be woken, or another thread was faster: then nothing has
    /// happened.
    ///
    /// # Safety
    /// The lock was taken by a reader for which the caller leaves, or no thread has it.
    #[inline]
    pub unsafe fn leave_read_unwaited(&self) -> bool {
        // Relaxed: a guess, which the step below compares.
        let word = self.state.load(Ordering::Relaxed);
        row(word) == 0
            && !has_writer(word)
            && active(word) > 0
            // Release: pairs with the acquire of the writer that finds no reader. `*self` may be gone once this has succeeded.
            && self
                .state
                .compare_exchange(word, word - ACTIVE_ONE, Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// One attempt to leave the lock as a writer, likewise.
    ///
    /// # Safety
    /// The lock was taken by a writer for which the caller leaves.
    #[inline]
    pub unsafe fn leave_write_unwaited(&self) -> bool {
        // Relaxed: a guess, which the step below compares.
        let word = self.state.load(Ordering::Relaxed);
        word & !PHASE == WRITER
            // Release: pairs with the acquires of the threads that get the lock next. `*self` may be gone once this has succeeded.
            && self
                .state
                .compare_exchange(word, next_phase(word, NONE, false), Ordering::Release, Ordering::Relaxed)
                .is_ok()
    }

    /// Leaves the lock as a reader; wakes the writer that waits for the last one.
    ///
    /// # Safety
    /// The lock was taken by a reader for which the caller leaves.
    #[cold]
    pub unsafe fn leave_read(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_reader() };
    }

    /// Leaves the lock as a writer; lets all waiting readers in, and wakes threads that sleep for it.
    ///
    /// # Safety
    /// The lock was taken by a writer for which the caller leaves.
    #[cold]
    pub unsafe fn leave_write(&self) {
        // SAFETY: as the caller promises.
        unsafe { self.leave_as_writer(NONE) };
    }

    /// Whether readers have the lock. That may have changed by the time the caller uses the answer, unless it is one of them.
    pub fn is_read(&self) -> bool {
        // A hint; a reader sees what it has changed itself. Acquire: pairs with the release in `lend_row`.
        by_cache::readers::<P>(self.state.load(Ordering::Acquire)) > 0
    }

    /// Whether readers have the lock that count themselves by cache; a hint as well.
    pub fn is_read_by_cache(&self) -> bool {
        // As in `is_read`.
        let word = self.state.load(Ordering::Acquire);
        row(word) != 0 && by_cache::readers::<P>(word) > 0
    }

    /// In the child of a fork: forgets the threads that waited for the lock in the parent. Those that had it still have it. `written` says
    /// that a writer is known to have it.
    ///
    /// # Safety
    /// In this process, no thread has called or calls other functions of the lock than those that are one step.
    pub unsafe fn renew(&self, written: bool) {
        // SAFETY: threads that held it or waited for it are not copied into the child of a fork, and one step does not touch it.
        unsafe { self.writers.renew() };
        // Relaxed, here and below: what threads of the parent did happened before the fork, and the caller publishes the rest.
        let mut word = self.state.load(Ordering::Relaxed);
        by_cache::forget_waiting::<P>(word);
        loop {
            let waited = has_writer(word) && !written && by_cache::readers::<P>(word) > 0;
            let gone =
                READERS_ASLEEP | WRITER_ASLEEP | RESERVED | HEAD | if waited { KIND } else { 0 };
            let next = (word & !gone) - waiting(word) * WAITING_ONE;
            let step =
                self.state.compare_exchange_weak(word, next, Ordering::Relaxed, Ordering::Relaxed);
            match step {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }
}
