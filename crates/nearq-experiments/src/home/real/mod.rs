//! A run on the real machine: tasks are processes of this very command, kept by the rebalancer that `nearq run` uses.
//!
//! All processes are started at the beginning, by the caller's thread; a process that must do something later sleeps until then. The kernel
//! kills each process when that thread is gone, so no process is left behind. Parent and children talk in JSON: what to do as an argument,
//! the result on standard output.

mod child;
pub(super) mod scheduler;
mod storm;

pub use child::Child;

use super::Ran;
use super::plan::{Plan, Row};
use super::plan::{Start, starts};
use super::task::TaskReport;
use crate::Error;
use crate::harness::failed;
use child::{Hog, Task};
use nearq_home::{Nodes, Weights};
use nearq_platform::{Linux, LockPlatform as _, Placement as _, Threads as _};
use nearq_processes::Rebalancer;
use nearq_topology::CpuSet;
use scheduler::Loaded;
use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A storm that has not ended this long after the tasks is ended by force.
const PATIENCE: Duration = Duration::from_mins(1);
/// How often the end of the storm is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process that is killed and awaited when this is dropped.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        // A process that has ended cannot be killed, and is awaited here or was awaited before: neither result matters.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs plans one after the other, under the scheduler that each row asks for.
pub(super) struct Runner<'p> {
    program: &'p Path,
    loaded: Option<Loaded>,
}

impl<'p> Runner<'p> {
    /// `program` is the command whose `bench home-child` the processes are.
    pub(super) fn new(program: &'p Path) -> Self {
        Runner { program, loaded: None }
    }

    /// Runs a plan for a row. The scheduler stays loaded for the next one.
    pub(super) fn run(&mut self, nodes: &Nodes, plan: &Plan, row: Row) -> Result<Ran, Error> {
        let own_bonus = row.own_bonus();
        if self.loaded.as_ref().map(Loaded::own_bonus) != own_bonus {
            // One is unloaded before another is loaded.
            self.loaded = None;
            self.loaded =
                own_bonus.map(|own_bonus| Loaded::load(self.program, own_bonus)).transpose()?;
        }
        let ran = run(nodes, plan, row, self.program)?;
        if let Some(loaded) = &mut self.loaded {
            loaded.is_there()?;
        }
        Ok(ran)
    }
}

fn run(nodes: &Nodes, plan: &Plan, row: Row, program: &Path) -> Result<Ran, Error> {
    let origin = Linux::now();
    let mut rebalancer =
        Rebalancer::new(nodes.clone(), Weights::default()).following(row == Row::Dynamic);
    let mut tasks = Vec::with_capacity(plan.tasks);
    for (number, start) in starts(plan, row, nodes).into_iter().enumerate() {
        let home = start.home;
        let mask = start.cpus.clone();
        let child = Child::task(of_plan(plan, number, start, nodes, origin.as_nanos()));
        let process = Process(spawn_on(mask.as_ref(), program, &child)?);
        if let Some(home) = home {
            rebalancer.add(number as u64, process.0.id(), home, true);
        }
        tasks.push(process);
    }
    let mut others = Vec::new();
    if let Some(storm) = plan.storm {
        others.push(Process(spawn(program, &Child::storm(storm, origin.as_nanos()))?));
    }
    if let Some(hogs) = plan.hogs {
        let time = |time: Duration| origin.as_nanos() + time.as_nanos() as u64;
        let cpus = nodes.get(hogs.node).cpus.to_list();
        let hog = Hog { cpus, from: time(hogs.from), to: time(hogs.to) };
        for _ in 0..hogs.count {
            others.push(Process(spawn(program, &Child::hog(hog.clone()))?));
        }
    }
    let over = AtomicBool::new(false);
    let reports = std::thread::scope(|scope| {
        scope.spawn(|| keep(&mut rebalancer, &over));
        let reports = tasks.iter_mut().map(await_task).collect::<Result<Vec<TaskReport>, Error>>();
        // This store has no partner: the rebalancer sees it eventually, and is joined at the end of the scope.
        over.store(true, Ordering::Relaxed);
        reports
    });
    let elapsed = Linux::now() - origin;
    let tasks = reports?;
    for mut other in others {
        // Ends a storm that would begin again.
        drop(other.0.stdin.take());
        await_other(other)?;
    }
    Ok(Ran { elapsed, tasks })
}

/// Starts a process on given CPUs: the process inherits the caller's mask, so it has this mask from its first instruction on, and the
/// rebalancer never sees it with another mask.
fn spawn_on(
    cpus: Option<&CpuSet>,
    program: &Path,
    child: &Child,
) -> Result<std::process::Child, Error> {
    let Some(cpus) = cpus else { return spawn(program, child) };
    let caller = Linux::current_thread();
    let before = Linux::affinity(caller).map_err(failed)?;
    Linux::set_affinity(caller, cpus).map_err(failed)?;
    let spawned = spawn(program, child);
    Linux::set_affinity(caller, &before).map_err(failed)?;
    spawned
}

/// Keeps tasks at home until the run is over.
fn keep(rebalancer: &mut Rebalancer, over: &AtomicBool) {
    // Relaxed: this load has no partner; the flag is seen some time after it was set.
    while !over.load(Ordering::Relaxed) {
        let Some(period) = rebalancer.period() else { return };
        std::thread::sleep(period);
        rebalancer.step();
    }
}

fn of_plan(plan: &Plan, number: usize, start: Start, nodes: &Nodes, origin: u64) -> Task {
    let list = |cpus: CpuSet| cpus.to_list();
    Task {
        elements: plan.elements,
        until: plan.until[number],
        cpus: start.cpus.map(list),
        then: start.then.map(list),
        memory: start.memory.map(|node| nodes.get(node).memory),
        nodes: nodes.iter().map(|node| (node.memory, node.cpus.to_list())).collect(),
        origin,
        seed: number as u64 + 1,
    }
}

fn spawn(program: &Path, child: &Child) -> Result<std::process::Child, Error> {
    Command::new(program)
        .args(["bench", "home-child", &child.to_json()])
        .stdin(if child.is_storm() { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            Error::run(format!(
                "a {} could not be started: {}: {error}; run fewer tasks, or raise the limit on processes",
                child.name(),
                program.display()
            ))
        })
}

/// The output of a process that ended well.
fn output(process: &mut Process) -> Result<String, String> {
    let (mut text, mut errors) = (String::new(), String::new());
    if let Some(out) = &mut process.0.stdout {
        out.read_to_string(&mut text).map_err(|error| error.to_string())?;
    }
    if let Some(out) = &mut process.0.stderr {
        out.read_to_string(&mut errors).map_err(|error| error.to_string())?;
    }
    let status = process.0.wait().map_err(|error| error.to_string())?;
    if status.success() { Ok(text) } else { Err(format!("{status}: {}", errors.trim())) }
}

fn await_task(process: &mut Process) -> Result<TaskReport, Error> {
    let text = output(process).map_err(|why| Error::run(format!("a task failed: {why}")))?;
    serde_json::from_str(&text)
        .map_err(|error| Error::run(format!("the result of a task cannot be read: {error}")))
}

/// A storm or a hog may take a while longer; if it never ends, it is killed.
fn await_other(mut process: Process) -> Result<(), Error> {
    let until = Linux::now() + PATIENCE;
    while matches!(process.0.try_wait(), Ok(None)) {
        if Linux::now() > until {
            return Ok(());
        }
        std::thread::sleep(POLL_INTERVAL);
    }
    output(&mut process)
        .map(drop)
        .map_err(|why| Error::run(format!("the load that disturbs the tasks failed: {why}")))
}
