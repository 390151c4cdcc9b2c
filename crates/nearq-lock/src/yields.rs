//! How a thread that waits lets other threads run before it queues up or sleeps: one of them may have been preempted with the lock.

use core::time::Duration;

use nearq_platform::LockPlatform;

/// If the thread gets the CPU back after this long, a preempted one has had its chance.
const LONG_YIELD: Duration = Duration::from_micros(100);

/// Lets other threads run once, after `yields` of at most `most` times. Returns how many times that makes: `most` after one long pause, in
/// which other threads had the CPU.
pub(crate) fn yield_once<P: LockPlatform>(yields: u32, most: u32) -> u32 {
    let before = P::now();
    P::yield_now();
    if P::now() - before >= LONG_YIELD { most } else { yields + 1 }
}
