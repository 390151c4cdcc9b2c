//! `nearq metrics`: prints the counts of processes in a format of Prometheus, for systems that store metrics.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

mod families;

use std::fmt;
use std::thread::sleep;
use std::time::{Duration, Instant};

use clap::Args;
use nearq_command::exposition::{Converted, Format};
use nearq_command::output::print_message;
use nearq_control::client::Client;
use nearq_control::metrics::{text, write_text};
use nearq_control::protocol::{GetProcess, GetStatistics, Statistics};

use crate::attach;
use crate::output::{self, Failure};
use families::Families;

/// With --all, how long the command waits for one process to say what it is, and for all together: a scrape must not take longer than the
/// ten seconds that Prometheus waits.
const PATIENCE: Duration = Duration::from_secs(3);
const ALL_PATIENCE: Duration = Duration::from_secs(5);

/// How many bytes are printed at once.
const PAGE: usize = 64 * 1024;
/// The most seconds that items may be timed: a scrape takes no longer.
const LONGEST: u64 = 3600;

const LEGEND: &str = "\
Counters are exact; a queue's counts start when it is created. Waiting and running
times are included only while items are timed: with --time, or while `nearq top`
or `nearq tune` runs. Everything has the labels `pid` and `command` (the
program's name). The counts of several processes are one text, in which each metric
occurs once. With --all, a process that does not answer is left out, and a line on
standard error says so; otherwise nothing is printed, and the exit status is not 0.
docs/metrics.md lists the names, and describes how to use node exporter's folder.

Examples:
  nearq metrics 4711
  nearq metrics 4711 --time 5
  nearq metrics --all > nearq.new && mv nearq.new nearq.prom
  nearq metrics 4711 4712 --format openmetrics";

/// The arguments of `nearq metrics`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The processes; `nearq ps` lists processes
    #[arg(value_name = "PID", value_parser = attach::pid, required_unless_present = "all", conflicts_with = "all")]
    pids: Vec<u32>,

    /// All processes that can be inspected and have workqueues
    #[arg(long)]
    all: bool,

    /// Time items for this many seconds first, at most 20000 items a second
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<u64>,

    /// The output format: the text format of Prometheus, or OpenMetrics
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
}

/// A process that is asked.
struct Asked {
    pid: u32,
    client: Client,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let timing = options.time.is_some();
    let mut asked = Vec::new();
    if options.all {
        // A process that ends or does not answer must not hide the others.
        for pid in pids_of_all()? {
            match attach::connect(pid) {
                Ok(client) => asked.push(Asked { pid, client }),
                Err(failure) => left_out(pid, &failure),
            }
        }
    } else {
        let mut pids = options.pids.clone();
        pids.sort_unstable();
        pids.dedup();
        for pid in pids {
            asked.push(Asked { pid, client: attach::connect(pid)? });
        }
    }
    if let Some(seconds) = options.time {
        keep(&mut asked, options.all, |asked| {
            asked.client.call(&GetStatistics { timing }).map(drop).map_err(attach::failure)
        })?;
        sleep(Duration::from_secs(seconds));
    }
    let mut pages = Pages { text: String::new(), ended: None };
    let mut converted = Converted::new(options.format, &mut pages);
    let written = if let [one] = &mut asked[..]
        && !options.all
    {
        let (statistics, labels) = counts(one, timing)?;
        write_text(statistics, labels, &mut converted)
    } else {
        let mut families = Families::default();
        keep(&mut asked, options.all, |asked| {
            let (statistics, labels) = counts(asked, timing)?;
            families.add(&text(statistics, labels));
            Ok(())
        })?;
        families.write(&mut converted)
    };
    match written.and_then(|()| pages.turn()) {
        Ok(()) => Ok(()),
        Err(_) => pages.ended.unwrap_or(Ok(())),
    }
}

/// The numbers of the processes that answer and have workqueues.
fn pids_of_all() -> Result<Vec<u32>, Failure> {
    let mut found = attach::processes()?;
    found.sort_by_key(|found| found.pid);
    let answers = attach::ask_all(&found, PATIENCE, Instant::now() + ALL_PATIENCE);
    let mut pids = Vec::new();
    for (found, answer) in found.iter().zip(answers) {
        match answer {
            Ok(process) if process.runtime => pids.push(found.pid),
            Ok(_) => {}
            Err(error) => left_out(found.pid, &error),
        }
    }
    Ok(pids)
}

/// Calls `each` for every process. With `all`, a process that does not answer is left out from then on; otherwise its failure is returned.
fn keep(
    asked: &mut Vec<Asked>,
    all: bool,
    mut each: impl FnMut(&mut Asked) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut failed = None;
    asked.retain_mut(|one| match each(one) {
        Ok(()) => true,
        Err(failure) if all => {
            left_out(one.pid, &failure);
            false
        }
        Err(failure) => {
            failed.get_or_insert(failure);
            true
        }
    });
    failed.map_or(Ok(()), Err)
}

/// Reports that a process is not among those that are printed.
fn left_out(pid: u32, why: &dyn fmt::Display) {
    print_message("nearq", format!("process {pid} is left out: {why}"));
}

/// The labels that all counts of a process have.
type Labels = Vec<(&'static str, String)>;

/// The counts of a process, and their labels.
fn counts(asked: &mut Asked, timing: bool) -> Result<(Statistics, Labels), Failure> {
    let process = asked.client.call(&GetProcess {}).map_err(attach::failure)?.process;
    let reply = asked.client.call(&GetStatistics { timing }).map_err(attach::failure)?;
    let labels = vec![("pid", asked.pid.to_string()), ("command", name(&process.command))];
    Ok((reply.statistics, labels))
}

/// The program's name, from a command line.
fn name(command: &str) -> String {
    let program = command.split_whitespace().next().unwrap_or_default();
    program.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Prints text page by page.
struct Pages {
    text: String,
    /// Why printing stopped: standard output cannot be written, or its reader is gone.
    ended: Option<Result<(), Failure>>,
}

impl Pages {
    /// Prints the text so far.
    fn turn(&mut self) -> fmt::Result {
        let printed = output::try_print(&self.text);
        self.text.clear();
        if let Ok(true) = printed {
            return Ok(());
        }
        self.ended = Some(printed.map(drop));
        Err(fmt::Error)
    }
}

impl fmt::Write for Pages {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.text.push_str(text);
        if self.text.len() < PAGE { Ok(()) } else { self.turn() }
    }
}

fn seconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse().ok().filter(|seconds| (1..=LONGEST).contains(seconds));
    seconds.ok_or_else(|| format!("give a whole number of seconds from 1 to {LONGEST}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_names_have_no_folder_and_no_arguments() {
        assert_eq!(name("/usr/bin/server --port 80"), "server");
        assert_eq!((name("server"), name("")), ("server".into(), String::new()));
    }
}
