//! The tables and the picture of `dispatch`.

use super::contestant::{Load, Plan};
use super::load::IN_FLIGHT;
use super::published::SOURCE;
use super::targets::{Goal, Shards};
use super::{Checks, coinciding, issuers};
use crate::Machine;
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, Row, Table, find, rounded};
use nearq_topology::Scope;

/// The rows of a scenario, in order.
fn names(rows: &[Row], load: Load) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for row in rows.iter().filter(|row| row.scenario == load.name()) {
        if !names.contains(&row.row.as_str()) {
            names.push(&row.row);
        }
    }
    if load == Load::Issuers {
        // Those that coincide with others would stand behind them.
        names.sort_by_key(|name| Scope::ALL.iter().position(|scope| scope.name() == *name));
    }
    names
}

/// What the tables and the picture are made from, beside the rows.
pub(super) struct Facts<'f> {
    pub(super) machine: &'f Machine,
    pub(super) plan: &'f Plan,
    pub(super) rounds: usize,
    pub(super) clock_ns: f64,
    pub(super) goals: &'f [Goal],
    pub(super) shards: Option<&'f Shards>,
    pub(super) checks: Option<&'f Checks>,
}

impl Facts<'_> {
    /// Everything for people: what was done, the tables, the targets.
    pub(super) fn text(&self, rows: &[Row], environment: &Environment) -> String {
        let (rounds, clock_ns, plan) = (self.rounds, self.clock_ns, self.plan);
        let mut text = match self.machine.model() {
            None => format!(
                "nearq bench dispatch\n{}\n\
                 {rounds} rounds in alternating order, medians; {} threads in every pool, started for each round; \
                 {IN_FLIGHT} items in flight.\n",
                environment.describe(),
                plan.threads,
            ),
            Some(model) => format!(
                "nearq bench dispatch, on the simulated {} ({}), {} CPUs\n\
                 {rounds} rounds, each with a seed of its own, medians; all times are virtual; each row has a fresh machine; \
                 {IN_FLIGHT} items in flight.\n\
                 The other pools are Linux programs: they do not run on simulated machines, and their rows are left out.\n",
                model.name(),
                model.about(),
                plan.threads,
            ),
        };
        text.push_str(&format!(
            "\"call\" is the time of the call that queues, \"start\" the time from before it to the item's first instruction; each\n\
             includes reading the clock ({clock_ns:.0} ns).\n\
             Requeueing a Work allocates nothing; every spawn, ours and the others', allocates a closure for each item.\n",
        ));
        for load in Load::ALL {
            if let Some(table) = table(rows, load, self.machine, plan) {
                text.push_str(&format!("\n{table}"));
            }
        }
        text.push_str(&self.about_issuers());
        if self.machine.model().is_none() {
            text.push_str(&targets(self.goals));
        }
        if let Some(shards) = self.shards {
            text.push_str(&judgement(shards));
        }
        text
    }

    /// What the load with an issuer on each CPU hangs on.
    fn about_issuers(&self) -> String {
        let Some(checks) = self.checks else { return String::new() };
        let mut text = format!(
            "The kernel's test_workqueue does 50000 items a thread; here they are {}, after {} that are not counted. With half as many,\n\
             no rate differs by more than {:.1} %.\n",
            self.plan.items,
            issuers::warm_up(self.plan.items),
            checks.half_the_items_percent,
        );
        if !checks.line_costs.is_empty() {
            let headings = ["", "cache_shard items/s", "cache items/s", "factor"];
            let mut table = Table::new(
                "The same where moving a line between two cores under a cache costs something else",
                &headings,
            );
            for one in &checks.line_costs {
                table.row(vec![
                    format!("{} %", one.percent),
                    rounded(one.cache_shard),
                    rounded(one.cache),
                    format!("{:.2}", one.cache_shard / one.cache),
                ]);
            }
            text.push_str(&format!("\n{table}"));
        }
        text
    }
}

/// Whether shards pay.
fn judgement(shards: &Shards) -> String {
    let published =
        shards.published.map_or_else(String::new, |factor| format!(", published {factor:.2}"));
    format!(
        "\nShards of a cache against one pool for the whole of it, an issuer on each CPU: {:.2} times as many items\n\
         (goal at least {:.1}{published}): {}\n",
        shards.factor,
        shards.goal,
        if shards.met { "met" } else { "missed" },
    )
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
        Load::Issuers => format!(
            "An issuer on each of {} CPUs queues an item and waits for it, {} times, by scope",
            plan.cpus.len(),
            plan.items
        ),
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
    const CALLS: [(&str, Metric); 6] = [
        RATE,
        ("call us p50", metric::QUEUE_LATENCY_P50),
        ("p90", metric::QUEUE_LATENCY_P90),
        ("p95", metric::QUEUE_LATENCY_P95),
        ("p99", metric::QUEUE_LATENCY_P99),
        ("max", metric::QUEUE_LATENCY_MAX),
    ];
    match load {
        Load::Issuers => &CALLS,
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
    // CPU time is not counted everywhere.
    let columns: Vec<(&str, Metric)> = columns(load)
        .iter()
        .copied()
        .filter(|&(_, metric)| {
            names.iter().any(|name| find(rows, load.name(), name, metric).is_some())
        })
        .collect();
    let compared: Vec<(&str, Metric)> = columns
        .iter()
        .copied()
        .filter(|&(_, metric)| {
            let of_document = |row: &Row| row.scenario == load.name() && row.metric == metric.name;
            rows.iter().any(|row| of_document(row) && row.published.is_some())
        })
        .collect();
    let mut headings = vec![""];
    headings.extend(columns.iter().map(|(heading, _)| *heading));
    if !compared.is_empty() {
        headings.push("|");
        headings.extend(compared.iter().map(|(heading, _)| match *heading {
            "items/s" => "published items/s",
            other => other,
        }));
    }
    let mut table = Table::new(title(load, plan), &headings);
    for name in &names {
        let cell = |&(_, metric): &(&str, Metric)| match find(rows, load.name(), name, metric) {
            Some(row) if metric == metric::NS_PER_ITEM => {
                format!("{} ±{}", rounded(row.summary.median), rounded(row.summary.deviation))
            }
            Some(row) => rounded(row.summary.median),
            None => "-".into(),
        };
        let of_document = |&(_, metric): &(&str, Metric)| {
            let row = find(rows, load.name(), name, metric);
            row.and_then(|row| row.published).map_or("-".into(), rounded)
        };
        let mut cells = vec![(*name).to_owned()];
        cells.extend(columns.iter().map(cell));
        if !compared.is_empty() {
            cells.push("|".into());
            cells.extend(compared.iter().map(of_document));
        }
        table.row(cells);
    }
    if matches!(load, Load::Scope | Load::Issuers) {
        for (scope, same) in coinciding(machine) {
            table.remark(format!("{scope} = {same}: {}", machine.count(scope)));
        }
    }
    if !compared.is_empty() {
        table.remark(format!("published: {SOURCE}"));
    }
    Some(table)
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

impl Facts<'_> {
    /// Time per item, idle latency and the rates by scope at a glance.
    pub(super) fn picture(&self, rows: &[Row], environment: &Environment) -> String {
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
        let half =
            self.goals.iter().find(|goal| goal.row == super::targets::REQUEUE && goal.goal < 1.0);
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
        let title = match self.machine.model() {
            Some(model) => format!(
                "nearq bench dispatch: simulated {} ({}), {} CPUs",
                model.name(),
                model.about(),
                self.plan.threads
            ),
            None => {
                let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
                format!("nearq bench dispatch: {model}, {} CPUs", environment.cpus)
            }
        };
        draw(&title, &[cost, idle, rates(rows)])
    }
}

/// Items per second by scope with an issuer on each CPU, beside the published ones if there are any.
fn rates(rows: &[Row]) -> Bars {
    let mut series = vec!["nearq".to_owned()];
    let found = |name: &str| {
        find(rows, Load::Issuers.name(), name, metric::ITEMS_PER_SECOND)
            .expect("every row of the load has it")
    };
    let millions = |value: f64| value / 1e6;
    let group = |name: &str, compared: bool| {
        let row = found(name);
        let Bar { value, low, high } = Bar::median(&row.summary);
        let own = Bar { value: millions(value), low: millions(low), high: millions(high) };
        let mut bars = vec![Some(own)];
        if compared {
            bars.push(row.published.map(millions).map(|value| Bar {
                value,
                low: value,
                high: value,
            }));
        }
        (name.to_owned(), bars)
    };
    let names = names(rows, Load::Issuers);
    let compared = names.iter().any(|name| found(name).published.is_some());
    if compared {
        series.push("published".into());
    }
    Bars {
        title: "An issuer on each CPU, which waits for its item: rate by scope (longer is better)"
            .into(),
        axis: "million items per second: median, least and most of the rounds".into(),
        series: if compared { series } else { vec![String::new()] },
        groups: names.iter().map(|name| group(name, compared)).collect(),
        lying: true,
        ..Bars::default()
    }
}
