//! High-priority queues before the document of 2012: one list and one worker for a CPU. Items of high priority go to the head of the list,
//! others to its end; the worker is an ordinary thread.
//!
//! So a high-priority item overtakes items, but no threads. The worker runs an item without the list's mutex, and sleeps while the list is
//! empty. Dropping the pool ends the worker once the list is empty.

use crate::Error;
use crate::harness::{Host, failed, on_cpus};
use nearq_lock::{Condvar, Mutex};
use nearq_topology::CpuSet;
use std::collections::VecDeque;
use std::sync::Arc;

type Job = Box<dyn FnOnce() + Send>;

/// Which end of the list an item goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Priority {
    /// The end.
    #[cfg_attr(not(test), expect(dead_code, reason = "the document's load has no such items"))]
    Normal,
    /// The head.
    High,
}

struct List {
    jobs: VecDeque<Job>,
    over: bool,
}

struct Shared<P: Host> {
    list: Mutex<List, P>,
    /// Notified when a job is added, and at the end.
    more: Condvar<P>,
}

/// The list and its worker.
pub(super) struct OneList<P: Host> {
    shared: Arc<Shared<P>>,
    worker: Option<P::JoinHandle>,
}

impl<P: Host> OneList<P> {
    /// Starts the worker on that CPU.
    pub(super) fn start(cpu: usize) -> Result<Self, Error> {
        let list = Mutex::new_in(List { jobs: VecDeque::new(), over: false });
        let shared = Arc::new(Shared { list, more: Condvar::new_in() });
        let of_worker = Arc::clone(&shared);
        let spec = on_cpus("worker".into(), CpuSet::single(cpu));
        let worker = P::spawn(spec, move || of_worker.work()).map_err(failed)?;
        Ok(Self { shared, worker: Some(worker) })
    }

    pub(super) fn queue(&self, priority: Priority, job: impl FnOnce() + Send + 'static) {
        let mut list = self.shared.list.lock();
        match priority {
            Priority::Normal => list.jobs.push_back(Box::new(job)),
            Priority::High => list.jobs.push_front(Box::new(job)),
        }
        self.shared.more.notify_one();
    }
}

impl<P: Host> Drop for OneList<P> {
    fn drop(&mut self) {
        self.shared.list.lock().over = true;
        self.shared.more.notify_one();
        if let Some(worker) = self.worker.take() {
            P::join(worker);
        }
    }
}

impl<P: Host> Shared<P> {
    fn work(&self) {
        let mut list = self.list.lock();
        loop {
            if let Some(job) = list.jobs.pop_front() {
                drop(list);
                job();
                list = self.list.lock();
            } else if list.over {
                return;
            } else {
                self.more.wait(&mut list);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;
    use std::sync::mpsc;

    #[test]
    fn high_priority_items_overtake_items_that_wait() {
        let cpu = Linux::affinity_of(std::process::id()).unwrap().first().unwrap();
        let pool = OneList::<Linux>::start(cpu).unwrap();
        let ((open, gate), (send, order)) = (mpsc::channel::<()>(), mpsc::channel());
        let (begin, begun) = mpsc::channel();
        pool.queue(Priority::Normal, move || {
            begin.send(()).unwrap();
            let _ = gate.recv();
        });
        begun.recv().unwrap();
        for (priority, number) in
            [(Priority::Normal, 1), (Priority::Normal, 2), (Priority::High, 3), (Priority::High, 4)]
        {
            let send = send.clone();
            pool.queue(priority, move || send.send(number).unwrap());
        }
        drop((open, send));
        let found: Vec<i32> = order.iter().collect();
        assert_eq!(found, [4, 3, 1, 2]);
        drop(pool);
    }
}
