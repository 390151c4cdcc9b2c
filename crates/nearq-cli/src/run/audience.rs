//! Output while jobs run: a bar on a terminal, notices. Also collects what is printed at the end.

#![allow(clippy::disallowed_types, reason = "a Linux program")]

use std::io::{self, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use nearq_command::screen::{is_steered, plain};
use nearq_command::{Patient, file};
use nearq_home::Nodes;
use nearq_processes::jobs::{Around, Audience, Counts, Order, Outcome, Report};
use signal_hook::consts::SIGPIPE;

use super::joblog::{EarlierLog, JobLog};
use super::{OWN_FAILURE, Options, account, why_none};
use crate::output::{self, Failure};

/// A run that ends sooner than this shows no bar.
const PATIENCE: Duration = Duration::from_millis(300);

/// The least time between two updates of the remaining time while nothing else changes.
const UPDATE_INTERVAL: Duration = Duration::from_secs(1);

/// Shows progress, and keeps what is printed at the end.
pub(crate) struct RunDisplay {
    nodes: Nodes,
    /// The bar, if there is a terminal to show it on.
    bar: Option<ProgressBar>,
    /// What the bar shows, and since when.
    drawn: Option<(Counts, Instant)>,
    begin: Instant,
    joblog: Option<JobLog>,
    /// What could not be printed or written, in words.
    lost: Vec<String>,
    verbose: bool,
    /// How many characters of commands are kept for the end.
    kept_of_command: usize,
    /// The jobs' reports, if they are needed at the end.
    reports: Option<Vec<Report>>,
}

impl RunDisplay {
    pub(crate) fn new(
        options: &Options,
        nodes: &Nodes,
        earlier: Option<EarlierLog>,
    ) -> Result<Self, Failure> {
        // There is no bar if jobs print directly: they would overwrite it.
        let bar = is_steered(&io::stderr()) && options.order() != Order::None;
        if options.joblog.as_deref().is_some_and(|path| path == "-") {
            return Err(Failure::input(
                "--joblog -: the job log is a file; give its name, as in --joblog ./log, or /dev/stderr",
            ));
        }
        let json = options.json.as_deref().filter(|path| path.as_os_str() != "-");
        let files: Vec<(&str, &Path)> = [("--joblog", options.joblog.as_deref()), ("--json", json)]
            .into_iter()
            .filter_map(|(option, path)| Some((option, path?)))
            .collect();
        // Check the files now, so that the run does not fail after hours. The contents of the files are kept until there is something to
        // write.
        for (option, path) in &files {
            let refused = |error| Failure::input(file::refusal(option, path, &error));
            file::probe(path).map_err(refused)?;
        }
        if let Some(twice) = file::named_twice(&files) {
            return Err(Failure::input(twice));
        }
        let joblog = match (options.joblog.as_deref(), earlier) {
            (None, _) => None,
            (Some(path), Some(earlier)) => Some(JobLog::after(path, earlier)),
            (Some(path), None) => Some(JobLog::open(path)?),
        };
        Ok(Self {
            nodes: nodes.clone(),
            bar: bar.then(ProgressBar::hidden),
            drawn: None,
            begin: Instant::now(),
            joblog,
            lost: Vec::new(),
            verbose: options.verbose,
            kept_of_command: if options.json.is_some() {
                usize::MAX
            } else {
                account::SHOWN * 4 + 4
            },
            reports: (options.summary || options.json.is_some()).then(Vec::new),
        })
    }

    /// Hides the bar while something is printed.
    pub(crate) fn around(&self) -> Around {
        let bar = self.bar.clone();
        Arc::new(move |print| match &bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        })
    }

    /// A line on standard error.
    pub(crate) fn print_line(&mut self, text: &str) {
        self.write_stderr(&format!("nearq: {}\n", plain(text)));
    }

    /// Writes to standard error. If nothing reads it, that is no error: the exit status still tells the result.
    fn write_stderr(&mut self, text: &str) {
        let mut written = Ok(());
        self.around()(&mut || {
            written = Patient::of(&io::stderr()).and_then(|mut out| out.write_all(text.as_bytes()));
        });
        if let Err(error) = written
            && error.kind() != io::ErrorKind::BrokenPipe
        {
            self.lost.push(format!("standard error cannot be written: {error}"));
        }
    }

    /// Prints and writes the results at the end.
    ///
    /// # Errors
    /// Something could not be printed or written, or the run itself failed.
    pub(crate) fn finish(mut self, options: &Options, outcome: &Outcome) -> Result<(), Failure> {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        if let Some(text) = ended_early(outcome) {
            self.print_line(&text);
        }
        if let Some(Err(error)) = self.joblog.as_mut().map(JobLog::begin) {
            self.lost.push(format!("--joblog: the file cannot be written: {error}"));
        }
        let mut reports = self.reports.take().unwrap_or_default();
        reports.sort_by_key(|report| report.number);
        if options.summary {
            let table =
                account::table(&reports, &self.nodes, outcome, why_none(options.home, &self.nodes));
            self.write_stderr(&table);
        }
        if let Some(path) = &options.json {
            let value = account::json(options, &reports, &self.nodes, outcome);
            let written = output::json_to("--json", path, &value);
            self.lost.extend(written.err().map(|failure| failure.to_string()));
        }
        let mut errors = outcome.errors.clone();
        errors.append(&mut self.lost);
        errors.dedup();
        let Some(last) = errors.pop() else { return Ok(()) };
        for error in errors {
            self.print_line(&error);
        }
        Err(Failure::with_status(OWN_FAILURE, last))
    }
}

/// A line about the jobs that did not finish because the run ended early. `None` if the reader of the output went away: then no such line
/// is needed.
fn ended_early(outcome: &Outcome) -> Option<String> {
    let why = match outcome.signal {
        Some(SIGPIPE) => return None,
        Some(signal) => format!("ended by SIG{}", account::signal_name(signal)),
        None if !outcome.errors.is_empty() => "ended by an error".to_owned(),
        None => "ended by the failure of a job".to_owned(),
    };
    let more = if outcome.all_known { "" } else { " or more" };
    let (stopped, left) = (outcome.stopped, outcome.not_started);
    // What has not begun is in the queue for others.
    if outcome.drained && outcome.signal.is_none() && stopped == 0 {
        return None;
    }
    if outcome.signal.is_none() && stopped == 0 && left == 0 && outcome.all_known {
        return None;
    }
    let ended = outcome.ended - stopped;
    Some(format!("{why}; jobs: {ended} ended, {stopped} stopped, {left}{more} not begun"))
}

impl Audience for RunDisplay {
    fn started(&mut self, _number: u64, _process: u32, command: &[u8], home: usize) {
        if self.verbose {
            let command = String::from_utf8_lossy(command);
            if self.nodes.is_all() {
                self.print_line(&command);
            } else {
                self.print_line(&format!("node {}: {command}", self.nodes.get(home).id));
            }
        }
    }

    fn ended(&mut self, report: &Report) {
        // A job that was stopped with the run is to run again when the run is continued, whatever it has made of the signal. So it has no
        // line, as in GNU parallel.
        if let Some(joblog) = self.joblog.as_mut().filter(|_| !report.stopped)
            && let Err(error) = joblog.report(report, &self.nodes)
        {
            self.joblog = None;
            let text = format!(
                "--joblog: the file is not complete: {error}; jobs go on, but nothing is written to it from job {} on",
                report.number
            );
            self.print_line(&text);
            self.lost.push(text);
        }
        if let Some(reports) = &mut self.reports {
            let mut report = report.clone();
            report.command.truncate(self.kept_of_command);
            report.command.shrink_to_fit();
            reports.push(report);
        }
    }

    fn counts(&mut self, counts: &Counts) {
        let Some(bar) = &self.bar else { return };
        match &self.drawn {
            None if self.begin.elapsed() < PATIENCE => return,
            None => {
                let style = ProgressStyle::with_template("{bar:20} {pos}/{len}{wide_msg}");
                bar.set_style(style.expect("the template is a constant"));
            }
            Some((drawn, since)) if drawn == counts && since.elapsed() < UPDATE_INTERVAL => {
                return;
            }
            Some(_) => {}
        }
        self.drawn = Some((counts.clone(), Instant::now()));
        let running: u64 = counts.running.iter().sum();
        let all = counts.ended + running + counts.waiting;
        let (plus, left) = match left(self.begin.elapsed(), counts.ended, all) {
            _ if !counts.all_known => ("+", String::new()),
            Some(left) => ("", format!("  {} left", HumanDuration(left))),
            None => ("", String::new()),
        };
        bar.update(|bar| {
            bar.set_len(all);
            bar.set_pos(counts.ended);
        });
        bar.set_message(format!("{plus}{left}  {}", message(counts, &self.nodes)));
        if bar.is_hidden() {
            bar.set_draw_target(ProgressDrawTarget::stderr());
            bar.tick();
        }
    }

    fn notice(&mut self, text: &str) {
        self.print_line(text);
    }
}

/// The estimated remaining time.
fn left(elapsed: Duration, ended: u64, all: u64) -> Option<Duration> {
    let each = elapsed.as_secs_f64() / (ended > 0).then_some(ended as f64)?;
    Some(Duration::from_secs((each * (all - ended) as f64).ceil() as u64))
}

/// The text beside the bar.
fn message(counts: &Counts, nodes: &Nodes) -> String {
    let failed = match counts.failed {
        0 => String::new(),
        failed => format!("{failed} failed, "),
    };
    let running: Vec<String> = counts.running.iter().map(u64::to_string).collect();
    if nodes.is_all() {
        return format!("{failed}{} running", running.concat());
    }
    let ids: Vec<String> = nodes.iter().map(|node| node.id.to_string()).collect();
    format!("{failed}{} running on nodes {}", running.join("+"), ids.join("+"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::CpuSet;

    fn nodes(count: usize) -> Nodes {
        let places: Vec<_> = (0..count).map(|node| (node, CpuSet::single(node))).collect();
        Nodes::pretended(&places, &vec![vec![10; count]; count])
    }

    #[test]
    fn the_remaining_time_is_extrapolated_from_finished_jobs() {
        assert_eq!(left(Duration::from_secs(9), 0, 5), None);
        assert_eq!(left(Duration::from_secs(9), 3, 5), Some(Duration::from_secs(6)));
    }

    #[test]
    fn an_early_end_reports_the_jobs_that_did_not_run() {
        let mut outcome = Outcome { ended: 10, all_known: true, ..Outcome::default() };
        assert_eq!(ended_early(&outcome), None);
        (outcome.stopped, outcome.not_started) = (2, 30);
        let rest = "jobs: 8 ended, 2 stopped, 30 not begun";
        assert_eq!(ended_early(&outcome), Some(format!("ended by the failure of a job; {rest}")));
        outcome.errors.push("no room".to_owned());
        assert_eq!(ended_early(&outcome), Some(format!("ended by an error; {rest}")));
        (outcome.signal, outcome.all_known) = (Some(signal_hook::consts::SIGINT), false);
        let rest = "jobs: 8 ended, 2 stopped, 30 or more not begun";
        assert_eq!(ended_early(&outcome), Some(format!("ended by SIGINT; {rest}")));
        outcome.signal = Some(SIGPIPE);
        assert_eq!(ended_early(&outcome), None);
    }

    #[test]
    fn the_bar_shows_running_jobs_by_node() {
        let counts = Counts { failed: 2, running: vec![3, 1], ..Counts::default() };
        assert_eq!(message(&counts, &nodes(2)), "2 failed, 3+1 running on nodes 0+1");
        let counts = Counts { running: vec![2], ..Counts::default() };
        assert_eq!(message(&counts, &nodes(1)), "2 running");
    }
}
