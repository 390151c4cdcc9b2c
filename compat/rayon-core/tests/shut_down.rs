//! A pool whose runtime was shut down refuses what it is given. A program of its own: the process-wide runtime stays shut down.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it runs on Linux only")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::channel;
use std::time::Duration;

/// The text with which `f` panics.
fn panic_of(f: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    *payload.downcast::<String>().expect("it has a text")
}

#[test]
fn what_waits_for_a_closure_panics_when_the_runtime_was_shut_down() {
    let (done, ended) = channel();
    let pool = rayon_core::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    assert_eq!((rayon_core::join(|| 1, || 2), pool.install(|| 3)), ((1, 2), 3));
    nearq::Runtime::global().shutdown(Duration::from_secs(60)).unwrap();
    std::thread::spawn(move || {
        let texts = [
            panic_of(|| {
                rayon_core::join(|| (), || ());
            }),
            panic_of(|| pool.install(|| ())),
            panic_of(|| pool.scope(|_| ())),
            panic_of(|| pool.in_place_scope(|scope| scope.spawn(|_| ()))),
            panic_of(|| {
                pool.broadcast(|_| ());
            }),
            panic_of(|| pool.in_place_scope(|scope| scope.spawn_broadcast(|_, _| ()))),
        ];
        pool.in_place_scope(|_| ());
        // Nobody waits for this one, and it does not run.
        pool.spawn(|| ());
        pool.spawn_broadcast(|_| ());
        drop(pool);
        done.send(texts).unwrap();
    });
    let texts = ended.recv_timeout(Duration::from_secs(60)).expect("each call ends");
    for text in texts {
        assert!(text.contains("shut down"), "{text}");
    }
}
