//! Runs one seed and judges it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nearq_sim::{Ending, FaultCounts, Outcome, Simulation, TraceLevel};

use super::draw::draw;
use super::ledger::Ledger;
use super::placement::{Defaults, Ground};
use super::plan::Plan;
use super::program::{self, NOTE};

/// Virtual time after which a program is ended: several times the sum of its own waiting times.
const TIME_LIMIT: Duration = Duration::from_mins(5);

/// How a seed is run.
#[derive(Clone, Debug, Default)]
pub struct SeedOptions {
    /// Whether the trace is kept.
    pub trace: bool,
    /// The variant that the runtime must be, if variants are planted (`cargo xtask variants`).
    pub variant: Option<String>,
}

/// The result of one seed.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The program.
    pub plan: Plan,
    /// The promises that were not kept; a seed without any has passed.
    pub violations: Vec<String>,
    /// The trace, one event per line, if it was requested.
    pub trace: Vec<String>,
    /// A hash of everything that happened. The same seed always has the same hash.
    pub trace_hash: u64,
    /// Items and closures that ran.
    pub executions: u64,
    /// Virtual time that passed.
    pub time: Duration,
    /// Faults that happened, by kind.
    pub faults: BTreeMap<&'static str, u64>,
}

impl Verdict {
    /// Whether every promise was kept.
    pub fn passed(&self) -> bool {
        self.violations.is_empty()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.plan.seed
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.passed() {
            write!(
                f,
                "seed {}: {} executions, every promise was kept",
                self.seed(),
                self.executions
            )
        } else {
            write!(f, "seed {} fails:", self.seed())?;
            self.violations.iter().try_for_each(|text| write!(f, "\n  {text}"))
        }
    }
}

/// Runs the program of a seed.
pub fn run_seed(seed: u64, options: &SeedOptions) -> Verdict {
    run_plan(draw(seed), options)
}

/// Runs a program.
pub(crate) fn run_plan(plan: Plan, options: &SeedOptions) -> Verdict {
    // The run's allocations must not share cache lines by chance, so that it is the same run in every process.
    let _lines = nearq_sim::switched::enter();
    let topology = plan.topology();
    let limits = plan.allowance.limits(topology.possible());
    let ground = Ground {
        topology: topology.clone(),
        shard_size: plan.runtime.shard_size,
        allowed: plan.limits_are_fixed().then(|| limits.effective()),
    };
    let defaults =
        Defaults { scope: plan.runtime.default_affinity_scope, affinity: plan.runtime.affinity };
    let ledger = Arc::new(Ledger::new(ground, defaults));
    let mut simulation = Simulation::new(topology, plan.seed)
        .limits(limits)
        .schedule(plan.schedule)
        .faults(plan.faults)
        .time_limit(TIME_LIMIT)
        .trace(if options.trace { TraceLevel::Events } else { TraceLevel::Hash });
    if let Some(variant) = &options.variant {
        simulation = simulation.setting("NEARQ_VARIANT", variant);
    }
    let (own_plan, own_ledger) = (plan.clone(), Arc::clone(&ledger));
    let outcome = simulation.run(move || program::main(&own_plan, &own_ledger));
    let (mut violations, executions) = ledger.result();
    violations.extend(judge(&plan, &outcome));
    Verdict {
        plan,
        violations,
        trace_hash: outcome.trace_hash,
        executions,
        time: Duration::from_nanos(outcome.end.as_nanos()),
        faults: by_kind(&outcome.faults),
        trace: readable(outcome.trace),
    }
}

/// The violations that the outcome itself shows.
fn judge(plan: &Plan, outcome: &Outcome<()>) -> Vec<String> {
    let mut wrong: Vec<String> = outcome.panics.iter().map(ToString::to_string).collect();
    match outcome.ending {
        Ending::Returned => {
            wrong.extend(
                outcome.unfinished.iter().map(|thread| {
                    format!("the program and its runtime have ended, but not {thread}")
                }),
            );
        }
        Ending::Deadlock | Ending::TimeLimit => wrong.push(outcome.report()),
    }
    if plan.limits_are_fixed() {
        // A future or a delayed item that a draining queue refuses causes a warning.
        let drains = (0..plan.queues.len()).any(|queue| plan.is_drained(queue));
        let refused = plan.hardships.refused.is_some() || plan.hardships.threads.is_some();
        let warnings = outcome.warnings.iter().filter(|line| {
            !(line.starts_with(NOTE)
                || drains && line.contains("is being drained")
                || refused && line.contains("no thread can be started")
                || plan.faults.states_hidden && line.contains("are then noticed only after 10 ms"))
        });
        wrong.extend(warnings.map(|line| format!("nothing was refused, but it warned: {line}")));
    }
    wrong
}

/// The faults by their names.
fn by_kind(counts: &FaultCounts) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([
        ("threads refused", counts.spawns_refused),
        ("waits ended for no reason", counts.spurious_wakes),
        ("late timers", counts.late_timers),
        ("preemptions", counts.preemptions),
        ("CPUs offline", counts.cpus_offline),
        ("shrunk limits", counts.limits_shrunk),
    ])
}

/// The trace, with threads named and the program's own lines as they were written.
fn readable(trace: Vec<String>) -> Vec<String> {
    let mut names: BTreeMap<u64, String> = BTreeMap::from([(1, "main".to_owned())]);
    trace
        .into_iter()
        .map(|line| {
            if let Some((head, name)) = line.split_once(": ")
                && let Some((_, number)) = head.split_once("spawns thread ")
                && let Ok(number) = number.trim().parse()
            {
                names.insert(number, name.to_owned());
            }
            let (line, said) = match line.split_once(": soak: ") {
                Some((head, text)) => (head, Some(text)),
                None => (line.as_str(), None),
            };
            let mut words = line.split_whitespace();
            let (time, cpu) = (words.next().unwrap_or_default(), words.by_ref().nth(1));
            let thread: u64 = words.by_ref().nth(1).and_then(|id| id.parse().ok()).unwrap_or(0);
            let what = said.map_or_else(|| words.collect::<Vec<_>>().join(" "), str::to_owned);
            let name = names.get(&thread).map_or("-", String::as_str);
            let mark = if said.is_some() { '*' } else { ' ' };
            format!("{time:>12} cpu {:<3} {thread:>4} {name:<15} {mark} {what}", cpu.unwrap_or("-"))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_names_threads_and_says_what_the_program_said() {
        let lines = [
            "          12 cpu 0   thread 1    spawns thread 2: issuer-0",
            "          34 cpu 1   thread 2    warns; bytes 20: soak: unit 3 starts",
            "          56 cpu 1   thread 2    waits on line 7",
        ];
        let lines = readable(lines.map(String::from).to_vec());
        assert!(lines[0].contains("main") && lines[0].ends_with("spawns thread 2: issuer-0"));
        assert!(
            lines[1].contains("issuer-0") && lines[1].ends_with("* unit 3 starts"),
            "{}",
            lines[1]
        );
        assert!(lines[2].contains("issuer-0") && lines[2].ends_with("waits on line 7"));
    }
}
