//! A queue's thieves: the items that steal jobs for a queue whose items fork (`fork_join`).
//!
//! A thief is an ordinary item of the queue. So the queue's scope, mask, priority, limit and homes apply to it, it is counted, and a worker
//! that blocks in a job is replaced as in any other item. This file knows which thieves are free, which are on their way, and how many
//! search; what a thief does is in `fork_join`.
//!
//! # The word
//! `searching:16 | called:16`. A thief is *called* while it is queued and has not started, and *searching* while it runs and has no job.
//! For all pools that help each other together, at most one thief is called at a time, and none while one searches: thieves come one after
//! the other, as long as each finds something (as workers do, `pool/idle`).
//!
//! # No job is forgotten
//! An owner that offers a job writes it, then reads the requests of its deque; if it is asked to call a thief, it reads the word (`call`).
//! A thief that stops searching changes the word, then asks the owners to call, then reads the deques. The owner has a light fence after
//! the first step, and the thief a heavy one before the last. So either the thief sees the job, or the owner sees the request and, as
//! requests are released and acquired, the word. A thread that adds work to a team has a `SeqCst` fence between that and its read of the
//! word. So the accesses of the word themselves are relaxed.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Queue;
use super::team::Team;
use crate::base::outcome::contain;
use crate::item::Name;
use crate::item::owned::ItemRef;
use crate::item::{Executed, Finished, Item, ItemVtable};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;

const ONE_CALLED: u32 = 1;
const ONE_SEARCHING: u32 = 1 << 16;

/// The most thieves of a queue without a team. More than that do not help on any machine.
const MOST: usize = 1024;
/// The fewest thieves of such a queue. On a machine of few CPUs, many thieves may sleep in their jobs at once.
const FEWEST: usize = if cfg!(test) { 4 } else { 256 };
/// How many thieves may have left a team and not ended. That takes a thief a moment only, but many threads may be preempted just then.
const AFTER_LEAVING: usize = 64;

/// See the head of the file.
///
/// A queue has one such record for all pools that help each other, or one for each of its pools: if pools do not help, a thief of one pool
/// cannot steal a job in another.
pub(crate) struct Thieves<P: Platform> {
    /// The pool that they are for; null if pools help each other.
    pool: *const Pool<P>,
    next: *const Thieves<P>,
    word: P::AtomicU32,
    /// A bit for each thief that is neither called nor running.
    free: Box<[P::AtomicU64]>,
    items: Box<[Thief<P>]>,
    team: Option<Arc<dyn Team<P>>>,
    /// What a thief does.
    run: fn(&Queue<P>, &Thieves<P>),
}

/// A thief: an item, and its number among the thieves.
#[repr(C)]
struct Thief<P: Platform> {
    item: Item<P>,
    number: usize,
    /// The record to which it belongs.
    thieves: P::AtomicPtr<Thieves<P>>,
}

impl<P: Platform> Thief<P> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: Self::is_optional,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: crate::item::never_refused,
        name: Name::Given("thief of fork-join jobs"),
    };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to thieves only, whose first field is the item; the queue, which has them, waits for its items.
        let this = unsafe { item.cast::<Thief<P>>().as_ref() };
        let panicked = crate::pool::context::with_current::<P, _>(|context| {
            // SAFETY: null, or the pwq of the item that this worker runs, which stays until the item has ended.
            let pwq = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() };
            let Some(pwq) = pwq else { return Some(false) };
            pwq.count_thief(context.worker.index);
            let queue = pwq.queue();
            // SAFETY: set when they were made; they live as long as the queue.
            let thieves = unsafe { &*this.thieves.load(Ordering::Relaxed) };
            let epoch = P::fork_epoch();
            let panicked = contain(|| (thieves.run)(queue, thieves));
            if P::fork_epoch() != epoch {
                // A job has forked, and this is the child, in which the queue may be gone.
                return None;
            }
            // It may be called again at once: then it runs once more after this.
            thieves.put_back(this);
            Some(panicked)
        });
        // In the child of a fork that a job made, the thief is free already, and may be another thread's.
        let Some(panicked) = panicked.flatten() else {
            return Executed { panicked: false, deferred: false };
        };
        Executed { panicked, deferred: this.item.finish() == Finished::Deferred }
    }

    unsafe fn is_optional(item: NonNull<Item<P>>) -> bool {
        // SAFETY: the table belongs to thieves only, whose first field is the item; the queue, which has them, waits for its items.
        let this = unsafe { item.cast::<Thief<P>>().as_ref() };
        // SAFETY: set when they were made; they live as long as the queue.
        let thieves = unsafe { &*this.thieves.load(Ordering::Relaxed) };
        thieves.team.as_ref().is_none_or(|team| !team.is_short())
    }

    unsafe fn free(_: NonNull<Item<P>>) {
        unreachable!("the queue holds a reference to its thieves");
    }
}

impl<P: Platform> Thieves<P> {
    fn new(
        pool: *const Pool<P>,
        next: *const Thieves<P>,
        count: usize,
        team: Option<Arc<dyn Team<P>>>,
        run: fn(&Queue<P>, &Thieves<P>),
    ) -> Self {
        let free = (0..count.div_ceil(64)).map(|word| {
            let bits = (count - word * 64).min(64);
            P::AtomicU64::new(u64::MAX >> (64 - bits))
        });
        let thieves = || P::AtomicPtr::new(core::ptr::null_mut());
        let thief = |number| Thief { item: Item::new(&Thief::TABLE), number, thieves: thieves() };
        Thieves {
            pool,
            next,
            word: P::AtomicU32::new(0),
            free: free.collect(),
            items: (0..count).map(thief).collect(),
            team,
            run,
        }
    }

    /// Ensures that a thief comes, unless one searches or is called already. By a worker that runs an item of the queue, and has offered a
    /// job, with a light fence in between; or by any thread, if the queue has a team. False if the queue refuses the thief.
    #[cold]
    pub(crate) fn call(&self, queue: &Queue<P>) -> bool {
        let idle = self.word.load(Ordering::Relaxed) == 0
            && self
                .word
                .compare_exchange(0, ONE_CALLED, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !idle {
            // It comes, unless the queue is about to refuse it.
            return !queue.is_shut_here();
        }
        let thief = self.take_free();
        let is_one_free = thief.is_some();
        let called = thief.is_some_and(|thief| {
            // SAFETY: the queue owns its thieves, and has a handle of each item. The pointer is one to the whole thief, because `execute`
            // reads what lies behind the item.
            let item = unsafe { ItemRef::new(NonNull::from(thief).cast()) };
            // If the caller runs an item of the queue, this is refused only if a fork has interrupted the caller. Otherwise the queue has a
            // team: the runtime was shut down, or the queue is being drained.
            let called = queue.queue(item) || thief.item.is_pending();
            if !called {
                self.put_back(thief);
            }
            called
        });
        if called {
            queue.wake_for_thief();
        } else {
            self.word.fetch_sub(ONE_CALLED, Ordering::Relaxed);
        }
        // If none is free, those that are there look for work before they end.
        called || !is_one_free && !queue.is_shut_here()
    }

    fn take_free(&self) -> Option<&Thief<P>> {
        for (index, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                // Acquire: pairs with the release in `put_back`.
                let before = word.fetch_and(!(1 << bit), Ordering::AcqRel);
                if before & 1 << bit != 0 {
                    return Some(&self.items[index * 64 + bit as usize]);
                }
                bits = before & !(1 << bit);
            }
        }
        None
    }

    fn put_back(&self, thief: &Thief<P>) {
        // Release: pairs with the acquire in `take_free`.
        self.free[thief.number / 64].fetch_or(1 << (thief.number % 64), Ordering::AcqRel);
    }

    /// A thief that was called has started: it searches.
    pub(crate) fn begin(&self) {
        self.word.fetch_add(ONE_SEARCHING - ONE_CALLED, Ordering::Relaxed);
    }

    /// A thief searches again, after a job.
    pub(crate) fn begin_search(&self) {
        self.word.fetch_add(ONE_SEARCHING, Ordering::Relaxed);
    }

    /// A thief stops searching. True if no other one searches or is called.
    pub(crate) fn end_search(&self) -> bool {
        self.word.fetch_sub(ONE_SEARCHING, Ordering::Relaxed) == ONE_SEARCHING
    }

    pub(crate) fn is_called(&self) -> bool {
        self.word.load(Ordering::Relaxed) % ONE_SEARCHING != 0
    }

    /// Resets them to being free. In the child of a fork.
    fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.word, 0);
        for thief in &self.items {
            thief.item.reset_after_fork_in_child();
            self.free[thief.number / 64].fetch_or(1 << (thief.number % 64), Ordering::Relaxed);
        }
    }
}

impl<P: Platform> Queue<P> {
    /// The records of the queue's thieves; there are some if one of its items has forked, or if it has a team.
    fn all_thieves(&self) -> impl Iterator<Item = &Thieves<P>> {
        // Acquire: pairs with the exchange in `thieves`.
        let mut next = self.thieves.load(Ordering::Acquire).cast_const();
        core::iter::from_fn(move || {
            // SAFETY: null, or thieves that live as long as the queue.
            let thieves = unsafe { next.as_ref() }?;
            next = thieves.next;
            Some(thieves)
        })
    }

    /// The thieves that may come for an item which runs in that pool; they run that function.
    pub(crate) fn thieves(&self, pool: &Pool<P>, run: fn(&Queue<P>, &Thieves<P>)) -> &Thieves<P> {
        let pool = if pool.key.helping { core::ptr::null() } else { core::ptr::from_ref(pool) };
        loop {
            // Acquire: pairs with the release of the exchange below.
            let first = self.thieves.load(Ordering::Acquire);
            if let Some(found) = self.all_thieves().find(|thieves| thieves.pool == pool) {
                return found;
            }
            let count = match self.team() {
                // A thief that has left the team, and has not ended, may call another one.
                Some(team) => team.size() + AFTER_LEAVING,
                None => {
                    // Each CPU may have a worker that runs a job, and many more may wait or sleep in one.
                    let cpus = self.inner().machine_config().topology.possible().len();
                    (2 * cpus).clamp(FEWEST, MOST)
                }
            };
            let made = Box::into_raw(Box::new(Thieves::new(
                pool,
                first,
                count,
                self.team.get().cloned(),
                run,
            )));
            // SAFETY: made just now. They live as long as the queue, or until the end of this loop's body if another thread comes first.
            let thieves = unsafe { &*made };
            thieves.items.iter().for_each(|thief| thief.thieves.store(made, Ordering::Relaxed));
            if self
                .thieves
                .compare_exchange(first, made, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return thieves;
            }
            // SAFETY: ours, and no other thread has seen them.
            drop(unsafe { Box::from_raw(made) });
        }
    }

    /// Whether the runtime was shut down, and the caller is none of its workers.
    fn is_shut_here(&self) -> bool {
        let inner = self.inner();
        inner.is_shut() && !crate::pool::context::works_for(&raw const inner.services)
    }

    /// The pool to which an item goes if the caller queues it now.
    pub(super) fn pool_here(&self) -> &Pool<P> {
        &self.pwq_for(P::current_cpu()).pool
    }

    /// A thief was queued for the caller's pod. The push may have woken no worker, because one there runs short items and takes the thief
    /// next. This calls an idle one too.
    fn wake_for_thief(&self) {
        let pool = self.pool_here();
        if pool.has_short_runner() {
            pool.call_idle_worker();
        }
    }

    /// Whether the limit under which the items of the pwq count holds back others than called thieves.
    pub(crate) fn held_back_beside(&self, pwq: &PoolWorkqueue<P>) -> bool {
        let called = self.all_thieves().filter(|thieves| thieves.is_called()).count();
        pwq.node_active().counts().1 > called as u64
    }

    /// Whether items go to that pwq now.
    pub(crate) fn leads_to(&self, pwq: &PoolWorkqueue<P>) -> bool {
        self.current_map().pwqs.iter().any(|own| core::ptr::eq(*own, pwq))
    }

    pub(super) fn free_thieves(&self) {
        // Acquire: as in `all_thieves`.
        let mut next = self.thieves.load(Ordering::Acquire);
        while !next.is_null() {
            // SAFETY: made as a box by `thieves`, and the queue, which is being dropped, has no items.
            let thieves = unsafe { Box::from_raw(next) };
            next = thieves.next.cast_mut();
        }
    }

    pub(super) fn thieves_after_fork_in_child(&self) {
        self.all_thieves().for_each(Thieves::after_fork_in_child);
        if let Some(team) = self.team() {
            team.after_fork_in_child();
        }
    }
}
