//! `nearq metrics`: prints a process's counts in a format of Prometheus, for systems that store metrics.

#![allow(clippy::disallowed_methods, reason = "a Linux program")]

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use nearq_command::exposition::{Converted, Format};
use nearq_control::metrics::write_text;
use nearq_control::protocol::{GetProcess, GetStatistics};

use crate::attach;
use crate::output::{self, Failure};

/// How many bytes are printed at once.
const PAGE: usize = 64 * 1024;
/// The most seconds that items may be timed: a scrape takes no longer.
const LONGEST: u64 = 3600;

const LEGEND: &str = "\
Counters are exact; a queue's counts start when it is created. Waiting and running
times are included only while items are timed: with --time, or while `nearq top`
or `nearq tune` runs. Everything has the labels `pid` and `command` (the
program's name), so that several processes can be stored together.
docs/metrics.md lists the names, and describes how to use node exporter's folder.

Examples:
  nearq metrics 4711
  nearq metrics 4711 --time 5
  nearq metrics 4711 --format openmetrics";

/// The arguments of `nearq metrics`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Time items for this many seconds first, at most 20000 items a second
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<u64>,

    /// The output format: the text format of Prometheus, or OpenMetrics
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut client = attach::connect(options.pid)?;
    let timing = options.time.is_some();
    if let Some(seconds) = options.time {
        client.call(&GetStatistics { timing }).map_err(attach::failure)?;
        sleep(Duration::from_secs(seconds));
    }
    let process = client.call(&GetProcess {}).map_err(attach::failure)?.process;
    let reply = client.call(&GetStatistics { timing }).map_err(attach::failure)?;
    let labels = vec![("pid", options.pid.to_string()), ("command", name(&process.command))];
    let mut pages = Pages { text: String::new(), ended: None };
    let mut converted = Converted::new(options.format, &mut pages);
    match write_text(reply.statistics, labels, &mut converted).and_then(|()| pages.turn()) {
        Ok(()) => Ok(()),
        Err(_) => pages.ended.unwrap_or(Ok(())),
    }
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
