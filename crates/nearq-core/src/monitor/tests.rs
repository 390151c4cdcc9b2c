//! Work for which no thread could be woken is not forgotten.

#![cfg(not(miri))]

use nearq_model::Loom;
use nearq_platform::Threads;

use super::{Task, disarm};
use crate::item::tests::model;
use crate::limit::node_active::tests::{Stub, idle};

#[test]
fn an_issuer_pushes_while_the_monitor_goes_to_sleep() {
    model(3, || {
        // Its pool waits for a place, so the issuer wakes no worker.
        let stub = Stub::new(8, 1);
        let inner = stub.queue.inner();
        // This thread acts as the monitor's.
        inner.services.alarm.arm_for_test();
        let work = idle();
        let issuer = stub.issuer(&work);
        disarm(inner);
        Loom::join(issuer);
        assert_eq!(inner.services.alarm.task(), Task::Check, "the monitor does not check the item");
        inner.services.alarm.stop();
        stub.run_out();
        stub.check(1);
    });
}
