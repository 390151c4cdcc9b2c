//! `nearq bench dispatch`: how much it costs to have an item run, and how soon it starts, beside other pools in the
//! same run.
//!
//! Every contestant has as many threads as CPUs may be used, is started for each of its rounds and is gone before
//! the next one begins. Rounds go through the list forwards and backwards in turn, so that a machine that slows
//! down or speeds up favours nobody. Figures are medians over the rounds.

mod contestant;
mod gauge;
mod load;
mod render;
pub(crate) mod targets;

pub use contestant::{Closures, Contestant, Load, Plan, peers};
pub use gauge::{Gauge, Latency, PROBES};
pub use load::{Feed, IN_FLIGHT, Sample, flood, idle};
pub(crate) use render::distinct_scopes;
pub use targets::{Goal, judge};

use crate::options::{Common, within};
use crate::report::{Collector, Report, Watch, metric};
use crate::{Error, Machine, Progress};
use serde_json::json;
use std::time::Duration;

/// What `dispatch` can be told.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DispatchOptions {
    /// What every experiment can be told; `duration` is that of one flood.
    pub common: Common,
    /// Single items of each idle round; `None` is 200, or 100 with `quick`.
    pub idle_samples: Option<usize>,
}

/// Between two single items.
const GAP: Duration = Duration::from_millis(5);
/// Not counted, before each flood.
const WARM_UP: Duration = Duration::from_millis(10);
/// Most single items of an idle round.
const MOST_IDLE: usize = 100_000;

impl DispatchOptions {
    fn plan(&self, threads: usize) -> Result<(Plan, usize), Error> {
        self.common.check()?;
        let quick = self.common.quick;
        let (rounds, milliseconds, samples) = if quick { (3, 80, 100) } else { (7, 300, 200) };
        let samples = self.idle_samples.unwrap_or(samples);
        within("--idle-samples", samples, 1, MOST_IDLE)?;
        let duration = self.common.duration.unwrap_or(Duration::from_millis(milliseconds));
        let plan = Plan {
            threads,
            duration,
            warm_up: WARM_UP.min(duration),
            idle_samples: samples,
            gap: GAP,
        };
        Ok((plan, self.common.runs.unwrap_or(rounds)))
    }
}

/// Runs the experiment: `ours` beside the other pools.
pub(crate) fn run(
    options: &DispatchOptions,
    machine: &Machine,
    ours: Vec<Box<dyn Contestant>>,
    progress: &Progress,
) -> Result<Report, Error> {
    let (plan, rounds) = options.plan(machine.parallelism())?;
    let mut contestants = ours;
    contestants.extend(peers());
    let mut order: Vec<(Load, &'static str, &dyn Contestant)> = Vec::new();
    for load in Load::ALL {
        order.extend(
            contestants
                .iter()
                .filter_map(|contestant| Some((load, contestant.row(load)?, &**contestant))),
        );
    }
    let rows_of_peers = order.iter().filter(|(_, _, contestant)| !contestant.ours());
    let rows_of_peers: Vec<(Load, &'static str)> =
        rows_of_peers.map(|&(load, row, _)| (load, row)).collect();

    let gauge = Gauge::leak();
    let watch = Watch::start(machine.parallelism());
    let mut collector = Collector::default();
    progress.begin(rounds * order.len());
    for round in 0..rounds {
        let mut measure = |&(load, row, contestant): &(Load, &'static str, &dyn Contestant)| {
            progress.step(format!("round {} of {rounds}, {}: {row}", round + 1, load.name()));
            let sample = contestant.measure(load, &plan, gauge)?;
            collect(&mut collector, load.name(), row, &sample, plan.threads);
            progress.done();
            Ok(())
        };
        if round.is_multiple_of(2) {
            order.iter().try_for_each(&mut measure)?;
        } else {
            order.iter().rev().try_for_each(&mut measure)?;
        }
    }
    let environment = watch.finish();
    let rows = collector.rows();
    let goals = judge(&rows, &rows_of_peers);
    let text = render::text(&rows, &goals, machine, &environment, &plan, rounds, gauge.clock_ns());
    let svg = render::picture(&rows, &goals, &environment);
    let parameters = json!({
        "quick": options.common.quick,
        "rounds": rounds,
        "threads": plan.threads,
        "in_flight": IN_FLIGHT,
        "duration_s": plan.duration.as_secs_f64(),
        "idle_samples": plan.idle_samples,
        "idle_gap_ms": plan.gap.as_secs_f64() * 1000.0,
        "clock_ns": gauge.clock_ns(),
        "targets": goals,
    });
    let machine = options.common.machine.clone();
    Ok(Report { experiment: "dispatch", machine, environment, parameters, rows, text, svg })
}

fn collect(collector: &mut Collector, scenario: &str, row: &str, sample: &Sample, cpus: usize) {
    let mut add = |metric, value| collector.add(scenario, row, metric, value);
    if let Some(ns) = sample.ns_per_item {
        add(metric::NS_PER_ITEM, ns);
        add(metric::ITEMS_PER_SECOND, 1e9 / ns);
    }
    if let Some(busy) = sample.cpus_busy {
        add(metric::CPU_PERCENT, busy / cpus as f64 * 100.0);
    }
    if let Some(queue) = sample.queue {
        add(metric::QUEUE_LATENCY_P50, queue.p50);
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
    use crate::peers::Bounded;
    use std::marker::PhantomData;

    fn short() -> DispatchOptions {
        let duration = Some(Duration::from_millis(10));
        let common = Common { runs: Some(2), duration, ..Common::default() };
        DispatchOptions { common, idle_samples: Some(2) }
    }

    #[test]
    fn every_contestant_gets_its_rows_and_the_report_is_complete() {
        let machine = Machine::here().unwrap();
        let stand_in = Closures { inside: true, ours: true, pool: PhantomData::<Bounded> };
        let report =
            run(&short(), &machine, vec![Box::new(stand_in)], &Progress::hidden()).unwrap();
        for (scenario, row) in
            [("outside", "rayon"), ("outside", "crossbeam-channel"), ("inside", "tokio")]
        {
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
        assert!(report.find("joined", "rayon, oneshot", metric::NS_PER_ITEM).is_some());
        assert!(report.find("inside", "threadpool", metric::NS_PER_ITEM).is_none());
        assert!(
            report.text.contains("async-executor") && report.text.contains("Targets"),
            "{}",
            report.text
        );
        assert!(report.svg.contains("crossbeam-channel"));
    }

    #[test]
    fn no_idle_samples_are_refused() {
        let options = DispatchOptions { idle_samples: Some(0), ..DispatchOptions::default() };
        let error = options.plan(2).unwrap_err();
        assert_eq!(error.to_string(), "--idle-samples 0: give a number from 1 to 100000");
    }

    #[test]
    fn a_quick_run_ends_within_thirty_seconds() {
        let options = DispatchOptions {
            common: Common { quick: true, ..Common::default() },
            idle_samples: None,
        };
        let (plan, rounds) = options.plan(2).unwrap();
        // Rows of a machine on which no two scopes coincide.
        let (floods, idles) = (2 + 6 + 7 + 3 + 6, 8);
        let flood = (plan.duration + 2 * plan.warm_up).as_secs_f64();
        // Sleeping takes longer than it is told to.
        let idle = plan.idle_samples as f64 * plan.gap.as_secs_f64() * 1.2;
        let total = rounds as f64 * (f64::from(floods) * flood + f64::from(idles) * idle);
        assert!(total < 25.0, "{total} s");
    }
}
