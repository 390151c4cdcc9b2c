//! What a simulated run shall show, and whether it did.
//!
//! Each gap to `system` above 1 % that the document published has the published sign: with the kernel's policy, which was
//! written from what it does and not from what it measured, so that this says whether the machine is simulated well;
//! and with our queues, nobody helping. With helping, as our queues have it: the scopes of the cache keep all but 0.2 % of what `system` does,
//! however few issuers there are; that is the point of helping.

use super::configuration::Planned;
use super::scenario::{Scenario, published};
use nearq_report::metric;
use nearq_report::{Row, find};
use serde::Serialize;

/// Published gaps below this say little, in percent.
const CLEAR: f64 = 1.0;
/// What helping may lose to `system`, in percent.
pub(crate) const ALLOWED_LOSS: f64 = 0.2;
/// The rows that shall keep up.
const HELPED: [&str; 2] = ["cache+helping", "cache_shard+helping"];

/// A statement about the result, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The load.
    pub scenario: String,
    /// The configuration that is compared with `system`.
    pub row: &'static str,
    /// What it shall do, in words.
    pub shall: String,
    /// Our gap to `system`, in percent.
    pub gap: f64,
    /// The published gap, in percent.
    pub published: Option<f64>,
    /// By how many percentage points it holds; negative if it does not.
    pub margin: f64,
    /// Whether it holds.
    pub met: bool,
}

/// Judges the rows of a simulated run; published gaps are asked for if it is `the_documents` machine.
pub fn judge(
    rows: &[Row],
    scenarios: &[Scenario],
    planned: &[Planned],
    the_documents: bool,
) -> Vec<Judgement> {
    let mut judgements = Vec::new();
    for scenario in scenarios {
        let name = &scenario.name;
        let gap = |plan: &Planned| {
            let measured = plan.same_as.as_ref().map_or(plan.configuration.name, |(same, _)| *same);
            let mean = |row: &str| Some(find(rows, name, row, metric::THROUGHPUT)?.summary.mean);
            // A run that was too short for a block has no gap.
            Some((mean(measured)? / mean(plan.configuration.base())? - 1.0) * 100.0)
                .filter(|gap| gap.is_finite())
        };
        for plan in planned.iter().filter(|_| the_documents) {
            let row = plan.configuration.name;
            let Some((gap, published)) = gap(plan).zip(published_gap(name, row)) else { continue };
            if published.abs() > CLEAR {
                let (shall, margin) = if published < 0.0 {
                    ("lose to system, as published", -gap)
                } else {
                    ("beat system, as published", gap)
                };
                judgements.push(Judgement {
                    scenario: name.clone(),
                    row,
                    shall: shall.into(),
                    gap,
                    published: Some(published),
                    margin,
                    met: margin > 0.0,
                });
            }
        }
        for plan in planned.iter().filter(|plan| HELPED.contains(&plan.configuration.name)) {
            let Some(gap) = gap(plan) else { continue };
            let margin = gap + ALLOWED_LOSS;
            judgements.push(Judgement {
                scenario: name.clone(),
                row: plan.configuration.name,
                shall: format!("reach {:.3} of system", 1.0 - ALLOWED_LOSS / 100.0),
                gap,
                published: None,
                margin,
                met: margin >= 0.0,
            });
        }
    }
    judgements
}

/// The published gap to `system`, in percent.
fn published_gap(scenario: &str, configuration: &str) -> Option<f64> {
    let bandwidth = |configuration| Some(published(scenario, configuration)?.throughput.0);
    Some((bandwidth(configuration)? / bandwidth("system")? - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Machine;
    use crate::scopes::{plan, scaled};
    use nearq_report::Collector;

    /// The rows in which every configuration has `bandwidth(scenario, configuration)`.
    fn judged(bandwidth: impl Fn(&str, &str) -> f64) -> Vec<Judgement> {
        let machine = Machine::named("ryzen-3900x").unwrap();
        let (scenarios, planned) = (scaled(24), plan(&machine));
        let mut collector = Collector::default();
        for scenario in &scenarios {
            for plan in planned.iter().filter(|plan| plan.same_as.is_none()) {
                let row = plan.configuration.name;
                collector.add(
                    &scenario.name,
                    row,
                    metric::THROUGHPUT,
                    bandwidth(&scenario.name, row),
                );
            }
        }
        judge(&collector.rows(), &scenarios, &planned, true)
    }

    #[test]
    fn the_documents_own_figures_are_met() {
        let judgements = judged(|scenario, row| {
            published(scenario, row).map_or(1200.0, |figures| figures.throughput.0)
        });
        assert!(judgements.iter().all(|one| one.met), "{judgements:#?}");
        let clear: Vec<_> = judgements
            .iter()
            .filter_map(|one| {
                Some((one.scenario.as_str(), one.row, (one.published? * 100.0).round()))
            })
            .collect();
        let expected = [
            ("MED", "cache+strict", -376.0),
            ("MED", "system+local", -767.0),
            ("MED", "cache+local", -1046.0),
            ("LOW", "cache", -203.0),
            ("LOW", "cache+strict", -1665.0),
            ("LOW", "system+local", -1101.0),
            ("LOW", "cache+local", -1339.0),
        ];
        let (kernel, ours): (Vec<_>, Vec<_>) =
            clear.into_iter().partition(|(_, row, _)| row.starts_with("kernel: "));
        let named: Vec<_> = kernel
            .iter()
            .map(|(scenario, row, gap)| (*scenario, row.trim_start_matches("kernel: "), *gap))
            .collect();
        assert_eq!(named, expected, "the same is asked of the kernel's policy");
        assert_eq!(ours, expected);
        assert_eq!(judgements.len(), 2 * expected.len() + 3 * HELPED.len());
    }

    #[test]
    fn what_does_not_differ_does_not_lose_and_a_loss_is_no_tie() {
        let equal = judged(|_, _| 1000.0);
        assert!(equal.iter().all(|one| one.met != one.published.is_some()), "{equal:#?}");
        let helped = judged(|_, row| if row == "cache+helping" { 997.0 } else { 1000.0 });
        let helped: Vec<_> = helped.iter().filter(|one| one.published.is_none()).collect();
        assert!(
            helped.iter().all(|one| !one.met && (one.margin + 0.1).abs() < 1e-9),
            "{helped:#?}"
        );
        assert_eq!(helped.len(), 6, "the shards are the caches here");
    }
}
