//! Turns what a reader found into a [`Topology`]: fills gaps, notes each of them, and makes the groups nest.
//!
//! Every reader collects a [`Draft`] of overlapping, incomplete and perhaps contradictory sets. Here they
//! become partitions of the machine's CPUs with `core ⊆ LLC domain ⊆ node`:
//!
//! 1. groups of one kind that overlap: the claim of most of their CPUs counts (`claims`);
//! 2. caches, likewise; if it is not known which CPUs share a cache, the CPUs of a core and of a lower cache share it;
//! 3. nodes: if none is known, there is one node; a CPU that several nodes list is on the smallest of them; a CPU whose node is unknown is
//!    on the node of the other CPUs of its core, its cache or its package, otherwise on the only node, or on the first that could have it;
//! 4. packages: if none is known, there is one package;
//! 5. LLC domains: each CPU belongs to its highest-level data or unified cache, which is the same for a whole core, or without a cache to
//!    its package; both are cut at nodes;
//! 6. CPUs whose place is unknown (offline since boot) join the only LLC domain that they could be in, or get a domain of their own if they
//!    could be in several;
//! 7. cores: SMT groups, cut at LLC domains; a CPU whose core is unknown counts as a core.

mod caches;
mod claims;
mod nodes;

pub(crate) use caches::{CacheClaims, cache_level};
pub(crate) use claims::Claims;

use crate::error::quoted;
use crate::topology::DISTANCES_UNKNOWN;
use crate::unread::Unread;
use crate::{
    Cache, Core, Cpu, CpuSet, Group, LOCAL_DISTANCE, Llc, MAX_CPU_COUNT, Node, REMOTE_DISTANCE,
};
use crate::{Topology, TopologyError};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// The most notes of one kind that are kept; further ones are only counted.
const MOST_NOTES: usize = 8;

/// The most characters of a name that the machine gives.
const MOST_NAME: usize = 200;

/// The largest size of a cache or a node, in bytes: a larger value is not believed. A sum of such sizes does not overflow.
const MAX_SIZE: u64 = 1 << 50;

/// The largest distance between two nodes, in the firmware's units. The kernel's largest value is 255.
const MAX_DISTANCE: u32 = 65535;

/// The capacities that a CPU can have: the fastest CPU has 1024, and no CPU is fifty times slower than another one of its machine.
const CAPACITIES: RangeInclusive<u32> = 20..=65535;

/// What a reader found. Empty means not found.
#[derive(Debug, Default)]
pub(crate) struct Draft {
    /// Where the reader searched, for messages.
    pub place: String,
    /// The CPUs that exist, online or not.
    pub possible: CpuSet,
    /// CPUs that may be plugged in.
    pub slots: CpuSet,
    pub online: CpuSet,
    /// CPUs that are kept free of work that is bound to no CPU.
    pub isolated: CpuSet,
    pub cores: Claims<Option<usize>>,
    pub clusters: Claims<Option<usize>>,
    pub dies: Claims<Option<usize>>,
    pub packages: Claims<Option<usize>>,
    pub caches: CacheClaims,
    pub nodes: Vec<Node>,
    /// The numbers of nodes that do not say which CPUs they have.
    pub unlisted: Vec<usize>,
    /// A row for each of `nodes`, in the same order.
    pub distances: Vec<Vec<u32>>,
    pub capacities: BTreeMap<usize, u32>,
    pub kinds: Vec<(String, CpuSet)>,
    pub model: Option<String>,
    pub notes: Vec<String>,
    /// What exists and could not be read.
    pub unread: Vec<Unread>,
}

/// The parts of a machine that are settled so far.
struct Parts {
    distances: Vec<Vec<u32>>,
    packages: Vec<Group>,
    dies: Vec<Group>,
    clusters: Vec<Group>,
    caches: Vec<Cache>,
    llcs: Vec<Llc>,
    cores: Vec<CpuSet>,
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
        if count > MAX_CPU_COUNT {
            return Err(TopologyError::TooManyCpus { count });
        }
        self.leave_out_nonsense();
        self.slots = &self.slots - &self.possible;
        self.online = &self.online & &self.possible;
        self.isolated = &self.isolated & &self.possible;
        if self.online.is_empty() {
            self.note("the machine says that none of its CPUs is online: all are assumed to be");
            self.online = self.possible.clone();
        }
        let cores = self.settle_groups("cores", |draft| &mut draft.cores);
        let packages = self.settle_groups("packages", |draft| &mut draft.packages);
        let caches = self.settle_caches(&cores);
        self.settle_nodes(&cores, &caches, &packages)?;
        let distances = self.settle_distances();
        let packages = self.settle_packages(packages);
        let mut dies = self.settle_groups("dies", |draft| &mut draft.dies);
        // A die that is the whole package says nothing.
        let whole: BTreeSet<&CpuSet> = packages.iter().map(|package| &package.cpus).collect();
        if dies.iter().all(|die| whole.contains(&die.cpus)) {
            dies.clear();
        }
        let clusters = self.settle_groups("clusters", |draft| &mut draft.clusters);
        let node_of = self.index(self.nodes.iter().map(|node| &node.cpus));
        let llcs = self.settle_llcs(&caches, &cores, &packages, &node_of);
        let llc_of = self.index(llcs.iter().map(|llc| &llc.cpus));
        let cores = self.settle_cores(cores, &llc_of);
        Ok(self.build(Parts { distances, packages, dies, clusters, caches, llcs, cores }))
    }

    /// Leaves out impossible numbers.
    fn leave_out_nonsense(&mut self) {
        let memory = self.nodes.iter_mut().map(|node| &mut node.memory);
        let sizes = self.caches.sizes().chain(memory);
        let wrong = sizes.filter_map(|size| size.take_if(|size| *size > MAX_SIZE)).count();
        let capacities = self.capacities.len();
        self.capacities.retain(|_, capacity| CAPACITIES.contains(capacity));
        let wrong = wrong + capacities - self.capacities.len();
        if wrong > 0 {
            self.note(format!("{wrong} sizes and capacities are impossible: they are left out"));
        }
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

    fn settle_packages(&mut self, mut packages: Vec<Group>) -> Vec<Group> {
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
    fn settle_groups(
        &mut self,
        what: &str,
        of: fn(&mut Self) -> &mut Claims<Option<usize>>,
    ) -> Vec<Group> {
        let claims = std::mem::take(of(self));
        let claimants = claims.claimants();
        let agreement = claims.agree(&self.possible, &claimants);
        if !agreement.dropped.is_empty() {
            let (overlap, dropped) = (&agreement.overlap, &agreement.dropped);
            self.note(format!(
                "CPUs {overlap} are in several {what}: what most of the CPUs there say is used, and what CPUs {dropped} say is ignored"
            ));
        }
        agreement.sets.into_iter().map(|(cpus, id)| Group { id, cpus }).collect()
    }

    fn build(self, parts: Parts) -> Topology {
        let Parts { distances, packages, dies, clusters, caches, mut llcs, cores: core_sets } =
            parts;
        let node_of = self.index(self.nodes.iter().map(|node| &node.cpus));
        let package_of = self.index(packages.iter().map(|group| &group.cpus));
        let die_of = self.index(dies.iter().map(|group| &group.cpus));
        let cluster_of = self.index(clusters.iter().map(|group| &group.cpus));
        let llc_of = self.index(llcs.iter().map(|llc| &llc.cpus));
        let core_of = self.index(core_sets.iter());
        let kind_of = |cpu: usize| {
            self.kinds.iter().find(|(_, cpus)| cpus.contains(cpu)).map(|(kind, _)| shortened(kind))
        };
        let within = "every possible CPU was assigned a core and a last-level cache";
        let cpus: Vec<Cpu> = self
            .possible
            .iter()
            .map(|id| Cpu {
                id,
                core_index: core_of[id].expect(within),
                llc_index: llc_of[id].expect(within),
                node_index: node_of[id],
                package_index: package_of[id],
                die_index: die_of[id],
                cluster_index: cluster_of[id],
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
            llcs[first.llc_index].core_indices.push(index);
            cores.push(Core {
                cpus: set,
                llc_index: first.llc_index,
                node_index: first.node_index,
                kind: first.kind.clone(),
            });
        }
        Topology {
            possible: self.possible,
            slots: self.slots,
            online: self.online,
            isolated: self.isolated,
            cpus,
            places,
            cores,
            clusters,
            llcs,
            dies,
            packages,
            nodes: self.nodes,
            distances,
            caches,
            devices: Vec::new(),
            model: self
                .model
                .map(|name| shortened(&name).split_whitespace().collect::<Vec<_>>().join(" ")),
            notes: self.notes,
            unread: self.unread,
            outdated: false,
        }
    }
}

/// A name that the machine gives, cut to a length that can be shown.
fn shortened(name: &str) -> String {
    name.chars().take(MOST_NAME).collect()
}

/// Checks that `rows` can be the distances between `count` nodes.
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
            if *distance > MAX_DISTANCE {
                return Err(format!(
                    "{distance} from node {a} to node {b} is more than {MAX_DISTANCE}"
                ));
            }
        }
    }
    Ok(())
}

/// A number, read from a text, or why it is not valid.
pub(crate) fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| format!("{} is not a number in range", quoted(text)))
}
