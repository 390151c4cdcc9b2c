//! One contestant's turn with a program on the real machine.

use super::pools::{Chili, Nearq, Pool, Rayon, Sequential};
use super::program::{Kind, Prepared};
use crate::Error;
use crate::harness::Host as _;
use nearq_platform::Linux;
use nearq_topology::CpuSet;
use std::thread;
use std::time::{Duration, Instant};

/// A pool that takes part.
pub(super) struct Contestant {
    /// Its name in tables.
    pub(super) row: &'static str,
    /// Its turn: how long the program takes.
    pub(super) measure: fn(&mut Prepared, &CpuSet, Duration) -> Result<Duration, Error>,
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

/// Starts a pool and runs the program in it, once uncounted and then again and again for `time`, at least once. Returns the median.
fn measure<P: Pool>(
    prepared: &mut Prepared,
    cpus: &CpuSet,
    time: Duration,
) -> Result<Duration, Error> {
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
                let began = Instant::now();
                let returned = P::run(caller, |scope| program.run::<P>(scope));
                let took = began.elapsed();
                prepared.verify(returned, P::NAME).map(|()| took)
            };
            once()?;
            let (began, mut times) = (Instant::now(), Vec::new());
            while times.is_empty() || began.elapsed() < time {
                times.push(once()?);
            }
            times.sort_unstable();
            Ok(times[times.len() / 2])
        })
    };
    Linux::confined(cpus, || Linux::alone(body))
}
