//! Several domains of one queue, ordered queues and frozen ones, through every interleaving.

use super::*;
use crate::base::error::Error;
use crate::homes::MemoryPolicy;

/// The change does not affect other queues, either: homes would make them look up the home of each item.
#[test]
fn a_refused_change_to_interleaved_memory_does_not_start_the_use_of_homes() {
    model(1, || {
        let stub = Stub::on(Some(TWO_NODES), AffinityScope::Numa, 2, 1);
        let change = |nice| {
            stub.queue.change(|attributes| {
                attributes.memory = MemoryPolicy::Interleave;
                attributes.nice = nice;
            })
        };
        let have_begun = || stub.queue.inner().services.homes.have_begun();
        assert_eq!(change(99), Err(Error::NiceOutOfRange(99)));
        assert!(!have_begun());
        assert_eq!(change(5), Ok(()));
        assert!(have_begun());
    });
}

// ---- two domains --------------------------------------------------------------------------------------------

#[test]
fn each_domain_has_its_own_limit() {
    model(1, || {
        let stub = Stub::on(Some(TWO_NODES), AffinityScope::Numa, 2, 1);
        let works = [(); 6].map(|()| idle());
        for (number, work) in works.iter().enumerate() {
            stub.issue_on(number % 2, work);
        }
        let rows = stub.queue.limits();
        let counts: Vec<_> = rows.iter().map(|row| (row.limit, row.active, row.inactive)).collect();
        assert_eq!(counts, [(2, 2, 1), (2, 2, 1)]);
        stub.set_max_active(3);
        assert_eq!(stub.queue.limits()[1].limit, 2, "half of 3, rounded up");
        stub.run_out();
        assert!(stub.queue.is_empty());
        assert_eq!(stub.queue.completed(), 6);
    });
}

/// What is held back on one node is activated by what ends there, and a thread that waits for the queue waits for both nodes.
#[test]
fn an_item_is_held_back_on_one_node_while_items_of_both_end() {
    model(2, || {
        let stub = Stub::on(Some(TWO_NODES), AffinityScope::Numa, 1, 2);
        let works = [(); 3].map(|()| idle());
        stub.issue_on(0, &works[0]);
        stub.issue_on(1, &works[1]);
        let issuer = stub.issuer_on(0, &works[2]);
        stub.work(1);
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        assert!(stub.queue.is_empty());
        assert_eq!(stub.queue.completed(), 3);
        assert!(stub.queue.domains().all(|domain| domain.in_use() == (0, 0)));
    });
}

#[test]
fn the_limit_is_changed_while_an_item_is_held_back_on_one_of_two_nodes() {
    model(2, || {
        let stub = Stub::on(Some(TWO_NODES), AffinityScope::Numa, 1, 2);
        let works = [(); 3].map(|()| idle());
        stub.issue_on(0, &works[0]);
        stub.issue_on(1, &works[1]);
        let issuer = stub.issuer_on(1, &works[2]);
        // Each node's share is two.
        stub.set_max_active(4);
        Loom::join(issuer);
        stub.run_out();
        assert!(stub.queue.is_empty());
        for domain in stub.queue.domains() {
            assert_eq!((domain.limit(), domain.in_use()), (2, (0, 0)));
            assert_ne!(ceiling(domain.ceiling.load(Ordering::SeqCst)), CLOSED);
        }
    });
}

/// An item that goes from node to node is never between them for a thread that checks whether the queue is empty.
#[test]
fn a_queue_is_not_empty_while_an_item_moves_between_nodes() {
    model(3, || {
        let stub = Stub::on(Some(TWO_NODES), AffinityScope::Numa, 4, 2);
        let runs = Arc::new(AtomicU32::new(0));
        let (queue, count) = (Arc::downgrade(&stub.queue), Arc::clone(&runs));
        let requeued = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            if count.fetch_add(1, Ordering::SeqCst) == 0 {
                let queue = queue.upgrade().expect("alive");
                assert_eq!(queue.queue_on(work.item(), |places| places.cpu(1)), Ok(true));
            }
        });
        stub.issue_on(0, &requeued);
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                stub.work(1);
                stub.work(1);
            })
        };
        if stub.queue.is_empty() {
            assert_eq!(runs.load(Ordering::SeqCst), 2);
        }
        Loom::join(worker);
        stub.run_out();
        assert!(stub.queue.is_empty());
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    });
}

// ---- ordered queues -----------------------------------------------------------------------------------------

impl Stub {
    fn set_nice(&self, nice: i32) {
        self.queue.change(|attributes| attributes.nice = nice).expect("the call succeeds");
    }
}

#[test]
fn order_is_kept_through_changes_of_the_pool() {
    model(1, || {
        let stub = Stub::ordered(1);
        let digits = Digits::new();
        for (digit, nice) in [(1, 0), (2, 0), (3, 5), (4, 0), (5, 5), (6, 7)] {
            stub.set_nice(nice);
            stub.issue(&digits.item(digit));
        }
        stub.run_out();
        assert_eq!(digits.read(), 123_456);
        assert_eq!(stub.queue.pwqs().count(), 3);
        stub.check(6);
    });
}

#[test]
fn no_item_is_overtaken_while_the_pool_changes_and_items_end() {
    model(1, || {
        let stub = Stub::ordered(2);
        let digits = Arc::new(Digits::new());
        stub.issue(&digits.item(1));
        let issuer = {
            let (stub, digits) = (Arc::clone(&stub), Arc::clone(&digits));
            spawn(move || {
                stub.issue(&digits.item(2));
                stub.issue(&digits.item(3));
            })
        };
        stub.set_nice(5);
        stub.work(1);
        stub.issue(&digits.item(4));
        Loom::join(issuer);
        stub.issue(&digits.item(5));
        stub.run_out();
        let order = digits.read();
        assert!([12_345, 12_435, 14_235].contains(&order), "{order}");
        stub.check(5);
    });
}

#[test]
fn an_item_of_an_ordered_queue_that_queues_itself_goes_to_the_end() {
    model(2, || {
        let stub = Stub::ordered(2);
        let digits = Digits::new();
        let (queue, order) = (Arc::downgrade(&stub.queue), Arc::clone(&digits.0));
        let requeued = Work::<Loom>::new_in(move |work: &Work<Loom>| {
            let before = order.load(Ordering::Relaxed);
            order.store(before * 10 + 1, Ordering::Relaxed);
            if before == 0 {
                assert!(queue.upgrade().expect("alive").queue(work.item()));
            }
        });
        stub.issue(&requeued);
        stub.issue(&digits.item(2));
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                stub.work(1);
            })
        };
        stub.work(0);
        Loom::join(worker);
        stub.issue(&digits.item(3));
        stub.run_out();
        let order = digits.read();
        // It may have queued itself after the last one.
        assert!([1213, 1231].contains(&order), "{order}");
        stub.check(4);
    });
}

// ---- freezing -----------------------------------------------------------------------------------------------

/// Counts executions.
fn counting(runs: &Arc<AtomicU32>) -> Work<Loom> {
    let runs = Arc::clone(runs);
    Work::new_in(move |_: &Work<Loom>| {
        runs.fetch_add(1, Ordering::SeqCst);
    })
}

/// An issuer may be at any step of an admission, with credits or without.
fn frozen_while_an_item_is_queued(max_active: usize) {
    model_within(1, 2, move || {
        let stub = Stub::new(max_active, 2);
        let (runs, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let works = [counting(&runs), counting(&runs)];
        stub.issue(&works[0]);
        let issuer = stub.issuer(&works[1]);
        let worker = {
            let done = Arc::clone(&done);
            stub.worker_while(move |_| done.load(Ordering::SeqCst) == 0)
        };
        stub.runtime.freeze().expect("not from inside");
        done.store(1, Ordering::SeqCst);
        let before = runs.load(Ordering::SeqCst);
        assert!(before >= 1, "items that were queued before have run");
        stub.work(0);
        stub.work(0);
        assert_eq!(runs.load(Ordering::SeqCst), before, "no item starts any more");
        stub.runtime.thaw();
        Loom::join(issuer);
        Loom::join(worker);
        stub.run_out();
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        stub.check(2);
    });
}

#[test]
fn frozen_while_an_item_is_queued_at_a_low_limit() {
    frozen_while_an_item_is_queued(2);
}

#[test]
fn frozen_while_an_item_is_queued_with_credits() {
    frozen_while_an_item_is_queued(WITH_CREDITS);
}

#[test]
fn frozen_while_a_worker_activates() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let (runs, done) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let works = [counting(&runs), counting(&runs)];
        for work in &works {
            stub.issue(work);
        }
        let worker = {
            let done = Arc::clone(&done);
            stub.worker_while(move |_| done.load(Ordering::SeqCst) == 0)
        };
        stub.runtime.freeze().expect("not from inside");
        done.store(1, Ordering::SeqCst);
        let before = runs.load(Ordering::SeqCst);
        stub.work(0);
        assert_eq!(runs.load(Ordering::SeqCst), before, "no item starts any more");
        stub.runtime.thaw();
        Loom::join(worker);
        stub.run_out();
        assert_eq!(runs.load(Ordering::SeqCst), 2);
        stub.check(2);
    });
}

#[test]
fn thawed_while_another_thread_freezes() {
    model_within(1, 2, || {
        let stub = Stub::new(1, 1);
        let work = idle();
        stub.issue(&work);
        let other = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                while !stub.runtime.is_frozen() {
                    Loom::yield_now();
                }
                stub.runtime.thaw();
            })
        };
        // No worker runs: it returns because of the thaw.
        stub.runtime.freeze().expect("not from inside");
        Loom::join(other);
        stub.run_out();
        stub.check(1);
    });
}
