//! Waiting for what other threads are to do, and making the attempts that are left meanwhile (`crate::retry`).
//!
//! A thread does not know when it begins to wait what may be refused later. So it wakes up now and then to look: after a second, then
//! after twice as long each time, up to a minute; and each [`PAUSE`] while something is left.

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use crate::retry::{PAUSE, Retries};
use crate::{Instant, Linux, Platform, Wait};

/// The first look of a thread that waits while nothing is left, and the longest time between two.
const FIRST_LOOK: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_mins(1);

/// The attempts of this process.
pub(super) static RETRIES: Retries = Retries::new();

/// See [`Platform::wait_for_work`].
pub(super) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
    let mut look = FIRST_LOOK;
    loop {
        let pause = if Linux::has_retries() {
            Linux::retry_now();
            PAUSE
        } else {
            look
        };
        let until = Linux::now() + pause;
        // A deadline of another clock cannot be compared: it is kept, and no look is taken.
        let own = deadline.filter(|deadline| deadline.real_time().is_some() || *deadline <= until);
        let ended = Linux::wait(word, expected, Some(own.unwrap_or(until)));
        if ended != Wait::TimedOut || own.is_some() {
            return ended;
        }
        look = (look * 2).min(LAST_LOOK);
    }
}
