//! Starts threads of a command: a refusal by the system is an error, not a panic.

use std::thread;

use crate::Failure;

/// Starts a thread that is never joined.
///
/// # Errors
/// The system refuses the thread.
pub fn start(name: &str, main: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name(name.into()).spawn(main);
    started.map(drop).map_err(|error| {
        Failure::run(format!(
            "no thread can be started: {error}; limits on processes (ulimit -u, pids.max) also count threads"
        ))
    })
}
