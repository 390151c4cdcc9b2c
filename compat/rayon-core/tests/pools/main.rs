//! What differs from rayon, and what rayon's own tests do not cover. Rayon's own tests: `suites.sh`.
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "they run on Linux only, and wait for what the pools do"
)]

mod blocking;
mod building;
mod current_thread;
mod ending;
mod numbers;
mod settings;

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// No test takes a tenth of it, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs `test` in a thread of its own. If it does not end in time, it shows what the process-wide runtime does, and fails.
#[track_caller]
fn watched<R: Send + 'static>(test: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, ended) = channel();
    let thread = std::thread::spawn(move || {
        let result = test();
        // The receiver is gone if the time is over.
        let _ = done.send(());
        result
    });
    if let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(PATIENCE) {
        let runtime = nearq::Runtime::global();
        panic!("not ended within {PATIENCE:?}\n{:#?}\n{:#?}", runtime.pools(), runtime.workers());
    }
    thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload))
}

/// Checks again and again until `holds` returns true.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        // So that the thread that will make it true gets a CPU.
        std::thread::sleep(Duration::from_micros(200));
    }
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}
