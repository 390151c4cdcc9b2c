//! How a queue's attributes and its limit are changed, and the tables, links and domains with them.
//!
//! # Changing attributes while items are queued and running
//! The queue's `table` maps a CPU to a link. A change builds the new links first (a failure leaves everything as it was), then swaps the
//! table. Issuers read the table once per item: each item uses the old one or the new one. What was queued on old links runs there: pools
//! outlive everything, so the old ones drain by themselves.
//!
//! Tables and links are kept until the queue is dropped, because an issuer may be in the middle of reading one. A table is used again when
//! its layout comes back, unless the queue has had very many since (`retired`). A queue that is flushed while it is busy has several sets
//! of links for one layout (`flush`), and a table for each.
//!
//! A queue may have a pool, a link and a domain for each of hundreds of CPUs, a flush makes a whole set of links, and thousands of changes
//! leave thousands of them. So nothing here iterates over all of one kind for each of another, or over all of them for each change. (A
//! queue's domains and sets are as few as its machine and `flush` allow.)

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::sync::Arc;

use nearq_lock::MutexGuard;
use nearq_platform::{Atomic, Ordering, Platform};

use super::{Config, LinkTable, Queue};
use crate::base::error::Error;
use crate::base::pad::Padded;
use crate::layout::attributes::{Attributes, Kind, Layout};
use crate::layout::domain::{Bounds, Domain};
use crate::layout::priority::Priority;
use crate::limit::admission::Admission;
use crate::limit::link::{HOMED, INTENSIVE, LOCALIZE, Link, OBSERVED};
use crate::pool::Pool;

/// The links by their sets and pools, the domains, and the tables: for quick lookup, however many there are.
pub(super) struct Known<P: Platform> {
    links: BTreeMap<(usize, *const Pool<P>), *const Link<P>>,
    domains: BTreeMap<Domain, *const Admission<P>>,
    /// The tables of each layout, at most one for each set. The hasher has no random keys: the order in which layouts are freed decides
    /// where the next ones lie, and simulated runs must be the same each time.
    tables: HashMap<Arc<Layout>, Vec<*const LinkTable<P>>, BuildHasherDefault<DefaultHasher>>,
}

impl<P: Platform> Known<P> {
    pub(super) fn new() -> Self {
        Known { links: BTreeMap::new(), domains: BTreeMap::new(), tables: HashMap::default() }
    }

    /// The tables of a layout.
    fn tables(&self, layout: &Layout) -> impl Iterator<Item = &LinkTable<P>> {
        let tables = self.tables.get(layout).into_iter().flatten();
        // SAFETY: tables live as long as the queue, which has this.
        tables.map(|table| unsafe { &**table })
    }

    /// Forgets all links and tables: if a layout comes back, new ones are made.
    pub(super) fn forget(&mut self) {
        self.links.clear();
        self.tables.clear();
    }
}

impl<P: Platform> LinkTable<P> {
    fn links(&self) -> impl Iterator<Item = &Link<P>> {
        // SAFETY: links live as long as the queue, as the table does.
        self.links.iter().map(|link| unsafe { &**link })
    }
}

impl<P: Platform> Queue<P> {
    /// The attributes as they were set.
    pub(crate) fn attributes(&self) -> Attributes {
        self.config.lock().attributes.clone()
    }

    /// The layout in effect.
    pub(crate) fn layout(&self) -> Layout {
        Layout::clone(&self.current_table().layout)
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

    /// Changes attributes and the limit: both or nothing; in effect for the next item when it returns. An observer may call it after the
    /// queue's end.
    pub(crate) fn change(
        &self,
        change: impl FnOnce(&mut Attributes),
        bounds: impl FnOnce(Bounds) -> Result<Bounds, Error>,
    ) -> Result<(), Error> {
        // Not under the lock: the closure is foreign code, and may use the queue.
        let before = self.attributes();
        let mut wanted = before.clone();
        change(&mut wanted);
        let mut config = self.config.lock();
        if config.closed {
            return Err(Error::ShutDown);
        }
        let attributes = config.attributes.with_changes(&before, wanted);
        self.kind.check(&attributes)?;
        // A mask that was allowed once stays valid, however the machine has changed since: `effective` falls back.
        let mask = (attributes.cpumask != config.attributes.cpumask).then_some(&attributes.cpumask);
        Priority::check(&attributes)?;
        self.inner().check_mask(mask.and_then(Option::as_ref))?;
        config.bounds = bounds(config.bounds)?;
        config.attributes = attributes;
        self.apply(&mut config);
        Ok(())
    }

    /// The limit as it was set.
    pub(crate) fn bounds(&self) -> Bounds {
        self.config.lock().bounds
    }

    /// Changes the limit; in effect when it returns. As [`change`](Self::change), also after the queue's end.
    pub(crate) fn change_bounds(
        &self,
        change: impl FnOnce(Bounds) -> Result<Bounds, Error>,
    ) -> Result<(), Error> {
        let mut config = self.config.lock();
        if config.closed {
            return Err(Error::ShutDown);
        }
        config.bounds = change(config.bounds)?;
        self.set_limits(&config, &self.current_table().layout);
        Ok(())
    }

    /// Follows the runtime if that has been frozen or thawed; in effect when it returns.
    pub(crate) fn follow_freezer(&self) {
        let config = self.config.lock();
        if !config.closed {
            self.set_limits(&config, &self.current_table().layout);
        }
    }

    /// Waits until nothing is on a pool or running, or the queue is thawed.
    pub(crate) fn wait_until_still(&self) {
        self.domains().for_each(Admission::wait_until_still);
    }

    /// Gives each domain its share of the limit.
    fn set_limits(&self, config: &Config<P>, layout: &Layout) {
        for domain in config.domains.iter() {
            domain.set_thawed_limit(layout.limit(domain.domain, config.bounds));
            domain.set_limit(self.limit_of(config, layout, domain.domain));
        }
    }

    pub(super) fn limit_of(&self, config: &Config<P>, layout: &Layout, domain: Domain) -> usize {
        // Read with the configuration locked: a thread that freezes or thaws changes this first and then every queue.
        if self.flags.freezable && self.inner().freezer.is_frozen() {
            return 0;
        }
        layout.limit(domain, config.bounds)
    }

    /// How the links in use run their items.
    fn manner<'a>(&self, config: &Config<P>, mut in_use: impl Iterator<Item = &'a Link<P>>) -> u32
    where
        P: 'a,
    {
        let intensive = self.flags.cpu_intensive && self.kind == Kind::PerCpu;
        let is_observed = in_use.any(|link| link.manner() & OBSERVED != 0);
        let observed = self.observed.follow(&self.inner().observation, self.id, is_observed);
        (u32::from(config.attributes.localize) * LOCALIZE)
            | (u32::from(intensive) * INTENSIVE)
            | (u32::from(observed) * OBSERVED)
            | (u32::from(self.heeds_homes()) * HOMED)
    }

    /// Follows the observers; in effect for the next item when it returns.
    pub(crate) fn observe_links(&self, config: &Config<P>) {
        self.set_manner(config.links.iter(), self.manner(config, config.links.iter()));
    }

    fn set_manner<'a>(&self, links: impl Iterator<Item = &'a Link<P>>, manner: u32)
    where
        P: 'a,
    {
        for link in links {
            link.set_power(self.observed.power());
            link.set_manner(manner);
        }
    }

    fn apply(&self, config: &mut Config<P>) {
        let layout = self.inner().machine_config().layout(self.kind, &config.attributes);
        let table = self.table_for(config, &layout);
        // SAFETY: tables live as long as the queue.
        let links = unsafe { &*table }.links();
        // What is left on links of other layouts runs as it was queued. These links follow when they are used again, here or in
        // `table_for`.
        let of_layout = config.known.tables(&layout);
        self.set_manner(of_layout.flat_map(LinkTable::links), self.manner(config, links));
        self.use_table(config, table);
        self.retire_links(config);
    }

    /// Leads issuers to the set in use, by the layout that is in effect now.
    pub(crate) fn use_set(&self, config: &mut Config<P>) {
        let table = self.table_for(config, &self.current_table().layout);
        self.use_table(config, table);
    }

    /// The table of a layout, with the links of the set in use.
    pub(super) fn table_for(&self, config: &mut Config<P>, layout: &Layout) -> *const LinkTable<P> {
        let set = config.sets.current;
        if let Some(known) = config.known.tables(layout).find(|table| table.set == set) {
            return known;
        }
        // There is none in use yet when the first one is made.
        let in_use = config.tables.iter().next().map(|_| self.current_table());
        let manner = self.manner(config, in_use.into_iter().flat_map(LinkTable::links));
        let pools = self.inner().pools_of(&layout.pools);
        let pools = pools.into_iter().zip(&layout.domains);
        let links: Vec<*const Link<P>> = pools
            .map(|(pool, domain)| {
                if let Some(link) = config.known.links.get(&(set, Arc::as_ptr(&pool))) {
                    // SAFETY: links live as long as the queue.
                    self.set_manner(core::iter::once(unsafe { &**link }), manner);
                    return *link;
                }
                let admission = match config.known.domains.get(domain) {
                    Some(admission) => *admission,
                    None => {
                        let limit = self.limit_of(config, layout, *domain);
                        self.add_domain(config, *domain, limit)
                    }
                };
                self.add_link(config, pool, admission, manner)
            })
            .collect();
        let by_cpu = layout.by_cpu.iter().map(|pool| links[*pool as usize]).collect();
        let mut by_node =
            vec![Vec::new(); self.inner().services.homes.map.nodes()].into_boxed_slice();
        for link in &links {
            // SAFETY: links live as long as the queue.
            if let Some(node) = unsafe { &**link }.pool.node {
                by_node[node as usize].push(*link);
            }
        }
        let turn = Padded(P::AtomicU32::new(0));
        let known = config.known.tables.get_key_value(layout);
        let layout = known.map_or_else(|| Arc::new(layout.clone()), |(key, _)| Arc::clone(key));
        let (key, links) = (Arc::clone(&layout), links.into_boxed_slice());
        let table = LinkTable { layout, set, links, by_cpu, by_node, turn };
        let table: *const LinkTable<P> = config.tables.add::<P>(table);
        config.known.tables.entry(key).or_default().push(table);
        table
    }

    /// Tells each domain how the table uses it.
    pub(super) fn use_table(&self, config: &Config<P>, table: *const LinkTable<P>) {
        // SAFETY: tables live as long as the queue.
        let table = unsafe { &*table };
        // By the address of the domain: the number of its CPUs, and the link of the first one.
        let mut uses: BTreeMap<*const Admission<P>, (usize, *const Link<P>)> = BTreeMap::new();
        for link in &table.by_cpu {
            // SAFETY: links live as long as the queue.
            let domain: *const Admission<P> = unsafe { &**link }.admission();
            uses.entry(domain).or_insert((0, *link)).0 += 1;
        }
        for domain in config.domains.iter() {
            if let Some((cpus, first)) = uses.get(&core::ptr::from_ref(domain)) {
                domain.set_use(*cpus, *first);
            }
        }
        self.set_limits(config, &table.layout);
        // The new pools first: a pool that is in both tables stays in use throughout.
        Self::change_users(table, true);
        // Release: pairs with the acquire in `current_table`. Relaxed: the configuration is locked.
        let before = self.table.swap(core::ptr::from_ref(table).cast_mut(), Ordering::Release);
        Self::leave_pools(before);
    }

    /// The queue no longer uses the pools of that table; nothing if `table` is null.
    pub(super) fn leave_pools(table: *const LinkTable<P>) {
        // SAFETY: null, or a table, which lives as long as the queue.
        if let Some(table) = unsafe { table.as_ref() } {
            Self::change_users(table, false);
        }
    }

    fn change_users(table: &LinkTable<P>, more: bool) {
        for link in &table.links {
            // SAFETY: links live as long as the queue.
            unsafe { &**link }.pool.change_users(more);
        }
    }

    /// Adds a link of the set in use to a pool to which that set has none, counted in that domain.
    fn add_link(
        &self,
        config: &mut Config<P>,
        pool: Arc<Pool<P>>,
        admission: *const Admission<P>,
        manner: u32,
    ) -> *const Link<P> {
        let link = Link::new(self, admission, pool, config.sets.current);
        link.set_manner(manner);
        link.set_age(self.flushing.age());
        link.watch(config.sets.watched());
        // No other thread writes it: the configuration is locked.
        link.next.store(self.first_link.load(Ordering::Relaxed), Ordering::Relaxed);
        let node = link.pool.near_node();
        let link = config.links.add_near::<P>(node, link);
        // SAFETY: made above; links live as long as the queue.
        let pool = Arc::as_ptr(&unsafe { &*link }.pool);
        config.many.links += 1;
        config.known.links.insert((config.sets.current, pool), link);
        // SAFETY: domains and links live as long as the queue.
        unsafe { &*admission }.add_link(unsafe { &*link });
        // Release: pairs with the load in `links`.
        self.first_link.store(link, Ordering::Release);
        link
    }

    /// The part of the limit that is counted for `domain`, which does not exist yet.
    fn add_domain(
        &self,
        config: &mut Config<P>,
        domain: Domain,
        limit: usize,
    ) -> *const Admission<P> {
        let admission = Admission::<P>::new(domain, limit);
        admission.next.store(self.first_domain.load(Ordering::Relaxed), Ordering::Relaxed);
        let admission = config.domains.add::<P>(admission);
        config.known.domains.insert(domain, admission);
        // SAFETY: added to the queue's domains just now, which live as long as the queue; shared references only.
        let made = unsafe { &*admission };
        made.activation_item.set_admission(admission);
        (0..config.sets.drainers()).for_each(|_| made.begin_drain());
        // Release: pairs with the acquire in `domains`.
        self.first_domain.store(admission, Ordering::Release);
        admission
    }
}
