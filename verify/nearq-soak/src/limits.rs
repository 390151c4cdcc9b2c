//! How many items a queue may have active: `max_active` by node or CPU, computed a second time from the documentation.

use std::collections::{BTreeMap, BTreeSet};

use nearq::{Attributes, CpuSet, inspect::Domain};

use super::placement::{Defaults, Ground};
use super::plan::Kind;

/// The runtime's value for a `max_active` of 0.
const DEFAULT_MAX_ACTIVE: usize = 1024;
/// The runtime's value for a `min_active` that is not set, if `max_active` is not less.
const DEFAULT_MIN_ACTIVE: usize = 8;

/// The limits that were set for a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) max_active: usize,
    pub(crate) min_active: usize,
}

impl Bounds {
    /// The bounds with which a queue begins.
    pub(crate) fn new(max_active: usize) -> Self {
        let max_active = items(max_active);
        Bounds { max_active, min_active: DEFAULT_MIN_ACTIVE.min(max_active) }
    }

    /// After `max_active` was set.
    pub(crate) fn with_max_active(self, max_active: usize) -> Self {
        let max_active = items(max_active);
        Bounds { max_active, min_active: self.min_active.min(max_active) }
    }

    /// After `min_active` was set; `None` if that must be refused.
    pub(crate) fn with_min_active(self, min_active: usize) -> Option<Self> {
        (min_active <= self.max_active).then_some(Bounds { min_active, ..self })
    }
}

/// How many items `max_active` stands for.
fn items(max_active: usize) -> usize {
    if max_active == 0 { DEFAULT_MAX_ACTIVE } else { max_active }
}

impl Ground {
    /// The most that may be active over all domains of an unbound queue, whichever of the attributes, defaults and bounds were in
    /// effect when an item was admitted.
    pub(crate) fn most_active(
        &self,
        attributes: &[Attributes],
        defaults: &[Defaults],
        bounds: &[Bounds],
    ) -> usize {
        let highest = bounds.iter().map(|bounds| bounds.max_active).max().unwrap_or(usize::MAX);
        let nodes = self.topology.nodes().len();
        if nodes < 2 {
            return highest;
        }
        if self.allowed.is_none() {
            // Whatever the machine was, no domain had more.
            return highest.saturating_mul(nodes + 1);
        }
        let mut used = BTreeSet::new();
        let mut most: BTreeMap<Domain, usize> = BTreeMap::new();
        for attributes in attributes {
            for defaults in defaults {
                used.extend(self.used(attributes, *defaults));
                for bounds in bounds {
                    for (domain, limit) in self.limits(attributes, *bounds) {
                        let most = most.entry(domain).or_default();
                        *most = limit.max(*most);
                    }
                }
            }
        }
        used.iter().map(|domain| most[domain]).sum()
    }

    /// The CPUs of a queue, if what the process may use is known.
    fn effective(&self, attributes: &Attributes) -> CpuSet {
        let allowed = self.allowed.clone().unwrap_or_default();
        match &attributes.cpumask {
            Some(mask) if mask.intersects(&allowed) => mask.intersection(&allowed),
            _ => allowed,
        }
    }

    /// The limit of every domain that a queue of a kind could have.
    pub(crate) fn limits_of(
        &self,
        kind: Kind,
        attributes: &Attributes,
        bounds: Bounds,
    ) -> Vec<(Domain, usize)> {
        match kind {
            Kind::Unbound => self.limits(attributes, bounds),
            Kind::PerCpu => {
                let cpus = self.topology.possible().iter();
                cpus.map(|cpu| (Domain::Cpu(cpu), bounds.max_active)).collect()
            }
            Kind::Ordered => vec![(Domain::Whole, 1)],
        }
    }

    /// The limit of every domain that an unbound queue could have.
    fn limits(&self, attributes: &Attributes, bounds: Bounds) -> Vec<(Domain, usize)> {
        let effective = self.effective(attributes);
        let Bounds { max_active, min_active } = bounds;
        let nodes = self.topology.nodes().iter().map(|node| {
            let here = node.cpus.intersection(&effective).len();
            let part = (max_active * here).div_ceil(effective.len());
            (Domain::Node(node.id), part.max(min_active).min(max_active).max(1))
        });
        nodes.chain([(Domain::Across, max_active)]).collect()
    }

    /// The domains in which the items of the queue are counted.
    fn used(&self, attributes: &Attributes, defaults: Defaults) -> BTreeSet<Domain> {
        let effective = self.effective(attributes);
        let affine = attributes.affinity_enabled && defaults.affinity;
        let scope = attributes.affinity_scope.unwrap_or(defaults.scope);
        let scope = if affine { scope } else { nearq::AffinityScope::System };
        let pods = self.topology.pods(scope, self.shard_size).pods;
        let inside = pods.iter().map(|pod| pod.cpus.intersection(&effective));
        let inside = inside.map(|pod| if pod.is_empty() { effective.clone() } else { pod });
        let domain = |pod: CpuSet| {
            let node = self.topology.nodes().iter().find(|node| pod.is_subset(&node.cpus));
            node.map_or(Domain::Across, |node| Domain::Node(node.id))
        };
        inside.map(domain).collect()
    }
}

#[cfg(test)]
mod tests {
    use nearq::AffinityScope;
    use nearq_topology::Topology;

    use super::*;
    use crate::plan::attributes_with;

    const DEFAULTS: Defaults = Defaults { scope: AffinityScope::Cache, affinity: true };

    fn ground(machine: &str, allowed: Option<&str>) -> Ground {
        let topology = Topology::from_synthetic(machine).unwrap();
        Ground { topology, shard_size: 8, allowed: allowed.map(|text| text.parse().unwrap()) }
    }

    fn most(ground: &Ground, attributes: &[Attributes], bounds: &[Bounds]) -> usize {
        ground.most_active(attributes, &[DEFAULTS], bounds)
    }

    #[test]
    fn one_node_has_it_all() {
        let ground = ground("l3:2 core:2", Some("0-3"));
        let bounds = Bounds::new(5);
        assert_eq!(most(&ground, &[Attributes::default()], &[bounds]), 5);
        let either = [bounds, bounds.with_max_active(2)];
        assert_eq!(most(&ground, &[Attributes::default()], &either), 5);
    }

    #[test]
    fn nodes_have_their_shares_and_what_is_across_has_its_own() {
        let ground = ground("numa:2 l3:2 core:2", Some("0-6"));
        let each = Bounds::new(100).with_min_active(0).unwrap();
        assert_eq!(most(&ground, &[Attributes::default()], &[each]), 58 + 43);
        let whole = attributes_with(|new| new.affinity_scope = Some(AffinityScope::System));
        assert_eq!(most(&ground, std::slice::from_ref(&whole), &[each]), 100);
        assert_eq!(most(&ground, &[Attributes::default(), whole], &[each]), 58 + 43 + 100);
        assert_eq!(most(&ground, &[Attributes::default()], &[Bounds::new(3)]), 6);
        let one = attributes_with(|new| new.cpumask = "4-6".parse().ok());
        // The caches of the other node stand for all of the mask, which is on this one.
        assert_eq!(most(&ground, &[one], &[Bounds::new(3)]), 3);
    }

    #[test]
    fn where_the_machine_changes_each_domain_is_bounded() {
        let ground = ground("numa:2 l3:2 core:2", None);
        assert_eq!(most(&ground, &[Attributes::default()], &[Bounds::new(3)]), 9);
    }
}
