//! The limit through every interleaving: nothing that is held back is forgotten, no more is let in than allowed, and
//! who waits for an empty queue is woken.
//!
//! The queue is a real one, on a runtime that starts no threads: the test's threads do what workers do.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};
use nearq_topology::Scope;

use super::{CLOSED, ceiling};
use crate::attributes::Attributes;
use crate::item::tests::{execute, model, spawn};
use crate::pool::Pool;
use crate::queue::Queue;
use crate::runtime::Runtime;
use crate::work::Work;
use crate::worker::Worker;

type AtomicU32 = <Loom as Platform>::AtomicU32;

struct Stub {
    queue: Arc<Queue<Loom>>,
    pool: Arc<Pool<Loom>>,
    runtime: Runtime<Loom>,
}

impl Stub {
    fn new(max_active: usize, workers: usize) -> Arc<Self> {
        Self::with_scope(Scope::System, max_active, workers)
    }

    fn with_scope(scope: Scope, max_active: usize, workers: usize) -> Arc<Self> {
        let runtime =
            Runtime::<Loom>::builder_in().spin(0).build().expect("the machine is constant");
        runtime.inner().monitor.stop();
        runtime.inner().stopping.store(1, Ordering::SeqCst);
        let attributes = Attributes { scope: Some(scope), ..Attributes::default() };
        let queue = Queue::new(&runtime, "modelled".into(), attributes, max_active);
        let pool = Arc::clone(&queue.links().next().expect("a pod").pool);
        // Queued up for a place: pushers leave waking to others.
        assert!(pool.mark_queued_at_level());
        for _ in 0..workers {
            let added = runtime.inner().table.add(|index| Worker::new(index, Arc::as_ptr(&pool)));
            added.expect("there is room");
        }
        Arc::new(Stub { queue, pool, runtime })
    }

    fn issue(&self, work: &Work<Loom>) {
        assert!(self.queue.queue(work.item()));
    }

    /// Takes one item, if there is one, and does with it what a worker does.
    fn work(&self, worker: u32) -> bool {
        let worker = self.runtime.inner().table.get(worker);
        if self.pool.take(worker, 1) == 0 {
            return false;
        }
        let item = worker.batch.pop().expect("just taken");
        // SAFETY: it came off the batch, so we have its PENDING, which keeps it alive.
        let link = unsafe { item.as_ref() }.link();
        execute(item, || self.pool.push(item));
        // SAFETY: null for the kicker; else a link of the queue, which is alive.
        if let Some(link) = unsafe { link.as_ref() } {
            link.count_completed(worker.index);
            if self.queue.admission.needs_attention() {
                self.queue.admission.attend(&self.queue);
            }
        }
        true
    }

    /// Works until nothing is on the pool; when nobody else is there any more.
    fn run_out(&self) {
        while self.work(0) {}
    }

    /// What must hold when nothing moves.
    fn check(&self, items: u64) {
        let admission = &self.queue.admission;
        assert!(admission.is_empty(&self.queue), "everything was let in, and no credit is lost");
        assert_eq!(admission.counts(), (items, 0));
        assert_eq!(self.queue.completed(), items);
        let ceiling = ceiling(admission.ceiling.load(Ordering::SeqCst));
        let highest = items + admission.max_active() as u64;
        assert!(
            ceiling == CLOSED || ceiling <= highest,
            "the ceiling is {ceiling} instead of {highest}"
        );
        assert_ne!(ceiling, CLOSED, "nothing waits, so it is open");
    }
}

fn idle() -> Work<Loom> {
    Work::new_in(|_: &Work<Loom>| {})
}

#[test]
fn held_back_while_the_last_one_ends() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let (first, second) = (idle(), idle());
        stub.issue(&first);
        let issuer = {
            let (stub, second) = (Arc::clone(&stub), second.clone());
            spawn(move || stub.issue(&second))
        };
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        stub.check(2);
    });
}

/// What one thread queues first starts first, also while a worker opens the ceiling.
#[test]
fn nothing_gets_past_what_is_held_back() {
    model(3, || {
        let stub = Stub::new(1, 2);
        // The numbers in the order in which they start, as digits: a panic in an item would be caught.
        let order = Arc::new(AtomicU32::new(0));
        let works = [1, 2].map(|number| {
            let order = Arc::clone(&order);
            Work::<Loom>::new_in(move |_: &Work<Loom>| {
                order.store(order.load(Ordering::Relaxed) * 10 + number, Ordering::Relaxed);
            })
        });
        // As something that was held back and has been activated leaves it.
        stub.queue.admission.close(&stub.queue);
        let issuer = {
            let (stub, works) = (Arc::clone(&stub), works.clone());
            spawn(move || works.iter().for_each(|work| stub.issue(work)))
        };
        stub.queue.admission.attend(&stub.queue);
        Loom::join(issuer);
        stub.run_out();
        assert_eq!(order.load(Ordering::Relaxed), 12);
        stub.check(2);
    });
}

#[test]
fn two_issuers_and_one_place() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        let issuers = works.clone().map(|work| {
            let stub = Arc::clone(&stub);
            spawn(move || stub.issue(&work))
        });
        stub.work(1);
        issuers.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn two_workers_end_while_one_is_held_back_and_never_run_three() {
    model(2, || {
        let stub = Stub::new(2, 2);
        let inside = Arc::new(AtomicU32::new(0));
        let works = [(); 3].map(|()| {
            let inside = Arc::clone(&inside);
            Work::<Loom>::new_in(move |_: &Work<Loom>| {
                assert!(inside.fetch_add(1, Ordering::Relaxed) < 2, "more than the limit");
                inside.fetch_sub(1, Ordering::Relaxed);
            })
        });
        stub.issue(&works[0]);
        stub.issue(&works[1]);
        let other = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                stub.work(1);
            })
        };
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), works[2].clone());
            spawn(move || stub.issue(&work))
        };
        stub.work(0);
        Loom::join(other);
        Loom::join(issuer);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn an_item_that_requeues_itself_at_the_limit() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let queue = Arc::downgrade(&stub.queue);
        let mut runs = 0;
        let own = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            runs += 1;
            if runs == 1 {
                assert!(queue.upgrade().expect("alive").queue(work.item()));
            }
        });
        stub.issue(&own);
        let other = idle();
        let issuer = {
            let (stub, other) = (Arc::clone(&stub), other.clone());
            spawn(move || stub.issue(&other))
        };
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn the_limit_is_raised_while_an_item_is_held_back() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        stub.issue(&works[0]);
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), works[1].clone());
            spawn(move || stub.issue(&work))
        };
        stub.queue.admission.set_max_active(&stub.queue, 2);
        Loom::join(issuer);
        // Whoever of the two came second: the second item may start before the first has ended.
        let mut started = 0;
        let worker = stub.runtime.inner().table.get(0);
        while stub.pool.take(worker, 1) != 0 {
            let item = worker.batch.pop().expect("just taken");
            // SAFETY: it came off the batch, so we have its PENDING, which keeps it alive.
            if unsafe { item.as_ref() }.link().is_null() {
                execute(item, || stub.pool.push(item));
            } else {
                // Runs, and does not end.
                started += 1;
            }
        }
        assert_eq!(started, 2);
        core::mem::forget(works);
    });
}

#[test]
fn the_limit_is_lowered_while_an_issuer_raises_the_ceiling() {
    model(3, || {
        let stub = Stub::new(3, 2);
        let works = [(); 4].map(|()| idle());
        for work in &works[..3] {
            stub.issue(work);
        }
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), works[3].clone());
            spawn(move || stub.issue(&work))
        };
        stub.work(1);
        stub.queue.admission.set_max_active(&stub.queue, 1);
        stub.work(1);
        Loom::join(issuer);
        // The fourth may have been let in while the limit was 3; the fifth must not be, while two are active.
        let ceiling = ceiling(stub.queue.admission.ceiling.load(Ordering::SeqCst));
        assert!(ceiling <= 3, "two have ended, one may be active, and {ceiling} may be let in");
        stub.run_out();
        stub.check(4);
    });
}

#[test]
fn the_limit_is_lowered_while_a_worker_opens_the_ceiling() {
    model(3, || {
        let stub = Stub::new(2, 2);
        stub.queue.admission.set_max_active(&stub.queue, 3);
        let worker = {
            let stub = Arc::clone(&stub);
            // The kicker.
            spawn(move || assert!(stub.work(1)))
        };
        stub.queue.admission.set_max_active(&stub.queue, 1);
        Loom::join(worker);
        stub.run_out();
        stub.check(0);
    });
}

/// A limit that leaves credits on a link after the first item.
const WITH_CREDITS: usize = 8;

#[test]
fn no_credit_outlives_a_limit_that_is_lowered() {
    model(3, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [idle(), idle()];
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), works[0].clone());
            spawn(move || stub.issue(&work))
        };
        stub.queue.admission.set_max_active(&stub.queue, 1);
        // Whatever the issuer is doing: nothing more is let in than the new limit allows.
        let link = stub.queue.links().next().expect("a pod");
        assert!(!link.credits.take());
        Loom::join(issuer);
        assert!(!link.credits.take());
        stub.issue(&works[1]);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn who_waits_for_an_empty_queue_is_woken_also_when_credits_come_back_late() {
    model(2, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [idle(), idle()];
        stub.issue(&works[0]);
        // The next one asks for credits.
        stub.queue.links().for_each(|link| while link.credits.take() {});
        stub.queue.admission.admitted.store(1, Ordering::SeqCst);
        let others = [
            {
                let (stub, work) = (Arc::clone(&stub), works[1].clone());
                spawn(move || stub.issue(&work))
            },
            {
                let stub = Arc::clone(&stub);
                spawn(move || {
                    // Both items, and the kicker as often as it comes.
                    while stub.queue.completed() < 2
                        || stub.queue.admission.drainers.load(Ordering::SeqCst) != 0
                    {
                        if !stub.work(1) {
                            Loom::yield_now();
                        }
                    }
                })
            },
        ];
        stub.queue.admission.wait_until_empty(&stub.queue);
        others.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn two_issuers_use_one_links_credits() {
    model(3, || {
        let stub = Stub::new(WITH_CREDITS, 2);
        let works = [(); 3].map(|()| idle());
        stub.issue(&works[0]);
        let issuer = {
            let (stub, work) = (Arc::clone(&stub), works[1].clone());
            spawn(move || stub.issue(&work))
        };
        stub.issue(&works[2]);
        Loom::join(issuer);
        assert_eq!(stub.queue.admission.counts().1, 0);
        stub.run_out();
        stub.check(3);
    });
}

#[test]
fn what_one_link_has_in_advance_another_can_use() {
    model(1, || {
        let limit = 16;
        let stub = Stub::with_scope(Scope::Cpu, limit, 2);
        let links: Vec<_> = stub.queue.links().collect();
        assert!(links.len() > 1);
        let admission = &stub.queue.admission;
        assert!(admission.admit(&stub.queue, links[0]));
        assert!(admission.counts().0 > 1, "the first link has credits");
        for _ in 1..limit {
            assert!(admission.admit(&stub.queue, links[1]));
        }
        assert!(!admission.admit(&stub.queue, links[1]) && !admission.admit(&stub.queue, links[0]));
        core::mem::forget(stub);
    });
}

#[test]
fn who_waits_for_an_empty_queue_is_woken() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let works = [idle(), idle()];
        for work in &works {
            stub.issue(work);
        }
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                assert!(stub.work(1));
                assert!(stub.work(1));
            })
        };
        stub.queue.admission.wait_until_empty(&stub.queue);
        assert_eq!(stub.queue.completed(), 2);
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn who_waits_for_an_empty_queue_is_woken_whichever_of_two_workers_is_last() {
    model(2, || {
        let stub = Stub::new(2, 2);
        let works = [idle(), idle()];
        for work in &works {
            stub.issue(work);
        }
        let workers = [0, 1].map(|number| {
            let stub = Arc::clone(&stub);
            spawn(move || {
                // For a moment the items are neither on the inbox nor on the list.
                while !stub.work(number) {
                    Loom::yield_now();
                }
            })
        });
        stub.queue.admission.wait_until_empty(&stub.queue);
        assert_eq!(stub.queue.completed(), 2);
        workers.into_iter().for_each(Loom::join);
        stub.run_out();
        stub.check(2);
    });
}
