//! The last thief leaves while an item forks, through every interleaving: the thief sees the job, or the worker that forks calls a thief.
//! In both cases a thief is called, so the job is not forgotten.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::Threads;

use super::thief::ThiefAtWork;
use super::{Context, InUse, Offered, fork};
use crate::deque::Requests;
use crate::item::tests::{model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::pool::worker::Worker;
use crate::queue::thieves::Thieves;

/// The queue's thieves. One that is called does nothing.
fn thieves(stub: &Stub) -> &Thieves<Loom> {
    stub.queue.thieves(stub.pool_of(0), |_, _| ())
}

/// A thread that is a thief, the only one that searches, and stops.
fn thief_that_leaves(stub: &Arc<Stub>, worker: &Worker<Loom>) -> <Loom as Threads>::JoinHandle {
    let (stub, worker) = (Arc::clone(stub), worker.index);
    thieves(&stub).begin_search();
    spawn(move || {
        let worker = stub.queue.inner().services.workers.get(worker);
        let context = Context::new(stub.pool_of(0), worker);
        let _entered = context.enter();
        let deque = worker.deque.get_or_make();
        let (queue, thieves) = (&stub.queue, thieves(&stub));
        ThiefAtWork { context: &context, queue, thieves, team: None, deque }.end_search();
    })
}

/// An item that has forked before, or not, forks while the last thief leaves.
fn fork_while_the_last_thief_leaves(has_forked: bool) {
    model(3, move || {
        let stub = Stub::new(8, 1);
        let pool = stub.pool_of(0);
        let context = Context::new(pool, pool.entry_for_test());
        let entered = context.enter();
        let begin = || InUse::begin(&context, &stub.queue);
        let before = has_forked.then(begin);
        let thief = thief_that_leaves(&stub, pool.entry_for_test());
        let in_use = before.unwrap_or_else(|| {
            let in_use = begin();
            // As in `begin_in_item`.
            in_use.deque().request(Requests::CALL);
            in_use
        });
        let first = || {
            Loom::join(thief);
            assert!(thieves(&stub).is_called(), "the job is forgotten");
        };
        fork(Some(in_use.deque()), first, Offered::new(|| ()));
        drop(in_use);
        stub.run_out();
        drop(entered);
    });
}

#[test]
fn the_first_job_of_an_item_is_not_forgotten_when_the_last_thief_leaves() {
    fork_while_the_last_thief_leaves(false);
}

#[test]
fn the_next_job_of_an_item_is_not_forgotten_when_the_last_thief_leaves() {
    fork_while_the_last_thief_leaves(true);
}
