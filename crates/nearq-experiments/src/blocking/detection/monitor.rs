//! What the monitor's thread has cost so far, as the kernel counts it.

use nearq::Runtime;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The monitor's thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Monitor(PathBuf);

/// What it has cost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Its time on a CPU.
    pub cpu: Duration,
    /// Its time on a run queue.
    pub waited: Duration,
    /// How often it was put on a CPU.
    pub turns: u64,
}

impl Monitor {
    /// The runtime's monitor thread; `None` if it has none yet.
    pub fn of(runtime: &Runtime) -> Option<Self> {
        let number = runtime.monitor_thread_id()?;
        Some(Self(format!("/proc/self/task/{number}").into()))
    }

    /// What the thread has cost so far; `None` if there is no `/proc`.
    pub fn cost(&self) -> Option<Cost> {
        parse(&fs::read_to_string(self.0.join("schedstat")).ok()?)
    }
}

/// Reads a line such as `26463 1204 17`: nanoseconds on a CPU and waiting for one, and turns.
fn parse(line: &str) -> Option<Cost> {
    let mut numbers = line.split_ascii_whitespace().map(|number| number.parse::<u64>().ok());
    let mut next = || numbers.next().flatten();
    let (cpu, waited, turns) = (next()?, next()?, next()?);
    let (cpu, waited) = (Duration::from_nanos(cpu), Duration::from_nanos(waited));
    Some(Cost { cpu, waited, turns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::thread;

    #[test]
    fn a_monitor_exists_only_while_work_waits_and_its_cost_grows() {
        let runtime = Runtime::builder().build().unwrap();
        assert_eq!(Monitor::of(&runtime), None);
        let queue = runtime.workqueue_builder("costs").build().unwrap();
        let (stop, ended) = (AtomicBool::new(false), AtomicUsize::new(0));
        queue.scope(|scope| {
            for _ in 0..runtime.parallelism() + 4 {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        super::super::super::work::compute(1_000);
                    }
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
            let costs = || Monitor::of(&runtime)?.cost();
            let before = loop {
                if let Some(cost) = costs() {
                    break cost;
                }
                thread::sleep(Duration::from_millis(1));
            };
            while costs().expect("it stays").turns < before.turns + 3 {
                thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(ended.into_inner(), runtime.parallelism() + 4);
    }

    #[test]
    fn other_lines_are_not_parsed() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("1 2"), None);
        let cost = Cost { cpu: Duration::from_nanos(1), waited: Duration::from_nanos(2), turns: 3 };
        assert_eq!(parse("1 2 3\n"), Some(cost));
    }
}
