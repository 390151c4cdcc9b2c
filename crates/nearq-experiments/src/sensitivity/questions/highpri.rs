//! The conclusions of `highpri`: how much longer an item of ordinary priority waits beside a crowd of threads.

use crate::Error;
use crate::highpri::{Ratio, THREADS, goals_of_one_run};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use std::time::Duration;

/// Virtual time of one run: that of a quick run of the experiment.
const DURATION: Duration = Duration::from_millis(400);

/// How long an item waits.
pub(in crate::sensitivity) static HIGHPRI: Question = Question {
    name: "highpri",
    machine: "opteron-2s",
    parameters: &[],
    sizes: [
        "0.4 s a run, as in `bench highpri --quick`, where `bench highpri` has 1 s and 3 seeds",
        "0.4 s a run, as in `bench highpri --quick`",
    ],
    least_runs: [1, 1],
    has_noise: true,
    refuses: |_| None,
    ask: |setting| answer(setting, THREADS, DURATION),
};

fn answer(setting: &Setting<'_>, threads: usize, duration: Duration) -> Result<Answer, Error> {
    let (ratios, hashes) = goals_of_one_run(setting.machine, threads, duration, setting.seed)?;
    let conclusions = ratios.iter().filter_map(conclusion).collect();
    Ok(Answer { conclusions, trace_hash: joined(hashes) })
}

/// The ratio of the longest waits. In so short a run the ordinary queue has too few samples for a 99th percentile.
fn conclusion(ratio: &Ratio) -> Option<Conclusion> {
    let Ratio { slow, fast, metric, goal, .. } = ratio;
    let goal = goal.filter(|_| *metric == nearq_report::metric::LATENCY_TOP20.name)?;
    let metric = metric.trim_start_matches("latency_ms_");
    Some(Conclusion {
        name: format!("{slow} waits at least {goal} times as long as {fast}, {metric}"),
        value: ratio.ratio,
        bound: Bound::AtLeast(goal),
    })
}

#[cfg(test)]
#[path = "../tests/highpri.rs"]
mod tests;
