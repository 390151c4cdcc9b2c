//! Work that nobody could be woken for is not forgotten.

#![cfg(not(miri))]

use nearq_model::Loom;
use nearq_platform::{Atomic, Ordering, Platform};

use super::{ARMED, STARTED};
use crate::admission::tests::{Stub, idle};
use crate::item::tests::model;

#[test]
fn one_pushes_while_the_monitor_goes_to_sleep() {
    model(3, || {
        // Its pool waits for a place, so the issuer wakes nobody.
        let stub = Stub::new(8, 1);
        let inner = stub.queue.inner();
        // As if its thread were there: this one.
        inner.monitor.started.store(STARTED, Ordering::SeqCst);
        inner.monitor.armed.store(ARMED, Ordering::SeqCst);
        let work = idle();
        let issuer = stub.issuer(&work);
        inner.monitor.disarm(inner);
        Loom::join(issuer);
        let armed = inner.monitor.armed.load(Ordering::SeqCst);
        assert_eq!(armed, ARMED, "nobody looks after the item");
        inner.monitor.stop();
        stub.run_out();
        stub.check(1);
    });
}
