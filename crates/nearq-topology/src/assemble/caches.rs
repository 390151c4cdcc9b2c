//! Caches, last-level cache domains and cores: the part of assembling that fills the most gaps.

use super::claims::Claims;
use super::{Draft, MOST_NOTES, number};
use crate::{Cache, CacheKind, CpuSet, Group, Llc};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// The properties that CPUs of one last-level cache domain agree on: the cache (or, if there is none, the package in its place) and the
/// node.
type Domain = (Option<usize>, Option<usize>, Option<usize>);

/// What is claimed about the caches of a machine.
#[derive(Debug, Default)]
pub(crate) struct CacheClaims {
    /// By level and kind, the sets of CPUs that share one, with its size and line length.
    shared: BTreeMap<(u32, CacheKind), Claims<Shape>>,
    /// The caches of CPUs that do not say which others share them.
    alone: BTreeMap<(u32, CacheKind), BTreeMap<usize, Shape>>,
}

/// The highest level that a cache may have. Machines have four at most.
const MAX_LEVEL: u32 = 15;

/// The level of a cache, read from a text, or why it is not valid.
pub(crate) fn cache_level(text: &str) -> Result<u32, String> {
    let level = number(text)?;
    let is_one = (1..=MAX_LEVEL).contains(&level);
    if is_one {
        Ok(level)
    } else {
        Err(format!("{level} is not a cache level, which is 1 to {MAX_LEVEL}"))
    }
}

/// Size and line length, if known.
type Shape = (Option<u64>, Option<u32>);

impl CacheClaims {
    /// The caches of one level and kind, by the sets of CPUs that share them.
    pub(crate) fn shared(&mut self, level: u32, kind: CacheKind) -> &mut Claims<Shape> {
        self.shared.entry((level, kind)).or_default()
    }

    /// The sizes of all.
    pub(super) fn sizes(&mut self) -> impl Iterator<Item = &mut Option<u64>> {
        let shared = self.shared.values_mut().flat_map(Claims::values_mut);
        let alone = self.alone.values_mut().flat_map(BTreeMap::values_mut);
        shared.chain(alone).map(|(size, _)| size)
    }

    /// Notes that a CPU has a cache and does not say which other CPUs share it.
    pub(crate) fn add_alone(&mut self, level: u32, kind: CacheKind, cpu: usize, shape: Shape) {
        self.alone.entry((level, kind)).or_default().insert(cpu, shape);
    }
}

impl Draft {
    /// The caches that CPUs agree on, the highest level first. If neither a CPU nor any other CPU says which CPUs share one of its caches,
    /// it is shared at least by the CPUs that share its core and its lower caches.
    pub(super) fn settle_caches(&mut self, cores: &[Group]) -> Vec<Cache> {
        let CacheClaims { mut shared, mut alone } = std::mem::take(&mut self.caches);
        let silent = alone.values().flat_map(|cpus| cpus.keys().copied()).collect();
        let claimants = shared.values().fold(silent, |all, claims| &all | &claims.claimants());
        let mut caches = Vec::new();
        let mut guessed = CpuSet::new();
        // The CPUs with which each CPU shares a core or a cache so far.
        let mut around: BTreeMap<usize, CpuSet> = BTreeMap::new();
        for core in cores {
            around.extend(core.cpus.iter().map(|cpu| (cpu, core.cpus.clone())));
        }
        let mut keys: Vec<(u32, CacheKind)> = shared.keys().chain(alone.keys()).copied().collect();
        keys.sort_unstable();
        keys.dedup();
        for (level, kind) in keys {
            let alone = alone.remove(&(level, kind)).unwrap_or_default();
            // CPUs that do not say which others share this cache contradict no claim.
            let claimants = &claimants - &alone.keys().copied().collect();
            let agreement =
                shared.remove(&(level, kind)).unwrap_or_default().agree(&self.possible, &claimants);
            if !agreement.dropped.is_empty() {
                self.note(format!(
                    "what CPUs {} say about their L{level} {kind} caches contradicts most of the other CPUs: it is ignored",
                    agreement.dropped
                ));
            }
            let mut sets = agreement.sets;
            let mut taken = sets.iter().fold(CpuSet::new(), |taken, (cpus, _)| &taken | cpus);
            for (cpu, shape) in alone {
                if taken.contains(cpu) || !self.possible.contains(cpu) {
                    continue;
                }
                let alone_cpu = CpuSet::single(cpu);
                let cpus = around.get(&cpu).unwrap_or(&alone_cpu) - &taken;
                taken = &taken | &cpus;
                guessed = &guessed | &cpus;
                sets.push((cpus, shape));
            }
            for (cpus, (size, line)) in sets {
                for cpu in &cpus {
                    let known = around.entry(cpu).or_default();
                    if cpus.len() > known.len() {
                        known.clone_from(&cpus);
                    }
                }
                caches.push(Cache { level, kind, size, line, cpus });
            }
        }
        if !guessed.is_empty() {
            self.note(format!(
                "some caches of CPUs {guessed} do not say which CPUs share them: the CPUs of a core and of a lower cache are assumed to"
            ));
        }
        caches.sort_by_key(|cache| (Reverse(cache.level), cache.kind, cache.cpus.first()));
        caches
    }

    pub(super) fn settle_llcs(
        &mut self,
        caches: &[Cache],
        cores: &[Group],
        packages: &[Group],
        node_of: &[Option<usize>],
    ) -> Vec<Llc> {
        let mut llc_cache: BTreeMap<usize, usize> = BTreeMap::new();
        let mut known = CpuSet::new();
        for (index, cache) in caches.iter().enumerate() {
            if cache.kind != CacheKind::Instruction {
                llc_cache.extend((&cache.cpus - &known).iter().map(|cpu| (cpu, index)));
                known = &known | &cache.cpus;
            }
        }
        self.join_siblings(&mut llc_cache, caches, cores, node_of);
        known = llc_cache.keys().copied().collect();
        let package_of = self.index(packages.iter().map(|package| &package.cpus));
        let uncached = &self.online - &known;
        if !uncached.is_empty() {
            let of_cpus =
                if known.is_empty() { String::new() } else { format!(" of CPUs {uncached}") };
            self.note(format!(
                "the machine does not describe the caches{of_cpus}: each package is assumed to have one last-level cache"
            ));
        }
        // CPUs that agree on cache (or its stand-in) and node are one domain.
        let mut domains: BTreeMap<Domain, CpuSet> = BTreeMap::new();
        for cpu in &(&known | &uncached) {
            let cache = llc_cache.get(&cpu).copied();
            let stand_in = if cache.is_none() { package_of[cpu] } else { None };
            domains.entry((cache, stand_in, node_of[cpu])).or_default().insert(cpu);
        }
        self.note_cut_caches(caches, &domains);
        let mut llcs: Vec<Llc> = domains
            .into_iter()
            .map(|((cache, _, node), cpus)| Llc {
                cpus,
                cache_index: cache,
                node_index: node,
                core_indices: Vec::new(),
            })
            .collect();
        self.place_offline_cpus(&mut llcs, node_of);
        llcs.sort_by_key(|llc| llc.cpus.first());
        llcs
    }

    /// The CPUs of a core share all its caches: if different last-level caches are claimed for them, or none for some of them, all get the
    /// cache of the highest level, and among several of that level the one with the most CPUs.
    fn join_siblings(
        &mut self,
        llc_cache: &mut BTreeMap<usize, usize>,
        caches: &[Cache],
        cores: &[Group],
        node_of: &[Option<usize>],
    ) {
        let mut joined = CpuSet::new();
        for core in cores {
            let core_caches: Vec<usize> =
                core.cpus.iter().filter_map(|cpu| llc_cache.get(&cpu).copied()).collect();
            let size =
                |index: &usize| (caches[*index].level, caches[*index].cpus.len(), Reverse(*index));
            let Some(best) = core_caches.iter().copied().max_by_key(size) else { continue };
            let stays = |cpu: &usize| llc_cache.get(cpu) == Some(&best);
            let there = core.cpus.iter().find(stays).and_then(|cpu| node_of[cpu]);
            let moved: CpuSet = core
                .cpus
                .iter()
                .filter(|cpu| !stays(cpu) && node_of[*cpu] == there && self.online.contains(*cpu))
                .collect();
            llc_cache.extend(moved.iter().map(|cpu| (cpu, best)));
            joined = &joined | &moved;
        }
        if !joined.is_empty() {
            self.note(format!(
                "CPUs {joined} share cores but not caches: they are assigned to the caches of their cores"
            ));
        }
    }

    /// Adds notes about the caches that are cut at nodes.
    fn note_cut_caches(&mut self, caches: &[Cache], domains: &BTreeMap<Domain, CpuSet>) {
        let parts = |index: usize| {
            let range = (Some(index), None, None)..=(Some(index), None, Some(usize::MAX));
            domains.range(range).count()
        };
        let cut = caches.iter().enumerate().map(|(index, cache)| (cache, parts(index)));
        let cut: Vec<(&Cache, usize)> = cut.filter(|(_, parts)| *parts > 1).collect();
        for (cache, parts) in cut.iter().take(MOST_NOTES) {
            let (level, cpus) = (cache.level, &cache.cpus);
            self.note(format!(
                "the L{level} cache of CPUs {cpus} spans {parts} nodes: it is split at the nodes"
            ));
        }
        if cut.len() > MOST_NOTES {
            self.note(format!("so are {} more caches", cut.len() - MOST_NOTES));
        }
    }

    /// Gives an LLC domain to the CPUs whose caches are not known because they are offline.
    fn place_offline_cpus(&mut self, llcs: &mut Vec<Llc>, node_of: &[Option<usize>]) {
        let placed = llcs.iter().fold(CpuSet::new(), |placed, llc| &placed | &llc.cpus);
        let unplaced = &self.possible - &placed;
        if unplaced.is_empty() {
            return;
        }
        self.note(format!(
            "CPUs {unplaced} are offline and their place is not known until they come online: each counts as \
             one core, in the last-level cache of its node if there is only one"
        ));
        let mut by_node: BTreeMap<Option<usize>, CpuSet> = BTreeMap::new();
        for cpu in &unplaced {
            by_node.entry(node_of[cpu]).or_default().insert(cpu);
        }
        for (node, cpus) in by_node {
            let mut there = llcs.iter_mut().filter(|llc| llc.node_index == node);
            match (there.next(), there.next()) {
                (Some(only), None) => only.cpus = &only.cpus | &cpus,
                _ => llcs.push(Llc {
                    cpus,
                    cache_index: None,
                    node_index: node,
                    core_indices: Vec::new(),
                }),
            }
        }
    }

    /// The cores, cut at last-level cache domains; a CPU whose core is unknown counts as a core of its own.
    pub(super) fn settle_cores(
        &mut self,
        cores: Vec<Group>,
        llc_of: &[Option<usize>],
    ) -> Vec<CpuSet> {
        let mut whole = Vec::new();
        let mut rest = self.possible.clone();
        let mut cut = CpuSet::new();
        for core in cores {
            let mut parts: BTreeMap<Option<usize>, CpuSet> = BTreeMap::new();
            for cpu in &core.cpus {
                parts.entry(llc_of[cpu]).or_default().insert(cpu);
            }
            if parts.len() > 1 {
                cut = &cut | &core.cpus;
            }
            rest = &rest - &core.cpus;
            whole.extend(parts.into_values());
        }
        if !cut.is_empty() {
            self.note(format!(
                "CPUs {cut} share cores but not caches or nodes: such cores are split"
            ));
        }
        let unknown = &rest & &self.online;
        if !unknown.is_empty() {
            self.note(format!(
                "the cores of CPUs {unknown} are not known: each CPU counts as one core"
            ));
        }
        whole.extend(rest.iter().map(CpuSet::single));
        whole.sort_by_key(CpuSet::first);
        whole
    }
}
