//! The conclusions of `home`: tasks with homes take at most as long as without, and are nearly as fast as if they were pinned.

use crate::Error;
use crate::home::{GAP, Row, Walk, numa_test, refuses};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};

/// Passes of each task over its memory: most of them come after the storm, even if they cost half. A run with fewer is hardly shorter.
const PASSES: usize = 20;

/// How long the tasks of numa-test take.
pub(in crate::sensitivity) static HOME: Question = Question {
    name: "home",
    machine: "tx7-itanium2",
    parameters: &[],
    sizes: [
        "numa-test, a task for every other CPU, 20 passes; `bench home` has more tasks, 100 passes and 10 seeds",
        "numa-test, a task for every other CPU, 20 passes",
    ],
    least_runs: [1, 1],
    has_noise: false,
    refuses,
    // The storm of a quick run of the experiment displaces hardly any task.
    ask: |setting| answer(setting, PASSES, false),
};

fn answer(setting: &Setting<'_>, passes: usize, quick: bool) -> Result<Answer, Error> {
    let (walks, hashes) = numa_test(setting.machine, passes, quick, setting.seed)?;
    Ok(Answer { conclusions: conclusions(&walks), trace_hash: joined(hashes) })
}

fn conclusions(walks: &[Walk]) -> Vec<Conclusion> {
    let of = |row: Row| walks.iter().find(|walk| walk.row == row).expect("every row is run");
    let (without, oracle) = (of(Row::Without), of(Row::Oracle));
    let conclude = |name: String, value: f64| Conclusion { name, value, bound: Bound::AtMost(1.0) };
    // A bound on the time, and not on the share of the gain: without a gain there is no share.
    let share = GAP / 100.0;
    let most = without.elapsed * (1.0 - share) + oracle.elapsed * share;
    let with = [Row::Homes, Row::Dynamic].into_iter().map(of);
    let of_row = |walk: &Walk| {
        let row = walk.row.name();
        [
            conclude(
                format!("{row}, elapsed time at most that without"),
                walk.elapsed / without.elapsed,
            ),
            conclude(
                format!("{row}, average user time at most that without"),
                walk.average_user / without.average_user,
            ),
            conclude(
                format!("{row}, elapsed time at most what {GAP} % of the oracle's gain leaves"),
                walk.elapsed / most,
            ),
        ]
    };
    with.flat_map(of_row).collect()
}

#[cfg(test)]
#[path = "../tests/home.rs"]
mod tests;
