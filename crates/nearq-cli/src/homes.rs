//! `nearq homes`: which processes have their home on which node now.

#![allow(clippy::disallowed_methods, reason = "a Linux program")]

use std::io;
use std::thread;
use std::time::Duration;

use clap::Args;
use nearq_command::screen::{Side, fitted, or_dash, plain, width_of};
use nearq_home::Nodes;
use nearq_platform::{Linux, Placement as _};
use nearq_processes::survey::{self, Residence, Resident, Survey, Which};
use nearq_processes::tree::{How, State};
use serde_json::{Value, json};

use crate::output::{self, Failure};

/// How long CPUs are sampled.
const SAMPLE: Duration = Duration::from_millis(250);
/// The pause between two repetitions with --watch.
const PAUSE: Duration = Duration::from_secs(2);

const LEGEND: &str = "\
Nodes:
  NODE     the node's number in the system
  CPUS     those of its CPUs that this command may use
  BUSY     how many of them were busy on average, with any process
  WAITING  how many tasks waited for one of them
  HOMES    processes whose home it is; AWAY: how many of them ran elsewhere
  MEMORY   the memory of those processes there; ELSEWHERE: on other nodes
Processes:
  PID      the process
  HOME     its home node; with threads of several homes, all of these nodes
  NOW      the node where it ran last
  MEMORY   how much memory it has; LOCAL: how much of that is on its home node; with
           --pages a column for each node
  T0, T1   with --threads: how many of its threads are at home on that node
  WHY      how it got its home:
           exec, fork   it chose the least loaded node when it began
           used         it got the least loaded node after it had run for some time
           given        nearq started it there
           inherited    it has its parent's home
           bound        it may run on that node only: it or another process chose so
           threads      it has no home, but threads that may run on one node only
           -            it has no home (with --all)
           ..., out     let out for now, because its home is crowded
           ..., own     it has since chosen other CPUs itself
  COMMAND  its command line

The homes shown are those that running `nearq run` and `nearq run --tree` commands
keep. If all CPUs belong to one node, they keep none without `--scope cache`. Other
users' processes are only counted; root sees all. Command lines are cut to 4096
bytes.

Examples:
  nearq homes
  nearq homes --watch
  nearq homes --all --json | jq '.processes[] | select(.home != .now).pid'";

/// The arguments of `nearq homes`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// Print an object with `nodes` and `processes`; with --watch, one for each repetition
    #[arg(long)]
    json: bool,

    /// Also show processes without a home
    #[arg(long)]
    all: bool,

    /// Show how much memory each process has on each node; --json always does
    #[arg(long, conflicts_with = "json")]
    pages: bool,

    /// Show how many threads of each process are at home on each node; --json always does
    #[arg(long, conflicts_with = "json")]
    threads: bool,

    /// Repeat every two seconds
    #[arg(long)]
    watch: bool,
}

/// Which columns with a figure for each node there are.
#[derive(Clone, Copy, Debug, Default)]
struct ByNode {
    pages: bool,
    threads: bool,
}

impl Options {
    fn columns(&self) -> ByNode {
        ByNode { pages: self.pages, threads: self.threads }
    }
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let machine = Linux::machine().map_err(Failure::run)?;
    let nodes = Nodes::of(&machine.topology, machine.topology.online());
    loop {
        let survey = survey::take(&nodes, Which { all: options.all }, SAMPLE);
        let text = if options.json {
            output::json_text(&value(&nodes, &survey))?
        } else {
            text(&nodes, &survey, options.columns(), width_of(&io::stdout()))
        };
        let is_read = match (options.json, options.watch) {
            (true, _) => output::try_print(&text)?,
            (false, true) => output::redraw(&text)?,
            (false, false) => output::try_print_text(&text)?,
        };
        if !options.watch || !is_read {
            return Ok(());
        }
        thread::sleep(PAUSE);
    }
}

fn why(residence: Residence) -> String {
    let (how, state) = match residence {
        Residence::Home(how, state) => (how, state),
        Residence::Bound => return "bound".into(),
        Residence::Threads => return "threads".into(),
        Residence::Free => return "-".into(),
    };
    let how = match how {
        How::Exec => "exec",
        How::Fork => "fork",
        How::Used => "used",
        How::Given => "given",
        How::Inherited => "inherited",
    };
    match state {
        State::Home => how.into(),
        State::Out => format!("{how}, out"),
        State::Own => format!("{how}, own"),
    }
}

/// Thousandths as a number with one decimal digit.
fn milli(value: u32) -> String {
    format!("{:.1}", f64::from(value) / 1000.0)
}

fn bytes(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes as f64 / MIB;
    match mib {
        mib if mib >= 10_240.0 => format!("{:.1}G", mib / 1024.0),
        mib if mib >= 10.0 => format!("{mib:.0}M"),
        mib => format!("{mib:.1}M"),
    }
}

fn text(nodes: &Nodes, survey: &Survey, columns: ByNode, width: Option<usize>) -> String {
    let mut text = String::new();
    if nodes.is_single() {
        text += "This machine has one node, so everything is at home.\n";
    }
    text += &by_node(nodes, survey, width);
    if survey.supervisors.is_empty() {
        text += "\nno process keeps homes now";
        text += if nodes.is_single() {
            "; on one node, only `nearq run --scope cache` does, and only if there are several caches\n"
        } else {
            "\n"
        };
    }
    if !survey.residents.is_empty() {
        text.push('\n');
        text += &residents(nodes, survey, columns, width);
    }
    if survey.hidden > 0 {
        text += &match survey.hidden {
            1 => "\n1 process of another user is not shown\n".to_owned(),
            hidden => format!("\n{hidden} processes of other users are not shown\n"),
        };
    }
    text
}

fn by_node(nodes: &Nodes, survey: &Survey, width: Option<usize>) -> String {
    let head = ["NODE", "CPUS", "BUSY", "WAITING", "HOMES", "AWAY", "MEMORY", "ELSEWHERE"];
    let mut rows = vec![head.map(String::from).to_vec()];
    for (node, on_node) in nodes.iter().zip(&survey.nodes) {
        let cpus = node.cpus.len() as u32 * 1000;
        let busy = cpus.saturating_sub(on_node.load.idle);
        rows.push(vec![
            node.id.to_string(),
            node.cpus.to_string(),
            milli(busy),
            milli(on_node.load.runnable.saturating_sub(busy)),
            on_node.residents.to_string(),
            on_node.away.to_string(),
            bytes(on_node.bytes_home),
            bytes(on_node.bytes_away),
        ]);
    }
    let mut sides = [Side::Right; 8];
    sides[1] = Side::Left;
    // Which node it is, and how busy, stays.
    fitted(&sides, &rows, &[7, 6, 5, 4, 3, 1], width)
}

fn residents(nodes: &Nodes, survey: &Survey, columns: ByNode, width: Option<usize>) -> String {
    let mut head: Vec<String> =
        ["PID", "HOME", "NOW", "MEMORY", "LOCAL"].map(String::from).to_vec();
    let mut sides = vec![Side::Right; head.len()];
    for (letter, is_shown) in [("N", columns.pages), ("T", columns.threads)] {
        let nodes = nodes.iter().filter(|_| is_shown);
        head.extend(nodes.clone().map(|node| format!("{letter}{}", node.id)));
        sides.extend(nodes.map(|_| Side::Right));
    }
    head.extend(["WHY", "COMMAND"].map(String::from));
    sides.extend([Side::Left; 2]);
    let mut rows = vec![head];
    rows.extend(survey.residents.iter().map(|resident| row(nodes, resident, columns)));
    // The process, its home and its command stay. First the nodes' columns are left out, the last ones first; then why it has its home,
    // where it ran, and its memory.
    let why = sides.len() - 2;
    let spare: Vec<usize> = (5..why).rev().chain([why, 2, 3, 4]).collect();
    fitted(&sides, &rows, &spare, width)
}

fn row(nodes: &Nodes, resident: &Resident, columns: ByNode) -> Vec<String> {
    let node = |index: Option<usize>| or_dash(index.map(|index| nodes.get(index).id));
    let homes: Vec<String> =
        resident.homes().map(|index| nodes.get(index).id.to_string()).collect();
    let all = resident.bytes.as_ref();
    let sum = all.map(|all| all.iter().sum::<u64>());
    let local = resident.bytes_home();
    let mut row = vec![
        resident.pid.to_string(),
        or_dash((!homes.is_empty()).then(|| homes.join(","))),
        node(resident.now),
        or_dash(sum.map(bytes)),
        or_dash(
            sum.filter(|sum| *sum > 0)
                .zip(local)
                .map(|(sum, local)| format!("{}%", local * 100 / sum)),
        ),
    ];
    if columns.pages {
        let of = |index: usize| or_dash(all.map(|all| bytes(all[index])));
        row.extend((0..nodes.len()).map(of));
    }
    if columns.threads {
        row.extend(resident.threads.iter().map(usize::to_string));
    }
    row.extend([why(resident.residence), plain(&resident.command)]);
    row
}

/// How many threads are at home on each node, by the node's number; nodes without any are left out.
fn threads(nodes: &Nodes, resident: &Resident) -> Value {
    let homes = nodes.iter().zip(&resident.threads).filter(|(_, threads)| **threads > 0);
    homes.map(|(node, threads)| (node.id.to_string(), json!(threads))).collect()
}

fn value(nodes: &Nodes, survey: &Survey) -> Value {
    let by_node: Vec<Value> = nodes
        .iter()
        .zip(&survey.nodes)
        .map(|(node, on_node)| {
            json!({
                "node": node.id,
                "cpus": node.cpus.iter().collect::<Vec<_>>(),
                "runnable": f64::from(on_node.load.runnable) / 1000.0,
                "idle": f64::from(on_node.load.idle) / 1000.0,
                "homes": on_node.residents,
                "away": on_node.away,
                "bytes_home": on_node.bytes_home,
                "bytes_away": on_node.bytes_away,
            })
        })
        .collect();
    let id = |index: Option<usize>| index.map(|index| nodes.get(index).id);
    let processes: Vec<Value> = survey
        .residents
        .iter()
        .map(|resident| {
            json!({
                "pid": resident.pid,
                "command": resident.command,
                "home": id(resident.home),
                "threads": threads(nodes, resident),
                "now": id(resident.now),
                "why": why(resident.residence),
                "keeper": resident.supervisor,
                "bytes": resident.bytes,
            })
        })
        .collect();
    json!({
        "nodes": by_node,
        "processes": processes,
        "keepers": survey.supervisors,
        "hidden": survey.hidden,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_home::NodeLoad;
    use nearq_processes::survey::NodeSurvey;

    fn survey() -> (Nodes, Survey) {
        let places = [(0, "0-3".parse().unwrap()), (1, "4-7".parse().unwrap())];
        let nodes = Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]);
        let resident = |pid, home, threads: [usize; 2], now, residence| Resident {
            pid,
            command: format!("cc1 -O2\n{pid}.c"),
            home,
            threads: threads.to_vec(),
            now: Some(now),
            residence,
            supervisor: Some(7),
            bytes: Some(vec![3 << 20, 9 << 20]),
        };
        let load = NodeLoad { runnable: 4500, idle: 500 };
        let survey = Survey {
            nodes: vec![
                NodeSurvey {
                    load,
                    residents: 1,
                    away: 1,
                    bytes_home: 3 << 20,
                    bytes_away: 9 << 20,
                },
                NodeSurvey::default(),
            ],
            residents: vec![
                resident(11, Some(0), [2, 0], 1, Residence::Home(How::Exec, State::Out)),
                resident(12, None, [0, 0], 0, Residence::Free),
                resident(13, None, [1, 4], 0, Residence::Threads),
            ],
            supervisors: vec![7],
            hidden: 3,
        };
        (nodes, survey)
    }

    #[test]
    fn processes_are_listed_with_their_homes() {
        let (nodes, survey) = survey();
        assert_eq!(
            text(&nodes, &survey, ByNode { pages: true, threads: true }, None),
            "NODE  CPUS  BUSY  WAITING  HOMES  AWAY  MEMORY  ELSEWHERE\n\
             \x20  0  0-3    3.5      1.0      1     1    3.0M       9.0M\n\
             \x20  1  4-7    4.0      0.0      0     0    0.0M       0.0M\n\
             \n\
             PID  HOME  NOW  MEMORY  LOCAL    N0    N1  T0  T1  WHY        COMMAND\n\
             \x2011     0    1     12M    25%  3.0M  9.0M   2   0  exec, out  cc1 -O2\u{fffd}11.c\n\
             \x2012     -    0     12M      -  3.0M  9.0M   0   0  -          cc1 -O2\u{fffd}12.c\n\
             \x2013   0,1    0     12M   100%  3.0M  9.0M   1   4  threads    cc1 -O2\u{fffd}13.c\n\
             \n3 processes of other users are not shown\n"
        );
        let narrow = text(&nodes, &survey, ByNode { pages: true, threads: true }, Some(40));
        assert!(
            narrow.starts_with("NODE  CPUS  BUSY  WAITING  HOMES  AWAY\n")
                && narrow.contains("\nPID  HOME  MEMORY  LOCAL  COMMAND\n"),
            "{narrow}"
        );
    }

    #[test]
    fn the_json_has_the_same_data_as_the_table() {
        let (nodes, survey) = survey();
        let value = value(&nodes, &survey);
        assert_eq!(value["processes"][0]["home"], 0);
        assert_eq!(value["processes"][1]["home"], Value::Null);
        assert_eq!(value["processes"][0]["why"], "exec, out");
        assert_eq!(value["processes"][1]["threads"], json!({}));
        assert_eq!(value["processes"][2]["threads"], json!({"0": 1, "1": 4}));
        assert_eq!(value["processes"][2]["home"], Value::Null);
        assert_eq!(value["nodes"][0]["runnable"], 4.5);
    }

    #[test]
    fn a_machine_with_one_node_is_reported_as_such() {
        let nodes = Nodes::pretended(&[(0, "0-1".parse().unwrap())], &[vec![10]]);
        let survey = Survey {
            nodes: vec![NodeSurvey::default()],
            residents: vec![],
            supervisors: vec![],
            hidden: 0,
        };
        let text = text(&nodes, &survey, ByNode::default(), None);
        assert!(text.starts_with("This machine has one node"), "{text}");
        // A `nearq run` may be running nevertheless, but on one node it keeps no homes.
        assert!(text.contains("no process keeps homes now; on one node"), "{text}");
    }
}
