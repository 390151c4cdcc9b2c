//! Machines from a short description, in hwloc's synthetic format: `pack:2 numa:2 l3:2 core:4 pu:2`.
//!
//! From the outside in, each item says how many of a part are in each part of the item before. Attributes follow in round brackets:
//! `numa:2(memory=64GB)`, `l3:1(size=32MB)`, `pu:2(indexes=core:pu)`. An item in square brackets is memory that is attached to the part
//! before it: `pack:2 [numa(memory=64GB)] core:8`.

mod grammar;
mod indexes;

use crate::assemble::Draft;
use crate::{CPU_ID_LIMIT, CpuSet, MAX_NODES, Node, Topology, TopologyError};
use grammar::{Kind, Level, check, count, items, level};
use indexes::indexes;

impl Topology {
    /// Reads a description in hwloc's synthetic format, from the outside in: `pack:2 numa:2 l3:2 core:4 pu:2`
    /// is two packages of two nodes of two L3 caches of four cores of two CPUs. Long names
    /// (`package`, `numanode`, `l3cache`) are accepted too, and:
    ///
    /// - `(memory=64GB)` after a node, `(size=32MB)` after a cache;
    /// - `(indexes=...)` after `pu`: the CPU numbers, either all of them (`indexes=0,2,1,3`) or the parts to loop over, the fastest loop
    ///   first (`indexes=core` numbers one CPU of every core before the next CPU of any core);
    /// - `[numa(memory=64GB)]`: a node that is attached to each part of the item before it.
    ///
    /// `pu` may be left out (each core has one CPU then), and so may nodes (the machine has one node then). Distances between nodes are not
    /// part of the format: see [`Topology::with_distances`].
    ///
    /// # Errors
    /// If an item is not understood or out of place, or there are more than [`MAX_CPU_COUNT`](crate::MAX_CPU_COUNT) CPUs
    /// or [`MAX_NODES`](crate::MAX_NODES) nodes.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    ///
    /// let machine = Topology::from_synthetic("package:1 l3:4(size=16MB) core:3 pu:2(indexes=core)")?;
    /// assert_eq!(machine.cores()[0].cpus.to_list(), "0,12");
    /// assert!(Topology::from_synthetic("pack:two").is_err());
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn from_synthetic(text: &str) -> Result<Self, TopologyError> {
        let fail = |part: &str, reason: String| TopologyError::Synthetic {
            text: text.trim().into(),
            part: part.trim().into(),
            reason,
        };
        let mut levels = Vec::new();
        let items = items(text).map_err(|reason| fail(text, reason))?;
        if items.len() > MOST_ITEMS {
            let reason = format!("{} items: more than the {MOST_ITEMS} that are read", items.len());
            return Err(fail(text, reason));
        }
        for (item, attached) in items {
            levels.push(level(item, attached).map_err(|reason| fail(item, reason))?);
        }
        count(&mut levels)?;
        check(&levels).map_err(|(part, reason)| fail(part, reason))?;
        draft(&levels).map_err(|(part, reason)| fail(part, reason))?.finish()
    }
}

/// The most items of a description.
const MOST_ITEMS: usize = 64;

fn draft<'a>(levels: &[Level<'a>]) -> Result<Draft, (&'a str, String)> {
    let last = levels.last().expect("a description has a level of CPUs");
    let count = last.total;
    let numbers = match last.indexes {
        Some(text) => {
            indexes(text, levels, count, CPU_ID_LIMIT).map_err(|reason| (last.text, reason))?
        }
        None => (0..count).collect(),
    };
    let mut draft = Draft { place: "the description".into(), ..Draft::default() };
    draft.possible = numbers.iter().copied().collect();
    draft.online = draft.possible.clone();
    let mut holder = 1;
    for level in levels {
        // Attached nodes share the CPUs of the part that they are attached to; the first node gets these CPUs.
        let (sets, per_holder) =
            if level.attached { (holder, level.arity) } else { (level.total, 1) };
        let width = count / sets;
        let set = |index: usize| -> CpuSet {
            numbers[index * width..][..width].iter().copied().collect()
        };
        match level.kind {
            Kind::Machine | Kind::Cpu | Kind::Group => {}
            Kind::Package => (0..sets).for_each(|i| draft.packages.add_whole(set(i), Some(i))),
            Kind::Die => (0..sets).for_each(|i| draft.dies.add_whole(set(i), Some(i))),
            Kind::Cluster => (0..sets).for_each(|i| draft.clusters.add_whole(set(i), Some(i))),
            Kind::Core => (0..sets).for_each(|i| draft.cores.add_whole(set(i), Some(i))),
            Kind::Cache(cache, kind) => {
                let caches = draft.caches.shared(cache, kind);
                (0..sets).for_each(|i| caches.add_whole(set(i), (level.bytes, None)));
            }
            Kind::Node => {
                let ids = match level.indexes {
                    Some(text) => indexes(text, levels, level.total, MAX_NODES)
                        .map_err(|reason| (level.text, reason))?,
                    None => (0..level.total).collect(),
                };
                let one = |(i, id): (usize, usize)| {
                    let cpus =
                        if i % per_holder == 0 { set(i / per_holder) } else { CpuSet::new() };
                    Node { id, cpus, memory: level.bytes }
                };
                draft.nodes = ids.into_iter().enumerate().map(one).collect();
            }
        }
        if !level.attached {
            holder = level.total;
        }
    }
    Ok(draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Topology::from_synthetic(text).unwrap_err().to_string()
    }

    #[test]
    fn levels_nest_from_the_outside_in() {
        let machine = Topology::from_synthetic("pack:2 numa:2 l3:2 core:4 pu:2").unwrap();
        assert_eq!(
            (machine.cpus().len(), machine.cores().len(), machine.llcs().len()),
            (64, 32, 8)
        );
        assert_eq!((machine.nodes().len(), machine.packages().len()), (4, 2));
        assert_eq!(machine.nodes()[1].cpus.to_list(), "16-31");
        assert_eq!(
            machine.notes(),
            ["the distances between nodes are not known: 20 is used between any two"]
        );
    }

    #[test]
    fn long_names_attributes_and_attached_memory() {
        let text = "Package:2 [NUMANode(memory=1GiB)] L3Cache:1(size=32MiB) L2:2 Core:1 PU:2";
        let machine = Topology::from_synthetic(text).unwrap();
        assert_eq!(machine.nodes()[1].memory, Some(1 << 30));
        assert_eq!(machine.nodes()[1].cpus.to_list(), "4-7");
        let llc = &machine.llcs()[1];
        assert_eq!(machine.caches()[llc.cache_index.unwrap()].size, Some(32 << 20));
        assert_eq!(machine.caches().len(), 2 + 4);
    }

    #[test]
    fn two_attached_nodes_leave_the_second_without_cpus() {
        let machine = Topology::from_synthetic("pack:2 [numa:2] core:2").unwrap();
        let lists: Vec<String> = machine.nodes().iter().map(|node| node.cpus.to_list()).collect();
        assert_eq!(lists, ["0-1", "", "2-3", ""]);
    }

    #[test]
    fn indexes_number_the_cpus_as_hwloc_does() {
        let siblings = |text: &str| -> Vec<String> {
            let machine = Topology::from_synthetic(text).unwrap();
            machine.cores().iter().map(|core| core.cpus.to_list()).collect()
        };
        let by_core = ["0,6", "1,7", "2,8", "3,9", "4,10", "5,11"];
        assert_eq!(siblings("numa:2 core:3 pu:2(indexes=core)"), by_core);
        assert_eq!(siblings("numa:2 core:3 pu:2(indexes=core:numa)"), by_core);
        let machine = Topology::from_synthetic("numa:2 core:3 pu:2(indexes=numa:core)").unwrap();
        assert_eq!(machine.nodes()[0].cpus.to_list(), "0,2,4,6,8,10");
        assert_eq!(machine.cores()[0].cpus.to_list(), "0,6");
        assert_eq!(siblings("core:2 pu:2(indexes=7,3,2,9)"), ["2,9", "3,7"]);
    }

    #[test]
    fn an_l3_that_spans_nodes_is_cut_at_the_nodes() {
        let machine = Topology::from_synthetic("pack:1 l3:1 numa:2 core:4").unwrap();
        assert_eq!((machine.llcs().len(), machine.caches().len()), (2, 1));
        assert!(
            machine.notes().iter().any(|note| note.contains("L3 cache of CPUs 0-7 spans 2 nodes"))
        );
    }

    #[test]
    fn mistakes_are_named_with_what_is_allowed() {
        assert_eq!(
            error("pack:2 cor:4"),
            "\"cor:4\" in \"pack:2 cor:4\": not a part of a machine; the parts are machine, package (pack, socket), \
             numanode (numa, node), die, cluster, group, l1 to l5, core and pu; give a description such as \
             \"pack:2 numa:2 l3:2 core:4 pu:2\""
        );
        for (text, part) in [
            ("", "empty"),
            ("  ", "empty"),
            ("core", "a count is missing"),
            ("core:0", "at least 1"),
            ("core:-1", "not a number"),
            ("core:99999999999999999999999", "not a number in range"),
            ("core:4097", "4097 CPUs: more than the 4096"),
            ("node:1025 core:1", "1025 nodes: more than the 1024"),
            ("pack:1024 [node:2] core:1", "2048 nodes: more than the 1024"),
            ("node:9999999 core:9999999", "9999999 nodes: more than the 1024"),
            ("[node:9999999] core:2", "9999999 nodes: more than the 1024"),
            (&"group:1 ".repeat(65), "65 items: more than the 64"),
            ("numa:2(indexes=0,1024) core:2", "below 1024"),
            ("pack:4096 core:4096 pu:4096", "more than the 4096"),
            ("core:2 pack:2", "cannot be inside \"core:2\""),
            ("pu:2 core:2", "cannot be inside"),
            ("l2:2 l3:2 pu:1", "cannot be inside"),
            ("core:2 core:2", "cannot be inside"),
            ("numa:2 [numa] core:2", "only once"),
            ("machine:2 core:2", "only one machine"),
            ("pack:2(size", "'(' without ')'"),
            ("pack:2 [numa", "'[' without ']'"),
            ("pack:2 [core:2]", "square brackets"),
            ("numa:2(memory=3XB)", "not a unit of memory"),
            ("numa:2(speed=3)", "the attributes are"),
            ("core:2 pu:2(indexes=0,1,2)", "3 distinct numbers are given for 4"),
            ("core:2 pu:2(indexes=0,1,2,65536)", "below 65536"),
            ("core:2 pu:2(indexes=die)", "not a part of this machine"),
            ("core:2(indexes=1,0)", "only pu and numa"),
            ("l9:2", "not a part"),
            ("lé:2", "not a part"),
        ] {
            assert!(error(text).contains(part), "{text}: {}", error(text));
        }
    }
}
