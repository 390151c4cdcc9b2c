//! The tables and the picture of `dispatch`.

use super::contestant::{Load, Plan};
use super::load::IN_FLIGHT;
use super::published::SOURCE;
use super::targets::{Goal, Shards};
use super::{Checks, coinciding, issuers};
use crate::Machine;
use crate::plots::bars::{Bar, Bars, draw};
use nearq_report::metric::{self, Metric};
use nearq_report::{Environment, HERE, Report, Row, Table, find, rounded};
use nearq_topology::Scope;

/// Said of a load that has no goal, where goals are shown.
const NO_TARGET: &str = " (no target)";

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
    /// Why nothing is judged, if that is so.
    pub(super) too_small: Option<&'f str>,
    /// Whether the goals are shown.
    pub(super) show_goals: bool,
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
                let mut table = format!("\n{table}");
                if !self.show_goals {
                    table = table.replace(NO_TARGET, "");
                }
                text.push_str(&table);
            }
        }
        text.push_str(&self.about_issuers());
        let has_targets = self.machine.model().is_none();
        if self.show_goals && has_targets && self.too_small.is_none() {
            text.push_str(&targets(self.goals));
        }
        if let Some(shards) = self.shards {
            text.push_str(&judgement(shards, self.show_goals));
        }
        let judged = self.show_goals && (has_targets || self.shards.is_some());
        if let Some(why) = self.too_small.filter(|_| judged) {
            text.push_str(&format!("\n{why}\n"));
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
fn judgement(shards: &Shards, show_goals: bool) -> String {
    let what = format!(
        "\nShards of a cache against one pool for the whole of it, an issuer on each CPU: {:.2} times as many items\n",
        shards.factor,
    );
    let published = shards.published.map(|factor| format!("published {factor:.2}"));
    let Some(met) = shards.met.filter(|_| show_goals) else {
        return what + &published.map_or_else(String::new, |published| format!("({published})\n"));
    };
    let published = published.map_or_else(String::new, |published| format!(", {published}"));
    let met = if met { "met" } else { "missed" };
    format!("{what}(goal at least {:.1}{published}): {met}\n", shards.goal)
}

fn title(load: Load, plan: &Plan) -> String {
    match load {
        Load::Outside => "Items from one outside thread, nobody waits for their end".into(),
        Load::Joined => "Closures from one outside thread, which waits for every result".into(),
        Load::Inside => format!("Closures spawned by a worker{NO_TARGET}"),
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

/// Time per item, idle latency and the rates by scope at a glance.
pub(crate) fn picture(report: &Report, show_goals: bool) -> String {
    let (rows, environment) = (report.rows.as_slice(), &report.environment);
    {
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
        let goals = report.parameters["targets"].as_array().filter(|_| show_goals);
        let reference = goals.and_then(|goals| {
            let goal = goals.iter().find(|goal| goal["row"] == super::targets::REQUEUE)?;
            let (other, half) = (goal["other"].as_f64()?, goal["goal"].as_f64()?);
            (half < 1.0).then(|| (other * half, "the goal for requeue".to_owned()))
        });
        let cost = Bars {
            title: "Time per item, from one outside thread (shorter is better)".into(),
            axis: "ns per item: median, least and most of the rounds".into(),
            series: vec![String::new()],
            groups: groups(Load::Outside, &[metric::NS_PER_ITEM]),
            lying: true,
            logarithmic: false,
            reference,
            warning: environment.warning(),
        };
        let idle = Bars {
            title: "From queueing to start when everybody sleeps (shorter is better)".into(),
            axis: "microseconds (by factors of ten): median, least and most of the rounds".into(),
            series: vec!["p50".into(), "p99".into()],
            groups: groups(Load::Idle, &[metric::START_LATENCY_P50, metric::START_LATENCY_P99]),
            lying: true,
            logarithmic: true,
            reference: None,
            warning: environment.warning(),
        };
        let model = environment.cpu_model.as_deref().unwrap_or("unknown CPU");
        let title = if report.machine == HERE {
            format!("nearq bench dispatch: {model}, {} CPUs", environment.cpus)
        } else {
            format!(
                "nearq bench dispatch: simulated {} ({}), {} CPUs",
                report.machine,
                model.trim_end_matches(", simulated"),
                report.parameters["threads"]
            )
        };
        draw(&title, &[cost, idle, rates(rows, environment.warning())])
    }
}

/// Items per second by scope with an issuer on each CPU, beside the published ones if there are any.
fn rates(rows: &[Row], warning: Option<String>) -> Bars {
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
        warning,
        ..Bars::default()
    }
}
