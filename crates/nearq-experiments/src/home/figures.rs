//! From accounts to numbers: what a run says of a row, and of one row beside another.

use super::Ran;
use super::account::Told;
use super::plan::{GRACE, Plan, Row, Scenario};
use super::published;
use nearq_report::metric::{self, Metric};
use nearq_report::{Collector, Row as Figure, find};

/// Nanoseconds as seconds.
pub(super) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e9
}

/// The mean of what there is.
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
        let told = || ran.tasks.iter();
        if plan.scenario == Scenario::NumaTest {
            add(metric::AVERAGE_USER, mean(told().map(|told| seconds(told.user))));
            add(metric::ELAPSED, Some(ran.elapsed.as_secs_f64()));
            add(metric::USER, Some(told().map(|told| seconds(told.user)).sum()));
            let system: Option<Vec<u64>> = told().map(|told| told.system).collect();
            add(metric::SYSTEM, system.map(|system| seconds(system.iter().sum())));
            add(
                metric::HOME_PERCENT,
                percent(sum(told().flat_map(|told| told.slots.iter().copied()))),
            );
        } else {
            add(metric::CPU_SECONDS, during(ran));
            let ratio = |without: &Ran| Some(during(ran)? / during(without)?);
            let ratio = without.filter(|_| *row != Row::Without).and_then(ratio);
            add(metric::CPU_RATIO, ratio);
            add(metric::HOME_PERCENT, home_after(plan, ran));
        }
        let crossings: u64 = told().map(|told| told.crossings).sum();
        add(metric::CROSSINGS, Some(crossings as f64));
        let displaced: usize =
            told().map(|told| told.returns.len() + usize::from(told.stray)).sum();
        if displaced > 0 {
            add(metric::CROSSINGS_EACH, Some(crossings as f64 / displaced as f64));
        }
        let returns = told().flat_map(|told| told.returns.iter().map(|time| seconds(*time)));
        add(metric::RETURN, mean(returns));
        let strays = staying(plan, ran).filter(|told| told.stray).count();
        add(metric::STRAYS, Some(strays as f64));
    }
}

/// The tasks that work to the end of the run.
fn staying<'r>(plan: &'r Plan, ran: &'r Ran) -> impl Iterator<Item = &'r Told> {
    ran.tasks.iter().enumerate().filter(|(task, _)| plan.stays(*task)).map(|(_, told)| told)
}

/// CPU time of all tasks within a part of the run.
fn cpu_seconds(ran: &Ran, from: std::time::Duration, to: std::time::Duration) -> f64 {
    let [home, away] = sum(ran.tasks.iter().map(|told| told.within(from, to)));
    seconds(home + away)
}

/// CPU time at home from a second after the end of the disturbance on, in percent.
fn home_after(plan: &Plan, ran: &Ran) -> Option<f64> {
    let ([_, over], end) = (plan.disturbed?, plan.end?);
    percent(sum(staying(plan, ran).map(|told| told.within(over + GRACE, end))))
}

/// What the means of all runs say of one row beside another: gains, and shares of the gap to the oracle. `publish` adds the document's
/// figures.
pub(super) fn compare(collector: &mut Collector, plans: &[Plan], publish: bool) {
    let rows = collector.rows();
    for plan in plans.iter().filter(|plan| plan.scenario == Scenario::NumaTest) {
        let scenario = plan.title();
        let elapsed = |row: Row| mean_of(&rows, &scenario, row, metric::ELAPSED);
        for row in [Row::Homes, Row::Dynamic, Row::Scheduler, Row::Oracle] {
            let Some((without, with)) = elapsed(Row::Without).zip(elapsed(row)) else { continue };
            let gain = (1.0 - with / without) * 100.0;
            collector.add(&scenario, row.name(), metric::ELAPSED_GAIN, gain);
            let gap = elapsed(Row::Oracle).map(|oracle| without - oracle);
            // Where there is next to nothing between them, no share of it means anything.
            if let Some(gap) = gap.filter(|gap| row != Row::Oracle && *gap > without / 100.0) {
                let closed = (without - with) / gap * 100.0;
                collector.add(&scenario, row.name(), metric::GAP_CLOSED, closed);
            }
        }
        for row in [Row::Without, Row::Homes, Row::Scheduler] {
            let line = published::line(row, plan.tasks).filter(|_| publish);
            for (metric, (mean, _)) in
                published::COLUMNS.into_iter().zip(line.into_iter().flatten())
            {
                collector.publish(&scenario, row.name(), metric, mean);
            }
        }
    }
}

/// The mean of a figure.
pub(super) fn mean_of(rows: &[Figure], scenario: &str, row: Row, metric: Metric) -> Option<f64> {
    find(rows, scenario, row.name(), metric).map(|found| found.summary.mean)
}
