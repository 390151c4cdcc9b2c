//! The end of a queue that nobody waits for.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, Ordering, Platform};

use crate::admission::tests::Stub;
use crate::item::tests::{model, spawn};

/// The last that touches the queue is its kicker: either who carries it out finds the queue among the orphans, or who puts it there finds
/// that the kicker is over.
#[test]
fn a_queue_is_orphaned_while_its_kicker_ends() {
    model(3, || {
        let stub = Stub::new(1, 1);
        stub.admission().kick();
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                assert!(stub.work(0), "the kicker");
                // As in `run_kicker`.
                Loom::fence(Ordering::SeqCst);
                stub.queue.inner().reap_orphans();
            })
        };
        let inner = stub.queue.inner();
        inner.adopt(Arc::clone(&stub.queue));
        inner.reap_orphans();
        Loom::join(worker);
        assert_eq!(inner.has_orphans.load(Ordering::SeqCst), 0, "nobody frees the queue");
    });
}
