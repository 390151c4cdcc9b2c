//! Flush and drain through every interleaving: a waiter is woken, nothing queued before is missed, nothing queued later is waited for.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};

use super::{Flush, SETS};
use crate::base::error::Error;
use crate::item::tests::{model, model_within, spawn};
use crate::limit::node_active::tests::{Digits, Stub, idle};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::context::wait_until;
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

/// An item that counts its executions.
fn counting() -> (Arc<AtomicU32>, Work<Loom>) {
    let runs = Arc::new(AtomicU32::new(0));
    let runs_clone = Arc::clone(&runs);
    let count = move |_: &Work<Loom>| {
        runs_clone.fetch_add(1, Ordering::Relaxed);
    };
    (runs, Work::new_in(count))
}

fn ran(runs: &AtomicU32) -> u32 {
    runs.load(Ordering::Relaxed)
}

/// A worker's thread that goes on until this many items have ended; the activation item does not count.
fn worker_until(stub: &Arc<Stub>, ended: u64) -> <Loom as Threads>::JoinHandle {
    stub.worker_while(move |stub| stub.queue.completed() < ended)
}

#[test]
fn a_flush_during_the_end_of_its_item() {
    model(3, || {
        let stub = Stub::new(2, 2);
        let (runs, work) = counting();
        stub.issue(&work);
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || assert!(stub.work(1)))
        };
        stub.queue.flush().expect("from outside");
        assert_eq!(ran(&runs), 1);
        Loom::join(worker);
        stub.run_out();
        stub.check(1);
    });
}

#[test]
fn a_flush_waits_for_held_back_items() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let items = [counting(), counting()];
        for (_, work) in &items {
            stub.issue(work);
        }
        let worker = worker_until(&stub, 2);
        stub.queue.flush().expect("from outside");
        assert!(items.iter().all(|(runs, _)| ran(runs) == 1));
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

/// An issuer may be anywhere while the flush leads to other pwqs: what it queues is not lost, and the next flush, which
/// begins after it, waits for it.
#[test]
fn a_flush_beside_an_issuer() {
    model_within(1, 2, || {
        let stub = Stub::new(8, 2);
        let ((first_runs, first), (second_runs, second)) = (counting(), counting());
        stub.issue(&first);
        let issuer = stub.issuer(&second);
        let worker = worker_until(&stub, 2);
        stub.queue.flush().expect("from outside");
        assert_eq!(ran(&first_runs), 1);
        Loom::join(issuer);
        stub.queue.flush().expect("from outside");
        assert_eq!(ran(&second_runs), 1);
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

#[test]
fn two_flushes_at_once() {
    model(1, || {
        let stub = Stub::new(8, 2);
        let ((first_runs, first), (second_runs, second)) = (counting(), counting());
        let flusher = {
            let stub = Arc::clone(&stub);
            let second = second.clone();
            spawn(move || {
                stub.issue(&second);
                stub.queue.flush().expect("from outside");
                assert_eq!(ran(&second_runs), 1);
            })
        };
        let worker = worker_until(&stub, 2);
        stub.issue(&first);
        stub.queue.flush().expect("from outside");
        assert_eq!(ran(&first_runs), 1);
        Loom::join(flusher);
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

/// Rounds follow each other while the first flusher is slow: the set that it waits for is drained and used again, with new items, and it
/// must see that from the set's generation, or be notified.
#[test]
fn a_set_is_reused_while_a_flusher_still_waits_for_it() {
    model(2, || {
        let stub = Stub::new(8, 2);
        let works = [(); 3].map(|()| idle());
        stub.issue(&works[0]);
        let mut flush = Flush::default();
        assert!(!flush.advance(&*stub.queue), "it waits for the first set");
        let waiting = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                wait_until(&stub.queue.flushing.waiters, None, || flush.advance(&*stub.queue));
            })
        };
        stub.run_out();
        stub.issue(&works[1]);
        assert!(stub.queue.begin_round(0).is_some());
        assert_eq!(stub.queue.flushing.generation(0), 1, "the first set is in use again");
        // This item stays where it is: a thread that waits for it by mistake waits for ever.
        stub.issue(&works[2]);
        Loom::join(waiting);
        stub.run_out();
        stub.check(3);
        drop(works);
    });
}

#[test]
fn a_flush_is_not_delayed_by_later_items() {
    model(1, || {
        let stub = Stub::new(8, 1);
        let (old, new) = (idle(), idle());
        stub.issue(&old);
        let mut flush = Flush::default();
        assert!(!flush.advance(&*stub.queue));
        stub.issue(&new);
        assert!(stub.work(0));
        assert!(flush.advance(&*stub.queue), "the old item has ended");
        assert!(new.is_pending(), "the new item has not");
        stub.run_out();
        stub.check(2);
    });
}

/// If all sets are in use, one must be drained first; newer flushes do not take that set from the older flush for ever.
#[test]
fn flushes_beyond_the_number_of_sets_wait() {
    model(1, || {
        let stub = Stub::new(64, 1);
        let works = [(); SETS + 2].map(|()| idle());
        let mut flushes: Vec<Flush> = Vec::new();
        for work in &works {
            stub.issue(work);
            let mut flush = Flush::default();
            assert!(!flush.advance(&*stub.queue));
            flushes.push(flush);
        }
        let used = stub.queue.pwqs().map(|pwq| pwq.set).max();
        assert_eq!(used, Some(SETS - 1));
        assert!(flushes[SETS - 2].waited.is_some());
        assert!(
            flushes[SETS - 1..].iter().all(|flush| flush.waited.is_none()),
            "they wait for a set"
        );
        // The last three items are on one set, and end together.
        for ended in 1..=works.len() {
            assert!(stub.work(0));
            let over: Vec<bool> =
                flushes.iter_mut().map(|flush| flush.advance(&*stub.queue)).collect();
            let expected = if ended < works.len() { ended.min(SETS - 1) } else { ended };
            assert_eq!(over.iter().filter(|over| **over).count(), expected);
            assert!(over[..expected].iter().all(|over| *over));
        }
        stub.check(works.len() as u64);
    });
}

#[test]
fn an_idle_queue_is_flushed_without_a_round() {
    model(1, || {
        let stub = Stub::new(64, 1);
        let (_, work) = counting();
        for _ in 0..3 {
            stub.issue(&work);
            stub.run_out();
            stub.queue.flush().expect("from outside");
        }
        assert_eq!(stub.queue.flushing.rounds(), 0);
        let pwq = stub.queue.pwqs().next().expect("a pwq");
        assert!(pwq.credits.count() > 0, "the credits of the pwq stay there");
        stub.check(3);
    });
}

/// The statistics of a pool are those of all its pwqs.
#[test]
fn sets_count_together() {
    model(0, || {
        let stub = Stub::new(64, 1);
        let works = [(); 3].map(|()| idle());
        let mut flushes = Vec::new();
        for work in &works {
            stub.issue(work);
            let mut flush = Flush::default();
            flush.advance(&*stub.queue);
            flushes.push(flush);
        }
        stub.run_out();
        assert_eq!(stub.queue.pwqs().count(), 4);
        let rows = stub.queue.statistics();
        assert_eq!(rows.len(), 1);
        assert_eq!((rows[0].completed, rows[0].started), (3, 3));
        stub.check(3);
    });
}

// ---- the order of what is held back ---------------------------------------------------------------------------

/// A thread that queues two items, with a round between them.
fn issuer_of_two(
    stub: &Arc<Stub>,
    before: &Work<Loom>,
    after: &Work<Loom>,
) -> <Loom as Threads>::JoinHandle {
    let (stub, before, after) = (Arc::clone(stub), before.clone(), after.clone());
    spawn(move || {
        stub.issue(&before);
        assert!(stub.queue.begin_round(0).is_some());
        stub.issue(&after);
    })
}

#[test]
fn items_held_back_before_a_flush_start_before_later_items() {
    model(1, || {
        let stub = Stub::new(1, 1);
        let digits = Digits::new();
        let works = digits.items::<6>();
        // The same once more, when the sets have changed places.
        for _ in 0..2 {
            digits.clear();
            for pair in works.chunks(2) {
                for work in pair {
                    stub.issue(work);
                }
                assert!(stub.queue.begin_round(0).is_some());
            }
            stub.run_out();
            assert_eq!(digits.read(), 123_456);
        }
        stub.check(12);
    });
}

/// A worker takes what is held back while the issuer is led from one pwq to the next.
#[test]
fn no_item_overtakes_a_held_back_item_of_an_older_pwq() {
    model(3, || {
        let stub = Stub::new(1, 2);
        let digits = Digits::new();
        let works = digits.items::<3>();
        stub.issue(&works[0]);
        let issuer = issuer_of_two(&stub, &works[1], &works[2]);
        stub.work(1);
        Loom::join(issuer);
        stub.run_out();
        assert_eq!(digits.read(), 123);
        stub.check(3);
    });
}

/// The same, if the next pwq is one that was used before.
#[test]
fn no_item_overtakes_a_held_back_item_while_a_set_is_reused() {
    model(2, || {
        let stub = Stub::new(1, 2);
        let digits = Digits::new();
        let works = digits.items::<3>();
        // Issuers use the second set; the first one is drained and older.
        stub.issue(&works[0]);
        assert!(stub.queue.begin_round(0).is_some());
        stub.run_out();
        digits.clear();
        stub.issue(&works[0]);
        let issuer = issuer_of_two(&stub, &works[1], &works[2]);
        stub.work(1);
        Loom::join(issuer);
        assert_eq!(stub.queue.pwqs().count(), 2);
        stub.run_out();
        assert_eq!(digits.read(), 123);
        stub.check(4);
    });
}

// ---- drain ------------------------------------------------------------------------------------------------------

/// Each item of a chain queues the next one: checking one pwq after the other cannot show whether everything is over.
#[test]
fn a_drain_admits_items_queued_by_the_queues_own_items() {
    model(2, || {
        let stub = Stub::new(2, 2);
        let (runs, last) = counting();
        let queue = Arc::downgrade(&stub.queue);
        let next = last.clone();
        let first = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            let queue = queue.upgrade().expect("alive");
            assert_eq!(queue.try_queue(next.item()), Ok(true));
        });
        stub.issue(&first);
        let worker = worker_until(&stub, 2);
        stub.queue.drain().expect("from outside");
        assert_eq!(ran(&runs), 1, "the whole chain");
        Loom::join(worker);
        stub.run_out();
        stub.check(2);
    });
}

/// The same over two pools, whose pwqs are checked one after the other.
#[test]
fn a_drain_follows_a_chain_across_pwqs() {
    model(2, || {
        let stub = Stub::on(Some("numa:2 core:1"), nearq_topology::AffinityScope::Numa, 16, 2);
        let (runs, last) = counting();
        let queue = Arc::downgrade(&stub.queue);
        let next = last.clone();
        let first = Work::<Loom>::new_in(move |_: &Work<Loom>| {
            let queue = queue.upgrade().expect("alive");
            assert_eq!(queue.queue_on(next.item(), |places| places.cpu(1)), Ok(true));
        });
        stub.issue_on(0, &first);
        let worker = worker_until(&stub, 2);
        stub.queue.drain().expect("from outside");
        assert_eq!(ran(&runs), 1, "the whole chain");
        Loom::join(worker);
        stub.run_out();
        assert!(stub.queue.pwqs().all(PoolWorkqueue::is_drained));
    });
}

#[test]
fn a_drain_refuses_items_from_outside_and_nests() {
    model(1, || {
        let stub = Stub::new(8, 1);
        let (runs, work) = counting();
        let refused = || {
            let answer = stub.queue.try_queue(work.item());
            answer == Err(Error::Draining { queue: "modelled".into() }) && !work.is_pending()
        };
        stub.queue.begin_drain();
        assert!(refused());
        stub.queue.begin_drain();
        stub.queue.end_drain();
        assert!(refused(), "a thread still drains");
        stub.queue.end_drain();
        assert_eq!(stub.queue.try_queue(work.item()), Ok(true));
        stub.run_out();
        assert_eq!(ran(&runs), 1);
        stub.check(1);
    });
}
