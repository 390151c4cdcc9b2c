//! `nearq bench dispatch`: how much it costs to run an item, and how soon it starts, compared with other pools in the same run; and the
//! same for each scope, with an issuer on each CPU.
//!
//! Every contestant has as many threads as there are usable CPUs. It is started for each of its rounds, and is stopped before the next
//! round begins. Rounds go through the list forwards and backwards in turn, so that a machine that slows down or speeds up favours no
//! contestant. Figures are medians over the rounds.
//!
//! On a simulated machine the same code runs in virtual time, each round has a seed of its own, and each of its rows a fresh machine. The
//! other pools are Linux programs and do not take part on simulated machines.

mod contestant;
mod gauge;
mod kernel;
mod load;
pub(crate) mod render;
pub(crate) mod targets;

pub use contestant::{Closures, Contestant, Load, Plan, peers};
pub use gauge::{Gauge, Latency, PROBES};
pub use load::issuers;
pub use load::{Feed, IN_FLIGHT, Sample, flood, idle};
pub use targets::{Goal, KernelRate, Shards, judge, judge_kernel, judge_shards};
pub use targets::{Published, published};

use crate::harness::options::{number, too_small, within};
use crate::harness::{self, Common, Experiment, Host, Run, simulate};
use crate::kernel_queue::Counting;
use crate::{Error, Machine};
use clap::Args;
use contestant::Requeue;
use kernel::KernelIssuers;
use load::OUTSIDE_THREADS;
use nearq_platform::Linux;
use nearq_report::{Collector, find, metric};
use nearq_sim::Sim;
use nearq_topology::AffinityScope;
use serde::Serialize;
use serde_json::{Value, json};
use std::rc::Rc;
use std::time::Duration;

/// The options of `dispatch`.
#[derive(Args, Clone, Debug, Default, PartialEq)]
pub struct DispatchOptions {
    #[command(flatten)]
    #[expect(missing_docs, reason = "it would stand in the command's help")]
    pub common: Common,

    /// How many single items an idle round has, 1 to 100000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub idle_samples: Option<usize>,

    /// How many items each issuer queues in the part with an issuer on each CPU, 1 to 1000000; the kernel's test_workqueue has 50000. Each
    /// of 64 outside threads spawns half as many closures, at most 10000
    #[arg(long, value_name = "N", value_parser = number, allow_negative_numbers = true)]
    pub items: Option<usize>,
}

/// The gap between two single items.
const GAP: Duration = Duration::from_millis(5);
/// The time before each flood that is not counted.
const WARM_UP: Duration = Duration::from_millis(10);
/// Most single items of an idle round.
const MOST_IDLE: usize = 100_000;
/// Most items of each issuer.
const MOST_ITEMS: usize = 1_000_000;
/// Most closures of each of many outside threads: nothing limits how many wait at once, and each takes memory.
const MOST_CLOSURES: usize = 10_000;
/// Items of each issuer, fewest and most, on a simulated machine.
const SIMULATED_ITEMS: (usize, usize) = (50, 2_000);
/// The virtual time, beyond that of its flood, after which a simulated row counts as stuck.
const SIMULATED_LIMIT: Duration = Duration::from_mins(1);

/// What a run yields besides the figures.
#[derive(Debug)]
pub struct Found {
    /// The rows of the other pools.
    peers: Vec<(Load, &'static str)>,
    /// What reading the clock costs.
    clock_ns: f64,
    /// Further checks on a simulated machine.
    checks: Option<Checks>,
}

type Facts<'f> = harness::Facts<'f, DispatchOptions>;

impl Experiment for DispatchOptions {
    const NAME: &'static str = "dispatch";
    /// How long and how often, and in how many rounds.
    type Plan = (Plan, usize);
    type Found = Found;
    type Verdict = (Vec<Goal>, Option<Shards>, Vec<KernelRate>);

    fn common(&self) -> &Common {
        &self.common
    }

    fn plan(&self, machine: &Machine) -> Result<(Plan, usize), Error> {
        let (quick, cpus) = (self.common.quick, machine.pods(AffinityScope::System).remove(0));
        let (rounds, duration, samples, items) = if machine.model().is_some() {
            // Each simulated item takes real time, so on more CPUs each issuer queues fewer.
            let (rounds, total) = if quick { (2, 15_000) } else { (5, 60_000) };
            let (fewest, most) = SIMULATED_ITEMS;
            (rounds, Duration::from_millis(2), 50, (total / cpus.len()).clamp(fewest, most))
        } else if quick {
            (3, Duration::from_millis(80), 100, 5_000)
        } else {
            (7, Duration::from_millis(300), 200, 20_000)
        };
        let samples = self.idle_samples.unwrap_or(samples);
        let duration = self.common.duration.unwrap_or(duration);
        let items = within("--items", self.items.unwrap_or(items), 1, MOST_ITEMS)?;
        let plan = Plan {
            threads: machine.parallelism(),
            cpus,
            idle_samples: within("--idle-samples", samples, 1, MOST_IDLE)?,
            items,
            closures: items.div_ceil(2).min(MOST_CLOSURES),
            duration,
            warm_up: WARM_UP.min(duration),
            gap: GAP,
        };
        Ok((plan, self.common.runs.unwrap_or(rounds)))
    }

    fn measure(&self, run: &mut Run<'_>, plan: &mut Self::Plan) -> Result<Found, Error> {
        let machine = run.machine;
        let Some(model) = machine.model() else {
            let mut contestants = contestant::contestants::<Linux>(machine);
            contestants.extend(peers());
            let gauge = Gauge::leak(plan.0.cpus.last().map_or(1, |last| last + 1));
            let measure = |contestant: &Rc<dyn Contestant<Linux>>, load, _| {
                contestant.measure(load, &plan.0, gauge)
            };
            let peers = rounds(run, &contestants, plan, 0, measure)?;
            return Ok(Found { peers, clock_ns: Gauge::<Linux>::clock_ns(), checks: None });
        };
        let measure = |contestant: &Rc<dyn Contestant<Sim>>, load, round| {
            Ok(simulated(machine, contestant, load, &plan.0, round as u64)?.0)
        };
        let mut contestants = contestant::contestants::<Sim>(machine);
        contestants.extend(kernel::contestants(machine));
        let peers = rounds(run, &contestants, plan, Checks::steps(machine), measure)?;
        let checks = Some(Checks::run(run, &plan.0)?);
        Ok(Found { peers, clock_ns: model.costs().clock as f64, checks })
    }

    fn too_small(&self, machine: &Machine, plan: &Self::Plan) -> Result<Option<String>, Error> {
        let common = self.common.of_a_quick_run();
        let least = Self { common, ..Self::default() }.plan(machine)?;
        let of = |size: fn(&Plan) -> f64| [plan, &least].map(|(plan, _)| size(plan));
        let sizes = [
            ("--duration", of(|plan| plan.duration.as_secs_f64())),
            ("--idle-samples", of(|plan| plan.idle_samples as f64)),
            ("--items", of(|plan| plan.items as f64)),
        ];
        Ok(too_small(machine, [plan.1, least.1], &sizes))
    }

    fn judge(facts: &Facts<'_>) -> Self::Verdict {
        let shards = judge_shards(&facts.rows, facts.machine);
        let kernel = judge_kernel(&facts.rows, facts.machine);
        if facts.too_small.is_some() {
            return (Vec::new(), shards.map(|shards| Shards { met: None, ..shards }), kernel);
        }
        (judge(&facts.rows, &facts.found.peers), shards, kernel)
    }

    fn parameters(facts: &Facts<'_>) -> Value {
        let (plan, rounds) = &facts.plan;
        json!({
            "rounds": rounds,
            "threads": plan.threads,
            "in_flight": IN_FLIGHT,
            "duration_s": plan.duration.as_secs_f64(),
            "items_per_issuer": plan.items,
            "outside_threads": OUTSIDE_THREADS,
            "closures_per_outside_thread": plan.closures,
            "idle_samples": plan.idle_samples,
            "idle_gap_ms": plan.gap.as_secs_f64() * 1000.0,
            "clock_ns": facts.found.clock_ns,
            "targets": facts.verdict.0,
            "shards": facts.verdict.1,
            "kernel": facts.verdict.2,
            "checks": facts.found.checks,
        })
    }

    fn text(facts: &Facts<'_>) -> String {
        render::text(facts)
    }
}

/// Measures every row in every round, followed by `others` other steps. Returns the rows of the other pools.
fn rounds<P: Host>(
    run: &mut Run<'_>,
    contestants: &[Rc<dyn Contestant<P>>],
    (plan, rounds): &(Plan, usize),
    others: usize,
    measure: impl Fn(&Rc<dyn Contestant<P>>, Load, usize) -> Result<Sample, Error>,
) -> Result<Vec<(Load, &'static str)>, Error> {
    let rows =
        |load: Load| contestants.iter().filter_map(move |one| Some((load, one.row(load)?, one)));
    let order: Vec<(Load, &'static str, &Rc<dyn Contestant<P>>)> =
        Load::ALL.into_iter().flat_map(rows).collect();
    run.begin(rounds * order.len() + others);
    let same = coinciding(run.machine);
    for round in 0..*rounds {
        let what = |(load, row, _): &(Load, &str, _)| {
            format!("round {} of {rounds}, {}: {row}", round + 1, load.name())
        };
        let samples = run.round(round, &order, what, |&(load, _, contestant)| {
            measure(contestant, load, round)
        })?;
        for (&(load, row, _), sample) in order.iter().zip(&samples) {
            collect(&mut run.figures, load, row, sample, plan.threads);
            for (scope, as_scope) in &same {
                if load.has_issuers() && as_scope.name() == row {
                    collect(&mut run.figures, load, scope.name(), sample, plan.threads);
                }
            }
        }
    }
    publish(&mut run.figures, run.machine.name());
    let peers = order.iter().filter(|(_, _, contestant)| !contestant.ours());
    Ok(peers.map(|&(load, row, _)| (load, row)).collect())
}

/// Measures one row on a fresh machine with a seed; also the hash of what happened.
fn simulated(
    machine: &Machine,
    contestant: &Rc<dyn Contestant<Sim>>,
    load: Load,
    plan: &Plan,
    seed: u64,
) -> Result<(Sample, u64), Error> {
    let (contestant, plan) = (Rc::clone(contestant), plan.clone());
    let limit = SIMULATED_LIMIT + plan.duration;
    let within = if load == Load::Kernel { kernel::within(machine) } else { machine.clone() };
    let ended = simulate(&within, seed, limit, move || {
        let numbers = plan.cpus.last().map_or(1, |last| last + 1);
        contestant.measure(load, &plan, Gauge::leak(numbers))
    })?;
    Ok((ended.result?, ended.trace_hash))
}

/// The load `issuers` with one scope on a simulated machine, for code that varies other parameters.
pub(crate) fn simulated_issuers(
    machine: &Machine,
    scope: AffinityScope,
    items: usize,
    seed: u64,
) -> Result<(Sample, u64), Error> {
    let (plan, _) = DispatchOptions::default().plan(machine)?;
    let contestant: Rc<dyn Contestant<Sim>> = Rc::new(Requeue { scope: Some(scope) });
    simulated(machine, &contestant, Load::Issuers, &Plan { items, ..plan }, seed)
}

/// The rates with shards and with one pool for each cache, when lines move at another cost under a cache.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct LineCost {
    /// The cost of a line from another core under the same cache, in percent of the machine's.
    percent: u64,
    /// Items per second under `cache_shard`.
    cache_shard: f64,
    /// Items per second under `cache`.
    cache: f64,
}

/// Further checks on a simulated machine: how the result depends on the number of items and on other parameters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Checks {
    /// By how much the rate of a scope changes at most with half as many items, in percent.
    half_the_items_percent: f64,
    /// The rates at other costs of a line, if shards differ from whole caches.
    line_costs: Vec<LineCost>,
    /// Items per second of the kernel with a pool for each CPU if it counted active items by one addition.
    kernel_by_addition: Option<f64>,
    /// The kernel's rates where a CPU keeps a line for a while, if rates were published for the machine.
    captures: Vec<Capture>,
}

/// The rate of the kernel with a scope where a CPU keeps a line for some nanoseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
struct Capture {
    /// For how long: the machine's `capture`.
    nanoseconds: u64,
    scope: &'static str,
    /// The rate as a multiple of the published one.
    ratio: f64,
}

/// Captures that are tried, in nanoseconds: stated round inputs.
const CAPTURES: [u64; 3] = [10, 20, 40];
/// The scopes whose rates are shown then.
const CAPTURED: [AffinityScope; 3] =
    [AffinityScope::Cpu, AffinityScope::CacheShard, AffinityScope::Cache];

/// Costs of a line that are tried, in percent.
const LINE_COSTS: [u64; 3] = [50, 100, 200];

impl Checks {
    /// How many simulations they need.
    fn steps(machine: &Machine) -> usize {
        let shards = if targets::has_shards(machine) { 2 * LINE_COSTS.len() } else { 0 };
        let captures = Self::captured(machine).len() * CAPTURES.len();
        machine.model().map_or(0, |_| distinct_scopes(machine).len() + shards + 1 + captures)
    }

    fn run(run: &Run<'_>, plan: &Plan) -> Result<Self, Error> {
        let (machine, rows) = (run.machine, run.figures.rows());
        let rate = |machine: &Machine, scope: AffinityScope, items: usize| {
            run.step(format!("what the rates hang on: {scope}"), || {
                let (sample, _) = simulated_issuers(machine, scope, items, 0)?;
                Ok(sample.ns_per_item.map_or(f64::NAN, |ns| 1e9 / ns))
            })
        };
        let mut half_the_items_percent = 0.0_f64;
        for scope in distinct_scopes(machine) {
            let row = find(&rows, Load::Issuers.name(), scope.name(), metric::ITEMS_PER_SECOND);
            let whole = row.map_or(f64::NAN, |row| row.summary.median);
            let change = rate(machine, scope, (plan.items / 2).max(1))? / whole - 1.0;
            half_the_items_percent = half_the_items_percent.max(change.abs() * 100.0);
        }
        let mut line_costs = Vec::new();
        let model = machine.model().filter(|_| targets::has_shards(machine));
        for percent in LINE_COSTS {
            let scaled = model.and_then(|model| {
                Some(model.clone().with_costs(model.costs().scaled("same_llc", percent)?))
            });
            if let Some(scaled) = scaled.map(Machine::simulated) {
                let cache_shard = rate(&scaled, AffinityScope::CacheShard, plan.items)?;
                let cache = rate(&scaled, AffinityScope::Cache, plan.items)?;
                line_costs.push(LineCost { percent, cache_shard, cache });
            }
        }
        let scope = distinct_scopes(machine)[0];
        let addition: Rc<dyn Contestant<Sim>> =
            Rc::new(KernelIssuers { scope, counting: Counting::Addition });
        let kernel_by_addition = run.step("the kernel, counting by addition".into(), || {
            let (sample, _) = simulated(machine, &addition, Load::Kernel, plan, 0)?;
            Ok(sample.ns_per_item.map(|ns| 1e9 / ns))
        })?;
        let captures = Self::captures(run, plan)?;
        Ok(Self { half_the_items_percent, line_costs, kernel_by_addition, captures })
    }

    /// The scopes for which rates of the kernel were published, and these rates.
    fn captured(machine: &Machine) -> Vec<(AffinityScope, f64)> {
        let rate = |scope| Some((scope, published(machine.name(), scope)?.items_per_second));
        CAPTURED.into_iter().filter_map(rate).collect()
    }

    fn captures(run: &Run<'_>, plan: &Plan) -> Result<Vec<Capture>, Error> {
        let scopes = Self::captured(run.machine);
        let Some(model) = run.machine.model().filter(|_| !scopes.is_empty()) else {
            return Ok(Vec::new());
        };
        let mut captures = Vec::new();
        for nanoseconds in CAPTURES {
            let mut costs = *model.costs();
            costs.capture = nanoseconds;
            let machine = Machine::simulated(model.clone().with_costs(costs));
            for &(scope, published) in &scopes {
                let counting = Counting::CompareExchange;
                let kernel: Rc<dyn Contestant<Sim>> = Rc::new(KernelIssuers { scope, counting });
                captures.push(run.step(
                    format!("the kernel where lines are kept: {scope}"),
                    || {
                        let (sample, _) = simulated(&machine, &kernel, Load::Kernel, plan, 0)?;
                        let rate = sample.ns_per_item.map_or(f64::NAN, |ns| 1e9 / ns);
                        Ok(Capture { nanoseconds, scope: scope.name(), ratio: rate / published })
                    },
                )?);
            }
        }
        Ok(captures)
    }
}

/// Adds the published figures of that machine.
fn publish(collector: &mut Collector, machine: &str) {
    for &scope in AffinityScope::ALL {
        let Some(figures) = published(machine, scope) else { continue };
        let mut publish = |metric, value| {
            for load in [Load::Issuers, Load::Kernel] {
                collector.publish(load.name(), scope.name(), metric, value);
            }
        };
        publish(metric::ITEMS_PER_SECOND, figures.items_per_second);
        publish(metric::QUEUE_LATENCY_P50, figures.call_us_p50);
    }
}

/// The scopes to measure on a machine: one of each set of pods, the coarsest that makes it.
pub(crate) fn distinct_scopes(machine: &Machine) -> Vec<AffinityScope> {
    let same = coinciding(machine);
    AffinityScope::ALL
        .iter()
        .copied()
        .filter(|scope| same.iter().all(|(other, _)| other != scope))
        .collect()
}

/// Scopes that have the same pods as a coarser scope, with that coarser scope.
fn coinciding(machine: &Machine) -> Vec<(AffinityScope, AffinityScope)> {
    let coarsest_first = || AffinityScope::ALL.iter().copied().rev();
    let same = |scope: AffinityScope| {
        let pods = machine.pods(scope);
        coarsest_first().find(|&other| machine.pods(other) == pods).filter(|&other| other != scope)
    };
    AffinityScope::ALL.iter().copied().filter_map(|scope| Some((scope, same(scope)?))).collect()
}

fn collect(collector: &mut Collector, load: Load, row: &str, sample: &Sample, cpus: usize) {
    let mut add = |metric, value| collector.add(load.name(), row, metric, value);
    if let Some(ns) = sample.ns_per_item {
        add(metric::NS_PER_ITEM, ns);
        add(metric::ITEMS_PER_SECOND, 1e9 / ns);
    }
    if let Some(busy) = sample.cpus_busy {
        add(metric::CPU_PERCENT, busy / cpus as f64 * 100.0);
    }
    if let Some(queue) = sample.queue {
        add(metric::QUEUE_LATENCY_P50, queue.p50);
        if load.has_issuers() {
            add(metric::QUEUE_LATENCY_P90, queue.p90);
            add(metric::QUEUE_LATENCY_P95, queue.p95);
        }
        add(metric::QUEUE_LATENCY_P99, queue.p99);
        add(metric::QUEUE_LATENCY_MAX, queue.max);
    }
    if let Some(start) = sample.start {
        add(metric::START_LATENCY_P50, start.p50);
        add(metric::START_LATENCY_P99, start.p99);
        add(metric::START_LATENCY_MAX, start.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;

    fn short(machine: &str) -> DispatchOptions {
        let duration = Some(Duration::from_millis(10));
        let common = Common {
            machine: machine.into(),
            runs: Some(2),
            duration,
            goals: true,
            ..Common::default()
        };
        DispatchOptions { common, idle_samples: Some(2), items: Some(50) }
    }

    #[test]
    fn every_contestant_gets_its_rows_and_the_report_is_complete() {
        let _judged = crate::harness::options::tests::AnySize::new();
        let report = harness::run(&short("here"), &Progress::hidden()).unwrap();
        for (scenario, row) in [
            ("outside", "rayon"),
            ("outside", "crossbeam-channel"),
            ("inside", "tokio"),
            ("outside", targets::REQUEUE),
            ("outside", targets::SPAWN),
            ("joined", targets::SPAWN),
            ("inside", targets::SPAWN),
            ("many outside", "rayon"),
            ("many outside", "tokio"),
            ("many outside", targets::SPAWN),
            ("scope", "system"),
            ("issuers", "cpu"),
            ("issuers", "system"),
        ] {
            let ns = report.find(scenario, row, metric::NS_PER_ITEM).unwrap();
            let per_second = report.find(scenario, row, metric::ITEMS_PER_SECOND).unwrap();
            assert_eq!(ns.summary.runs, 2);
            assert!(ns.summary.median > 1.0 && per_second.summary.median > 1.0, "{scenario} {row}");
        }
        for metric in
            [metric::START_LATENCY_P50, metric::START_LATENCY_P99, metric::QUEUE_LATENCY_MAX]
        {
            assert!(report.find("idle", "threadpool", metric).is_some(), "{}", metric.name);
        }
        assert!(crate::redraw::is_drawn_from_the_json(&report));
        let calls = report.find("issuers", "smt", metric::QUEUE_LATENCY_P95).unwrap();
        assert!(calls.summary.median > 0.0 && calls.published.is_none());
        assert!(report.find("joined", "rayon, oneshot", metric::NS_PER_ITEM).is_some());
        assert!(report.find("inside", "threadpool", metric::NS_PER_ITEM).is_none());
        assert!(report.find("many outside", "tokio", metric::CPU_PERCENT).is_some());
        assert!(report.find("many outside", targets::REQUEUE, metric::NS_PER_ITEM).is_none());
        assert!(
            report.text.contains("from 64 outside threads at once, 25 each"),
            "{}",
            report.text
        );
        assert!(
            report.text.contains("async-executor") && report.text.contains("Targets"),
            "{}",
            report.text
        );
        assert!(report.svg.contains("crossbeam-channel"));
        assert_eq!(report.parameters["targets"].as_array().map(Vec::len), Some(6));
    }

    #[test]
    fn the_kernels_queues_have_rows_on_simulated_machines() {
        let report = harness::run(&short("l3:2 core:3"), &Progress::hidden()).unwrap();
        let rate = |load: Load, row| {
            report.find(load.name(), row, metric::ITEMS_PER_SECOND).map(|row| row.summary.median)
        };
        for scope in ["cpu", "smt", "cache", "system"] {
            // Both pay for the same memory and switches; the kernel makes no system calls.
            let of_ours = rate(Load::Kernel, scope).unwrap() / rate(Load::Issuers, scope).unwrap();
            assert!((0.05..5.0).contains(&of_ours), "{scope}: {of_ours}");
        }
        // One pool is slower than several: its lock is held during each wake-up.
        assert!(rate(Load::Kernel, "system").unwrap() < rate(Load::Kernel, "cpu").unwrap());
        assert!(report.text.contains("wakes a worker under it"), "{}", report.text);
        assert!(report.parameters["checks"]["kernel_by_addition"].as_f64().unwrap() > 1.0);
    }

    #[test]
    fn zero_samples_and_zero_items_are_refused() {
        let refused = |options: DispatchOptions| {
            options.plan(&Machine::here().unwrap()).unwrap_err().to_string()
        };
        let options = DispatchOptions { idle_samples: Some(0), ..DispatchOptions::default() };
        assert_eq!(refused(options), "--idle-samples 0: give a number from 1 to 100000");
        let options = DispatchOptions { items: Some(0), ..DispatchOptions::default() };
        assert_eq!(refused(options), "--items 0: give a number from 1 to 1000000");
    }

    #[test]
    fn a_quick_run_ends_within_thirty_seconds() {
        let options = DispatchOptions {
            common: Common { quick: true, ..Common::default() },
            ..DispatchOptions::default()
        };
        let (plan, rounds) = options.plan(&Machine::here().unwrap()).unwrap();
        // Rows of a machine on which no two scopes coincide.
        let (floods, idles, scopes) = (2 + 6 + 7 + 3 + 6, 8, 6);
        let flood = (plan.duration + 2 * plan.warm_up).as_secs_f64();
        // Sleeping takes longer than requested.
        let idle = plan.idle_samples as f64 * plan.gap.as_secs_f64() * 1.2;
        // An item of each issuer and back, with two switches: some 20 us on a slow machine.
        let issuers = plan.items as f64 * 20e-6;
        let round =
            f64::from(floods) * flood + f64::from(idles) * idle + f64::from(scopes) * issuers;
        // Closures from many threads, uncounted and counted: 220 ns on the average of the pools.
        let closures = 7.0 * (2 * plan.closures * OUTSIDE_THREADS) as f64 * 220e-9;
        let total = rounds as f64 * (round + closures);
        assert!(total < 25.0, "{total} s");
    }

    #[test]
    fn larger_simulated_machines_get_fewer_items_for_each_cpu() {
        let options = DispatchOptions::default();
        let items = |name: &str| {
            let machine = Machine::named(name).unwrap();
            let (plan, rounds) = options.plan(&machine).unwrap();
            assert_eq!((plan.cpus.len(), rounds), (machine.parallelism(), 5));
            plan.items
        };
        assert_eq!(items("core:2"), 2_000);
        assert_eq!(items("grace-72"), 833);
        assert_eq!(items("pack:8 core:512"), 50);
    }

    #[test]
    fn scopes_with_the_same_pods_are_measured_once() {
        let machine = Machine::named("numa:2 l3:2 core:4 pu:2").unwrap();
        assert_eq!(
            distinct_scopes(&machine),
            [
                AffinityScope::Cpu,
                AffinityScope::Smt,
                AffinityScope::Cache,
                AffinityScope::Numa,
                AffinityScope::System
            ]
        );
        assert_eq!(coinciding(&machine), [(AffinityScope::CacheShard, AffinityScope::Cache)]);
    }
}
