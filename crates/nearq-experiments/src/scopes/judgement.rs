//! The statements that the figures must support, and short runs that test them.

use super::configuration::{Configuration, Planned, Policy};
use super::configuration::{Scenario, published};
use super::payload::Declared;
use super::{ScopesOptions, add, measure};
use crate::harness::{self, Common, Experiment as _};
use crate::{Error, Machine};
use nearq_report::{Collector, Row, find, metric};
use serde::Serialize;
use std::time::Duration;

// What a simulated run must show, and whether it did.
//
// Each gap to `system` above 1 % that the document published has the published sign: with the kernel's policy, which was written from the
// kernel's behaviour and not from measurements, so that this shows whether the machine is simulated well; and with our queues without
// helping. If our queues only hint near which CPU a worker wakes up, as the document does, then localisation loses or gains what it did
// there, within five points. With helping, as our queues have it, the cache scopes keep all but 0.2 % of the throughput of `system`, however few issuers
// there are; that is the point of helping.

/// Published gaps below this are not meaningful, in percent.
const CLEAR: f64 = 1.0;
/// How far the gap of a localised queue with hints may be from the published one, in percentage points.
const CLOSE: f64 = 5.0;
/// What helping may lose to `system`, in percent.
pub(crate) const ALLOWED_LOSS: f64 = 0.2;
/// The rows that must keep up.
const HELPED: [&str; 2] = ["cache+helping", "cache_shard+helping"];

/// A statement about the result, and whether it holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// The load.
    pub scenario: String,
    /// The configuration that is compared with `system`.
    pub row: &'static str,
    /// Whose pools ran the items of that row.
    #[serde(skip)]
    pub policy: Policy,
    /// What it must do, in words.
    pub shall: String,
    /// Our gap to `system`, in percent.
    pub gap: f64,
    /// The published gap, in percent.
    pub published: Option<f64>,
    /// How far the gaps are from each other; one below 1 % counts as 1 %.
    pub error_factor: Option<f64>,
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
            if plan.configuration.policy == Policy::Hinted {
                if plan.configuration.placement.localize {
                    let margin = CLOSE - (gap - published).abs();
                    judgements.push(Judgement {
                        scenario: name.clone(),
                        row,
                        policy: Policy::Hinted,
                        shall: format!("be within {CLOSE} points of the published gap"),
                        gap,
                        published: Some(published),
                        error_factor: Some(error_factor(gap, published)),
                        margin,
                        met: margin >= 0.0,
                    });
                }
            } else if published.abs() > CLEAR {
                let (shall, margin) = if published < 0.0 {
                    ("lose to system, as published", -gap)
                } else {
                    ("beat system, as published", gap)
                };
                judgements.push(Judgement {
                    scenario: name.clone(),
                    row,
                    policy: plan.configuration.policy,
                    shall: shall.into(),
                    gap,
                    published: Some(published),
                    error_factor: Some(error_factor(gap, published)),
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
                policy: Policy::Ours,
                shall: format!("reach {:.3} of system", 1.0 - ALLOWED_LOSS / 100.0),
                gap,
                published: None,
                error_factor: None,
                margin,
                met: margin >= 0.0,
            });
        }
    }
    judgements
}

/// The error factor of two gaps in percent.
fn error_factor(gap: f64, published: f64) -> f64 {
    harness::published::of_gains_above(CLEAR / 100.0, gap / 100.0, published / 100.0)
}

/// The published gap to `system`, in percent.
fn published_gap(scenario: &str, configuration: &str) -> Option<f64> {
    let bandwidth = |configuration| Some(published(scenario, configuration)?.throughput.0);
    Some((bandwidth(configuration)? / bandwidth("system")? - 1.0) * 100.0)
}

// One short run of what the judgements need, with one seed: for code that varies the machine or the work and checks the effect on the
// judgements. Rows with hints are left out.

/// The parts of the declared work that can be varied.
pub(crate) const PARAMETERS: [&str; 3] = ["item_work", "sha512", "generate"];

/// Declared work with one part, by name, at a given percentage.
fn varied(mut declared: Declared, parameter: Option<(&str, u64)>) -> Declared {
    if let Some((name, percent)) = parameter {
        let part = match name {
            "item_work" => &mut declared.item_percent,
            "sha512" => &mut declared.sha512_centicycles,
            _ => &mut declared.generate_centicycles,
        };
        *part = (*part * percent / 100).max(1);
    }
    declared
}

/// Makes the runs with which `system` and the judged configurations are compared, for `duration` each. Returns the
/// judgements, and the hashes of everything that happened.
pub(crate) fn conclusions(
    machine: &Machine,
    parameter: Option<(&str, u64)>,
    seed: u64,
    duration: Duration,
) -> Result<(Vec<Judgement>, Vec<u64>), Error> {
    let common = Common {
        machine: machine.name().into(),
        runs: Some(1),
        duration: Some(duration),
        ..Common::default()
    };
    let options = ScopesOptions { common, ..ScopesOptions::default() };
    let job = options.plan(machine)?;
    let model =
        machine.model().ok_or_else(|| Error::input("a real machine's work is not declared"))?;
    let declared = varied(Declared::at(model.clock_mhz()), parameter);
    let judged = |collector: &Collector| job.judge(&collector.rows(), machine);
    // A result without any differences is judged in the same way as any other.
    let mut nothing = Collector::default();
    for scenario in &job.scenarios {
        for configuration in job.run() {
            nothing.add(&scenario.name, configuration.name, metric::THROUGHPUT, 1.0);
        }
    }
    let asked = judged(&nothing);
    let needed = |scenario: &str, configuration: &Configuration| {
        let name = configuration.name;
        let planned = |row: &str| job.planned.iter().find(|plan| plan.configuration.name == row);
        let base_of = |row: &str| planned(row).map_or("system", |plan| plan.configuration.base());
        let stands_for = |row: &str| {
            planned(row)
                .is_some_and(|plan| plan.same_as.as_ref().map_or(row, |(same, _)| *same) == name)
        };
        configuration.policy != Policy::Hinted
            && asked.iter().any(|one| {
                one.scenario == scenario && (base_of(one.row) == name || stands_for(one.row))
            })
    };
    let (mut collector, mut hashes) = (Collector::default(), Vec::new());
    for scenario in &job.scenarios {
        for configuration in job.run() {
            if needed(&scenario.name, &configuration) {
                let plan = job.plan(scenario, seed as usize);
                let measured = measure(machine, declared, configuration, plan)?;
                hashes.push(measured.trace_hash);
                add(&mut collector, scenario, configuration.name, &measured.result);
            }
        }
    }
    Ok((judged(&collector), hashes))
}

#[cfg(test)]
#[path = "tests/judgement.rs"]
mod judgement_tests;

#[cfg(test)]
#[path = "tests/conclusions.rs"]
mod conclusions_tests;
