//! The end of a queue that no thread waits for.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, Ordering, Threads};

use crate::item::tests::{model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::task::work::Work;

/// Puts the queue among the orphans while `other` is busy with it. Afterwards one of the two must have freed the queue.
fn orphan_beside(stub: &Stub, other: <Loom as Threads>::JoinHandle) {
    let inner = stub.queue.inner();
    inner.adopt(Arc::clone(&stub.queue));
    inner.reap_orphans();
    Loom::join(other);
    assert_eq!(inner.has_orphans.load(Ordering::SeqCst), 0, "no thread frees the queue");
}

/// The last access to the queue is by its activation item: either the thread that executes it finds the queue among the orphans, or the one
/// that puts it there finds that the activation item is over.
#[test]
fn a_queue_is_orphaned_while_its_activation_item_ends() {
    model(3, || {
        let stub = Stub::new(1, 1);
        stub.node_active().kick();
        let worker = {
            let stub = Arc::clone(&stub);
            spawn(move || {
                assert!(stub.work(0), "the activation item");
                // As in `activation_item::carry_out`.
                Loom::fence(Ordering::SeqCst);
                stub.queue.inner().reap_orphans();
            })
        };
        orphan_beside(&stub, worker);
    });
}

/// The last access to the queue is by a thread that only has a reference, such as one that wakes a future.
#[test]
fn a_queue_is_orphaned_while_a_thread_is_inside_its_rundown_reference() {
    model(2, || {
        let stub = Stub::new(1, 1);
        let other = {
            let queue = Arc::clone(&stub.queue);
            spawn(move || {
                queue.pass(|| ());
            })
        };
        // As its drop does.
        stub.queue.rundown.close();
        orphan_beside(&stub, other);
    });
}

/// The last access to the queue is by a thread that cancels what is held back there.
#[test]
fn a_queue_is_orphaned_while_its_last_item_is_cancelled() {
    model(2, || {
        let stub = Stub::new(0, 1);
        let work = Work::<Loom>::new_in(|_| unreachable!("it is held back"));
        stub.issue(&work);
        stub.queue.rundown.close();
        let other = spawn(move || assert!(work.cancel()));
        orphan_beside(&stub, other);
    });
}
