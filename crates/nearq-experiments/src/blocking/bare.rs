//! What the items take without any pool: the ideal, and what the machine and its scheduler add to it.

use super::contestant::{Plan, Sample, Since};
use super::items::Items;
use super::ways::Block;
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic as _, AtomicInt as _, Ordering, ThreadSpec};
use nearq_topology::CpuSet;
use std::sync::Arc;
use std::time::Duration;

/// The row of threads that compute and nothing else.
pub const BARE: &str = "bare threads, no sleep";
/// The row of threads that compute and sleep: as many as it takes.
pub const ENOUGH: &str = "bare threads, enough";
/// The row of the ideal.
pub const IDEAL: &str = "ideal";

/// What plain threads took for all the computing, and the ideal: their CPU time over the CPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bare {
    /// As measured, others' use of the machine included.
    pub sample: Sample,
    /// The CPU time of the threads over the CPUs: nobody waits for anything.
    pub ideal: Duration,
}

impl Bare {
    /// A sample that says nothing of the ideal.
    pub(super) fn without(sample: Sample) -> Self {
        Self { sample, ideal: Duration::ZERO }
    }
}

/// Does all the computing on as many threads as workers, each on a CPU of its own and with its share of the items.
pub(super) fn measure_bare<P: Host>(plan: &Plan) -> Result<Bare, Error> {
    let workers = plan.workers;
    let body = || {
        let used = Arc::new(P::AtomicU64::new(0));
        let since = Since::<P>::now();
        let mut threads = Vec::new();
        for (at, cpu) in plan.cpus.iter().enumerate() {
            let items = plan.items / workers + usize::from(at < plan.items % workers);
            let (rounds, used) = (plan.rounds, Arc::clone(&used));
            let main = move || {
                (0..items).for_each(|_| P::compute(rounds));
                let own = P::cpu_time(P::current_thread()).unwrap_or_default();
                used.fetch_add(own.as_nanos() as u64, Ordering::Relaxed);
            };
            let spec = ThreadSpec {
                name: "bare".into(),
                affinity: Some(CpuSet::single(cpu)),
                ..ThreadSpec::default()
            };
            threads.push(P::spawn(spec, main).map_err(|no| Error::run(no.to_string()))?);
        }
        threads.into_iter().for_each(P::join);
        let sample = Sample { threads: Some(workers as u64), ..since.sample() };
        let used = Duration::from_nanos(used.load(Ordering::Relaxed));
        Ok(Bare { sample, ideal: used / workers as u32 })
    };
    P::confined(&plan.cpus, || P::alone(body))
}

/// Runs all items on so many threads that some can compute while the others sleep. Each takes the next one as soon as it can, so nobody
/// need notice anything: what this takes longer than the ideal is the system's scheduler's, and no pool can do without that.
pub(super) fn measure_enough<P: Host>(
    plan: &Plan,
    block: &Arc<dyn Block>,
) -> Result<Sample, Error> {
    let threads = enough(plan);
    let body = || {
        let items =
            Arc::new(Items::<P>::new(plan.items, plan.rounds, plan.every, Arc::clone(block)));
        let next = Arc::new(P::AtomicU64::new(0));
        let since = Since::<P>::now();
        let mut started = Vec::new();
        for _ in 0..threads {
            let (items, next) = (Arc::clone(&items), Arc::clone(&next));
            let main = move || {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed) as usize;
                    if number >= items.count() {
                        return;
                    }
                    items.run(number);
                }
            };
            let spec = ThreadSpec {
                name: "enough".into(),
                affinity: Some(plan.cpus.clone()),
                ..ThreadSpec::default()
            };
            started.push(P::spawn(spec, main).map_err(|no| Error::run(no.to_string()))?);
        }
        items.wait()?;
        let sample = Sample { threads: Some(threads as u64), ..since.sample() };
        started.into_iter().for_each(P::join);
        Ok(sample)
    };
    P::confined(&plan.cpus, || P::alone(body))
}

/// A worker for each CPU and one for each that sleeps meanwhile, and half as many again, because they do not sleep in turn.
fn enough(plan: &Plan) -> usize {
    let computing = plan.item * plan.every.max(1) as u32;
    let asleep = plan.sleep.as_secs_f64() / computing.as_secs_f64() * plan.workers as f64;
    ((plan.workers as f64 + asleep) * 1.5).ceil() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::harness::simulate;
    use nearq_platform::{Linux, Platform as _};
    use nearq_sim::Sim;

    fn plan(cpus: CpuSet, rounds: u64) -> Plan {
        Plan {
            items: 101,
            item: Duration::from_micros(50),
            rounds,
            every: 32,
            sleep: Duration::ZERO,
            workers: cpus.len(),
            cpus,
        }
    }

    #[test]
    fn the_ideal_is_never_longer_than_what_it_took() {
        let cpus = Linux::affinity(Linux::current_thread()).unwrap();
        let plan = plan(cpus.iter().take(2).collect(), 20_000);
        let Bare { sample, ideal } = measure_bare::<Linux>(&plan).unwrap();
        assert!(ideal > Duration::ZERO && ideal <= sample.elapsed, "{ideal:?}, {sample:?}");
    }

    #[test]
    fn on_a_simulated_machine_it_is_the_computing_and_more_where_cores_are_shared() {
        let ideal = |machine: &str, cpus: &str| {
            let machine = Machine::named(machine).unwrap();
            let plan = plan(CpuSet::parse_list(cpus).unwrap(), 50_000);
            let nominal = plan.item.as_secs_f64() * 101.0 / 2.0;
            let run = move || measure_bare::<Sim>(&plan);
            let ended = simulate(&machine, 0, Duration::from_secs(1), run).unwrap();
            ended.result.unwrap().ideal.as_secs_f64() / nominal
        };
        assert!((1.0..1.05).contains(&ideal("core:2", "0-1")));
        assert!(ideal("core:2 pu:2", "0-1") > 1.2, "two CPUs of one core");
    }
}
