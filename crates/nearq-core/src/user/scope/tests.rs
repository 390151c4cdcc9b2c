//! The tickets of a scope within an item, through every interleaving: each closure runs once, whichever side comes first, and the scope
//! does not sleep while one is left for it.

#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, Linux, LockPlatform, Ordering, Platform, Threads};

use super::{MOST_SPAWNED, Ticket, Within};
use crate::item::tests::{aborts, model, spawn};

/// Runs the ticket as the item on the queue would.
fn run<P: Platform>(ticket: &Ticket<P>) -> bool {
    ticket.take().map(|closure| closure()).is_some()
}

#[test]
#[cfg(not(miri))]
fn a_worker_and_the_scope_run_each_closure_once() {
    model(3, || {
        let within = Within::<Loom>::new();
        let count = Arc::new(<Loom as LockPlatform>::AtomicU32::new(2));
        let make = || {
            let (count, within) = (Arc::clone(&count), Arc::clone(&within));
            Ticket::<Loom>::new(Box::new(move || {
                count.fetch_sub(1, Ordering::SeqCst);
                within.waiters.notify();
            }))
        };
        let [first, second] = [make(), make()];
        within.offer(Arc::clone(&first));
        let worker = {
            let within = Arc::clone(&within);
            spawn(move || {
                // The scope knows of the first. The second is spawned by a closure while the scope may sleep, and only the scope can run
                // it.
                run(&first);
                within.offer(second);
            })
        };
        within.run_until(|| count.load(Ordering::SeqCst) == 0);
        Loom::join(worker);
        assert_eq!(count.load(Ordering::Relaxed), 0, "each of them once");
    });
}

#[test]
fn tickets_are_issued_in_order_and_used_up() {
    let within = Within::<Linux>::new();
    let order = Arc::new(Mutex::<_, Linux>::new_in(Vec::new()));
    let tickets: Vec<_> = (0..5)
        .map(|number| {
            let order = Arc::clone(&order);
            Ticket::<Linux>::new(Box::new(move || order.lock().push(number)))
        })
        .collect();
    for ticket in &tickets {
        within.offer(Arc::clone(ticket));
    }
    assert!(run(&tickets[2]));
    assert!(!run(&tickets[2]), "it is used up");
    within.run_until(|| order.lock().len() == 5);
    assert_eq!(*order.lock(), [2, 0, 1, 3, 4]);
    assert!(tickets.iter().all(|ticket| !run(ticket)));
    // A closure that is never run is dropped.
    within.offer(Ticket::new(Box::new({
        let order = Arc::clone(&order);
        move || drop(order)
    })));
    drop((within, tickets));
    assert_eq!(Arc::strong_count(&order), 1);
}

/// As with `Arc`: a count that wrapped would end the scope before its closures.
#[test]
#[cfg(not(miri))]
fn overflowing_the_closure_count_aborts_the_process() {
    aborts("user::scope::tests::overflowing_the_closure_count_aborts_the_process", || {
        let queue = crate::Workqueue::builder("many").build().expect("the call succeeds");
        queue.scope(|scope| {
            scope.count.store(MOST_SPAWNED + 1, Ordering::Relaxed);
            scope.spawn(|| {});
            // The scope would wait for closures that do not exist.
            std::process::exit(0);
        });
    });
}
