//! `nearq bench blocking`: how long does a pool need for items that compute, of which some are blocked half-way?
//!
//! A pool of as many threads as CPUs stands still while its items sleep. A pool that notices this keeps the CPUs busy all the time, and
//! takes as long as the computing takes. This is the ideal, and every row is a ratio to it. How the block can be noticed depends on the way
//! in which an item is blocked: there are several ways, and each is measured with and without a hint.
//!
//! Every contestant is started for each of its rounds and is stopped before the next round begins. Rounds go through the list forwards and
//! backwards in turn. On a simulated machine the same code runs in virtual time, without the other pools, which are Linux programs.

pub mod detection;
mod load;
mod pools;
pub(crate) mod render;
mod targets;
mod ways;
pub(crate) mod work;

pub use load::Items;
pub use load::{BARE, Bare, ENOUGH, IDEAL};
pub use load::{Contestant, Plan, Pool, Sample, measure};
pub use pools::others;
pub use pools::{HINTED, PLAIN};
pub use targets::{Goal, judge};
pub use ways::{Block, Sleeps, Way};
pub use work::Sampler;
pub(crate) use work::{nanoseconds_per_round, rounds_for};

use crate::harness::options::{means_something, number, too_small, within};
use crate::harness::{self, Common, Experiment, Host as _, Run, simulate};
use crate::{Error, Machine, Progress};
use clap::Args;
use load::{measure_bare, measure_enough};
use nearq_platform::Linux;
use nearq_report::{Collector, Report, metric};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use pools::ours;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use ways::prepare;

/// The options of `blocking`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct BlockingOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many items a run has, 1 to 10000000; 40000 if not given. With --detection: how many blocks a round has
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub items: Option<usize>,

    /// How long an item computes, in microseconds, 1 to 1000000; 50 if not given
    #[arg(long, value_name = "US", value_parser = number, allow_negative_numbers = true)]
    pub item_us: Option<usize>,

    /// One item in N blocks; 32 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub every: Option<usize>,

    /// How long it blocks, in milliseconds, 1 to 10000; 20 if not given
    #[arg(long, value_name = "MS", value_parser = number, allow_negative_numbers = true)]
    pub sleep_ms: Option<usize>,

    /// How many workers and CPUs every pool has, from 1 to the CPUs of the machine; 2 if not given
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub workers: Option<usize>,

    /// Measure only one way of blocking: `sleep`, `futex`, `pipe` or `disk`
    #[arg(long, value_name = "WAY")]
    pub way: Option<String>,

    /// The folder for the file of 64 MiB that is read; the folder for temporary files if not given
    #[arg(long, value_name = "DIR")]
    pub folder: Option<PathBuf>,

    /// Leave the other pools out
    #[arg(long)]
    pub ours: bool,

    /// Measure instead how soon a blocked worker is noticed, and what that costs
    #[arg(long, conflicts_with_all = ["beside_simulated", "duration", "item_us", "every", "sleep_ms", "workers", "way", "folder", "ours"])]
    pub detection: bool,
}

/// Items of a run: by default, for a quick one, and at most.
const ITEMS: [usize; 3] = [40_000, 4_000, 10_000_000];
/// Microseconds that an item computes: the default and the maximum.
const ITEM_US: [usize; 2] = [50, 1_000_000];
/// The default: one item in this many is blocked.
const EVERY: usize = 32;
/// Milliseconds for which an item is blocked: the default and the maximum.
const SLEEP_MS: [usize; 2] = [20, 10_000];
/// The default number of workers, if there are as many CPUs.
const WORKERS: usize = 2;
/// Rounds: by default, and for a quick run.
const ROUNDS: [usize; 2] = [5, 2];
/// Each worker must compute this many times as long as a sleep for a ratio to be meaningful, because the last item that sleeps
/// adds to it.
const LEAST_SLEEPS: f64 = 5.0;
/// Virtual time that a simulated row may take, as a multiple of the time that its items take one after the other, sleeps included.
const SIMULATED_LIMIT: u32 = 4;

/// What is found besides the figures.
#[derive(Debug, Default)]
pub struct Found {
    nanoseconds_per_round: Option<f64>,
    /// How long a read of the disk takes.
    read_us: Option<f64>,
    left_out: Vec<(Way, String)>,
}

type Facts<'f> = harness::Facts<'f, BlockingOptions>;

impl Experiment for BlockingOptions {
    const NAME: &'static str = "blocking";
    /// What must be done, apart from the rounds of an item, and how often.
    type Plan = (Plan, usize);
    type Found = Found;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<Self::Plan, Error> {
        let reads = self.way.as_ref().is_none_or(|way| way == Way::Disk.name());
        means_something("--folder", self.folder.is_some(), reads, "--way disk")?;
        if self.common.duration.is_some() {
            return Err(Error::input(
                "--duration: a run lasts as long as its items; give --items, --item-us and --sleep-ms instead",
            ));
        }
        let quick = usize::from(self.common.quick);
        let cpus = machine.pods(AffinityScope::System).remove(0);
        let workers = self.workers.unwrap_or(WORKERS.min(cpus.len()));
        within("--workers", workers, 1, cpus.len())?;
        let items = within("--items", self.items.unwrap_or(ITEMS[quick]), 1, ITEMS[2])?;
        let item_us = within("--item-us", self.item_us.unwrap_or(ITEM_US[0]), 1, ITEM_US[1])?;
        let every = within("--every", self.every.unwrap_or(EVERY), 1, ITEMS[2])?;
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

    fn measure(&self, run: &mut Run<'_>, plan: &mut Self::Plan) -> Result<Found, Error> {
        let ways = match &self.way {
            None => Way::ALL.to_vec(),
            Some(name) => vec![Way::named(name)?],
        };
        match run.machine.model() {
            None => self.here(run, plan, &ways),
            Some(_) => self.simulated(run, plan, &ways),
        }
    }

    fn too_small(&self, machine: &Machine, plan: &Self::Plan) -> Result<Option<String>, Error> {
        let (plan, rounds) = plan;
        let sleeps = plan.sleep.as_secs_f64() * plan.workers as f64 * LEAST_SLEEPS;
        let items = [plan.items as f64, (sleeps / plan.item.as_secs_f64()).round()];
        Ok(too_small(machine, [*rounds, ROUNDS[1]], &[("--items", items)]))
    }

    fn judge(facts: &Facts<'_>) -> Vec<Goal> {
        if facts.too_small.is_some() { Vec::new() } else { judge(&facts.rows) }
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let ((plan, rounds), found) = (&facts.plan, &facts.found);
        let left_out =
            |(way, reason): &(Way, String)| json!({ "scenario": way.name(), "reason": reason });
        json!({
            "rounds": rounds,
            "items": plan.items,
            "item_us": plan.item.as_secs_f64() * 1e6,
            "every": plan.every,
            "sleep_ms": plan.sleep.as_secs_f64() * 1e3,
            "workers": plan.workers,
            "cpus": plan.cpus.to_list(),
            "loops_per_item": plan.rounds,
            "ns_per_loop": found.nanoseconds_per_round,
            "disk_read_us": found.read_us,
            "left_out": found.left_out.iter().map(left_out).collect::<Vec<_>>(),
            "targets": facts.verdict,
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// Runs the experiment.
pub fn blocking(options: &BlockingOptions, progress: &Progress) -> Result<Report, Error> {
    if options.detection {
        return harness::run(&detection::Detection(options), progress);
    }
    harness::run(options, progress)
}

/// What is measured in a round.
#[derive(Clone, Copy)]
enum Turn {
    /// A pool, by its position in the list.
    Pool(usize),
    /// Threads that compute and sleep.
    Enough,
    /// Threads that only compute.
    Bare,
}

/// Measures each contestant once, and the ideal. `measure` returns a sample, and for bare threads also the ideal.
fn one_round(
    run: &mut Run<'_>,
    way: Way,
    (plan, round): (&Plan, usize),
    pools: &[&'static str],
    what: &str,
    measure: impl Fn(Turn) -> Result<Bare, Error>,
) -> Result<(), Error> {
    let turn = |(turn, row): (Turn, &'static str)| {
        run.step(format!("{what}{row}"), || Ok((row, measure(turn)?)))
    };
    let numbered: Vec<(usize, &'static str)> = pools.iter().copied().enumerate().collect();
    let one = |(_, row): &(usize, &str)| format!("{what}{row}");
    let mut samples =
        run.round(round, &numbered, one, |&(at, row)| Ok((row, measure(Turn::Pool(at))?)))?;
    samples.push(turn((Turn::Enough, ENOUGH))?);
    samples.push(turn((Turn::Bare, BARE))?);
    let (_, Bare { ideal, .. }) = samples[samples.len() - 1];
    let sample = Sample { elapsed: ideal, cpu: None, threads: None, switches: None };
    samples.push((IDEAL, Bare { sample, ideal }));
    for (row, Bare { sample, .. }) in samples {
        collect(&mut run.figures, way.name(), row, &sample, ideal, plan.workers);
    }
    Ok(())
}

impl BlockingOptions {
    /// On the real machine.
    fn here(
        &self,
        run: &mut Run<'_>,
        (plan, rounds): &mut (Plan, usize),
        ways: &[Way],
    ) -> Result<Found, Error> {
        let per_round = Linux::confined(&plan.cpus, || nanoseconds_per_round(&plan.cpus))?;
        plan.rounds = rounds_for(plan.item, per_round.median);
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let mut contestants = vec![ours(false), ours(true)];
        if !self.ours {
            contestants.extend(others());
        }
        let of_way = |way: Way| -> Vec<&Contestant<Linux>> {
            contestants.iter().filter(|one| way == ways[0] || one.always).collect()
        };
        run.begin(*rounds * ways.iter().map(|&way| 2 + of_way(way).len()).sum::<usize>());
        let nanoseconds_per_round = Some(per_round.median);
        let mut found = Found { nanoseconds_per_round, ..Found::default() };
        for &way in ways {
            let (block, read_us) = match prepare(way, plan.sleep, &folder)? {
                Ok(prepared) => prepared,
                Err(reason) => {
                    found.left_out.push((way, reason));
                    continue;
                }
            };
            found.read_us = found.read_us.or(read_us);
            let taking_part = of_way(way);
            let rows: Vec<&str> = taking_part.iter().map(|contestant| contestant.row).collect();
            for round in 0..*rounds {
                let what = format!("{}, round {}: ", way.name(), round + 1);
                one_round(run, way, (plan, round), &rows, &what, |turn| match turn {
                    Turn::Pool(at) => measure(taking_part[at], plan, &block).map(Bare::without),
                    Turn::Enough => measure_enough::<Linux>(plan, &block).map(Bare::without),
                    Turn::Bare => measure_bare::<Linux>(plan),
                })?;
            }
        }
        Ok(found)
    }

    /// On a simulated machine.
    fn simulated(
        &self,
        run: &mut Run<'_>,
        (plan, rounds): &(Plan, usize),
        ways: &[Way],
    ) -> Result<Found, Error> {
        if ways != [Way::Sleep] && self.way.is_some() || self.folder.is_some() {
            return Err(Error::input(
                "--way, --folder: on a simulated machine items only sleep: it has no pipes and no disk; leave the options out",
            ));
        }
        run.begin(rounds * 4);
        let machine = run.machine;
        for round in 0..*rounds {
            let what = format!("seed {round}, ");
            one_round(run, Way::Sleep, (plan, round), &[PLAIN, HINTED], &what, |turn| {
                let sleeps =
                    |plan: &Plan| -> Arc<dyn Block> { Arc::new(Sleeps::<Sim>::new(plan.sleep)) };
                let plan_of_run = plan.clone();
                let body = move || match turn {
                    Turn::Pool(at) => {
                        let block = sleeps(&plan_of_run);
                        measure::<Sim>(&ours(at == 1), &plan_of_run, &block).map(Bare::without)
                    }
                    Turn::Enough => measure_enough::<Sim>(&plan_of_run, &sleeps(&plan_of_run))
                        .map(Bare::without),
                    Turn::Bare => measure_bare::<Sim>(&plan_of_run),
                };
                simulate(machine, round as u64, limit(plan), body)?.result
            })?;
        }
        Ok(Found::default())
    }
}

/// Adds the figures of a row.
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

/// Virtual time after which a simulated row counts as failed.
fn limit(plan: &Plan) -> Duration {
    let sleeps = plan.sleep * (plan.items / plan.every + 1) as u32;
    (plan.item * plan.items as u32 + sleeps) * SIMULATED_LIMIT
}

#[cfg(test)]
mod tests;
