//! The tables and the picture of `home`.

use super::account::Told;
use super::figures::seconds;
use super::plan::{GRACE, Plan, Row, Scenario};
use super::scheduler::Scheduler;
use super::task::ELEMENT;
use super::{Facts, Ran, published};
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, HERE, Report, Row as Figure, Table, find, rounded};
use serde_json::Value;

/// Up to so many tasks the table of each task is shown, and for a number that was asked for alone.
const SHOWN: usize = 16;
/// What the titles of the plans that are not disturbed begin with.
const NUMA_TEST: &str = "numa-test";
/// And of these rows.
const SHOWN_ROWS: [Row; 3] = [Row::Without, Row::Homes, Row::Scheduler];

impl Facts<'_> {
    /// Everything for people: what was done, the tables, the goals.
    pub(super) fn text(
        &self,
        rows: &[Figure],
        environment: &Environment,
        publish: bool,
        alone: bool,
    ) -> String {
        let mut text = self.preface(environment);
        let of = |scenario: Scenario| {
            self.job.plans.iter().zip(self.first).filter(move |(plan, _)| plan.scenario == scenario)
        };
        if of(Scenario::NumaTest).next().is_some() {
            text.push_str(&format!("\n{}", self.numa_test(rows, publish)));
            for (plan, samples) in of(Scenario::NumaTest) {
                if plan.tasks > SHOWN && !alone {
                    text.push_str(&format!(
                        "\nEach of the {} tasks: --tasks {}\n",
                        plan.tasks, plan.tasks
                    ));
                    continue;
                }
                for (row, ran) in samples.iter().filter(|(row, _)| SHOWN_ROWS.contains(row)) {
                    text.push_str(&format!("\n{}", self.tasks(plan, *row, ran)));
                }
            }
        }
        for scenario in [Scenario::Displace, Scenario::Overload] {
            for (plan, _) in of(scenario) {
                text.push_str(&format!("\n{}", self.disturbed(rows, plan)));
            }
        }
        if self.show_goals {
            text.push_str(&format!("\n{}", self.goals_text()));
        }
        text
    }

    fn preface(&self, environment: &Environment) -> String {
        let (job, size) = (self.job, &self.job.size);
        let nodes = size.nodes.len();
        let runs = if job.runs == 1 { "1 run".into() } else { format!("{} runs", job.runs) };
        let nodes = if nodes == 1 { "1 node".into() } else { format!("{nodes} nodes") };
        let mut text = match self.machine.model() {
            None => format!(
                "nearq bench home\n{}\n{nodes}; {runs} of each row, which take turns within each run, forwards and backwards.\n",
                environment.describe(),
            ),
            Some(model) => format!(
                "nearq bench home, on the simulated {} ({})\n{nodes}; {runs} of each row, each on a fresh machine, by seed. Times are virtual; the \
                 simulated kernel does not tell user from system time, and balances no memory.\n\
                 A task's accesses to random places cost the latency of the memory or cache where the line is, one after the other; what it \
                 walks over in order is streamed.\n",
                model.name(),
                model.about(),
            ),
        };
        if job.scheduler != Scheduler::Stock {
            text.push_str(
                "`home scheduler`: the kernel has the node affine scheduler, which gives each task its home when it begins its program; \
                 nobody else watches over it. All other rows: the kernel's own scheduler.\n",
            );
        }
        if job.scheduler != Scheduler::Home {
            text.push_str(
                "Homes are picked when a task starts and kept by masks of CPUs, looked at every 40 to 100 ms; dynamic ones follow the memory. ",
            );
        }
        text.push_str(
            "A task's home is the node that has most of its memory; that is looked at each second.\n",
        );
        if size.nodes.is_single() {
            text.push_str(
                "There is one node, so everything is at home always: there is nothing to gain, and what differs between rows is chance.\n",
            );
        }
        if job.plans.iter().any(|plan| plan.scenario == Scenario::NumaTest) {
            text.push_str(&format!(
                "numa_test: PROBLEMSIZE {} ({}), {:.1} MB a task, {} passes.\n",
                size.elements,
                size.why,
                (size.elements * ELEMENT) as f64 / 1e6,
                size.passes,
            ));
        }
        if let Some(storm) = job.plans.iter().find_map(|plan| plan.storm) {
            text.push_str(&format!(
                "After {} s a hackbench of {} processes: {} groups, {} senders and receivers each, {} messages of 100 bytes from each to each.\n",
                storm.after.as_secs_f64(),
                storm.processes(),
                storm.groups,
                storm.pairs,
                storm.messages,
            ));
        }
        if let Some(refused) = self.refused() {
            text.push_str(&format!("Memory was placed by first touch alone: {refused}\n"));
        }
        text
    }

    /// The document's table.
    fn numa_test(&self, rows: &[Figure], publish: bool) -> Table {
        let title =
            "numa_test, seconds: means of the runs, deviations in brackets; gains by elapsed time";
        let headings = [
            "tasks and row",
            "AverageUserTime",
            "ElapsedTime",
            "TotalUserTime",
            "TotalSysTime",
            "home %",
            "crossings",
            "gain %",
            "of the gap %",
        ];
        let mut table = Table::new(title, &headings);
        for plan in self.job.plans.iter().filter(|plan| plan.scenario == Scenario::NumaTest) {
            for row in self.job.rows(plan) {
                let found = |metric: Metric| find(rows, &plan.title(), row.name(), metric);
                let with_deviation = |metric| {
                    let of = found(metric).map(|found| found.summary);
                    of.map_or("-".into(), |of| format!("{:.2}({:.2})", of.mean, of.deviation))
                };
                let mut cells = vec![format!("{:>4}  {}", plan.tasks, row.name())];
                cells.extend(published::COLUMNS.map(with_deviation));
                for metric in [
                    metric::HOME_PERCENT,
                    metric::CROSSINGS,
                    metric::ELAPSED_GAIN,
                    metric::GAP_CLOSED,
                ] {
                    let mean = found(metric).map(|found| found.summary.mean);
                    cells.push(mean.map_or("-".into(), |mean| format!("{mean:.1}")));
                }
                table.row(cells);
                if let Some(line) = published::line(*row, plan.tasks).filter(|_| publish) {
                    let name = if *row == Row::Without { "kernel's own" } else { "node affine" };
                    let mut cells = vec![format!("      document, {name}")];
                    cells
                        .extend(line.map(|(mean, deviation)| format!("{mean:.2}({deviation:.2})")));
                    let gain = published::gain(plan.tasks).filter(|_| *row != Row::Without);
                    cells.extend(["-".into(), "-".into()]);
                    cells.push(gain.map_or("-".into(), |gain| format!("{gain:.1}")));
                    table.row(cells);
                }
            }
        }
        if publish {
            table.remark(format!("document: {}.", published::SOURCE));
        }
        let early = |plan: &&Plan| {
            let elapsed = find(rows, &plan.title(), Row::Without.name(), metric::ELAPSED);
            let after = plan.storm.map(|storm| storm.after.as_secs_f64());
            elapsed.zip(after).is_some_and(|(elapsed, after)| elapsed.summary.mean < after)
        };
        let early: Vec<String> =
            self.job.plans.iter().filter(early).map(|plan| plan.tasks.to_string()).collect();
        if !early.is_empty() {
            table.remark(format!(
                "With {} tasks all is over before hackbench begins: only where tasks start is tested there. Give more --passes.",
                early.join(" and ")
            ));
        }
        table.remark(
            "home %: CPU time on the node of the memory. Crossings: how often a task went on on another node, all tasks together.",
        );
        table
    }

    /// The table of numa_test itself: a line for each task.
    fn tasks(&self, plan: &Plan, row: Row, ran: &Ran) -> Table {
        let nodes = self.job.size.nodes.len();
        let mut headings = vec!["task".to_owned()];
        headings.extend(self.job.size.nodes.iter().map(|node| format!("node{:02}", node.id)));
        let others = [
            "|",
            "iSched",
            "MSched",
            "",
            "|",
            "memory",
            "crossings",
            "return (s)",
            "|",
            "UserTime(s)",
        ];
        headings.extend(others.map(String::from));
        let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
        let title = format!(
            "{}, {}, first run: share of CPU time on each node, %",
            plan.title(),
            row.name()
        );
        let mut table = Table::new(title, &headings);
        for (number, told) in ran.tasks.iter().enumerate() {
            let all = told.cpu_time().max(1) as f64;
            let mut cells = vec![(number + 1).to_string()];
            cells.extend(
                (0..nodes).map(|node| format!("{:.1}", told.by_node[node] as f64 * 100.0 / all)),
            );
            let id = |index: usize| self.job.size.nodes.get(index).id;
            let differs = if told.first == told.most() { "" } else { "*" };
            let bar = || "|".to_owned();
            cells.extend([bar(), id(told.first).to_string(), id(told.most()).to_string()]);
            cells.extend([differs.into(), bar(), self.memory(told), told.crossings.to_string()]);
            cells.extend([returns(told), bar(), format!("{:.2}", seconds(told.user))]);
            table.row(cells);
        }
        table.remark(format!(
            "iSched: node at the start. MSched: node of most time, * where it is another. Return: mean time from leaving home to being back. \
             ElapsedTime {:.2} s.",
            ran.elapsed.as_secs_f64()
        ));
        table
    }

    /// `0` or `0 (75 %), 1 (25 %)`.
    fn memory(&self, told: &Told) -> String {
        let all: u64 = told.memory.iter().sum();
        let id = |index: usize| self.job.size.nodes.get(index).id;
        let nodes = told.memory.iter().enumerate().filter(|(_, pages)| **pages > 0);
        let parts: Vec<(usize, f64)> =
            nodes.map(|(index, pages)| (id(index), *pages as f64 * 100.0 / all as f64)).collect();
        match *parts {
            [] => "?".into(),
            [(node, _)] => node.to_string(),
            _ => {
                let part = |(node, percent): &(usize, f64)| format!("{node} ({percent:.0} %)");
                parts.iter().map(part).collect::<Vec<_>>().join(", ")
            }
        }
    }

    /// A scenario with a disturbance.
    fn disturbed(&self, rows: &[Figure], plan: &Plan) -> Table {
        let [from, to] = plan.disturbed.unwrap_or_default().map(|time| time.as_secs_f64());
        let end = plan.end.unwrap_or_default().as_secs_f64();
        let node = |index: usize| self.job.size.nodes.get(index).id;
        let about = match (plan.hogs, plan.start_on) {
            (Some(hogs), _) => format!(
                "{} hogs on the CPUs of node {} from {from} to {to} s",
                hogs.count,
                node(hogs.node)
            ),
            (None, start) => format!(
                "all at home on node {}, which has half as many CPUs; every other task leaves at {to} s",
                node(start.unwrap_or(0))
            ),
        };
        let headings = [
            "",
            "CPU-seconds meanwhile",
            "to without",
            "home % after",
            "crossings",
            "each",
            "return (s)",
            "strays",
        ];
        let title = format!("{}: {about}; end at {end} s", plan.title());
        let mut table = Table::new(title, &headings);
        for row in self.job.rows(plan) {
            let found = |metric: Metric| find(rows, &plan.title(), row.name(), metric);
            let mean = |metric: Metric, digits: usize| {
                found(metric).map_or("-".into(), |of| format!("{:.*}", digits, of.summary.mean))
            };
            let home = found(metric::HOME_PERCENT).map_or("-".into(), |of| {
                format!("{:.1} ({:.1} to {:.1})", of.summary.mean, of.summary.min, of.summary.max)
            });
            table.row(vec![
                row.name().into(),
                mean(metric::CPU_SECONDS, 2),
                mean(metric::CPU_RATIO, 3),
                home,
                mean(metric::CROSSINGS, 1),
                mean(metric::CROSSINGS_EACH, 1),
                mean(metric::RETURN, 2),
                mean(metric::STRAYS, 1),
            ]);
        }
        table.remark(format!(
            "Means of the runs, of home % the smallest and the largest too. Meanwhile: from {from} to {to} s. After: from {} s on, of the tasks that \
             work to the end. Each: crossings for each time that a task left its home. Strays: those not at home at the end.",
            to + GRACE.as_secs_f64()
        ));
        table
    }

    fn goals_text(&self) -> String {
        if let Some(why) = self.too_small.as_ref().filter(|_| !self.job.size.nodes.is_single()) {
            return format!("{why}\n");
        }
        if self.goals.is_empty() {
            let why = if self.job.size.nodes.is_single() {
                "there is one node"
            } else {
                "they are about displace and overload, and on the tx7-itanium2 about numa-test with the document's load"
            };
            return format!("No goals: {why}.\n");
        }
        let mut table = Table::new("Goals", &["", "", "", "reached", "goal", ""]);
        for goal in self.goals {
            let figure = |value: f64| match goal.unit {
                "" => format!("{value:.3}"),
                unit => format!("{value:.1}{unit}"),
            };
            table.row(vec![
                goal.scenario.clone(),
                goal.row.into(),
                goal.what.into(),
                figure(goal.reached),
                format!("{} {}", if goal.at_most { "<=" } else { ">=" }, figure(goal.goal)),
                if goal.met { "reached" } else { "missed" }.into(),
            ]);
        }
        let met = self.goals.iter().filter(|goal| goal.met).count();
        table.remark(format!("{met} of {} reached, by the means of the runs.", self.goals.len()));
        table.to_string()
    }
}

/// CPU times of numa_test, and where tasks are after a disturbance.
pub(crate) fn picture(report: &Report) -> String {
    let (rows, environment) = (report.rows.as_slice(), &report.environment);
    let machine = if report.machine == HERE {
        let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
        let nodes = report.parameters["nodes"].as_array().map_or(0, Vec::len);
        format!("{model}, {} CPUs, {nodes} nodes", environment.cpus)
    } else {
        format!("simulated {}", report.machine)
    };
    let told = report.parameters["scenarios"].as_array();
    let scenarios: Vec<&str> = told.into_iter().flatten().filter_map(Value::as_str).collect();
    let bars = |disturbed: bool, title: &str, axis: &str, metric: Metric| -> Option<Bars> {
        let plans =
            || scenarios.iter().filter(|name| disturbed != name.starts_with(NUMA_TEST)).copied();
        let first = plans().next()?;
        let of_first = rows.iter().filter(|row| row.scenario == first && row.metric == metric.name);
        let names: Vec<&str> = of_first.map(|row| row.row.as_str()).collect();
        let group = |plan: &str| {
            // By task, so that all numbers of tasks fit into one picture.
            let share = if disturbed { 1.0 } else { tasks(plan) };
            let bar = |row: &&str| {
                let Bar { value, low, high } = Bar::mean(&find(rows, plan, row, metric)?.summary);
                Some(Bar { value: value / share, low: low / share, high: high / share })
            };
            (plan.to_owned(), names.iter().map(bar).collect())
        };
        Some(Bars {
            title: title.into(),
            axis: axis.into(),
            series: names.iter().map(|&name| name.into()).collect(),
            groups: plans().map(group).collect(),
            warning: environment.warning(),
            ..Bars::default()
        })
    };
    let diagrams = [
        bars(
            false,
            "CPU time of a task: mean, least and most of the runs",
            "seconds of user time",
            metric::USER,
        ),
        bars(
            true,
            "CPU time at home, from a second after the disturbance: mean, least and most of the runs",
            "%",
            metric::HOME_PERCENT,
        ),
    ];
    let diagrams: Vec<Bars> = diagrams.into_iter().flatten().collect();
    draw(&format!("nearq bench home: {machine}"), &diagrams)
}

/// How many tasks a plan has, which its title says: `numa-test, 4 tasks`.
fn tasks(title: &str) -> f64 {
    let number = title.split([' ', ',']).find_map(|word| word.parse().ok());
    number.unwrap_or(1.0)
}

/// The mean time to return, and whether it was away in the end.
fn returns(told: &Told) -> String {
    let count = told.returns.len();
    let mean = (count > 0).then(|| seconds(told.returns.iter().sum::<u64>()) / count as f64);
    let mean = mean.map_or(String::new(), rounded);
    match (mean.is_empty(), told.stray) {
        (true, false) => "-".into(),
        (true, true) => "never".into(),
        (false, false) => mean,
        (false, true) => format!("{mean}, then never"),
    }
}
