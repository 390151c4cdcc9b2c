//! `nearq submit`: where inputs come from, and what is shown meanwhile.

use std::fs::File;
use std::io::{self, BufRead, BufReader, IsTerminal as _};

use indicatif::ProgressBar;
use nearq_command::screen::{counted, is_steered};
use nearq_fleet::{Kind, Progress, Submission};

use super::SubmitOptions;
use crate::output::{self, Failure};

/// Submits the jobs.
pub(super) fn run(options: &SubmitOptions) -> Result<(), Failure> {
    let is_standard = options.input.as_os_str() == "-";
    if is_standard && io::stdin().is_terminal() {
        return Err(Failure::input(
            "no inputs: give them in a file with --input FILE, or on standard input",
        ));
    }
    let input: Box<dyn BufRead + Send> = if is_standard {
        Box::new(BufReader::new(io::stdin()))
    } else {
        let refused = |error: io::Error| {
            let path = options.input.display();
            Failure::input(format!(
                "--input {path}: cannot be read: {error}; give a file with a job on each line"
            ))
        };
        Box::new(BufReader::new(File::open(&options.input).map_err(refused)?))
    };
    let kind = match (options.objects, options.null) {
        (true, _) => Kind::Objects,
        (_, true) => Kind::Null,
        _ => Kind::Lines,
    };
    let priority = options.priority.as_deref().map(str::parse).transpose();
    let submission = Submission {
        server: options.connection.server(&options.to),
        stream: options.stream.clone(),
        subject: options.subject.clone(),
        kind,
        priority: priority.map_err(|error| Failure::input(format!("--priority: {error}")))?,
        id: options.id.clone(),
        create: options.create,
    };
    output::open()?;
    let bar = is_steered(&io::stderr()).then(ProgressBar::new_spinner);
    let submitted = nearq_fleet::submit(&submission, input, |progress| match (progress, &bar) {
        (Progress::Submitted(jobs), Some(bar)) => {
            bar.set_message(format!("{} submitted", counted(jobs, "job")));
            bar.tick();
        }
        (Progress::Submitted(_), None) => {}
        (Progress::Notice(said), Some(bar)) => bar.suspend(|| notice(&said)),
        (Progress::Notice(said), None) => notice(&said),
    });
    if let Some(bar) = bar {
        bar.finish_and_clear();
    }
    let submitted = submitted.map_err(Failure::run)?;
    let known = match submitted.known {
        0 => String::new(),
        known => format!(", of which the stream had {known} before"),
    };
    let jobs = counted(submitted.jobs, "job");
    output::print(&format!("{jobs} submitted{known}\n"))
}

fn notice(said: &str) {
    output::print_aside(&format!("nearq submit: {said}\n"));
}
