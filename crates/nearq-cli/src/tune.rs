//! `nearq tune`: tries the scopes that make sense on a live queue, measures each, and reports which scope is best, or that none is better.
//!
//! ```text
//!   plan: what differs here ─► rounds, each in random order: trial: set, settle, measure ─► verdict ─► report
//! ```
//! The configuration in effect is tried too, in every round: it is the control. It is restored afterwards, whatever happens, unless a
//! better one is kept; `trial` says how.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

mod plan;
mod report;
mod statistics;
mod trial;
mod verdict;

use std::collections::BTreeMap;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use clap::Args;
use nearq_command::{arguments, screen, signals};
use nearq_control::client::Client;
use nearq_control::protocol::{Access, GetDump, GetProcess, GetSettings, QueueSettings};
use nearq_report::{Progress, Watch};

use crate::attach;
use crate::output::{Failure, print_json, print_text};
use plan::{Plan, plan};
use report::Facts;
use trial::{Stop, Trial, await_configured, configured, words};
use verdict::{Goal, Rounds, Verdict};

/// Without --settle, a quarter of --seconds is waited after a change, within these bounds.
const SETTLE: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// The bounds of --settle, in seconds.
const SETTLE_SECONDS: [f64; 2] = [0.0, 3600.0];
/// The bounds of a measurement, in seconds.
const SECONDS: [f64; 2] = [0.05, 3600.0];
/// The greatest number of rounds.
const MOST_ROUNDS: usize = 50;

const LEGEND: &str = "\
A scope groups CPUs into pods. The command tries each scope whose pods differ on the CPUs that the queue may use, once with workers that
may leave their pod and once with workers that may not (+strict), and also the present configuration. In each round, each configuration
is set for a few seconds, in random order. After each change, measuring starts only when things have settled (--settle).

Columns:
  (first)      the scope; (now) marks the one in effect; +strict: workers never leave their pod; affinity off: one pod of all CPUs
  better by    gain over the configuration in effect, by the goal: the median of the rounds' gains
  items/s      items completed per second
  CPU us/item  CPU time of the queue's workers per item
  wait us p50  time from queueing to start: half of the items waited no longer
  wait us p99  99 % of the items waited no longer; times are measured in steps of 6 %

A configuration is recommended if it is significantly better than the one in effect (exact test of Mann and Whitney, one-sided, at 5 %,
divided by the number of candidates), and by at least 2 % of throughput or 10 % of latency. Otherwise the report says that none is
better, or why it cannot tell.

However the command ends, the previous settings are restored: the process itself undoes the changes when the connection closes. With
--apply the recommended configuration stays. The process must allow changes (NEARQ_CONTROL=full), unless you are root.

Examples:
  nearq tune 4711 crypt
  nearq tune 4711 crypt --goal latency --rounds 10
  nearq tune 4711 crypt --seconds 5 --apply
  nearq tune 4711 crypt --json | jq .parameters.verdict

Exit status: 0; 1 if it could not be completed; 2 for invalid input.";

/// The arguments of `nearq tune`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The process; `nearq ps` lists processes
    #[arg(value_name = "PID", value_parser = attach::pid)]
    pid: u32,

    /// The queue: its name, or # and its number
    #[arg(value_name = "QUEUE")]
    queue: String,

    /// How long each configuration is measured in each round, in seconds, 0.05 to 3600
    #[arg(long, value_name = "S", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    seconds: Duration,

    /// How long to wait after each change before measuring, in seconds, 0 to 3600 [default: a quarter of --seconds, 0.2 to 1]
    #[arg(long, value_name = "S", value_parser = settle, allow_negative_numbers = true)]
    settle: Option<Duration>,

    /// How often each configuration is measured, 1 to 50
    #[arg(long, value_name = "R", default_value_t = 5, value_parser = rounds, allow_negative_numbers = true)]
    rounds: usize,

    /// What to improve: items per second, or the 99th percentile of the time from queueing to start
    #[arg(long, value_enum, default_value_t = Goal::Throughput)]
    goal: Goal,

    /// Apply the recommended configuration
    #[arg(long)]
    apply: bool,

    /// Print JSON, in the format of the experiments
    #[arg(long)]
    json: bool,

    /// A seed for the order of the configurations
    #[arg(long, value_name = "N", value_parser = seed, allow_negative_numbers = true)]
    seed: Option<u64>,
}

/// The parameters, as settled before the first measurement.
#[derive(Debug)]
struct Settled {
    goal: Goal,
    rounds: usize,
    measured: Duration,
    settle: Duration,
    seed: u64,
    /// The queue, as it was named.
    argument: String,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let settled = Settled {
        goal: options.goal,
        rounds: options.rounds,
        measured: options.seconds,
        settle: options.settle.unwrap_or_else(|| (options.seconds / 4).clamp(SETTLE[0], SETTLE[1])),
        seed: options.seed.unwrap_or_else(|| fastrand::u64(..1 << 32)),
        argument: options.queue.clone(),
    };
    let mut client = attach::connect(options.pid)?;
    let queue = find(&mut client, &options.queue)?;
    let (plan, cpus) = planned(&mut client, &queue)?;
    may_change(&mut client)?;
    let before = configured(&queue);
    let (sender, interrupts) = sync_channel(1);
    signals::on_first(move |_, name| {
        // If the receiver is gone, the command is ending anyway.
        let _ = sender.send(name);
    })?;

    let watch = Watch::start(cpus);
    let mut rounds = Rounds::default();
    let mut trial = Trial {
        client: &mut client,
        id: queue.id,
        settle: settled.settle,
        measured: settled.measured,
        signals: &interrupts,
        has_set: false,
    };
    let outcome = try_all(&mut trial, &plan, &settled, &mut rounds).and_then(|()| {
        let verdict = rounds.verdict(settled.goal);
        let winner = match verdict {
            Verdict::Better(number, _) if options.apply => &plan.configurations[number],
            _ => return Ok((verdict, None)),
        };
        let set = trial.set(winner)?;
        trial.keep()?;
        Ok((verdict, Some(set)))
    });
    let has_set = trial.has_set;
    // The process undoes the changes that are not kept.
    drop(client);
    let (verdict, kept) = match outcome {
        Ok(outcome) => outcome,
        Err(Stop::Failed(failure)) if !has_set => return Err(failure),
        Err(stop) => return Err(ended(options.pid, queue.id, &before, &stop)),
    };
    let applied = kept.is_some();
    let after = kept.unwrap_or(before);
    await_configured(options.pid, queue.id, &after)?;
    let facts = Facts {
        pid: options.pid,
        queue: &queue.name,
        settled: &settled,
        plan: &plan,
        rounds: &rounds,
        verdict: &verdict,
    };
    if options.json {
        return print_json(&(facts.report(watch.finish(), applied).to_json() + "\n"));
    }
    let how = if applied { "Now set" } else { "Restored" };
    let text = facts.text(screen::width_of(&std::io::stdout()));
    print_text(&format!("{text}{how}: {}\n", words(&after)))
}

/// The queue that was asked for.
fn find(client: &mut Client, queue: &str) -> Result<QueueSettings, Failure> {
    let asked = client.call(&GetSettings { queue: Some(queue.into()) });
    let found = asked.map_err(attach::failure)?.settings.queues;
    found.into_iter().next().ok_or_else(|| {
        Failure::input(format!("there is no queue `{queue}`; `nearq get` lists them"))
    })
}

/// The configurations to try, and how many CPUs the queue may use.
fn planned(client: &mut Client, queue: &QueueSettings) -> Result<(Plan, usize), Failure> {
    let dump = client.call(&GetDump::default()).map_err(attach::failure)?.dump;
    let found = dump.queues.iter().find(|found| found.id == queue.id);
    let found = found
        .ok_or_else(|| Failure::run(format!("the queue `{}` no longer exists", queue.name)))?;
    let refused =
        |why| Failure::input(format!("the queue `{}` cannot be tuned: {why}", queue.name));
    let plan = plan(&dump, found, queue).map_err(refused)?;
    let cpus = plan.configurations[0].pods.iter().filter_map(|pod| pod.parse().ok());
    Ok((plan.clone(), cpus.map(|pod: nearq_topology::CpuSet| pod.len()).sum()))
}

/// Whether the process allows changes; checked before the first one.
fn may_change(client: &mut Client) -> Result<(), Failure> {
    let process = client.call(&GetProcess {}).map_err(attach::failure)?.process;
    if process.allowed == Access::Full {
        return Ok(());
    }
    Err(Failure::run(
        "the process allows inspection, but no changes: start it with NEARQ_CONTROL=full, or run this command as root",
    ))
}

/// Measures everything, each round in another order.
fn try_all(
    trial: &mut Trial<'_>,
    plan: &Plan,
    settled: &Settled,
    rounds: &mut Rounds,
) -> Result<(), Stop> {
    let progress = Progress::stderr();
    progress.begin(settled.rounds * plan.configurations.len());
    let mut random = fastrand::Rng::with_seed(settled.seed);
    let mut all = || {
        for number in 1..=settled.rounds {
            let mut order: Vec<usize> = (0..plan.configurations.len()).collect();
            random.shuffle(&mut order);
            let mut round = vec![None; order.len()];
            for which in order {
                let tried = &plan.configurations[which];
                progress.step(format!("round {number} of {}: {}", settled.rounds, tried.name));
                round[which] = Some(trial.measure(tried)?);
                progress.done();
            }
            rounds.0.push(round.into_iter().flatten().collect());
        }
        Ok(())
    };
    let tried = all();
    progress.end();
    tried
}

/// Why the command ended early, and what is set now.
fn ended(pid: u32, queue: u64, before: &BTreeMap<String, String>, stop: &Stop) -> Failure {
    let mut expected = before.clone();
    if let Stop::Others(foreign_changes) = stop {
        expected.extend(foreign_changes.clone());
    }
    Failure::run(match await_configured(pid, queue, &expected) {
        Ok(()) if expected != *before => format!("{stop}; the queue now has {}", words(&expected)),
        Ok(()) => format!("{stop}; restored: {}", words(before)),
        // The command may have ended because the process no longer answers.
        Err(failure) if failure.to_string() == stop.to_string() => {
            format!("{stop}; it is not known whether the previous settings were restored")
        }
        Err(failure) => format!(
            "{stop}; it is not known whether the previous settings were restored: {failure}"
        ),
    })
}

fn seconds(text: &str) -> Result<Duration, String> {
    arguments::seconds(text, SECONDS)
}

fn settle(text: &str) -> Result<Duration, String> {
    arguments::seconds(text, SETTLE_SECONDS)
}

fn rounds(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MOST_ROUNDS).contains(number));
    number.ok_or_else(|| format!("give a whole number, 1 to {MOST_ROUNDS}"))
}

fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| format!("give a whole number, 0 to {}", u64::MAX))
}
