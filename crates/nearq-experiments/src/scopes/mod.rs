//! `nearq bench scopes`: the 2023 document's experiment. Issuers generate blocks of 32 KiB, have them encrypted by
//! items of an unbound queue, store them, read them back, have them decrypted, and verify their SHA-512.
//!
//! As under fio, an issuer's own thread generates and verifies; only encryption and decryption are items. So a
//! block's memory goes back and forth between the issuer's CPU and a worker's, and it matters where the worker is.

mod configuration;
mod issuer;
mod render;
mod run;
mod scenario;

pub use configuration::{CONFIGURATIONS, Configuration, Planned, plan};
pub use run::Measured;
pub use scenario::{Published, Scenario, published, scaled};

use crate::executor::Queues;
use crate::options::{Common, within};
use crate::payload::Speeds;
use crate::report::{Collector, Report, Watch, metric};
use crate::store::{FileStore, MemoryStore, Store};
use crate::{Error, Machine, Progress};
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::time::Duration;

/// What `scopes` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ScopesOptions {
    /// What every experiment can be told.
    pub common: Common,
    /// Store blocks here instead of in memory: a new or empty file, or a block device, which is overwritten.
    pub file: Option<PathBuf>,
    /// One scenario with so many issuers instead of the document's three.
    pub issuers: Option<usize>,
    /// Blocks in flight for each issuer, instead of the document's load.
    pub in_flight: Option<usize>,
}

/// Most issuers, and most blocks in flight for each: beyond, the machine measures its scheduler.
const MOST_ISSUERS: usize = 4096;
const MOST_IN_FLIGHT: usize = 4096;
/// Places of a file that each block in flight chooses from, so that a disk is not always hit in the same ones.
const PLACES_IN_FILE: u64 = 16;
/// A run of the default length.
const DURATION: Duration = Duration::from_secs(2);
/// What all runs of a quick experiment take together.
const QUICK_TOTAL: Duration = Duration::from_secs(24);
/// Uncounted, before each run: its share of the run, and its most.
const WARM_UP_SHARE: u32 = 5;
const WARM_UP_MOST: Duration = Duration::from_millis(500);

/// How long and how often.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Times {
    runs: usize,
    duration: Duration,
    warm_up: Duration,
}

impl ScopesOptions {
    fn scenarios(&self, cpus: usize) -> Result<Vec<Scenario>, Error> {
        if let Some(in_flight) = self.in_flight {
            within("--in-flight", in_flight, 1, MOST_IN_FLIGHT)?;
        }
        let mut scenarios = scaled(cpus);
        if let Some(issuers) = self.issuers {
            within("--issuers", issuers, 1, MOST_ISSUERS)?;
            let name = if issuers == 1 { "1 issuer".into() } else { format!("{issuers} issuers") };
            scenarios = vec![Scenario {
                name,
                meaning: "as many issuers as asked for",
                issuers,
                in_flight: 64,
            }];
        }
        for scenario in &mut scenarios {
            scenario.in_flight = self.in_flight.unwrap_or(scenario.in_flight);
        }
        Ok(scenarios)
    }

    fn times(&self, cells: usize) -> Times {
        let runs = self.common.runs.unwrap_or(if self.common.quick { 2 } else { 5 });
        let share = QUICK_TOTAL / (runs * cells) as u32 * WARM_UP_SHARE / (WARM_UP_SHARE + 1);
        let default = if self.common.quick { share.min(DURATION) } else { DURATION };
        let duration = self.common.duration.unwrap_or(default);
        Times { runs, duration, warm_up: (duration / WARM_UP_SHARE).min(WARM_UP_MOST) }
    }
}

fn open_store(options: &ScopesOptions, scenarios: &[Scenario]) -> Result<Box<dyn Store>, Error> {
    let blocks = |scenario: &Scenario| (scenario.issuers * scenario.in_flight) as u64;
    let least = scenarios.iter().map(blocks).max().expect("there is a scenario");
    Ok(match &options.file {
        None => Box::new(MemoryStore::new(least)),
        Some(path) => Box::new(FileStore::open(path, least, least * PLACES_IN_FILE)?),
    })
}

/// Runs the experiment on the queues that `queues` makes.
pub(crate) fn run_on(
    options: &ScopesOptions,
    machine: &Machine,
    queues: &dyn Queues,
    progress: &Progress,
) -> Result<Report, Error> {
    options.common.check()?;
    let cpus = machine.parallelism();
    let scenarios = options.scenarios(cpus)?;
    let planned = plan(machine);
    let run: Vec<Configuration> = planned
        .iter()
        .filter(|plan| plan.same_as.is_none())
        .map(|plan| plan.configuration)
        .collect();
    let times = options.times(scenarios.len() * run.len());
    let store = open_store(options, &scenarios)?;

    let watch = Watch::start(cpus);
    let speeds = Speeds::measure(Duration::from_millis(40));
    let mut collector = Collector::default();
    progress.begin(times.runs * scenarios.len() * run.len());
    for round in 0..times.runs {
        for scenario in &scenarios {
            let mut measure = |configuration: &Configuration| {
                let name = configuration.name;
                progress.step(format!(
                    "run {} of {}, {}: {name}",
                    round + 1,
                    times.runs,
                    scenario.name
                ));
                let executor = queues.queue(configuration.placement)?;
                let (warm_up, duration) = (times.warm_up, times.duration);
                let measured =
                    run::run(&*executor, &*store, scenario, warm_up, duration, cpus, round as u64)?;
                collector.add(&scenario.name, name, metric::THROUGHPUT, measured.throughput_mib_s);
                collector.add(&scenario.name, name, metric::CPU_PERCENT, measured.cpu_percent);
                progress.done();
                Ok(())
            };
            if round.is_multiple_of(2) {
                run.iter().try_for_each(&mut measure)?;
            } else {
                run.iter().rev().try_for_each(&mut measure)?;
            }
        }
    }
    for scenario in &scenarios {
        for configuration in &run {
            if let Some(figures) = published(&scenario.name, configuration.name) {
                collector.publish(
                    &scenario.name,
                    configuration.name,
                    metric::THROUGHPUT,
                    figures.throughput.0,
                );
                collector.publish(
                    &scenario.name,
                    configuration.name,
                    metric::CPU_PERCENT,
                    figures.cpu.0,
                );
            }
        }
    }
    let environment = watch.finish();
    let rows = collector.rows();
    let facts =
        render::Facts { scenarios: &scenarios, planned: &planned, times: &times, speeds: &speeds };
    let text = facts.text(&rows, &environment, &store.describe(), queues.name());
    let svg = facts.picture(&rows, &environment);
    let coincide: Map<String, Value> = planned
        .iter()
        .filter_map(|plan| {
            let (same_as, reason) = plan.same_as.as_ref()?;
            Some((plan.configuration.name.into(), json!({"same_as": same_as, "reason": reason})))
        })
        .collect();
    let scenarios: Map<String, Value> = scenarios
        .iter()
        .map(|one| (one.name.clone(), json!({"issuers": one.issuers, "in_flight": one.in_flight})))
        .collect();
    let parameters = json!({
        "quick": options.common.quick,
        "queue": queues.name(),
        "runs": times.runs,
        "duration_s": times.duration.as_secs_f64(),
        "warm_up_s": times.warm_up.as_secs_f64(),
        "block_bytes": crate::payload::BLOCK_BYTES,
        "store": store.describe(),
        "scenarios": scenarios,
        "coincide": coincide,
        "one_cpu": speeds,
    });
    let machine = options.common.machine.clone();
    Ok(Report { experiment: "scopes", machine, environment, parameters, rows, text, svg })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Executor, Placement};
    use crate::peers::queue_for_tests;

    struct StandIn;

    impl Queues for StandIn {
        fn queue(&self, _: Placement) -> Result<Box<dyn Executor>, Error> {
            Ok(queue_for_tests(2))
        }

        fn name(&self) -> &'static str {
            "a queue for tests"
        }
    }

    fn short() -> ScopesOptions {
        let common = Common {
            runs: Some(2),
            duration: Some(Duration::from_millis(20)),
            ..Common::default()
        };
        ScopesOptions { common, in_flight: Some(4), ..ScopesOptions::default() }
    }

    #[test]
    fn the_report_has_every_configuration_once_and_names_those_that_coincide() {
        let machine = Machine::here().unwrap();
        let report = run_on(&short(), &machine, &StandIn, &Progress::hidden()).unwrap();
        for plan in plan(&machine) {
            let name = plan.configuration.name;
            for scenario in ["HIGH", "MED", "LOW"] {
                for metric in [metric::THROUGHPUT, metric::CPU_PERCENT] {
                    let row = report.find(scenario, name, metric);
                    assert_eq!(row.is_some(), plan.same_as.is_none(), "{scenario} {name}");
                }
            }
            assert!(report.text.contains(name), "{name} is missing from\n{}", report.text);
            assert_eq!(plan.same_as.is_some(), report.parameters["coincide"].get(name).is_some());
        }
        let system = report.find("MED", "system", metric::THROUGHPUT).unwrap();
        assert_eq!((system.published, system.summary.runs), (Some(1155.40), 2));
        assert!(report.text.contains("1155.40"), "{}", report.text);
        assert!(report.svg.contains("MED"));
    }

    #[test]
    fn as_many_issuers_as_asked_for() {
        let options = ScopesOptions { issuers: Some(1), ..short() };
        let report =
            run_on(&options, &Machine::here().unwrap(), &StandIn, &Progress::hidden()).unwrap();
        assert!(report.find("1 issuer", "system", metric::THROUGHPUT).is_some());
        assert!(report.find("HIGH", "system", metric::THROUGHPUT).is_none());
    }

    #[test]
    fn zero_of_anything_is_refused() {
        let refused = |options: ScopesOptions| {
            let error = run_on(&options, &Machine::here().unwrap(), &StandIn, &Progress::hidden())
                .unwrap_err();
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        let text = refused(ScopesOptions { issuers: Some(0), ..ScopesOptions::default() });
        assert_eq!(text, "--issuers 0: give a number from 1 to 4096");
        let text = refused(ScopesOptions { in_flight: Some(0), ..ScopesOptions::default() });
        assert_eq!(text, "--in-flight 0: give a number from 1 to 4096");
        let text = refused(ScopesOptions {
            file: Some("/no such folder/f".into()),
            ..ScopesOptions::default()
        });
        assert!(text.starts_with("--file /no such folder/f: cannot be written"), "{text}");
    }

    #[test]
    fn a_quick_run_ends_within_thirty_seconds_on_any_machine() {
        let options = ScopesOptions {
            common: Common { quick: true, ..Common::default() },
            ..ScopesOptions::default()
        };
        for cells in 1..=3 * CONFIGURATIONS.len() {
            let times = options.times(cells);
            let total = (times.duration + times.warm_up) * (times.runs * cells) as u32;
            assert!(
                total <= QUICK_TOTAL + Duration::from_millis(1) && times.runs >= 2,
                "{cells}: {total:?}"
            );
        }
    }
}
