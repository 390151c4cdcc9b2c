//! Making the runs of `scopes` on a simulated machine: each is a simulation of its own, several at a time.

use super::configuration::{Configuration, Policy};
use super::declared::Declared;
use super::issuer::LOST_AFTER;
use super::kernel::KernelQueues;
use super::run::{self, Measured, Plan};
use crate::executor::{Executor, Queues};
use crate::host::Census;
use crate::simulated::{Simulated, simulate};
use crate::store::Drive;
use crate::{Error, Machine, Progress};
use nearq_sim::Sim;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Makes the queues of a run, whose workers enter the census. Called inside of the simulation.
pub(crate) type MakeQueues = fn(Census<Sim>) -> Box<dyn Queues>;

/// A run on a simulated machine.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) configuration: Configuration,
    pub(super) plan: Plan,
    /// What it is, for people.
    pub(super) what: String,
}

/// The drive of a machine on which a run may have so many blocks in flight.
pub(super) fn drive(machine: &Machine, places: u64) -> Drive {
    let model = machine.model().expect("the machine is a simulated one");
    Drive::new(places, machine.parallelism(), Duration::from_nanos(model.costs().system_call))
}

/// Makes one run.
pub(super) fn measure(
    machine: &Machine,
    declared: Declared,
    queues: MakeQueues,
    job: &Job,
) -> Result<Simulated<Measured>, Error> {
    let (plan, configuration) = (job.plan.clone(), job.configuration);
    let places = (plan.scenario.issuers * plan.scenario.in_flight) as u64;
    let store = drive(machine, places);
    // A block that is lost is noticed by its issuer before the limit ends the run.
    let limit = plan.warm_up + plan.duration + 2 * LOST_AFTER;
    let outcome = simulate(machine, plan.seed, limit, move || {
        let census = Census::default();
        let queues = match configuration.policy {
            Policy::Ours => queues(census.clone()),
            Policy::Kernel => Box::new(KernelQueues { census: census.clone() }),
        };
        let executor: Arc<dyn Executor> = queues.queue(configuration.placement)?.into();
        run::run(executor, Arc::new(store), declared, census, &plan)
    })?;
    let Simulated { result, trace_hash, accesses } = outcome;
    Ok(Simulated { result: result?, trace_hash, accesses })
}

/// Makes all runs, as many at a time as this machine has CPUs; the results are in the order of the jobs.
pub(super) fn measure_all(
    machine: &Machine,
    declared: Declared,
    queues: MakeQueues,
    jobs: &[Job],
    progress: &Progress,
) -> Result<Vec<Measured>, Error> {
    let (next, failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let results = Mutex::new(vec![None; jobs.len()]);
    let work = || {
        while !failed.load(Ordering::Relaxed) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = jobs.get(index) else { return };
            progress.step(job.what.clone());
            let result = measure(machine, declared, queues, job).map(|run| run.result);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            results.lock().expect("nobody panics while holding it")[index] = Some(result);
            progress.done();
        }
    };
    let threads = thread::available_parallelism().map_or(1, usize::from).min(jobs.len());
    thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    let results = results.into_inner().expect("nobody panicked");
    // After a failure some jobs have not been done; the error stands before them or is found on the way.
    results.into_iter().flatten().collect()
}
