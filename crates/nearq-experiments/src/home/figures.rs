//! Turns accounts into figures; also has the document's published figures and the goals.

use super::Ran;
use super::plan::{GRACE, Plan, Row, Scenario};
use super::task::TaskReport;
use crate::harness::published as error_factor;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row as Figure, find};
use serde::Serialize;

// Turns accounts into numbers: the figures of a row, and of one row compared with another.

/// Nanoseconds as seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The mean of the values that exist.
fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The first part of both, in percent.
fn percent([part, rest]: [u64; 2]) -> Option<f64> {
    let all = part + rest;
    (all > 0).then(|| part as f64 * 100.0 / all as f64)
}

fn sum(parts: impl Iterator<Item = [u64; 2]>) -> [u64; 2] {
    parts.fold([0; 2], |[a, b], [c, d]| [a + c, b + d])
}

/// Adds one run of a plan: the figures of each row, and ratios within the run.
pub(super) fn collect(collector: &mut Collector, plan: &Plan, samples: &[(Row, Ran)]) {
    let scenario = plan.title();
    let during = |ran: &Ran| plan.disturbed.map(|[from, to]| cpu_seconds(ran, from, to));
    let without = samples.iter().find(|(row, _)| *row == Row::Without).map(|(_, ran)| ran);
    for (row, ran) in samples {
        let mut add = |metric: Metric, value: Option<f64>| {
            if let Some(value) = value {
                collector.add(&scenario, row.name(), metric, value);
            }
        };
        let tasks = || ran.tasks.iter();
        if plan.scenario == Scenario::NumaTest {
            add(metric::AVERAGE_USER, mean(tasks().map(|task| seconds(task.user))));
            add(metric::ELAPSED, Some(ran.elapsed.as_secs_f64()));
            add(metric::USER, Some(tasks().map(|task| seconds(task.user)).sum()));
            add(metric::SYSTEM, Some(tasks().map(|task| seconds(task.system)).sum()));
            add(
                metric::HOME_PERCENT,
                percent(sum(tasks().flat_map(|task| task.slots.iter().copied()))),
            );
        } else {
            add(metric::CPU_SECONDS, during(ran));
            let ratio = |without: &Ran| Some(during(ran)? / during(without)?);
            let ratio = without.filter(|_| *row != Row::Without).and_then(ratio);
            add(metric::CPU_RATIO, ratio);
            add(metric::HOME_PERCENT, home_after(plan, ran));
        }
        let crossings: u64 = tasks().map(|task| task.crossings).sum();
        add(metric::CROSSINGS, Some(crossings as f64));
        let displaced: usize =
            tasks().map(|task| task.returns.len() + usize::from(task.stray)).sum();
        if displaced > 0 {
            add(metric::CROSSINGS_EACH, Some(crossings as f64 / displaced as f64));
        }
        let returns = tasks().flat_map(|task| task.returns.iter().map(|time| seconds(*time)));
        add(metric::RETURN, mean(returns));
        let strays = staying(plan, ran).filter(|task| task.stray).count();
        add(metric::STRAYS, Some(strays as f64));
    }
}

/// The tasks that work to the end of the run.
fn staying<'r>(plan: &'r Plan, ran: &'r Ran) -> impl Iterator<Item = &'r TaskReport> {
    ran.tasks.iter().enumerate().filter(|(task, _)| plan.stays(*task)).map(|(_, report)| report)
}

/// CPU time of all tasks within a part of the run.
fn cpu_seconds(ran: &Ran, from: std::time::Duration, to: std::time::Duration) -> f64 {
    let [home, away] = sum(ran.tasks.iter().map(|report| report.within(from, to)));
    seconds(home + away)
}

/// CPU time at home from one second after the end of the disturbance onwards, in percent.
fn home_after(plan: &Plan, ran: &Ran) -> Option<f64> {
    let ([_, over], end) = (plan.disturbed?, plan.end?);
    percent(sum(staying(plan, ran).map(|report| report.within(over + GRACE, end))))
}

/// What the means of all runs say about one row compared with another: gains, and shares of the gap to the oracle. `publish` adds the
/// document's figures.
pub(super) fn compare(collector: &mut Collector, plans: &[Plan], publish: bool) {
    let rows = collector.rows();
    for plan in plans.iter().filter(|plan| plan.scenario == Scenario::NumaTest) {
        let scenario = plan.title();
        let elapsed = |row: Row| mean_of(&rows, &scenario, row, metric::ELAPSED);
        for row in [Row::After, Row::Homes, Row::Dynamic, Row::Scheduler, Row::Rule, Row::Oracle] {
            let base = if row == Row::After { Row::Before } else { Row::Without };
            let Some((without, with)) = elapsed(base).zip(elapsed(row)) else { continue };
            let gain = (1.0 - with / without) * 100.0;
            collector.add(&scenario, row.name(), metric::ELAPSED_GAIN, gain);
            let gap = elapsed(Row::Oracle).map(|oracle| without - oracle);
            // If there is almost no gap between them, no share of it is meaningful.
            if let Some(gap) = gap.filter(|gap| row != Row::Oracle && *gap > without / 100.0) {
                let closed = (without - with) / gap * 100.0;
                collector.add(&scenario, row.name(), metric::GAP_CLOSED, closed);
            }
        }
        for row in [Row::Before, Row::After] {
            let line = line(row, plan.tasks).filter(|_| publish);
            for (metric, (mean, _)) in COLUMNS.into_iter().zip(line.into_iter().flatten()) {
                collector.publish(&scenario, row.name(), metric, mean);
            }
        }
    }
}

/// The mean of a figure.
pub(super) fn mean_of(rows: &[Figure], scenario: &str, row: Row, metric: Metric) -> Option<f64> {
    find(rows, scenario, row.name(), metric).map(|found| found.summary.mean)
}

// The goals that homes have, and whether this run reached them.

/// A goal, and what was reached.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Goal {
    /// The scenario that it is about.
    pub scenario: String,
    /// The row.
    pub row: &'static str,
    /// What is compared.
    pub what: &'static str,
    /// The figure, a mean over the runs.
    pub reached: f64,
    /// What it must be at least, or at most.
    pub goal: f64,
    /// Whether that bound is an upper one.
    pub at_most: bool,
    /// The unit, for people: nothing for a ratio.
    pub unit: &'static str,
    /// Whether the goal is reached.
    pub met: bool,
}

/// The least share of the gap to the oracle, in percent.
pub(crate) const GAP: f64 = 70.0;
/// The least share of the CPU time at home after a disturbance, in percent.
const AT_HOME: f64 = 95.0;
/// The most changes of node of a task for each time that it left its home: out and back, and as many again.
const CROSSINGS: f64 = 4.0;
/// The least ratio of CPU time while a home is overloaded to that without homes.
const WORK_CONSERVED: f64 = 0.99;

/// Compares means with the goals; goals whose figures are missing are left out.
/// `as_published` says whether numa_test was run as in the document, on its machine.
pub(super) fn judge(rows: &[Figure], plans: &[Plan], as_published: bool) -> Vec<Goal> {
    let mut goals = Vec::new();
    for plan in plans {
        let scenario = plan.title();
        for row in [Row::Homes, Row::Dynamic, Row::Scheduler, Row::Rule] {
            let mut goal = |what, metric: Metric, goal: Option<f64>, unit| {
                let at_most = metric == metric::CROSSINGS_EACH;
                let reached = mean_of(rows, &scenario, row, metric);
                if let Some((reached, goal)) = reached.zip(goal) {
                    let met = if at_most { reached <= goal } else { reached >= goal };
                    let (scenario, row) = (scenario.clone(), row.name());
                    goals.push(Goal { scenario, row, what, reached, goal, at_most, unit, met });
                }
            };
            match plan.scenario {
                Scenario::NumaTest if as_published => {
                    goal("share of the oracle's gain", metric::GAP_CLOSED, Some(GAP), " %");
                }
                Scenario::NumaTest => {}
                Scenario::Displace => {
                    goal("CPU time at home after", metric::HOME_PERCENT, Some(AT_HOME), " %");
                }
                Scenario::Overload => {
                    goal("CPU time at home after", metric::HOME_PERCENT, Some(AT_HOME), " %");
                    let ratio = Some(WORK_CONSERVED);
                    goal("CPU-seconds meanwhile, to without", metric::CPU_RATIO, ratio, "");
                }
            }
            if row.own_bonus().is_some() && plan.scenario != Scenario::NumaTest {
                goal("crossings each time", metric::CROSSINGS_EACH, Some(CROSSINGS), "");
            }
        }
    }
    goals
}

// What the document of 2003 published: numa_test on a TX7 with 8 CPUs and 4 nodes, under the kernel's own scheduler and the
// node affine one, means and deviations of ten measurements.

/// The origin of the figures, for a table.
pub(super) const SOURCE: &str = "E. Focht, \"node affine NUMA scheduler extension\", 18 July 2003, Linux 2.6.0-test1, NEC TX7 with 8 Itanium 2 and 4 nodes";

/// The machine that they are about.
pub(super) const MACHINE: &str = "tx7-itanium2";

/// The four columns.
pub(super) const COLUMNS: [Metric; 4] =
    [metric::AVERAGE_USER, metric::ELAPSED, metric::USER, metric::SYSTEM];

/// Mean and deviation of each column.
type Line = [(f64, f64); 4];

const KERNEL: [(usize, Line); 4] = [
    (4, [(52.67, 3.51), (61.30, 8.04), (210.70, 14.05), (0.16, 0.02)]),
    (8, [(50.29, 1.85), (55.19, 6.36), (402.38, 14.78), (0.34, 0.02)]),
    (16, [(53.27, 2.30), (115.30, 5.40), (852.40, 36.75), (0.62, 0.02)]),
    (32, [(51.92, 1.13), (215.98, 5.95), (1661.66, 36.08), (1.21, 0.04)]),
];

const NODE_AFFINE: [(usize, Line); 4] = [
    (4, [(50.13, 2.09), (56.72, 8.46), (200.55, 8.34), (0.15, 0.01)]),
    (8, [(49.78, 1.29), (54.43, 4.90), (398.26, 10.31), (0.34, 0.02)]),
    (16, [(50.37, 0.96), (110.79, 8.46), (806.01, 15.33), (0.63, 0.03)]),
    (32, [(51.10, 0.51), (210.18, 3.27), (1635.40, 16.16), (1.23, 0.04)]),
];

/// The document's line for a row and a number of tasks.
pub(super) fn line(row: Row, tasks: usize) -> Option<Line> {
    let lines = match row {
        Row::Before => &KERNEL,
        Row::After => &NODE_AFFINE,
        _ => return None,
    };
    lines.iter().find(|(of, _)| *of == tasks).map(|(_, line)| *line)
}

/// By how many percent the document's elapsed time became shorter, to a tenth.
pub(super) fn gain(tasks: usize) -> Option<f64> {
    let [before, after] = [Row::Before, Row::After].map(|row| line(row, tasks));
    let percent = (1.0 - after?[1].0 / before?[1].0) * 100.0;
    Some((percent * 10.0).round() / 10.0)
}

/// The standard error of that gain, in percent: both elapsed times are means of ten measurements.
fn gain_error(tasks: usize) -> Option<f64> {
    let [before, after] = [Row::Before, Row::After].map(|row| line(row, tasks));
    let (before, after) = (before?[1], after?[1]);
    Some(before.1.hypot(after.1) / 10.0_f64.sqrt() / before.0 * 100.0)
}

/// What a published gain is called.
pub(super) const GAINED: &str = "elapsed time gained, %";

/// A published figure beside the simulated one.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) tasks: usize,
    pub(super) row: &'static str,
    pub(super) what: &'static str,
    pub(super) published: f64,
    pub(super) simulated: f64,
    /// Of gains, one below the standard error of the published gain counts as that much. None if that gain cannot be told from none.
    pub(super) error_factor: Option<f64>,
}

/// The times and the gains of the document beside those of its kernel's scheduler here.
pub(super) fn published(rows: &[Figure], plans: &[Plan]) -> Vec<Compared> {
    let mut all = Vec::new();
    for plan in plans.iter().filter(|plan| plan.scenario == Scenario::NumaTest) {
        let (scenario, tasks) = (plan.title(), plan.tasks);
        let mut add = |row: Row, what, metric, published: Option<f64>, least: Option<f64>| {
            let simulated = mean_of(rows, &scenario, row, metric);
            let Some((published, simulated)) = published.zip(simulated) else { return };
            let error_factor = match least {
                Some(error) => error_factor::is_a_gain(published, error)
                    .then(|| error_factor::of_gains_above(error, published, simulated)),
                None => Some(error_factor::of_figures(published, simulated)),
            };
            let row = row.name();
            all.push(Compared { tasks, row, what, published, simulated, error_factor });
        };
        for row in [Row::Before, Row::After] {
            let line = line(row, tasks);
            let figures = [("AverageUserTime, s", 0), ("ElapsedTime, s", 1)];
            for (what, column) in figures {
                add(row, what, COLUMNS[column], line.map(|line| line[column].0), None);
            }
        }
        let least = gain_error(tasks);
        add(Row::After, GAINED, metric::ELAPSED_GAIN, gain(tasks), least);
    }
    all
}

#[cfg(test)]
#[path = "tests/goals.rs"]
mod goals_tests;

#[cfg(test)]
#[path = "tests/published.rs"]
mod published_tests;
