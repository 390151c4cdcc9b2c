//! Backing off after a compare-exchange that failed.
//!
//! If N CPUs try to change one word at once, one succeeds and the others have fetched the line for nothing; if all of them try again at
//! once, each change costs N transfers of the line. A thread that failed waits a little, longer each time, so that the line stays with a
//! thread that succeeds. Binary exponential back-off, after Metcalfe and Boggs, "Ethernet" (1976); for locks Anderson, "The Performance of
//! Spin Lock Alternatives" (1990).

use nearq_platform::Platform;

/// The longest pause is 2 to this power.
const LONGEST: u32 = 6;

/// Waits after the `attempt`-th failure in a row, and counts it.
#[cold]
pub(crate) fn after_failure<P: Platform>(attempt: &mut u32) {
    P::pause(1 << (*attempt).min(LONGEST));
    *attempt += 1;
}

/// Waits for a thread that holds something for a few instructions, and may have been preempted meanwhile.
#[cold]
pub(crate) fn for_holder<P: Platform>(attempt: &mut u32) {
    after_failure::<P>(attempt);
    if *attempt > 1 {
        P::yield_now();
    }
}
