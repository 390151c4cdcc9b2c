//! Signals as messages: a command that waits on a channel for other messages also receives signals there, and ends in an orderly way.
//!
//! The first SIGINT, SIGTERM or SIGHUP becomes such a message. The second signal ends the command at once, as it would without this module,
//! so that a user need not wait. A signal that was ignored when the command started (`nohup`, a job in the background) stays ignored.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

use crate::{Failure, threads};

/// The signals that ask for an orderly end.
const ASKING: [(i32, &str); 3] = [(SIGINT, "SIGINT"), (SIGTERM, "SIGTERM"), (SIGHUP, "SIGHUP")];

/// Calls `on_signal` with the first signal's number and name, in a separate thread. `on_signal` passes them on to where the command waits;
/// it need not check whether the receiver still exists.
///
/// # Errors
/// Signals cannot be caught, or no thread can be started.
pub fn on_first(on_signal: impl FnOnce(i32, &'static str) + Send + 'static) -> Result<(), Failure> {
    let refused = |error: io::Error| Failure::run(format!("signals cannot be caught: {error}"));
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let caught: Vec<(i32, &str)> =
        ASKING.into_iter().filter(|(number, _)| ignored & (1 << (number - 1)) == 0).collect();
    let once = Arc::new(AtomicBool::new(false));
    for &(number, _) in &caught {
        // The order matters: the first signal finds the flag false, and sets it.
        flag::register_conditional_default(number, Arc::clone(&once)).map_err(refused)?;
        flag::register(number, Arc::clone(&once)).map_err(refused)?;
    }
    let mut signals = Signals::new(caught.iter().map(|(number, _)| number)).map_err(refused)?;
    let wait = move || {
        let first = signals.forever().next();
        if let Some(&(number, name)) = caught.iter().find(|(number, _)| Some(*number) == first) {
            on_signal(number, name);
        }
    };
    threads::start("signals", wait)
}

/// Makes a write fail if the file would exceed `ulimit -f`; otherwise the signal SIGXFSZ would end the command without a message. Programs
/// that the command starts are not affected: unlike an ignored signal, a handler is not inherited.
pub fn outlive_file_limit() {
    let ignored = ignored(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    if ignored & (1 << (SIGXFSZ - 1)) == 0 {
        // The flag is not read. If the handler cannot be registered, the default stays.
        let _ = flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)));
    }
}

/// The signals that a process ignores, as the mask in its `/proc/PID/status`.
fn ignored(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_mask() {
        let status = "Name:\tnearq\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n";
        assert_eq!(ignored(status), 1 << (SIGHUP - 1) | 1 << 12);
        assert_eq!(ignored("nothing of that"), 0);
    }
}
