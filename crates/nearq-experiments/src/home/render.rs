//! The tables and the picture of `home`.

use super::figures::seconds;
use super::plan::{GRACE, Plan, Row, Scenario};
use super::scheduler::Scheduler;
use super::task::ELEMENT;
use super::task::TaskReport;
use super::{Facts, Ran, figures, refused};
use crate::harness::published as error_factor;
use crate::harness::table::{self, Column, counted, mean, or_none, reached};
use crate::plots::bars::{Bar, Bars};
use crate::plots::differences::{Differences, Dot};
use crate::plots::{Diagram, draw};
use nearq_report::{HERE, Report, Summary, Table, metric, rounded};
use serde_json::Value;

/// The table of each task is shown for up to this many tasks, and if only one number of tasks was
/// asked for.
const SHOWN: usize = 16;
/// What the titles of the plans that are not disturbed begin with.
const NUMA_TEST: &str = "numa-test";
/// The rows for which it is shown.
const SHOWN_ROWS: [Row; 3] = [Row::Without, Row::Homes, Row::Scheduler];

/// Everything for people: what was done, the tables, the goals.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let mut text = preface(facts);
    let plans = || facts.plan.plans.iter().zip(&facts.found);
    let of = |scenario| plans().filter(move |(plan, _)| plan.scenario == scenario);
    let alone = facts.experiment.tasks.as_ref().is_some_and(|tasks| tasks.len() == 1);
    if of(Scenario::NumaTest).next().is_some() {
        text.push_str(&format!("\n{}", numa_test(facts)));
        let published = super::published(facts);
        if !published.is_empty() {
            text.push_str(&format!("\n{}", beside_published(&published)));
        }
        for (plan, samples) in of(Scenario::NumaTest) {
            if plan.tasks > SHOWN && !alone {
                let tasks = plan.tasks;
                text.push_str(&format!("\nEach of the {tasks} tasks: --tasks {tasks}\n"));
                continue;
            }
            for (row, ran) in samples.iter().filter(|(row, _)| SHOWN_ROWS.contains(row)) {
                text.push_str(&format!("\n{}", tasks(facts, plan, *row, ran)));
            }
        }
    }
    for (plan, _) in of(Scenario::Displace).chain(of(Scenario::Overload)) {
        text.push_str(&format!("\n{}", disturbed(facts, plan)));
    }
    if facts.show_goals() {
        text.push_str(&format!("\n{}", goals(facts)));
    }
    text
}

fn preface(facts: &Facts<'_>) -> String {
    let (job, size) = (&facts.plan, &facts.plan.size);
    let (nodes, runs) = (counted(size.nodes.len(), "node"), counted(job.runs, "run"));
    let mut text = facts.heading("");
    text.push_str(&match facts.model() {
        None => format!(
            "{nodes}; {runs} of each row, which take turns within each run, forwards and backwards.\n"
        ),
        Some(_) => format!(
            "{nodes}; {runs} of each row, each on a fresh machine, by seed. Times are virtual; the \
             simulated kernel balances no memory. Its system time is that of system calls and page faults; switches and ticks are no task's time.\n\
             A task's accesses to random places cost the latency of the memory or cache where the line is, one after the other; what it \
             walks over in order is streamed.\n"
        ),
    });
    if job.scheduler != Scheduler::Stock {
        text.push_str(
            "`home scheduler`: the kernel has the node affine scheduler, which gives each task its home when it begins its program; \
             nobody else watches over it. `2003's rule`: the same scheduler, where a CPU chooses between queues of other nodes by load, \
             counts waiting tasks of its own node twice, and takes these first, then strays. All other rows: the kernel's own scheduler.\n",
        );
    }
    if job.plans.iter().any(|plan| job.rows(plan).contains(&Row::Before)) {
        text.push_str(
            "`2.6.0-test1`: the scheduler of the document's kernel; `2.6.0-test1, homes`: the same with the document's patch. The gain of the \
             latter is over the former; all other gains are over `without homes`, which has the scheduler of today's kernel.\n",
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
            "After {} s{} a hackbench of {} processes: {} groups, {} senders and receivers each, {} messages of 100 bytes from each to each.\n",
            storm.after.as_secs_f64(),
            storm.every.map_or_else(String::new, |every| {
                format!(", and again every {} s until all tasks have ended,", every.as_secs())
            }),
            storm.processes(),
            storm.groups,
            storm.pairs,
            storm.messages,
        ));
    }
    if let Some(refused) = refused(facts) {
        text.push_str(&format!("Memory was placed by first touch alone: {refused}\n"));
    }
    text
}

/// The document's table.
fn numa_test(facts: &Facts<'_>) -> Table {
    let title =
        "numa_test, seconds: means of the runs, deviations in brackets; gains by elapsed time";
    let with_deviation = |of: Summary| format!("{:.2}({:.2})", of.mean, of.deviation);
    let [user, elapsed, total, system] = figures::COLUMNS;
    let columns: [Column; 8] = [
        ("AverageUserTime", user, with_deviation),
        ("ElapsedTime", elapsed, with_deviation),
        ("TotalUserTime", total, with_deviation),
        ("TotalSysTime", system, with_deviation),
        ("home %", metric::HOME_PERCENT, mean::<1>),
        ("crossings", metric::CROSSINGS, mean::<1>),
        ("gain %", metric::ELAPSED_GAIN, mean::<1>),
        ("of the gap %", metric::GAP_CLOSED, mean::<1>),
    ];
    let mut table = Table::new(title, &table::headings(&["tasks and row"], &columns));
    let publish = facts.plan.is_published(facts.machine);
    for plan in facts.plan.plans.iter().filter(|plan| plan.scenario == Scenario::NumaTest) {
        for row in facts.plan.rows(plan) {
            let first = format!("{:>4}  {}", plan.tasks, row.name());
            table.row(facts.cells(first, &plan.title(), row.name(), &columns));
            if let Some(line) = figures::line(*row, plan.tasks).filter(|_| publish) {
                let mut cells = vec!["      document".to_owned()];
                cells.extend(line.map(|(mean, deviation)| format!("{mean:.2}({deviation:.2})")));
                let gain = figures::gain(plan.tasks).filter(|_| *row == Row::After);
                cells.extend(["-".into(), "-".into()]);
                cells.push(or_none(gain, |gain| format!("{gain:.1}")));
                table.row(cells);
            }
        }
    }
    if publish {
        table.remark(format!("document: {}.", figures::SOURCE));
    }
    let early = |plan: &&Plan| {
        let elapsed = facts.of(&plan.title(), Row::Without.name(), metric::ELAPSED);
        let after = plan.storm.map(|storm| storm.after.as_secs_f64());
        elapsed.zip(after).is_some_and(|(elapsed, after)| elapsed.mean < after)
    };
    let early: Vec<String> =
        facts.plan.plans.iter().filter(early).map(|plan| plan.tasks.to_string()).collect();
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

/// The document's figures and those of its kernel's scheduler here, with the error factors.
fn beside_published(all: &[figures::Compared]) -> Table {
    let headings = ["tasks and row", "", "published", "here", "error factor", ""];
    let mut table = Table::new("The document's figures, and those of its kernel here", &headings);
    for one in all {
        table.row(vec![
            format!("{:>4}  {}", one.tasks, one.row),
            one.what.into(),
            format!("{:.1}", one.published),
            format!("{:.1}", one.simulated),
            or_none(one.error_factor, |factor| format!("{factor:.2}")),
            one.error_factor.map_or(error_factor::NO_GAIN, error_factor::word).into(),
        ]);
    }
    let factors = || all.iter().filter_map(|one| one.error_factor);
    table.remark(format!(
        "{} of {} reproduced: the error factor, the larger figure over the smaller one, is at most {}. Gains are compared as gains; one \
         below the standard error of the published gain counts as that much. Published gains below twice their error are not counted.",
        factors().filter(|factor| *factor <= error_factor::MOST).count(),
        factors().count(),
        error_factor::MOST,
    ));
    table
}

/// The table of numa_test itself: a line for each task.
fn tasks(facts: &Facts<'_>, plan: &Plan, row: Row, ran: &Ran) -> Table {
    let nodes = facts.plan.size.nodes.len();
    let mut headings = vec!["task".to_owned()];
    headings.extend(facts.plan.size.nodes.iter().map(|node| format!("node{:02}", node.id)));
    let others = ["|", "iSched", "MSched", "", "|", "memory", "crossings", "return (s)", "|"];
    headings.extend(others.into_iter().chain(["UserTime(s)"]).map(String::from));
    let headings: Vec<&str> = headings.iter().map(String::as_str).collect();
    let title =
        format!("{}, {}, first run: share of CPU time on each node, %", plan.title(), row.name());
    let mut table = Table::new(title, &headings);
    for (number, report) in ran.tasks.iter().enumerate() {
        let all = report.cpu_time().max(1) as f64;
        let mut cells = vec![(number + 1).to_string()];
        cells.extend(
            (0..nodes).map(|node| format!("{:.1}", report.by_node[node] as f64 * 100.0 / all)),
        );
        let id = |index: usize| facts.plan.size.nodes.get(index).id;
        let differs = if report.first == report.most() { "" } else { "*" };
        let bar = || "|".to_owned();
        cells.extend([bar(), id(report.first).to_string(), id(report.most()).to_string()]);
        cells.extend([differs.into(), bar(), memory(facts, report), report.crossings.to_string()]);
        cells.extend([returns(report), bar(), format!("{:.2}", seconds(report.user))]);
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
fn memory(facts: &Facts<'_>, report: &TaskReport) -> String {
    let all: u64 = report.memory.iter().sum();
    let id = |index: usize| facts.plan.size.nodes.get(index).id;
    let nodes = report.memory.iter().enumerate().filter(|(_, pages)| **pages > 0);
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
fn disturbed(facts: &Facts<'_>, plan: &Plan) -> Table {
    let [from, to] = plan.disturbed.unwrap_or_default().map(|time| time.as_secs_f64());
    let end = plan.end.unwrap_or_default().as_secs_f64();
    let node = |index: usize| facts.plan.size.nodes.get(index).id;
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
    const COLUMNS: [Column; 7] = [
        ("CPU-seconds meanwhile", metric::CPU_SECONDS, mean::<2>),
        ("to without", metric::CPU_RATIO, mean::<3>),
        ("home % after", metric::HOME_PERCENT, |of| {
            format!("{:.1} ({:.1} to {:.1})", of.mean, of.min, of.max)
        }),
        ("crossings", metric::CROSSINGS, mean::<1>),
        ("each", metric::CROSSINGS_EACH, mean::<1>),
        ("return (s)", metric::RETURN, mean::<2>),
        ("strays", metric::STRAYS, mean::<1>),
    ];
    let scenario = plan.title();
    let title = format!("{scenario}: {about}; end at {end} s");
    let mut table = Table::new(title, &table::headings(&[""], &COLUMNS));
    for row in facts.plan.rows(plan) {
        table.row(facts.cells(row.name(), &scenario, row.name(), &COLUMNS));
    }
    table.remark(format!(
        "Means of the runs, of home % the smallest and the largest too. Meanwhile: from {from} to {to} s. After: from {} s on, of the tasks that \
         work to the end. Each: crossings for each time that a task left its home. Strays: those not at home at the end.",
        to + GRACE.as_secs_f64()
    ));
    table
}

fn goals(facts: &Facts<'_>) -> String {
    if let Some(why) = facts.too_small.as_ref().filter(|_| !facts.plan.size.nodes.is_single()) {
        return format!("{why}\n");
    }
    if facts.verdict.is_empty() {
        let why = if facts.plan.size.nodes.is_single() {
            "there is one node"
        } else {
            "they are about displace and overload, and on the tx7-itanium2 about numa-test with the document's load"
        };
        return format!("No goals: {why}.\n");
    }
    let mut table = Table::new("Goals", &["", "", "", "reached", "goal", ""]);
    for goal in &facts.verdict {
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
            reached(goal.met),
        ]);
    }
    let met = facts.verdict.iter().filter(|goal| goal.met).count();
    table.remark(format!("{met} of {} reached, by the means of the runs.", facts.verdict.len()));
    table.to_string()
}

/// What homes gain in numa_test under each scheduler, and where tasks are after a disturbance.
pub(crate) fn picture(report: &Report) -> String {
    let nodes = report.parameters["nodes"].as_array().map_or(0, Vec::len);
    let nodes = if report.machine == HERE { format!(", {nodes} nodes") } else { String::new() };
    let machine = table::place(report, report.environment.cpus);
    let (numa_test, disturbed): (Vec<&str>, Vec<&str>) =
        table::texts(report, "scenarios").into_iter().partition(|name| name.starts_with(NUMA_TEST));
    let gains = [
        gained(report, &numa_test, "the document's scheduler", &[Row::Before, Row::After]),
        gained(report, &numa_test, "today's scheduler", &TODAY),
    ];
    let mut diagrams: Vec<Diagram> = gains.into_iter().flatten().map(|of| of.diagram()).collect();
    if let Some(first) = disturbed.first() {
        let names = table::names(&report.rows, first);
        let bar =
            |plan: &str, row: &str| table::bar(report, plan, row, metric::HOME_PERCENT, Bar::mean);
        let group =
            |&plan: &&str| (plan.to_owned(), names.iter().map(|row| bar(plan, row)).collect());
        let at_home = Bars {
            title: "CPU time at home, from a second after the disturbance: mean, least and most of the runs".into(),
            axis: "%".into(),
            series: names.iter().map(|&name| name.into()).collect(),
            groups: disturbed.iter().map(group).collect(),
            ..Bars::of(report)
        };
        diagrams.push(at_home.diagram());
    }
    draw(&format!("nearq bench home: {machine}{nodes}"), diagrams)
}

/// The rows that are compared with the first of them, which has today's scheduler and no homes.
const TODAY: [Row; 6] =
    [Row::Without, Row::Homes, Row::Dynamic, Row::Scheduler, Row::Rule, Row::Oracle];

/// Elapsed time gained over the first of these rows, for each number of tasks; nothing if that did not run.
fn gained(report: &Report, plans: &[&str], scheduler: &str, rows: &[Row]) -> Option<Differences> {
    let of = |plan: &str, row: Row| Some(report.find(plan, row.name(), metric::ELAPSED)?.summary);
    let ran = |row: &&Row| plans.iter().any(|plan| of(plan, **row).is_some());
    let present: Vec<Row> = rows.iter().filter(ran).copied().collect();
    let base = *rows.first().filter(|_| present.len() > 1)?;
    let told = |plan: &str, row: Row| {
        let published = report.parameters["published"].as_array()?;
        let is_it = |one: &&Value| {
            one["row"] == row.name()
                && one["what"] == figures::GAINED
                && one["tasks"].as_f64() == Some(tasks_of(plan))
        };
        Some(Bar::exactly(published.iter().find(is_it)?["published"].as_f64()?))
    };
    let dot = |plan: &str, row: Row| {
        let all = of(plan, base)?.mean;
        let gain = |elapsed: f64| (1.0 - elapsed / all) * 100.0;
        let Summary { mean, min, max, .. } = of(plan, row)?;
        let measured = Bar { value: gain(mean), low: gain(max), high: gain(min) };
        Some(Dot { measured: Some(measured), published: told(plan, row) })
    };
    let line = |&plan: &&str| {
        let dots = present.iter().map(|&row| dot(plan, row).unwrap_or_default());
        (format!("{} tasks", tasks_of(plan)), dots.collect())
    };
    Some(Differences {
        title: format!(
            "Elapsed time gained over \"{}\", with {scheduler} (more is better)",
            base.name()
        ),
        axis: "percent: mean, least and most of the runs".into(),
        series: present.iter().map(|row| row.name().into()).collect(),
        rows: plans.iter().map(line).collect(),
        ..Differences::of(report)
    })
}

/// How many tasks a plan has, which its title says: `numa-test, 4 tasks`.
fn tasks_of(title: &str) -> f64 {
    let number = title.split([' ', ',']).find_map(|word| word.parse().ok());
    number.unwrap_or(1.0)
}

/// The mean time to return, and whether it was away in the end.
fn returns(report: &TaskReport) -> String {
    let count = report.returns.len();
    let mean = (count > 0).then(|| seconds(report.returns.iter().sum::<u64>()) / count as f64);
    let mean = mean.map_or(String::new(), rounded);
    match (mean.is_empty(), report.stray) {
        (true, false) => "-".into(),
        (true, true) => "never".into(),
        (false, false) => mean,
        (false, true) => format!("{mean}, then never"),
    }
}

#[cfg(test)]
#[path = "tests/render.rs"]
mod render_tests;
