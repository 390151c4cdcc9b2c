//! The conclusions of `join`: the scope `cache` is the fastest for a program whose parts fit into a cache.

use crate::Error;
use crate::join;
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use std::time::Duration;

/// Which scope is the fastest. With one last-level cache, `system` is the same as `cache`.
pub(in crate::sensitivity) static JOIN: Question = Question {
    name: "join",
    machine: "ryzen-3900x",
    parameters: &[],
    sizes: ["runs as in `bench join`", "runs as in `bench join --quick`"],
    least_runs: [2, 2],
    has_noise: false,
    refuses: |_| None,
    ask,
};

fn ask(setting: &Setting<'_>) -> Result<Answer, Error> {
    let machine = setting.machine;
    let rows = join::times(machine, setting.quick, setting.seed)?;
    let cache = rows.iter().find(|(row, ..)| *row == join::CACHE).expect("it is a row").1;
    let conclude = |&(row, time, _): &(&str, Duration, u64)| Conclusion {
        name: format!("{} takes at most as long as {row}", join::CACHE),
        value: cache.as_secs_f64() / time.as_secs_f64(),
        bound: Bound::AtMost(1.0),
    };
    let others = rows.iter().filter(|(row, ..)| *row != join::CACHE);
    Ok(Answer {
        conclusions: others.map(conclude).collect(),
        trace_hash: joined(rows.iter().map(|(.., hash)| *hash)),
    })
}

#[cfg(test)]
#[path = "../tests/join.rs"]
mod tests;
