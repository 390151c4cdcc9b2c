//! The report about the jobs afterwards: a table, and JSON.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use nearq_command::screen::{Side, counted, fitted, folded, or_dash, plain, width_of};
use nearq_home::Nodes;
use nearq_processes::Account;
use nearq_processes::jobs::{End, Outcome, Report, most};
use serde::Serialize;

use super::{Options, why_none};

/// Longer commands are cut in the table.
pub(super) const SHOWN: usize = 40;

const SIDES: [Side; 14] = {
    let mut sides = [Side::Right; 14];
    sides[8] = Side::Left;
    sides[12] = Side::Left;
    sides[13] = Side::Left;
    sides
};

/// The columns that narrow terminals do not get, the first ones first: the job, its time, its end and its command stay.
const SPARE: [usize; 10] = [8, 7, 3, 2, 11, 10, 9, 5, 4, 1];

const HEAD: [&str; 14] = [
    "JOB", "HOME", "MOST", "LAST", "USER", "SYSTEM", "TIME", "RSS", "MEMORY", "MOVES", "OUT",
    "BACK", "END", "COMMAND",
];

/// The system's number of a node.
pub(super) fn id(index: Option<usize>, nodes: &Nodes) -> String {
    or_dash(index.map(|index| nodes.get(index).id))
}

/// `0:4,1:8`: KiB on each node.
pub(super) fn memory(account: &Account, nodes: &Nodes) -> String {
    if account.resident.is_empty() {
        return "-".to_owned();
    }
    let each = nodes.iter().zip(&account.resident);
    let each: Vec<String> =
        each.map(|(node, bytes)| format!("{}:{}", node.id, bytes / 1024)).collect();
    each.join(",")
}

/// How a job ended, in a word.
fn end(report: &Report) -> String {
    let how = match report.end {
        End::Exit(status) => status.to_string(),
        End::Signal(signal) => signal_name(signal),
    };
    let mut remarks = Vec::new();
    if report.stopped {
        remarks.push("stopped".to_owned());
    }
    if report.timed_out {
        remarks.push("timed out".to_owned());
    }
    if report.attempts > 1 {
        remarks.push(format!("run {}", report.attempts));
    }
    if remarks.is_empty() { how } else { format!("{how} ({})", remarks.join(", ")) }
}

/// The name of a signal without its `SIG`.
pub(super) fn signal_name(signal: i32) -> String {
    let names = [
        (1, "HUP"),
        (2, "INT"),
        (3, "QUIT"),
        (4, "ILL"),
        (6, "ABRT"),
        (7, "BUS"),
        (8, "FPE"),
        (9, "KILL"),
        (11, "SEGV"),
        (13, "PIPE"),
        (14, "ALRM"),
        (15, "TERM"),
        (24, "XCPU"),
        (25, "XFSZ"),
    ];
    let name = names.iter().find(|(number, _)| *number == signal);
    name.map_or_else(|| format!("signal {signal}"), |(_, name)| (*name).to_owned())
}

/// A row for each job, and a line about all of them. `without` says why there are no homes.
pub(super) fn table(
    reports: &[Report],
    nodes: &Nodes,
    outcome: &Outcome,
    without: Option<&str>,
) -> String {
    let mut rows = vec![HEAD.map(str::to_owned).to_vec()];
    rows.extend(reports.iter().map(|report| row(report, nodes)));
    let width = width_of(&std::io::stderr());
    let mut text = fitted(&SIDES, &rows, &SPARE, width);
    let sum = |of: fn(&Report) -> Duration| seconds(reports.iter().map(of).sum());
    text += &format!(
        "{}, {} s; user {} s, system {} s\n",
        counts(outcome),
        seconds(outcome.elapsed),
        sum(|report| report.user),
        sum(|report| report.system),
    );
    if let Some(why) = without {
        text += &format!("homes: {why}\n");
    }
    folded(&text, width)
}

/// The number of jobs, by how they ended.
fn counts(outcome: &Outcome) -> String {
    let all = outcome.ended + outcome.not_started;
    let succeeded = outcome.ended - outcome.failed - outcome.stopped;
    let more = if outcome.all_known { "" } else { " or more" };
    let jobs = if more.is_empty() { counted(all, "job") } else { format!("{all}{more} jobs") };
    format!(
        "{jobs}: {succeeded} succeeded, {} failed, {} stopped, {}{more} not begun",
        outcome.failed, outcome.stopped, outcome.not_started
    )
}

fn row(report: &Report, nodes: &Nodes) -> Vec<String> {
    let account = report.account.as_ref();
    let count = |count: fn(&Account) -> u32| or_dash(account.map(count));
    let command = plain(&String::from_utf8_lossy(&report.command));
    let command = if command.chars().count() > SHOWN {
        command.chars().take(SHOWN - 3).chain("...".chars()).collect()
    } else {
        command
    };
    vec![
        report.number.to_string(),
        id(account.map(|account| account.home), nodes),
        id(account.and_then(most), nodes),
        id(account.and_then(|account| account.last), nodes),
        seconds(report.user),
        seconds(report.system),
        seconds(report.elapsed),
        size(report.max_rss_kib),
        or_dash(account.map(|account| sizes(account, nodes))),
        count(|account| account.migrations),
        count(|account| account.let_out),
        count(|account| account.brought_home),
        end(report),
        command,
    ]
}

/// Seconds as they are printed in tables.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.2}", time.as_secs_f64())
}

/// `0:4K 1:12M`.
fn sizes(account: &Account, nodes: &Nodes) -> String {
    let seen = nodes.iter().zip(&account.resident).filter(|(_, bytes)| **bytes > 0);
    let each: Vec<String> =
        seen.map(|(node, bytes)| format!("{}:{}", node.id, size(bytes / 1024))).collect();
    if each.is_empty() { "-".to_owned() } else { each.join(" ") }
}

/// KiB in about four characters.
fn size(kib: u64) -> String {
    match kib {
        0..10_000 => format!("{kib}K"),
        10_000..10_240_000 => format!("{}M", kib / 1024),
        _ => format!("{}G", kib / (1024 * 1024)),
    }
}

/// Everything that is known.
#[derive(Serialize)]
pub(super) struct Run {
    command: Vec<String>,
    /// The homes that jobs could have.
    homes: Vec<HomeOf>,
    /// Why jobs have no homes, or homes without some of their effects.
    without: Option<String>,
    strict: bool,
    elapsed_s: f64,
    ended: u64,
    failed: u64,
    /// The number of jobs that were ended because the run was ended.
    stopped: u64,
    not_started: u64,
    /// Whether the inputs were read to their end.
    all_known: bool,
    /// The error of the run itself.
    errors: Vec<String>,
    /// The signal that ended the run.
    signal: Option<i32>,
    jobs: Vec<Job>,
}

#[derive(Serialize)]
struct HomeOf {
    id: usize,
    node: usize,
    cpus: String,
}

#[derive(Serialize)]
struct Job {
    number: u64,
    command: String,
    exit: Option<u8>,
    signal: Option<i32>,
    stopped: bool,
    timed_out: bool,
    attempts: u64,
    /// Seconds since 1970.
    started: f64,
    elapsed_s: f64,
    user_s: f64,
    system_s: f64,
    max_rss_kib: u64,
    printed_bytes: u64,
    home: Option<usize>,
    most: Option<usize>,
    first: Option<usize>,
    last: Option<usize>,
    /// CPU time that was sampled, by node.
    cpu_s: BTreeMap<usize, f64>,
    /// By node.
    memory_bytes: BTreeMap<usize, u64>,
    waited_s: Option<f64>,
    migrations: Option<u32>,
    let_out: Option<u32>,
    brought_home: Option<u32>,
    out_s: Option<f64>,
    left_alone: bool,
}

pub(super) fn json(options: &Options, reports: &[Report], nodes: &Nodes, outcome: &Outcome) -> Run {
    let none = why_none(options.home, nodes)
        .map(|why| format!("{why}; the CPUs and memory of jobs are left alone"));
    Run {
        command: options.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        homes: nodes
            .iter()
            .map(|node| HomeOf { id: node.id, node: node.memory, cpus: node.cpus.to_list() })
            .collect(),
        without: none.or_else(|| outcome.refused.clone()),
        strict: options.strict,
        elapsed_s: outcome.elapsed.as_secs_f64(),
        ended: outcome.ended,
        failed: outcome.failed,
        stopped: outcome.stopped,
        not_started: outcome.not_started,
        all_known: outcome.all_known,
        errors: outcome.errors.clone(),
        signal: outcome.signal,
        jobs: reports.iter().map(|report| job(report, nodes)).collect(),
    }
}

fn job(report: &Report, nodes: &Nodes) -> Job {
    let account = report.account.as_ref();
    let id = |index: usize| nodes.get(index).id;
    let (exit, signal) = match report.end {
        End::Exit(status) => (Some(status), None),
        End::Signal(signal) => (None, Some(signal)),
    };
    let cpu = account.map_or(&[][..], |account| &account.cpu_time);
    let resident = account.map_or(&[][..], |account| &account.resident);
    Job {
        number: report.number,
        command: String::from_utf8_lossy(&report.command).into_owned(),
        exit,
        signal,
        stopped: report.stopped,
        timed_out: report.timed_out,
        attempts: report.attempts,
        started: report.started.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64(),
        elapsed_s: report.elapsed.as_secs_f64(),
        user_s: report.user.as_secs_f64(),
        system_s: report.system.as_secs_f64(),
        max_rss_kib: report.max_rss_kib,
        printed_bytes: report.printed,
        home: account.map(|account| id(account.home)),
        most: account.and_then(most).map(id),
        first: account.and_then(|account| account.first).map(id),
        last: account.and_then(|account| account.last).map(id),
        cpu_s: cpu.iter().enumerate().map(|(node, time)| (id(node), time.as_secs_f64())).collect(),
        memory_bytes: resident.iter().enumerate().map(|(node, bytes)| (id(node), *bytes)).collect(),
        waited_s: account.map(|account| account.waited.as_secs_f64()),
        migrations: account.map(|account| account.migrations),
        let_out: account.map(|account| account.let_out),
        brought_home: account.map(|account| account.brought_home),
        out_s: account.map(|account| account.out.as_secs_f64()),
        left_alone: report.left_alone,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_outcome() {
        let outcome = Outcome {
            ended: 10,
            failed: 3,
            stopped: 2,
            not_started: 30,
            all_known: true,
            ..Outcome::default()
        };
        assert_eq!(counts(&outcome), "40 jobs: 5 succeeded, 3 failed, 2 stopped, 30 not begun");
        let unread = Outcome { all_known: false, ..outcome };
        assert!(counts(&unread).starts_with("40 or more jobs: "));
    }

    #[test]
    fn sizes_are_short() {
        assert_eq!([0, 9_999, 10_240, 20_971_520].map(size), ["0K", "9999K", "10M", "20G"]);
    }
}
