//! `nearq bench scopes`: the 2023 document's experiment. Issuers generate blocks of 32 KiB, have them encrypted by
//! items of an unbound queue, store them, read them back, have them decrypted, and verify their SHA-512.
//!
//! As under fio, an issuer's own thread generates and verifies; only encryption and decryption are items. So a
//! block's memory goes back and forth between the issuer's CPU and a worker's, and it matters where the worker is.

//!
//! The same code runs on a simulated machine, where the work is declared: `declared` says what it costs and why.

mod conclusions;
mod configuration;
mod declared;
mod issuer;
mod judgement;
mod kernel;
mod payload;
pub(crate) mod picture;
mod render;
mod run;
mod scenario;
mod simulated;

pub(crate) use conclusions::{PARAMETERS, conclusions};
pub use configuration::{
    CONFIGURATIONS, Configuration, Planned, Policy, SIMULATED, configurations, plan,
};
pub use declared::Declared;
pub(crate) use judgement::ALLOWED_LOSS;
pub use judgement::{Judgement, judge};
pub use run::Measured;
pub use scenario::{Published, Scenario, published, scaled};
pub(crate) use simulated::MakeQueues;

use crate::executor::{Executor, MOST_ACTIVE, Queues};
use crate::host::Census;
use crate::options::{Common, too_small, with_reason, within};
use crate::payload::Speeds;
use crate::store::{FileStore, MemoryStore, Store};
use crate::{Error, Machine, Progress};
use nearq_platform::Linux;
use nearq_report::{Collector, Environment, Report, Watch, metric};
use nearq_sim::Fair;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
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
    /// On a simulated machine: what the two items of a block cost, in percent of what its issuer spends on it.
    pub item_percent: Option<usize>,
    /// On a simulated machine: woken threads look for an idle CPU under their last-level cache alone.
    pub wake_within_cache: bool,
}

/// Most issuers, and most blocks in flight for each: beyond, the machine measures its scheduler.
const MOST_ISSUERS: usize = 4096;
const MOST_IN_FLIGHT: usize = 4096;
/// Places of a file that each block in flight chooses from, so that a disk is not always hit in the same ones.
const PLACES_IN_FILE: u64 = 16;
/// Most that items may cost, in percent of an issuer's work.
const MOST_ITEM_PERCENT: usize = 100_000;
/// A run of the default length on a simulated machine of so many CPUs, and a quick one: virtual time.
const SIMULATED_FULL: Duration = Duration::from_secs(1);
const SIMULATED_QUICK: Duration = Duration::from_millis(250);
const SIMULATED_CPUS: u32 = 24;
/// The shortest, and the shortest warm-up, there: a block that waits behind 64 others for each CPU is on its way for some
/// 50 ms. A larger machine has fewer in flight for each CPU.
const SIMULATED_LEAST: Duration = Duration::from_millis(100);
/// The machine of the document, by its name among the simulated ones.
const DOCUMENTS_MACHINE: &str = "ryzen-3900x";
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
    /// The scenarios of a simulated machine: blocks in flight no more than a queue may have active, unless asked for.
    fn simulated_scenarios(&self, cpus: usize) -> Result<Vec<Scenario>, Error> {
        let mut scenarios = self.scenarios(cpus)?;
        for scenario in scenarios.iter_mut().filter(|_| self.in_flight.is_none()) {
            let most = (MOST_ACTIVE / scenario.issuers).max(1);
            scenario.in_flight = scenario.in_flight.min(most);
        }
        Ok(scenarios)
    }

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

    /// How long and how often on a simulated machine with `cpus`: virtual time, so nothing else decides; a large machine
    /// has more to do in it and gets less.
    fn simulated_times(&self, cpus: usize) -> Times {
        let (runs, full) =
            if self.common.quick { (2, SIMULATED_QUICK) } else { (5, SIMULATED_FULL) };
        let scaled = |time: Duration| time * SIMULATED_CPUS / (cpus as u32).max(SIMULATED_CPUS);
        let least = scaled(SIMULATED_LEAST).max(SIMULATED_LEAST / 10);
        let duration = self.common.duration.unwrap_or(scaled(full).max(least));
        let warm_up = (duration / WARM_UP_SHARE).clamp(least, WARM_UP_MOST);
        Times { runs: self.common.runs.unwrap_or(runs), duration, warm_up }
    }

    fn times(&self, cells: usize) -> Times {
        let runs = self.common.runs.unwrap_or(if self.common.quick { 2 } else { 5 });
        let share = QUICK_TOTAL / (runs * cells) as u32 * WARM_UP_SHARE / (WARM_UP_SHARE + 1);
        let default = if self.common.quick { share.min(DURATION) } else { DURATION };
        let duration = self.common.duration.unwrap_or(default);
        Times { runs, duration, warm_up: (duration / WARM_UP_SHARE).min(WARM_UP_MOST) }
    }
}

/// Most blocks that a scenario has in flight.
fn most_blocks(scenarios: &[Scenario]) -> u64 {
    let blocks = |scenario: &Scenario| (scenario.issuers * scenario.in_flight) as u64;
    scenarios.iter().map(blocks).max().expect("there is a scenario")
}

fn open_store(
    options: &ScopesOptions,
    scenarios: &[Scenario],
) -> Result<Arc<dyn Store<Linux>>, Error> {
    let least = most_blocks(scenarios);
    Ok(match &options.file {
        None => Arc::new(MemoryStore::new(least)),
        Some(path) => Arc::new(FileStore::open(path, least, least * PLACES_IN_FILE)?),
    })
}

/// What is going to be measured.
struct Experiment<'o> {
    options: &'o ScopesOptions,
    machine: &'o Machine,
    cpus: usize,
    scenarios: Vec<Scenario>,
    planned: Vec<Planned>,
    times: Times,
}

/// Under which conditions it was measured.
struct Conditions {
    environment: Environment,
    speeds: Speeds,
    store: String,
    queue: &'static str,
    declared: Option<Declared>,
}

impl<'o> Experiment<'o> {
    fn new(options: &'o ScopesOptions, machine: &'o Machine) -> Result<Self, Error> {
        options.common.check()?;
        let cpus = machine.parallelism();
        let scenarios = match machine.model() {
            Some(_) => options.simulated_scenarios(cpus)?,
            None => options.scenarios(cpus)?,
        };
        let planned = plan(machine);
        let run = planned.iter().filter(|plan| plan.same_as.is_none()).count();
        let cells = scenarios.len() * run;
        let times = match machine.model() {
            Some(_) => options.simulated_times(cpus),
            None => options.times(cells),
        };
        Ok(Self { options, machine, cpus, scenarios, planned, times })
    }

    /// Why a simulated run is not judged, if it is too small.
    fn too_small(&self) -> Option<String> {
        let common = self.options.common.of_a_quick_run();
        let least = ScopesOptions { common, ..self.options.clone() }.simulated_times(self.cpus);
        let duration = [self.times.duration, least.duration].map(|time| time.as_secs_f64());
        too_small(self.machine, [self.times.runs, least.runs], &[("--duration", duration)])
    }

    /// The configurations that are run.
    fn run(&self) -> Vec<Configuration> {
        let run = self.planned.iter().filter(|plan| plan.same_as.is_none());
        run.map(|plan| plan.configuration).collect()
    }

    fn plan(&self, scenario: &Scenario, round: usize) -> run::Plan {
        let Times { duration, warm_up, .. } = self.times;
        run::Plan {
            scenario: scenario.clone(),
            warm_up,
            duration,
            cpus: self.cpus,
            seed: round as u64,
        }
    }

    fn what(&self, round: usize, scenario: &Scenario, configuration: &Configuration) -> String {
        let (runs, scenario, name) = (self.times.runs, &scenario.name, configuration.name);
        format!("run {} of {runs}, {scenario}: {name}", round + 1)
    }

    /// Adds a run's figures.
    fn add(collector: &mut Collector, scenario: &Scenario, name: &str, measured: Measured) {
        collector.add(&scenario.name, name, metric::THROUGHPUT, measured.throughput_mib_s);
        collector.add(&scenario.name, name, metric::CPU_PERCENT, measured.cpu_percent);
        let issuer = measured.issuer_cpu_percent;
        collector.add(&scenario.name, name, metric::ISSUER_CPU_PERCENT, issuer);
        if let Some((helped, repatriated)) = measured.moved_percent {
            collector.add(&scenario.name, name, metric::HELPED_PERCENT, helped);
            collector.add(&scenario.name, name, metric::REPATRIATED_PERCENT, repatriated);
        }
    }

    /// The report of what was collected.
    fn report(&self, mut collector: Collector, conditions: Conditions) -> Report {
        for scenario in &self.scenarios {
            for configuration in self.run() {
                let (scenario, name) = (&scenario.name, configuration.name);
                if let Some(figures) = published(scenario, name) {
                    collector.publish(scenario, name, metric::THROUGHPUT, figures.throughput.0);
                    collector.publish(scenario, name, metric::CPU_PERCENT, figures.cpu.0);
                }
            }
        }
        let rows = collector.rows();
        let machine = self.machine.name().to_owned();
        let too_small = conditions.declared.and_then(|_| self.too_small());
        let judgements = conditions.declared.map(|_| match too_small {
            Some(_) => Vec::new(),
            None => judge(&rows, &self.scenarios, &self.planned, machine == DOCUMENTS_MACHINE),
        });
        let facts = render::Facts {
            scenarios: &self.scenarios,
            planned: &self.planned,
            times: &self.times,
            conditions: &conditions,
            wake_within_cache: self.options.wake_within_cache,
            judgements: judgements.as_deref(),
            too_small: too_small.as_deref(),
            show_goals: self.options.common.goals,
        };
        let text = facts.text(&rows);
        let coincide: Map<String, Value> = self
            .planned
            .iter()
            .filter_map(|plan| {
                let (same_as, reason) = plan.same_as.as_ref()?;
                let name = plan.configuration.name.into();
                Some((name, json!({"same_as": same_as, "reason": reason})))
            })
            .collect();
        let scenario = |one: &Scenario| {
            (one.name.clone(), json!({"issuers": one.issuers, "in_flight": one.in_flight}))
        };
        let scenarios: Map<String, Value> = self.scenarios.iter().map(scenario).collect();
        let mut parameters = json!({
            "quick": self.options.common.quick,
            "queue": conditions.queue,
            "runs": self.times.runs,
            "duration_s": self.times.duration.as_secs_f64(),
            "warm_up_s": self.times.warm_up.as_secs_f64(),
            "block_bytes": crate::payload::BLOCK_BYTES,
            "store": conditions.store,
            "scenarios": scenarios,
            "coincide": coincide,
            "one_cpu": conditions.speeds,
        });
        if let Some(declared) = conditions.declared {
            parameters["declared"] = json!(declared);
            parameters["wake_within_cache"] = json!(self.options.wake_within_cache);
            parameters["judgements"] = json!(judgements);
        }
        let parameters = with_reason(parameters, too_small.as_deref());
        let environment = conditions.environment;
        let svg = String::new();
        let mut report =
            Report { experiment: "scopes", machine, environment, parameters, rows, text, svg };
        report.svg = picture::picture(&report);
        report
    }
}

/// Runs the experiment here, on the queues that `queues` makes.
pub(crate) fn run_on(
    options: &ScopesOptions,
    machine: &Machine,
    queues: &dyn Queues,
    progress: &Progress,
) -> Result<Report, Error> {
    let experiment = Experiment::new(options, machine)?;
    let (times, run) = (experiment.times, experiment.run());
    if options.item_percent.is_some() {
        return Err(Error::input(
            "--item-work is for simulated machines, where work is declared; here it is computed",
        ));
    }
    if options.wake_within_cache {
        return Err(Error::input(
            "--wake-within-cache is for simulated machines; here Linux wakes threads up as it does",
        ));
    }
    let store = open_store(options, &experiment.scenarios)?;
    let watch = Watch::start(experiment.cpus);
    let speeds = Speeds::measure(Duration::from_millis(40));
    let mut collector = Collector::default();
    progress.begin(times.runs * experiment.scenarios.len() * run.len());
    for round in 0..times.runs {
        for scenario in &experiment.scenarios {
            let mut measure = |configuration: &Configuration| {
                progress.step(experiment.what(round, scenario, configuration));
                let executor: Arc<dyn Executor> = queues.queue(configuration.placement)?.into();
                let plan = experiment.plan(scenario, round);
                let store = Arc::clone(&store);
                let measured = run::run(executor, store, payload::Real, Census::default(), &plan)?;
                Experiment::add(&mut collector, scenario, configuration.name, measured);
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
    let conditions = Conditions {
        environment: watch.finish(),
        speeds,
        store: store.describe(),
        queue: queues.name(),
        declared: None,
    };
    Ok(experiment.report(collector, conditions))
}

/// Runs the experiment on a simulated machine, on the queues that `queues` makes.
pub(crate) fn simulate_on(
    options: &ScopesOptions,
    machine: &Machine,
    queues: MakeQueues,
    progress: &Progress,
) -> Result<Report, Error> {
    let experiment = Experiment::new(options, machine)?;
    let model = machine.model().expect("the machine is a simulated one");
    if let Some(path) = &options.file {
        let path = path.display();
        return Err(Error::input(format!(
            "--file {path}: a simulated machine has a simulated drive; leave --file out, or --on"
        )));
    }
    let mut machine = machine.clone();
    if options.wake_within_cache {
        machine = machine.setting_up(|simulation| {
            simulation.scheduler(|_| Fair::new().waking_within_cache(true))
        });
    }
    let machine = &machine;
    let mut declared = Declared::at(model.clock_mhz());
    if let Some(percent) = options.item_percent {
        within("--item-work", percent, 1, MOST_ITEM_PERCENT)?;
        declared.item_percent = percent as u64;
    }
    let mut jobs = Vec::new();
    let mut cells = Vec::new();
    for round in 0..experiment.times.runs {
        for scenario in &experiment.scenarios {
            for configuration in experiment.run() {
                let plan = experiment.plan(scenario, round);
                let what = experiment.what(round, scenario, &configuration);
                cells.push((scenario, configuration.name));
                jobs.push(simulated::Job { configuration, plan, what });
            }
        }
    }
    progress.begin(jobs.len());
    let measured = simulated::measure_all(machine, declared, queues, &jobs, progress)?;
    let mut collector = Collector::default();
    for ((scenario, name), measured) in cells.into_iter().zip(measured) {
        Experiment::add(&mut collector, scenario, name, measured);
    }
    let drive = simulated::drive(machine, most_blocks(&experiment.scenarios));
    let conditions = Conditions {
        environment: Environment::simulated(model.about(), experiment.cpus),
        speeds: declared.speeds(),
        store: drive.describe(),
        queue: queues(Census::default()).name(),
        declared: Some(declared),
    };
    Ok(experiment.report(collector, conditions))
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
    fn large_simulated_machines_get_shorter_runs_and_no_more_blocks_than_a_queue_may_have_active() {
        let quick = ScopesOptions {
            common: Common { quick: true, ..Common::default() },
            ..ScopesOptions::default()
        };
        for cpus in [1, 24, 72, 384, 4096] {
            for options in [&ScopesOptions::default(), &quick] {
                let times = options.simulated_times(cpus);
                assert!(times.warm_up + times.duration >= 2 * SIMULATED_LEAST / 10, "{times:?}");
                assert!(times.duration <= SIMULATED_FULL && times.runs >= 2, "{times:?}");
            }
            let in_flight = |scenario: &Scenario| scenario.issuers * scenario.in_flight;
            let scenarios = quick.simulated_scenarios(cpus).unwrap();
            let most = MOST_ACTIVE.max(cpus);
            assert!(scenarios.iter().all(|one| in_flight(one) <= most), "{cpus}: {scenarios:?}");
        }
        assert_eq!(quick.simulated_times(24).duration, SIMULATED_QUICK);
        assert_eq!(quick.simulated_scenarios(24).unwrap(), scaled(24), "the document's loads");
        let asked = ScopesOptions { in_flight: Some(4096), ..ScopesOptions::default() };
        assert_eq!(asked.simulated_scenarios(384).unwrap()[0].in_flight, 4096);
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
