//! The goals that homes have, and whether this run reached them.

use super::figures::mean_of;
use super::plan::{Plan, Row, Scenario};
use super::published;
use nearq_report::Row as Figure;
use nearq_report::metric::{self, Metric};
use serde::Serialize;

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
    /// What it shall be at least, or at most.
    pub goal: f64,
    /// Whether it shall be at most that.
    pub at_most: bool,
    /// The unit, for people: nothing for a ratio.
    pub unit: &'static str,
    /// Whether the goal is reached.
    pub met: bool,
}

/// The least share of the gap to the oracle, in percent.
const GAP: f64 = 70.0;
/// The least share of the CPU time at home after a disturbance, in percent.
const AT_HOME: f64 = 95.0;
/// The most crossings of a task for each time that it left its home: there and back, and as much again.
const CROSSINGS: f64 = 4.0;
/// The least ratio of CPU time while a home is overloaded to that without homes.
const WORK_CONSERVED: f64 = 0.99;

/// Compares means with the goals; goals whose figures are missing are left out.
/// `as_published` says whether numa_test was run as in the document, on its machine.
pub(super) fn judge(rows: &[Figure], plans: &[Plan], as_published: bool) -> Vec<Goal> {
    let mut goals = Vec::new();
    for plan in plans {
        let scenario = plan.title();
        for row in [Row::Homes, Row::Dynamic, Row::Scheduler] {
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
                    let gain = published::gain(plan.tasks);
                    goal("elapsed time gained", metric::ELAPSED_GAIN, gain, " %");
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
            if row == Row::Scheduler && plan.scenario != Scenario::NumaTest {
                goal("crossings each time", metric::CROSSINGS_EACH, Some(CROSSINGS), "");
            }
        }
    }
    goals
}

#[cfg(test)]
mod tests {
    use super::super::plan::Size;
    use super::*;
    use crate::Machine;
    use nearq_home::Nodes;
    use nearq_report::Collector;

    #[test]
    fn means_decide() {
        let machine = Machine::named("tx7-itanium2").unwrap();
        let nodes = Nodes::of(machine.topology(), machine.topology().online());
        let size = Size::of(&machine, nodes, true, (None, None), None, 4);
        let plans = [size.numa_test(4), size.overload()];
        let mut collector = Collector::default();
        for (gain, ratio) in [(7.0, 0.98), (8.2, 1.01)] {
            collector.add(&plans[0].title(), "homes", metric::ELAPSED_GAIN, gain);
            collector.add(&plans[1].title(), "homes", metric::CPU_RATIO, ratio);
            collector.add(&plans[1].title(), "homes", metric::HOME_PERCENT, 94.0);
        }
        let rows = collector.rows();
        let goals = judge(&rows, &plans, true);
        let met: Vec<_> = goals.iter().map(|goal| (goal.goal, goal.met)).collect();
        assert_eq!(met, [(7.5, true), (95.0, false), (0.99, true)]);
        assert_eq!(judge(&rows, &plans, false).len(), 2, "the gains are the TX7's");
    }
}
