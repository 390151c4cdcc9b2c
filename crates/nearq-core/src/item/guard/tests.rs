//! Cancelling, disabling and waiting through every interleaving: each queueing that was accepted is executed or cancelled,
//! never both; the limit's counts are even afterwards; an item is freed once.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};
use nearq_topology::AffinityScope;

use crate::item::tests::{Tail, model, model_in_part, model_within, spawn};
use crate::limit::node_active::tests::{Stub, idle};
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

/// What is recorded of an item.
#[derive(Clone)]
struct Observed {
    begun: Arc<AtomicU32>,
    ended: Arc<AtomicU32>,
    freed: Arc<AtomicU32>,
}

impl Observed {
    fn new() -> Self {
        let count = || Arc::new(AtomicU32::new(0));
        Observed { begun: count(), ended: count(), freed: count() }
    }

    /// An item that counts its executions, and calls `inside` in each with its number.
    fn item_that(&self, inside: impl Fn(&Work<Loom>, u32) + Send + 'static) -> Work<Loom> {
        let this = self.clone();
        let tail = Tail(Arc::clone(&self.freed));
        // The model watches it: two executions at once, or one that does not see the other, are reported.
        let mut runs = 0;
        Work::new_in(move |work: &Work<Loom>| {
            let _ = &tail;
            runs += 1;
            this.begun.store(runs, Ordering::SeqCst);
            inside(work, runs);
            this.ended.store(runs, Ordering::SeqCst);
        })
    }

    fn item(&self) -> Work<Loom> {
        self.item_that(|_, _| {})
    }

    fn begun(&self) -> u32 {
        self.begun.load(Ordering::SeqCst)
    }

    fn ended(&self) -> u32 {
        self.ended.load(Ordering::SeqCst)
    }

    /// Works until nothing is left: each queueing was executed or cancelled.
    fn run_out(&self, stub: &Stub, queued: u32, cancelled: u32) {
        stub.run_out();
        assert_eq!(self.ended() + cancelled, queued, "executed or cancelled, never both");
    }

    /// As [`run_out`](Self::run_out); the item is then freed with the last handle.
    fn end(&self, stub: &Stub, work: Work<Loom>, queued: u32, cancelled: u32) {
        self.run_out(stub, queued, cancelled);
        stub.check(u64::from(queued));
        assert!(!work.is_pending() && !work.is_running());
        assert_eq!(value(&self.freed), 0);
        drop(work);
        assert_eq!(value(&self.freed), 1, "freed once");
    }

    /// As [`end`](Self::end), for a queue that had other items too and on which a cancelled node may lie.
    fn end_with(&self, stub: Arc<Stub>, work: Work<Loom>, queued: u32, cancelled: u32) {
        self.run_out(&stub, queued, cancelled);
        stub.check(stub.queue.completed());
        drop(work);
        drop(Arc::into_inner(stub).expect("all threads have ended"));
        assert_eq!(value(&self.freed), 1, "freed once");
    }
}

/// An item that was queued, alone on its queue.
fn queued() -> (Arc<Stub>, Observed, Work<Loom>) {
    let stub = Stub::new(2, 2);
    let observed = Observed::new();
    let work = observed.item();
    stub.issue(&work);
    (stub, observed, work)
}

/// An item that is held back behind another one, which comes last.
fn held_back() -> (Arc<Stub>, Observed, Work<Loom>, Work<Loom>) {
    let stub = Stub::new(1, 2);
    let observed = Observed::new();
    let (first, work) = (idle(), observed.item());
    stub.issue(&first);
    stub.issue(&work);
    (stub, observed, work, first)
}

/// A thread that queues the item, and counts whether it did.
fn issuer(
    stub: &Arc<Stub>,
    work: &Work<Loom>,
    queued: &Arc<AtomicU32>,
) -> <Loom as Threads>::JoinHandle {
    let (stub, work, queued) = (Arc::clone(stub), work.clone(), Arc::clone(queued));
    spawn(move || add(&queued, stub.queue.queue(work.item())))
}

fn counted() -> Arc<AtomicU32> {
    Arc::new(AtomicU32::new(0))
}

fn add(count: &AtomicU32, more: bool) {
    count.fetch_add(u32::from(more), Ordering::SeqCst);
}

fn value(count: &AtomicU32) -> u32 {
    count.load(Ordering::SeqCst)
}

/// A worker's thread that goes on until the item has ended this often.
fn worker_until(
    stub: &Arc<Stub>,
    observed: &Observed,
    ended: u32,
) -> <Loom as Threads>::JoinHandle {
    let observed = observed.clone();
    stub.worker_while(move |_| observed.ended() < ended)
}

/// A worker's thread that takes this many items, if there are as many.
fn worker(stub: &Arc<Stub>, number: u32, steps: u32) -> <Loom as Threads>::JoinHandle {
    let stub = Arc::clone(stub);
    spawn(move || {
        for _ in 0..steps {
            stub.work(number);
        }
    })
}

// ---- cancelling -------------------------------------------------------------------------------------------

#[test]
fn cancelled_while_it_starts_and_ends() {
    model(3, || {
        let (stub, observed, work) = queued();
        let worker = worker(&stub, 1, 1);
        let cancelled = u32::from(work.cancel());
        Loom::join(worker);
        observed.end(&stub, work, 1, cancelled);
    });
}

#[test]
fn two_cancel_while_it_starts() {
    model_within(1, 2, || {
        let (stub, observed, work) = queued();
        let worker = worker(&stub, 1, 1);
        let cancels = counted();
        let other = {
            let (work, cancels) = (work.clone(), Arc::clone(&cancels));
            spawn(move || add(&cancels, work.cancel()))
        };
        add(&cancels, work.cancel());
        Loom::join(worker);
        Loom::join(other);
        observed.end(&stub, work, 1, value(&cancels));
    });
}

#[test]
fn cancelled_while_it_is_queued_and_runs() {
    model_within(1, 2, || {
        let (stub, observed, work) = queued();
        let queued = counted();
        let issuer = issuer(&stub, &work, &queued);
        let worker = worker(&stub, 1, 1);
        let cancelled = u32::from(work.cancel());
        Loom::join(issuer);
        Loom::join(worker);
        observed.end(&stub, work, 1 + value(&queued), cancelled);
    });
}

#[test]
fn cancelled_while_it_is_admitted() {
    model(3, || {
        let (stub, observed, work, _first) = held_back();
        let worker = worker(&stub, 1, 1);
        let cancelled = u32::from(work.cancel());
        Loom::join(worker);
        observed.end_with(stub, work, 1, cancelled);
    });
}

#[test]
fn cancelled_while_it_is_held_back() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let observed = Observed::new();
        let (first, last, work) = (idle(), idle(), observed.item());
        stub.issue(&first);
        let issuer = {
            let (stub, work, last) = (Arc::clone(&stub), work.clone(), last.clone());
            spawn(move || {
                stub.issue(&work);
                stub.issue(&last);
            })
        };
        let cancelled = u32::from(work.cancel());
        Loom::join(issuer);
        assert_eq!(stub.node_active().counts().1, 2 - u64::from(cancelled));
        observed.end_with(stub, work, 1, cancelled);
    });
}

#[test]
fn cancelled_and_queued_again_while_it_starts() {
    model(2, || {
        let (stub, observed, work) = queued();
        let worker = worker(&stub, 1, 2);
        let cancelled = u32::from(work.cancel());
        let queued = 1 + u32::from(stub.queue.queue(work.item()));
        Loom::join(worker);
        observed.end(&stub, work, queued, cancelled);
    });
}

/// The item's memory is freed, whatever happens to the queueing that another one replaced.
#[test]
fn a_proxy_is_cancelled_while_it_arrives() {
    model(3, || {
        let (stub, observed, work) = queued();
        assert!(work.cancel());
        stub.issue(&work);
        let worker = worker(&stub, 1, 2);
        let cancelled = u32::from(work.cancel());
        Loom::join(worker);
        observed.end(&stub, work, 2, 1 + cancelled);
    });
}

#[test]
fn a_proxy_is_cancelled_while_it_is_admitted() {
    model(2, || {
        let (stub, observed, work, _first) = held_back();
        assert!(work.cancel());
        stub.issue(&work);
        let worker = worker(&stub, 1, 1);
        let cancelled = u32::from(work.cancel());
        Loom::join(worker);
        observed.end_with(stub, work, 2, 1 + cancelled);
    });
}

/// The item's own node lies on a pool that no worker serves, so each queueing has a proxy.
#[test]
fn a_proxy_arrives_while_the_item_runs() {
    model_within(1, 2, || {
        let stub = Stub::with_scope(AffinityScope::Cpu, 8, 2);
        let observed = Observed::new();
        let work = observed.item();
        stub.issue_on(0, &work);
        assert!(work.cancel());
        stub.issue_on(1, &work);
        let workers = [0, 1].map(|number| {
            let stub = Arc::clone(&stub);
            spawn(move || {
                let pool = stub.pool_of(1);
                stub.work_at(pool, number);
            })
        });
        let again = stub.queue.queue_on(work.item(), |places| places.cpu(1)) == Ok(true);
        let cancelled = u32::from(work.cancel());
        workers.into_iter().for_each(Loom::join);
        observed.end(&stub, work, 2 + u32::from(again), 1 + cancelled);
    });
}

/// An item that is pushed after an execution goes to the pool for which it was last queued.
#[test]
fn cancelled_and_queued_elsewhere_while_the_execution_ends() {
    model(2, || {
        let stub = Stub::with_scope(AffinityScope::Cpu, 8, 2);
        let observed = Observed::new();
        let queue = Arc::downgrade(&stub.queue);
        let work = observed.item_that(move |work, run| {
            if run == 1 {
                let queue = queue.upgrade().expect("alive");
                assert_eq!(queue.queue_on(work.item(), |places| places.cpu(0)), Ok(true));
            }
        });
        stub.issue_on(0, &work);
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || assert!(stub.work_at(stub.pool_of(0), 1)))
        };
        let mut moved = false;
        if observed.begun() == 1 && work.cancel() {
            moved = stub.queue.queue_on(work.item(), |places| places.cpu(1)) == Ok(true);
        }
        Loom::join(worker);
        let before = observed.ended();
        if moved && work.is_pending() {
            stub.work_at(stub.pool_of(1), 0);
            assert_eq!(observed.ended(), before + 1, "it is on the pool where it was queued");
        }
        let moved = u32::from(moved);
        observed.end(&stub, work, 2 + moved, moved);
    });
}

#[test]
fn an_item_that_queues_itself_cannot_escape() {
    model_within(1, 2, || {
        let stub = Stub::new(2, 2);
        let observed = Observed::new();
        let queue = Arc::downgrade(&stub.queue);
        let queued = counted();
        let queued_clone = Arc::clone(&queued);
        let work = observed.item_that(move |work, run| {
            // It does not requeue itself for ever, or the model would not end.
            add(&queued_clone, run < 3 && queue.upgrade().expect("alive").queue(work.item()));
        });
        stub.issue(&work);
        let over = counted();
        let worker = {
            let over = Arc::clone(&over);
            stub.worker_while(move |_| value(&over) == 0)
        };
        let cancelled = u32::from(work.cancel_sync().expect("from outside"));
        assert!(!work.is_pending() && !work.is_running());
        add(&over, true);
        let seen = observed.ended();
        Loom::join(worker);
        assert_eq!(observed.begun(), seen);
        observed.end(&stub, work, 1 + value(&queued), cancelled);
    });
}

// ---- disabling --------------------------------------------------------------------------------------------

#[test]
fn disabled_while_it_is_queued() {
    model(3, || {
        let stub = Stub::new(2, 2);
        let observed = Observed::new();
        let work = observed.item();
        let queued = counted();
        let issuer = issuer(&stub, &work, &queued);
        let cancelled = u32::from(work.disable());
        assert!(!work.is_pending());
        Loom::join(issuer);
        assert!(!work.is_pending());
        stub.run_out();
        assert_eq!(observed.ended(), 0);
        assert!(work.enable());
        observed.end(&stub, work, value(&queued), cancelled);
    });
}

// ---- waiting ----------------------------------------------------------------------------------------------

#[test]
fn a_flush_during_the_start_and_the_end() {
    model_within(2, 3, || {
        let (stub, observed, work) = queued();
        let worker = worker_until(&stub, &observed, 1);
        work.flush().expect("from outside");
        assert_eq!(observed.ended(), 1);
        Loom::join(worker);
        observed.end(&stub, work, 1, 0);
    });
}

#[test]
fn two_flushes_during_the_end() {
    model_in_part(2_000, 2, || {
        let (stub, observed, work) = queued();
        let worker = worker_until(&stub, &observed, 1);
        let other = {
            let (work, observed) = (work.clone(), observed.clone());
            spawn(move || {
                work.flush().expect("from outside");
                assert_eq!(observed.ended(), 1);
            })
        };
        work.flush().expect("from outside");
        assert_eq!(observed.ended(), 1);
        Loom::join(worker);
        Loom::join(other);
        observed.end(&stub, work, 1, 0);
    });
}

#[test]
fn a_flush_during_a_cancel() {
    model_within(1, 2, || {
        let (stub, observed, work) = queued();
        let other = {
            let work = work.clone();
            spawn(move || assert!(work.cancel()))
        };
        work.flush().expect("from outside");
        assert!(!work.is_pending());
        Loom::join(other);
        observed.end(&stub, work, 1, 1);
    });
}

/// What is queued later and cancelled, or refused, does not end the wait for an execution.
#[test]
fn a_flush_waits_for_the_execution_although_a_later_queueing_is_cancelled() {
    model_in_part(2_000, 2, || {
        let (stub, observed, work) = queued();
        let worker = worker_until(&stub, &observed, 1);
        let (queued, cancelled) = (counted(), counted());
        let other = {
            let (stub, work, observed) = (Arc::clone(&stub), work.clone(), observed.clone());
            let (queued, cancelled) = (Arc::clone(&queued), Arc::clone(&cancelled));
            spawn(move || {
                if observed.begun() == 1 {
                    stub.issue(&work);
                    add(&queued, true);
                    add(&cancelled, work.cancel());
                }
            })
        };
        work.flush().expect("from outside");
        assert!(observed.ended() >= 1);
        Loom::join(worker);
        Loom::join(other);
        observed.end(&stub, work, 1 + value(&queued), value(&cancelled));
    });
}

#[test]
fn a_flush_during_a_refused_queueing() {
    model(3, || {
        let stub = Stub::new(2, 2);
        let observed = Observed::new();
        let work = observed.item();
        stub.node_active().begin_drain();
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), work.clone());
            spawn(move || assert!(stub.queue.try_queue(work.item()).is_err()))
        };
        work.flush().expect("from outside");
        Loom::join(issuer);
        stub.node_active().end_drain();
        observed.end(&stub, work, 0, 0);
    });
}

// ---- the lock ---------------------------------------------------------------------------------------------

/// A worker that finds the item locked leaves its step to the holder: start, end, and pushing what was queued meanwhile.
#[test]
fn locked_while_it_starts_and_ends_and_queues_itself() {
    model(3, || {
        let stub = Stub::new(2, 2);
        let observed = Observed::new();
        let queue = Arc::downgrade(&stub.queue);
        let work = observed.item_that(move |work, run| {
            if run == 1 {
                assert!(queue.upgrade().expect("alive").queue(work.item()));
            }
        });
        stub.issue(&work);
        let worker = worker(&stub, 1, 1);
        work.header().lock().unlock();
        work.header().lock().unlock();
        Loom::join(worker);
        observed.end(&stub, work, 2, 0);
    });
}

#[test]
fn locked_while_it_is_admitted() {
    model(3, || {
        let (stub, observed, work, _first) = held_back();
        let worker = worker(&stub, 1, 1);
        work.header().lock().unlock();
        Loom::join(worker);
        stub.run_out();
        assert_eq!(stub.queue.completed(), 2);
        observed.end_with(stub, work, 1, 0);
    });
}

// ---- the end ----------------------------------------------------------------------------------------------

#[test]
fn the_last_handles_are_dropped_while_it_is_cancelled_and_runs() {
    model_within(1, 2, || {
        let (stub, observed, work) = queued();
        let worker = worker(&stub, 1, 1);
        let other = {
            let work = work.clone();
            spawn(move || drop(work))
        };
        let cancelled = u32::from(work.cancel());
        drop(work);
        Loom::join(worker);
        Loom::join(other);
        observed.run_out(&stub, 1, cancelled);
        assert_eq!(value(&observed.freed), 1);
        stub.check(1);
    });
}

#[test]
fn the_last_handle_is_dropped_while_a_proxy_arrives() {
    model(3, || {
        let (stub, observed, work) = queued();
        assert!(work.cancel());
        stub.issue(&work);
        let worker = worker(&stub, 1, 2);
        drop(work);
        Loom::join(worker);
        observed.run_out(&stub, 2, 1);
        assert_eq!(value(&observed.freed), 1);
        stub.check(2);
    });
}

/// The value panics when it is dropped. That goes no further than the thread that has dropped the handle.
#[test]
fn the_last_handle_of_a_panicking_value_is_dropped_while_a_proxy_arrives() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    model(2, || {
        let (stub, observed, bomb) = (Stub::new(2, 2), Observed::new(), Bomb);
        let work = observed.item_that(move |_, _| {
            let _ = &bomb;
        });
        stub.issue(&work);
        assert!(work.cancel());
        stub.issue(&work);
        let (escaped, at_worker) = (counted(), Arc::clone(&stub));
        let worker = {
            let escaped = Arc::clone(&escaped);
            spawn(move || {
                for _ in 0..2 {
                    add(
                        &escaped,
                        crate::base::outcome::contain(|| {
                            at_worker.work(1);
                        }),
                    );
                }
            })
        };
        work.cancel();
        crate::base::outcome::contain(|| drop(work));
        Loom::join(worker);
        stub.run_out();
        assert_eq!((value(&observed.freed), value(&escaped)), (1, 0));
        stub.check(2);
    });
}

/// The last two handles of a cancelled item are dropped at the same time, while its node is on the list: the value is dropped with them.
#[test]
fn the_last_two_handles_are_dropped_at_once() {
    model(3, || {
        let (stub, observed, work) = queued();
        assert!(work.cancel());
        let other = work.clone();
        let thread = spawn(move || drop(other));
        drop(work);
        Loom::join(thread);
        assert_eq!(value(&observed.freed), 1, "while the node is left");
        stub.run_out();
        assert_eq!(value(&observed.freed), 1, "once");
    });
}
