//! Shutting a runtime down: nothing new is queued, what is queued runs, every thread ends; and what is still left when the time is over.
//!
//! # Steps
//! 1. *Close*: `shut` is set, then each queue is drained for good (`flush`): its ceilings stay closed, so every issuer takes the slow path
//!    (`NodeActive::enter_closed`), where all but the runtime's own running items are refused. What those items queue is a part of the work
//!    that must be finished.
//! 2. *Empty*: wait until, at one moment, nothing is admitted, held back or running in any domain of any queue.
//! 3. *End*: `stopping` is set; every worker, the monitor and the timer end, and are joined. `ended` is set.
//!
//! What waits and is on no queue delays nothing. An item on a timer is not pending any more when the timer has ended; if its time comes
//! earlier, its queue refuses it. A future that sleeps goes on sleeping, and is cancelled by a wake (`future`); a future that is woken by
//! one of the runtime's workers before the end is an item like others. What a frozen queue holds back does delay the shutdown.
//!
//! If the time is over, the call returns at whichever step it is. Nothing is opened again and nothing is thrown away: what is queued goes
//! on, and the next call goes on waiting. `gave_up` is set: the drop of a queue does not wait any more, because its owner has said how long
//! to wait; a queue that is not empty then is kept until it is (as one that is dropped by its own item).
//!
//! # The races
//! *An issuer that saw the queue open*: it is counted in `admitted` or `inactive`, then checks whether a thread drains (or whether the
//! ceiling's epoch has changed), and takes its count back if so. Step 1 writes `drainers` and the epoch, step 2 reads the counts. All are
//! `SeqCst`: either the issuer sees that it is too late, or step 2 sees its item and waits for it. So everything for which `queue` returned
//! `true` has run.
//! *Empty at one moment*: an item of one queue may queue to another. What has ended is read first for all domains, then what is held back,
//! then what was admitted; see `Queue::is_empty` for why equal sums mean that nothing ran in between.
//! *A queue that is built meanwhile*: its builder puts it on the list, then reads `shut`; step 1 sets `shut`, then reads the list. The
//! list's lock orders the two.
//! *A thread that is started meanwhile*: its starter counts it, then reads `stopping`; step 3 sets `stopping`, then waits for the count.
//! The same applies to the threads of the monitor and of the timer, with `stopped` and `alive` (`base/service_thread`).

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::limit::node_active::NodeActive;
use crate::pool::context::blocking;
use crate::queue::Queue;
use crate::queue::runtime::{Inner, Runtime};
use crate::user::snapshot::{QueueLabel, RunningItem};

/// How often to check whether something that takes a few instructions is over.
const LOOK: Duration = Duration::from_micros(100);

impl<P: Platform> Runtime<P> {
    /// Shuts the runtime down: refuses new work, blocks until everything that is queued has run, and ends every thread. Blocks for at most
    /// `timeout`, except for the destructors of thread-locals of the runtime's threads, which are waited for however long they take.
    ///
    /// From the call on, queueing is refused: [`queue`](crate::Workqueue::queue) returns `false`, `try_queue` and `try_spawn` return
    /// [`Error::ShutDown`](crate::Error::ShutDown), joining what `spawn` returns gives [`JoinError::Refused`](crate::JoinError::Refused),
    /// and no workqueue can be built. The runtime's own running items may go on queueing until they are done. So an item that queues itself
    /// again and again prevents the shutdown.
    ///
    /// After `Ok`, no thread of the runtime is left, and dropping its workqueues does not block.
    ///
    /// The shutdown does not wait for what waits for something other than a worker. A [delayed](crate::Workqueue::queue_delayed) item whose
    /// time has not come is dropped, and is no longer pending. A future that waits for a wake is not polled again; when it is woken, it is
    /// [cancelled](crate::JoinError::Cancelled). But the shutdown does wait for what a [frozen](Self::freeze) runtime holds back, and times
    /// out unless the runtime is thawed in time.
    ///
    /// A shutdown cannot be undone, and that applies to the process-wide runtime, too. Calling it again is harmless. If a runtime was being
    /// shut down when the process was forked, it stays shut down in the child.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Runtime;
    /// use std::time::Duration;
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let queue = runtime.workqueue_builder("last words").build()?;
    /// let handle = queue.spawn(|| 42);
    /// runtime.shutdown(Duration::from_secs(10))?;
    /// assert_eq!(handle.join().unwrap(), 42);
    /// assert_eq!(runtime.thread_count(), 0);
    /// assert!(queue.try_spawn(|| 43).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// * [`ShutdownError::TimedOut`]: what still runs or waits when the time is over. Nothing is lost: it goes on, and another call waits
    ///   for it again. From then on, dropping a workqueue of this runtime does not block; what is queued on it still runs while the process
    ///   lives.
    /// * [`ShutdownError::WouldDeadlock`]: the caller is an item or a hook of the runtime, which would wait for itself. Nothing has
    ///   happened.
    pub fn shutdown(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.inner().shut_down(P::now() + timeout)
    }
}

impl<P: Platform> Inner<P> {
    fn shut_down(&self, deadline: Instant) -> Result<(), ShutdownError> {
        if self.is_within() {
            return Err(ShutdownError::WouldDeadlock);
        }
        // SeqCst: see "The races".
        self.shutdown.shut.store(1, Ordering::SeqCst);
        if blocking::<P, _>(|| self.wait_until_empty(deadline) && self.end_threads(deadline)) {
            self.shutdown.ended.store(1, Ordering::Release);
            // A thread that is dropping a queue need not wait for what only the runtime's threads could do.
            self.services.departures.notify();
            // Queues that no thread waited for: no worker will free them any more.
            self.reap_orphans();
            return Ok(());
        }
        self.shutdown.gave_up.store(1, Ordering::Release);
        Err(ShutdownError::TimedOut(self.still_running()))
    }

    fn wait_until_empty(&self, deadline: Instant) -> bool {
        loop {
            let queues = self.live_queues();
            for queue in &queues {
                queue.shut();
            }
            if !queues.iter().all(|queue| queue.wait_until_empty(deadline)) {
                return false;
            }
            if is_quiet(&queues) {
                return true;
            }
            // An item has queued to a queue that was empty; or an issuer was refused at this very moment, and is taking back its count.
            if P::now() >= deadline {
                return false;
            }
            P::sleep(LOOK);
        }
    }

    /// Ends every thread; nothing is queued any more. False if they take too long.
    fn end_threads(&self, deadline: Instant) -> bool {
        self.ask_to_stop();
        while self.has_threads() || self.services.alarm.thread.is_alive() || self.timer.is_alive() {
            if P::now() >= deadline {
                return false;
            }
            P::sleep(LOOK);
        }
        // These threads only have to end.
        self.join_threads();
        true
    }

    fn still_running(&self) -> StillRunning {
        let queues = self.live_queues();
        let mut report = StillRunning {
            // A thread that moves from the first count to the second while both are read may be counted twice.
            threads: (self.threads.load(Ordering::Acquire) + self.leaving.load(Ordering::Acquire))
                as usize,
            ..StillRunning::default()
        };
        for queue in &queues {
            let mut waiting = queue.left() as usize;
            for worker in self.services.workers.iter().filter(|worker| worker.is_alive()) {
                let account = worker.account();
                // The pointer is compared, not followed: it may be that of a queue that is gone.
                let serves =
                    queue.pwqs_in_service().any(|own| core::ptr::eq(own.account(), account));
                // A worker serves the pwq of its last item until it looks for another; at most as many items run as are left.
                if let (true, Some(function)) = (serves && waiting != 0, worker.function()) {
                    waiting = waiting.saturating_sub(1);
                    report.running.push(RunningItem {
                        queue: Some(QueueLabel::of(queue)),
                        function,
                        thread: worker.name(),
                        thread_id: worker.thread.lock().map(P::thread_id),
                        description: worker.description(),
                        pool: worker.pool().id,
                        rescuer: worker.rescues(),
                        at_most: P::now() - worker.began(),
                    });
                }
            }
            if waiting != 0 {
                report.waiting.push(Backlog { queue: QueueLabel::of(queue), items: waiting });
            }
        }
        report
    }
}

/// Whether nothing is admitted, held back or running on any of the queues, all of which are shut, at one moment during the call.
fn is_quiet<P: Platform>(queues: &[Arc<Queue<P>>]) -> bool {
    let domains = || queues.iter().flat_map(|queue| queue.domains());
    // Acquire reads are enough for this order: a thread that sees that an item has ended also sees what that item had queued.
    let completed: u64 = domains().map(NodeActive::completed).sum();
    let inactive: u64 = domains().map(|domain| domain.counts().1).sum();
    let admitted: u64 = domains().map(|domain| domain.counts().0).sum();
    inactive == 0 && admitted == completed
}

/// The work that was left when the time for a [shutdown](Runtime::shutdown) was over.
#[derive(Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StillRunning {
    /// The items that run.
    pub running: Vec<RunningItem>,
    /// The queues on which items wait, and how many.
    pub waiting: Vec<Backlog>,
    /// Worker threads that have not ended. If nothing runs or waits, they are about to end, or are in a hook.
    pub threads: usize,
}

/// A queue on which items wait, and how many.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Backlog {
    /// The queue.
    pub queue: QueueLabel,
    /// How many items wait for a worker or are held back by the limit.
    pub items: usize,
}

/// Why a runtime could not be [shut down](Runtime::shutdown).
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Runtime, ShutdownError};
/// use std::{sync::mpsc, time::Duration};
///
/// let runtime = Runtime::builder().build()?;
/// let queue = runtime.workqueue_builder("slow").build()?;
/// let (sender, receiver) = mpsc::channel::<()>();
/// queue.spawn(move || receiver.recv());
/// match runtime.shutdown(Duration::from_millis(10)) {
///     Err(ShutdownError::TimedOut(left)) => eprintln!("{left}"),
///     other => panic!("{other:?}"),
/// }
/// drop(sender);
/// runtime.shutdown(Duration::from_secs(10))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The caller is an item or a hook of the runtime, and would have waited for itself. Nothing has happened.
    WouldDeadlock,
    /// The time was over before everything had run.
    TimedOut(StillRunning),
}

impl ShutdownError {
    /// Returns what still runs and waits, if the time was over.
    pub fn still_running(&self) -> Option<&StillRunning> {
        match self {
            ShutdownError::WouldDeadlock => None,
            ShutdownError::TimedOut(report) => Some(report),
        }
    }
}

impl fmt::Display for ShutdownError {
    /// One line, and for a time-out one more for each item that runs and each queue on which items wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ShutdownError::WouldDeadlock => f.write_str(
                "an item or hook cannot shut down its own runtime: it would wait for itself; do it from another thread",
            ),
            ShutdownError::TimedOut(report) => report.fmt(f),
        }
    }
}

nearq_topology::debug_as_display!(ShutdownError);

impl std::error::Error for ShutdownError {}

impl fmt::Display for StillRunning {
    /// One line, and one more for each item that runs and each queue on which items wait.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting: usize = self.waiting.iter().map(|queue| queue.items).sum();
        let (running, threads) = (self.running.len(), self.threads);
        write!(
            f,
            "the runtime could not be shut down in time: {running} running, {waiting} waiting, {threads} threads left"
        )?;
        for item in &self.running {
            let queue = item.queue.as_ref().map_or("", |queue| &queue.name);
            write!(f, "\n  workqueue `{queue}`: {} runs in {}", item.function, item.thread)?;
            if let Some(id) = item.thread_id {
                write!(f, " (thread {id})")?;
            }
            if !item.description.is_empty() {
                write!(f, ": {}", item.description)?;
            }
        }
        for queue in &self.waiting {
            write!(f, "\n  workqueue `{}`: {} waiting", queue.queue.name, queue.items)?;
        }
        Ok(())
    }
}

nearq_topology::debug_as_display!(StillRunning);

#[cfg(test)]
mod tests;
