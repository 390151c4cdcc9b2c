//! Simulated runs: one, whose outcome is its result or an error, and many side by side.

use nearq_sim::switched;

use crate::{Error, Machine, Progress};
use nearq_sim::{Ending, Fair, Outcome};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// The result of a simulated run that ended as it should.
#[derive(Clone, Debug)]
pub struct Simulated<R> {
    /// What the program returned.
    pub result: R,
    /// A hash of everything that happened: equal hashes are equal runs.
    pub trace_hash: u64,
    /// Accesses to atomics, which are the simulator's own work.
    pub accesses: u64,
}

/// The capacity of the fastest CPU.
const FULL_CAPACITY: u32 = 1024;

/// Runs `program` on the simulated `machine` with a seed; it may take `limit` of virtual time, longer in the proportion in which the
/// slowest CPU is slower than the fastest possible.
///
/// # Panics
/// If the machine is the real one.
pub fn simulate<R: 'static>(
    machine: &Machine,
    seed: u64,
    limit: Duration,
    program: impl FnOnce() -> R + 'static,
) -> Result<Simulated<R>, Error> {
    let simulation = machine.simulation(seed).expect("the machine is a simulated one");
    let capacities = machine.topology().cpus().iter().filter_map(|cpu| cpu.capacity);
    let slowest = capacities.fold(FULL_CAPACITY, u32::min).max(1);
    let limit = limit.saturating_mul(FULL_CAPACITY.div_ceil(slowest));
    let entered = switched::enter();
    let outcome = simulation.time_limit(limit).run(program);
    drop(entered);
    judged(outcome, machine.name(), seed)
}

/// The machine with a scheduler whose woken threads search for an idle CPU only under their last-level cache.
pub(crate) fn waking_within_cache(machine: Machine) -> Machine {
    machine.setting_up(|simulation| simulation.scheduler(|_| Fair::new().waking_within_cache(true)))
}

/// The result of a run, or why it counts as failed: a deadlock, the limit of virtual time, a panic.
fn judged<R>(outcome: Outcome<R>, machine: &str, seed: u64) -> Result<Simulated<R>, Error> {
    let clean = outcome.ending == Ending::Returned && outcome.panics.is_empty();
    let report = if clean { String::new() } else { outcome.report() };
    let (trace_hash, accesses) = (outcome.trace_hash, outcome.accesses);
    match outcome.result {
        Some(result) if clean => Ok(Simulated { result, trace_hash, accesses }),
        _ => Err(Error::run(format!(
            "the simulated {machine} (seed {seed}): {}",
            report.replace('\n', "; ")
        ))),
    }
}

/// Does all tasks, as many at a time as there are usable CPUs, each on a thread of its own. Returns their results in order, or the error of
/// the first task that fails.
pub(crate) fn all<T: Sync, R: Send>(
    tasks: &[T],
    progress: &Progress,
    what: impl Fn(usize, &T) -> String + Sync,
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(tasks.len()));
    progress.begin(tasks.len());
    let threads = thread::available_parallelism().map_or(1, usize::from).min(tasks.len());
    let body = || {
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            let Some(task) = tasks.get(number) else { return };
            progress.step(what(number, task));
            let result = catch_unwind(AssertUnwindSafe(|| work(task)));
            if !matches!(result, Ok(Ok(_))) {
                // After this, no thread begins another task.
                next.store(tasks.len(), Ordering::Relaxed);
            }
            let result = result.unwrap_or_else(|panic| resume_unwind(panic));
            done.lock().expect("no thread panics while holding it").push((number, result));
            progress.done();
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(body);
        }
        body();
    });
    let mut done = done.into_inner().expect("no thread panics while holding it");
    done.sort_by_key(|(number, _)| *number);
    done.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Atomic as _, LockPlatform as _, ThreadSpec, Threads as _};
    use nearq_sim::{AtomicU32, Sim, compute};

    const LIMIT: Duration = Duration::from_millis(5);

    fn failed<R: std::fmt::Debug + 'static>(program: impl FnOnce() -> R + 'static) -> String {
        let machine = Machine::named("core:2").unwrap();
        let error = simulate(&machine, 3, LIMIT, program).unwrap_err();
        assert_eq!(error.exit_status(), 1);
        error.to_string()
    }

    #[test]
    fn a_deadlock_report_names_the_waiting_threads() {
        let text = failed(|| {
            let word = AtomicU32::new(7);
            let spec = ThreadSpec { name: "stuck".into(), ..ThreadSpec::default() };
            let thread = Sim::spawn(spec, move || {
                while Sim::wait(&word, 7, None) != nearq_platform::Wait::Changed {}
            });
            Sim::join(thread.unwrap());
        });
        assert!(text.starts_with("the simulated core:2 (seed 3): deadlock at"), "{text}");
        assert!(text.contains("\"stuck\"") && text.contains("holds 7"), "{text}");
        assert!(text.contains("\"main\"") && text.contains("waits for the end of"), "{text}");
    }

    #[test]
    fn reaching_the_time_limit_and_panics_are_failures() {
        let text = failed(|| compute(Duration::from_secs(1)));
        assert!(
            text.contains("did not end within 5000000 ns") && text.contains("could run"),
            "{text}"
        );
        let text = failed(|| {
            let thread = Sim::spawn(ThreadSpec::default(), || panic!("block 7")).unwrap();
            Sim::join(thread);
        });
        assert!(text.contains("panicked: block 7"), "{text}");
    }

    #[test]
    fn a_clean_run_gives_its_result_and_is_a_function_of_the_seed() {
        let machine = Machine::named("core:2").unwrap();
        let run = |seed| simulate(&machine, seed, LIMIT, || Sim::now().as_nanos()).unwrap();
        assert_eq!((run(1).result, run(1).trace_hash), (run(1).result, run(1).trace_hash));
        assert!(run(1).result < 1_000_000);
    }

    #[test]
    fn results_come_in_the_order_of_the_tasks() {
        let tasks: Vec<u64> = (0..100).collect();
        let what = |number, _: &u64| format!("task {number}");
        let squares = all(&tasks, &Progress::hidden(), what, |task| Ok(task * task)).unwrap();
        assert!(squares.iter().zip(&tasks).all(|(square, task)| *square == task * task));
        assert_eq!(squares.len(), 100);
    }

    #[test]
    fn the_first_failure_is_the_result_and_ends_the_rest() {
        let tasks: Vec<u64> = (0..10_000).collect();
        let begun = AtomicUsize::new(0);
        let what = |number, _: &u64| format!("task {number}");
        let error = all(&tasks, &Progress::hidden(), what, |task| {
            begun.fetch_add(1, Ordering::Relaxed);
            if *task == 3 { Err(Error::run("no 3")) } else { Ok(*task) }
        });
        assert_eq!(error, Err(Error::run("no 3")));
        assert!(begun.into_inner() < 10_000);
    }
}
