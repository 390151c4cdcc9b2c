//! The inside of a workqueue: its pwqs, and the path of an item from the issuer to a pool. For changes of its attributes, see `change`;
//! for the pwqs of former attributes, `retired`; for its end, `end`.
//!
//! # The folder
//! Imports all folders down to `runtime`.
//!
//! | file | what it holds |
//! |---|---|
//! | `runtime` | the runtime with the type of its queues, and the handle that users have |
//! | `change`, `retired` | how attributes are changed; the pwqs of former ones |
//! | `owner` | the queue as its items and pwqs know it |
//! | `sets`, `flush` | sets of pwqs; waiting for what was queued before, and until nothing is left |
//! | `delayed`, `delay` | queueing later; what the timer needs of an item |
//! | `homes` | where an item goes because of its home |
//! | `thieves`, `team` | the items that steal jobs for the queue; what a layer above adds to them |
//! | `rescuer` | the rescuer as the queue sees it |
//! | `sampling`, `tracepoints` | samples of its items; probes and spans |
//! | `end` | owners, and the queue's end |
//!
//! `queue`, `homes`, `owner`, `runtime` and `sets` form a circle: parts of one record, and the impl of one trait. The folder owns the lock
//! `config`, which comes before those of the runtime; the pointer to the CPU map in use; generations and rounds; owners.

use std::collections::{HashMap, hash_map};
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Platform, PlatformCell};

use crate::base::arena::Arena;
use crate::base::error::Error;
use crate::base::forked;
use crate::base::ids::{PoolId, QueueId, QueueKind};
use crate::base::once::Once;
use crate::base::pad::Padded;
use crate::base::rundown_ref::RundownRef;
use crate::item::owned::{ItemRef, Pending};
use crate::item::{Epoch, Item, Origin};
use crate::layout::attributes::{Attributes, Layout, Places};
use crate::layout::domain::DomainLimit;
use crate::layout::priority::Priority;
use crate::limit::node_active::{Entry, NodeActive};
use crate::limit::pool_workqueue::{HOMED, OBSERVED, PoolWorkqueue};
use crate::limit::statistics::{InFlight, PoolStatistics};
use crate::observe::Observed;
use crate::queue::runtime::{Inner, Runtime};

mod change;
pub(crate) mod delay;
mod delayed;
mod end;
pub(crate) mod flush;
mod homes;
mod owner;
pub(crate) mod rescuer;
mod retired;
pub(crate) mod runtime;
mod sampling;
pub(crate) mod sets;
pub(crate) mod team;
pub(crate) mod thieves;
pub(crate) mod tracepoints;

pub(crate) use homes::SubmitKind;
use homes::{HomeConfig, QueueHome};
pub(crate) use owner::{served, serves};
use rescuer::Rescuer;
use sets::{Flushing, Sets};

/// From a CPU to a pwq.
struct CpuMap<P: Platform> {
    layout: Arc<Layout>,
    /// The set to which its pwqs belong.
    set: usize,
    /// All pwqs of the CPU map, each once.
    pwqs: Box<[*const PoolWorkqueue<P>]>,
    /// By CPU number.
    by_cpu: Box<[*const PoolWorkqueue<P>]>,
    /// The pwqs whose pods lie in a node, by the node's number; and the index of the one to use next (`homes`).
    by_node: Box<[Vec<*const PoolWorkqueue<P>>]>,
    next_home: Padded<P::AtomicU32>,
}

/// What is only used to change the queue.
pub(crate) struct Config<P: Platform> {
    attributes: Attributes,
    pub(crate) sets: Sets,
    home: HomeConfig<P>,
    /// The queue has no handle, nothing is queued on it, and no thread touches it. A thread that still has it from the runtime's list must
    /// not touch it either; otherwise that thread could send an activation item that no thread waits for.
    closed: bool,
    cpu_maps: Arena<CpuMap<P>>,
    pwqs: Arena<PoolWorkqueue<P>>,
    domains: Arena<NodeActive<P>>,
    known: change::Known<P>,
    many: retired::Many,
}

/// Properties of a queue that are set when it is made, and never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct QueueFlags {
    /// It takes part in `Runtime::freeze`.
    pub(crate) freezable: bool,
    /// Its items do not count as running, if it is a per-CPU queue.
    pub(crate) cpu_intensive: bool,
    /// It has a rescuer.
    pub(crate) rescuer: bool,
}

/// The inside of a workqueue.
pub(crate) struct Queue<P: Platform> {
    /// Never used for another queue of the runtime.
    pub(crate) id: QueueId,
    pub(crate) name: String,
    pub(crate) kind: QueueKind,
    pub(crate) flags: QueueFlags,
    runtime: Runtime<P>,
    cpu_map: P::AtomicPtr<CpuMap<P>>,
    /// Which process it is in. Written only in the child of a fork, while there is no other thread.
    epoch: P::Cell<Epoch>,
    /// The pwqs, newest first, for threads that read them without the lock; never shortened.
    first_pwq: P::AtomicPtr<PoolWorkqueue<P>>,
    /// The pwqs from here on are retired (`retired`).
    first_retired: P::AtomicPtr<PoolWorkqueue<P>>,
    /// The domains in which items are counted, linked like the pwqs.
    first_domain: P::AtomicPtr<NodeActive<P>>,
    pub(crate) flushing: Flushing<P>,
    pub(crate) observed: Observed<P>,
    home: QueueHome<P>,
    rescuer: Option<Arc<Rescuer<P>>>,
    /// Handles by which items can be queued. The drop of the last one ends the queue.
    owners: P::AtomicU32,
    /// The threads that touch the queue although they have no handle, and have nothing counted there.
    pub(crate) rundown: RundownRef<P>,
    /// The items that steal jobs for it; null until one of its items has forked.
    thieves: P::AtomicPtr<thieves::Thieves<P>>,
    /// What a layer above adds to the thieves.
    team: Once<P, Arc<dyn team::Team<P>>>,
    /// Items that are on a timer for it. May be wrong in the child of a fork.
    delays: P::AtomicU32,
    config: Mutex<Config<P>, P>,
}

// SAFETY: the raw pointers of the CPU maps lead to pwqs that the same queue owns.
unsafe impl<P: Platform> Send for Queue<P> {}
// SAFETY: several threads may follow the CPU maps at once: pwqs are shared by design; all else is `Sync` by itself.
unsafe impl<P: Platform> Sync for Queue<P> {}

impl<P: Platform> Queue<P> {
    /// A queue on `runtime`, with its pwqs.
    pub(crate) fn new(
        runtime: &Runtime<P>,
        name: String,
        kind: QueueKind,
        flags: QueueFlags,
        attributes: Attributes,
    ) -> Arc<Self> {
        let queue = crate::base::shared::exposed(Queue {
            id: QueueId(runtime.inner().number_queue()),
            name,
            kind,
            flags,
            runtime: runtime.tie(),
            cpu_map: P::AtomicPtr::new(core::ptr::null_mut()),
            epoch: P::Cell::new(Epoch::now::<P>()),
            first_pwq: P::AtomicPtr::new(core::ptr::null_mut()),
            first_retired: P::AtomicPtr::new(core::ptr::null_mut()),
            first_domain: P::AtomicPtr::new(core::ptr::null_mut()),
            owners: P::AtomicU32::new(1),
            rundown: RundownRef::new(),
            thieves: P::AtomicPtr::new(core::ptr::null_mut()),
            team: Once::new(),
            delays: P::AtomicU32::new(0),
            flushing: Flushing::new(),
            observed: Observed::new(),
            home: QueueHome::new(attributes.memory),
            rescuer: flags.rescuer.then(|| Arc::new(Rescuer::new())),
            config: Mutex::new_in(Config {
                attributes,
                sets: Sets::new(),
                home: HomeConfig::new(),
                closed: false,
                cpu_maps: Arena::new(),
                pwqs: Arena::new(),
                domains: Arena::new(),
                known: change::Known::new(),
                many: retired::Many::new(),
            }),
        });
        queue.relayout();
        queue
    }

    pub(crate) fn runtime(&self) -> &Runtime<P> {
        &self.runtime
    }

    pub(crate) fn inner(&self) -> &Inner<P> {
        self.runtime.inner()
    }

    /// The queue's rescuer, if the queue was built with one.
    pub(crate) fn rescuer(&self) -> Option<&Arc<Rescuer<P>>> {
        self.rescuer.as_ref()
    }

    // ---- the issuer's path -------------------------------------------------------------------------------

    /// Queues an item for the pod of the CPU that the caller runs on; false if it is pending already, or is refused because the queue
    /// drains.
    #[inline]
    pub(crate) fn queue(&self, item: ItemRef<'_, P>) -> bool {
        let Some(node) = Item::claim(item, self.epoch()) else { return false };
        self.launch(item, node, P::current_cpu())
    }

    /// As [`queue`](Self::queue), with an error if it is refused.
    pub(crate) fn try_queue(&self, item: ItemRef<'_, P>) -> Result<bool, Error> {
        self.queue_for(item, P::current_cpu(), SubmitKind::Again)
    }

    /// As [`try_queue`](Self::try_queue), for the pod of the CPU that `choose` names.
    #[inline]
    pub(crate) fn queue_on(
        &self,
        item: ItemRef<'_, P>,
        choose: impl FnOnce(&Places) -> Result<usize, Error>,
    ) -> Result<bool, Error> {
        let cpu = choose(&self.current_map().layout.places)?;
        self.queue_for(item, cpu, SubmitKind::Named)
    }

    /// The CPU itself, if the machine has it.
    pub(crate) fn cpu(&self, cpu: usize) -> Result<usize, Error> {
        self.current_map().layout.places.cpu(cpu)
    }

    /// The process that it is in.
    #[inline]
    pub(crate) fn epoch(&self) -> Epoch {
        // SAFETY: written while there is one thread only, which does not read it then.
        self.epoch.with(|epoch| unsafe { *epoch })
    }

    /// The priority of its workers.
    pub(crate) fn priority(&self) -> Option<&Priority> {
        self.current_map().layout.pools.first().map(|pool| &pool.priority)
    }

    /// The nice value that its workers actually have.
    pub(crate) fn effective_nice(&self) -> i32 {
        self.priority().map_or(0, |priority| self.inner().priorities.effective_nice(priority))
    }

    /// Why an item was not queued: it is pending (false then), it is disabled, or the runtime was shut down.
    #[cold]
    fn why_not(&self, header: &Item<P>) -> Result<bool, Error> {
        if header.is_pending() {
            Ok(false)
        } else if header.is_disabled() {
            Err(Error::Disabled)
        } else if self.inner().is_shut() {
            Err(Error::ShutDown)
        } else {
            // It was pending a moment ago.
            Ok(false)
        }
    }

    /// Sends an item whose claim gave `node`; false if the queue refuses it.
    #[inline]
    pub(crate) fn launch(&self, item: ItemRef<'_, P>, node: Pending<P>, cpu: usize) -> bool {
        match self.send_by(node, cpu, SubmitKind::Again) {
            Ok(()) => true,
            Err(node) => self.refuse_and_warn(item, node),
        }
    }

    #[inline]
    fn queue_for(
        &self,
        item: ItemRef<'_, P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> Result<bool, Error> {
        let Some(node) = Item::claim(item, self.epoch()) else { return self.why_not(&item) };
        match self.send_by(node, cpu, submit) {
            Ok(()) => Ok(true),
            Err(node) => Err(self.refuse(item, node)),
        }
    }

    /// Sends a queueing. If the queue drains, nothing has happened, and the queueing is returned to the caller.
    #[inline(always)]
    pub(crate) fn send_by(
        &self,
        item: Pending<P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> Result<(), Pending<P>> {
        let pwq = self.pwq_for(cpu);
        crate::queue::tracepoints::queued(pwq, &item, cpu);
        if pwq.flags() & (OBSERVED | HOMED) != 0 {
            return self.send_otherwise(pwq, item, cpu, submit);
        }
        Self::send_to::<false>(pwq, item, Origin::of_cpu(cpu))
    }

    /// Sends a new task; gives it back with the reason if it is refused.
    pub(crate) fn send_new(
        &self,
        item: Pending<P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> Result<(), (Pending<P>, Error)> {
        self.send_by(item, cpu, submit).map_err(|item| (item, self.refusal()))
    }

    /// For a queue that is observed, or whose items may have homes. A separate function with the whole path after it: a call in the middle
    /// would cost the other path some registers.
    #[cold]
    #[inline(never)]
    fn send_otherwise(
        &self,
        pwq: &PoolWorkqueue<P>,
        item: Pending<P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> Result<(), Pending<P>> {
        let flags = pwq.flags();
        let (pwq, origin) = match flags & HOMED {
            0 => (pwq, Origin::of_cpu(cpu)),
            _ => self.find_home(pwq, &item, cpu, submit),
        };
        if cfg!(feature = "observe") && flags & OBSERVED != 0 {
            pwq.stamp(&item, cpu as u32);
        }
        Self::send_to::<true>(pwq, item, origin)
    }

    #[inline(always)]
    fn send_to<const ANY: bool>(
        pwq: &PoolWorkqueue<P>,
        item: Pending<P>,
        origin: Origin,
    ) -> Result<(), Pending<P>> {
        if !pwq.credits.take() {
            return Self::send_without_credit(pwq, item, origin);
        }
        // Accounted from here on: it may be cancelled.
        item.set_target(pwq.account(), origin);
        if let Some(item) = item.publish() {
            if ANY {
                pwq.push_any(item);
            } else {
                pwq.push(item);
            }
        }
        Ok(())
    }

    #[inline(never)]
    fn send_without_credit(
        mut pwq: &PoolWorkqueue<P>,
        mut item: Pending<P>,
        origin: Origin,
    ) -> Result<(), Pending<P>> {
        loop {
            let node_active = pwq.node_active();
            match node_active.refill(pwq) {
                Entry::LetIn => {
                    item.set_target(pwq.account(), origin);
                    if let Some(item) = item.publish() {
                        pwq.push_any(item);
                    }
                    return Ok(());
                }
                Entry::HeldBack => match node_active.hold_back(pwq, item, origin, false) {
                    Ok(()) => return Ok(()),
                    Err((back, Entry::Refused)) => return Err(back),
                    Err((back, _)) => item = back,
                },
                Entry::Refused => return Err(item),
                Entry::Elsewhere => {}
            }
            // The CPU map that the caller has read is outdated.
            pwq = pwq.queue().pwq_for(origin.cpu());
        }
    }

    /// Sends an item that already belongs to the queue, such as a future that is woken, even while the queue drains. If the runtime is shut
    /// down, and the caller is not one of its workers, nothing has happened, and the item is returned to the caller.
    pub(crate) fn send_own(&self, item: Pending<P>, cpu: usize) -> Result<(), Pending<P>> {
        let Err(mut item) = self.send_by(item, cpu, SubmitKind::Again) else { return Ok(()) };
        loop {
            let pwq = self.pwq_for(cpu);
            match pwq.node_active().hold_back(pwq, item, Origin::of_cpu(cpu), true) {
                Ok(()) => return Ok(()),
                Err((back, Entry::Elsewhere)) => item = back,
                Err((back, _)) => return Err(back),
            }
        }
    }

    /// Gives up the claim of an item whose node was not sent.
    #[cold]
    fn refuse(&self, item: ItemRef<'_, P>, node: Pending<P>) -> Error {
        Item::unclaim(item, node);
        self.refusal()
    }

    #[cold]
    fn refuse_and_warn(&self, item: ItemRef<'_, P>, node: Pending<P>) -> bool {
        self.refuse(item, node);
        self.warn_refused();
        false
    }

    /// The error for a caller that queues by a handle, or changes the queue, after its end.
    #[cold]
    pub(crate) fn ended(&self) -> Error {
        Error::Ended { queue: self.name.clone() }
    }

    /// The error for a caller that queues while the queue drains.
    pub(crate) fn refusal(&self) -> Error {
        if self.inner().is_shut() {
            return Error::ShutDown;
        }
        Error::Draining { queue: self.name.clone() }
    }

    #[inline]
    fn current_map(&self) -> &CpuMap<P> {
        // Acquire: pairs with the release in `use_map`.
        let cpu_map = self.cpu_map.load(Ordering::Acquire);
        // SAFETY: set before the queue is handed out; CPU maps live as long as the queue.
        unsafe { &*cpu_map }
    }

    /// The pools of the layout in effect, by CPU number.
    pub(crate) fn pools_by_cpu(&self) -> Vec<PoolId> {
        let cpu_map = self.current_map();
        // SAFETY: pwqs live as long as the queue.
        cpu_map.by_cpu.iter().map(|pwq| unsafe { &**pwq }.pool.id).collect()
    }

    /// The scope in words; see `QueueView::affinity_scope_in_words`.
    pub(crate) fn affinity_scope_in_words(&self) -> String {
        match self.kind {
            QueueKind::PerCpu => return "per-cpu".into(),
            QueueKind::Ordered => return "ordered".into(),
            QueueKind::Unbound => {}
        }
        let attributes = self.attributes();
        let off = !(attributes.affinity_enabled && self.runtime.is_affinity_enabled());
        let scope = match attributes.affinity_scope {
            Some(scope) => scope.to_string(),
            None => format!("default ({})", self.runtime.default_affinity_scope()),
        };
        if off { format!("{scope} (off)") } else { scope }
    }

    #[inline]
    fn pwq_for(&self, cpu: usize) -> &PoolWorkqueue<P> {
        let cpu_map = self.current_map();
        let pwq = cpu_map.by_cpu.get(cpu).or(cpu_map.by_cpu.first());
        // SAFETY: pwqs live as long as the queue; a CPU map has an entry for each CPU, and there is at least one.
        unsafe { &**pwq.expect("a machine has a CPU") }
    }

    // ---- counting ----------------------------------------------------------------------------------------

    /// The queue's pwqs, including those that are retired.
    pub(crate) fn pwqs(&self) -> impl Iterator<Item = &PoolWorkqueue<P>> {
        // Acquire: pairs with the release in `add_pwq`. A thread that checks whether anything is left sees every pwq on which something was
        // queued before: by the thread itself, or by an item whose end it has seen.
        let mut next = self.first_pwq.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: null, or a pwq, which lives as long as the queue.
            let pwq = unsafe { next.as_ref() }?;
            next = pwq.next.load(Ordering::Relaxed);
            Some(pwq)
        })
    }

    /// The newest pwq: while it stays the same, there are no others.
    pub(crate) fn newest_pwq(&self) -> *const PoolWorkqueue<P> {
        // Acquire: pairs with the release in `add_pwq`. It is never older than what `pwqs` has found before.
        self.first_pwq.load(Ordering::Acquire)
    }

    /// The queue's domains.
    pub(crate) fn domains(&self) -> impl Iterator<Item = &NodeActive<P>> {
        // Acquire: pairs with the release in `domain`.
        let mut next = self.first_domain.load(Ordering::Acquire);
        core::iter::from_fn(move || {
            // SAFETY: null, or a domain, which lives as long as the queue.
            let domain = unsafe { next.as_ref() }?;
            next = domain.next.load(Ordering::Relaxed);
            Some(domain)
        })
    }

    /// Executions that have ended, over all pwqs.
    #[cfg(test)]
    pub(crate) fn completed(&self) -> u64 {
        self.domains().map(NodeActive::completed).sum()
    }

    /// Items that are held back.
    pub(crate) fn inactive(&self) -> usize {
        self.domains().map(|domain| domain.in_use().1).sum()
    }

    /// What is under way.
    pub(crate) fn in_flight(&self) -> InFlight {
        let mut sum = InFlight::default();
        self.pwqs_in_service().for_each(|pwq| sum += pwq.in_flight());
        sum
    }

    /// Throws away what cancelled items have left among the held-back ones; by the monitor.
    pub(crate) fn tidy(&self) {
        self.domains().for_each(NodeActive::tidy_up);
    }

    /// The state of the limit in each domain.
    pub(crate) fn limits(&self) -> Vec<DomainLimit> {
        let layout = self.layout();
        let mut rows: Vec<_> = self
            .domains()
            .map(|node_active| {
                let (active, inactive) = node_active.in_use();
                let (domain, limit) = (node_active.domain, node_active.limit() as usize);
                DomainLimit { domain, cpus: layout.cpus_of(domain), limit, active, inactive }
            })
            .collect();
        rows.sort_by_key(|row| row.domain);
        rows
    }

    /// What has happened on each pool. All sets of pwqs that lead there count together.
    pub(crate) fn statistics(&self) -> Vec<PoolStatistics> {
        let mut rows: Vec<PoolStatistics> = Vec::new();
        let mut row_of: HashMap<PoolId, usize> = HashMap::new();
        for pwq in self.pwqs() {
            let one = pwq.statistics();
            match row_of.entry(one.pool) {
                hash_map::Entry::Occupied(row) => rows[*row.get()].add(&one),
                hash_map::Entry::Vacant(row) => {
                    row.insert(rows.len());
                    rows.push(one);
                }
            }
        }
        rows.reverse();
        rows
    }

    // ---- forks -------------------------------------------------------------------------------------------

    /// Before a fork: no thread changes the CPU maps and pwqs from here on.
    pub(crate) fn hold_for_fork(&self) {
        forked::hold(&self.config);
    }

    /// After a fork, in both processes.
    ///
    /// # Safety
    /// After `hold_for_fork`, once.
    pub(crate) unsafe fn release_after_fork(&self) {
        // SAFETY: as the caller promises.
        unsafe { forked::give_back(&self.config) };
    }

    /// Resets the queue so that nothing is queued and no thread is in the middle of anything: what was queued, and the threads that were,
    /// are the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        // Even if a shutdown in the parent had not reached this queue.
        let shut = self.inner().is_shut();
        // SAFETY: this is the only thread, and it is not in the middle of a call that reads it.
        self.epoch.with_mut(|epoch| unsafe { *epoch = Epoch::now::<P>() });
        let mut config = self.config.lock();
        config.sets.after_fork_in_child(shut);
        self.pwqs().for_each(|pwq| pwq.after_fork_in_child(shut));
        let layout = &self.current_map().layout;
        for domain in config.domains.iter() {
            domain.set_thawed_limit(layout.limit(domain.domain, config.attributes.bounds()));
            domain.after_fork_in_child(self.limit_of(&config, layout, domain.domain), shut);
        }
        drop(config);
        self.flushing.after_fork_in_child();
        if let Some(rescuer) = &self.rescuer {
            rescuer.after_fork_in_child();
        }
        self.rundown.after_fork_in_child();
        self.thieves_after_fork_in_child();
        self.observed.after_fork_in_child();
    }
}

#[cfg(test)]
mod tests;
