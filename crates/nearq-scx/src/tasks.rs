//! Where tasks are at home, and why: what `nearq-scx status --task` shows.

use libbpf_rs::MapHandle;
use nearq_processes::proc;
use nearq_scx_policy::layout::{HOME_REASONS, NONE, Nq, Task};
use serde_json::{Value, json};

use crate::output::{self, Failure, Side, columns, percent, time};
use crate::pins;
use crate::state::node_id;

/// A thread that the scheduler knows.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pid: u32,
    thread: u32,
    name: String,
    task: Task,
}

/// The threads of a process, or the one thread that has that number.
///
/// # Errors
/// If no process or thread has that number, or the scheduler has none of its threads.
pub(crate) fn of(tasks: &MapHandle, pid: u32) -> Result<Vec<Known>, Failure> {
    let status = proc::read(format!("/proc/{pid}/status"), proc::LONGEST_STATUS)
        .ok_or_else(|| Failure::input(format!("{pid}: there is no such process or thread")))?;
    let process = status
        .lines()
        .find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok())
        .unwrap_or(pid);
    let threads = if process == pid {
        let mut threads = proc::threads(pid);
        threads.sort_unstable();
        threads
    } else {
        vec![pid]
    };
    let known = |thread: u32| {
        let task = pins::task(tasks, thread, thread != process)?;
        let name = proc::read(format!("/proc/{process}/task/{thread}/comm"), proc::LONGEST);
        let name = output::flat(&name.unwrap_or_default());
        Some(Known { pid: process, thread, name, task })
    };
    let known: Vec<Known> = threads.into_iter().filter_map(known).collect();
    if known.is_empty() {
        return Err(Failure::input(format!(
            "{pid}: the scheduler does not manage it: it has real-time priority, belongs to the kernel, or has ended"
        )));
    }
    Ok(known)
}

fn why(task: &Task) -> &'static str {
    HOME_REASONS
        .get(usize::from(task.why))
        .copied()
        .unwrap_or("a reason that this command does not know")
}

/// The operating system's number of the node with this index.
fn place(nq: &Nq, index: u32) -> String {
    node_id(nq, index).map_or_else(|| "-".to_owned(), |id| id.to_string())
}

fn cpu(task: &Task) -> String {
    if task.cpu == NONE { "-".to_owned() } else { task.cpu.to_string() }
}

/// As a table.
pub(crate) fn text(nq: &Nq, known: &[Known]) -> String {
    let head =
        ["PID", "TID", "HOME", "NODE", "CPU", "AT HOME", "AWAY", "HOME%", "CROSSED", "NAME", "WHY"];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(known.iter().map(|one| {
        let task = &one.task;
        vec![
            one.pid.to_string(),
            one.thread.to_string(),
            if task.homed == 0 { "-".to_owned() } else { place(nq, task.home) },
            place(nq, task.place),
            cpu(task),
            time(task.home_ns),
            time(task.away_ns),
            percent(task.home_ns, task.home_ns + task.away_ns),
            task.crossings.to_string(),
            one.name.clone(),
            why(task).to_owned(),
        ]
    }));
    let mut sides = [Side::Right; 11];
    sides[9..].fill(Side::Left);
    columns(&sides, &rows)
}

/// For programs.
pub(crate) fn value(nq: &Nq, known: &[Known]) -> Value {
    let one = |one: &Known| {
        let task = &one.task;
        json!({
            "pid": one.pid,
            "tid": one.thread,
            "name": one.name,
            "home": if task.homed == 0 { None } else { node_id(nq, task.home) },
            "why": why(task),
            "node": node_id(nq, task.place),
            "cpu": (task.cpu != NONE).then_some(task.cpu),
            "seconds_home": task.home_ns as f64 / 1e9,
            "seconds_away": task.away_ns as f64 / 1e9,
            "crossings": task.crossings,
        })
    };
    known.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::made_up;
    use nearq_scx_policy::layout::HomeReason;

    fn known() -> Vec<Known> {
        let task = Task {
            home: 1,
            homed: 1,
            why: HomeReason::Told as u8,
            place: 0,
            cpu: 3,
            home_ns: 9_000_000_000,
            away_ns: 1_000_000_000,
            crossings: 3,
            ..Task::default()
        };
        let fresh = Task { place: NONE, cpu: NONE, why: 99, ..Task::default() };
        vec![
            Known { pid: 11, thread: 11, name: "cc1".into(), task },
            Known { pid: 11, thread: 12, name: "new".into(), task: fresh },
        ]
    }

    #[test]
    fn a_task_is_shown_with_its_home_and_why() {
        let text = text(&made_up(), &known());
        let expected = "\
PID  TID  HOME  NODE  CPU  AT HOME  AWAY  HOME%  CROSSED  NAME  WHY
 11   11     2     0    3     9.0s  1.0s  90.0%        3  cc1   told
 11   12     -     -    -      0ns   0ns      -        0  new   a reason that this command does not know
";
        assert_eq!(text, expected);
    }

    #[test]
    fn the_json_has_the_same_content() {
        let value = value(&made_up(), &known());
        assert_eq!((&value[0]["home"], &value[0]["why"]), (&json!(2), &json!("told")));
        assert_eq!(value[0]["seconds_away"], 1.0);
        assert_eq!((&value[1]["home"], &value[1]["cpu"]), (&Value::Null, &Value::Null));
    }
}
