//! `nearq bench blocking --detection`: how soon the runtime notices that workers are blocked, and what the watching costs.
//!
//! In every case all CPUs are taken by items that compute. At a known moment all of these block while another item waits; the time until
//! the waiting item starts is measured. Besides these the pool has workers that are already blocked, or that sleep and compute in turn: the
//! more of them, the more there is to watch. Then all CPUs compute for a while with work waiting and nothing to notice, and the CPU time of
//! the monitor's thread is measured.

mod monitor;
pub(crate) mod render;
mod scene;

pub use monitor::{Cost, Monitor};
pub use scene::{Fillers, Scene};

use super::BlockingOptions;
use crate::harness::options::too_small;
use crate::harness::{self, Common, Experiment, Host as _, Run};
use crate::{Error, Machine};
use nearq_platform::Linux;
use nearq_report::{Collector, metric};
use nearq_topology::{AffinityScope, CpuSet};
use serde::Serialize;
use serde_json::{Value, json};
use std::thread;
use std::time::Duration;

/// The scenario's name in the results.
pub const SCENARIO: &str = "detection";

/// How many workers are busy, and what they do.
#[derive(Clone, Copy, Debug)]
struct Case {
    row: &'static str,
    busy: usize,
    fillers: Fillers,
    /// What the monitor may use, in percent of one CPU.
    goal_percent: Option<f64>,
}

/// The cases. One worker is one CPU.
const CASES: [Case; 5] = [
    Case { row: "1 worker", busy: 1, fillers: Fillers::Asleep, goal_percent: None },
    Case { row: "16 workers", busy: 16, fillers: Fillers::Asleep, goal_percent: Some(1.0) },
    Case { row: "64 workers", busy: 64, fillers: Fillers::Asleep, goal_percent: Some(2.0) },
    Case { row: "16 workers, restless", busy: 16, fillers: Fillers::Restless, goal_percent: None },
    Case { row: "64 workers, restless", busy: 64, fillers: Fillers::Restless, goal_percent: None },
];

/// The limits of the median and of the 99th percentile, in milliseconds.
const GOALS_MS: [f64; 2] = [2.0, 5.0];

/// How often and for how long is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    rounds: usize,
    /// Blocks of a round.
    blocks: usize,
    /// Longest pause between two blocks: pauses are both shorter and longer than the time after which the monitor sleeps.
    pause: Duration,
    /// How long the monitor's cost is measured.
    window: Duration,
}

impl Plan {
    fn of(options: &BlockingOptions) -> Self {
        let quick = options.common.quick;
        let (rounds, blocks, window) = if quick { (1, 100, 1000) } else { (3, 300, 2000) };
        Self {
            rounds: options.common.runs.unwrap_or(rounds),
            blocks: options.items.unwrap_or(blocks),
            pause: Duration::from_millis(40),
            window: Duration::from_millis(window),
        }
    }
}

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// How many workers are busy.
    pub row: &'static str,
    /// What was measured.
    pub metric: &'static str,
    /// Its median over the rounds.
    pub value: f64,
    /// The limit below which it must stay.
    pub goal: f64,
    /// Whether it stays below.
    pub met: bool,
}

/// What one round of a case measured.
struct Measured {
    /// The latencies, sorted, in milliseconds; without the blocks that did not have to be noticed.
    latencies: Vec<f64>,
    blocks: usize,
    monitor: Option<Cost>,
}

/// The experiment, with the options of `blocking`.
#[derive(Clone, Debug)]
pub struct Detection<'o>(pub &'o BlockingOptions);

type Facts<'f, 'o> = harness::Facts<'f, Detection<'o>>;

impl Experiment for Detection<'_> {
    const NAME: &'static str = "blocking";
    type Plan = Plan;
    /// The CPUs.
    type Found = CpuSet;
    type Verdict = Vec<Goal>;

    fn common(&self) -> &Common {
        &self.0.common
    }

    fn plan(&self, machine: &Machine) -> Result<Plan, Error> {
        if machine.model().is_some() {
            return Err(Error::input(format!(
                "--detection --on {:?}: the monitor's cost can be measured only on this machine; leave out --on",
                machine.name()
            )));
        }
        self.0.plan(machine)?;
        Ok(Plan::of(self.0))
    }

    fn measure(&self, run: &mut Run<'_>, plan: &mut Plan) -> Result<CpuSet, Error> {
        let cpus = run.machine.pods(AffinityScope::System).remove(0);
        run.begin(plan.rounds * CASES.len());
        for round in 0..plan.rounds {
            for case in &CASES {
                let what = format!("round {} of {}: {}", round + 1, plan.rounds, case.row);
                // If one worker is busy, only one CPU is used, because another CPU would be free for the waiting item.
                let few = if case.busy == 1 { 1 } else { cpus.len() };
                let cpus = cpus.iter().take(few).collect();
                let measured = run.step(what, || measure(&cpus, case, plan, round as u64))?;
                collect(&mut run.figures, case.row, &measured, plan.window);
            }
        }
        Ok(cpus)
    }

    fn too_small(&self, machine: &Machine, plan: &Plan) -> Result<Option<String>, Error> {
        let common = self.common().of_a_quick_run();
        let least = Plan::of(&BlockingOptions { common, items: None, ..self.0.clone() });
        let blocks = [plan.blocks, least.blocks].map(|blocks| blocks as f64);
        Ok(too_small(machine, [plan.rounds, least.rounds], &[("--items", blocks)]))
    }

    /// Compares the medians with the goals.
    fn judge(facts: &Facts<'_, '_>) -> Vec<Goal> {
        let mut goals = Vec::new();
        for case in CASES.iter().filter(|_| facts.too_small.is_none()) {
            let goals_of_case = [
                (metric::DETECTION_P50, Some(GOALS_MS[0])),
                (metric::DETECTION_P99, Some(GOALS_MS[1])),
                (metric::MONITOR_PERCENT, case.goal_percent),
            ];
            for (metric, goal) in goals_of_case {
                let found = facts.of(SCENARIO, case.row, metric).zip(goal);
                goals.extend(found.map(|(found, goal)| {
                    let value = found.median;
                    Goal { row: case.row, metric: metric.name, value, goal, met: value < goal }
                }));
            }
        }
        goals
    }

    fn parameters(facts: &Facts<'_, '_>) -> Value {
        let plan = &facts.plan;
        json!({
            "rounds": plan.rounds,
            "blocks": plan.blocks,
            "longest_pause_ms": plan.pause.as_secs_f64() * 1e3,
            "window_s": plan.window.as_secs_f64(),
            "cpus": facts.found.to_list(),
            "targets": facts.verdict,
        })
    }

    fn text(facts: &Facts<'_, '_>) -> String {
        render::text(facts)
    }
}

/// One round of a case.
fn measure(cpus: &CpuSet, case: &Case, plan: &Plan, seed: u64) -> Result<Measured, Error> {
    let body = || {
        let scene = Scene::set(cpus, case.busy, case.fillers)?;
        let mut pauses = Pauses(seed.wrapping_mul(2).wrapping_add(1));
        let mut latencies = Vec::with_capacity(plan.blocks);
        for _ in 0..plan.blocks {
            thread::sleep(pauses.next(plan.pause));
            latencies.extend(scene.round()?.map(|time| time.as_secs_f64() * 1e3));
        }
        latencies.sort_by(f64::total_cmp);
        let monitor = scene.cost(plan.window)?;
        Ok(Measured { latencies, blocks: plan.blocks, monitor })
    };
    Linux::confined(cpus, || Linux::alone(body))
}

/// Pauses of any length up to a limit, the same in every run, so that no phase of the monitor's clock is preferred.
struct Pauses(u64);

impl Pauses {
    fn next(&mut self, longest: Duration) -> Duration {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        longest.mul_f64((self.0 >> 40) as f64 / (1_u64 << 24) as f64)
    }
}

fn collect(collector: &mut Collector, row: &str, measured: &Measured, window: Duration) {
    let mut add = |metric, value| collector.add(SCENARIO, row, metric, value);
    let noticed = measured.latencies.len();
    add(metric::EARLY_PERCENT, 100.0 - noticed as f64 / measured.blocks as f64 * 100.0);
    if let Some(last) = noticed.checked_sub(1) {
        let at = |percent: usize| measured.latencies[(last * percent).div_ceil(100)];
        add(metric::DETECTION_P50, at(50));
        add(metric::DETECTION_P99, at(99));
        add(metric::DETECTION_MAX, at(100));
    }
    if let Some(cost) = measured.monitor {
        let percent = |time: Duration| time.as_secs_f64() / window.as_secs_f64() * 100.0;
        add(metric::MONITOR_PERCENT, percent(cost.cpu));
        add(metric::MONITOR_WAKES, cost.turns as f64 / window.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Progress;

    #[test]
    fn every_case_has_its_latencies_and_the_monitors_cost() {
        let options = BlockingOptions {
            common: crate::Common { runs: Some(1), quick: true, ..crate::Common::default() },
            items: Some(3),
            ..BlockingOptions::default()
        };
        let machine = Machine::here().unwrap();
        let judged = crate::harness::options::tests::AnySize::new();
        let report = harness::run_on(&Detection(&options), &machine, &Progress::hidden()).unwrap();
        drop(judged);
        for case in &CASES {
            let value = |metric| Some(report.find(SCENARIO, case.row, metric)?.summary.median);
            let early = value(metric::EARLY_PERCENT).unwrap();
            match (value(metric::DETECTION_P50), value(metric::DETECTION_MAX)) {
                (Some(p50), Some(max)) => assert!(p50 > 0.0 && p50 <= max && early < 100.0),
                none => assert!(none == (None, None) && early == 100.0, "{}", case.row),
            }
            // There is no monitor if no item ever had to wait.
            let wakes = value(metric::MONITOR_WAKES);
            assert!(wakes.map_or(early == 100.0, |wakes| wakes > 0.0), "{}", case.row);
            assert!(report.text.contains(case.row) && report.svg.contains(case.row));
        }
        assert!(report.parameters["targets"].as_array().unwrap().len() >= 2);
        assert!(!report.text.contains("Targets") && !report.svg.contains("goal"), "not asked for");
        assert_eq!(crate::tests::warnings(report), 2);
    }

    #[test]
    fn runs_that_are_too_small_are_not_judged() {
        let small = |runs, items| {
            let common = crate::Common { runs, quick: true, ..crate::Common::default() };
            let options = BlockingOptions { common, items, ..BlockingOptions::default() };
            let (machine, options) = (Machine::here().unwrap(), Detection(&options));
            let plan = options.plan(&machine).unwrap();
            options.too_small(&machine, &plan).unwrap()
        };
        assert_eq!(small(Some(3), None), None);
        let why = small(None, Some(3)).unwrap();
        assert!(why.starts_with("Too small to judge: --runs 1, --items 3."), "{why}");
    }

    #[test]
    fn pauses_vary_in_length() {
        let (mut pauses, longest) = (Pauses(1), Duration::from_millis(40));
        let all: Vec<_> = (0..1000).map(|_| pauses.next(longest)).collect();
        let mean = all.iter().sum::<Duration>() / 1000;
        assert!(all.iter().all(|pause| *pause <= longest));
        assert!((17..23).contains(&mean.as_millis()), "{mean:?}");
    }

    #[test]
    fn a_simulated_machine_is_refused() {
        let machine = Machine::named("core:2").unwrap();
        let error = Detection(&BlockingOptions::default()).plan(&machine);
        assert!(error.unwrap_err().to_string().starts_with("--detection --on \"core:2\""));
    }
}
