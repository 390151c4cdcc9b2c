//! Last-level cache domains and cores: the part of assembling that fills most gaps.

use super::Draft;
use crate::{Cache, CacheKind, CpuSet, Group, Llc};
use std::collections::BTreeMap;

/// What CPUs of one last-level cache domain agree on: the cache or, without one, the package that stands in
/// for it, and the node.
type Domain = (Option<usize>, Option<usize>, Option<usize>);

impl Draft {
    /// Highest level first; the same cache reported twice is one.
    pub(super) fn settle_caches(&mut self) {
        for cache in &mut self.caches {
            cache.cpus = &cache.cpus & &self.possible;
        }
        self.caches.retain(|cache| !cache.cpus.is_empty());
        let key = |cache: &Cache| (std::cmp::Reverse(cache.level), cache.kind);
        self.caches.sort_by(|a, b| key(a).cmp(&key(b)).then_with(|| a.cpus.cmp(&b.cpus)));
        self.caches.dedup_by(|b, a| key(a) == key(b) && a.cpus == b.cpus);
    }

    pub(super) fn settle_llcs(
        &mut self,
        packages: &[Group],
        node_of: &[Option<usize>],
    ) -> Vec<Llc> {
        let mut llc_cache: BTreeMap<usize, usize> = BTreeMap::new();
        for (index, cache) in self.caches.iter().enumerate() {
            if cache.kind != CacheKind::Instruction {
                for cpu in &cache.cpus {
                    llc_cache.entry(cpu).or_insert(index);
                }
            }
        }
        let known: CpuSet = llc_cache.keys().copied().collect();
        let package_of = self.index(packages.iter().map(|package| &package.cpus));
        let uncached = &self.online - &known;
        if !uncached.is_empty() {
            let whose =
                if known.is_empty() { String::new() } else { format!(" of CPUs {uncached}") };
            self.note(format!(
                "the machine does not describe the caches{whose}: each package is taken for one last-level cache"
            ));
        }
        // Whoever agrees on cache (or its stand-in) and node is one domain.
        let mut domains: BTreeMap<Domain, CpuSet> = BTreeMap::new();
        for cpu in &(&known | &uncached) {
            let cache = llc_cache.get(&cpu).copied();
            let stand_in = if cache.is_none() { package_of[cpu] } else { None };
            domains.entry((cache, stand_in, node_of[cpu])).or_default().insert(cpu);
        }
        for (index, cache) in self.caches.iter().enumerate() {
            let parts =
                domains.range((Some(index), None, None)..=(Some(index), None, Some(usize::MAX)));
            let parts = parts.count();
            if parts > 1 {
                let (level, cpus) = (cache.level, &cache.cpus);
                let text = format!(
                    "the L{level} cache of CPUs {cpus} spans {parts} nodes: it is cut at the nodes"
                );
                self.notes.push(text);
            }
        }
        let mut llcs: Vec<Llc> = domains
            .into_iter()
            .map(|((cache, _, node), cpus)| Llc { cpus, cache, node, cores: Vec::new() })
            .collect();
        self.place_strangers(&mut llcs, node_of);
        llcs.sort_by_key(|llc| llc.cpus.first());
        llcs
    }

    /// Gives an LLC domain to the CPUs whose caches are not known because they are offline.
    fn place_strangers(&mut self, llcs: &mut Vec<Llc>, node_of: &[Option<usize>]) {
        let placed = llcs.iter().fold(CpuSet::new(), |placed, llc| &placed | &llc.cpus);
        let strangers = &self.possible - &placed;
        if strangers.is_empty() {
            return;
        }
        self.note(format!(
            "CPUs {strangers} are offline and their place is not known until they come online: each counts as \
             one core, in the last-level cache of its node if there is only one"
        ));
        let mut by_node: BTreeMap<Option<usize>, CpuSet> = BTreeMap::new();
        for cpu in &strangers {
            by_node.entry(node_of[cpu]).or_default().insert(cpu);
        }
        for (node, cpus) in by_node {
            let mut there = llcs.iter_mut().filter(|llc| llc.node == node);
            match (there.next(), there.next()) {
                (Some(only), None) => only.cpus = &only.cpus | &cpus,
                _ => llcs.push(Llc { cpus, cache: None, node, cores: Vec::new() }),
            }
        }
    }

    pub(super) fn settle_cores(&mut self, llc_of: &[Option<usize>]) -> Vec<CpuSet> {
        let cores = self.settle_groups("cores", |draft| {
            let cores = std::mem::take(&mut draft.cores);
            cores.into_iter().map(|cpus| Group { id: None, cpus }).collect()
        });
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
                "CPUs {cut} are said to share cores but not caches or nodes: such cores are cut"
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
