//! When rescuers are called.

use core::time::Duration;

use nearq_platform::{Instant, Linux, Ordering};

use super::{Denied, FIRST, INTERVAL, SpawnFailure};

fn at(millis: u64) -> Instant {
    Instant::from_nanos(millis * 1_000_000)
}

/// Refused since that time.
fn refused_at(millis: u64) -> SpawnFailure<Linux> {
    let failure = SpawnFailure::<Linux>::new();
    failure.refused.store(at(millis).as_nanos(), Ordering::Relaxed);
    failure
}

#[test]
fn the_first_retry_is_after_10_ms_and_later_ones_every_100_ms() {
    assert_eq!((FIRST, INTERVAL), (Duration::from_millis(10), Duration::from_millis(100)));
    let failure = refused_at(1000);
    let calls: Vec<_> = (1000..1400).filter(|now| failure.is_due(7, at(*now))).collect();
    assert_eq!(calls, [1010, 1110, 1210, 1310]);
}

#[test]
fn a_start_resets_the_retry_time() {
    let failure = refused_at(1000);
    // Something is started every 9 ms; then nothing more is started.
    let calls: Vec<_> =
        (1000..1130).filter(|now| failure.is_due((*now).min(1090) / 9, at(*now))).collect();
    assert_eq!(calls, [1099], "{calls:?}");
}

#[test]
fn an_old_refusal_does_not_apply_to_new_work() {
    let failure = refused_at(1000);
    assert!(!failure.is_due(7, at(5000)));
    assert!(!failure.is_due(7, at(5009)));
    assert!(failure.is_due(7, at(5010)));
    // What waited has been run by a rescuer; more has come.
    failure.begin_anew();
    let calls: Vec<_> = (5020..5200).filter(|now| failure.is_due(7, at(*now))).collect();
    assert_eq!(calls, [5030, 5130]);
}

#[test]
fn a_started_worker_ends_the_failure() {
    let failure = SpawnFailure::<Linux>::new();
    assert!(!failure.lasts());
    failure.begin(Denied::Otherwise);
    let first = failure.refused.load(Ordering::Relaxed);
    failure.begin(Denied::Otherwise);
    assert_eq!(failure.refused.load(Ordering::Relaxed), first, "the first refusal counts");
    assert!(failure.lasts());
    failure.end();
    assert!(!failure.lasts());
}
