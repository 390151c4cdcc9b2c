//! The conclusions of `dispatch` with an issuer on each CPU.

use crate::dispatch::{Sample, simulated_issuers, targets};
use crate::sensitivity::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use crate::{Error, Machine};
use nearq_topology::AffinityScope;

/// Items of all issuers together in one run, and in a quick one.
pub(in crate::sensitivity) const ITEMS: [usize; 2] = [15_000, 4_000];
/// Fewest items of an issuer.
const FEWEST: usize = 20;

/// Which scope gives the most items per second.
pub(in crate::sensitivity) static DISPATCH: Question = Question {
    name: "dispatch",
    machine: "grace-72",
    parameters: &[],
    sizes: [
        "15,000 items of all issuers together, where `bench dispatch` has 60,000 and 5 seeds",
        "4,000 items of all issuers together",
    ],
    least_runs: [1, 1],
    has_noise: false,
    refuses: |machine| {
        let none = !targets::has_shards(machine) && !has_caches(machine);
        none.then(|| {
            "it has only one last-level cache, and that is too small for shards; give a machine such as grace-72 or ryzen-3900x"
                .into()
        })
    },
    ask,
};

fn ask(setting: &Setting<'_>) -> Result<Answer, Error> {
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
    let cache = run(AffinityScope::Cache)?;
    if targets::has_shards(machine) {
        let shard = run(AffinityScope::CacheShard)?;
        let name = "cache_shard does at least 1.5 times as many items as cache";
        conclusions.push(conclude(name, faster(&shard, &cache), Bound::AtLeast(targets::SHARDS))?);
        let longer = |one: &Sample, other: &Sample| Some(one.queue?.p50 / other.queue?.p50);
        let name = "the median call that queues takes at most twice as long under cache as under cache_shard";
        conclusions.push(conclude(name, longer(&cache, &shard), Bound::AtMost(2.0))?);
    }
    if has_caches(machine) {
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

#[cfg(test)]
#[path = "../tests/dispatch.rs"]
mod tests;
