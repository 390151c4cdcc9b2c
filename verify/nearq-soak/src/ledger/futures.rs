//! What is promised for futures: they are polled one at a time, by workers, at most once for each wake and once more after each;
//! dropped once, never while they are polled, and before they are joined.

use super::{Book, Ledger};

/// A future.
#[derive(Debug, Default)]
pub(super) struct FutureBook {
    number: usize,
    queue: usize,
    polls: u64,
    wakes: u64,
    /// The minimum number of polls that must start in total.
    due: u64,
    polling: bool,
    done: bool,
    dropped: bool,
    /// Whether a thread has begun to cancel it, and whether it was reported as cancelled.
    asked: bool,
    cancelled: bool,
    /// The number of its queue's drains when it was spawned.
    drains: (u64, u64),
}

impl FutureBook {
    /// What is wrong with it at the end.
    pub(super) fn is_left(&self) -> Option<String> {
        let FutureBook { number, polls, due, dropped, .. } = self;
        let lost = if due > polls { ", and a wake was lost" } else { "" };
        (!dropped)
            .then(|| format!("future {number}: it was never dropped after {polls} polls{lost}"))
    }
}

impl Ledger {
    pub(crate) fn add_future(&self, queue: usize) -> usize {
        let mut book = self.book();
        let number = book.futures.len();
        let at = &mut book.queues[queue];
        at.has_futures = true;
        let drains = at.drains;
        book.futures.push(FutureBook { number, queue, due: 1, drains, ..FutureBook::default() });
        number
    }

    /// A thread is about to wake it.
    pub(crate) fn begin_wake(&self, future: usize) {
        let future = &mut self.book().futures[future];
        future.wakes += 1;
        future.due = future.due.max(future.polls + 1);
    }

    pub(crate) fn begin_poll(&self, future: usize, thread: u64) {
        let mut book = self.book();
        let Book { futures, queues, workers, frozen, executions, .. } = &mut *book;
        *executions += 1;
        let future = &mut futures[future];
        let at = &mut queues[future.queue];
        at.polls += 1;
        at.polling += 1;
        future.polls += 1;
        let mut wrong = Vec::new();
        if std::mem::replace(&mut future.polling, true) {
            wrong.push("two polls of it at once".to_owned());
        }
        if future.done || future.dropped {
            wrong.push("it is polled after its end".to_owned());
        }
        if future.polls > future.wakes + 1 {
            wrong.push(format!("poll {}, and it was woken {} times", future.polls, future.wakes));
        }
        if !workers.contains_key(&thread) {
            wrong.push(format!("polled in thread {thread}, which is no worker"));
        }
        if *frozen && at.freezable {
            wrong.push("polled although the runtime is frozen".to_owned());
        }
        let number = future.number;
        for text in wrong {
            book.violation(format!("future {number}: {text}"));
        }
    }

    /// The poll returns, or panics; `done` says whether that is its end.
    pub(crate) fn end_poll(&self, future: usize, done: bool, panicked: bool) {
        let mut book = self.book();
        let Book { futures, queues, .. } = &mut *book;
        let future = &mut futures[future];
        future.polling = false;
        future.done |= done;
        let at = &mut queues[future.queue];
        at.polling -= 1;
        at.panicked += u64::from(panicked);
    }

    pub(crate) fn future_dropped(&self, future: usize) {
        let mut book = self.book();
        let future = &mut book.futures[future];
        let twice = std::mem::replace(&mut future.dropped, true);
        let (number, polling) = (future.number, future.polling);
        if twice || polling {
            let how = if twice { "twice" } else { "while it is polled" };
            book.violation(format!("future {number}: it is dropped {how}"));
        }
    }

    pub(crate) fn begin_cancel_future(&self, future: usize) {
        self.book().futures[future].asked = true;
    }

    /// The call has returned; the argument says whether the future is reported as cancelled.
    pub(crate) fn end_cancel_future(&self, future: usize, cancelled: bool) {
        let mut book = self.book();
        let future = &mut book.futures[future];
        future.cancelled |= cancelled;
        let (number, done) = (future.number, future.done);
        if !cancelled && !done {
            book.violation(format!(
                "future {number}: it is said to have ended before it was cancelled, and has not"
            ));
        }
    }

    /// The last handle of a queue is about to be dropped.
    pub(crate) fn drops(&self, queue: usize) {
        self.book().queues[queue].is_dropped = true;
    }

    /// It has been joined. Returns what is wrong with that.
    pub(crate) fn future_joined(&self, future: usize, cancelled: bool) {
        let mut book = self.book();
        let at = &book.futures[future];
        let drains = book.queues[at.queue].drains;
        let refused = at.drains.0 != at.drains.1 || drains.0 != at.drains.0;
        let may_be_gone = book.queues[at.queue].is_dropped;
        let mut wrong = Vec::new();
        if cancelled && !at.asked && !may_be_gone && !refused {
            wrong.push("it is cancelled, and nobody has cancelled it");
        }
        if !cancelled && at.cancelled {
            wrong.push("it has a result, and it was said that it is cancelled");
        }
        if !cancelled && !at.done {
            wrong.push("it has a result and has not ended");
        }
        if !at.dropped {
            wrong.push("it has been joined and not been dropped");
        }
        for text in wrong {
            book.violation(format!("future {future}: {text}"));
        }
    }

    /// The futures that have not ended, in words.
    pub(crate) fn futures_left(&self) -> Option<String> {
        let book = self.book();
        let left = book.futures.iter().filter(|future| !future.dropped);
        let names: Vec<String> = left
            .map(|at| {
                let lost =
                    if at.due > at.polls { ", which was woken since its last poll" } else { "" };
                format!("future {}{lost}", at.number)
            })
            .collect();
        (!names.is_empty()).then(|| names.join(", "))
    }
}
