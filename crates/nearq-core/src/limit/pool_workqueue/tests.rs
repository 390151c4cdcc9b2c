//! A thread that waits for a pwq is notified of each end that may have been the last.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::Threads;

use super::PAST;
use crate::item::tests::{model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::pool::context::wait_until;

/// A lost wake-up shows as a deadlock.
#[test]
fn refusing_an_item_wakes_a_thread_that_waits_for_its_pwq() {
    model(3, || {
        let stub = Stub::new(1, 1);
        let pwq = stub.queue.pwqs().next().expect("a pod");
        pwq.hold();
        let issuer = {
            let stub = Arc::clone(&stub);
            spawn(move || stub.queue.pwqs().for_each(super::PoolWorkqueue::let_go))
        };
        pwq.watch(PAST);
        wait_until(&stub.queue.flushing.waiters, None, || pwq.is_drained());
        Loom::join(issuer);
    });
}
