//! One contestant's turn with a program on the real machine.

use super::pools::{Chili, Nearq, Pool, Rayon, Sequential};
use super::program::{Kind, Prepared};
use crate::Error;
use crate::harness::{Host as _, Since};
use nearq_platform::Linux;
use nearq_topology::CpuSet;
use std::thread;
use std::time::{Duration, Instant};

/// A pool that takes part.
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) row: &'static str,
    /// Its turn with a program.
    pub(super) measure: fn(&mut Prepared, &CpuSet, Duration) -> Result<Sample, Error>,
}

/// What a program takes: medians of the runs of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) elapsed: Duration,
    /// CPU time of the process meanwhile. What other programs take of the CPUs is not in it.
    pub(super) cpu: Duration,
}

/// All of them, in the order of the tables.
pub(super) const CONTESTANTS: [Contestant; 4] = [
    contestant::<Nearq>(),
    contestant::<Rayon>(),
    contestant::<Chili>(),
    contestant::<Sequential>(),
];

const fn contestant<P: Pool>() -> Contestant {
    Contestant { row: P::NAME, measure: measure::<P> }
}

/// How long a pool is left alone until it is idle: longer than any of them searches for work.
const GAP: Duration = Duration::from_millis(1);

/// Starts a pool and runs the program in it, once uncounted and then again and again for `time`, at least once.
fn measure<P: Pool>(
    prepared: &mut Prepared,
    cpus: &CpuSet,
    time: Duration,
) -> Result<Sample, Error> {
    let idle = prepared.scenario.kind == Kind::Latency;
    let body = || {
        let pool = P::start(cpus)?;
        pool.called(|caller| {
            let mut once = || {
                let program = &mut prepared.program;
                program.reset();
                if idle {
                    thread::sleep(GAP);
                }
                let since = Since::now::<Linux>();
                let returned = P::run(caller, |scope| program.run::<P>(scope));
                let elapsed = since.elapsed::<Linux>();
                let cpu = since.cpu::<Linux>().expect("it is counted here");
                prepared.verify(returned, P::NAME).map(|()| Sample { elapsed, cpu })
            };
            once()?;
            let (began, mut samples) = (Instant::now(), Vec::new());
            while samples.is_empty() || began.elapsed() < time {
                samples.push(once()?);
            }
            let median = |of: fn(&Sample) -> Duration| {
                let mut times: Vec<Duration> = samples.iter().map(of).collect();
                times.sort_unstable();
                times[times.len() / 2]
            };
            Ok(Sample { elapsed: median(|one| one.elapsed), cpu: median(|one| one.cpu) })
        })
    };
    Linux::confined(cpus, || Linux::alone(body))
}
