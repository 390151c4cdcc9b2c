//! The conclusions of `scopes`: what the scopes cost without helping, and that helping gives it back.

use super::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use crate::Error;
use crate::scopes::{ALLOWED_LOSS, Judgement, PARAMETERS, conclusions};
use std::time::Duration;

/// Virtual time of one run, and of a quick one.
pub(super) const DURATIONS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(250)];

/// Which configuration moves how much data.
#[derive(Debug)]
pub(super) struct Scopes;

impl Question for Scopes {
    fn name(&self) -> &'static str {
        "scopes"
    }

    fn machine(&self) -> &'static str {
        "ryzen-3900x"
    }

    fn parameters(&self) -> &'static [&'static str] {
        &PARAMETERS
    }

    fn ask(&self, setting: &Setting<'_>) -> Result<Answer, Error> {
        let duration = DURATIONS[usize::from(setting.quick)];
        let Setting { machine, parameter, seed, .. } = *setting;
        let (judgements, hashes) = conclusions(machine, parameter, seed, duration)?;
        let conclusions = judgements.iter().map(conclusion).collect();
        Ok(Answer { conclusions, trace_hash: joined(hashes) })
    }
}

/// A judgement as a bound on what a configuration does of what `system` does.
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
mod tests {
    use super::*;

    #[test]
    fn a_judgement_and_its_conclusion_agree() {
        let judgement = |gap: f64, published: Option<f64>| {
            let (scenario, shall) = ("LOW".into(), "do it".into());
            Judgement { scenario, row: "cache", shall, gap, published, margin: 0.0, met: false }
        };
        let holds = |gap, published| {
            let one = conclusion(&judgement(gap, published));
            one.bound.margin(one.value) >= 0.0
        };
        assert!(holds(-3.0, Some(-2.0)) && !holds(3.0, Some(-2.0)));
        assert!(holds(3.0, Some(2.0)) && !holds(-3.0, Some(2.0)));
        assert!(holds(-0.1, None) && !holds(-0.3, None));
        assert_eq!(conclusion(&judgement(-3.0, None)).name, "LOW, cache shall do it");
    }
}
