//! From what a reader found to a [`Topology`]: fills gaps, says so, and makes the groups nest.
//!
//! Every reader collects a [`Draft`] of overlapping, incomplete and perhaps contradictory sets. Here they
//! become partitions of the possible CPUs with `core ⊆ LLC domain ⊆ node`:
//!
//! 1. groups of one kind that overlap: the first one keeps the CPUs;
//! 2. nodes: none known means one node; a CPU of unknown node joins the only node there is;
//! 3. packages: none known means one package;
//! 4. LLC domains: for each CPU its highest-level data or unified cache, else its package, cut at nodes;
//! 5. CPUs of unknown place (offline since boot) join the one LLC domain that they could be in, or one of
//!    their own if there are several;
//! 6. cores: SMT groups, cut at LLC domains; a CPU of unknown core is a core.

mod caches;

use crate::error::quoted;
use crate::topology::DISTANCES_UNKNOWN;
use crate::unread::Unread;
use crate::{
    Cache, Core, Cpu, CpuSet, Group, LOCAL_DISTANCE, Llc, MAX_CPUS, Node, REMOTE_DISTANCE,
};
use crate::{Topology, TopologyError};
use std::collections::BTreeMap;

/// What a reader found. Empty means not found.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Where it was looked for, for messages.
    pub place: String,
    pub possible: CpuSet,
    pub present: CpuSet,
    pub online: CpuSet,
    pub cores: Vec<CpuSet>,
    pub clusters: Vec<Group>,
    pub dies: Vec<Group>,
    pub packages: Vec<Group>,
    pub caches: Vec<Cache>,
    pub nodes: Vec<Node>,
    /// A row for each of `nodes`, in the same order.
    pub distances: Vec<Vec<u32>>,
    pub capacities: BTreeMap<usize, u32>,
    pub kinds: Vec<(String, CpuSet)>,
    pub model: Option<String>,
    pub notes: Vec<String>,
    /// What is there and could not be read.
    pub unread: Vec<Unread>,
}

impl Draft {
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Makes the machine.
    pub(crate) fn finish(mut self) -> Result<Topology, TopologyError> {
        let count = self.possible.len();
        if count == 0 {
            return Err(TopologyError::NoCpus { place: self.place });
        }
        if count > MAX_CPUS {
            return Err(TopologyError::TooManyCpus { count });
        }
        self.present = &self.present & &self.possible;
        self.online = &self.online & &self.possible;
        self.settle_nodes();
        let distances = self.settle_distances();
        let packages = self.settle_packages();
        let mut dies = self.settle_groups("dies", |draft| std::mem::take(&mut draft.dies));
        // A die that is the whole package says nothing.
        if dies.iter().all(|die| packages.iter().any(|package| package.cpus == die.cpus)) {
            dies.clear();
        }
        let clusters = self.settle_groups("clusters", |draft| std::mem::take(&mut draft.clusters));
        self.settle_caches();
        let node_of = self.index(self.nodes.iter().map(|node| &node.cpus));
        let llcs = self.settle_llcs(&packages, &node_of);
        let llc_of = self.index(llcs.iter().map(|llc| &llc.cpus));
        let cores = self.settle_cores(&llc_of);
        Ok(self.build(distances, packages, dies, clusters, llcs, cores))
    }

    /// For each CPU number, which of the disjoint `sets` it is in.
    fn index<'a>(&self, sets: impl Iterator<Item = &'a CpuSet>) -> Vec<Option<usize>> {
        let mut index = vec![None; self.possible.last().map_or(0, |last| last + 1)];
        for (number, set) in sets.enumerate() {
            for cpu in set {
                index[cpu] = Some(number);
            }
        }
        index
    }

    fn settle_nodes(&mut self) {
        self.nodes.sort_by_key(|node| node.id);
        let mut taken = CpuSet::new();
        let mut overlap = CpuSet::new();
        for node in &mut self.nodes {
            node.cpus = &node.cpus & &self.possible;
            overlap = &overlap | &(&node.cpus & &taken);
            node.cpus = &node.cpus - &taken;
            taken = &taken | &node.cpus;
        }
        if !overlap.is_empty() {
            self.note(format!(
                "CPUs {overlap} are said to be on several nodes; the first one is used"
            ));
        }
        let unknown = &self.possible - &taken;
        if self.nodes.is_empty() {
            self.note("the machine does not describe its NUMA nodes: all CPUs are put on one node");
            self.nodes.push(Node { id: 0, cpus: unknown, memory: None });
            self.distances.clear();
        } else if !unknown.is_empty() {
            // A node of memory alone has no CPUs because it never has any, unless it is the only one.
            let single = self.nodes.len() == 1;
            let mut homes = self.nodes.iter_mut().filter(|node| single || !node.cpus.is_empty());
            match (homes.next(), homes.next()) {
                (Some(only), None) => only.cpus = &only.cpus | &unknown,
                _ => self.note(format!("the node of CPUs {unknown} is not known")),
            }
        }
    }

    fn settle_distances(&mut self) -> Vec<Vec<u32>> {
        let count = self.nodes.len();
        let rows = std::mem::take(&mut self.distances);
        if !rows.is_empty() {
            match check_distances(&rows, count) {
                Ok(()) => return rows,
                Err(reason) => {
                    self.note(format!("the distances between nodes cannot be used: {reason}"))
                }
            }
        }
        if count > 1 {
            self.note(format!("{DISTANCES_UNKNOWN}: {REMOTE_DISTANCE} is used between any two"));
        }
        let cell = |a, b| {
            if a == b { LOCAL_DISTANCE } else { REMOTE_DISTANCE }
        };
        (0..count).map(|a| (0..count).map(|b| cell(a, b)).collect()).collect()
    }

    fn settle_packages(&mut self) -> Vec<Group> {
        let mut packages =
            self.settle_groups("packages", |draft| std::mem::take(&mut draft.packages));
        let known = packages.iter().fold(CpuSet::new(), |known, package| &known | &package.cpus);
        let unknown = &self.possible - &known;
        if packages.is_empty() {
            self.note(
                "the machine does not describe its packages: all CPUs are put in one package",
            );
            packages.push(Group { id: None, cpus: unknown });
        } else if !unknown.is_empty() {
            if let [only] = packages.as_mut_slice() {
                only.cpus = &only.cpus | &unknown;
            } else {
                self.note(format!("the package of CPUs {unknown} is not known"));
            }
        }
        packages
    }

    /// Groups that do not overlap, in order of their first CPU.
    fn settle_groups(&mut self, what: &str, take: fn(&mut Self) -> Vec<Group>) -> Vec<Group> {
        let mut groups = take(self);
        for group in &mut groups {
            group.cpus = &group.cpus & &self.possible;
        }
        groups.sort_by(|a, b| a.cpus.cmp(&b.cpus));
        groups.dedup_by(|b, a| a.cpus == b.cpus);
        let mut taken = CpuSet::new();
        let mut overlap = CpuSet::new();
        for group in &mut groups {
            overlap = &overlap | &(&group.cpus & &taken);
            group.cpus = &group.cpus - &taken;
            taken = &taken | &group.cpus;
        }
        groups.retain(|group| !group.cpus.is_empty());
        groups.sort_by_key(|group| group.cpus.first());
        if !overlap.is_empty() {
            self.note(format!(
                "CPUs {overlap} are said to be in several {what}; one of them is used"
            ));
        }
        groups
    }

    fn build(
        self,
        distances: Vec<Vec<u32>>,
        packages: Vec<Group>,
        dies: Vec<Group>,
        clusters: Vec<Group>,
        mut llcs: Vec<Llc>,
        core_sets: Vec<CpuSet>,
    ) -> Topology {
        let node_of = self.index(self.nodes.iter().map(|node| &node.cpus));
        let package_of = self.index(packages.iter().map(|group| &group.cpus));
        let die_of = self.index(dies.iter().map(|group| &group.cpus));
        let cluster_of = self.index(clusters.iter().map(|group| &group.cpus));
        let llc_of = self.index(llcs.iter().map(|llc| &llc.cpus));
        let core_of = self.index(core_sets.iter());
        let kind_of = |cpu: usize| {
            self.kinds.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(kind, _)| kind.clone())
        };
        let within = "every possible CPU was given a core and a last-level cache";
        let cpus: Vec<Cpu> = self
            .possible
            .iter()
            .map(|id| Cpu {
                id,
                core: core_of[id].expect(within),
                llc: llc_of[id].expect(within),
                node: node_of[id],
                package: package_of[id],
                die: die_of[id],
                cluster: cluster_of[id],
                online: self.online.contains(id),
                capacity: self.capacities.get(&id).copied(),
                kind: kind_of(id),
            })
            .collect();
        let mut places = vec![usize::MAX; self.possible.last().map_or(0, |last| last + 1)];
        for (place, cpu) in cpus.iter().enumerate() {
            places[cpu.id] = place;
        }
        let mut cores = Vec::with_capacity(core_sets.len());
        for (index, set) in core_sets.into_iter().enumerate() {
            let first = &cpus[places[set.first().expect("a core has CPUs")]];
            llcs[first.llc].cores.push(index);
            cores.push(Core {
                cpus: set,
                llc: first.llc,
                node: first.node,
                kind: first.kind.clone(),
            });
        }
        Topology {
            possible: self.possible,
            present: self.present,
            online: self.online,
            cpus,
            places,
            cores,
            clusters,
            llcs,
            dies,
            packages,
            nodes: self.nodes,
            distances,
            caches: self.caches,
            model: self.model.map(|name| name.split_whitespace().collect::<Vec<_>>().join(" ")),
            notes: self.notes,
            unread: self.unread,
            outdated: false,
        }
    }
}

/// Whether `rows` can be the distances between `count` nodes.
pub(crate) fn check_distances(rows: &[Vec<u32>], count: usize) -> Result<(), String> {
    if rows.len() != count {
        return Err(format!("{} rows of distances for {count} nodes", rows.len()));
    }
    for (a, row) in rows.iter().enumerate() {
        if row.len() != count {
            return Err(format!("row {a} has {} distances for {count} nodes", row.len()));
        }
        for (b, distance) in row.iter().enumerate() {
            if a == b && *distance != LOCAL_DISTANCE {
                return Err(format!("{distance} from node {a} to itself is not {LOCAL_DISTANCE}"));
            }
            if *distance < LOCAL_DISTANCE {
                return Err(format!(
                    "{distance} from node {a} to node {b} is less than {LOCAL_DISTANCE}"
                ));
            }
        }
    }
    Ok(())
}

/// A number that a reader found in a text, or why not.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{} is not a number in range", quoted(text)))
}
