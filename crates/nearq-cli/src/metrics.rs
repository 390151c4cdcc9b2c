//! `nearq metrics`: a process's counts as OpenMetrics, for systems that store metrics.

#![allow(clippy::disallowed_methods, reason = "a Linux program")]

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use clap::Args;
use nearq_control::metrics::write_text;
use nearq_control::protocol::GetStatistics;

use crate::attach;
use crate::output::{self, Failure};

/// Bytes that are printed at once.
const PAGE: usize = 64 * 1024;
/// Seconds that items may be timed for at most: a scrape takes no longer.
const LONGEST: u64 = 3600;

const LEGEND: &str = "\
Counters are exact and count since the process began. How long items waited and
ran is there only while items are timed: with --time, or while `nearq top` or
`nearq tune` look on. docs/metrics.md lists the names.

Examples:
  nearq metrics 4711
  nearq metrics 4711 --time 5
  nearq metrics 4711 > /var/lib/node_exporter/my-program.prom";

/// What `nearq metrics` can be told.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// Have items timed for so long before: at most 20000 a second
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    time: Option<u64>,
}

/// Carries it out.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut client = attach::connect(options.pid)?;
    let timing = options.time.is_some();
    if let Some(seconds) = options.time {
        client.call(&GetStatistics { timing }).map_err(attach::failure)?;
        sleep(Duration::from_secs(seconds));
    }
    let reply = client.call(&GetStatistics { timing }).map_err(attach::failure)?;
    let mut pages = Pages { text: String::new(), ended: None };
    match write_text(reply.statistics, &mut pages).and_then(|()| pages.turn()) {
        Ok(()) => Ok(()),
        Err(_) => pages.ended.unwrap_or(Ok(())),
    }
}

/// Text that is printed page by page.
struct Pages {
    text: String,
    /// Why no more is printed: standard output cannot be written, or nobody reads it.
    ended: Option<Result<(), Failure>>,
}

impl Pages {
    /// Prints what there is.
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
