//! `nearq bench scopes`: the 2023 document's experiment. Issuers generate blocks of 32 KiB, queue items of an unbound
//! queue to encrypt them, store them, read them back, queue items to decrypt them, and verify their SHA-512.
//!
//! As under fio, an issuer's own thread generates and verifies; only encryption and decryption are items. So a
//! block's memory goes back and forth between the issuer's CPU and a worker's, and it matters where the worker is.

//!
//! The same code runs on a simulated machine, where the work is declared: `declared` says what it costs and why.

mod configuration;
mod executor;
mod issuer;
mod judgement;
mod payload;
pub(crate) mod render;

pub use configuration::{
    CONFIGURATIONS, Configuration, Planned, Policy, SIMULATED, configurations, plan,
};
pub use configuration::{Published, Scenario, published, scaled};
pub use executor::{Counts, Executor, Item, MOST_ACTIVE, Placement};
pub use issuer::Measured;
pub(crate) use judgement::ALLOWED_LOSS;
pub use judgement::{Judgement, judge};
pub(crate) use judgement::{PARAMETERS, conclusions};
pub use payload::Declared;
pub(crate) use payload::mixed;

use crate::harness::options::{number, too_small, within};
use crate::harness::{
    self, Census, Common, Experiment, Run, Simulated, simulate, waking_within_cache,
};
use crate::payload::Speeds;
use crate::store::{Drive, FileStore, MemoryStore, Store};
use crate::{Error, Machine};
use clap::Args;
use nearq_platform::Linux;
use nearq_report::{Collector, Row, metric};
use nearq_sim::Sim;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The options of `scopes`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct ScopesOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// Store blocks here instead of in memory: a new or empty file, or a block device, WHICH IS OVERWRITTEN
    #[arg(long, value_name = "PATH")]
    pub file: Option<PathBuf>,

    /// Run one load with this many issuers, 1 to 4096, instead of the three published ones
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub issuers: Option<usize>,

    /// How many blocks each issuer has in flight, 1 to 4096
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub in_flight: Option<usize>,

    /// On a simulated machine: the cost of a block's items, in percent of its issuer's work, 1 to 100000; 400 if not given
    #[arg(long = "item-work", value_name = "PERCENT", value_parser = number, allow_negative_numbers = true)]
    pub item_percent: Option<usize>,

    /// On a simulated machine: the kernel searches for an idle CPU for a woken thread only within its last-level cache, not in its node
    #[arg(long)]
    pub wake_within_cache: bool,
}

/// Most issuers, and most blocks in flight for each: beyond that, the result depends mostly on the machine's scheduler.
const MOST_ISSUERS: usize = 4096;
const MOST_IN_FLIGHT: usize = 4096;
/// Places of a file that each block in flight chooses from, so that a disk is not always accessed in the same places.
const PLACES_IN_FILE: u64 = 16;
/// Most that items may cost, in percent of an issuer's work.
const MOST_ITEM_PERCENT: usize = 100_000;
/// A run of the default length on a simulated machine, and a quick one: virtual time.
const SIMULATED_FULL: Duration = Duration::from_secs(1);
const SIMULATED_QUICK: Duration = Duration::from_millis(250);
const SIMULATED_CPUS: u32 = 24;
/// The shortest run, and the shortest warm-up, on a simulated machine: a block that waits behind 64 others for each CPU is in flight for
/// some 50 ms. A larger machine has fewer in flight for each CPU.
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

    /// How long and how often is measured on a simulated machine with `cpus`. The time is virtual, so it depends only on the machine; a
    /// large machine has more to do in the same time and gets less of it.
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

/// What will be done.
#[derive(Clone, Debug)]
pub struct Job {
    cpus: usize,
    scenarios: Vec<Scenario>,
    planned: Vec<Planned>,
    times: Times,
}

/// What is found besides the figures.
#[derive(Debug)]
pub struct Found {
    speeds: Speeds,
    store: String,
    /// What is declared, on a simulated machine.
    declared: Option<Declared>,
}

type Facts<'f> = harness::Facts<'f, ScopesOptions>;

impl Experiment for ScopesOptions {
    const NAME: &'static str = "scopes";
    type Plan = Job;
    type Found = Found;
    type Verdict = Vec<Judgement>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Job, Error> {
        let (cpus, simulated) = (machine.parallelism(), machine.model().is_some());
        let planned = plan(machine);
        if simulated {
            let (scenarios, times) = (self.simulated_scenarios(cpus)?, self.simulated_times(cpus));
            return Ok(Job { cpus, scenarios, planned, times });
        }
        let scenarios = self.scenarios(cpus)?;
        let run = planned.iter().filter(|plan| plan.same_as.is_none()).count();
        let times = self.times(scenarios.len() * run);
        Ok(Job { cpus, scenarios, planned, times })
    }

    fn measure(&self, run: &mut Run<'_>, job: &mut Job) -> Result<Found, Error> {
        if run.machine.model().is_some() { self.simulated(run, job) } else { self.here(run, job) }
    }

    /// A real machine has no goals.
    fn too_small(&self, machine: &Machine, job: &Job) -> Result<Option<String>, Error> {
        if machine.model().is_none() {
            return Ok(None);
        }
        let common = self.common.of_a_quick_run();
        let least = Self { common, ..self.clone() }.simulated_times(job.cpus);
        let duration = [job.times.duration, least.duration].map(|time| time.as_secs_f64());
        Ok(too_small(machine, [job.times.runs, least.runs], &[("--duration", duration)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Judgement> {
        if facts.too_small.is_some() || facts.model().is_none() {
            return Vec::new();
        }
        facts.plan.judge(&facts.rows, facts.machine)
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let (Job { times, .. }, found) = (&facts.plan, &facts.found);
        let same = |plan: &Planned| {
            let (same_as, reason) = plan.same_as.as_ref()?;
            let name = plan.configuration.name.to_owned();
            Some((name, json!({"same_as": same_as, "reason": reason})))
        };
        let scenario = |one: &Scenario| {
            (one.name.clone(), json!({"issuers": one.issuers, "in_flight": one.in_flight}))
        };
        let mut parameters = json!({
            "queue": QUEUE,
            "runs": times.runs,
            "duration_s": times.duration.as_secs_f64(),
            "warm_up_s": times.warm_up.as_secs_f64(),
            "block_bytes": crate::payload::BLOCK_BYTES,
            "store": found.store,
            "scenarios": facts.plan.scenarios.iter().map(scenario).collect::<Map<_, _>>(),
            "coincide": facts.plan.planned.iter().filter_map(same).collect::<Map<_, _>>(),
            "one_cpu": found.speeds,
        });
        if let Some(declared) = found.declared {
            parameters["declared"] = json!(declared);
            parameters["wake_within_cache"] = json!(facts.experiment.wake_within_cache);
            parameters["judgements"] = json!(facts.verdict);
        }
        parameters
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// What runs the items, for the report.
const QUEUE: &str = "an unbound nearq workqueue";

impl Job {
    /// The configurations that are run.
    fn run(&self) -> Vec<Configuration> {
        let run = self.planned.iter().filter(|plan| plan.same_as.is_none());
        run.map(|plan| plan.configuration).collect()
    }

    fn plan(&self, scenario: &Scenario, round: usize) -> issuer::Plan {
        let (Times { duration, warm_up, .. }, cpus) = (self.times, self.cpus);
        issuer::Plan { scenario: scenario.clone(), warm_up, duration, cpus, seed: round as u64 }
    }

    fn what(&self, round: usize, scenario: &Scenario, configuration: &Configuration) -> String {
        let (runs, scenario, name) = (self.times.runs, &scenario.name, configuration.name);
        format!("run {} of {runs}, {scenario}: {name}", round + 1)
    }

    fn judge(&self, rows: &[Row], machine: &Machine) -> Vec<Judgement> {
        judge(rows, &self.scenarios, &self.planned, machine.name() == DOCUMENTS_MACHINE)
    }
}

/// Adds a run's figures, and the published ones.
fn add(collector: &mut Collector, scenario: &Scenario, name: &str, measured: &Measured) {
    let scenario = &scenario.name;
    let mut add = |metric, value| collector.add(scenario, name, metric, value);
    add(metric::THROUGHPUT, measured.throughput_mib_s);
    add(metric::CPU_PERCENT, measured.cpu_percent);
    add(metric::ISSUER_CPU_PERCENT, measured.issuer_cpu_percent);
    if let Some((helped, repatriated)) = measured.moved_percent {
        add(metric::HELPED_PERCENT, helped);
        add(metric::REPATRIATED_PERCENT, repatriated);
    }
    if let Some(figures) = published(scenario, name) {
        collector.publish(scenario, name, metric::THROUGHPUT, figures.throughput.0);
        collector.publish(scenario, name, metric::CPU_PERCENT, figures.cpu.0);
    }
}

impl ScopesOptions {
    /// On the real machine.
    fn here(&self, run: &mut Run<'_>, job: &Job) -> Result<Found, Error> {
        if self.item_percent.is_some() {
            return Err(Error::input(
                "--item-work is only for simulated machines, where work is declared; here it is really computed",
            ));
        }
        if self.wake_within_cache {
            return Err(Error::input(
                "--wake-within-cache is only for simulated machines; here Linux decides where threads wake up",
            ));
        }
        let store = open_store(self, &job.scenarios)?;
        let speeds = Speeds::measure(Duration::from_millis(40));
        let configurations = job.run();
        run.begin(job.times.runs * job.scenarios.len() * configurations.len());
        for round in 0..job.times.runs {
            for scenario in &job.scenarios {
                let what = |of: &Configuration| job.what(round, scenario, of);
                let measured = run.round(round, &configurations, what, |configuration| {
                    let census = Census::default();
                    let executor = executor::nearq::<Linux>(configuration.placement, &census)?;
                    let (plan, store) = (job.plan(scenario, round), Arc::clone(&store));
                    issuer::run(executor.into(), store, payload::Real, census, &plan)
                })?;
                for (configuration, measured) in configurations.iter().zip(measured) {
                    add(&mut run.figures, scenario, configuration.name, &measured);
                }
            }
        }
        Ok(Found { speeds, store: store.describe(), declared: None })
    }

    /// On a simulated machine.
    fn simulated(&self, run: &mut Run<'_>, job: &Job) -> Result<Found, Error> {
        if let Some(path) = &self.file {
            let path = path.display();
            return Err(Error::input(format!(
                "--file {path}: a simulated machine has a simulated drive; leave out --file or --on"
            )));
        }
        let mut machine = run.machine.clone();
        if self.wake_within_cache {
            machine = waking_within_cache(machine);
        }
        let mut declared = Declared::at(machine.model().map_or(0, nearq_sim::Machine::clock_mhz));
        if let Some(percent) = self.item_percent {
            declared.item_percent = within("--item-work", percent, 1, MOST_ITEM_PERCENT)? as u64;
        }
        let mut cells = Vec::new();
        for round in 0..job.times.runs {
            for scenario in &job.scenarios {
                cells.extend(job.run().into_iter().map(|of| (round, scenario, of)));
            }
        }
        let what = |_, (round, scenario, of): &(_, &Scenario, _)| job.what(*round, scenario, of);
        let measured = run.all(&cells, what, |(round, scenario, configuration)| {
            measure(&machine, declared, *configuration, job.plan(scenario, *round))
        })?;
        for ((_, scenario, configuration), measured) in cells.into_iter().zip(measured) {
            add(&mut run.figures, scenario, configuration.name, &measured.result);
        }
        let store = drive(&machine, most_blocks(&job.scenarios)).describe();
        Ok(Found { speeds: declared.speeds(), store, declared: Some(declared) })
    }
}

/// The drive of a simulated machine.
fn drive(machine: &Machine, places: u64) -> Drive {
    let model = machine.model().expect("the machine is a simulated one");
    Drive::new(places, machine.parallelism(), Duration::from_nanos(model.costs().system_call))
}

/// One run on a simulated machine.
fn measure(
    machine: &Machine,
    declared: Declared,
    Configuration { policy, placement, .. }: Configuration,
    plan: issuer::Plan,
) -> Result<Simulated<Measured>, Error> {
    let store = drive(machine, (plan.scenario.issuers * plan.scenario.in_flight) as u64);
    let limit = plan.warm_up + plan.duration + 2 * issuer::LOST_AFTER;
    let outcome = simulate(machine, plan.seed, limit, move || {
        Sim::receive_wake_hints(policy == Policy::Hinted);
        let census = Census::<Sim>::default();
        let executor = match policy {
            Policy::Ours | Policy::Hinted => executor::nearq(placement, &census)?,
            Policy::Kernel => executor::kernel(placement, &census)?,
        };
        issuer::run(executor.into(), Arc::new(store), declared, census, &plan)
    })?;
    let Simulated { result, trace_hash, accesses } = outcome;
    Ok(Simulated { result: result?, trace_hash, accesses })
}

#[cfg(test)]
mod tests;
