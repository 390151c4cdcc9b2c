//! The attributes of a workqueue, and which pools follow from them.

use core::time::Duration;

use nearq_topology::{AffinityScope, CpuSet, Limits, Topology};

use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::homes::MemoryPolicy;
use crate::layout::domain::{
    Bounds, DEFAULT_MAX_ACTIVE, DEFAULT_MIN_ACTIVE, Domain, HIGHEST_MAX_ACTIVE,
};
use crate::layout::priority::{
    LEAST_FAVOURED, LONGEST_SLICE, MOST_FAVOURED, Priority, SHORTEST_SLICE,
};

/// The attributes of a workqueue, all of which can be changed while it runs: see [`QueueView::change`](crate::inspect::QueueView::change).
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{AffinityScope, Workqueue};
///
/// let queue = Workqueue::builder("tuned").build()?;
/// queue.change(|attributes| {
///     attributes.affinity_scope = Some(AffinityScope::Numa);
///     attributes.nice = 5;
///     attributes.max_active = 16;
/// })?;
/// assert_eq!(queue.attributes().max_active, 16);
/// # Ok::<(), nearq::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// How CPUs are grouped into pods; `None` follows the runtime's default.
    pub affinity_scope: Option<AffinityScope>,
    /// Whether workers stay in their pod, even if CPUs elsewhere are idle.
    pub affinity_strict: bool,
    /// Whether an item runs on the very CPU that queued it, if a worker can run there.
    pub localize: bool,
    /// Whether idle workers of other pods take items of this queue. No effect if `affinity_strict` is set.
    pub helping: bool,
    /// Whether the scope is used. If not, one pod has all CPUs of the queue, whatever the scope is.
    pub affinity_enabled: bool,
    /// The CPUs that the queue's items may run on; `None` is all that the runtime's queues [may use](crate::Runtime::allowed_cpus).
    pub cpumask: Option<CpuSet>,
    /// The nice value of the workers, -20 (most favoured) to 19; 0 is the nice value of the thread that built the runtime. No effect with
    /// `sched_idle`.
    pub nice: i32,
    /// Whether the workers are of the class `SCHED_IDLE`: they run when nothing else wants the CPU. The nice value and the time slice have
    /// no effect meanwhile; they have again when this is switched off.
    pub sched_idle: bool,
    /// How long a worker runs without a break while other threads want its CPU, 0.1 to 100 ms; `None` is the system's own. With a shorter
    /// slice a worker runs sooner after a sleep, and is interrupted more often. Linux supports slices from 6.12 on; on older kernels no
    /// effect.
    pub time_slice: Option<Duration>,
    /// The most items of the queue that may be active at once, that is, wait for a worker or run: 1 to 2048. Setting 0 sets 1024; setting
    /// more than 2048 sets 2048, with one warning. A lower limit lowers `min_active` as well, unless that is changed too; a higher one does
    /// not restore it. Always 1 for an ordered queue. See [`WorkqueueBuilder::max_active`](crate::WorkqueueBuilder::max_active).
    pub max_active: usize,
    /// How many items may be active on each node even if the node's share of `max_active` is smaller: 0 to `max_active`. Only for queues
    /// that are neither per-CPU nor ordered.
    pub min_active: usize,
    /// Which node the memory that items touch first comes from.
    pub memory: MemoryPolicy,
}

impl Default for Attributes {
    /// The runtime's default scope, not strict, not localized, helping, affinity on, every CPU, nice 0, not `SCHED_IDLE`, the system's
    /// slice, at most 1024 active items and at least 8 on each node, memory from the homes.
    fn default() -> Self {
        Attributes {
            affinity_scope: None,
            affinity_strict: false,
            localize: false,
            helping: true,
            affinity_enabled: true,
            cpumask: None,
            nice: 0,
            sched_idle: false,
            time_slice: None,
            max_active: DEFAULT_MAX_ACTIVE,
            min_active: DEFAULT_MIN_ACTIVE,
            memory: MemoryPolicy::default(),
        }
    }
}

impl Attributes {
    /// These attributes, with everything that differs between `before` and `wanted` taken from `wanted`.
    pub(crate) fn with_changes(&self, before: &Self, wanted: &Self) -> Self {
        macro_rules! pick {
            ($($attribute:ident)*) => {
                Attributes {
                    $($attribute: if wanted.$attribute == before.$attribute {
                        self.$attribute.clone()
                    } else {
                        wanted.$attribute.clone()
                    },)*
                }
            };
        }
        pick!(affinity_scope affinity_strict localize helping affinity_enabled cpumask nice sched_idle time_slice max_active min_active memory)
    }

    /// Returns the default attributes.
    pub fn new() -> Self {
        Self::default()
    }

    /// With these settings of the limit.
    pub(crate) fn bounded(self, bounds: Bounds) -> Self {
        let Bounds { max_active, min_active } = bounds;
        Attributes { max_active, min_active, ..self }
    }

    /// The settings of the limit.
    pub(crate) fn bounds(&self) -> Bounds {
        Bounds { max_active: self.max_active, min_active: self.min_active }
    }

    /// With a limit that a queue of that kind can have; `now` is its current limit. `asked` says whether `min_active` was requested.
    pub(crate) fn with_limit(
        mut self,
        kind: QueueKind,
        now: Bounds,
        asked: bool,
    ) -> Result<Self, Error> {
        if self.max_active != now.max_active {
            kind.check_max_active()?;
        }
        match self.max_active {
            0 => self.max_active = DEFAULT_MAX_ACTIVE,
            items => self.max_active = items.min(HIGHEST_MAX_ACTIVE),
        }
        if !asked {
            let bounds = now.with_max_active(self.max_active);
            return Ok(self.bounded(bounds));
        }
        kind.check_min_active()?;
        if self.min_active > self.max_active {
            let (asked, max_active) = (self.min_active, self.max_active);
            return Err(Error::MinActive { asked, max_active });
        }
        Ok(self)
    }
}

/// What two pools must have in common to be the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PoolKey {
    /// Whether it is the pool of one CPU, for per-CPU queues: its workers come back to that CPU whenever they can.
    pub(crate) bound: bool,
    pub(crate) priority: Priority,
    pub(crate) strict: bool,
    pub(crate) helping: bool,
    /// The CPUs to which its workers belong.
    pub(crate) pod: CpuSet,
    /// The CPUs to which they may go; for strict pools this is the pod, so that queues with different masks share the pool.
    pub(crate) allowed: CpuSet,
}

/// Which CPUs and nodes a machine has, for an issuer that names one of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Places {
    possible: CpuSet,
    /// The node's number, by CPU number.
    node_of: Vec<Option<usize>>,
    /// Each node that has CPUs, and the CPU that stands for it: the first that is online, otherwise the first.
    nodes: Vec<(usize, usize)>,
}

impl Places {
    pub(crate) fn of(topology: &Topology) -> Self {
        let possible = topology.possible().clone();
        let number = |cpu| topology.node_index(cpu).map(|index| topology.nodes()[index].id);
        let node_of = (0..possible.last().map_or(0, |last| last + 1)).map(number).collect();
        let nodes = topology.nodes().iter().filter_map(|node| {
            let online = node.cpus.intersection(topology.online());
            online.first().or(node.cpus.first()).map(|cpu| (node.id, cpu))
        });
        Places { nodes: nodes.collect(), node_of, possible }
    }

    /// The domain of a pod that is one CPU.
    fn domain_of(&self, cpu: usize) -> Domain {
        self.node_of.get(cpu).copied().flatten().map_or(Domain::Across, Domain::Node)
    }

    /// Where the items of a pod are counted.
    fn domain(&self, pod: &CpuSet) -> Domain {
        let first = pod.first().map_or(Domain::Across, |cpu| self.domain_of(cpu));
        if pod.iter().all(|cpu| self.domain_of(cpu) == first) { first } else { Domain::Across }
    }

    /// The CPU itself, if the machine has it.
    pub(crate) fn cpu(&self, cpu: usize) -> Result<usize, Error> {
        if self.possible.contains(cpu) {
            Ok(cpu)
        } else {
            Err(Error::NoSuchCpu { cpu, possible: self.possible.clone() })
        }
    }

    /// The CPU that stands for a node: `here` if it is on the node.
    pub(crate) fn cpu_of_node(&self, node: usize, here: usize) -> Result<usize, Error> {
        if self.node_of.get(here) == Some(&Some(node)) {
            return Ok(here);
        }
        let known = self.nodes.iter().find(|(id, _)| *id == node);
        known.map(|(_, cpu)| *cpu).ok_or_else(|| Error::NoSuchNode {
            node,
            nodes: self.nodes.iter().map(|(id, _)| *id).collect(),
        })
    }
}

/// The process-wide side of the decision: which of the attributes are in effect.
#[derive(Clone, Debug)]
pub(crate) struct MachineConfig {
    pub(crate) topology: Topology,
    pub(crate) limits: Limits,
    pub(crate) default_affinity_scope: AffinityScope,
    pub(crate) shard_size: usize,
    /// If false, affinity is off for every queue.
    pub(crate) affinity: bool,
    /// The CPUs that queues may use; if not set, all that the process may use, except isolated ones.
    pub(crate) mask: Option<CpuSet>,
}

impl AsRef<Topology> for MachineConfig {
    fn as_ref(&self) -> &Topology {
        &self.topology
    }
}

impl AsRef<Limits> for MachineConfig {
    fn as_ref(&self) -> &Limits {
        &self.limits
    }
}

/// The pools of a queue, and which CPU's items go to which.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Layout {
    pub(crate) scope: AffinityScope,
    pub(crate) pools: Vec<PoolKey>,
    /// Where the items of each of the pools are counted.
    pub(crate) domains: Vec<Domain>,
    /// Index into `pools` by CPU number.
    pub(crate) by_cpu: Vec<u32>,
    /// All CPUs that the queue may use.
    pub(crate) effective: CpuSet,
    /// The machine's CPUs and nodes by number.
    pub(crate) places: Places,
}

/// A mask within what is allowed; all that is allowed if nothing would be left.
fn within(mask: Option<&CpuSet>, allowed: CpuSet) -> CpuSet {
    match mask {
        Some(mask) if mask.intersects(&allowed) => mask.intersection(&allowed),
        _ => allowed,
    }
}

impl MachineConfig {
    /// The CPUs that queues without a mask use: those of the runtime's mask, or else those that are not isolated.
    pub(crate) fn allowed(&self) -> CpuSet {
        if self.mask.is_none() { self.limits.housekeeping() } else { self.nameable() }
    }

    /// The CPUs that a queue's mask may name: those that the process may use, within the runtime's mask unless nothing would be left.
    /// Isolated CPUs are among them: a mask that names a CPU asks for it.
    pub(crate) fn nameable(&self) -> CpuSet {
        within(self.mask.as_ref(), self.limits.effective())
    }

    /// Whether a queue's mask can be applied here.
    pub(crate) fn check_mask(&self, mask: &CpuSet) -> Result<(), Error> {
        self.check_mask_within(mask, self.nameable())
    }

    /// Whether the runtime's mask can be that.
    pub(crate) fn check_own_mask(&self, mask: &CpuSet) -> Result<(), Error> {
        self.check_mask_within(mask, self.limits.effective())
    }

    fn check_mask_within(&self, mask: &CpuSet, allowed: CpuSet) -> Result<(), Error> {
        if mask.is_empty() {
            return Err(Error::EmptyMask);
        }
        let possible = self.topology.possible();
        if let Some(cpu) = mask.difference(possible).first() {
            return Err(Error::NoSuchCpu { cpu, possible: possible.clone() });
        }
        if !mask.intersects(&allowed) {
            return Err(Error::MaskNotAllowed { mask: mask.clone(), allowed });
        }
        Ok(())
    }

    /// How many workers of one nice level may run at once.
    pub(crate) fn parallelism(&self) -> u32 {
        u32::try_from(self.limits.parallelism()).unwrap_or(u32::MAX).max(1)
    }

    /// The queue's mask within what it may name; all that queues without a mask use if there is none, or nothing would be left.
    pub(crate) fn effective(&self, attributes: &Attributes) -> CpuSet {
        let named = attributes.cpumask.as_ref().map(|mask| mask.intersection(&self.nameable()));
        named.filter(|named| !named.is_empty()).unwrap_or_else(|| self.allowed())
    }

    /// The pools that the attributes select on this machine.
    ///
    /// The fallbacks are the kernel's: if the queue may use no CPU of a pod, all its CPUs are used, and if the process may use no CPU of a
    /// mask, all that the process may use are used.
    pub(crate) fn layout(&self, kind: QueueKind, attributes: &Attributes) -> Layout {
        match kind {
            QueueKind::Unbound => {
                self.unbound(attributes, self.affinity && attributes.affinity_enabled)
            }
            QueueKind::Ordered => {
                // One pool: an item that another pool had taken could be late.
                let layout = self.unbound(attributes, false);
                Layout { domains: vec![Domain::Whole; layout.pools.len()], ..layout }
            }
            QueueKind::PerCpu => self.per_cpu(attributes),
        }
    }

    /// A pool for each CPU, including those that are offline or that the process may not use. Items for such a CPU run elsewhere, and on
    /// their CPU again as soon as it can be used.
    fn per_cpu(&self, attributes: &Attributes) -> Layout {
        let possible = self.topology.possible();
        let mut by_cpu = vec![0; possible.last().map_or(1, |last| last + 1)];
        let mut pools = Vec::new();
        for cpu in possible {
            by_cpu[cpu] = pools.len() as u32;
            let pod = CpuSet::single(cpu);
            pools.push(PoolKey {
                bound: true,
                priority: Priority::of(attributes),
                strict: true,
                helping: false,
                allowed: pod.clone(),
                pod,
            });
        }
        Layout {
            scope: AffinityScope::Cpu,
            domains: possible.iter().map(Domain::Cpu).collect(),
            pools,
            by_cpu,
            effective: self.limits.effective(),
            places: Places::of(&self.topology),
        }
    }

    /// A pool for each pod; one for all CPUs if it is not `affine`.
    fn unbound(&self, attributes: &Attributes, affine: bool) -> Layout {
        let scope = attributes.affinity_scope.unwrap_or(self.default_affinity_scope);
        let effective = self.effective(attributes);
        let strict = affine && attributes.affinity_strict;
        let helping = attributes.helping && !strict;
        let cpus = self.topology.possible().last().map_or(1, |last| last + 1);
        let pods =
            self.topology.pods(if affine { scope } else { AffinityScope::System }, self.shard_size);
        let mut pools: Vec<PoolKey> = Vec::new();
        let mut by_cpu = vec![0; cpus];
        for (cpu, index) in by_cpu.iter_mut().enumerate() {
            let inside = pods
                .pod_index(cpu)
                .map(|pod| pods.pods[pod].cpus.intersection(&effective))
                .filter(|inside| !inside.is_empty());
            let pod = inside.unwrap_or_else(|| effective.clone());
            let known = pools.iter().position(|pool| pool.pod == pod);
            *index = known.unwrap_or_else(|| {
                let allowed = if strict { pod.clone() } else { effective.clone() };
                let priority = Priority::of(attributes);
                pools.push(PoolKey { bound: false, priority, strict, helping, pod, allowed });
                pools.len() - 1
            }) as u32;
        }
        let places = Places::of(&self.topology);
        let domains = pools.iter().map(|pool| places.domain(&pool.pod)).collect();
        Layout { scope, pools, domains, by_cpu, effective, places }
    }
}

impl Layout {
    /// The queue's CPUs that belong to a domain.
    pub(crate) fn cpus_of(&self, domain: Domain) -> CpuSet {
        match domain {
            Domain::Across | Domain::Whole => self.effective.clone(),
            Domain::Cpu(cpu) => CpuSet::single(cpu),
            Domain::Node(_) => {
                let inside = |cpu: &usize| self.places.domain_of(*cpu) == domain;
                self.effective.iter().filter(inside).collect()
            }
        }
    }

    /// How many items a domain may have active.
    pub(crate) fn limit(&self, domain: Domain, bounds: Bounds) -> usize {
        // The other domains have the whole number, however many CPUs they have.
        let here = if matches!(domain, Domain::Node(_)) { self.cpus_of(domain).len() } else { 0 };
        domain.share(here, self.effective.len(), bounds)
    }
}

impl Priority {
    /// The priority of these attributes. Those of the idle class have neither nice value nor slice, so that all of them share pools.
    pub(crate) fn of(attributes: &Attributes) -> Self {
        let Attributes { nice, sched_idle: idle, time_slice: slice, .. } = *attributes;
        if idle {
            Priority { nice: LEAST_FAVOURED, idle, slice: None }
        } else {
            Priority { nice, idle, slice }
        }
    }

    /// Whether such a priority exists.
    pub(crate) fn check(attributes: &Attributes) -> Result<(), Error> {
        if !(MOST_FAVOURED..=LEAST_FAVOURED).contains(&attributes.nice) {
            return Err(Error::NiceOutOfRange(attributes.nice));
        }
        match attributes.time_slice {
            Some(slice) if !(SHORTEST_SLICE..=LONGEST_SLICE).contains(&slice) => {
                Err(Error::TimeSliceOutOfRange(slice))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine_config(machine: &str, allowed: &str) -> MachineConfig {
        let topology = Topology::from_synthetic(machine).unwrap();
        let allowed: CpuSet = allowed.parse().unwrap();
        let mut limits = Limits::unlimited(topology.online().clone());
        limits.affinity = allowed;
        MachineConfig {
            topology,
            limits,
            default_affinity_scope: AffinityScope::Cache,
            shard_size: 8,
            affinity: true,
            mask: None,
        }
    }

    fn pods(layout: &Layout) -> Vec<String> {
        layout.pools.iter().map(|pool| pool.pod.to_list()).collect()
    }

    #[test]
    fn a_pool_for_each_pod() {
        let here = machine_config("pack:2 l3:2 core:2 pu:1", "0-7");
        let layout = here.layout(QueueKind::Unbound, &Attributes::default());
        assert_eq!(pods(&layout), ["0-1", "2-3", "4-5", "6-7"]);
        assert_eq!(layout.by_cpu, [0, 0, 1, 1, 2, 2, 3, 3]);
        assert!(layout.pools.iter().all(|pool| pool.allowed.to_list() == "0-7"));
    }

    #[test]
    fn a_pod_without_allowed_cpus_stands_for_all() {
        let here = machine_config("pack:2 l3:2 core:2 pu:1", "0-4");
        let layout = here.layout(QueueKind::Unbound, &Attributes::default());
        assert_eq!(pods(&layout), ["0-1", "2-3", "4", "0-4"]);
        assert_eq!(layout.by_cpu, [0, 0, 1, 1, 2, 2, 3, 3]);
    }

    #[test]
    fn a_mask_outside_what_is_allowed_stands_for_all_that_is() {
        let here = machine_config("pack:2 l3:2 core:2 pu:1", "0-3");
        let mask = Attributes { cpumask: Some("6-7".parse().unwrap()), ..Attributes::default() };
        assert_eq!(here.layout(QueueKind::Unbound, &mask).effective.to_list(), "0-3");
        let part = Attributes { cpumask: Some("3-7".parse().unwrap()), ..Attributes::default() };
        assert_eq!(here.layout(QueueKind::Unbound, &part).effective.to_list(), "3");
    }

    #[test]
    fn isolated_cpus_are_used_only_if_a_mask_names_them() {
        let mut here = machine_config("pack:2 l3:2 core:2 pu:1", "0-7");
        here.limits.isolated = "3-7".parse().unwrap();
        let unbound = |here: &MachineConfig, mask: Option<&str>| {
            let cpumask = mask.map(|list| list.parse().unwrap());
            here.layout(QueueKind::Unbound, &Attributes { cpumask, ..Attributes::default() })
        };
        let layout = unbound(&here, None);
        // Items of an issuer on an isolated CPU go to all that are left.
        assert_eq!(pods(&layout), ["0-1", "2", "0-2"]);
        assert_eq!(layout.by_cpu, [0, 0, 1, 1, 2, 2, 2, 2]);
        assert!(layout.pools.iter().all(|pool| pool.allowed.to_list() == "0-2"));
        // A queue's mask names them.
        assert_eq!(unbound(&here, Some("2-4")).effective.to_list(), "2-4");
        assert_eq!(here.layout(QueueKind::PerCpu, &Attributes::default()).pools.len(), 8);
        // The runtime's mask does; and then a queue's mask within it.
        here.mask = Some("2-5".parse().unwrap());
        assert_eq!(unbound(&here, None).effective.to_list(), "2-5");
        assert_eq!(unbound(&here, Some("5-7")).effective.to_list(), "5");
        assert_eq!(unbound(&here, Some("0")).effective.to_list(), "2-5");
        // A process that has nothing else uses them.
        here.mask = None;
        here.limits.affinity = "5-6".parse().unwrap();
        assert_eq!(unbound(&here, None).effective.to_list(), "5-6");
    }

    #[test]
    fn a_node_stands_for_the_callers_cpu_or_its_first() {
        let here = machine_config("pack:2 numa:1 core:2 pu:1", "0-3");
        let places = here.layout(QueueKind::Unbound, &Attributes::default()).places;
        assert_eq!(places.cpu_of_node(1, 3), Ok(3));
        assert_eq!(places.cpu_of_node(1, 0), Ok(2));
        assert_eq!(places.cpu_of_node(9, 0), Err(Error::NoSuchNode { node: 9, nodes: vec![0, 1] }));
        assert_eq!(places.cpu(3), Ok(3));
        assert!(places.cpu(4).unwrap_err().to_string().contains("there is no CPU 4"));
    }

    #[test]
    fn strict_pools_forget_the_mask_and_do_not_help() {
        let here = machine_config("pack:2 l3:2 core:2 pu:1", "0-7");
        let strict = Attributes { affinity_strict: true, ..Attributes::default() };
        for pool in here.layout(QueueKind::Unbound, &strict).pools {
            assert_eq!(pool.allowed, pool.pod);
            assert!(!pool.helping);
        }
    }

    #[test]
    fn pods_inside_a_node_are_counted_there_and_others_apart() {
        let here = machine_config("numa:2 l3:2 core:2 pu:1", "0-6");
        let layout = here.layout(QueueKind::Unbound, &Attributes::default());
        let node = Domain::Node;
        assert_eq!(pods(&layout), ["0-1", "2-3", "4-5", "6"]);
        assert_eq!(layout.domains, [node(0), node(0), node(1), node(1)]);
        let bounds = Bounds::new(100, None);
        assert_eq!([0, 1].map(|number| layout.limit(node(number), bounds)), [58, 43]);
        assert_eq!(layout.cpus_of(node(1)).to_list(), "4-6");
        let whole =
            Attributes { affinity_scope: Some(AffinityScope::System), ..Attributes::default() };
        assert_eq!(here.layout(QueueKind::Unbound, &whole).domains, [Domain::Across]);
        // If no CPU of a pod may be used, the pod stands for all CPUs, on both nodes.
        let part = Attributes { cpumask: Some("1-5".parse().unwrap()), ..Attributes::default() };
        let layout = here.layout(QueueKind::Unbound, &part);
        assert_eq!(pods(&layout), ["1", "2-3", "4-5", "1-5"]);
        assert_eq!(layout.domains, [node(0), node(0), node(1), Domain::Across]);
        let left = Attributes { cpumask: Some("0-3".parse().unwrap()), ..whole };
        let layout = here.layout(QueueKind::Unbound, &left);
        assert_eq!(layout.domains, [node(0)]);
        assert_eq!([0, 1].map(|number| layout.limit(node(number), bounds)), [100, 8]);
        let one =
            machine_config("l3:2 core:2", "0-3").layout(QueueKind::Unbound, &Attributes::default());
        assert_eq!(one.domains, [node(0); 2]);
        assert_eq!(one.limit(node(0), bounds), 100);
    }

    #[test]
    fn a_per_cpu_queue_has_a_pool_for_each_cpu_whatever_may_be_used() {
        let mut here = machine_config("numa:2 core:2 pu:1", "1-2");
        here.affinity = false;
        let layout =
            here.layout(QueueKind::PerCpu, &Attributes { nice: 5, ..Attributes::default() });
        assert_eq!(pods(&layout), ["0", "1", "2", "3"]);
        assert_eq!(layout.by_cpu, [0, 1, 2, 3]);
        assert_eq!(layout.domains, [0, 1, 2, 3].map(Domain::Cpu));
        assert!(layout.pools.iter().all(|pool| pool.bound && pool.strict && !pool.helping));
        assert!(
            layout.pools.iter().all(|pool| pool.priority.nice == 5 && pool.allowed == pool.pod)
        );
        assert_eq!(layout.limit(Domain::Cpu(3), Bounds::new(100, None)), 100, "for each CPU");
    }

    #[test]
    fn an_ordered_queue_has_one_pool_of_all_its_cpus_whatever_the_scope() {
        let here = machine_config("numa:2 core:2 pu:1", "0-3");
        let cpumask = Some("1-2".parse().unwrap());
        let strict = Attributes {
            affinity_scope: Some(AffinityScope::Cpu),
            affinity_strict: true,
            cpumask,
            ..Attributes::default()
        };
        let layout = here.layout(QueueKind::Ordered, &strict);
        assert_eq!(pods(&layout), ["1-2"]);
        assert_eq!(layout.by_cpu, [0; 4]);
        assert_eq!(layout.domains, [Domain::Whole]);
        assert_eq!(layout.limit(Domain::Whole, QueueKind::Ordered.default_bounds()), 1);
    }

    #[test]
    fn affinity_off_is_one_pod_whatever_the_scope() {
        let mut here = machine_config("pack:2 l3:2 core:2 pu:1", "0-7");
        let off =
            Attributes { affinity_enabled: false, affinity_strict: true, ..Attributes::default() };
        assert_eq!(pods(&here.layout(QueueKind::Unbound, &off)), ["0-7"]);
        here.affinity = false;
        assert_eq!(pods(&here.layout(QueueKind::Unbound, &Attributes::default())), ["0-7"]);
    }
}
