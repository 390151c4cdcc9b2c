//! Closing against queueing, through every interleaving: an issuer whose item was accepted sees it run before the runtime
//! counts as empty.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};

use super::is_quiet;
use crate::base::error::Error;
use crate::item::tests::{model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::task::work::Work;

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

/// An issuer comes while the runtime is closed and emptied; `before` items are queued already, and the ceiling may be closed
/// because the limit has been changed.
fn close_beside_an_issuer(limit: usize, before: usize, changed: bool) {
    model(2, move || {
        let stub = Stub::new(limit, 1);
        if changed {
            stub.set_max_active(limit / 2);
        }
        let runs = Arc::new(AtomicU32::new(0));
        let work = || {
            let runs = Arc::clone(&runs);
            Work::<Loom>::new_in(move |_: &Work<Loom>| {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        };
        let earlier: Vec<_> = (0..before).map(|_| work()).collect();
        for work in &earlier {
            stub.issue(work);
        }
        let late = work();
        let taken = Arc::new(AtomicU32::new(0));
        let issuer = {
            let (stub, late, taken) = (Arc::clone(&stub), late.clone(), Arc::clone(&taken));
            spawn(move || match stub.queue.try_queue(late.item()) {
                Ok(yes) => taken.store(u32::from(yes), Ordering::Relaxed),
                Err(error) => assert_eq!(error, Error::ShutDown),
            })
        };
        let inner = stub.queue.inner();
        inner.shutdown.shut.store(1, Ordering::SeqCst);
        stub.queue.shut();
        let queues = [Arc::clone(&stub.queue)];
        stub.work_while(0, || !is_quiet(&queues));
        // From here on no worker runs any more.
        let ran = runs.load(Ordering::Relaxed);
        Loom::join(issuer);
        assert_eq!(ran, before as u32 + taken.load(Ordering::Relaxed));
        assert!(!late.is_pending() && !late.is_running());
        assert!(is_quiet(&queues) && stub.queue.is_empty());
        stub.run_out();
        assert_eq!(runs.load(Ordering::Relaxed), ran);
    });
}

#[test]
fn an_issuer_below_the_limit() {
    close_beside_an_issuer(1, 0, false);
}

#[test]
fn an_issuer_whose_item_is_held_back() {
    close_beside_an_issuer(1, 1, false);
}

#[test]
fn an_issuer_with_credits() {
    close_beside_an_issuer(1024, 1, false);
}

#[test]
fn an_issuer_that_bypasses_held_back_items() {
    close_beside_an_issuer(1024, 0, true);
}
