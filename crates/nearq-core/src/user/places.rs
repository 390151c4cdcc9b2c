//! The places of a bound (`bounded`): a counting semaphore whose waiters, threads and futures, are served in order.
//!
//! # The word
//! Bit 0, `QUEUED`: there are waiters. The other bits count free places. While there are waiters, there are no free places: a place that is
//! given back goes to the first waiter.
//!
//! * take: if there is a free place and no waiter, one compare-exchange takes it. Otherwise the caller locks the list, and either takes a
//!   place after all, or sets `QUEUED` and appends itself.
//! * give back: if there is no waiter, one compare-exchange adds a place. Otherwise the caller locks the list and hands its place to the first
//!   waiter; if none is left, `QUEUED` is cleared and it begins again.
//!
//! `QUEUED` is set and cleared under the lock only. A place that is given back while a waiter appends itself is not overlooked, because both
//! change the same word: either the appender finds the place, or the giver finds `QUEUED`. A take acquires and a giving back releases, so
//! what a task has done before it gave its place back is visible to the task that gets the place.
//!
//! # A waiter
//! It waits until it gets a place (`HAS`) or leaves (`LEFT`: a future that is dropped). Both happen under the lock. One that leaves takes
//! its waker along and stays on the list until more than half of those there have left: so leaving takes a constant time on average, and
//! the list is at most twice as long as there are waiters. `QUEUED` stays as long as the list is not empty. A thread sleeps on `state`; a
//! future's waker is in `waker`, under a lock of its own, which is taken after that of the list. Wakers are foreign code, and are called
//! and dropped under no lock.
//!
//! # Forks
//! A lock may be held by a thread that the child does not have, and what has the places is the parent's. So each process has a list of its
//! own, made by the first thread of the child that uses the bound; the parent's stays where it is. A place of another process is not given
//! back.

use core::ptr::NonNull;
use core::task::Waker;
use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, PlatformCell};

use crate::base::outcome::contain;
use crate::item::Item;
use crate::pool::context::{blocking, with_current};
use crate::task::Owner;

const QUEUED: u32 = 1;
const ONE: u32 = 2;
/// More places than that are no limit.
const MOST: usize = (u32::MAX / ONE) as usize;

const WAITS: u32 = 0;
const HAS: u32 = 1;
const LEFT: u32 = 2;

/// See the head of the file.
pub(crate) struct Places<P: Platform> {
    total: usize,
    current: P::AtomicPtr<OfProcess<P>>,
}

struct OfProcess<P: Platform> {
    epoch: u64,
    word: P::AtomicU32,
    waiters: Mutex<Waiters<P>, P>,
}

struct Waiters<P: Platform> {
    list: VecDeque<Arc<Waiter<P>>>,
    /// How many of them have left.
    left: usize,
}

struct Waiter<P: Platform> {
    state: P::AtomicU32,
    waker: Mutex<Option<Waker>, P>,
}

impl<P: Platform> Waiters<P> {
    /// Takes off those that have left, if they are more than half.
    fn tidy(&mut self) {
        if self.left > self.list.len() / 2 {
            // Relaxed: `LEFT` is written under the lock.
            self.list.retain(|waiter| waiter.state.load(Ordering::Relaxed) != LEFT);
            self.left = 0;
        }
    }

    /// Takes off the first that waits.
    fn pop(&mut self) -> Option<Arc<Waiter<P>>> {
        loop {
            let first = self.list.pop_front()?;
            // Relaxed: as in `tidy`.
            if first.state.load(Ordering::Relaxed) != LEFT {
                return Some(first);
            }
            self.left -= 1;
        }
    }
}

/// A place that its owner gives back by dropping it; or none, for a task within another one of the same bound.
pub(crate) struct Place<P: Platform> {
    from: Option<(Arc<Places<P>>, u64)>,
}

impl<P: Platform> Places<P> {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        assert!(total != 0, "a bound needs at least one place");
        let total = total.min(MOST);
        Arc::new(Places { total, current: P::AtomicPtr::new(OfProcess::new(total)) })
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    pub(crate) fn in_use(&self) -> usize {
        // Relaxed: for display.
        self.total - (self.own().word.load(Ordering::Relaxed) / ONE) as usize
    }

    /// Those of this process.
    fn own(&self) -> &OfProcess<P> {
        let epoch = P::fork_epoch();
        // Acquire: pairs with the exchange below.
        let mut current = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: made as a box; freed with the whole, or never if it is the parent's.
            let own = unsafe { &*current };
            if own.epoch == epoch {
                return own;
            }
            let made = OfProcess::new(self.total);
            match self.current.compare_exchange(current, made, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => current = made,
                Err(found) => {
                    // SAFETY: made above, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(made) });
                    current = found;
                }
            }
        }
    }

    /// Whether the caller executes a task of this bound.
    fn is_within(&self) -> bool {
        let own = core::ptr::from_ref(self).cast();
        with_current::<P, _>(|context| context.bound.get() == own).unwrap_or(false)
    }

    /// Runs `f`, a part of a task of this bound.
    pub(crate) fn within<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Restore<P: Platform>(*const (), core::marker::PhantomData<P>);
        impl<P: Platform> Drop for Restore<P> {
            fn drop(&mut self) {
                with_current::<P, _>(|context| context.bound.set(self.0));
            }
        }
        let own = core::ptr::from_ref(self).cast();
        let before = with_current::<P, _>(|context| context.bound.replace(own));
        let _restore = before.map(|before| Restore::<P>(before, core::marker::PhantomData));
        f()
    }

    /// Takes a place, and waits for it; none within a task of the bound.
    pub(crate) fn take(this: &Arc<Self>) -> Place<P> {
        if this.is_within() {
            return Place { from: None };
        }
        let own = this.own();
        let appended = if own.try_take() { Ok(()) } else { own.append() };
        if let Err(waiter) = appended {
            blocking::<P, _>(|| {
                // Acquire: pairs with the release in `hand_over`.
                while waiter.state.load(Ordering::Acquire) == WAITS {
                    P::wait_for_work(&waiter.state, WAITS, None);
                }
            });
        }
        own.place_of(this)
    }

    /// Gives back a place of this process that was [kept](Place::keep).
    pub(crate) fn give_back(&self) {
        self.own().give_back();
    }

    /// Takes a place if there is one.
    pub(crate) fn try_take(this: &Arc<Self>) -> Option<Place<P>> {
        let own = this.own();
        own.try_take().then(|| own.place_of(this))
    }
}

impl<P: Platform> Drop for Places<P> {
    fn drop(&mut self) {
        // Acquire: pairs with the exchange in `own`.
        let current = self.current.load(Ordering::Acquire);
        // SAFETY: made as a box, and nothing else leads to it any more.
        let own = unsafe { Box::from_raw(current) };
        if own.epoch != P::fork_epoch() {
            // A lock in it may be held.
            core::mem::forget(own);
        }
    }
}

impl<P: Platform> OfProcess<P> {
    fn new(total: usize) -> *mut Self {
        Box::into_raw(Box::new(OfProcess {
            epoch: P::fork_epoch(),
            word: P::AtomicU32::new(total as u32 * ONE),
            waiters: Mutex::new_in(Waiters { list: VecDeque::new(), left: 0 }),
        }))
    }

    fn place_of(&self, places: &Arc<Places<P>>) -> Place<P> {
        Place { from: Some((Arc::clone(places), self.epoch)) }
    }

    fn try_take(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & QUEUED != 0 || word < ONE {
                return false;
            }
            // Acquire: pairs with `give_back`.
            match self.word.compare_exchange_weak(
                word,
                word - ONE,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => word = found,
            }
        }
    }

    /// Takes a place after all, or appends a waiter, which is returned.
    fn append(&self) -> Result<(), Arc<Waiter<P>>> {
        let waiter =
            Arc::new(Waiter { state: P::AtomicU32::new(WAITS), waker: Mutex::new_in(None) });
        let mut waiters = self.waiters.lock();
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let next = if word & QUEUED == 0 && word >= ONE { word - ONE } else { word | QUEUED };
            // Acquire: pairs with `give_back`.
            match self.word.compare_exchange_weak(word, next, Ordering::Acquire, Ordering::Relaxed)
            {
                Ok(_) if next & QUEUED == 0 => return Ok(()),
                Ok(_) => break,
                Err(found) => word = found,
            }
        }
        waiters.list.push_back(Arc::clone(&waiter));
        Err(waiter)
    }

    fn give_back(&self) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & QUEUED != 0 {
                if self.hand_over() {
                    return;
                }
                word = self.word.load(Ordering::Relaxed);
                continue;
            }
            // Release: what was done with the place.
            match self.word.compare_exchange_weak(
                word,
                word + ONE,
                Ordering::Release,
                Ordering::Relaxed,
            ) {
                Ok(_) => return,
                Err(found) => word = found,
            }
        }
    }

    /// Hands the caller's place to the first waiter. False if there is none.
    fn hand_over(&self) -> bool {
        let mut waiters = self.waiters.lock();
        let first = waiters.pop();
        self.tidy(&mut waiters);
        let Some(waiter) = first else { return false };
        // Release: what was done with the place. Under the list's lock, so that a future which leaves finds out.
        waiter.state.store(HAS, Ordering::Release);
        drop(waiters);
        P::wake(&raw const waiter.state, 1);
        let waker = waiter.waker.lock().take();
        if let Some(waker) = waker {
            // Foreign code; its panic must not end a worker.
            contain(|| waker.wake());
        }
        true
    }

    /// Takes off the list what need not be there, under its lock.
    fn tidy(&self, waiters: &mut Waiters<P>) {
        waiters.tidy();
        if waiters.list.is_empty() {
            // Relaxed: only the bit matters, and the lock orders its changes.
            self.word.fetch_and(!QUEUED, Ordering::Relaxed);
        }
    }

    /// A waiter does not wait any more. True if it has got a place.
    fn leave(&self, waiter: &Waiter<P>) -> bool {
        let mut waiters = self.waiters.lock();
        // Acquire: pairs with `hand_over`.
        if waiter.state.load(Ordering::Acquire) == HAS {
            return true;
        }
        waiter.state.store(LEFT, Ordering::Relaxed);
        waiters.left += 1;
        self.tidy(&mut waiters);
        drop(waiters);
        // The list may keep the waiter.
        let waker = waiter.waker.lock().take();
        contain(|| drop(waker));
        false
    }
}

impl<P: Platform> Place<P> {
    /// No place.
    pub(crate) fn none() -> Self {
        Place { from: None }
    }

    /// The caller gives it back by [`Places::give_back`], in that process. None if it is no place.
    pub(crate) fn keep(mut self) -> Option<u64> {
        self.from.take().map(|(_, epoch)| epoch)
    }
}

impl<P: Platform> Drop for Place<P> {
    fn drop(&mut self) {
        let own = self.from.take().filter(|(_, epoch)| *epoch == P::fork_epoch());
        if let Some((places, _)) = own {
            places.own().give_back();
        }
    }
}

/// A future's side: asks for a place, and takes back its request when it is dropped.
pub(crate) struct Request<P: Platform> {
    waits: Option<Waits<P>>,
}

/// A request that is on the list, or has got its place there.
struct Waits<P: Platform> {
    places: Arc<Places<P>>,
    epoch: u64,
    waiter: Arc<Waiter<P>>,
}

impl<P: Platform> Request<P> {
    pub(crate) fn new() -> Self {
        Request { waits: None }
    }

    /// A place, or none yet; then the waker is called when there is one.
    pub(crate) fn poll(&mut self, places: &Arc<Places<P>>, waker: &Waker) -> Option<Place<P>> {
        let own = places.own();
        if self.waits.as_ref().is_some_and(|waits| waits.epoch != own.epoch) {
            // The waiter is the parent's, which may have its lock.
            core::mem::forget(self.waits.take());
        }
        if self.waits.is_none() {
            if places.is_within() {
                return Some(Place::none());
            }
            if own.try_take() {
                return Some(own.place_of(places));
            }
            match own.append() {
                Ok(()) => return Some(own.place_of(places)),
                Err(waiter) => {
                    let (places, epoch) = (Arc::clone(places), own.epoch);
                    self.waits = Some(Waits { places, epoch, waiter });
                }
            }
        }
        let Waits { waiter, .. } = self.waits.as_ref().expect("it waits");
        // Foreign code, which may panic: under no lock.
        let new = waker.clone();
        let old = waiter.waker.lock().replace(new);
        contain(|| drop(old));
        // Acquire: pairs with `hand_over`, which takes the waker after it has written this; so it finds ours, or we find this.
        if waiter.state.load(Ordering::Acquire) == HAS {
            self.waits = None;
            return Some(own.place_of(places));
        }
        None
    }
}

impl<P: Platform> Drop for Request<P> {
    fn drop(&mut self) {
        let Some(Waits { places, epoch, waiter }) = self.waits.take() else { return };
        if epoch != P::fork_epoch() {
            core::mem::forget(waiter);
            return;
        }
        if places.own().leave(&waiter) {
            places.own().give_back();
        }
    }
}

/// The owner of a task that has a place: gives it back when the task has ended.
pub(crate) struct HasPlace<P: Platform> {
    places: Arc<Places<P>>,
    /// Belongs to the thread that ends the task.
    place: P::Cell<Option<Place<P>>>,
}

// SAFETY: the cell is touched by one thread, that which ends the task, and a place may be sent.
unsafe impl<P: Platform> Send for HasPlace<P> {}

impl<P: Platform> HasPlace<P> {
    pub(crate) fn new(places: &Arc<Places<P>>, place: Place<P>) -> Self {
        HasPlace { places: Arc::clone(places), place: P::Cell::new(Some(place)) }
    }
}

impl<P: Platform> Owner<P> for HasPlace<P> {
    const NOTIFIED: bool = false;

    fn run<R>(&self, program: impl FnOnce() -> R) -> R {
        self.places.within(program)
    }

    fn began(&self) {}

    fn has_begun(&self) -> bool {
        false
    }

    /// Before the result is available: a thread that has waited for it finds the place free.
    fn ending(&self) {
        // SAFETY: called once, by the thread that ends the task.
        let place = self.place.with_mut(|place| unsafe { (*place).take() });
        drop(place);
    }

    unsafe fn ended(&self, _: NonNull<Item<P>>) {}
}

#[cfg(test)]
mod tests;
