//! Freezing: nothing of the freezable queues starts any more, and the thread that freezes waits until nothing of them runs.
//!
//! # Protocol
//! The runtime has one word, `frozen`. A freezable queue's limits are zero while it is set; a thread that sets a queue's limits reads it
//! with the queue's configuration locked. A thread that freezes or thaws first writes the word, then makes every freezable queue set its
//! limits again. So if several freeze and thaw at once, every queue ends up following the last write.
//! * A queue that is being made is entered into the runtime's list first, and then sets its limits once more. Either the thread that
//!   freezes finds it in the list, or the new queue finds the word set: the list's lock orders the two.
//! * Nothing starts after `freeze` has returned, not even what an issuer was about to admit by the old limit: see "A lower limit counts at
//!   once" at `node_active`.
//!
//! The thread that freezes waits for each domain of each queue, one after the other. Their limits are zero: a domain that is still stays so
//! until the thaw, and then there is nothing to wait for any more.

use crate::limit::pool_workqueue::PoolWorkqueue;
use nearq_platform::Platform;

use crate::base::error::Error;
use crate::queue::runtime::Runtime;

impl<P: Platform> Runtime<P> {
    /// Freezes the runtime: its [freezable](crate::WorkqueueBuilder::freezable) queues start nothing until [`thaw`](Self::thaw), and hold
    /// back what is queued on them. Blocks until none of their items waits for a worker or runs, or until the runtime is thawed. Other
    /// queues go on.
    ///
    /// Use it, for example, before a checkpoint of the process, or before you take away something that the items use.
    ///
    /// Freezing a runtime that is already frozen changes nothing, and waits like the first call. A queue that is built meanwhile is frozen,
    /// too. While the runtime is frozen, dropping a queue that holds something back blocks until the thaw, and a changed limit takes effect
    /// at the thaw. If a running item waits for a held-back one, this call does not return before another thread thaws the runtime.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Runtime, Workqueue};
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let queue = runtime.workqueue_builder("disk").freezable().build()?;
    /// runtime.freeze()?;
    /// let later = queue.spawn(|| 5);
    /// assert!(!later.is_finished());
    /// runtime.thaw();
    /// assert_eq!(later.join().unwrap(), 5);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Deadlock`] inside an item of a freezable queue of this runtime, which would wait for itself. Nothing is frozen then.
    pub fn freeze(&self) -> Result<(), Error> {
        if self.runs_freezable() {
            return Err(Error::Deadlock(
                "an item of a freezable queue cannot freeze: freezing would wait until the item has ended; \
             freeze from another thread, or from an item of a queue that is not freezable",
            ));
        }
        self.inner().freezer.change(true);
        let queues = self.inner().freezable_queues();
        for queue in &queues {
            queue.follow_freezer();
        }
        crate::pool::context::blocking::<P, _>(|| {
            for queue in &queues {
                queue.wait_until_still();
            }
        });
        Ok(())
    }

    /// Thaws the runtime: what freezable queues have held back starts. Does nothing if the runtime is not frozen.
    pub fn thaw(&self) {
        self.inner().freezer.change(false);
        for queue in self.inner().freezable_queues() {
            queue.follow_freezer();
        }
    }

    /// Returns whether freezable queues start nothing: from the beginning of [`freeze`](Self::freeze) to [`thaw`](Self::thaw).
    pub fn is_frozen(&self) -> bool {
        self.inner().freezer.is_frozen()
    }

    /// Whether the caller is an item of a freezable queue of this runtime.
    fn runs_freezable(&self) -> bool {
        crate::pool::context::with_current::<P, _>(|context| {
            // SAFETY: null, or the pwq that this worker serves, which its item keeps alive.
            let pwq = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() };
            core::ptr::eq(context.services, &raw const self.inner().services)
                && pwq.is_some_and(|pwq| pwq.queue().flags.freezable)
        })
        .unwrap_or(false)
    }
}
