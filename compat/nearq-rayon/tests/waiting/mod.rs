//! What several test programs here wait for and ask.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nearq_platform::{Linux, Placement, Threads};
use nearq_rayon::CpuSet;

/// Nothing that is awaited takes more than a second or so on an idle machine.
const PATIENCE: Duration = Duration::from_secs(60);

#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !is_true() {
        assert!(begin.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(1));
    }
}

pub(crate) fn my_mask() -> CpuSet {
    Linux::affinity(Linux::current_thread()).unwrap()
}
