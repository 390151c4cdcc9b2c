//! Reports panics of code that takes threads and memory for granted as errors of the command.
//!
//! The pools that the experiments compare with, the standard library's scoped threads and the simulator panic if the system gives no thread
//! or no memory. That is not a bug in the program, so the program ends with one line that says what to do.

#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

use nearq_command::Failure;

/// The messages of such panics: of the standard library, tokio, other pools, the simulator and the experiments.
const TEXTS: [&str; 5] = [
    "failed to spawn thread",
    "can't spawn worker thread",
    "Resource temporarily unavailable",
    "could not map the stack",
    "no room for ",
];

/// Whether a thread has panicked with such a message. Relaxed: another thread's panic ends the caller later, by a join.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// Runs the command.
pub(crate) fn run(command: impl FnOnce() -> Result<(), Failure>) -> Result<(), Failure> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |panic| {
        if is_refusal(panic.payload()) {
            REFUSED.store(true, Ordering::Relaxed);
        } else {
            before(panic);
        }
    }));
    match panic::catch_unwind(AssertUnwindSafe(command)) {
        Ok(result) => result,
        Err(_) if REFUSED.load(Ordering::Relaxed) => Err(Failure::run(
            "the system provides no more threads or memory; raise the limit (ulimit -u, ulimit -v, pids.max), or run a smaller experiment",
        )),
        Err(panic) => panic::resume_unwind(panic),
    }
}

fn is_refusal(payload: &(dyn Any + Send)) -> bool {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or_default();
    TEXTS.iter().any(|refusal| text.contains(refusal))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_thread_is_an_error_and_other_panics_are_unchanged() {
        let refused = std::io::Error::from_raw_os_error(libc::EAGAIN);
        let Err(failure) = run(|| panic!("failed to spawn thread: {refused:?}")) else {
            panic!("it has failed");
        };
        assert!(failure.to_string().contains("raise the limit"), "{failure}");
        // Panics as a pool does.
        let Err(failure) = run(|| Err::<(), _>(refused).map_err(|error| panic!("{error:?}")))
        else {
            panic!("it has failed");
        };
        assert!(failure.to_string().contains("ulimit -u"), "{failure}");
        REFUSED.store(false, Ordering::Relaxed);
        let other = panic::catch_unwind(|| run(|| panic!("another mistake"))).unwrap_err();
        assert_eq!(other.downcast_ref::<&str>(), Some(&"another mistake"));
    }
}
