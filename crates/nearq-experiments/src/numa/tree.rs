//! The job as a tree of processes under `nearq run --tree`: `make`, or `xargs` and shells.

use super::job::works;
use super::{Job, Plan};
use crate::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// Who starts the processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Maker {
    Make,
    Xargs,
}

/// Who there is to start them; else why there is nobody.
pub(super) fn maker() -> Result<Maker, String> {
    if works("make", "--version") {
        Ok(Maker::Make)
    } else if works("xargs", "--version") {
        Ok(Maker::Xargs)
    } else {
        Err("there is neither make nor xargs; install one of them".into())
    }
}

/// Does the job under the command `nearq`, with homes or without.
pub(super) fn run(nearq: &Path, homes: bool, job: &Job, plan: &Plan) -> Result<(), Error> {
    let maker = maker().map_err(Error::run)?;
    let mut command = Command::new(nearq);
    command.args(["run", "--tree", "--home", if homes { "auto" } else { "none" }, "--"]);
    let failed = |error: std::io::Error| Error::run(format!("{}: {error}", nearq.display()));
    let status = match maker {
        Maker::Make => {
            let rules = job.folder().join("Makefile");
            fs::write(&rules, makefile(job, plan)).map_err(failed)?;
            let jobs = format!("-j{}", plan.jobs);
            command.args(["make", "-s", "-f"]).arg(&rules).arg(jobs).stdin(Stdio::null()).status()
        }
        Maker::Xargs => {
            let lines = job.folder().join("commands");
            let text: String = (0..plan.files).fold(String::new(), |mut text, file| {
                let _ = writeln!(text, "{}", job.shell(file));
                text
            });
            fs::write(&lines, text).map_err(failed)?;
            let input = fs::File::open(&lines).map_err(failed)?;
            let jobs = plan.jobs.to_string();
            command.args(["xargs", "-P", &jobs, "-d", "\n", "-n", "1", "sh", "-c"]);
            command.stdin(input).status()
        }
    };
    let status = status.map_err(failed)?;
    if status.success() {
        return Ok(());
    }
    Err(Error::run(format!("{} run --tree: {status}", nearq.display())))
}

/// One target for each file. What is between the quotes of a shell is doubled where `make` would read it.
fn makefile(job: &Job, plan: &Plan) -> String {
    let mut text = String::from("all:");
    for file in 0..plan.files {
        let _ = write!(text, " t{file}");
    }
    text.push('\n');
    for file in 0..plan.files {
        let _ = write!(text, "t{file}:\n\t{}\n", job.shell(file).replace('$', "$$"));
    }
    text
}
