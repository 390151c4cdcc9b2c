//! Delayed items through every interleaving. The timer's thread is a thread of the test that calls what the timer would call: the model's
//! clock stands still, so whatever is due is due at once.

#![cfg(not(miri))]

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, Instant, LockPlatform, Ordering, Threads};

use super::{Delay, arm};
use crate::item::PENDING;
use crate::item::tests::{Tail, model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

const DUE: Instant = Instant::from_nanos(0);
const LATER: Instant = Instant::from_nanos(1 << 40);

/// An item, the number of its runs, and how often it was freed.
struct Subject {
    stub: Arc<Stub>,
    runs: Arc<AtomicU32>,
    frees: Arc<AtomicU32>,
    work: Work<Loom>,
}

impl Subject {
    fn new(max_active: usize) -> Self {
        let stub = Stub::new(max_active, 2);
        stub.queue.inner().timer.do_without_thread();
        let (runs, frees) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (runs_clone, tail) = (Arc::clone(&runs), Tail(Arc::clone(&frees)));
        let work = Work::new_in(move |_: &Work<Loom>| {
            let _ = &tail;
            runs_clone.fetch_add(1, Ordering::SeqCst);
        });
        Subject { stub, runs, frees, work }
    }

    fn arm(&self, deadline: Instant) {
        let guard = self.work.header().lock();
        assert!(arm(&guard, &self.stub.queue, 0, deadline));
        guard.unlock();
    }

    /// What the timer calls when it finds the item due. The timer has a hold on it.
    fn expire(work: &Work<Loom>) {
        let delay = work.header().ext().delay.load(Ordering::Acquire);
        // SAFETY: armed, so it has a delay, which the timer's hold keeps alive until the end.
        unsafe { Delay::<Loom>::expire(NonNull::new(delay).expect("armed").cast()) };
    }

    /// A thread that acts as the timer's and finds the item due once.
    fn timer(&self) -> <Loom as Threads>::JoinHandle {
        let work = self.work.clone();
        spawn(move || Self::expire(&work))
    }

    fn runs(&self) -> u32 {
        self.runs.load(Ordering::SeqCst)
    }

    /// When no thread runs any more: nothing is lost, and all memory is freed.
    fn end(self) {
        self.stub.run_out();
        assert!(!self.work.is_pending() && !self.work.is_running());
        assert_eq!(self.stub.queue.delays(), 0, "items on a timer");
        self.stub.check(self.stub.queue.completed());
        self.stub.queue.inner().timer.end_by_hand();
        drop(self.work);
        drop(Arc::into_inner(self.stub).expect("all threads have ended"));
        assert_eq!(self.frees.load(Ordering::SeqCst), 1, "freed once");
    }
}

#[test]
fn cancelled_while_it_expires() {
    model(3, || {
        let subject = Subject::new(2);
        subject.arm(DUE);
        let timer = subject.timer();
        let cancelled = u32::from(subject.work.cancel());
        assert!(!subject.work.is_pending());
        Loom::join(timer);
        subject.stub.run_out();
        assert_eq!(subject.runs() + cancelled, 1);
        subject.end();
    });
}

#[test]
fn moved_to_later_while_it_expires() {
    model(3, || {
        let subject = Subject::new(2);
        subject.arm(DUE);
        let timer = subject.timer();
        let delay = core::time::Duration::from_secs(1);
        let moved = subject.stub.queue.modify_delayed(subject.work.item(), 0, delay);
        Loom::join(timer);
        assert!(moved && subject.work.is_pending());
        subject.stub.run_out();
        assert_eq!(subject.runs(), 0, "never before its time");
        assert!(subject.work.cancel());
        subject.end();
    });
}

/// The timer finds the item locked: the holder arms the timer once more.
#[test]
fn locked_while_it_expires() {
    model(3, || {
        let subject = Subject::new(2);
        subject.arm(DUE);
        let timer = subject.timer();
        subject.work.header().lock().unlock();
        Loom::join(timer);
        if subject.work.header().state.load(Ordering::SeqCst) & crate::item::TIMED != 0 {
            Subject::expire(&subject.work);
        }
        subject.stub.run_out();
        assert_eq!(subject.runs(), 1);
        subject.end();
    });
}

#[test]
fn expedited_while_it_expires() {
    model(3, || {
        let subject = Subject::new(2);
        subject.arm(DUE);
        let timer = subject.timer();
        super::expedite(subject.work.header());
        Loom::join(timer);
        subject.stub.run_out();
        assert_eq!(subject.runs(), 1);
        subject.end();
    });
}

/// The node of a cancelled queueing is on the pool's list while the timer sends the item.
#[test]
fn expires_while_its_node_is_stale() {
    model(3, || {
        let subject = Subject::new(2);
        subject.stub.issue(&subject.work);
        assert!(subject.work.cancel());
        subject.arm(DUE);
        let timer = subject.timer();
        subject.stub.work(1);
        Loom::join(timer);
        subject.stub.run_out();
        assert_eq!(subject.runs(), 1);
        subject.end();
    });
}

#[test]
fn expires_while_its_queue_is_dropped() {
    model(3, || {
        let subject = Subject::new(1);
        subject.arm(DUE);
        let timer = subject.timer();
        // What `Workqueue`'s drop does.
        let queue = &subject.stub.queue;
        queue.rundown.close();
        let ender = {
            let stub = Arc::clone(&subject.stub);
            spawn(move || {
                stub.queue.rundown.wait_until_quiet();
                stub.node_active().begin_drain();
                stub.work_while(1, || !stub.queue.is_empty());
                let completed = stub.queue.completed();
                // From here on no other thread touches it.
                while !stub.queue.close_if_unused() {
                    Loom::yield_now();
                }
                assert_eq!(stub.queue.completed(), completed);
            })
        };
        Loom::join(ender);
        let ended = (queue.completed(), queue.left());
        Loom::join(timer);
        assert_eq!((queue.completed(), queue.left()), ended, "nothing came after the end");
        assert!(!subject.stub.work(0));
        assert!(!subject.work.is_pending());
        subject.stub.node_active().end_drain();
        subject.end();
    });
}

/// The runtime ends: what its timer drops is not pending any more.
#[test]
fn cancelled_while_the_timer_ends() {
    model(2, || {
        let subject = Subject::new(2);
        subject.arm(LATER);
        let stub = Arc::clone(&subject.stub);
        let timer = spawn(move || {
            stub.queue.inner().timer.end_by_hand();
            drop(stub);
        });
        subject.work.cancel();
        Loom::join(timer);
        assert_eq!(subject.work.header().state.load(Ordering::SeqCst) & PENDING, 0);
        subject.end();
    });
}
