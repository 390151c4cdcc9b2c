//! Tests of `issuer`: the thread that queues.

use super::*;
use nearq_platform::{Linux, LockPlatform as _, ThreadSpec};

#[test]
fn queueing_stays_on_the_time_grid_after_a_delay() {
    let at = |ms: u64| Instant::from_nanos(ms * 1_000_000);
    let interval = Duration::from_millis(4);
    assert_eq!(following(at(100), interval, at(100)), at(104));
    assert_eq!(following(at(100), interval, at(103)), at(104));
    assert_eq!(following(at(100), interval, at(104)), at(108));
    assert_eq!(following(at(100), interval, at(1001)), at(1004));
}

/// A row whose item starts at once, on the issuer's own thread.
struct AtOnce(Arc<Start<Linux>>, usize);

impl Target<Linux> for AtOnce {
    fn send(&mut self, _interval: Duration) -> Instant {
        let now = Linux::now();
        self.0.mark();
        self.1 += 1;
        now
    }
}

#[test]
fn an_item_that_starts_at_once_has_no_latency_and_is_queued_every_interval() {
    let start = Start::new();
    let mut target = AtOnce(Arc::clone(&start), 0);
    let (interval, duration) = (Duration::from_millis(2), Duration::from_millis(41));
    let plan = Plan { cpu: 0, issuer_cpu: 0, interval, duration };
    let samples = measure(&mut target, &start, &plan).unwrap();
    let figures = samples.figures().unwrap();
    assert!((2..=22).contains(&figures.samples), "{figures:?}");
    assert_eq!(target.1, figures.samples + WARM_UP, "every item counts, the last one too");
    assert!(figures.p50 < 0.5, "{figures:?}");
}

#[test]
fn a_thread_returns_its_result_and_its_end_time() {
    let run =
        |body: fn() -> Result<u32, Error>| on_thread::<Linux, u32>(ThreadSpec::default(), body);
    assert_eq!(run(|| Ok(7)), Ok(7));
    assert_eq!(run(|| Err(Error::run("no"))), Err(Error::run("no")));
    assert!(run(|| panic!("as expected")).unwrap_err().to_string().contains("panicked"));
}
