//! The tables and the picture of `dispatch`.

use super::contestant::{Load, Plan};
use super::load::{IN_FLIGHT, OUTSIDE_THREADS};
use super::targets::{Goal, KernelRate, REQUEUE, Shards};
use super::targets::{KERNEL_PERCENT, SOURCE};
use super::{CAPTURES, Capture, Facts, coinciding, load};
use crate::harness::table::{self, Column, OTHERS_LEFT_OUT, median, met, or_none};
use crate::plots::bars::{Bar, Bars};
use crate::plots::differences::{Differences, Dot, Scale};
use crate::plots::draw;
use nearq_report::{HERE, Report, Row, Table, metric, rounded};
use nearq_topology::AffinityScope;

/// The rows of a scenario, in order.
fn names(rows: &[Row], load: Load) -> Vec<&str> {
    let mut names = table::names(rows, load.name());
    if load.has_issuers() {
        // Points that coincide with others would be hidden behind them.
        names.sort_by_key(|name| AffinityScope::ALL.iter().position(|scope| scope.name() == *name));
    }
    names
}

/// Everything for people: what was done, the tables, the targets.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let ((plan, rounds), clock_ns) = (&facts.plan, facts.found.clock_ns);
    let mut text = facts.heading(&format!(", {} CPUs", plan.threads));
    text.push_str(&match facts.model() {
        None => format!(
            "{rounds} rounds in alternating order, medians; {} threads in every pool, started for each round; \
             {IN_FLIGHT} items in flight.\n",
            plan.threads,
        ),
        Some(_) => format!(
            "{rounds} rounds, each with a seed of its own, medians; all times are virtual; each row has a fresh machine; \
             {IN_FLIGHT} items in flight.\n{OTHERS_LEFT_OUT}",
        ),
    });
    text.push_str(&format!(
        "\"call\" is the time of the call that queues, \"start\" the time from before it to the item's first instruction; each\n\
         includes reading the clock ({clock_ns:.0} ns).\n\
         Requeueing a Work allocates nothing; every spawn, ours and the others', allocates a closure for each item.\n",
    ));
    for load in Load::ALL {
        if let Some(table) = table(facts, load) {
            text.push_str(&format!("\n{table}"));
        }
    }
    text.push_str(&about_issuers(facts));
    let (goals, shards, kernel) = &facts.verdict;
    text.push_str(&about_the_kernel(kernel, facts));
    let has_targets = facts.model().is_none();
    if facts.show_goals() && has_targets && facts.too_small.is_none() {
        text.push_str(&targets(goals));
    }
    if let Some(shards) = shards {
        text.push_str(&judgement(shards, facts.show_goals()));
    }
    let judged = facts.show_goals() && (has_targets || shards.is_some());
    if let Some(why) = facts.too_small.as_ref().filter(|_| judged) {
        text.push_str(&format!("\n{why}\n"));
    }
    text
}

/// What the rates on a simulated machine depend on.
fn about_issuers(facts: &Facts<'_>) -> String {
    let Some(checks) = &facts.found.checks else { return String::new() };
    let items = facts.plan.0.items;
    let mut text = format!(
        "The kernel's test_workqueue does 50000 items a thread; here they are {items}, after {} that are not counted. With half as many,\n\
         no rate differs by more than {:.1} %.\n",
        load::warm_up(items),
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

/// How the simulated kernel compares with what was published.
fn about_the_kernel(rates: &[KernelRate], facts: &Facts<'_>) -> String {
    if rates.is_empty() {
        return String::new();
    }
    let within = format!("within {KERNEL_PERCENT} %");
    let headings = ["", "simulated / published", "error factor", &within];
    let mut table =
        Table::new("Items per second of the simulated kernel and of the real one", &headings);
    for rate in rates {
        let met = if rate.met { "yes" } else { "no" };
        let [ratio, factor] = [rate.ratio, rate.error_factor].map(|of| format!("{of:.2}"));
        table.row(vec![rate.scope.into(), ratio, factor, met.into()]);
    }
    if let Some(addition) = facts.found.checks.as_ref().and_then(|checks| checks.kernel_by_addition)
    {
        table.remark(format!(
            "With a pool for each CPU, the rate depends on how the CPUs of a node count active items: the kernel repeats a compare-exchange\n\
             until it succeeds, for which a simulated CPU gets the line each time. With one addition, the rate would be {}.",
            rounded(addition)
        ));
    }
    let captures = facts.found.checks.as_ref().map_or(&[][..], |checks| &checks.captures);
    format!("\n{table}{}", captured(captures))
}

/// How the simulated kernel compares where a CPU keeps a line for a while.
fn captured(captures: &[Capture]) -> String {
    let Some(first) = captures.first() else { return String::new() };
    let of = |nanoseconds| captures.iter().filter(move |one| one.nanoseconds == nanoseconds);
    let scopes = of(first.nanoseconds).map(|one| one.scope);
    let headings: Vec<&str> = std::iter::once("").chain(scopes).collect();
    let title = "The same, simulated / published, where a CPU keeps a line that it got for writing";
    let mut table = Table::new(title, &headings);
    for nanoseconds in CAPTURES {
        let ratios = of(nanoseconds).map(|one| format!("{:.2}", one.ratio));
        table.row(std::iter::once(format!("{nanoseconds} ns")).chain(ratios).collect());
    }
    table.remark(
        "An exchange that fails is then repeated while the CPU has the line. For how long this machine keeps a line is not published: the\n\
         times are stated round inputs, and all other tables are without.",
    );
    format!("\n{table}")
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
        Load::Inside => "Closures spawned by a worker".into(),
        Load::ManyOutside => format!(
            "Closures from {OUTSIDE_THREADS} outside threads at once, {} each, nobody waits for their end",
            plan.closures
        ),
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
        Load::Kernel => "The same with the kernel's own workqueues, whose issuer takes the pool's lock and wakes a worker under it".into(),
    }
}

/// The columns of a load's table.
fn columns(load: Load) -> &'static [Column] {
    const COST: Column = ("ns per item", metric::NS_PER_ITEM, |of| {
        format!("{} ±{}", rounded(of.median), rounded(of.deviation))
    });
    const RATE: Column = ("items/s", metric::ITEMS_PER_SECOND, median);
    const BUSY: Column = ("CPU (%)", metric::CPU_PERCENT, median);
    const CALL: Column = ("call us p50", metric::QUEUE_LATENCY_P50, median);
    const CALL_P99: Column = ("p99", metric::QUEUE_LATENCY_P99, median);
    const CALL_MAX: Column = ("max", metric::QUEUE_LATENCY_MAX, median);
    const START: Column = ("start us p50", metric::START_LATENCY_P50, median);
    const START_P99: Column = ("p99", metric::START_LATENCY_P99, median);
    const START_MAX: Column = ("max", metric::START_LATENCY_MAX, median);
    const CALL_P90: Column = ("p90", metric::QUEUE_LATENCY_P90, median);
    const CALL_P95: Column = ("p95", metric::QUEUE_LATENCY_P95, median);
    match load {
        Load::Issuers | Load::Kernel => &[RATE, CALL, CALL_P90, CALL_P95, CALL_P99, CALL_MAX],
        Load::Outside | Load::Scope => {
            &[COST, RATE, BUSY, CALL, CALL_P99, CALL_MAX, START, START_P99, START_MAX]
        }
        Load::Joined | Load::Inside | Load::ManyOutside => &[COST, RATE, BUSY],
        Load::Idle => &[CALL, CALL_P99, CALL_MAX, START, START_P99, START_MAX],
    }
}

fn table(facts: &Facts<'_>, load: Load) -> Option<Table> {
    let (names, scenario) = (names(&facts.rows, load), load.name());
    if names.is_empty() {
        return None;
    }
    // CPU time is not counted on every platform.
    let is_there =
        |column: &Column| names.iter().any(|name| facts.of(scenario, name, column.1).is_some());
    let columns: Vec<Column> = columns(load).iter().copied().filter(is_there).collect();
    let published = |name: &&str, column: &Column| facts.published(scenario, name, column.1);
    let is_published = |column: &Column| names.iter().any(|name| published(name, column).is_some());
    let compared: Vec<Column> = columns.iter().copied().filter(is_published).collect();
    let mut headings = table::headings(&[""], &columns);
    if !compared.is_empty() {
        headings.push("|");
        headings.extend(compared.iter().map(|(heading, ..)| match *heading {
            "items/s" => "published items/s",
            other => other,
        }));
    }
    let mut table = Table::new(title(load, &facts.plan.0), &headings);
    for name in &names {
        let mut cells = facts.cells(*name, scenario, name, &columns);
        if !compared.is_empty() {
            cells.push("|".into());
            cells.extend(compared.iter().map(|column| or_none(published(name, column), rounded)));
        }
        table.row(cells);
    }
    if load == Load::Scope || load.has_issuers() {
        for (scope, same) in coinciding(facts.machine) {
            table.remark(format!("{scope} = {same}: {}", facts.machine.count(scope)));
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
            met(goal.met),
            goal.best_other.clone(),
        ]);
    }
    format!("\n{table}")
}

/// Time per item, idle latency and the rates by scope at a glance.
pub(crate) fn picture(report: &Report, show_goals: bool) -> String {
    let group = |name: &str| {
        let bar = table::bar(report, Load::Outside.name(), name, metric::NS_PER_ITEM, Bar::median);
        (name.to_owned(), vec![bar])
    };
    let goals = report.parameters["targets"].as_array().filter(|_| show_goals);
    let reference = goals.and_then(|goals| {
        let goal = goals.iter().find(|goal| goal["row"] == REQUEUE)?;
        let (other, half) = (goal["other"].as_f64()?, goal["goal"].as_f64()?);
        (half < 1.0).then(|| (other * half, "the goal for requeue".to_owned()))
    });
    let cost = Bars {
        title: "Time per item, from one outside thread (shorter is better)".into(),
        axis: "ns per item: median, least and most of the rounds".into(),
        groups: names(&report.rows, Load::Outside).into_iter().map(group).collect(),
        reference,
        ..Bars::lying(report)
    };
    let dots = |name: &str| {
        let dot = |metric| {
            Dot::measured(table::bar(report, Load::Idle.name(), name, metric, Bar::median))
        };
        (name.to_owned(), [metric::START_LATENCY_P50, metric::START_LATENCY_P99].map(dot).into())
    };
    let idle = Differences {
        title: "From queueing to start when everybody sleeps (less is better)".into(),
        axis: "microseconds: median, least and most of the rounds".into(),
        series: vec!["p50".into(), "p99".into()],
        rows: names(&report.rows, Load::Idle).into_iter().map(dots).collect(),
        scale: Scale::Factors,
        ..Differences::of(report)
    };
    let place = if report.machine == HERE {
        table::place(report, report.environment.cpus)
    } else {
        format!("{}, {} CPUs", table::place(report, ""), report.parameters["threads"])
    };
    let title = format!("nearq bench dispatch: {place}");
    draw(&title, vec![cost.diagram(), idle.diagram(), rates(report).diagram()])
}

/// Items per second by scope with an issuer on each CPU, beside those of the simulated kernel and the published ones, if there are any.
fn rates(report: &Report) -> Bars {
    let find = |load: Load, name: &str| report.find(load.name(), name, metric::ITEMS_PER_SECOND);
    let names = names(&report.rows, Load::Issuers);
    let has = |is: &dyn Fn(&str) -> bool| names.iter().any(|name| is(name));
    let with_kernel = has(&|name| find(Load::Kernel, name).is_some());
    let compared =
        has(&|name| find(Load::Issuers, name).is_some_and(|row| row.published.is_some()));
    let group = |name: &&str| {
        let ours = find(Load::Issuers, name).expect("every row of the load has it");
        let mut bars = vec![Some(Bar::median(&ours.summary).over(1e6))];
        if with_kernel {
            let kernel = find(Load::Kernel, name);
            bars.push(kernel.map(|row| Bar::median(&row.summary).over(1e6)));
        }
        if compared {
            bars.push(ours.published.map(|value| Bar::exactly(value).over(1e6)));
        }
        ((*name).to_owned(), bars)
    };
    let usual = Bars::lying(report);
    let mut series = vec!["nearq".to_owned()];
    series.extend(with_kernel.then(|| "the kernel, simulated".into()));
    series.extend(compared.then(|| "the kernel, published".into()));
    Bars {
        title: "An issuer on each CPU, which waits for its item: rate by scope (longer is better)"
            .into(),
        axis: "million items per second: median, least and most of the rounds".into(),
        series: if series.len() > 1 { series } else { usual.series },
        groups: names.iter().map(group).collect(),
        ..usual
    }
}
