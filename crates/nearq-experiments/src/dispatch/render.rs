//! The tables and the picture of `dispatch`.

use super::contestant::{Load, Plan};
use super::load::IN_FLIGHT;
use super::targets::Goal;
use crate::Machine;
use crate::report::metric::{self, Metric};
use crate::report::plot::{Bar, Bars, draw};
use crate::report::{Environment, Row, Table, find, rounded};
use nearq_topology::Scope;

/// The rows of a scenario, in order.
fn names(rows: &[Row], load: Load) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == load.name()) {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    names
}

/// Everything for people: what was done, the tables, the targets.
pub(super) fn text(
    rows: &[Row],
    goals: &[Goal],
    machine: &Machine,
    environment: &Environment,
    plan: &Plan,
    rounds: usize,
    clock_ns: f64,
) -> String {
    let mut text = format!(
        "nearq bench dispatch\n{}\n\
         {rounds} rounds in alternating order, medians; {} threads in every pool, started for each round; \
         {IN_FLIGHT} items in flight.\n\
         \"call\" is the time of the call that queues, \"start\" the time from before it to the item's first instruction; each\n\
         includes reading the clock ({clock_ns:.0} ns).\n\
         Requeueing a Work allocates nothing; every spawn, ours and the others', allocates a closure for each item.\n",
        environment.describe(),
        plan.threads,
    );
    for load in Load::ALL {
        if let Some(table) = table(rows, load, machine, plan) {
            text.push_str(&format!("\n{table}"));
        }
    }
    text.push_str(&targets(goals));
    text
}

fn title(load: Load, plan: &Plan) -> String {
    match load {
        Load::Outside => "Items from one outside thread, nobody waits for their end".into(),
        Load::Joined => "Closures from one outside thread, which waits for every result".into(),
        Load::Inside => "Closures spawned by a worker (no target)".into(),
        Load::Idle => format!(
            "Single items with a gap of {} ms, {} a round",
            plan.gap.as_millis(),
            plan.idle_samples
        ),
        Load::Scope => "Requeueing from one outside thread, by scope".into(),
    }
}

/// The columns of a load's table.
fn columns(load: Load) -> &'static [(&'static str, Metric)] {
    const COST: (&str, Metric) = ("ns per item", metric::NS_PER_ITEM);
    const RATE: (&str, Metric) = ("items/s", metric::ITEMS_PER_SECOND);
    const LATENCIES: [(&str, Metric); 6] = [
        ("call us p50", metric::QUEUE_LATENCY_P50),
        ("p99", metric::QUEUE_LATENCY_P99),
        ("max", metric::QUEUE_LATENCY_MAX),
        ("start us p50", metric::START_LATENCY_P50),
        ("p99", metric::START_LATENCY_P99),
        ("max", metric::START_LATENCY_MAX),
    ];
    const BUSY: (&str, Metric) = ("CPU (%)", metric::CPU_PERCENT);
    const ALL: [(&str, Metric); 9] = {
        let [a, b, c, d, e, f] = LATENCIES;
        [COST, RATE, BUSY, a, b, c, d, e, f]
    };
    match load {
        Load::Outside | Load::Scope => &ALL,
        Load::Joined | Load::Inside => &[COST, RATE, BUSY],
        Load::Idle => &LATENCIES,
    }
}

fn table(rows: &[Row], load: Load, machine: &Machine, plan: &Plan) -> Option<Table> {
    let names = names(rows, load);
    if names.is_empty() {
        return None;
    }
    let columns = columns(load);
    let mut headings = vec![""];
    headings.extend(columns.iter().map(|(heading, _)| *heading));
    let mut table = Table::new(title(load, plan), &headings);
    for name in &names {
        let cell = |&(_, metric): &(&str, Metric)| match find(rows, load.name(), name, metric) {
            Some(row) if metric == metric::NS_PER_ITEM => {
                format!("{} ±{}", rounded(row.summary.median), rounded(row.summary.deviation))
            }
            Some(row) => rounded(row.summary.median),
            None => "-".into(),
        };
        let mut cells = vec![(*name).to_owned()];
        cells.extend(columns.iter().map(cell));
        table.row(cells);
    }
    if load == Load::Scope {
        for (scope, same) in coinciding(machine) {
            table.remark(format!("{scope} = {same}: {}", machine.count(scope)));
        }
    }
    Some(table)
}

/// The scopes to measure on a machine: one of each set of pods, the coarsest that makes it.
pub(crate) fn distinct_scopes(machine: &Machine) -> Vec<Scope> {
    let same = coinciding(machine);
    Scope::ALL.into_iter().filter(|scope| same.iter().all(|(other, _)| other != scope)).collect()
}

/// Scopes that have the same pods as a coarser one, with that.
fn coinciding(machine: &Machine) -> Vec<(Scope, Scope)> {
    let coarsest_first = || Scope::ALL.into_iter().rev();
    let same = |scope: Scope| {
        let pods = machine.pods(scope);
        coarsest_first().find(|&other| machine.pods(other) == pods).filter(|&other| other != scope)
    };
    Scope::ALL.into_iter().filter_map(|scope| Some((scope, same(scope)?))).collect()
}

fn targets(goals: &[Goal]) -> String {
    if goals.is_empty() {
        return "\nTargets: nothing of ours took part\n".into();
    }
    let headings = ["", "ours", "best other", "ratio", "goal", "", "best other is"];
    let mut table = Table::new(
        "Targets: ratios of the medians above, to the best of the other pools",
        &headings,
    );
    for goal in goals {
        table.row(vec![
            goal.name.into(),
            rounded(goal.ours),
            rounded(goal.other),
            format!("{:.2}", goal.ratio),
            format!("{:.2}", goal.goal),
            if goal.met { "met" } else { "missed" }.into(),
            goal.best_other.clone(),
        ]);
    }
    format!("\n{table}")
}

/// Time per item and idle latency at a glance.
pub(super) fn picture(rows: &[Row], goals: &[Goal], environment: &Environment) -> String {
    let bar = |load: Load, row: &str, metric: Metric| {
        Some(Bar::median(&find(rows, load.name(), row, metric)?.summary))
    };
    let groups = |load: Load, metrics: &[Metric]| {
        let group = |name: &&str| {
            (
                (*name).to_owned(),
                metrics.iter().map(|&metric| bar(load, name, metric)).collect::<Vec<_>>(),
            )
        };
        names(rows, load).iter().map(group).collect::<Vec<_>>()
    };
    let half = goals.iter().find(|goal| goal.row == super::targets::REQUEUE && goal.goal < 1.0);
    let reference = half.map(|goal| (goal.other * goal.goal, "goal for requeue".to_owned()));
    let cost = Bars {
        title: "Time per item, from one outside thread (shorter is better)".into(),
        axis: "ns per item: median, least and most of the rounds".into(),
        series: vec![String::new()],
        groups: groups(Load::Outside, &[metric::NS_PER_ITEM]),
        lying: true,
        logarithmic: false,
        reference,
    };
    let idle = Bars {
        title: "From queueing to start when everybody sleeps (shorter is better)".into(),
        axis: "microseconds (by factors of ten): median, least and most of the rounds".into(),
        series: vec!["p50".into(), "p99".into()],
        groups: groups(Load::Idle, &[metric::START_LATENCY_P50, metric::START_LATENCY_P99]),
        lying: true,
        logarithmic: true,
        reference: None,
    };
    let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
    draw(&format!("nearq bench dispatch: {model}, {} CPUs", environment.cpus), &[cost, idle])
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;

    #[test]
    fn scopes_with_the_same_pods_are_measured_once() {
        let topology = Topology::from_synthetic("numa:2 l3:2 core:4 pu:2").unwrap();
        let usable = topology.online().clone();
        let machine = Machine::of(topology, usable);
        assert_eq!(
            distinct_scopes(&machine),
            [Scope::Cpu, Scope::Smt, Scope::Cache, Scope::Numa, Scope::System]
        );
        assert_eq!(coinciding(&machine), [(Scope::CacheShard, Scope::Cache)]);
    }
}
