//! Measures what CPUs and tasks have done since the last measurement.
//!
//! `/proc/stat` has the idle time of CPUs, in ticks of 10 ms. `/proc/PID/task/TID/schedstat` has the time that a thread ran and the time
//! that it waited for a CPU; `/proc/schedstat` has the waits of all tasks of a CPU. The kernel adds a wait when it is over. (It adds the
//! time that a CPU's tasks ran, which `/proc/schedstat` has as well, when they stop, so that time is of no use for a task that spins.) So a
//! thread that has waited for the whole period seems to have slept: a thread that is runnable and has neither run nor waited counts as
//! waiting. A thread that is runnable at two measurements in a row also counts as waiting, for the time that it did not run: on a virtual
//! machine the host may have used the CPU without the guest noticing.
//!
//! A kernel built without `SCHEDSTATS` does not count waiting. There, a thread that is runnable when it is measured counts as having
//! waited for the time that it did not run, and nothing is known about the waiting of other threads.
//!
//! A thread's time is charged to the node of the CPU that it was on when it was measured. A thread whose life is shorter than a period may
//! never be seen.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::{Duration, Instant};

use nearq_home::{NodeLoad, Nodes, milli};

use crate::proc::{self, Clock, TICK};

/// What one task did since the last measurement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskUsage {
    /// The live processes of the task, with their threads.
    pub threads: Vec<(u32, Vec<u32>)>,
    /// How long its threads ran, by index of the nodes.
    pub ran: Vec<Duration>,
    /// How long they waited for a CPU.
    pub waited: Duration,
    /// The index of the node on which it ran most, or else on which it last was; `None` while it is on CPUs of no node.
    pub node: Option<usize>,
}

impl TaskUsage {
    /// How long it ran, on all nodes.
    pub fn ran_in_all(&self) -> Duration {
        self.ran.iter().sum()
    }

    /// Whether none of its processes is alive.
    pub fn is_gone(&self) -> bool {
        self.threads.is_empty()
    }
}

/// Measures CPUs and tasks repeatedly.
#[derive(Debug)]
pub struct Observer {
    nodes: Nodes,
    cpus: Cpus,
    at: Instant,
    /// How long the last period was.
    period: Duration,
    /// The threads, by process and thread number.
    threads: BTreeMap<(u32, u32), Seen>,
    round: u64,
}

/// A thread as it was at the last measurement.
#[derive(Clone, Copy, Debug)]
struct Seen {
    started: u64,
    clock: Clock,
    runnable: bool,
    round: u64,
}

/// What the CPUs had done by the last measurement, by their numbers.
#[derive(Debug)]
struct Cpus {
    /// Ticks for which they had idled.
    idle: BTreeMap<usize, u64>,
    /// How long their tasks had waited; `None` if the kernel does not say.
    waited: Option<BTreeMap<usize, Duration>>,
}

impl Observer {
    /// Takes the first measurement.
    pub fn new(nodes: Nodes) -> Self {
        let cpus = Cpus { idle: idle_ticks(), waited: waits() };
        let (at, period) = (Instant::now(), Duration::ZERO);
        Observer { nodes, cpus, at, period, threads: BTreeMap::new(), round: 0 }
    }

    /// The nodes that are distinguished.
    pub fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Ends a period: returns what the CPUs of each node did in it, whichever tasks they ran. [`tasks`](Self::task) are measured after
    /// this.
    pub fn nodes_loads(&mut self) -> Vec<NodeLoad> {
        let now = Instant::now();
        self.period = now - self.at;
        self.at = now;
        // Threads that were not measured last time are gone.
        let round = self.round;
        self.threads.retain(|_, seen| seen.round == round);
        self.round += 1;
        let period = self.period;
        let mut sums = vec![(Duration::ZERO, Duration::ZERO); self.nodes.len()];
        for (cpu, ticks) in idle_ticks() {
            let Some(node) = self.nodes.of_cpu(cpu) else { continue };
            let idled = ticks.saturating_sub(self.cpus.idle.insert(cpu, ticks).unwrap_or(ticks));
            let idled = period.min(TICK * u32::try_from(idled).unwrap_or(u32::MAX));
            sums[node].0 += period.saturating_sub(idled);
            sums[node].1 += idled;
        }
        if let Some(before) = &mut self.cpus.waited {
            for (cpu, waited) in waits().unwrap_or_default() {
                let Some(node) = self.nodes.of_cpu(cpu) else { continue };
                sums[node].0 += waited.saturating_sub(before.insert(cpu, waited).unwrap_or(waited));
            }
        }
        let load =
            |(busy, idle)| NodeLoad { runnable: milli(busy, period), idle: milli(idle, period) };
        sums.into_iter().map(load).collect()
    }

    /// Whether the kernel counts how long tasks wait, so that the loads of nodes include the waiting of all tasks.
    pub fn knows_waiting(&self) -> bool {
        self.cpus.waited.is_some()
    }

    /// The length of the period that [`nodes_loads`](Self::nodes_loads) ended.
    pub fn period(&self) -> Duration {
        self.period
    }

    /// What a process, and all processes that it has started, did in the period. The processes in `others`, and all that they have started,
    /// are separate tasks and are not included.
    pub fn task(&mut self, process: u32, others: &BTreeSet<u32>) -> TaskUsage {
        let mut usage =
            TaskUsage { ran: vec![Duration::ZERO; self.nodes.len()], ..TaskUsage::default() };
        let mut last = None;
        let processes = proc::tree(process, others);
        for (process, threads) in &processes {
            for thread in threads {
                let node = self.thread(*process, *thread, &mut usage);
                last = last.or(node);
            }
        }
        usage.threads = processes;
        let most = usage
            .ran
            .iter()
            .enumerate()
            .max_by_key(|(index, ran)| (**ran, self.nodes.len() - index));
        usage.node = most.filter(|(_, ran)| !ran.is_zero()).map(|(index, _)| index).or(last);
        usage
    }

    /// Adds what a thread did. Returns the node on which it last was.
    fn thread(&mut self, process: u32, thread: u32, usage: &mut TaskUsage) -> Option<usize> {
        let stat = proc::thread_stat(process, thread).filter(|stat| !stat.has_ended())?;
        let clock = proc::thread_clock(process, thread)
            .unwrap_or(Clock { ran: stat.cpu_time(), waited: Duration::ZERO });
        let runnable = stat.state == 'R';
        let seen = Seen { started: stat.started, clock, runnable, round: self.round };
        let before = self.threads.insert((process, thread), seen);
        let before = before.filter(|before| before.started == stat.started);
        // CPU time that a new thread used before this period does not count.
        let done = clock.since(before.map_or(Clock::default(), |before| before.clock));
        let ran = done.ran.min(self.period);
        let all_along = before.is_some_and(|before| before.runnable) || done == Clock::default();
        let waited = if runnable && (all_along || !self.knows_waiting()) {
            self.period.saturating_sub(ran)
        } else {
            done.waited.min(self.period.saturating_sub(ran))
        };
        usage.waited += waited;
        let node = self.nodes.of_cpu(stat.cpu);
        if let Some(node) = node {
            usage.ran[node] += ran;
        }
        node
    }
}

/// How long the tasks of each CPU have waited since the machine started.
fn waits() -> Option<BTreeMap<usize, Duration>> {
    let clocks = proc::cpu_clocks()?;
    Some(clocks.into_iter().map(|(cpu, clock)| (cpu, clock.waited)).collect())
}

/// Idle ticks of each CPU since the machine started.
fn idle_ticks() -> BTreeMap<usize, u64> {
    let text = fs::read_to_string("/proc/stat").unwrap_or_default();
    let cpus = text.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split_ascii_whitespace();
        // The line for all CPUs together has no number.
        let cpu = fields.next().filter(|_| !line.starts_with("cpu "))?.parse().ok()?;
        let numbers: Vec<u64> = fields.filter_map(|field| field.parse().ok()).collect();
        // Idle, and waiting for a device.
        Some((cpu, numbers.get(3)? + numbers.get(4)?))
    });
    cpus.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::CpuSet;
    use std::process::{Child, Command};

    /// A child that ends with the test.
    struct Started(Child);

    impl Started {
        fn sh(script: &str) -> Self {
            Started(Command::new("sh").args(["-c", script]).spawn().unwrap())
        }
    }

    impl Drop for Started {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    fn one_place() -> Nodes {
        Nodes::pretended(&[(0, CpuSet::from_range(0..4096))], &[vec![10]])
    }

    /// Measures until a condition holds.
    fn until(observer: &mut Observer, process: u32, is_so: impl Fn(&TaskUsage, &NodeLoad) -> bool) {
        let begin = Instant::now();
        loop {
            std::thread::sleep(Duration::from_millis(50));
            let load = observer.nodes_loads()[0];
            let usage = observer.task(process, &BTreeSet::new());
            assert!(usage.ran_in_all() + usage.waited <= observer.period() * 64);
            if is_so(&usage, &load) {
                return;
            }
            assert!(begin.elapsed() < Duration::from_secs(50), "{usage:?} {load:?}");
        }
    }

    #[test]
    fn a_spinning_task_runs_or_waits_and_a_sleeping_one_does_neither() {
        for ticks in [false, true] {
            let mut observer = Observer::new(one_place());
            if ticks {
                observer.cpus.waited = None;
            }
            let spins = Started::sh("while :; do :; done");
            let busy = Duration::from_millis(30);
            until(&mut observer, spins.0.id(), |usage, load| {
                usage.ran_in_all() + usage.waited > busy
                    && load.runnable > 300
                    && usage.node == Some(0)
            });
            let sleeps = Started::sh("sleep 60");
            until(&mut observer, sleeps.0.id(), |usage, _| {
                !usage.is_gone() && usage.ran_in_all() + usage.waited < Duration::from_millis(5)
            });
        }
    }

    #[test]
    fn a_child_belongs_to_its_parents_task_unless_it_is_a_task_itself() {
        let mut observer = Observer::new(one_place());
        let tree = Started::sh("(while :; do :; done) & trap 'kill $!' TERM; wait");
        until(&mut observer, tree.0.id(), |usage, _| {
            usage.threads.len() == 2 && !usage.ran_in_all().is_zero()
        });
        observer.nodes_loads();
        let all = observer.task(tree.0.id(), &BTreeSet::new());
        let child =
            all.threads.iter().map(|(process, _)| *process).find(|process| *process != tree.0.id());
        let others = BTreeSet::from([child.unwrap()]);
        assert_eq!(observer.task(tree.0.id(), &others).threads.len(), 1);
        assert_eq!(observer.task(child.unwrap(), &others).threads.len(), 1);
        let child = child.unwrap();
        drop(Started::sh(&format!("kill {child}")).0.wait());
        drop(tree);
        assert!(observer.task(child, &BTreeSet::new()).threads.len() <= 1);
    }
}
