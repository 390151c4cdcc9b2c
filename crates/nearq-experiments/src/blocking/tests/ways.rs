//! Tests of `ways`: the ways in which an item can be blocked.

use super::*;
use nearq_platform::Threads;
use std::time::Instant;

#[test]
fn a_blocked_thread_returns_after_the_time_and_uses_no_cpu_time() {
    let time = Duration::from_millis(20);
    for way in [Way::Sleep, Way::Futex, Way::Pipe] {
        let (block, _) = prepare(way, time, Path::new("/")).unwrap().unwrap();
        let cpu_time = || Linux::cpu_time(Linux::current_thread()).unwrap();
        let (start, used) = (Instant::now(), cpu_time());
        block.block().unwrap();
        let (waited, used) = (start.elapsed(), cpu_time().saturating_sub(used));
        assert!(waited >= time && used < time / 4, "{}: {waited:?}, {used:?}", way.name());
    }
}

#[test]
fn names_are_unique_and_others_are_refused() {
    for way in Way::ALL {
        assert_eq!(Way::named(way.name()).unwrap(), way);
    }
    let error = Way::named("nap").unwrap_err();
    assert_eq!(error.to_string(), "--way \"nap\": give one of sleep, futex, pipe, disk");
}
