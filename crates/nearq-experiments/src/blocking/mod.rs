//! `nearq bench blocking`: items that compute, of which some are blocked half-way: how long until all is done?
//!
//! A pool of as many threads as CPUs stands still while its items sleep. One that notices has the CPUs busy all the time,
//! and takes as long as the computing takes; that is the ideal, and every row is a ratio to it. How an item is blocked
//! makes a difference to who must notice: there are several ways, and each of them with and without a hint.
//!
//! Every contestant is started for each of its rounds and is gone before the next one begins. Rounds go through the list
//! forwards and backwards in turn. On a simulated machine the same code runs in virtual time, without the other
//! pools, which are Linux programs.

mod alarm;
mod bare;
mod contestant;
pub mod detection;
mod disk;
mod items;
mod others;
mod ours;
pub(crate) mod render;
mod stage;
mod targets;
mod threads;
mod ways;
mod work;

pub use bare::{BARE, Bare, ENOUGH, IDEAL};
pub use contestant::{Contestant, Plan, Pool, Sample, measure};
pub use items::Items;
pub use others::others;
pub use ours::{HINTED, PLAIN};
pub use stage::Stage;
pub use targets::{Goal, judge};
pub use threads::Sampler;
pub use ways::{Block, Sleeps, Way};
pub(crate) use work::{nanoseconds_per_round, rounds_for};

use crate::options::{Common, too_small, with_reason, within};
use crate::simulated::simulate;
use crate::{Error, Machine, Progress};
use nearq_platform::Linux;
use nearq_report::{Collector, Environment, Report, Row, Watch, metric};
use nearq_sim::Sim;
use nearq_topology::Scope;
use ours::Nearq;
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ways::{Blocked, prepare};

/// What `blocking` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BlockingOptions {
    /// What every experiment can be told; a run lasts as long as its items do, so `duration` is refused.
    pub common: Common,
    /// Items of a run.
    pub items: Option<usize>,
    /// What one computes, in microseconds.
    pub item_us: Option<usize>,
    /// One item in so many is blocked.
    pub every: Option<usize>,
    /// For so long, in milliseconds.
    pub sleep_ms: Option<usize>,
    /// Workers, and CPUs.
    pub workers: Option<usize>,
    /// The one way in which items are blocked; all of them if not set.
    pub way: Option<String>,
    /// Where the file is made that is read.
    pub folder: Option<PathBuf>,
    /// Leave the other pools out.
    pub ours: bool,
    /// How soon a blocked worker is noticed, instead of all that.
    pub detection: bool,
}

/// Items of a run: by default, for a quick one, and at most.
const ITEMS: [usize; 3] = [40_000, 4_000, 10_000_000];
/// Microseconds that an item computes, if not set and at most.
const ITEM_US: [usize; 2] = [50, 1_000_000];
/// One item in so many is blocked.
const EVERY: usize = 32;
/// Milliseconds for which it is blocked, if not set and at most.
const SLEEP_MS: [usize; 2] = [20, 10_000];
/// Workers, if not set and where there are as many CPUs.
const WORKERS: usize = 2;
/// Rounds: by default, and for a quick run.
const ROUNDS: [usize; 2] = [5, 2];
/// So many times as long as a sleep each worker must compute for a ratio to mean something: the last item that sleeps adds to it.
const LEAST_SLEEPS: f64 = 5.0;
/// Virtual time that a simulated row may take, in times what its items take one after the other, sleeps included.
const SIMULATED_LIMIT: u32 = 4;

impl BlockingOptions {
    /// What is to be done, but for the rounds of an item, and how often.
    fn plan(&self, machine: &Machine) -> Result<(Plan, usize), Error> {
        self.common.check()?;
        if self.common.duration.is_some() {
            return Err(Error::input(
                "--duration: a run lasts as long as its items; give --items, --item-us and --sleep-ms",
            ));
        }
        let quick = usize::from(self.common.quick);
        let cpus = machine.pods(Scope::System).remove(0);
        let workers = self.workers.unwrap_or(WORKERS.min(cpus.len()));
        within("--workers", workers, 1, cpus.len())?;
        let items = self.items.unwrap_or(ITEMS[quick]);
        within("--items", items, 1, ITEMS[2])?;
        let item_us = self.item_us.unwrap_or(ITEM_US[0]);
        within("--item-us", item_us, 1, ITEM_US[1])?;
        let every = self.every.unwrap_or(EVERY);
        within("--every", every, 1, ITEMS[2])?;
        let sleep_ms = self.sleep_ms.unwrap_or(SLEEP_MS[0]);
        within("--sleep-ms", sleep_ms, 1, SLEEP_MS[1])?;
        let item = Duration::from_micros(item_us as u64);
        let plan = Plan {
            items,
            item,
            // A simulated round is a nanosecond; on Linux it is measured.
            rounds: item.as_nanos() as u64,
            every,
            sleep: Duration::from_millis(sleep_ms as u64),
            workers,
            cpus: cpus.iter().take(workers).collect(),
        };
        Ok((plan, self.common.runs.unwrap_or(ROUNDS[quick])))
    }

    /// The ways that were asked for.
    fn ways(&self) -> Result<Vec<Way>, Error> {
        match &self.way {
            None => Ok(Way::ALL.to_vec()),
            Some(name) => Ok(vec![Way::named(name)?]),
        }
    }
}

impl Plan {
    /// Why so many rounds of it are not judged, if that is too small.
    fn too_small(&self, machine: &Machine, rounds: usize) -> Option<String> {
        let sleeps = self.sleep.as_secs_f64() * self.workers as f64 * LEAST_SLEEPS;
        let items = [self.items as f64, (sleeps / self.item.as_secs_f64()).round()];
        too_small(machine, [rounds, ROUNDS[1]], &[("--items", items)])
    }
}

/// What the tables are made from, beside the rows.
struct Facts<'f> {
    plan: &'f Plan,
    model: Option<&'f nearq_sim::Machine>,
    rounds: usize,
    nanoseconds_per_round: Option<f64>,
    read_us: Option<f64>,
    left_out: &'f [(Way, String)],
    goals: &'f [Goal],
    /// Why nothing is judged, if that is so.
    too_small: Option<String>,
    /// Whether the goals are shown.
    show_goals: bool,
}

impl Facts<'_> {
    /// The report of these rows, on that machine.
    fn report(
        &self,
        options: &BlockingOptions,
        machine: &str,
        rows: Vec<Row>,
        environment: Environment,
    ) -> Report {
        let mut report = Report {
            experiment: "blocking",
            machine: machine.to_owned(),
            parameters: self.parameters(options),
            text: self.text(&rows, &environment),
            environment,
            rows,
            svg: String::new(),
        };
        report.svg = render::picture(&report);
        report
    }
}

/// Runs the experiment.
pub fn blocking(options: &BlockingOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = options.common.on()?;
    let result = match (options.detection, machine.model()) {
        (true, _) => detection::detection(options, &machine, progress),
        (false, None) => here(options, &machine, progress),
        (false, Some(_)) => simulated(options, &machine, progress),
    };
    progress.end();
    result
}

/// On the real machine.
fn here(
    options: &BlockingOptions,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    let (mut plan, rounds) = options.plan(machine)?;
    let ways = options.ways()?;
    let per_round = Linux::confined(&plan.cpus, || work::nanoseconds_per_round(&plan.cpus))?;
    plan.rounds = work::rounds_for(plan.item, per_round.median);
    let folder = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let mut contestants: Vec<Box<dyn Contestant<Linux> + Sync>> =
        vec![Box::new(Nearq { hints: false }), Box::new(Nearq { hints: true })];
    if !options.ours {
        contestants.extend(others());
    }

    let watch = Watch::start(machine.parallelism());
    let mut collector = Collector::default();
    let (mut left_out, mut read_us) = (Vec::new(), None);
    let first = ways[0];
    let takes_part = |way, contestant: &dyn Contestant<Linux>| way == first || contestant.always();
    let steps = |&way: &Way| {
        2 + contestants.iter().filter(|contestant| takes_part(way, &***contestant)).count()
    };
    progress.begin(rounds * ways.iter().map(steps).sum::<usize>());
    for way in ways {
        let blocked = match prepare(way, plan.sleep, &folder)? {
            Ok(blocked) => blocked,
            Err(reason) => {
                left_out.push((way, reason));
                continue;
            }
        };
        read_us = read_us.or(blocked.read_us);
        let taking_part: Vec<&(dyn Contestant<Linux> + Sync)> = contestants
            .iter()
            .map(|contestant| &**contestant)
            .filter(|contestant| takes_part(way, *contestant))
            .collect();
        for round in 0..rounds {
            one_round(&mut collector, &taking_part, &plan, &blocked, round, progress)?;
        }
    }
    let rows = collector.rows();
    let too_small = plan.too_small(machine, rounds);
    let goals = if too_small.is_some() { Vec::new() } else { judge(&rows) };
    let environment = watch.finish();
    let facts = Facts {
        plan: &plan,
        model: None,
        rounds,
        nanoseconds_per_round: Some(per_round.median),
        read_us,
        left_out: &left_out,
        goals: &goals,
        too_small,
        show_goals: options.common.goals,
    };
    Ok(facts.report(options, machine.name(), rows, environment))
}

/// Everybody once, and the ideal.
fn one_round(
    collector: &mut Collector,
    taking_part: &[&(dyn Contestant<Linux> + Sync)],
    plan: &Plan,
    blocked: &Blocked,
    round: usize,
    progress: &Progress,
) -> Result<(), Error> {
    let scenario = blocked.way.name();
    let mut samples = Vec::new();
    let mut measure_one = |contestant: &&(dyn Contestant<Linux> + Sync)| {
        progress.step(format!("{scenario}, round {}: {}", round + 1, contestant.row()));
        samples.push((contestant.row(), measure(*contestant, plan, &blocked.block)?));
        progress.done();
        Ok::<(), Error>(())
    };
    if round.is_multiple_of(2) {
        taking_part.iter().try_for_each(&mut measure_one)?;
    } else {
        taking_part.iter().rev().try_for_each(&mut measure_one)?;
        // In the order of the tables, whatever the order of the measurements.
        samples.reverse();
    }
    progress.step(format!("{scenario}, round {}: {ENOUGH}", round + 1));
    samples.push((ENOUGH, bare::measure_enough::<Linux>(plan, &blocked.block)?));
    progress.done();
    progress.step(format!("{scenario}, round {}: {BARE}", round + 1));
    let bare = bare::measure::<Linux>(plan)?;
    progress.done();
    samples.push((BARE, bare.sample));
    for (row, sample) in samples {
        collect(collector, scenario, row, &sample, bare.ideal, plan.workers);
    }
    let ideal = Sample { elapsed: bare.ideal, cpu: None, threads: None, switches: None };
    collect(collector, scenario, IDEAL, &ideal, bare.ideal, plan.workers);
    Ok(())
}

fn collect(
    collector: &mut Collector,
    scenario: &str,
    row: &str,
    sample: &Sample,
    ideal: Duration,
    cpus: usize,
) {
    let mut add = |metric, value| collector.add(scenario, row, metric, value);
    let elapsed = sample.elapsed.as_secs_f64();
    add(metric::ELAPSED, elapsed);
    add(metric::RATIO, elapsed / ideal.as_secs_f64());
    if let Some(cpu) = sample.cpu {
        add(metric::CPU_SECONDS, cpu.as_secs_f64());
        add(metric::CPU_PERCENT, cpu.as_secs_f64() / elapsed / cpus as f64 * 100.0);
    }
    if let Some(threads) = sample.threads {
        add(metric::THREADS, threads as f64);
    }
    if let Some(switches) = sample.switches {
        add(metric::SWITCHES, switches as f64);
    }
}

/// On a simulated machine.
fn simulated(
    options: &BlockingOptions,
    machine: &Machine,
    progress: &Progress,
) -> Result<Report, Error> {
    let (plan, rounds) = options.plan(machine)?;
    if options.ways()? != [Way::Sleep] && options.way.is_some() || options.folder.is_some() {
        return Err(Error::input(
            "--way, --folder: on a simulated machine items sleep; there are no pipes and no disk",
        ));
    }
    let mut collector = Collector::default();
    progress.begin(rounds * 4);
    for round in 0..rounds {
        progress.step(format!("seed {round}, {BARE}"));
        let bare = simulated_bare(machine, &plan, round as u64)?;
        progress.done();
        let mut add = |row, sample: &Sample| {
            collect(&mut collector, Way::Sleep.name(), row, sample, bare.ideal, plan.workers);
        };
        for (row, hints) in [(PLAIN, false), (HINTED, true)] {
            progress.step(format!("seed {round}, {row}"));
            add(row, &simulated_run(machine, hints, &plan, round as u64)?);
            progress.done();
        }
        progress.step(format!("seed {round}, {ENOUGH}"));
        add(ENOUGH, &simulated_enough(machine, &plan, round as u64)?);
        progress.done();
        add(BARE, &bare.sample);
        add(IDEAL, &Sample { elapsed: bare.ideal, cpu: None, threads: None, switches: None });
    }
    let rows = collector.rows();
    let too_small = plan.too_small(machine, rounds);
    let goals = if too_small.is_some() { Vec::new() } else { judge(&rows) };
    let model = machine.model();
    let about = model.map_or("", |model| model.about());
    let environment = Environment::simulated(about, machine.parallelism());
    let facts = Facts {
        plan: &plan,
        model,
        rounds,
        nanoseconds_per_round: None,
        read_us: None,
        left_out: &[],
        goals: &goals,
        too_small,
        show_goals: options.common.goals,
    };
    Ok(facts.report(options, machine.name(), rows, environment))
}

/// One run of ours on a fresh simulated machine.
pub fn simulated_run(
    machine: &Machine,
    hints: bool,
    plan: &Plan,
    seed: u64,
) -> Result<Sample, Error> {
    let plan = plan.clone();
    let ended = simulate(machine, seed, limit(&plan), move || {
        let block: Arc<dyn Block> = Arc::new(Sleeps::<Sim>::new(plan.sleep));
        measure::<Sim>(&Nearq { hints }, &plan, &block)
    })?;
    ended.result
}

/// Threads that compute and sleep on a fresh simulated machine.
fn simulated_enough(machine: &Machine, plan: &Plan, seed: u64) -> Result<Sample, Error> {
    let plan = plan.clone();
    let ended = simulate(machine, seed, limit(&plan), move || {
        let block: Arc<dyn Block> = Arc::new(Sleeps::<Sim>::new(plan.sleep));
        bare::measure_enough::<Sim>(&plan, &block)
    })?;
    ended.result
}

/// The computing alone on a fresh simulated machine.
fn simulated_bare(machine: &Machine, plan: &Plan, seed: u64) -> Result<Bare, Error> {
    let plan = plan.clone();
    simulate(machine, seed, limit(&plan), move || bare::measure::<Sim>(&plan))?.result
}

/// Virtual time after which a simulated row has gone wrong.
fn limit(plan: &Plan) -> Duration {
    let sleeps = plan.sleep * (plan.items / plan.every + 1) as u32;
    (plan.item * plan.items as u32 + sleeps) * SIMULATED_LIMIT
}

impl Facts<'_> {
    fn parameters(&self, options: &BlockingOptions) -> serde_json::Value {
        let left_out: Vec<_> = self
            .left_out
            .iter()
            .map(|(way, reason)| json!({ "scenario": way.name(), "reason": reason }))
            .collect();
        let parameters = json!({
            "quick": options.common.quick,
            "rounds": self.rounds,
            "items": self.plan.items,
            "item_us": self.plan.item.as_secs_f64() * 1e6,
            "every": self.plan.every,
            "sleep_ms": self.plan.sleep.as_secs_f64() * 1e3,
            "workers": self.plan.workers,
            "cpus": self.plan.cpus.to_list(),
            "loops_per_item": self.plan.rounds,
            "ns_per_loop": self.nanoseconds_per_round,
            "disk_read_us": self.read_us,
            "left_out": left_out,
            "targets": self.goals,
        });
        with_reason(parameters, self.too_small.as_deref())
    }
}

#[cfg(test)]
mod tests;
