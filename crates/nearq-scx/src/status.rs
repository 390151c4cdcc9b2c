//! `nearq-scx status`: what the scheduler does, read from its pinned maps.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use nearq_scx_policy::layout::Nq;
use serde_json::{Map, Value, json};

use crate::output::{self, Failure, Side, columns, percent, time};
use crate::pins::{self, Access};
use crate::state::{self, NodeNow, Now, event};
use crate::{checks, decisions, tasks, weights};

/// How many decisions about memory are shown.
const DECISIONS: usize = 8;

/// The most nodes for which counts are shown by node; for more, only the sums are shown.
const MOST_COLUMNS: usize = 8;

const LEGEND: &str = "\
Nodes:
  NODE      the node's number in the system
  CPUS      its online CPUs
  HOMES     tasks whose home it is
  WANT      those of them that run or wait, anywhere
  RUN       tasks that run there now; GUESTS: those whose home is elsewhere
  WAIT      tasks that wait there; AWAY: those of HOMES that wait elsewhere
  LOAD      tasks that run or wait there, per CPU, smoothed
  HOME%     the share of CPU time there that tasks at home there used
  CAME      how often a task with another home started to run there
  RETURNED  how often a task whose home it is came back to run there

Tasks:
  HOME      its home, and WHY
  NODE      the node where it ran last; CPU: the CPU
  AT HOME   CPU time on its home node; AWAY: elsewhere; HOME%: the share at home
  CROSSED   how often it moved to another node

Counts start when the scheduler is loaded. They are given for all nodes and for
each (N0, N1, ...), by the CPU that did it. Memory: the last decisions about
processes whose memory was not at home.

Exit status: 0; 2 if the scheduler is not loaded.

Examples:
  nearq-scx status
  nearq-scx status --task 4711
  nearq-scx status --json";

/// The options of `nearq-scx status`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// Print JSON
    #[arg(long)]
    json: bool,

    /// Show the homes of these processes or threads
    #[arg(long = "task", value_name = "PID", num_args = 1..)]
    tasks: Vec<u32>,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    is_there()?;
    let nq = pins::machine(&pins::open(pins::STATE, Access::Read)?)?;
    let mut known = Vec::new();
    if !options.tasks.is_empty() {
        let map = pins::open(pins::TASKS, Access::Read)?;
        for pid in &options.tasks {
            known.extend(tasks::of(&map, *pid)?);
        }
    }
    let memory = decisions::read(&decisions::path());
    if options.json {
        let mut value = value(&nq, &memory);
        if !options.tasks.is_empty() {
            value["tasks"] = tasks::value(&nq, &known);
        }
        return output::print_json(&format!("{value:#}\n"));
    }
    if !options.tasks.is_empty() {
        return output::print(&tasks::text(&nq, &known));
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    output::print(&text(&nq, &memory, now))
}

/// An error that says how to load the scheduler if it is not loaded.
pub(crate) fn is_there() -> Result<(), Failure> {
    if checks::is_loaded(Path::new("/")) {
        return Ok(());
    }
    let other = checks::loaded(Path::new("/")).map(|name| format!(" (the kernel runs {name})"));
    Err(Failure::input(format!(
        "the scheduler is not loaded{}; run `nearq-scx start` as root to load it",
        other.unwrap_or_default()
    )))
}

fn text(nq: &Nq, memory: &Value, at: u64) -> String {
    let now = Now::of(nq);
    let mut text = nodes(&now);
    let (home, away) = now.cpu_time();
    text += &format!(
        "\n{} of {} of CPU time at home\n\n",
        percent(home, home + away),
        time(home + away)
    );
    text += &counts(&now);
    let set: Vec<String> = weights::ALL
        .iter()
        .map(|weight| format!("{}={}", weight.name, weight.text(weight.get(&nq.weights))))
        .collect();
    text += &format!("\nweights: {}\n", set.join(" "));
    if let Some(checks) = memory["looks"].as_u64() {
        let of = |name: &str| memory[name].as_f64().unwrap_or(0.0);
        let cost = 100.0 * of("cpu_seconds") / of("seconds").max(1e-9);
        text += &format!("\nmemory: {checks} checks of processes, {cost:.2} % of a CPU\n");
        for line in decisions::lines(memory, DECISIONS, at) {
            text += &format!("  {line}\n");
        }
    }
    text
}

/// The table of nodes. `top` shows it too.
pub(crate) fn nodes(now: &Now) -> String {
    let head = [
        "NODE", "CPUS", "HOMES", "WANT", "RUN", "GUESTS", "WAIT", "AWAY", "LOAD", "HOME%", "CAME",
        "RETURNED",
    ];
    let mut rows = vec![head.map(String::from).to_vec()];
    rows.extend(now.nodes.iter().map(node));
    let mut sides = [Side::Right; 12];
    sides[1] = Side::Left;
    columns(&sides, &rows)
}

/// The table of all counts: the sum, and each node if there are few. `top` shows it too.
pub(crate) fn counts(now: &Now) -> String {
    let nodes = if now.nodes.len() <= MOST_COLUMNS { &now.nodes[..] } else { &[] };
    let mut head = vec!["COUNT".to_owned(), "ALL".to_owned()];
    head.extend(nodes.iter().map(|node| format!("N{}", node.id)));
    head.push("OF".to_owned());
    let mut rows = vec![head];
    for (at, ((name, about), all)) in state::events().zip(now.counts()).enumerate() {
        let mut row = vec![name.to_owned(), all.to_string()];
        row.extend(nodes.iter().map(|node| node.counts[at].to_string()));
        row.push(about.to_owned());
        rows.push(row);
    }
    let mut sides = vec![Side::Right; rows[0].len()];
    sides[0] = Side::Left;
    sides[rows[0].len() - 1] = Side::Left;
    columns(&sides, &rows)
}

fn node(node: &NodeNow) -> Vec<String> {
    vec![
        node.id.to_string(),
        state::list(&node.cpus),
        node.homes.to_string(),
        node.wanting.to_string(),
        node.running.to_string(),
        node.guests.to_string(),
        node.waiting.to_string(),
        node.waiting_away.to_string(),
        format!("{:.2}", node.load as f64 / 1000.0),
        percent(node.home_ns, node.home_ns + node.away_ns),
        node.counts[event("left")].to_string(),
        node.counts[event("returned")].to_string(),
    ]
}

fn value(nq: &Nq, memory: &Value) -> Value {
    let now = Now::of(nq);
    let counts = |counts: state::Counts| {
        let named = state::events().zip(counts);
        named.map(|((name, _), count)| (name.to_owned(), count.into())).collect::<Map<_, _>>()
    };
    let seconds = |ns: u64| ns as f64 / 1e9;
    let nodes: Vec<Value> = now
        .nodes
        .iter()
        .map(|node| {
            json!({
                "node": node.id,
                "cpus": node.cpus,
                "homes": node.homes,
                "wanting": node.wanting,
                "waiting_away": node.waiting_away,
                "running": node.running,
                "guests": node.guests,
                "waiting": node.waiting,
                "load": node.load as f64 / 1000.0,
                "seconds_home": seconds(node.home_ns),
                "seconds_away": seconds(node.away_ns),
                "counts": counts(node.counts),
            })
        })
        .collect();
    let (home, away) = now.cpu_time();
    let set = weights::ALL
        .iter()
        .map(|weight| (weight.name.to_owned(), weight.get(&nq.weights).into()))
        .collect::<Map<_, _>>();
    json!({
        "loaded": true,
        "nodes": nodes,
        "seconds_home": seconds(home),
        "seconds_away": seconds(away),
        "counts": counts(now.counts()),
        "weights": set,
        "memory": memory,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::made_up;

    #[test]
    fn nodes_counts_weights_and_decisions_are_shown() {
        let memory = json!({
            "looks": 12, "cpu_seconds": 0.5, "seconds": 100.0,
            "decisions": [{"at": 90, "pid": 7, "name": "x", "what": "moved"}],
        });
        let text = text(&made_up(), &memory, 100);
        let expected = "\
NODE  CPUS  HOMES  WANT  RUN  GUESTS  WAIT  AWAY  LOAD   HOME%  CAME  RETURNED
   0  0-3     120     6    4       0     2     1  1.50  100.0%     0         6
   2  4-7      80     0    1       1     0     0  0.25    0.0%     7         0

94.1% of 8.5s of CPU time at home

COUNT           ALL    N0  N2  OF
home_exec         0     0   0  homes picked because a task began a program
";
        assert!(text.starts_with(expected), "{text}");
        assert!(
            text.contains("\ncrossed           9     0   9  changes of node, whatever the home\n"),
            "{text}"
        );
        assert!(text.contains("\nweights: slice=100ms busy_slice="), "{text}");
        assert!(
            text.ends_with(
                "\nmemory: 12 checks of processes, 0.50 % of a CPU\n  10 s ago: x (7): moved\n"
            ),
            "{text}"
        );
    }

    #[test]
    fn the_json_has_the_same_content() {
        let value = value(&made_up(), &Value::Null);
        assert_eq!(value["nodes"][1]["node"], 2);
        assert_eq!(value["nodes"][1]["counts"]["left"], 7);
        assert_eq!(value["counts"]["woke_previous"], 4000);
        assert_eq!(value["seconds_home"], 8.0);
        assert_eq!(value["weights"]["imbalance"], 1000);
        assert_eq!(value["memory"], Value::Null);
    }
}
