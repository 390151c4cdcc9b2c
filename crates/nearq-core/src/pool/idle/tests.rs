//! Inbox and idle stack together: either the pusher finds a worker, or a worker finds the item. A lost wake-up shows as a deadlock of the
//! model.

#![cfg_attr(miri, allow(dead_code, reason = "the model checker is not for Miri"))]

use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Linux, LockPlatform, Ordering, Platform, Threads};

use super::{Idle, NO_WORKER, SEARCHING, TOP, Wakeup};
use crate::item::Item;
use crate::item::inbox::Inbox;
use crate::item::tests::{blank, pending};
use crate::pool::worker::{Worker, WorkerSlab};

/// The parts of a pool that sleeping and waking need.
struct Stub<P: Platform> {
    items: Vec<Item<P>>,
    inbox: Inbox<P>,
    idle: Idle<P>,
    slab: WorkerSlab<P>,
    /// Items that workers took.
    taken: P::AtomicU32,
    /// How often a pusher found no worker; a pool would start a thread.
    no_idle_worker: P::AtomicU32,
}
// SAFETY: each item is pushed by one thread and taken by one.
unsafe impl<P: Platform> Sync for Stub<P> {}
// SAFETY: nothing in it belongs to the thread that made it.
unsafe impl<P: Platform> Send for Stub<P> {}

impl<P: Platform> Stub<P> {
    /// With this many workers, all of which search.
    fn new(items: usize, workers: usize) -> Arc<Self> {
        let stub = Stub {
            items: (0..items).map(|_| blank()).collect(),
            inbox: Inbox::new(),
            idle: Idle::new(),
            slab: WorkerSlab::new(),
            taken: P::AtomicU32::new(0),
            no_idle_worker: P::AtomicU32::new(0),
        };
        for _ in 0..workers {
            stub.slab.add(|index| Worker::new(index, core::ptr::null())).expect("there is room");
            stub.idle.begin_search();
        }
        Arc::new(stub)
    }

    fn push(&self, number: usize) {
        self.inbox.push(pending(&self.items[number]));
        self.call();
    }

    fn call(&self) {
        match self.idle.pop_to_wake(&self.slab, || false) {
            Wakeup::Worker(worker) => worker.parker.unpark(),
            Wakeup::Unneeded => {}
            Wakeup::NoneAsleep => {
                self.no_idle_worker.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A searching worker checks once, and searches again afterwards. Returns how many items it found.
    fn search(&self) -> u32 {
        let mut items = self.inbox.take_all();
        let mut count = 0;
        if !items.is_empty() {
            if self.idle.end_search() && !self.inbox.is_empty() {
                self.call();
            }
            while items.pop_front().is_some() {
                count += 1;
            }
            self.taken.fetch_add(count, Ordering::Relaxed);
            self.idle.begin_search();
        }
        count
    }

    fn settle(&self, worker: &Worker<P>) {
        worker.set_sched_idle();
        self.idle.settle(worker);
        if !self.inbox.is_empty() {
            self.call();
        }
    }

    /// A worker that checks until it has taken `quota` items.
    fn serve(&self, number: u32, quota: u32) {
        let worker = self.slab.get(number);
        let mut taken = 0;
        loop {
            taken += self.search();
            if taken >= quota {
                self.idle.end_search();
                return;
            }
            self.settle(worker);
            while worker.is_idle() {
                worker.parker.park(None);
            }
        }
    }

    fn word(&self) -> u64 {
        self.idle.word.load(Ordering::SeqCst)
    }
}

#[test]
fn idle_workers_are_woken_last_in_first_out_and_one_at_a_time() {
    let stub = Stub::<Linux>::new(0, 3);
    assert!(stub.idle.has_searching() && !stub.idle.has_idle());
    for number in [0, 2, 1] {
        stub.slab.get(number).set_sched_idle();
        stub.idle.settle(stub.slab.get(number));
    }
    assert!(!stub.idle.has_searching() && stub.idle.has_idle());
    let pop = || match stub.idle.pop_to_wake(&stub.slab, || false) {
        Wakeup::Worker(worker) => Some(worker.index),
        _ => None,
    };
    assert_eq!(pop(), Some(1));
    assert_eq!(pop(), None, "one worker is on its way");
    assert!(
        matches!(stub.idle.pop_another(&stub.slab, false), Wakeup::Worker(worker) if worker.index == 2)
    );
    assert!(!stub.idle.end_search(), "one still searches");
    assert!(stub.idle.end_search());
    assert_eq!(pop(), Some(0));
    stub.idle.end_search();
    assert!(matches!(stub.idle.pop_to_wake(&stub.slab, || false), Wakeup::NoneAsleep));
    assert_eq!(stub.word() & TOP, NO_WORKER);
}

#[test]
fn dead_workers_are_buried_by_the_thread_that_pops_them() {
    let stub = Stub::<Linux>::new(0, 3);
    for number in 0..3 {
        stub.slab.get(number).set_sched_idle();
        stub.idle.settle(stub.slab.get(number));
    }
    assert!(stub.slab.get(2).die() && stub.slab.get(1).die());
    assert!(!stub.slab.get(2).claim_free(), "not before it is off the stack");
    assert!(
        matches!(stub.idle.pop_to_wake(&stub.slab, || false), Wakeup::Worker(worker) if worker.index == 0)
    );
    assert!(stub.slab.get(1).claim_free() && stub.slab.get(2).claim_free());
    assert_eq!(stub.word() & SEARCHING, super::ONE_SEARCHING);
    assert!(!stub.slab.get(0).die(), "it was woken");
}

#[test]
fn a_woken_worker_receives_a_place() {
    let stub = Stub::<Linux>::new(0, 1);
    let worker = stub.slab.get(0);
    worker.set_sched_idle();
    stub.idle.settle(worker);
    assert!(!worker.take_grant());
    assert!(matches!(stub.idle.pop_another(&stub.slab, true), Wakeup::Worker(_)));
    assert!(!worker.is_idle() && worker.is_alive());
    assert!(worker.take_grant());
    assert!(!worker.take_grant(), "once");
}

#[cfg(not(miri))]
mod modelled {
    use super::*;
    use crate::item::tests::{model, model_within, spawn};
    use nearq_model::Loom;

    #[test]
    fn two_pushers_and_a_worker_that_settles() {
        model_within(2, 3, || {
            let stub = Stub::<Loom>::new(2, 1);
            let pushers = [0, 1].map(|number| {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(number))
            });
            stub.serve(0, 2);
            pushers.into_iter().for_each(Loom::join);
            assert_eq!(stub.taken.load(Ordering::Relaxed), 2);
            assert_eq!(stub.word() & (SEARCHING | TOP), NO_WORKER);
        });
    }

    #[test]
    fn one_push_is_received_by_one_of_two_workers() {
        // The other worker sleeps for good: it has no thread, but is on the stack, below or above.
        for first in [0, 1] {
            model(3, move || {
                let stub = Stub::<Loom>::new(2, 2);
                let asleep = stub.slab.get(1 - first);
                asleep.set_sched_idle();
                stub.idle.settle(asleep);
                let pusher = {
                    let stub = Arc::clone(&stub);
                    spawn(move || stub.push(0))
                };
                // Checks once, settles, and is either woken or may go on sleeping because the other was woken.
                let worker = stub.slab.get(first);
                stub.search();
                stub.settle(worker);
                Loom::join(pusher);
                let taken = stub.taken.load(Ordering::Relaxed) == 1;
                let woken = !asleep.is_idle() || !worker.is_idle();
                assert!(taken || woken, "no worker comes for the item");
                assert_eq!(stub.no_idle_worker.load(Ordering::Relaxed), 0);
            });
        }
    }

    #[test]
    fn two_workers_settle_during_a_push() {
        model(2, || {
            let stub = Stub::<Loom>::new(1, 2);
            let other = {
                let stub = Arc::clone(&stub);
                spawn(move || {
                    stub.search();
                    stub.settle(stub.slab.get(1));
                })
            };
            let pusher = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(0))
            };
            stub.search();
            stub.settle(stub.slab.get(0));
            Loom::join(other);
            Loom::join(pusher);
            let woken = (0..2).filter(|number| !stub.slab.get(*number).is_idle()).count();
            assert!(stub.inbox.is_empty() || woken != 0, "no worker comes for the item");
            let searching = (stub.word() & SEARCHING) / super::super::ONE_SEARCHING;
            assert_eq!(searching as usize, woken, "woken workers count as searching");
        });
    }

    #[test]
    fn a_worker_that_dies_while_it_is_woken() {
        model(3, || {
            let stub = Stub::<Loom>::new(2, 1);
            let pushers = [0, 1].map(|number| {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(number))
            });
            let worker = stub.slab.get(0);
            // Its patience is over each time it would sleep.
            stub.settle(worker);
            while !worker.die() {
                worker.parker.park(None);
                assert!(!worker.is_idle());
                stub.search();
                stub.settle(worker);
            }
            pushers.into_iter().for_each(Loom::join);
            let taken = stub.taken.load(Ordering::Relaxed);
            let no_idle_worker = stub.no_idle_worker.load(Ordering::Relaxed);
            assert!(
                taken == 2 || no_idle_worker != 0,
                "{taken} taken: a pusher knows that it must start a thread"
            );
            assert_eq!(stub.word() & SEARCHING, 0);
            assert!(matches!(stub.idle.pop_to_wake(&stub.slab, || false), Wakeup::NoneAsleep));
            assert!(worker.claim_free(), "the entry can be used again");
        });
    }

    #[test]
    fn the_stack_is_safe_from_aba_when_a_worker_returns() {
        // A is on top of B. While one thread pops A with B below it, the other pops both and puts A back, with nothing below.
        model(3, || {
            let stub = Stub::<Loom>::new(0, 2);
            for number in [1, 0] {
                stub.slab.get(number).set_sched_idle();
                stub.idle.settle(stub.slab.get(number));
            }
            let popper = {
                let stub = Arc::clone(&stub);
                spawn(move || {
                    stub.idle.pop_another(&stub.slab, false);
                })
            };
            let mut working = 0;
            if let Wakeup::Worker(first) = stub.idle.pop_another(&stub.slab, false) {
                if let Wakeup::Worker(_) = stub.idle.pop_another(&stub.slab, false) {
                    // The worker has found an item, so that the number of searching workers is also as it was.
                    stub.idle.end_search();
                    working = 1;
                }
                first.set_sched_idle();
                stub.idle.settle(first);
            }
            Loom::join(popper);
            while let Wakeup::Worker(_) = stub.idle.pop_another(&stub.slab, false) {}
            assert!(
                (0..2).all(|number| stub.slab.get(number).is_alive()),
                "no worker was taken for dead"
            );
            let searching = (stub.word() & SEARCHING) / super::super::ONE_SEARCHING;
            assert_eq!(searching + working, 2, "both are off the stack, once each");
        });
    }

    #[test]
    fn a_worker_is_retired_while_it_is_woken() {
        model(3, || {
            let stub = Stub::<Loom>::new(1, 1);
            let worker = stub.slab.get(0);
            stub.settle(worker);
            let pusher = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(0))
            };
            let other = {
                let stub = Arc::clone(&stub);
                spawn(move || {
                    let worker = stub.slab.get(0);
                    if worker.retire() {
                        worker.parker.unpark();
                    }
                })
            };
            while worker.is_idle() {
                worker.parker.park(None);
            }
            let left = worker.leave();
            if !left {
                assert_eq!(stub.search(), 1, "it was woken for the item");
            }
            Loom::join(pusher);
            Loom::join(other);
            let no_idle_worker = stub.no_idle_worker.load(Ordering::Relaxed);
            assert_eq!(
                left,
                no_idle_worker == 1,
                "the pusher knows whether it must start a thread"
            );
            // What the next pusher does with a stack on which the dead worker still is.
            assert!(
                !left || matches!(stub.idle.pop_to_wake(&stub.slab, || false), Wakeup::NoneAsleep)
            );
            assert_eq!(worker.claim_free(), left, "the entry can be used again, once");
        });
    }

    /// The pool is used again just when its last worker, which has died in its sleep, is taken off the stack.
    #[test]
    fn dead_workers_are_removed_during_a_push() {
        model(3, || {
            let stub = Stub::<Loom>::new(1, 1);
            let worker = stub.slab.get(0);
            stub.settle(worker);
            assert!(worker.die());
            let pusher = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(0))
            };
            assert!(stub.idle.bury_all(&stub.slab).is_none(), "no worker is alive");
            Loom::join(pusher);
            assert_eq!(
                stub.no_idle_worker.load(Ordering::Relaxed),
                1,
                "the pusher starts a thread"
            );
            assert_eq!(stub.word() & SEARCHING, 0);
            assert!(worker.claim_free(), "the entry can be used again");
        });
    }

    /// One of the two workers has died; the other one settles meanwhile, and is taken off with it.
    #[test]
    fn dead_workers_are_removed_while_another_settles() {
        model(3, || {
            let stub = Stub::<Loom>::new(1, 2);
            let dead = stub.slab.get(1);
            stub.settle(dead);
            assert!(dead.die());
            let other = {
                let stub = Arc::clone(&stub);
                spawn(move || {
                    if let Some(worker) = stub.idle.bury_all(&stub.slab) {
                        worker.parker.unpark();
                        // The dead worker may be below it.
                        assert!(stub.idle.bury_all(&stub.slab).is_none());
                    }
                })
            };
            let worker = stub.slab.get(0);
            worker.set_sched_idle();
            stub.idle.settle(worker);
            Loom::join(other);
            let awake = !worker.is_idle();
            assert_eq!(
                stub.word() & SEARCHING != 0,
                awake,
                "a worker that is removed alive searches"
            );
            assert!(dead.claim_free() && !worker.claim_free());
        });
    }

    #[test]
    fn a_push_while_one_worker_enters_its_hook_and_another_sleeps() {
        model(3, || {
            let stub = Stub::<Loom>::new(1, 2);
            let asleep = stub.slab.get(1);
            stub.settle(asleep);
            let pusher = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(0))
            };
            // LEAVE, then CHECK.
            stub.idle.end_search();
            Loom::model_fence();
            if !stub.inbox.is_empty() {
                stub.call();
            }
            // The worker is in the hook, which does not return before the pusher is done.
            Loom::join(pusher);
            assert!(!asleep.is_idle(), "the other one is woken while this one is in its hook");
            assert_eq!(stub.no_idle_worker.load(Ordering::Relaxed), 0);
            assert_eq!(
                stub.word() & SEARCHING,
                super::super::ONE_SEARCHING,
                "only the other worker"
            );
        });
    }

    #[test]
    fn a_worker_leaves_its_hook_during_a_push() {
        model(3, || {
            let stub = Stub::<Loom>::new(1, 1);
            stub.idle.end_search();
            let pusher = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.push(0))
            };
            stub.idle.begin_search();
            stub.search();
            let worker = stub.slab.get(0);
            stub.settle(worker);
            Loom::join(pusher);
            let taken = stub.taken.load(Ordering::Relaxed) == 1;
            // A pusher that has found no worker starts a thread.
            let no_idle_worker = stub.no_idle_worker.load(Ordering::Relaxed) != 0;
            assert!(taken || no_idle_worker || !worker.is_idle(), "no worker comes for the item");
        });
    }
}
