//! What is promised for forks: each leaf of a tree is run by a worker of the queue, within its limit, mask and pod, and not while the queue
//! is frozen. On ordered and per-CPU queues, one worker runs all of them.

use super::{Book, Ledger};
use crate::placement::Runner;
use crate::plan::Kind;

impl Ledger {
    /// A leaf of a tree on that queue begins; `first` is the thread of the leaf of the tree that began first. Returns whether `thread` is
    /// one more that runs something of the queue.
    pub(crate) fn begin_leaf(&self, queue: usize, thread: u64, cpu: usize, first: u64) -> bool {
        let mut book = self.book();
        let Book { ground, queues, workers, defaults, frozen, executions, .. } = &mut *book;
        *executions += 1;
        let mut wrong = Vec::new();
        let at = &mut queues[queue];
        let is_one_more = at.enter(thread);
        at.running += usize::from(is_one_more);
        if is_one_more && at.kind == Kind::Unbound {
            // A thief is an item too.
            let limit = at.limit(ground, defaults);
            if at.running > limit {
                wrong.push(format!(
                    "{} threads run its items and leaves at once, max_active was at most {limit}",
                    at.running
                ));
            }
        }
        if *frozen && at.freezable {
            wrong.push("a leaf starts although the runtime is frozen".to_owned());
        }
        if at.kind != Kind::Unbound && thread != first {
            wrong.push(format!(
                "two threads run leaves of one tree on a queue of kind {:?}",
                at.kind
            ));
        }
        match workers.get(&thread) {
            None => wrong.push(format!("a leaf runs in thread {thread}, which is no worker")),
            // A thief that was called before a change may follow the old attributes, so they are checked if there was no change.
            Some(worker) if at.attributes.last() == 0 && defaults.last() == 0 => {
                let runner = Runner { name: &worker.name, pod: &worker.pod, cpu };
                let all = (&at.attributes.all, &defaults.all);
                let checked = ground.check(&runner, at.kind, all.0, all.1, None);
                wrong.extend(checked.err().map(|text| format!("a leaf {text}")));
                let is_strict = all.0[0].affinity_strict;
                if let Some(first) = workers.get(&first).filter(|_| is_strict)
                    && !first.pod.intersects(&worker.pod)
                {
                    wrong.push(format!(
                        "it is strict, and {} of pod {} and {} of pod {} run leaves of one tree",
                        first.name, first.pod, worker.name, worker.pod
                    ));
                }
            }
            Some(_) => {}
        }
        for text in wrong {
            book.violation(format!("queue-{queue}: {text}"));
        }
        is_one_more
    }

    /// A leaf on that queue ends, in the thread in which it began.
    pub(crate) fn end_leaf(&self, queue: usize, thread: u64, was_one_more: bool) {
        let at = &mut self.book().queues[queue];
        at.leave(thread);
        at.running -= usize::from(was_one_more);
    }

    /// An item that the runtime has made for a join from outside of the queue has ended.
    pub(crate) fn joined_from_outside(&self, queue: usize, panicked: bool) {
        let at = &mut self.book().queues[queue];
        at.joins += 1;
        at.panicked += u64::from(panicked);
    }
}
