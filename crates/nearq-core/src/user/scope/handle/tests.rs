//! The two sides of a slot, through every interleaving: the closure runs once, its value arrives, and its panic belongs to one side.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, PlatformCell, Threads};

use super::{Joined, Panic, Shell, Slot};
use crate::item::tests::{model, spawn};
use crate::task::TaskState;

type Count = <Loom as LockPlatform>::AtomicU32;

fn slot<F: FnOnce() -> T + Send, T: Send>(closure: F) -> Arc<Slot<Loom, F, T>> {
    let stage = <Loom as Threads>::Cell::new(TaskState::Program(closure));
    Arc::new(Slot { word: Count::new(0), epoch: 0, stage })
}

#[test]
fn a_closure_that_is_joined_runs_once() {
    model(3, || {
        let runs = Arc::new(Count::new(0));
        let slot = {
            let runs = Arc::clone(&runs);
            slot(move || runs.fetch_add(1, Ordering::Relaxed))
        };
        let worker = {
            let shell = Shell(Arc::clone(&slot));
            spawn(move || shell.run())
        };
        slot.run_unclaimed();
        super::wait::<Loom>(&slot.word);
        assert_eq!(slot.take().map(Result::unwrap), Some(0));
        Loom::join(worker);
        assert_eq!(runs.load(Ordering::Relaxed), 1);
    });
}

#[test]
fn a_thread_that_waits_is_woken() {
    model(3, || {
        let slot = slot(|| 7);
        let worker = {
            let shell = Shell(Arc::clone(&slot));
            spawn(move || shell.run())
        };
        super::wait::<Loom>(&slot.word);
        assert_eq!(slot.take().map(Result::unwrap), Some(7));
        Loom::join(worker);
    });
}

#[test]
fn a_panic_of_a_closure_whose_handle_is_dropped_belongs_to_one_side() {
    model(3, || {
        let slot = slot(|| -> () { std::panic::resume_unwind(Box::new("on purpose")) });
        let panics = Arc::new(Mutex::<u32, Loom>::new_in(0));
        let worker = {
            let (slot, panics) = (Arc::clone(&slot), Arc::clone(&panics));
            spawn(move || {
                assert!(slot.claim());
                *panics.lock() += u32::from(slot.run().is_some());
            })
        };
        let kept: Option<Panic> = super::detach(&*slot);
        *panics.lock() += u32::from(kept.is_some());
        Loom::join(worker);
        assert_eq!(*panics.lock(), 1);
    });
}
