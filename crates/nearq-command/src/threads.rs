//! Threads of a command: one that the system refuses is an error, and no panic.

use std::thread;

use crate::Failure;

/// Starts a thread that nobody waits for.
///
/// # Errors
/// The system gives none.
pub fn start(name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.into()).spawn(main);
    started.map(drop).map_err(|error| {
        Failure::run(format!(
            "no thread can be started: {error}; a limit on processes counts threads, too (ulimit -u, pids.max)"
        ))
    })
}
