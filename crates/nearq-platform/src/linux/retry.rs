//! Waiting for other threads to do work, and making the attempts that are left in the meantime (`crate::retry`).
//!
//! When a thread begins to wait, it cannot know what will be refused later. So it wakes up from time to time to check for attempts:
//! after a second, then after twice as long each time, up to a minute; while an attempt is left, every [`PAUSE`].

use core::sync::atomic::AtomicU32;
use core::time::Duration;

use crate::retry::{PAUSE, Retries};
use crate::{Instant, Linux, LockPlatform, Threads, Wait};

/// How long a waiting thread sleeps before its first check while no attempt is left, and the longest time between two checks.
const FIRST_INTERVAL: Duration = Duration::from_secs(1);
const LONGEST_INTERVAL: Duration = Duration::from_secs(60);

/// The attempts of this process.
pub(super) static RETRIES: Retries = Retries::new();

/// See [`Threads::wait_for_work`].
pub(super) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
    let mut interval = FIRST_INTERVAL;
    loop {
        let now = Linux::now();
        let has_come = deadline.is_some_and(|deadline| deadline <= now);
        let pause = if has_come || !Linux::has_retries() {
            interval
        } else {
            Linux::retry_now();
            PAUSE
        };
        let until = now + pause;
        // A deadline of another clock cannot be compared: the thread waits until that deadline without further checks.
        let own_deadline =
            deadline.filter(|deadline| deadline.real_time().is_some() || *deadline <= until);
        let ended = Linux::wait(word, expected, Some(own_deadline.unwrap_or(until)));
        if ended != Wait::TimedOut || own_deadline.is_some() {
            return ended;
        }
        interval = (interval * 2).min(LONGEST_INTERVAL);
    }
}
