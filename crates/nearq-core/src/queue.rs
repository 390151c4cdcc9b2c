//! A workqueue's inside: its attributes, its links, and the way of an item from the issuer to a pool.
//!
//! # Changing attributes while items are queued and running
//! `table` leads from a CPU to a link. A change builds the new links first (a failure leaves everything as it was), then
//! swaps the table. Issuers read the table once per item: each item goes by the old one or by the new one. What was
//! queued on old links runs there: pools outlive everything, so the old ones drain by themselves.
//!
//! Tables and links are kept until the queue is dropped, because an issuer may be in the middle of reading one. A
//! table is used again when its layout comes back, so their number is bounded by the different layouts that
//! the queue has had, not by the number of changes.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::admission::Admission;
use crate::attributes::{Attributes, Layout, Places};
use crate::error::Error;
use crate::item::{Epoch, Executed, Finished, Item, ItemTable};
use crate::kept::Kept;
use crate::link::{Link, LinkStatistics};
use crate::runtime::{Inner, Runtime};

/// From a CPU to a link.
struct LinkTable<P: Platform> {
    layout: Layout,
    /// By CPU number.
    by_cpu: Box<[*const Link<P>]>,
}

/// What only those who change the queue touch.
struct Config<P: Platform> {
    attributes: Attributes,
    tables: Kept<LinkTable<P>>,
    links: Kept<Link<P>>,
}

/// The inside of a workqueue.
pub(crate) struct Queue<P: Platform> {
    pub(crate) name: String,
    runtime: Runtime<P>,
    table: P::AtomicPtr<LinkTable<P>>,
    /// Which process it is in.
    epoch: Epoch,
    pub(crate) admission: Admission<P>,
    /// The links, newest first, for who reads them without the lock; never shortened.
    first_link: P::AtomicPtr<Link<P>>,
    kicker: Kicker<P>,
    /// Threads that touch the queue although nothing of theirs is counted there.
    visitors: P::AtomicU32,
    config: Mutex<Config<P>, P>,
}

/// The item by which the queue asks a worker to look after its limit.
#[repr(C)]
struct Kicker<P: Platform> {
    item: Item<P>,
    queue: P::AtomicPtr<Queue<P>>,
}

// SAFETY: the raw pointers of the tables lead to links that the same queue owns.
unsafe impl<P: Platform> Send for Queue<P> {}
// SAFETY: as above; everything else is `Sync` by itself.
unsafe impl<P: Platform> Sync for Queue<P> {}

impl<P: Platform> Kicker<P> {
    const TABLE: ItemTable<P> =
        ItemTable { execute: Self::execute, free: Self::free, name: || "kicker" };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to kickers only, whose first field is the item; the queue waits for its kicker
        // before it is freed.
        let kicker = unsafe { item.cast::<Kicker<P>>().as_ref() };
        // SAFETY: as above.
        let queue = unsafe { &*kicker.queue.load(Ordering::Acquire) };
        queue.admission.attend(queue);
        Executed { panicked: false, deferred: kicker.item.finish() == Finished::Deferred }
    }

    unsafe fn free(_: NonNull<Item<P>>) {
        unreachable!("the queue holds a reference to its kicker");
    }
}

impl<P: Platform> Queue<P> {
    /// A queue on `runtime`, with its links.
    pub(crate) fn new(
        runtime: &Runtime<P>,
        name: String,
        attributes: Attributes,
        max_active: usize,
    ) -> Arc<Self> {
        let queue = Arc::new(Queue {
            name,
            runtime: runtime.clone(),
            table: P::AtomicPtr::new(core::ptr::null_mut()),
            epoch: Epoch::now::<P>(),
            admission: Admission::new(max_active),
            first_link: P::AtomicPtr::new(core::ptr::null_mut()),
            kicker: Kicker {
                item: Item::new(&Kicker::TABLE),
                queue: P::AtomicPtr::new(core::ptr::null_mut()),
            },
            visitors: P::AtomicU32::new(0),
            config: Mutex::new_in(Config { attributes, tables: Kept::new(), links: Kept::new() }),
        });
        queue.kicker.queue.store(Arc::as_ptr(&queue).cast_mut(), Ordering::Release);
        queue.relayout();
        queue
    }

    pub(crate) fn runtime(&self) -> &Runtime<P> {
        &self.runtime
    }

    fn inner(&self) -> &Inner<P> {
        self.runtime.inner()
    }

    // ---- the issuer's way --------------------------------------------------------------------------------

    /// Queues an item for the pod of the CPU that the caller runs on; false if it is pending already.
    #[inline]
    pub(crate) fn queue(&self, item: NonNull<Item<P>>) -> bool {
        // SAFETY: the caller has a handle.
        let Some(node) = (unsafe { Item::claim(item, self.epoch) }) else { return false };
        self.send(node, P::current_cpu());
        true
    }

    /// As [`queue`](Self::queue), for the pod of the CPU that `choose` names.
    #[inline]
    pub(crate) fn queue_on(
        &self,
        item: NonNull<Item<P>>,
        choose: impl FnOnce(&Places) -> Result<usize, Error>,
    ) -> Result<bool, Error> {
        let cpu = choose(&self.current_table().layout.places)?;
        // SAFETY: the caller has a handle.
        let node = unsafe { Item::claim(item, self.epoch) };
        if let Some(node) = node {
            self.send(node, cpu);
        }
        Ok(node.is_some())
    }

    /// Sends an item of which the caller has `PENDING` on its way.
    #[inline]
    pub(crate) fn send(&self, item: NonNull<Item<P>>, cpu: usize) {
        let link = self.link_for(cpu);
        // SAFETY: PENDING keeps the item alive.
        let header = unsafe { item.as_ref() };
        if !self.admission.admit(self, link) {
            return self.hold_back(link, item, cpu);
        }
        // Accounted from here on: it may be cancelled.
        header.set_target(link, cpu as u32);
        if header.publish() {
            link.push(item);
        }
    }

    #[cold]
    fn hold_back(&self, link: &Link<P>, item: NonNull<Item<P>>, cpu: usize) {
        self.admission.hold_back(self, link, item, cpu as u32);
    }

    /// Gives back what a cancelled item counted: its place under the limit, or its place among those that wait for one.
    #[cold]
    pub(crate) fn retire(&self, link: *const Link<P>, inactive: bool) {
        // Before the count, which may be what the queue's end waits for. SeqCst: `is_unused` reads it after the counts.
        self.visitors.fetch_add(1, Ordering::SeqCst);
        if inactive {
            self.admission.forget_inactive();
        } else {
            // SAFETY: the link belongs to the queue, which `visitors` keeps.
            unsafe { &*link }.count_cancelled();
        }
        if self.admission.needs_attention() {
            self.kick();
        }
        // Release: the last that is done to the queue here.
        self.visitors.fetch_sub(1, Ordering::SeqCst);
    }

    #[inline]
    fn current_table(&self) -> &LinkTable<P> {
        // Acquire: pairs with the release in `apply`.
        let table = self.table.load(Ordering::Acquire);
        // SAFETY: set before the queue is handed out; tables live as long as the queue.
        unsafe { &*table }
    }

    #[inline]
    fn link_for(&self, cpu: usize) -> &Link<P> {
        let table = self.current_table();
        let link = table.by_cpu.get(cpu).or(table.by_cpu.first());
        // SAFETY: links live as long as the queue; a table has an entry for each CPU, and there is at least one.
        unsafe { &**link.expect("a machine has a CPU") }
    }

    /// Asks a worker to look after the limit.
    pub(crate) fn kick(&self) {
        let item = NonNull::from(&self.kicker.item);
        // SAFETY: the queue has a handle. Nobody cancels a kicker, so its node is its own.
        if unsafe { Item::claim(item, self.epoch) }.is_some() && self.kicker.item.publish() {
            self.link_for(0).pool.push(item);
        }
    }

    // ---- counting ----------------------------------------------------------------------------------------

    /// The queue's links.
    pub(crate) fn links(&self) -> impl Iterator<Item = &Link<P>> {
        // SeqCst: who closes the queue's limit sees every link whose issuer saw it open.
        let mut next = self.first_link.load(Ordering::SeqCst);
        core::iter::from_fn(move || {
            // SAFETY: null, or a link, which lives as long as the queue.
            let link = unsafe { next.as_ref() }?;
            next = link.next.load(Ordering::Relaxed);
            Some(link)
        })
    }

    /// How many CPUs items may come from.
    pub(crate) fn cpus(&self) -> usize {
        self.current_table().by_cpu.len()
    }

    /// Executions that have ended, over all links.
    pub(crate) fn completed(&self) -> u64 {
        self.links().map(Link::completed).sum()
    }

    /// What has happened on each link.
    pub(crate) fn statistics(&self) -> Vec<LinkStatistics> {
        let mut rows: Vec<_> = self.links().map(Link::statistics).collect();
        rows.reverse();
        rows
    }

    // ---- changing ----------------------------------------------------------------------------------------

    /// The attributes as they were set.
    pub(crate) fn attributes(&self) -> Attributes {
        self.config.lock().attributes.clone()
    }

    /// The layout in effect.
    pub(crate) fn layout(&self) -> Layout {
        self.current_table().layout.clone()
    }

    /// Changes attributes; in effect for the next item when it returns.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Attributes)) -> Result<(), Error> {
        let mut config = self.config.lock();
        let mut attributes = config.attributes.clone();
        change(&mut attributes);
        // A mask that was allowed once stands, whatever has become of the machine since: `effective` falls back.
        let mask = (attributes.cpumask != config.attributes.cpumask).then_some(&attributes.cpumask);
        self.inner().check(attributes.nice, mask.and_then(Option::as_ref))?;
        config.attributes = attributes;
        self.apply(&mut config);
        Ok(())
    }

    /// Follows a change of the machine or of the runtime's defaults.
    pub(crate) fn relayout(&self) {
        self.apply(&mut self.config.lock());
    }

    fn apply(&self, config: &mut Config<P>) {
        let layout = self.inner().layout(&config.attributes);
        let known = config.tables.iter().find(|table| table.layout == layout);
        let table = known.map(core::ptr::from_ref).unwrap_or_else(|| {
            let pools = layout.pools.iter();
            let links: Vec<_> =
                pools.map(|key| self.link_to(config, &self.inner().pool(key))).collect();
            let by_cpu = layout.by_cpu.iter().map(|pool| links[*pool as usize]).collect();
            config.tables.add(LinkTable { layout, by_cpu })
        });
        for link in config.links.iter() {
            link.set_localize(config.attributes.localize);
        }
        // Release: pairs with the acquire in `current_table`.
        self.table.store(table.cast_mut(), Ordering::Release);
    }

    fn link_to(&self, config: &mut Config<P>, pool: &Arc<crate::pool::Pool<P>>) -> *const Link<P> {
        if let Some(link) = config.links.iter().find(|link| Arc::ptr_eq(&link.pool, pool)) {
            return link;
        }
        let link = Link::new(self, Arc::clone(pool));
        // Nobody else writes it: the configuration is locked.
        link.next.store(self.first_link.load(Ordering::Relaxed), Ordering::Relaxed);
        let link = config.links.add(link);
        // SeqCst: see `links`.
        self.first_link.store(link, Ordering::SeqCst);
        link
    }

    // ---- the end -----------------------------------------------------------------------------------------

    /// Whether nobody touches the queue any more: it is empty, and no worker serves it.
    pub(crate) fn is_unused(&self) -> bool {
        self.admission.is_empty(self)
            && !self.kicker.item.is_pending()
            && !self.kicker.item.is_running()
            && self.visitors.load(Ordering::SeqCst) == 0
            && !self.inner().table.iter().any(|worker| {
                let link = worker.link();
                // The pointer is compared, not followed: the link may be another queue's.
                self.links().any(|own| core::ptr::eq(own, link))
            })
    }

    /// Waits until everything that is queued has run and nobody touches the queue any more.
    pub(crate) fn drain(&self) {
        crate::context::blocking::<P, _>(|| {
            self.admission.wait_until_empty(self);
            // What is left is a few instructions of a worker that runs, or a worker that is preempted among them.
            while !self.is_unused() {
                P::sleep(core::time::Duration::from_micros(50));
            }
        });
    }
}

impl<P: Platform> Drop for Queue<P> {
    fn drop(&mut self) {
        self.admission.throw_away(self);
    }
}
