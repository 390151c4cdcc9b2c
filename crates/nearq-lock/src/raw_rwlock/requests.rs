//! Readers that a writer lets in although it waits for the lock: for locks that a thread may read again while it reads.
//!
//! The lock is phase-fair: a reader waits for a writer that waits for readers. If such a reader keeps one of those readers from leaving,
//! all three wait for ever: a thread that reads and wants to read again, or a thread that reads and waits for one that wants to read. Where
//! programs may do that (POSIX allows the first, and the C library's lock bears both), such a reader *asks* the writer to let it in. It need
//! not ask if it can [join](RawRwLock::join_readers) the readers by one step: it asks if they count themselves by cache, or if
//! their count is full.
//!
//! # Protocol
//! The *requests*, a word beside the lock, count the readers that ask.
//!
//! - *ask*: requests + 1; wake the lock's bucket; wait as any reader does; requests - 1. The reader that makes them 0 wakes the head.
//! - *give way*: a head that waits for readers, and finds requests, gives up as at its deadline: `KIND` to `NONE`, the phase stays, and the
//!   readers that wait enter. It stays the head, and changes `KIND` again when there are no requests.
//!
//! Invariants, after those of `raw_rwlock.rs` and `by_cache.rs`:
//! 11. **A reader that asks does not wait for readers.** While there are requests, a head that finds readers in the lock does not keep new
//!     ones out. So the reader waits for a writer that has the lock, if there is one, and for the head to notice.
//! 12. **The head notices.** It reads the bucket's counter, then the requests, then sleeps while the counter is as it was. A reader that
//!     asks changes the requests first, and then the counter (release; the head's read of it is an acquire).
//! 13. **The reader's last access to the requests is while it has the lock**, or, if it gives up, while its caller keeps the lock in
//!     existence.
//!
//! A reader that asks may come again and again, and then a writer starves, as with any lock that prefers readers. So only those ask that
//! may have to, and others wait for a while before they do (`nearq-preload`).

use nearq_platform::{Atomic, AtomicInt, Instant, Linux, LockPlatform, Ordering, Wait};

use super::RawRwLock;
use super::leaving::wake_writer;
use super::waiting::Waiting;
use super::word::WRITER;

/// The readers that ask the writer of a lock to let them in first. All zero: none.
#[doc(hidden)]
#[repr(transparent)]
pub struct Requests<P: LockPlatform = Linux>(P::AtomicU32);

impl<P: LockPlatform> Requests<P> {
    /// No requests, on any platform.
    pub fn new_in() -> Self {
        Requests(P::AtomicU32::new(0))
    }

    /// In the child of a fork: the readers that asked do not exist.
    pub fn renew(&self) {
        // Relaxed: no other thread uses the lock.
        self.0.store(0, Ordering::Relaxed);
    }
}

impl<P: LockPlatform> RawRwLock<P> {
    /// Takes the lock as a reader, [disowned](Self::take_free_read), which a writer that waits for readers must allow first; sleeps while a
    /// writer has it. False if the deadline came first. All writers of the lock must use [`write_giving_way`](Self::write_giving_way), with
    /// the same requests.
    #[doc(hidden)]
    #[cold]
    pub fn read_asking(&self, requests: &Requests<P>, deadline: Option<Instant>) -> bool {
        // Relaxed: the head finds it by the counter of its bucket (invariant 12).
        requests.0.fetch_add(1, Ordering::Relaxed);
        wake_writer::<P>(&raw const self.state);
        let entered = self.waiting().read(None, deadline);
        // Relaxed: the head, which may go on, publishes nothing by it and reads nothing of ours.
        if requests.0.fetch_sub(1, Ordering::Relaxed) == 1 {
            P::wake(&raw const requests.0, usize::MAX);
        }
        entered
    }

    /// Takes the lock as a writer, [disowned](Self::take_free_write), and lets readers in that [ask](Self::read_asking) while it waits for
    /// other readers. False if the deadline came first.
    #[doc(hidden)]
    #[cold]
    pub fn write_giving_way(&self, requests: &Requests<P>, deadline: Option<Instant>) -> bool {
        Waiting::new(&self.state, &self.writers, Some(&requests.0)).queue_up(WRITER, deadline)
    }
}

impl<P: LockPlatform> Waiting<'_, P> {
    /// Whether a reader asks the head to let it in first.
    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        // Relaxed: before it sleeps, the head has read the counter of its bucket, by an acquire (invariant 12).
        self.requests.is_some_and(|requests| requests.load(Ordering::Relaxed) != 0)
    }

    /// The head has given the lock up: for readers that ask, or because its deadline has come. Waits until no reader asks; false if the
    /// deadline came first.
    pub(super) fn has_given_way(&self, deadline: Option<Instant>) -> bool {
        let Some(requests) = self.requests else { return false };
        loop {
            // Relaxed: nothing is read that readers have written.
            let asking = requests.load(Ordering::Relaxed);
            if asking == 0 {
                return !deadline.is_some_and(P::has_come);
            }
            if P::wait(requests, asking, deadline) == Wait::TimedOut {
                return false;
            }
        }
    }
}
