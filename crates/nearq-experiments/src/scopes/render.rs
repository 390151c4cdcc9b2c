//! The tables and the picture of `scopes`.

use super::configuration::{Policy, Scenario, is_kernel, of_document, published};
use super::judgement::Judgement;
use super::payload::Declared;
use super::{Facts, Found, QUEUE, Times};
use crate::harness::published as error_factor;
use crate::harness::table::{self, Column, counted, mean, met, or_none};
use crate::plots::bars::Bar;
use crate::plots::differences::{Differences, Dot, Scale};
use crate::plots::draw;
use nearq_report::{Report, Summary, Table, find, metric, plus_minus};

// The tables of `scopes`, beside the document's figures.

/// Everything for people.
pub(super) fn text(facts: &Facts<'_>) -> String {
    let Times { runs, duration, warm_up } = facts.plan.times;
    let Found { speeds, store, declared } = &facts.found;
    let environment = &facts.environment;
    let (duration, warm_up) = (duration.as_secs_f64(), warm_up.as_secs_f64());
    let mut text = format!("nearq bench scopes, on {QUEUE}\n");
    if let Some(declared) = declared {
        let (about, cpus) = (environment.cpu_model.as_deref().unwrap_or(""), environment.cpus);
        text.push_str(&format!(
            "{about}: {cpus} CPUs at {} MHz, virtual time\nstore: {store}\n\
             {runs} runs (seeds) of {duration:.2} s each (after {warm_up:.2} s of warm-up), mean ± deviation.\n{}",
            declared.clock_mhz,
            inputs(declared),
        ));
        text.push_str(if facts.experiment.wake_within_cache {
            "A woken thread looks for an idle CPU under its last-level cache alone.\n"
        } else {
            "A woken thread looks for an idle CPU in its whole node; --wake-within-cache changes that.\n"
        });
    } else {
        text.push_str(&format!(
            "{}\nstore: {store}\n\
             {runs} runs of {duration:.2} s each (after {warm_up:.2} s of warm-up), order alternating, mean ± deviation.\n\
             Bandwidth counts data that came back and verified. One CPU here does, in MiB/s: AES-256-XTS {:.0}, \
             SHA-512 {:.0}, data {:.0};\nso a block costs its issuer {:.0} us (generate, hash twice) and the items \
             {:.0} us (encrypt, decrypt).\n",
            environment.describe(),
            speeds.encrypt_mib_s,
            speeds.sha512_mib_s,
            speeds.generate_mib_s,
            speeds.issuer_us_per_block(),
            speeds.items_us_per_block(),
        ));
    }
    let issuer = speeds.issuer_us_per_block();
    let share = issuer / (issuer + speeds.items_us_per_block()) * 100.0;
    if share > 50.0 {
        text.push_str(&format!(
            "An issuer does {share:.0} % of a block's work: with fewer issuers than CPUs, they are the limit more than the queue.\n"
        ));
    }
    for scenario in &facts.plan.scenarios {
        text.push_str(&format!("\n{}", table(facts, scenario)));
    }
    if facts.model().is_some() {
        text.push_str(&format!("\n{}", behind(facts)));
    }
    text.push_str(&closing(facts));
    if facts.show_goals() && !facts.verdict.is_empty() {
        text.push_str(&format!("\n{}{}", judged(&facts.verdict), signs(&facts.verdict)));
    }
    if let Some(why) = facts.too_small.as_ref().filter(|_| facts.show_goals()) {
        text.push_str(&format!("\n{why}\n"));
    }
    text
}

/// A mean and its deviation.
fn mean_and_deviation(of: Summary) -> String {
    plus_minus(of.mean, of.deviation)
}

const COLUMNS: [Column; 2] = [
    ("MiB/s", metric::THROUGHPUT, mean_and_deviation),
    ("CPU (%)", metric::CPU_PERCENT, mean_and_deviation),
];

fn table(facts: &Facts<'_>, scenario: &Scenario) -> Table {
    let title = format!(
        "{}: {}; {} with {} blocks in flight each",
        scenario.name,
        scenario.meaning,
        counted(scenario.issuers, "issuer"),
        scenario.in_flight,
    );
    let (planned, scenario) = (&facts.plan.planned, scenario.name.as_str());
    let compared =
        planned.iter().any(|plan| published(scenario, plan.configuration.name).is_some());
    let mut headings = table::headings(&[""], &COLUMNS);
    headings.push("vs system (%)");
    if compared {
        headings.extend(["|", "published MiB/s", "CPU (%)", "vs system (%)"]);
    }
    let mut table = Table::new(title, &headings);
    let throughput = |row: &str| facts.of(scenario, row, metric::THROUGHPUT);
    for plan in planned {
        let name = plan.configuration.name;
        let mut cells = match &plan.same_as {
            None => {
                let mut cells = facts.cells(name, scenario, name, &COLUMNS);
                let both = throughput(name).zip(throughput(plan.configuration.base()));
                cells.push(or_none(both, |(compared, base)| percent(compared.mean, base.mean)));
                cells
            }
            Some((same_as, _)) => {
                vec![name.into(), format!("= {same_as}"), String::new(), String::new()]
            }
        };
        if compared {
            cells.push("|".into());
            cells.extend(published_cells(scenario, name));
        }
        table.row(cells);
    }
    table
}

/// What else a simulated machine reports.
fn behind(facts: &Facts<'_>) -> Table {
    const COLUMNS: [Column; 4] = [
        // Of all CPUs: counted in CPUs below.
        ("busy CPUs", metric::CPU_PERCENT, mean::<2>),
        ("an issuer's CPU (%)", metric::ISSUER_CPU_PERCENT, mean::<2>),
        ("helped items (%)", metric::HELPED_PERCENT, mean::<2>),
        ("brought back (% of items)", metric::REPATRIATED_PERCENT, mean::<2>),
    ];
    let title = "Behind the tables, on average over the runs";
    let mut table = Table::new(title, &table::headings(&[""], &COLUMNS));
    for scenario in &facts.plan.scenarios {
        for configuration in facts.plan.run() {
            let (scenario, name) = (&scenario.name, configuration.name);
            let mut cells = facts.cells(format!("{scenario}: {name}"), scenario, name, &COLUMNS);
            if let Some(percent) = facts.of(scenario, name, metric::CPU_PERCENT) {
                let cpus = facts.environment.cpus as f64 / 100.0;
                cells[1] = format!("{:.2}", percent.mean * cpus);
            }
            table.row(cells);
        }
    }
    table
}

/// Which configurations coincide and why, and what the published figures are.
fn closing(facts: &Facts<'_>) -> String {
    let same = facts
        .plan
        .planned
        .iter()
        .filter_map(|plan| Some((plan.configuration.name, plan.same_as.as_ref()?)));
    let same: Vec<_> = same.collect();
    let mut text = String::from("\n");
    for (name, (same_as, reason)) in &same {
        text.push_str(&format!("{name} = {same_as} on this machine: {reason}\n"));
    }
    if facts.model().is_some() {
        text.push_str(
            "Helping: idle workers of one pod take items of another. A queue of ours helps unless told otherwise, as in the rows\n\
             `+helping`; the others do without. It changes nothing for system (one pod) and strict rows.\n\
             The rows `kernel:` have the policy of the kernel's unbound pools, in outline: a worker for every item, so that as many\n\
             as there are items in a pod are runnable beside its issuers, and a mere hint of where each wakes up. Ours, nobody helping,\n\
             have a worker for each CPU of the pod and bring one back by narrowing its affinity for a moment. The rows `hinted:` are\n\
             ours under a scheduler that takes such a hint, as nearq-scx does, in place of the affinity.\n",
        );
    } else if !same.is_empty() {
        text.push_str(
            "They differ on a machine with several last-level caches, such as the document's: --on ryzen-3900x simulates it.\n",
        );
    }
    text.push_str(
        "Published: a Ryzen 9 3900X (12 cores, 24 threads, 4 last-level caches) with dm-crypt on an SSD, 5 runs of 60 s,\n\
         May 2023. Compare the last columns: another machine's bandwidth says nothing, what a scope costs or gains does.\n",
    );
    text
}

/// The inputs of a simulated run, and what is a result of it.
fn inputs(declared: &Declared) -> String {
    let us = |time: std::time::Duration| time.as_nanos() as f64 / 1000.0;
    format!(
        "Inputs, per block of 32 KiB: data {:.1} us, SHA-512 {:.1} us (twice), each of two items {:.1} us, so that items cost {:.2} of\n\
         the issuer's work: public measurements, and what the document says of its loads; besides, the machine's costs.\n\
         Results: everything in the tables. Only gaps between rows are comparable; MiB/s follow from the inputs.\n",
        us(declared.generate()),
        us(declared.hash()),
        us(declared.item()),
        declared.item_percent as f64 / 100.0,
    )
}

/// What the run had to show, and whether it did.
fn judged(judgements: &[Judgement]) -> Table {
    let count = judgements.iter().filter(|one| one.met).count();
    let title = format!("Targets: {count} of {} met", judgements.len());
    let headings =
        ["", "shall", "vs system (%)", "published", "", "by (points)", "error factor", ""];
    let mut table = Table::new(title, &headings);
    for one in judgements {
        table.row(vec![
            format!("{}: {}", one.scenario, one.row),
            one.shall.clone(),
            format!("{:+.2}", one.gap),
            or_none(one.published, |gap| format!("{gap:+.2}")),
            met(one.met),
            format!("{:+.2}", one.margin),
            or_none(one.error_factor, |factor| format!("{factor:.2}")),
            one.error_factor.map_or("", error_factor::word).into(),
        ]);
    }
    let factors = || judgements.iter().filter_map(|one| one.error_factor);
    if factors().next().is_some() {
        table.remark(format!(
            "{} of {} published gaps reproduced: the error factor, the larger gap over the smaller one, is at most {}; a gap below 1 % counts as 1 %.",
            factors().filter(|factor| *factor <= error_factor::MOST).count(),
            factors().count(),
            error_factor::MOST,
        ));
    }
    table
}

/// How many published signs were found by each policy, and what that means.
fn signs(judgements: &[Judgement]) -> String {
    let found = |policy: Policy| {
        let of_policy = |one: &&Judgement| one.published.is_some() && one.policy == policy;
        let all = || judgements.iter().filter(of_policy);
        (all().filter(|one| one.met).count(), all().count())
    };
    let ((kernel, of_kernel), (ours, of_ours)) = (found(Policy::Kernel), found(Policy::Ours));
    if of_kernel + of_ours == 0 {
        return String::new();
    }
    format!(
        "Published gaps above 1 % whose sign was found: {kernel} of {of_kernel} by the kernel's policy, which is what was measured, so that this\n\
         says how well the machine is simulated; {ours} of {of_ours} by our queues, which do something else.\n"
    )
}

fn published_cells(scenario: &str, configuration: &str) -> [String; 3] {
    let Some(figures) = published(scenario, configuration) else {
        return ["-".into(), "-".into(), "-".into()];
    };
    let base = published(scenario, "system").expect("the document has it");
    let (throughput, cpu) = (figures.throughput, figures.cpu);
    let compared = percent(throughput.0, base.throughput.0);
    [plus_minus(throughput.0, throughput.1), plus_minus(cpu.0, cpu.1), compared]
}

/// How much `value` differs from `base`, in percent, as the document prints it.
fn percent(value: f64, base: f64) -> String {
    let percent = (value / base - 1.0) * 100.0;
    if !percent.is_finite() {
        return "-".into();
    }
    if percent.abs() < 0.005 { "0.00".into() } else { format!("{percent:+.2}") }
}

// The picture of `scopes`, beside the document's figures.

/// Rows that differ from `system` by more percent have a diagram of their own, so that the others can be told apart.
const FAR: f64 = 25.0;

/// Bandwidth against `system` and CPU use at a glance, with the kernel's policy shown separately.
pub(crate) fn picture(report: &Report) -> String {
    let verified = "Bandwidth of verified data against system's (more is better)";
    let is_far = |name: &&str| {
        let mut all = scenarios(report).into_iter().filter_map(|load| against(report, load, name));
        all.any(|bar| bar.value.abs() > FAR)
    };
    let (far, near): (Vec<_>, Vec<_>) = names(report, false).into_iter().partition(is_far);
    let (kernels, all) =
        (names(report, true), [names(report, false), names(report, true)].concat());
    let mut diagrams = vec![differences(report, verified.into(), &near)];
    if !far.is_empty() {
        diagrams.push(differences(report, format!("{verified}, rows far from it"), &far));
    }
    if !kernels.is_empty() {
        diagrams.push(differences(report, format!("{verified}, the kernel's policy"), &kernels));
    }
    diagrams.push(cpu_use(report, &all));
    let (model, cpus) = (table::model(report), report.environment.cpus);
    let diagrams = diagrams.iter().map(Differences::diagram).collect();
    draw(&format!("nearq bench scopes: {model}, {cpus} CPUs"), diagrams)
}

/// The rows of our queues, or of the kernel's.
fn names(report: &Report, kernel: bool) -> Vec<&str> {
    let rows = report.rows.iter().map(|row| row.row.as_str());
    table::distinct(rows.filter(|row| is_kernel(row) == kernel))
}

fn scenarios(report: &Report) -> Vec<&str> {
    table::distinct(report.rows.iter().map(|row| row.scenario.as_str()))
}

/// The loads, for the legend: how many issuers each has, and with how many blocks in flight.
fn series(report: &Report) -> Vec<String> {
    let about = |scenario: &str| {
        let load = &report.parameters["scenarios"][scenario];
        format!("{scenario} ({} x {})", load["issuers"], load["in_flight"])
    };
    scenarios(report).into_iter().map(about).collect()
}

/// How much a row's bandwidth differs from that of its policy's `system` under a load, in percent.
fn against(report: &Report, scenario: &str, name: &str) -> Option<Bar> {
    let of = |row: &str| Some(find(&report.rows, scenario, row, metric::THROUGHPUT)?.summary);
    let base = names(report, is_kernel(name)).into_iter().find(|row| is_system(row))?;
    Some(Bar::mean(&of(name)?).beyond(of(base)?.mean))
}

/// Whether the rows of its policy are compared with that row.
fn is_system(name: &str) -> bool {
    name == "system" || is_kernel(name) && of_document(name) == "system"
}

/// The bandwidth of these rows against `system`'s, and the published differences, if the run is on a machine like the document's.
fn differences(report: &Report, title: String, names: &[&str]) -> Differences {
    let judgements = report.parameters["judgements"].as_array();
    let compared = judgements.is_some_and(|all| all.iter().any(|one| !one["published"].is_null()));
    let told = |scenario: &str, name: &str| {
        let of = |row: &str| Some(published(scenario, row)?.throughput.0);
        let percent = (of(name)? / of("system")? - 1.0) * 100.0;
        (compared && !is_system(name)).then_some(Bar::exactly(percent))
    };
    let row = |&name: &&str| {
        let dot = |scenario| Dot {
            measured: against(report, scenario, name),
            published: told(scenario, name),
        };
        let dots = scenarios(report).into_iter().map(dot).collect();
        (with_those_that_coincide(report, name), dots)
    };
    Differences {
        title,
        axis: "percent: mean, least and most of the runs".into(),
        series: series(report),
        rows: names.iter().map(row).collect(),
        ..Differences::of(report)
    }
}

/// The CPU time of all rows.
fn cpu_use(report: &Report, names: &[&str]) -> Differences {
    let row = |&name: &&str| {
        let bar = |scenario| {
            Dot::measured(table::bar(report, scenario, name, metric::CPU_PERCENT, Bar::mean))
        };
        (name.to_owned(), scenarios(report).into_iter().map(bar).collect())
    };
    Differences {
        title: "CPU time used (more: fewer CPUs idle while work waits)".into(),
        axis: "percent of the CPUs: mean, least and most of the runs".into(),
        series: series(report),
        rows: names.iter().map(row).collect(),
        scale: Scale::Values,
        dense: true,
        ..Differences::of(report)
    }
}

/// A row's name beside its dots.
fn with_those_that_coincide(report: &Report, name: &str) -> String {
    let others = report.parameters["coincide"].as_object();
    let same = others.into_iter().flatten().filter(|(_, other)| other["same_as"] == name);
    let same: Vec<&str> = same.map(|(same, _)| same.as_str()).collect();
    if same.is_empty() { name.into() } else { format!("{name} (= {})", same.join(", ")) }
}

#[cfg(test)]
#[path = "tests/render.rs"]
mod render_tests;
