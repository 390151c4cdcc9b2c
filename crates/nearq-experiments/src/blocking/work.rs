//! The computing of an item: a fixed amount of work, measured once in CPU time.
//!
//! An item that span until the clock has moved on by 50 us would count waiting for a CPU as work: two items on one CPU would
//! be done in the time of one. So what is fixed is the number of rounds of a loop whose every step needs the one before.

use crate::Error;
use nearq_platform::{Linux, Platform as _};
use nearq_report::Summary;
use nearq_topology::CpuSet;
use std::hint::black_box;
use std::thread;
use std::time::Duration;

/// How long one measured stretch takes.
const STRETCH: Duration = Duration::from_millis(2);
/// How many of them each thread measures.
const STRETCHES: usize = 25;
/// Rounds of the first guess.
const FIRST: u64 = 10_000;

/// Does so many rounds.
#[inline(never)]
pub(crate) fn compute(rounds: u64) {
    let mut state = black_box(0x9e37_79b9_7f4a_7c15_u64);
    for _ in 0..rounds {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
    }
    black_box(state);
}

/// CPU time of so many rounds on the calling thread.
fn cpu_time_of(rounds: u64) -> Result<Duration, Error> {
    let clock = || {
        Linux::cpu_time(Linux::current_thread())
            .map_err(|refused| Error::run(format!("a thread's CPU time: {refused}")))
    };
    let start = clock()?;
    compute(rounds);
    Ok(clock()?.saturating_sub(start))
}

/// Nanoseconds of CPU time that a round takes while all of `cpus` are at it, as the median of many stretches, and their spread.
///
/// All at once, because CPUs that share a core, or a clock, are slower together than alone.
pub(crate) fn nanoseconds_per_round(cpus: &CpuSet) -> Result<Summary, Error> {
    let measure = || -> Result<Vec<f64>, Error> {
        let mut rounds = FIRST;
        loop {
            let taken = cpu_time_of(rounds)?;
            if taken >= STRETCH / 2 {
                let each = taken.as_nanos() as f64 / rounds as f64;
                rounds = (STRETCH.as_nanos() as f64 / each) as u64;
                break;
            }
            rounds *= 2;
        }
        let each = |_| Ok(cpu_time_of(rounds)?.as_nanos() as f64 / rounds as f64);
        (0..STRETCHES).map(each).collect()
    };
    let all: Result<Vec<Vec<f64>>, Error> = thread::scope(|scope| {
        let threads: Vec<_> = cpus.iter().map(|_| scope.spawn(measure)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| Error::run("the calibration panicked"))?)
            .collect()
    });
    Summary::of(&all?.concat()).ok_or_else(|| Error::run("no CPU to calibrate on"))
}

/// The rounds that take `time`.
pub(crate) fn rounds_for(time: Duration, nanoseconds_per_round: f64) -> u64 {
    ((time.as_nanos() as f64 / nanoseconds_per_round).round() as u64).max(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_calibrated_takes_the_time_that_was_asked_for_however_often_it_is_cut() {
        let each = nanoseconds_per_round(&CpuSet::single(0)).unwrap();
        let rounds = rounds_for(Duration::from_millis(5), each.median);
        let best = |times: u64| {
            let run = || (0..times).map(|_| cpu_time_of(rounds / times).unwrap()).sum::<Duration>();
            // The least of several: whoever else is on the machine makes it longer, never shorter.
            (0..10).map(|_| run()).min().unwrap().as_secs_f64()
        };
        for times in [1, 10] {
            let taken = best(times);
            assert!((0.0025..0.01).contains(&taken), "{times} times: {taken} s, {each:?}");
        }
    }

    #[test]
    fn an_item_is_at_least_two_rounds() {
        assert_eq!(rounds_for(Duration::ZERO, 1.0), 2);
        assert_eq!(rounds_for(Duration::from_micros(50), 0.5), 100_000);
    }
}
