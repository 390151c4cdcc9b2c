//! The last thief leaves while an item forks, through every interleaving: the thief sees the job, or the worker that forks calls a thief.
//! In both cases a thief is called, so the job is not forgotten. And a thief finds no number left in the team while a member leaves.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, LockPlatform, Ordering, Threads};

use super::thief::ThiefAtWork;
use super::{Context, InUse, Offered, fork};
use crate::deque::Requests;
use crate::item::tests::{model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::pool::worker::Worker;
use crate::queue::team::{Closure, Team, TeamBell, Wait};
use crate::queue::thieves::Thieves;

/// The queue's thieves. One that is called does nothing.
fn thieves(stub: &Stub) -> &Thieves<Loom> {
    stub.queue.thieves(stub.pool_of(0), |_, _| ())
}

/// A thread that is a thief and does that.
fn thief_that(
    does: impl FnOnce(&ThiefAtWork<'_, Loom>) + Send + 'static,
    stub: &Arc<Stub>,
    worker: &Worker<Loom>,
) -> <Loom as Threads>::JoinHandle {
    let (stub, worker) = (Arc::clone(stub), worker.index);
    spawn(move || {
        let worker = stub.queue.inner().services.workers.get(worker);
        let context = Context::new(stub.pool_of(0), worker);
        let _entered = context.enter();
        let deque = worker.deque.get_or_make();
        let (queue, thieves) = (&stub.queue, thieves(&stub));
        does(&ThiefAtWork { context: &context, queue, thieves, team: None, deque });
    })
}

/// A thread that is a thief, the only one that searches, and stops.
#[expect(clippy::redundant_closure_for_method_calls, reason = "the method is not general enough")]
fn thief_that_leaves(stub: &Arc<Stub>, worker: &Worker<Loom>) -> <Loom as Threads>::JoinHandle {
    thieves(stub).begin_search();
    thief_that(|thief| thief.end_search(), stub, worker)
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

/// A team of one number, which a member holds at first.
struct OneNumber {
    free: <Loom as LockPlatform>::AtomicU32,
}

impl Team<Loom> for OneNumber {
    fn size(&self) -> usize {
        1
    }

    fn is_short(&self) -> bool {
        false
    }

    fn enter(&self, _: TeamBell<Loom>) -> bool {
        self.free.swap(0, Ordering::AcqRel) == 1
    }

    fn leave(&self) -> bool {
        self.free.swap(1, Ordering::AcqRel) == 0
    }

    fn has_room(&self) -> bool {
        self.free.load(Ordering::Relaxed) == 1
    }

    fn must_leave(&self) -> bool {
        false
    }

    fn take_own(&self) -> Option<Closure> {
        None
    }

    fn take_shared(&self) -> Option<Closure> {
        None
    }

    fn has_shared(&self) -> bool {
        false
    }

    fn take_urgent(&self, _: Wait) -> Option<Closure> {
        None
    }

    fn has_urgent(&self, _: Wait) -> bool {
        false
    }

    fn sleeps(&self, _: Wait, _: bool) {}

    fn inject(&self, _: Closure) -> u64 {
        0
    }

    fn retract(&self, _: u64) -> Option<Closure> {
        None
    }

    fn after_fork_in_child(&self) {}
}

/// A thief finds that all numbers are held, while the member that holds the last one leaves. There is a job.
#[test]
fn a_job_is_not_forgotten_when_a_thief_finds_no_number_while_a_member_leaves() {
    model(3, || {
        let stub = Stub::new(8, 1);
        let pool = stub.pool_of(0);
        let context = Context::new(pool, pool.entry_for_test());
        let entered = context.enter();
        let in_use = InUse::begin(&context, &stub.queue);
        let team = Arc::new(OneNumber { free: <Loom as LockPlatform>::AtomicU32::new(0) });
        let first = || {
            thieves(&stub).begin_search();
            let late = {
                let team = Arc::clone(&team);
                let fails = move |thief: &ThiefAtWork<'_, Loom>| {
                    if team.enter(TeamBell::of(&thief.deque.bell)) {
                        // As if it had run the job.
                        thief.thieves.end_search();
                        thief.thieves.call(thief.queue);
                    } else {
                        thief.give_up(&*team);
                    }
                };
                thief_that(fails, &stub, pool.entry_for_test())
            };
            let team = Arc::clone(&team);
            let member = thief_that(move |thief| thief.leave(&*team), &stub, pool.entry_for_test());
            Loom::join(late);
            Loom::join(member);
            assert!(thieves(&stub).is_called(), "the job is forgotten");
        };
        fork(Some(in_use.deque()), first, Offered::new(|| ()));
        drop(in_use);
        stub.run_out();
        drop(entered);
    });
}
