//! A worker that is no longer available for new items checks the inbox once more: it finds the item, or the pusher finds that it is not
//! available and wakes another worker.

#![cfg(not(miri))]

use nearq_model::Loom;
use nearq_platform::Threads;

use super::Pool;
use crate::item::tests::model;
use crate::limit::node_active::tests::{Stub, idle};
use crate::pool::worker::Worker;

/// A worker of the pool, which sleeps.
fn one_asleep(pool: &Pool<Loom>) -> &Worker<Loom> {
    pool.clear_queued_for_place();
    let asleep = pool.entry_for_test();
    pool.idle().begin_search();
    asleep.set_sched_idle();
    pool.idle().settle(asleep);
    asleep
}

fn push_while(change: fn(&Pool<Loom>, bool)) {
    model(3, move || {
        let stub = Stub::new(8, 1);
        let pool = stub.pool_of(0);
        let asleep = one_asleep(pool);
        change(pool, true);
        let work = idle();
        let issuer = stub.issuer(&work);
        change(pool, false);
        let seen = pool.has_work();
        Loom::join(issuer);
        assert!(seen || !asleep.is_idle(), "no worker comes for the item");
        stub.run_out();
        stub.check(1);
    });
}

#[test]
fn a_push_while_a_worker_stops_running_short_items() {
    push_while(Pool::change_short_runners);
}

#[test]
fn a_push_while_a_worker_releases_its_place() {
    push_while(|pool, more| {
        // Enough items for the whole pool.
        (0..pool.max_running())
            .take(if more { usize::MAX } else { 1 })
            .for_each(|_| pool.change_awake(more));
    });
}

/// The other worker sleeps, and is called by the pusher, or by the first worker.
#[test]
fn a_push_while_a_worker_enters_its_hook() {
    model(3, || {
        let stub = Stub::new(8, 1);
        let pool = stub.pool_of(0);
        let asleep = one_asleep(pool);
        let begins = pool.entry_for_test();
        pool.idle().begin_search();
        let work = idle();
        let issuer = stub.issuer(&work);
        pool.enter_hook(begins);
        // The hook does not return before the pusher is done.
        Loom::join(issuer);
        assert!(!asleep.is_idle(), "no worker comes for the item");
        stub.run_out();
        stub.check(1);
    });
}
