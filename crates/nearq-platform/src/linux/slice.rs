//! Asking for a little more time while others wait for what the caller holds.
//!
//! Off until somebody [turns it on](turn_on) for the process. Then each thread turns it on for itself when it asks for the first
//! time; where that is refused it does not ask again.

use core::cell::Cell;
use core::sync::atomic::{AtomicBool, Ordering};

use super::refusal::{self, refused};
use crate::Refused;
use crate::sys::SliceControl;

/// Whether threads ask. Relaxed everywhere: nothing is published with it.
static ON: AtomicBool = AtomicBool::new(false);

/// What a thread knows of its own requests.
#[derive(Clone, Copy)]
enum Asking {
    /// It has not tried.
    Untried,
    Refused,
    By(SliceControl),
}

thread_local! {
    static ASKING: Cell<Asking> = const { Cell::new(Asking::Untried) };
}

pub(super) fn turn_on() -> Result<(), Refused> {
    let control = SliceControl::enable()
        .map_err(|error| refused("extend time slices".to_owned(), error, refusal::slices(error)))?;
    ASKING.set(Asking::By(control));
    ON.store(true, Ordering::Relaxed);
    Ok(())
}

#[inline(always)]
pub(super) fn is_on() -> bool {
    ON.load(Ordering::Relaxed)
}

#[cold]
pub(super) fn ask() {
    let mut asking = ASKING.get();
    if matches!(asking, Asking::Untried) {
        asking = SliceControl::enable().map_or(Asking::Refused, Asking::By);
        ASKING.set(asking);
    }
    if let Asking::By(control) = asking {
        control.request();
    }
}

#[cold]
pub(super) fn give_back() {
    if let Asking::By(control) = ASKING.get() {
        control.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whichever the kernel is: it takes it, or says what is missing, and asking does no harm.
    #[test]
    fn it_is_taken_or_refused_with_what_would_allow_it() {
        match turn_on() {
            Ok(()) => assert!(is_on()),
            Err(refused) => {
                assert!(!is_on());
                let text = refused.to_string();
                assert!(text.contains("SLICE_EXTENSION") || text.contains("2.41"), "{text}");
                println!("here: {text}");
            }
        }
        for _ in 0..3 {
            ask();
            give_back();
        }
    }
}
