//! How a queue's attributes and its limit are changed, and the CPU maps, pwqs and domains with them.
//!
//! # Changing attributes while items are queued and running
//! The queue's `cpu_map` maps a CPU to a pwq. A change builds the new pwqs first (a failure leaves everything as it was), then swaps the
//! CPU map. Issuers read the CPU map once per item: each item uses the old one or the new one. What was queued on old pwqs runs there:
//! pools outlive everything, so the old ones drain by themselves.
//!
//! CPU maps and pwqs are kept until the queue is dropped, because an issuer may be in the middle of reading one. A CPU map is used again
//! when its layout comes back, unless the queue has had very many since (`retired`). A queue that is flushed while it is busy has several
//! sets of pwqs for one layout (`flush`), and a CPU map for each.
//!
//! A queue may have a pool, a pwq and a domain for each of hundreds of CPUs, a flush makes a whole set of pwqs, and thousands of changes
//! leave thousands of them. So nothing here iterates over all of one kind for each of another, or over all of them for each change. (A
//! queue's domains and sets are as few as its machine and `flush` allow.)

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use nearq_lock::MutexGuard;
use nearq_platform::{Atomic, Ordering, Platform};

use super::{Config, CpuMap, Queue};
use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::base::pad::Padded;
use crate::layout::attributes::{Attributes, Layout};
use crate::layout::domain::{Domain, HIGHEST_MAX_ACTIVE};
use crate::layout::priority::Priority;
use crate::limit::node_active::NodeActive;
use crate::limit::pool_workqueue::{HOMED, INTENSIVE, LOCALIZE, OBSERVED, PoolWorkqueue};
use crate::pool::Pool;

/// The pwqs by their sets and pools, the domains, and the CPU maps: for quick lookup, however many there are.
pub(super) struct Known<P: Platform> {
    pwqs: BTreeMap<(usize, *const Pool<P>), *const PoolWorkqueue<P>>,
    domains: BTreeMap<Domain, *const NodeActive<P>>,
    /// The CPU maps of each layout, at most one for each set. The hasher has no random keys: the order in which layouts are freed decides
    /// where the next ones lie, and simulated runs must be the same each time.
    cpu_maps: HashMap<Arc<Layout>, Vec<*const CpuMap<P>>, BuildHasherDefault<DefaultHasher>>,
}

impl<P: Platform> Known<P> {
    pub(super) fn new() -> Self {
        Known { pwqs: BTreeMap::new(), domains: BTreeMap::new(), cpu_maps: HashMap::default() }
    }

    /// The CPU maps of a layout.
    fn cpu_maps(&self, layout: &Layout) -> impl Iterator<Item = &CpuMap<P>> {
        let cpu_maps = self.cpu_maps.get(layout).into_iter().flatten();
        // SAFETY: CPU maps live as long as the queue, which has this.
        cpu_maps.map(|cpu_map| unsafe { &**cpu_map })
    }

    /// Forgets all pwqs and CPU maps: if a layout comes back, new ones are made.
    pub(super) fn forget(&mut self) {
        self.pwqs.clear();
        self.cpu_maps.clear();
    }
}

impl<P: Platform> CpuMap<P> {
    fn pwqs(&self) -> impl Iterator<Item = &PoolWorkqueue<P>> {
        // SAFETY: pwqs live as long as the queue, as the CPU map does.
        self.pwqs.iter().map(|pwq| unsafe { &**pwq })
    }
}

impl<P: Platform> Queue<P> {
    /// The attributes as they were set.
    pub(crate) fn attributes(&self) -> Attributes {
        self.config.lock().attributes.clone()
    }

    /// The layout in effect.
    pub(crate) fn layout(&self) -> Layout {
        Layout::clone(&self.current_map().layout)
    }

    /// Locks what is used to change the queue.
    pub(crate) fn lock_config(&self) -> MutexGuard<'_, Config<P>, P> {
        self.config.lock()
    }

    /// Follows a change of the machine or of the runtime's defaults.
    pub(crate) fn relayout(&self) {
        let mut config = self.config.lock();
        if !config.closed {
            self.apply(&mut config);
        }
    }

    /// Changes attributes: all that the closure changes, or nothing; in effect for the next item when it returns, and the limit at once. An
    /// observer may call it after the queue's end.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Attributes)) -> Result<(), Error> {
        // Not under the lock: the closure is foreign code, and may use the queue.
        let before = self.attributes();
        let mut wanted = before.clone();
        change(&mut wanted);
        self.changed(&self.config.lock(), &before, &wanted)?;
        // Not under the lock: this changes all queues.
        self.prepare_memory(wanted.memory);
        if wanted.max_active > HIGHEST_MAX_ACTIVE {
            self.inner().warn_max_active(wanted.max_active, HIGHEST_MAX_ACTIVE);
        }
        let mut config = self.config.lock();
        // Checked again: another thread may have changed the queue meanwhile.
        let attributes = self.changed(&config, &before, &wanted)?;
        // The layout follows from the rest.
        let (bounds, memory) = (attributes.bounds(), attributes.memory);
        let same_layout =
            attributes == Attributes { memory, ..config.attributes.clone().bounded(bounds) };
        config.attributes = attributes;
        self.follow_memory(memory);
        if same_layout {
            self.set_limits(&config, &self.current_map().layout);
        } else {
            self.apply(&mut config);
        }
        Ok(())
    }

    /// The attributes with what differs between `before` and `wanted` changed, if the queue can have them.
    fn changed(
        &self,
        config: &Config<P>,
        before: &Attributes,
        wanted: &Attributes,
    ) -> Result<Attributes, Error> {
        if config.closed {
            return Err(self.ended());
        }
        let min_asked = wanted.min_active != before.min_active;
        let attributes = config.attributes.with_changes(before, wanted);
        let attributes = attributes.with_limit(self.kind, config.attributes.bounds(), min_asked)?;
        self.kind.check(&attributes)?;
        Priority::check(&attributes)?;
        // A mask that was allowed once stays valid, however the machine has changed since: `effective` falls back.
        let mask = (attributes.cpumask != config.attributes.cpumask).then_some(&attributes.cpumask);
        if let Some(Some(mask)) = mask {
            self.inner().machine_config().check_mask(mask)?;
        }
        Ok(attributes)
    }

    /// Follows the runtime if that has been frozen or thawed; in effect when it returns.
    pub(crate) fn follow_freezer(&self) {
        let config = self.config.lock();
        if !config.closed {
            self.set_limits(&config, &self.current_map().layout);
        }
    }

    /// Waits until nothing is on a pool or running, or the queue is thawed.
    pub(crate) fn wait_until_still(&self) {
        self.domains().for_each(NodeActive::wait_until_still);
    }

    /// Gives each domain its share of the limit.
    fn set_limits(&self, config: &Config<P>, layout: &Layout) {
        for domain in config.domains.iter() {
            domain.set_thawed_limit(layout.limit(domain.domain, config.attributes.bounds()));
            domain.set_limit(self.limit_of(config, layout, domain.domain));
        }
    }

    pub(super) fn limit_of(&self, config: &Config<P>, layout: &Layout, domain: Domain) -> usize {
        // Read with the configuration locked: a thread that freezes or thaws changes this first and then every queue.
        if self.flags.freezable && self.inner().freezer.is_frozen() {
            return 0;
        }
        layout.limit(domain, config.attributes.bounds())
    }

    /// How the pwqs in use run their items.
    fn pwq_flags<'a>(
        &self,
        config: &Config<P>,
        mut in_use: impl Iterator<Item = &'a PoolWorkqueue<P>>,
    ) -> u32
    where
        P: 'a,
    {
        let intensive = self.flags.cpu_intensive && self.kind == QueueKind::PerCpu;
        let is_observed = in_use.any(|pwq| pwq.flags() & OBSERVED != 0);
        let observed = self.observed.follow(&self.inner().observation, self.id, is_observed);
        (u32::from(config.attributes.localize) * LOCALIZE)
            | (u32::from(intensive) * INTENSIVE)
            | (u32::from(observed) * OBSERVED)
            | (u32::from(self.heeds_homes()) * HOMED)
    }

    /// Follows the observers; in effect for the next item when it returns.
    pub(crate) fn observe_pwqs(&self, config: &Config<P>) {
        self.set_pwq_flags(config.pwqs.iter(), self.pwq_flags(config, config.pwqs.iter()));
    }

    fn set_pwq_flags<'a>(&self, pwqs: impl Iterator<Item = &'a PoolWorkqueue<P>>, flags: u32)
    where
        P: 'a,
    {
        for pwq in pwqs {
            pwq.set_sample_shift(self.observed.sample_shift());
            pwq.set_flags(flags);
        }
    }

    fn apply(&self, config: &mut Config<P>) {
        let layout = self.inner().machine_config().layout(self.kind, &config.attributes);
        let cpu_map = self.map_for(config, &layout);
        // SAFETY: CPU maps live as long as the queue.
        let pwqs = unsafe { &*cpu_map }.pwqs();
        // What is left on pwqs of other layouts runs as it was queued. These pwqs follow when they are used again, here or in
        // `map_for`.
        let of_layout = config.known.cpu_maps(&layout);
        self.set_pwq_flags(of_layout.flat_map(CpuMap::pwqs), self.pwq_flags(config, pwqs));
        self.use_map(config, cpu_map);
        self.retire_pwqs(config);
    }

    /// Leads issuers to the set in use, by the layout that is in effect now.
    pub(crate) fn use_set(&self, config: &mut Config<P>) {
        let cpu_map = self.map_for(config, &self.current_map().layout);
        self.use_map(config, cpu_map);
    }

    /// The CPU map of a layout, with the pwqs of the set in use.
    pub(super) fn map_for(&self, config: &mut Config<P>, layout: &Layout) -> *const CpuMap<P> {
        let set = config.sets.current;
        if let Some(known) = config.known.cpu_maps(layout).find(|cpu_map| cpu_map.set == set) {
            return known;
        }
        // No set is in use yet when the first CPU map is made.
        let in_use = config.cpu_maps.iter().next().map(|_| self.current_map());
        let flags = self.pwq_flags(config, in_use.into_iter().flat_map(CpuMap::pwqs));
        let pools = self.inner().pools_of(&layout.pools);
        let pools = pools.into_iter().zip(&layout.domains);
        let pwqs: Vec<*const PoolWorkqueue<P>> = pools
            .map(|(pool, domain)| {
                if let Some(pwq) = config.known.pwqs.get(&(set, Arc::as_ptr(&pool))) {
                    // SAFETY: pwqs live as long as the queue.
                    self.set_pwq_flags(core::iter::once(unsafe { &**pwq }), flags);
                    return *pwq;
                }
                let node_active = match config.known.domains.get(domain) {
                    Some(node_active) => *node_active,
                    None => {
                        let limit = self.limit_of(config, layout, *domain);
                        self.add_domain(config, *domain, limit)
                    }
                };
                self.add_pwq(config, pool, node_active, flags)
            })
            .collect();
        let by_cpu = layout.by_cpu.iter().map(|pool| pwqs[*pool as usize]).collect();
        let mut by_node =
            vec![Vec::new(); self.inner().services.homes.map.nodes()].into_boxed_slice();
        for pwq in &pwqs {
            // SAFETY: pwqs live as long as the queue.
            if let Some(node) = unsafe { &**pwq }.pool.node {
                by_node[node as usize].push(*pwq);
            }
        }
        let next_home = Padded(P::AtomicU32::new(0));
        let known = config.known.cpu_maps.get_key_value(layout);
        let layout = known.map_or_else(|| Arc::new(layout.clone()), |(key, _)| Arc::clone(key));
        let (key, pwqs) = (Arc::clone(&layout), pwqs.into_boxed_slice());
        let cpu_map = CpuMap { layout, set, pwqs, by_cpu, by_node, next_home };
        let cpu_map: *const CpuMap<P> = config.cpu_maps.add::<P>(cpu_map);
        config.known.cpu_maps.entry(key).or_default().push(cpu_map);
        cpu_map
    }

    /// Tells each domain how the CPU map uses it.
    pub(super) fn use_map(&self, config: &Config<P>, cpu_map: *const CpuMap<P>) {
        // SAFETY: CPU maps live as long as the queue.
        let cpu_map = unsafe { &*cpu_map };
        // By the address of the domain: the number of its CPUs, and the pwq of the first CPU.
        let mut uses: BTreeMap<*const NodeActive<P>, (usize, *const PoolWorkqueue<P>)> =
            BTreeMap::new();
        for pwq in &cpu_map.by_cpu {
            // SAFETY: pwqs live as long as the queue.
            let domain: *const NodeActive<P> = unsafe { &**pwq }.node_active();
            uses.entry(domain).or_insert((0, *pwq)).0 += 1;
        }
        for domain in config.domains.iter() {
            if let Some((cpus, first)) = uses.get(&core::ptr::from_ref(domain)) {
                domain.set_use(*cpus, *first);
            }
        }
        self.set_limits(config, &cpu_map.layout);
        // The new pools first: a pool that is in both CPU maps stays in use throughout.
        Self::change_users(cpu_map, true);
        // Release: pairs with the acquire in `current_map`. Relaxed: the configuration is locked.
        let before = self.cpu_map.swap(core::ptr::from_ref(cpu_map).cast_mut(), Ordering::Release);
        Self::leave_pools(before);
    }

    /// The queue no longer uses the pools of that CPU map; nothing if `cpu_map` is null.
    pub(super) fn leave_pools(cpu_map: *const CpuMap<P>) {
        // SAFETY: null, or a CPU map, which lives as long as the queue.
        if let Some(cpu_map) = unsafe { cpu_map.as_ref() } {
            Self::change_users(cpu_map, false);
        }
    }

    fn change_users(cpu_map: &CpuMap<P>, more: bool) {
        for pwq in &cpu_map.pwqs {
            // SAFETY: pwqs live as long as the queue.
            unsafe { &**pwq }.pool.change_users(more);
        }
    }

    /// Adds a pwq of the set in use to a pool to which that set has none, counted in that domain.
    fn add_pwq(
        &self,
        config: &mut Config<P>,
        pool: Arc<Pool<P>>,
        node_active: *const NodeActive<P>,
        flags: u32,
    ) -> *const PoolWorkqueue<P> {
        let pwq = PoolWorkqueue::new(self, node_active, pool, config.sets.current);
        pwq.set_flags(flags);
        pwq.set_age(self.flushing.age());
        pwq.watch(config.sets.watched());
        // No other thread writes it: the configuration is locked.
        pwq.next.store(self.first_pwq.load(Ordering::Relaxed), Ordering::Relaxed);
        let node = pwq.pool.near_node();
        let pwq = config.pwqs.add_near::<P>(node, pwq);
        // SAFETY: made above; pwqs live as long as the queue.
        let pool = Arc::as_ptr(&unsafe { &*pwq }.pool);
        config.many.pwqs += 1;
        config.known.pwqs.insert((config.sets.current, pool), pwq);
        // SAFETY: domains and pwqs live as long as the queue.
        unsafe { &*node_active }.add_pwq(unsafe { &*pwq });
        // Release: pairs with the load in `pwqs`.
        self.first_pwq.store(pwq, Ordering::Release);
        pwq
    }

    /// The part of the limit that is counted for `domain`, which does not exist yet.
    fn add_domain(
        &self,
        config: &mut Config<P>,
        domain: Domain,
        limit: usize,
    ) -> *const NodeActive<P> {
        let node_active = NodeActive::<P>::new(domain, limit);
        node_active.next.store(self.first_domain.load(Ordering::Relaxed), Ordering::Relaxed);
        let node_active = config.domains.add::<P>(node_active);
        config.known.domains.insert(domain, node_active);
        // SAFETY: added to the queue's domains just now, which live as long as the queue; shared references only.
        let made = unsafe { &*node_active };
        made.activation_item.set_node_active(node_active);
        (0..config.sets.drainers()).for_each(|_| made.begin_drain());
        // Release: pairs with the acquire in `domains`.
        self.first_domain.store(node_active, Ordering::Release);
        node_active
    }
}
