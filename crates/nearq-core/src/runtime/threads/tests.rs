//! A thread that is started while the runtime stops is waited for, or is not started.

#![cfg(not(miri))]

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Atomic, LockPlatform, Ordering, Threads};

use crate::item::tests::{aborts, model, spawn};
use crate::limit::node_active::tests::Stub;
use crate::queue::runtime::Inner;
use crate::queue::runtime::Runtime;

fn stop_while(one_starts: fn(&Inner<Loom>) -> bool) {
    model(3, move || {
        let stub = Stub::new(1, 0);
        let inner = stub.queue.inner();
        inner.stopping.store(0, Ordering::SeqCst);
        let begun = Arc::new(<Loom as LockPlatform>::AtomicU32::new(0));
        let starter = {
            let (stub, started) = (Arc::clone(&stub), Arc::clone(&begun));
            spawn(move || {
                let inner = stub.queue.inner();
                started.store(u32::from(one_starts(inner)), Ordering::Relaxed);
            })
        };
        inner.ask_to_stop();
        let waits = inner.has_threads();
        Loom::join(starter);
        let started = begun.load(Ordering::Relaxed) != 0;
        let counted = inner.has_threads();
        // It has ended.
        inner.threads.store(0, Ordering::Relaxed);
        inner.reserved.store(0, Ordering::Relaxed);
        assert_eq!(counted, started);
        assert!(waits || !started, "no thread waits for the started one");
    });
}

#[test]
fn the_runtime_stops_while_a_worker_is_started() {
    stop_while(|inner| inner.count_thread().is_ok());
}

#[test]
fn the_runtime_stops_while_a_rescuer_is_started() {
    stop_while(Inner::count_rescuer);
}

#[test]
fn overflowing_the_runtimes_handle_count_aborts_the_process() {
    aborts(
        "runtime::threads::tests::overflowing_the_runtimes_handle_count_aborts_the_process",
        || {
            let runtime = Runtime::builder().build().expect("the call succeeds");
            runtime.inner().handles.store(u32::MAX / 2 + 1, Ordering::Relaxed);
            core::mem::forget(runtime.clone());
            std::process::exit(0);
        },
    );
}
