//! The interface to an experiment: its conclusions, and their values on a machine whose costs are varied.

use crate::dispatch::{Sample, simulated_issuers, targets};
use crate::join;
use crate::scopes::{ALLOWED_LOSS, Judgement, PARAMETERS, conclusions};
use crate::{Error, Machine};
use nearq_topology::AffinityScope;
use std::time::Duration;

// What an experiment provides so that its conclusions can be examined.

/// An experiment whose conclusions are examined.
#[derive(Debug)]
pub struct Question {
    /// Its name.
    pub name: &'static str,
    /// The machine of its document.
    pub machine: &'static str,
    /// The parts of its load that can be varied, by name.
    pub parameters: &'static [&'static str],
    /// Runs what the conclusions need, once.
    pub ask: fn(&Setting<'_>) -> Result<Answer, Error>,
}

/// How an experiment is run.
#[derive(Clone, Copy, Debug)]
pub struct Setting<'s> {
    /// The simulated machine, with its costs as varied.
    pub machine: &'s Machine,
    /// One of the experiment's own parameters, and the percentage of its value that it must have.
    pub parameter: Option<(&'static str, u64)>,
    /// The seed of the run.
    pub seed: u64,
    /// Whether a shorter run is enough.
    pub quick: bool,
}

/// The result of one run. The conclusions and their order depend only on the machine's shape.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The conclusions.
    pub conclusions: Vec<Conclusion>,
    /// A hash of everything that happened: with equal hashes, what was varied is not used.
    pub trace_hash: u64,
}

/// A statement that holds or fails, and by how much.
#[derive(Clone, Debug, PartialEq)]
pub struct Conclusion {
    /// The statement.
    pub name: String,
    /// What it is about: a ratio of two results.
    pub value: f64,
    /// What the value must be for the statement to hold.
    pub bound: Bound,
}

/// What a value must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// This, or more.
    AtLeast(f64),
    /// This, or less.
    AtMost(f64),
}

impl Bound {
    /// By how much a value keeps the bound; negative if it does not.
    pub fn margin(self, value: f64) -> f64 {
        match self {
            Self::AtLeast(bound) => value - bound,
            Self::AtMost(bound) => bound - value,
        }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::AtLeast(bound) => write!(f, "at least {bound}"),
            Self::AtMost(bound) => write!(f, "at most {bound}"),
        }
    }
}

/// Joins the hashes of several runs into one.
pub(super) fn joined(hashes: impl IntoIterator<Item = u64>) -> u64 {
    // FNV-1a over words, as the simulator's own trace.
    hashes.into_iter().fold(0xCBF2_9CE4_8422_2325, |hash, word| {
        (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29)
    })
}

// The conclusions of `scopes`: what the scopes cost without helping, and that helping gives it back.

/// Virtual time of one run, and of a quick one.
pub(super) const DURATIONS: [Duration; 2] = [Duration::from_secs(1), Duration::from_millis(250)];

/// How much data each configuration moves.
pub(super) static SCOPES: Question = Question {
    name: "scopes",
    machine: "ryzen-3900x",
    parameters: &PARAMETERS,
    ask: |setting| {
        let duration = DURATIONS[usize::from(setting.quick)];
        let Setting { machine, parameter, seed, .. } = *setting;
        let (judgements, hashes) = conclusions(machine, parameter, seed, duration)?;
        let conclusions = judgements.iter().map(conclusion).collect();
        Ok(Answer { conclusions, trace_hash: joined(hashes) })
    },
};

/// A judgement as a bound on a configuration's result relative to that of `system`.
fn conclusion(judgement: &Judgement) -> Conclusion {
    let bound = match judgement.published {
        None => Bound::AtLeast(1.0 - ALLOWED_LOSS / 100.0),
        Some(published) if published < 0.0 => Bound::AtMost(1.0),
        Some(_) => Bound::AtLeast(1.0),
    };
    Conclusion {
        name: format!("{}, {} shall {}", judgement.scenario, judgement.row, judgement.shall),
        value: 1.0 + judgement.gap / 100.0,
        bound,
    }
}

// The conclusions of `dispatch` with an issuer on each CPU.

/// Items of all issuers together in one run, and in a quick one.
pub(super) const ITEMS: [usize; 2] = [15_000, 4_000];
/// Fewest items of an issuer.
const FEWEST: usize = 20;

/// Which scope gives the most items per second.
pub(super) static DISPATCH: Question =
    Question { name: "dispatch", machine: "grace-72", parameters: &[], ask: of_dispatch };

fn of_dispatch(setting: &Setting<'_>) -> Result<Answer, Error> {
    let machine = setting.machine;
    let items = ITEMS[usize::from(setting.quick)] / machine.parallelism();
    let mut hashes = Vec::new();
    let mut run = |scope| {
        let (sample, hash) = simulated_issuers(machine, scope, items.max(FEWEST), setting.seed)?;
        hashes.push(hash);
        Ok::<Sample, Error>(sample)
    };
    let conclude = |name: &str, value: Option<f64>, bound: Bound| {
        let value = value.ok_or_else(|| Error::run(format!("{name}: nothing was measured")))?;
        Ok::<_, Error>(Conclusion { name: name.into(), value, bound })
    };
    let faster = |one: &Sample, other: &Sample| Some(other.ns_per_item? / one.ns_per_item?);
    let mut conclusions = Vec::new();
    let shards = targets::has_shards(machine);
    let caches = has_caches(machine);
    if !shards && !caches {
        return Err(Error::input(format!(
            "dispatch has no conclusions for {}: it has only one last-level cache, and that is too small for shards; give a machine such as grace-72 or ryzen-3900x",
            machine.name()
        )));
    }
    let cache = run(AffinityScope::Cache)?;
    if shards {
        let shard = run(AffinityScope::CacheShard)?;
        let name = "cache_shard does at least 1.5 times as many items as cache";
        conclusions.push(conclude(name, faster(&shard, &cache), Bound::AtLeast(targets::SHARDS))?);
        let longer = |one: &Sample, other: &Sample| Some(one.queue?.p50 / other.queue?.p50);
        let name = "the median call that queues takes at most twice as long under cache as under cache_shard";
        conclusions.push(conclude(name, longer(&cache, &shard), Bound::AtMost(2.0))?);
    }
    if caches {
        let system = run(AffinityScope::System)?;
        let name = "cache does at least as many items as system";
        conclusions.push(conclude(name, faster(&cache, &system), Bound::AtLeast(1.0))?);
    }
    Ok(Answer { conclusions, trace_hash: joined(hashes) })
}

/// Whether the machine has more than one last-level cache.
fn has_caches(machine: &Machine) -> bool {
    machine.pods(AffinityScope::Cache).len() > 1
}

// The conclusions of `join`.

/// Whether the scope `cache` is the fastest for a program whose parts fit into a cache. With one last-level cache, `system` is the same.
pub(super) static JOIN: Question =
    Question { name: "join", machine: "ryzen-3900x", parameters: &[], ask: of_join };

fn of_join(setting: &Setting<'_>) -> Result<Answer, Error> {
    let machine = setting.machine;
    let rows = join::times(machine, setting.quick, setting.seed)?;
    let cache = rows.iter().find(|(row, ..)| *row == join::CACHE).expect("it is a row").1;
    let conclude = |&(row, time, _): &(&str, Duration, u64)| Conclusion {
        name: format!("{} takes at most as long as {row}", join::CACHE),
        value: cache.as_secs_f64() / time.as_secs_f64(),
        bound: Bound::AtMost(1.0),
    };
    let others = rows.iter().filter(|(row, ..)| *row != join::CACHE);
    Ok(Answer {
        conclusions: others.map(conclude).collect(),
        trace_hash: joined(rows.iter().map(|(.., hash)| *hash)),
    })
}

#[cfg(test)]
#[path = "tests/question.rs"]
mod question_tests;

#[cfg(test)]
#[path = "tests/scopes.rs"]
mod scopes_tests;

#[cfg(test)]
#[path = "tests/dispatch.rs"]
mod dispatch_tests;

#[cfg(test)]
#[path = "tests/join.rs"]
mod join_tests;
