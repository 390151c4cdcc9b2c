//! `nearq ps`: the processes that can be inspected.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::io;
use std::time::{Duration, Instant};

use clap::Args;
use nearq_command::screen::{Side, fitted, or_dash, plain, width_of};
use nearq_control::find::Found;
use nearq_control::protocol::Process;
use serde::Serialize;
use uzers::{get_effective_uid, get_user_by_uid};

use crate::attach;
use crate::output::{self, Failure};

/// How long the command waits for one process, and for all together: a list must come even if some processes are slow.
const PATIENCE: Duration = Duration::from_secs(3);
const LIST_PATIENCE: Duration = Duration::from_secs(10);

const LEGEND: &str = "\
Columns:
  PID      the process's number, for the other commands
  USER     its owner; only root sees this column and other users' processes
  ACCESS   what it allows its own user (NEARQ_CONTROL): read (inspect) or full (inspect and change); root may always do both
  QUEUES   its workqueues; - if it has only mutexes
  WORKERS  its worker threads
  COMMAND  its command line; in parentheses: why it does not answer

A process under libnearq_preload.so can be inspected once it has created a thread, if
NEARQ_CONTROL is read or full. Any other process can be inspected once it has a worker, unless
NEARQ_CONTROL is off.

Examples:
  nearq ps
  nearq ps --json | jq '.[] | select(.process.queues > 0).pid'";

/// The arguments of `nearq ps`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// Print an array of objects with `pid`, `socket`, `user`, and `process` or `error`
    #[arg(long)]
    json: bool,
}

/// A process, and its answer.
#[derive(Serialize)]
struct Row {
    pid: u32,
    socket: String,
    user: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<Process>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let mut found = attach::processes()?;
    found.sort_by_key(|found| found.pid);
    let answers = attach::ask_all(&found, PATIENCE, Instant::now() + LIST_PATIENCE);
    let rows: Vec<Row> =
        found.iter().zip(answers).map(|(found, answer)| row(found, answer)).collect();
    if options.json {
        return output::json(&rows);
    }
    output::print_text(&text(&rows, get_effective_uid() == 0, width_of(&io::stdout())))
}

fn row(found: &Found, answer: Result<Process, String>) -> Row {
    let (process, error) = match answer {
        Ok(process) => (Some(process), None),
        Err(error) => (None, Some(error)),
    };
    let socket = found.socket.display().to_string();
    Row { pid: found.pid, socket, user: user(found.user), process, error }
}

/// A user by name, or by number if it has no name.
fn user(user: u32) -> String {
    let named = get_user_by_uid(user).map(|user| user.name().to_string_lossy().into_owned());
    named.unwrap_or_else(|| user.to_string())
}

fn text(rows: &[Row], with_users: bool, width: Option<usize>) -> String {
    if rows.is_empty() {
        return "no process can be inspected: none is using nearq, or those that do run with NEARQ_CONTROL=off\n".into();
    }
    let head = ["PID", "USER", "ACCESS", "QUEUES", "WORKERS", "COMMAND"].map(String::from);
    let mut cells = vec![head.to_vec()];
    cells.extend(rows.iter().map(|row| {
        let process = row.process.as_ref();
        let access = process.map(|process| process.control.name());
        let runtime = process.filter(|process| process.runtime);
        let command = match (process, &row.error) {
            (Some(process), _) => plain(&process.command),
            (None, error) => format!("({})", plain(error.as_deref().unwrap_or("no answer"))),
        };
        vec![
            row.pid.to_string(),
            plain(&row.user),
            or_dash(access),
            or_dash(runtime.map(|process| process.queues)),
            or_dash(runtime.map(|process| process.workers)),
            command,
        ]
    }));
    let mut sides = vec![Side::Right, Side::Left, Side::Left, Side::Right, Side::Right, Side::Left];
    if !with_users {
        sides.remove(1);
        for row in &mut cells {
            row.remove(1);
        }
    }
    // The number and the command stay: workers, queues, access and user are left out in this order.
    let spare: Vec<usize> = (1..sides.len() - 1).rev().collect();
    fitted(&sides, &cells, &spare, width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_control::protocol::Access;

    fn row(pid: u32, process: Option<Process>, error: Option<&str>) -> Row {
        let socket = format!("/run/user/1000/nearq/{pid}");
        Row { pid, socket, user: "ann".into(), process, error: error.map(String::from) }
    }

    fn process(command: &str, control: Access, runtime: bool) -> Process {
        Process {
            pid: 1,
            command: command.into(),
            version: "0.1.0".into(),
            control,
            allowed: control,
            since_ns: 1,
            runtime,
            queues: 12,
            workers: 4,
        }
    }

    #[test]
    fn processes_that_do_not_answer_are_listed_with_a_reason() {
        let rows = [
            row(7, Some(process("server --fast\n", Access::Read, true)), None),
            row(12345, Some(process("xz -T0 file", Access::Full, false)), None),
            row(99999, None, Some("the process does not answer")),
        ];
        assert_eq!(
            text(&rows, true, None),
            "  PID  USER  ACCESS  QUEUES  WORKERS  COMMAND\n\
             \x20   7  ann   read        12        4  server --fast\u{fffd}\n\
             12345  ann   full         -        -  xz -T0 file\n\
             99999  ann   -            -        -  (the process does not answer)\n"
        );
        assert!(!text(&rows, false, None).contains("ann"));
        assert!(text(&[], false, None).starts_with("no process"));
    }
}
