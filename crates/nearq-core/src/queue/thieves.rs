//! A queue's thieves: the items that steal jobs for a queue whose items fork (`fork_join`).
//!
//! A thief is an ordinary item of the queue. So the queue's scope, mask, priority, limit and homes apply to it, it is counted, and a worker
//! that blocks in a job is replaced as in any other item. This file knows which thieves are free, which are on their way, and how many
//! search; what a thief does is in `fork_join`.
//!
//! # The word
//! `searching:16 | called:16`. A thief is *called* while it is queued and has not started, and *searching* while it runs and has no job.
//! At most one is called at a time, and none while one searches: thieves come one after the other, as long as each finds something (as
//! workers do, `pool/idle`).
//!
//! # No job is forgotten
//! A thread that offers a job writes it, then reads the word (`call`). A thief that leaves changes the word, then reads the deques. Between
//! the two accesses the first has a light fence, and the second a heavy one.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Queue;
use crate::base::outcome::contain;
use crate::item::owned::ItemRef;
use crate::item::{Executed, Finished, Item, ItemVtable};

const ONE_CALLED: u32 = 1;
const ONE_SEARCHING: u32 = 1 << 16;

/// More thieves than that are of no use on any machine.
const MOST: usize = 1024;

/// See the head of the file.
pub(crate) struct Thieves<P: Platform> {
    word: P::AtomicU32,
    /// A bit for each thief that is neither called nor running.
    free: Box<[P::AtomicU64]>,
    items: Box<[Thief<P>]>,
    /// What a thief does.
    run: fn(&Queue<P>, &Thieves<P>),
}

/// A thief: an item, and its number among the thieves.
#[repr(C)]
struct Thief<P: Platform> {
    item: Item<P>,
    number: usize,
}

impl<P: Platform> Thief<P> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: true,
        execute: Self::execute,
        free: Self::free,
        parts: None,
        refuse: crate::item::never_refused,
        name: || "thief of fork-join jobs",
    };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to thieves only, whose first field is the item; the queue, which has them, waits for its items.
        let this = unsafe { item.cast::<Thief<P>>().as_ref() };
        let panicked = crate::pool::context::with_current::<P, _>(|context| {
            use crate::limit::pool_workqueue::PoolWorkqueue;
            // SAFETY: the pwq of the item that this worker runs.
            let queue = unsafe { PoolWorkqueue::of(context.account.get()).as_ref() }
                .map(PoolWorkqueue::queue);
            let Some((queue, thieves)) =
                queue.and_then(|queue| Some((queue, queue.thieves_now()?)))
            else {
                return Some(false);
            };
            let epoch = P::fork_epoch();
            let panicked = contain(|| (thieves.run)(queue, thieves));
            if P::fork_epoch() != epoch {
                // A job has forked, and this is the child. The queue may be gone there.
                return None;
            }
            // It may be called again at once: then it runs once more after this.
            thieves.free[this.number / 64].fetch_or(1 << (this.number % 64), Ordering::AcqRel);
            Some(panicked)
        });
        let Some(panicked) = panicked.flatten() else {
            return Executed { panicked: false, deferred: false };
        };
        Executed { panicked, deferred: this.item.finish() == Finished::Deferred }
    }

    unsafe fn free(_: NonNull<Item<P>>) {
        unreachable!("the queue holds a reference to its thieves");
    }
}

impl<P: Platform> Thieves<P> {
    fn new(count: usize, run: fn(&Queue<P>, &Thieves<P>)) -> Self {
        let count = count.clamp(1, MOST);
        let free = (0..count.div_ceil(64)).map(|word| {
            let bits = (count - word * 64).min(64);
            P::AtomicU64::new(u64::MAX >> (64 - bits))
        });
        let thief = |number| Thief { item: Item::new(&Thief::TABLE), number };
        Thieves {
            word: P::AtomicU32::new(0),
            free: free.collect(),
            items: (0..count).map(thief).collect(),
            run,
        }
    }

    /// Ensures that a thief comes, unless one searches or is called already. By a worker that runs an item of the queue, and has offered a
    /// job, with a light fence in between.
    #[cold]
    pub(crate) fn call(&self, queue: &Queue<P>) {
        P::model_fence();
        let idle = self.word.load(Ordering::SeqCst) == 0
            && self
                .word
                .compare_exchange(0, ONE_CALLED, Ordering::SeqCst, Ordering::SeqCst)
                .is_ok();
        if !idle {
            return;
        }
        let called = self.take_free().is_some_and(|thief| {
            // SAFETY: the queue has a handle. The pointer to the whole thief: `execute` reads what lies behind the item.
            let item = unsafe { ItemRef::new(NonNull::from(thief).cast()) };
            // The worker runs an item of the queue, so this is refused only if a fork has interrupted it.
            queue.queue(item) || thief.item.is_pending()
        });
        if called {
            queue.wake_for_thief();
        } else {
            self.word.fetch_sub(ONE_CALLED, Ordering::SeqCst);
        }
    }

    fn take_free(&self) -> Option<&Thief<P>> {
        for (index, word) in self.free.iter().enumerate() {
            let mut bits = word.load(Ordering::Relaxed);
            while bits != 0 {
                let bit = bits.trailing_zeros();
                // Acquire: pairs with the release in `execute`.
                let before = word.fetch_and(!(1 << bit), Ordering::AcqRel);
                if before & 1 << bit != 0 {
                    return Some(&self.items[index * 64 + bit as usize]);
                }
                bits = before & !(1 << bit);
            }
        }
        None
    }

    /// A thief that was called has started: it searches.
    pub(crate) fn begin(&self) {
        self.word.fetch_add(ONE_SEARCHING - ONE_CALLED, Ordering::SeqCst);
    }

    /// A thief searches again, after a job.
    pub(crate) fn begin_search(&self) {
        self.word.fetch_add(ONE_SEARCHING, Ordering::SeqCst);
    }

    /// A thief stops searching. True if no other one searches or is called.
    pub(crate) fn end_search(&self) -> bool {
        self.word.fetch_sub(ONE_SEARCHING, Ordering::SeqCst) == ONE_SEARCHING
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
    /// The queue's thieves, if one of its items has forked.
    pub(crate) fn thieves_now(&self) -> Option<&Thieves<P>> {
        // Acquire: pairs with the exchange in `thieves`.
        // SAFETY: null, or thieves that live as long as the queue.
        unsafe { self.thieves.load(Ordering::Acquire).as_ref() }
    }

    /// The queue's thieves, which run that function.
    pub(crate) fn thieves(&self, run: fn(&Queue<P>, &Thieves<P>)) -> &Thieves<P> {
        self.thieves_now().unwrap_or_else(|| {
            // Each CPU may have a worker that runs a job, and as many more may wait in one.
            let count = self.inner().machine_config().parallelism() as usize * 2;
            let made = Box::into_raw(Box::new(Thieves::new(count, run)));
            let null = core::ptr::null_mut();
            match self.thieves.compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire) {
                // SAFETY: they live as long as the queue.
                Ok(_) => unsafe { &*made },
                Err(found) => {
                    // SAFETY: ours, and no other thread has seen them.
                    drop(unsafe { Box::from_raw(made) });
                    // SAFETY: they live as long as the queue.
                    unsafe { &*found }
                }
            }
        })
    }

    /// A thief was queued for the caller's pod. The push may have woken no worker because one runs short items; this does.
    fn wake_for_thief(&self) {
        let pool = &self.pwq_for(P::current_cpu()).pool;
        if pool.has_short_runner() {
            pool.call_idle_worker();
        }
    }

    pub(super) fn free_thieves(&self) {
        let thieves = self.thieves.load(Ordering::Acquire);
        if !thieves.is_null() {
            // SAFETY: made as a box by `thieves`, and the queue, which is being dropped, has no items.
            drop(unsafe { Box::from_raw(thieves) });
        }
    }

    pub(super) fn thieves_after_fork_in_child(&self) {
        if let Some(thieves) = self.thieves_now() {
            thieves.after_fork_in_child();
        }
    }
}
