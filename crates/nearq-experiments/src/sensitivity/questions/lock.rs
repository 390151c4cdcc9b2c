//! The conclusions of `lock`: what `auto` gains over one queue, our plain mutex's and the kernel's, with a short section.

use crate::Error;
use crate::lock::{Goal, goals_of_one_run};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use std::time::Duration;

/// How large a run is.
#[derive(Clone, Copy)]
pub(in crate::sensitivity) struct Size {
    /// Numbers of writers; a machine with fewer CPUs leaves some out.
    pub(in crate::sensitivity) writers: &'static [usize],
    /// Virtual time of each run.
    pub(in crate::sensitivity) duration: Duration,
}

/// A run, and a quick one. With 16 writers one seed gains up to a fifth more or less than another.
pub(in crate::sensitivity) const SIZES: [Size; 2] = [
    Size { writers: &[16, 32, 64], duration: Duration::from_millis(20) },
    Size { writers: &[32], duration: Duration::from_millis(20) },
];
/// Fewer writers have no goal beside `OsqLock`.
const FEWEST: usize = 16;

/// How often the lock is taken.
pub(in crate::sensitivity) static LOCK: Question = Question {
    name: "lock",
    machine: "epyc-7551-2s",
    parameters: &[],
    sizes: [
        "16, 32 and 64 writers, 20 ms a run, where `bench lock` has 1 to 64 writers, 30 ms and 9 seeds",
        "32 writers, 20 ms a run",
    ],
    least_runs: [2, 1],
    has_noise: false,
    refuses: |machine| {
        let cpus = machine.usable().len();
        (cpus < FEWEST).then(|| {
            format!("they are about {FEWEST} writers or more, and it has {cpus} CPUs; give a machine such as epyc-7551-2s")
        })
    },
    ask: |setting| answer(setting, SIZES[usize::from(setting.quick)]),
};

fn answer(setting: &Setting<'_>, size: Size) -> Result<Answer, Error> {
    let cpus = setting.machine.usable().len();
    let mut writers = Vec::from(size.writers);
    writers.retain(|&writers| writers <= cpus);
    if writers.is_empty() {
        writers.push(cpus);
    }
    let (goals, hashes) = goals_of_one_run(setting.machine, writers, size.duration, setting.seed)?;
    let conclusions = goals.iter().map(conclusion).collect();
    Ok(Answer { conclusions, trace_hash: joined(hashes) })
}

/// A goal for a gain in percent as a bound on the ratio of two throughputs.
fn conclusion(goal: &Goal) -> Conclusion {
    let ratio = |percent: f64| (100.0 + percent) / 100.0;
    let writers = goal.writers.map_or_else(String::new, |writers| format!("{writers} writers, "));
    Conclusion {
        name: format!("{writers}throughput of {}", goal.what),
        value: ratio(goal.reached),
        bound: Bound::AtLeast(ratio(goal.goal)),
    }
}

#[cfg(test)]
#[path = "../tests/lock.rs"]
mod tests;
