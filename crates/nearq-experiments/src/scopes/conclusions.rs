//! One short run of what the judgements need, with one seed: for who varies the machine or the work and asks what becomes
//! of them.

use super::configuration::Configuration;
use super::declared::Declared;
use super::judgement::Judgement;
use super::{ScopesOptions, add, measure};
use crate::harness::{Common, Experiment as _};
use crate::{Error, Machine};
use nearq_report::{Collector, metric};
use std::time::Duration;

/// What of the declared work can be varied.
pub(crate) const PARAMETERS: [&str; 3] = ["item_work", "sha512", "generate"];

/// Declared work of which one part, by name, is at so many percent.
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

/// Makes the runs with which `system` and the judged configurations are compared, for `duration` each: the judgements,
/// and the hashes of all that happened.
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
    // What is asked of a result in which nothing differs is what is asked of any.
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
        asked.iter().any(|one| {
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
mod tests {
    use super::*;

    #[test]
    fn each_parameter_changes_its_part_of_the_work() {
        let plain = Declared::at(3000);
        let with = |name| varied(plain, Some((name, 150)));
        assert_eq!(varied(plain, None), plain);
        assert_eq!(with("item_work").item_percent, plain.item_percent * 3 / 2);
        assert_eq!(with("sha512").sha512_centicycles, plain.sha512_centicycles * 3 / 2);
        assert_eq!(with("generate").generate_centicycles, plain.generate_centicycles * 3 / 2);
        let all = PARAMETERS.map(with);
        assert!(all[0] != all[1] && all[1] != all[2] && all[0] != all[2]);
    }
}
