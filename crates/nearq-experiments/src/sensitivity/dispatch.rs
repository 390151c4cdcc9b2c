//! The conclusions of `dispatch` with an issuer on each CPU.

use super::question::{Answer, Bound, Conclusion, Question, Setting, joined};
use crate::dispatch::{Sample, simulated_issuers, targets};
use crate::{Error, Machine};
use nearq_topology::Scope;

/// Items of all issuers together in one run, and in a quick one.
pub(super) const ITEMS: [usize; 2] = [15_000, 4_000];
/// Fewest items of an issuer.
const FEWEST: usize = 20;

/// What scope gives the most items per second.
#[derive(Debug)]
pub(super) struct Dispatch;

impl Question for Dispatch {
    fn name(&self) -> &'static str {
        "dispatch"
    }

    fn machine(&self) -> &'static str {
        "grace-72"
    }

    fn ask(&self, setting: &Setting<'_>) -> Result<Answer, Error> {
        let machine = setting.machine;
        let items = ITEMS[usize::from(setting.quick)] / machine.parallelism();
        let mut hashes = Vec::new();
        let mut run = |scope| {
            let (sample, hash) =
                simulated_issuers(machine, scope, items.max(FEWEST), setting.seed)?;
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
                "dispatch has nothing to conclude on {}: its last-level caches are neither several nor large enough for \
                 shards; give a machine such as grace-72 or ryzen-3900x",
                machine.name()
            )));
        }
        let cache = run(Scope::Cache)?;
        if shards {
            let shard = run(Scope::CacheShard)?;
            let name = "cache_shard does at least 1.5 times as many items as cache";
            conclusions.push(conclude(
                name,
                faster(&shard, &cache),
                Bound::AtLeast(targets::SHARDS),
            )?);
            let longer = |one: &Sample, other: &Sample| Some(one.queue?.p50 / other.queue?.p50);
            let name = "the median call that queues takes at most twice as long under cache as under cache_shard";
            conclusions.push(conclude(name, longer(&cache, &shard), Bound::AtMost(2.0))?);
        }
        if caches {
            let system = run(Scope::System)?;
            let name = "cache does at least as many items as system";
            conclusions.push(conclude(name, faster(&cache, &system), Bound::AtLeast(1.0))?);
        }
        Ok(Answer { conclusions, trace_hash: joined(hashes) })
    }
}

/// Whether the machine has more than one last-level cache.
fn has_caches(machine: &Machine) -> bool {
    machine.pods(Scope::Cache).len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(machine: &str) -> Result<Answer, Error> {
        let machine = Machine::named(machine).unwrap();
        Dispatch.ask(&Setting { machine: &machine, parameter: None, seed: 1, quick: true })
    }

    #[test]
    fn the_conclusions_hang_on_the_shape() {
        let names = |machine| -> Vec<String> {
            let answer = ask(machine).unwrap();
            assert!(answer.conclusions.iter().all(|one| one.value > 0.0), "{answer:?}");
            answer.conclusions.into_iter().map(|one| one.name).collect()
        };
        let shards = names("l3:1 core:16");
        assert!(shards.len() == 2 && shards[0].starts_with("cache_shard does"), "{shards:?}");
        assert_eq!(names("l3:2 core:2"), ["cache does at least as many items as system"]);
        let error = ask("l3:1 core:2").unwrap_err();
        assert!(error.exit_status() == 2 && error.to_string().contains("l3:1 core:2"), "{error}");
    }
}
