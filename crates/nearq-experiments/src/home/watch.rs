//! Who watches over the tasks of a simulated run: reads what the simulated kernel counts, asks the keeper, sets affinities.
//!
//! It is an ordinary process of the machine that sleeps from period to period, pays for its system calls, and comes late when
//! the CPUs are crowded, as on a real one.

use nearq_home::{Action, Evidence, Keeper, Mover, NodeLoad, Nodes, Seen, Verdict, Weights, milli};
use nearq_platform::Platform as _;
use nearq_sim::{CpuStatistics, Sim, Thread, ThreadStatistics};
use std::time::Duration;

/// A task that is watched.
struct Watched {
    thread: Thread,
    before: ThreadStatistics,
    mover: Mover,
    /// CPU time by node since the home was last considered.
    cpu_time: Vec<Duration>,
}

/// Keeps tasks at home until all have ended; where homes move, to where the memory is.
pub(super) fn keep(nodes: Nodes, tasks: &[(Thread, usize)], moves: bool) {
    let weights = Weights::default();
    let mut keeper = Keeper::new(nodes.clone(), weights.clone());
    let start = Sim::now();
    let mut watched: Vec<Watched> = Vec::new();
    for (thread, home) in tasks {
        let Ok(before) = Sim::thread_statistics(*thread) else { continue };
        keeper.add(thread.number(), *home);
        let mover = Mover::new(*home, Duration::ZERO);
        let cpu_time = vec![Duration::ZERO; nodes.len()];
        watched.push(Watched { thread: *thread, before, mover, cpu_time });
    }
    let mut cpus = Sim::cpu_statistics();
    let mut then = Sim::now();
    let mut considered = Duration::ZERO;
    keeper.step(then - start, &vec![NodeLoad::default(); nodes.len()], &[]);
    while !watched.is_empty() {
        Sim::sleep(keeper.period());
        let mut seen = Vec::with_capacity(watched.len());
        watched.retain_mut(|task| {
            let now = Sim::thread_statistics(task.thread);
            match now {
                Ok(now) => seen.push(task.look(now, &nodes)),
                Err(_) => keeper.remove(task.thread.number()),
            }
            now.is_ok()
        });
        let (before, now) = (std::mem::replace(&mut cpus, Sim::cpu_statistics()), Sim::now());
        let loads = node_loads(&nodes, &before, &cpus, now - then);
        then = now;
        for action in keeper.step(now - start, &loads, &seen) {
            act(&action, &keeper, &watched);
        }
        let interval = Duration::from_millis(weights.move_interval_ms().into());
        if moves && now - start >= considered + interval {
            considered = now - start;
            for task in &mut watched {
                task.consider(considered, &mut keeper, &weights);
            }
        }
    }
}

impl Watched {
    fn look(&mut self, now: ThreadStatistics, nodes: &Nodes) -> Seen {
        let before = std::mem::replace(&mut self.before, now);
        let node = nodes.of_cpu(now.cpu).unwrap_or(0);
        let ran = now.ran.saturating_sub(before.ran);
        let waited = now.waited.saturating_sub(before.waited);
        self.cpu_time[node] += ran;
        Seen { id: self.thread.number(), ran, waited, node }
    }

    /// Moves the home to where the memory is, if that is worth it.
    fn consider(&mut self, now: Duration, keeper: &mut Keeper, weights: &Weights) {
        let nodes = keeper.nodes().clone();
        let Some(pages) = pages(self.thread, &nodes) else { return };
        let nothing = vec![Duration::ZERO; nodes.len()];
        let cpu_time = std::mem::replace(&mut self.cpu_time, nothing);
        let evidence = Evidence { pages, cpu_time };
        if let Verdict::Move { to, .. } = self.mover.consider(now, &evidence, &nodes, weights) {
            keeper.add(self.thread.number(), to);
            restrict(self.thread, &[to], &nodes);
        }
    }
}

/// Does what the keeper says.
fn act(action: &Action, keeper: &Keeper, watched: &[Watched]) {
    let (id, to) = match action {
        Action::LetOut { id, to } => (*id, to.clone()),
        Action::BringHome { id } => (*id, keeper.home(*id).into_iter().collect()),
    };
    if let Some(task) = watched.iter().find(|task| task.thread.number() == id) {
        restrict(task.thread, &to, keeper.nodes());
    }
}

/// A thread that has ended meanwhile needs no CPUs.
fn restrict(thread: Thread, to: &[usize], nodes: &Nodes) {
    let _ = Sim::set_affinity(thread, &nodes.cpus_of(to));
}

/// The pages of a thread's process, by index of node.
pub(super) fn pages(thread: Thread, nodes: &Nodes) -> Option<Vec<u64>> {
    let resident = Sim::process(thread).ok()?.resident;
    let of = |node: &nearq_home::Node| resident.get(node.memory).copied().unwrap_or(0) as u64;
    Some(nodes.iter().map(of).collect())
}

/// What the nodes' CPUs did in a period.
fn node_loads(
    nodes: &Nodes,
    before: &[CpuStatistics],
    after: &[CpuStatistics],
    period: Duration,
) -> Vec<NodeLoad> {
    let of = |node: &nearq_home::Node| {
        let (mut runnable, mut idle) = (Duration::ZERO, Duration::ZERO);
        for cpu in &node.cpus {
            let ran = after[cpu].ran.saturating_sub(before[cpu].ran);
            runnable += ran + after[cpu].waited.saturating_sub(before[cpu].waited);
            idle += period.saturating_sub(ran);
        }
        NodeLoad { runnable: milli(runnable, period), idle: milli(idle, period) }
    };
    nodes.iter().map(of).collect()
}
