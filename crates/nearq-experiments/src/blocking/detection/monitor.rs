//! What the monitor's thread has cost so far, as the kernel counts it.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// The name of the thread.
const NAME: &str = "nq/monitor";

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
    /// The one that was started last; none if none lives, or if there is no `/proc`.
    pub fn find() -> Option<Self> {
        Self::named(NAME)
    }

    fn named(name: &str) -> Option<Self> {
        let threads = fs::read_dir("/proc/self/task").ok()?.flatten().map(|entry| entry.path());
        let named = |path: &PathBuf| {
            fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        };
        let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
        threads.filter(named).max_by_key(number).map(Self)
    }

    /// What it has cost so far.
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
    use std::thread;

    #[test]
    fn a_thread_is_found_by_its_name_and_its_cost_grows() {
        assert_eq!(Monitor::named("nobody's"), None);
        let thread = thread::Builder::new().name("somebody's".into()).spawn(|| {
            let own = Monitor::named("somebody's").expect("it runs");
            let before = own.cost().expect("there is /proc");
            super::super::super::work::compute(1_000_000);
            thread::sleep(Duration::from_millis(1));
            let after = own.cost().expect("there is /proc");
            assert!(after.cpu > before.cpu && after.turns > before.turns, "{before:?} {after:?}");
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn what_is_no_such_line_is_nothing() {
        assert_eq!(parse(""), None);
        assert_eq!(parse("1 2"), None);
        let cost = Cost { cpu: Duration::from_nanos(1), waited: Duration::from_nanos(2), turns: 3 };
        assert_eq!(parse("1 2 3\n"), Some(cost));
    }
}
