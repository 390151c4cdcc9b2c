//! The conclusions of `scopes`: what the scopes cost without helping, and that helping gives it back.

use crate::scopes::{ALLOWED_LOSS, Judgement, PARAMETERS, conclusions};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use std::time::Duration;

/// Virtual time of one run, and of a quick one.
pub(in crate::sensitivity) const DURATIONS: [Duration; 2] =
    [Duration::from_secs(1), Duration::from_millis(150)];

/// How much data each configuration moves.
pub(in crate::sensitivity) static SCOPES: Question = Question {
    name: "scopes",
    machine: "ryzen-3900x",
    parameters: &PARAMETERS,
    sizes: ["1 s a run, as in `bench scopes`, which has 5 seeds", "0.15 s a run"],
    least_runs: [2, 14],
    has_noise: false,
    refuses: |_| None,
    ask: |setting| {
        let duration = DURATIONS[usize::from(setting.quick)];
        let Setting { machine, parameter, seed, .. } = *setting;
        let (judgements, hashes) = conclusions(machine, parameter, seed, duration)?;
        let conclusions = judgements.iter().map(conclusion).collect();
        Ok(Answer { conclusions, trace_hash: joined(hashes) })
    },
};

/// A judgement as a bound on a configuration's result relative to that of `system`.
fn conclusion(judgement: &Judgement) -> Conclusion {
    let bound = match judgement.published {
        None => Bound::AtLeast(1.0 - ALLOWED_LOSS / 100.0),
        Some(published) if published < 0.0 => Bound::AtMost(1.0),
        Some(_) => Bound::AtLeast(1.0),
    };
    Conclusion {
        name: format!("{}, {} shall {}", judgement.scenario, judgement.row, judgement.shall),
        value: 1.0 + judgement.gap / 100.0,
        bound,
    }
}

#[cfg(test)]
#[path = "../tests/scopes.rs"]
mod tests;
