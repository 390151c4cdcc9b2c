//! What is done with the locks, by whom and where: shapes, sections, writers, and the CPUs that they are pinned to.

use crate::{Error, Machine};
use nearq_topology::Topology;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a run does with its locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Locktorture with a short section.
    Short,
    /// Locktorture with a long section.
    Long,
    /// Adding to and waiting on the ready list of an epoll instance.
    Epoll,
    /// Fxmark's DWOM: everybody overwrites a block of one file.
    Dwom,
    /// Fxmark's MWRM: renames into one directory.
    Mwrm,
    /// Fxmark's MWUM: unlinks in one directory.
    Mwum,
}

impl Load {
    /// Its name, as it stands in the scenarios.
    pub fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Long => "long",
            Self::Epoll => "epoll",
            Self::Dwom => "DWOM",
            Self::Mwrm => "MWRM",
            Self::Mwum => "MWUM",
        }
    }

    /// What it is, for people.
    pub(super) fn about(self) -> &'static str {
        match self {
            Self::Short => {
                "torture, short section: one increment on each of two cache lines that all share"
            }
            Self::Long => {
                "torture, long section: 100 increments on each of two cache lines that all share"
            }
            Self::Epoll => {
                "epoll: even writers put items of theirs on one ready list, odd ones take from it, under one lock"
            }
            Self::Dwom => {
                "DWOM: everybody overwrites a block of its own in one file, under the lock of the inode"
            }
            Self::Mwrm => {
                "MWRM: renames from one's own directory into a shared one and back, under the lock of all renames and those of \
                 both directories; a rename counts as one acquisition, and waits until it has all three"
            }
            Self::Mwum => "MWUM: links and unlinks in one shared directory, under its lock",
        }
    }
}

/// The scenario of a load and a number of writers, as it stands in the JSON.
pub fn scenario(load: Load, writers: usize) -> String {
    format!("{} {writers}", load.name())
}

/// The same for people.
pub(super) fn described(load: Load, writers: usize) -> String {
    format!("{}, {writers} {}", load.name(), if writers == 1 { "writer" } else { "writers" })
}

/// `--shape` and `--section`: which loads.
pub(super) fn loads(
    shape: Option<&str>,
    section: Option<&str>,
    quick: bool,
) -> Result<Vec<Load>, Error> {
    let shape = shape.unwrap_or("torture");
    if let ("epoll" | "shared-file" | "shared-dir", Some(section)) = (shape, section) {
        return Err(Error::input(format!(
            "--section {section:?}: --shape {shape} has no sections; leave it out, or give --shape torture"
        )));
    }
    Ok(match shape {
        "epoll" => vec![Load::Epoll],
        "shared-file" => vec![Load::Dwom],
        "shared-dir" => vec![Load::Mwrm, Load::Mwum],
        "torture" => match section.unwrap_or(if quick { "short" } else { "both" }) {
            "short" => vec![Load::Short],
            "long" => vec![Load::Long],
            "both" => vec![Load::Short, Load::Long],
            other => {
                return Err(Error::input(format!("--section {other:?}: give short, long or both")));
            }
        },
        other => {
            return Err(Error::input(format!(
                "--shape {other:?}: give torture, epoll, shared-file or shared-dir"
            )));
        }
    })
}

/// Which CPUs the writers are pinned to first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// All cores of a last-level cache before those of the next.
    Compact,
    /// A core of each last-level cache in turn, the next one on another node.
    Spread,
}

impl Place {
    pub(super) fn named(name: Option<&str>) -> Result<Self, Error> {
        match name {
            None | Some("compact") => Ok(Self::Compact),
            Some("spread") => Ok(Self::Spread),
            Some(other) => Err(Error::input(format!("--place {other:?}: give compact or spread"))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Compact => "compact",
            Self::Spread => "spread",
        }
    }

    /// The usable CPUs in the order in which writers take them; more writers begin at the front again. SMT siblings come when all
    /// cores have one.
    pub(super) fn order(self, machine: &Machine) -> Vec<usize> {
        order(machine.topology(), machine.pods(nearq_topology::Scope::System).remove(0), self)
    }
}

fn order(topology: &Topology, usable: nearq_topology::CpuSet, place: Place) -> Vec<usize> {
    // What is not known of a CPU is the same for all of them.
    let place_of = |cpu| {
        let (node, cache) = (topology.node_of(cpu), topology.llc_of(cpu));
        (node.unwrap_or(0), cache.unwrap_or(0), topology.core_of(cpu).unwrap_or(cpu), cpu)
    };
    let mut places: Vec<_> = usable.iter().map(place_of).collect();
    places.sort_unstable();
    let rank = |of: &mut BTreeMap<usize, usize>, key| {
        let next = of.entry(key).or_insert(0);
        *next += 1;
        *next - 1
    };
    let mut siblings = BTreeMap::new();
    let mut caches: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (node, cache, ..) in &places {
        let of_node = caches.entry(*node).or_default();
        if !of_node.contains(cache) {
            of_node.push(*cache);
        }
    }
    let (mut by_core, mut in_cache) = (Vec::new(), BTreeMap::new());
    for (node, cache, core, cpu) in places {
        by_core.push((rank(&mut siblings, core), node, cache, cpu));
    }
    by_core.sort_unstable();
    if place == Place::Compact {
        return by_core.into_iter().map(|(.., cpu)| cpu).collect();
    }
    let mut spread: Vec<_> = by_core
        .into_iter()
        .map(|(sibling, node, cache, cpu)| {
            let nth = caches[&node].iter().position(|known| *known == cache).unwrap_or(0);
            (sibling, rank(&mut in_cache, cache), nth, node, cpu)
        })
        .collect();
    spread.sort_unstable();
    spread.into_iter().map(|(.., cpu)| cpu).collect()
}

/// One run of one lock.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What is done.
    pub load: Load,
    /// Threads that do it.
    pub writers: usize,
    /// The CPUs that they are pinned to, in this order, round and round.
    pub cpus: Vec<usize>,
    /// Rounds of computing between two turns of a thread, without a lock.
    pub outside: u64,
    /// How long it goes on.
    pub duration: Duration,
}

#[cfg(test)]
impl Plan {
    pub(super) fn for_test(writers: usize) -> Self {
        let duration = Duration::from_millis(5);
        Self { load: Load::Short, writers, cpus: vec![0], outside: 0, duration }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compact_fills_a_cache_and_spread_goes_round_nodes_and_caches() {
        let machine = Machine::named("numa:2 l3:2 core:2 pu:2").unwrap();
        let topology = machine.topology();
        let cache = |cpu: &usize| topology.llc_of(*cpu).unwrap();
        let compact = Place::Compact.order(&machine);
        let caches: Vec<usize> = compact.iter().map(cache).collect();
        assert_eq!(caches, [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3]);
        let cores: std::collections::BTreeSet<_> =
            compact[..8].iter().map(|cpu| topology.core_of(*cpu)).collect();
        assert_eq!(cores.len(), 8, "siblings come last");
        let spread = Place::Spread.order(&machine);
        let caches: Vec<usize> = spread.iter().map(cache).collect();
        assert_eq!(caches, [0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3]);
        let mut all = spread;
        all.sort_unstable();
        assert_eq!(all, (0..16).collect::<Vec<_>>());
    }

    #[test]
    fn the_document_s_machine_is_filled_in_the_order_of_its_cpus() {
        let machine = Machine::named("epyc-7551-2s").unwrap();
        let compact = Place::Compact.order(&machine);
        assert_eq!(compact[..64], (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn shapes_and_sections_are_loads() {
        let of = |shape, section, quick| loads(shape, section, quick);
        assert_eq!(of(None, None, false), Ok(vec![Load::Short, Load::Long]));
        assert_eq!(of(None, None, true), Ok(vec![Load::Short]));
        assert_eq!(of(Some("torture"), Some("long"), true), Ok(vec![Load::Long]));
        assert_eq!(of(Some("shared-dir"), None, true), Ok(vec![Load::Mwrm, Load::Mwum]));
        let refused = |shape, section| of(shape, section, false).unwrap_err().to_string();
        assert_eq!(
            refused(Some("tree"), None),
            "--shape \"tree\": give torture, epoll, shared-file or shared-dir"
        );
        assert_eq!(refused(None, Some("tiny")), "--section \"tiny\": give short, long or both");
        assert!(refused(Some("epoll"), Some("long")).contains("--shape epoll has no sections"));
        assert!(Place::named(Some("x")).unwrap_err().to_string().contains("compact or spread"));
    }
}
