//! Items that are queued later: [`Workqueue::queue_delayed`](crate::Workqueue::queue_delayed) and what goes with it.
//!
//! A delayed item has `PENDING` at once, so it cannot be queued twice, and `TIMED` until its time has come. What the timer needs of it is a
//! [`Delay`], which the item keeps for the next time.
//!
//! # Steps, all under the item's lock
//! * **arm** (user): sets `PENDING | TIMED`, writes the queue and the deadline, notifies the timer.
//! * **expire** (the timer's thread): clears `TIMED` and sends the item as any queuer does. It only tries to take the lock: if the item is
//!   locked it leaves `ARRIVED`, and the lock's holder sends the item instead, after the unlock.
//! * **cancel** (user): clears both and notifies the timer. `expire` may be on its way all the same. It may find no `TIMED`, or that of a
//!   later arming, whose deadline has not come: then it does nothing, because the timer will call again for that one. So an item never
//!   starts before its time.
//! * **expedite** (user): as `expire`, before the time.
//! * **end** (the timer's thread, once after a queue's last handle was dropped): clears both for each item whose queue is gone or going.
//!
//! # What may be freed when
//! The queue is held weakly: an item on a timer does not keep a queue alive. When the queue's last handle is dropped and items are left,
//! the timer's thread looks through all its items, so what an item captured for that queue does not wait for its time. The thread may miss
//! an item then (for example because another thread keeps its queue for a moment); if the item's queue is gone, or going, when its time
//! comes, the item is not pending any more. The thread that sends an item enters through the queue's rundown reference (`rundown_ref`), as
//! wakes do. Each hold that the timer takes on a node is a hold on the item's memory (`item/holds`), and a reference to the delay; the item
//! has another reference to its delay. So what the function captured does not wait for the timer. If the last thing that keeps an item
//! alive ends with its deadline, because its queue is gone, the timer's thread does not wait for the destructor (`timer`). An item that
//! goes to another runtime, or comes out of a fork, gets a new delay; the old one is freed when the timer lets go of it.

use core::ptr::NonNull;
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, Instant, Ordering, Platform, PlatformCell};

use crate::item::account::{Later, LaterTable, Launch};
use crate::item::guard::ItemGuard;
use crate::item::{ARRIVED, DISABLED, Epoch, Finished, Item, PENDING, TIMED};
use crate::queue::Queue;
use crate::timer::{Foreign, Hold, TimerNode, TimerTable};

/// What the timer needs of an item.
#[repr(C)]
pub(crate) struct Delay<P: Platform> {
    later: Later<P>,
    item: NonNull<Item<P>>,
    /// The runtime to whose timer it belongs. An address to compare with.
    runtime: *const (),
    epoch: Epoch,
    /// When the item must be queued. Written under the item's lock.
    deadline: P::AtomicU64,
    /// Where it goes. Under the item's lock.
    target: P::Cell<Target<P>>,
}

/// Where a delayed item goes.
struct Target<P: Platform> {
    queue: Weak<Queue<P>>,
    /// The CPU that it is for.
    cpu: usize,
}

/// An item that its owner no longer needs, and that nothing else may hold any more.
struct Last<P: Platform>(NonNull<Item<P>>);

// SAFETY: what an item consists of is Send, and a reference to it may be given back anywhere.
unsafe impl<P: Platform> Send for Last<P> {}

impl<P: Platform> Last<P> {
    /// For a caller that has a reference.
    fn let_go(self) {
        // SAFETY: the reference is given back here.
        crate::base::executing::outside_item::<P>(|| unsafe { Item::let_go(self.0) });
    }
}

impl<P: Platform> Delay<P> {
    const TABLE: TimerTable<P> =
        TimerTable { expire: Self::expire, end_if_over: Self::end_if_over, release: Self::release };
    const LATER: LaterTable<P> =
        LaterTable { cancel: Self::cancel, take_over: Self::take_over, abandon: Self::abandon };

    unsafe fn cancel(_: *const Later<P>, guard: &ItemGuard<'_, P>) {
        disarm(guard);
        forget(guard);
    }

    /// Does nothing if the item was armed again since, for a later time: the timer calls again for that time. The item gets a reference,
    /// which the caller gives back.
    ///
    /// The timer is not asked to call again: while we have the lock, it would call at once, again and again.
    unsafe fn take_over(this: *const Later<P>, guard: &ItemGuard<'_, P>) -> Option<Launch<P>> {
        // SAFETY: the table belongs to records with which a delay begins (repr C); the caller's lock keeps it alive.
        let this = unsafe { &*this.cast::<Self>() };
        if !this.is_due(guard) {
            return None;
        }
        let launch = take_off(guard, this)?;
        guard.item().add_reference();
        Some(launch)
    }

    unsafe fn abandon(this: *const Later<P>) {
        // SAFETY: from `Arc::into_raw`, with the item's reference.
        drop(unsafe { Arc::from_raw(this.cast::<Self>()) });
    }

    unsafe fn expire(node: NonNull<TimerNode<P>>) -> Option<Foreign> {
        // SAFETY: the table belongs to nodes with which a delay begins (repr C); the timer holds it.
        let delay = unsafe { node.cast::<Self>().as_ref() };
        // SAFETY: the hold keeps the item's memory.
        let header = unsafe { delay.item.as_ref() };
        let guard = loop {
            if let Some(guard) = header.try_lock() {
                break guard;
            }
            if header.leave_to_holder() {
                return None;
            }
        };
        let launch = if delay.is_due(&guard) { take_off(&guard, delay) } else { None };
        delay.unlock(guard, launch)
    }

    unsafe fn end_if_over(
        node: NonNull<TimerNode<P>>,
        disarm: &mut dyn FnMut(),
    ) -> Option<Foreign> {
        // SAFETY: the table belongs to nodes with which a delay begins (repr C); the timer holds this one.
        let delay = unsafe { node.cast::<Self>().as_ref() };
        // SAFETY: the timer's hold is also one of the item's memory.
        let guard = unsafe { delay.item.as_ref() }.lock_unless_abandoned()?;
        if guard.word() & TIMED != 0 && core::ptr::eq(current(&guard), delay) {
            let queue = delay.queue();
            if queue.as_ref().is_none_or(|queue| queue.rundown.is_closed()) {
                disarm();
                forget(&guard);
            }
            if let Some(queue) = queue {
                guard.keep(queue);
            }
        }
        delay.unlock(guard, None)
    }

    /// Gives the item's lock back, and sends what must be sent. What is returned may be the end of the item: what the function captured may
    /// take long to drop, may wait for other deadlines, and may be the last handle of the queue. By the timer's thread.
    fn unlock(&self, guard: ItemGuard<'_, P>, launch: Option<Launch<P>>) -> Option<Foreign> {
        // Given back once we have left the lock and the queue's rundown reference.
        guard.item().add_reference();
        let left = guard.unlock_by_worker();
        debug_assert_eq!(left, Finished::Done, "we have a reference");
        if let Some(launch) = launch {
            launch.go();
        }
        let item = Last(self.item);
        // SAFETY: the reference that was added above.
        let last = unsafe { Item::drop_reference_unless_last(self.item) };
        last.then(|| -> Foreign { Box::new(move || item.let_go()) })
    }

    /// Whether the item waits for this very delay, and its time has come.
    fn is_due(&self, guard: &ItemGuard<'_, P>) -> bool {
        guard.word() & TIMED != 0
            && core::ptr::eq(current(guard), self)
            && P::now().as_nanos() >= self.deadline.load(Ordering::Relaxed)
    }

    unsafe fn release(node: NonNull<TimerNode<P>>, dropped: bool) {
        // SAFETY: the table belongs to nodes with which a delay begins (repr C); the timer's hold is a reference of its `Arc`, taken
        // back here.
        let delay = unsafe { Arc::from_raw(node.cast::<Self>().as_ptr().cast_const()) };
        // SAFETY: the hold keeps the item's memory too; it is given back below.
        let header = unsafe { delay.item.as_ref() };
        // The runtime ends, and the queue with it.
        let guard = if dropped { header.lock_unless_abandoned() } else { None };
        if let Some(guard) = guard {
            if core::ptr::eq(current(&guard), &raw const *delay) {
                forget(&guard);
            }
            // SAFETY: the answer says so; our hold keeps the memory.
            unsafe { Item::free_if_over(guard.unlock_by_worker(), delay.item) };
        }
        // SAFETY: the hold, which is given back.
        unsafe { Item::release(delay.item) };
    }

    /// The item's delay for the timer of the queue's runtime; made if it has none.
    fn of(guard: &ItemGuard<'_, P>, queue: &Queue<P>) -> *const Self {
        let runtime = core::ptr::from_ref(queue.inner()).cast();
        let known = current(guard);
        // SAFETY: null, or the item's delay, while we have the lock.
        let delay = unsafe { known.as_ref() };
        if delay.is_some_and(|delay| {
            core::ptr::eq(delay.runtime, runtime) && delay.epoch == queue.epoch()
        }) {
            // Not a pointer from the reference: this pointer must also reach the count in front of the delay.
            return known;
        }
        let made = Arc::into_raw(Arc::new(Delay {
            later: Later::new(TimerNode::new(&Self::TABLE), &Self::LATER),
            item: guard.item().whole().as_raw(),
            runtime,
            epoch: queue.epoch(),
            deadline: P::AtomicU64::new(0),
            target: P::Cell::new(Target { queue: Weak::new(), cpu: 0 }),
        }));
        let place = &guard.item().ext().delay;
        let before = place.swap(made.cast_mut().cast(), Ordering::AcqRel);
        // SAFETY: the item does not have it any more.
        unsafe { Later::abandon(before) };
        made
    }

    /// The queue, if it still exists. Under the item's lock.
    fn queue(&self) -> Option<Arc<Queue<P>>> {
        // SAFETY: the cell belongs to the holder of the item's lock.
        self.target.with(|target| unsafe { &*target }.queue.upgrade())
    }
}

/// The item's delay; null if it never had one.
fn current<P: Platform>(guard: &ItemGuard<'_, P>) -> *const Delay<P> {
    // All records are delays.
    guard.later().cast()
}

/// Puts an item that is not pending on the timer; false if it is pending or disabled, or the runtime ends.
pub(crate) fn arm<P: Platform>(
    guard: &ItemGuard<'_, P>,
    queue: &Arc<Queue<P>>,
    cpu: usize,
    deadline: Instant,
) -> bool {
    let item = guard.item();
    loop {
        let word = guard.word();
        if word & (PENDING | DISABLED) != 0 {
            return false;
        }
        if item.change(word, word | PENDING | TIMED) {
            break;
        }
    }
    let delay = Delay::of(guard, queue);
    // SAFETY: it is the item's delay, and we have the item's lock.
    let this = unsafe { &*delay };
    this.deadline.store(deadline.as_nanos(), Ordering::Relaxed);
    this.target.with_mut(|target| {
        // SAFETY: the cell belongs to the holder of the item's lock. The old queue is not dropped by this: it is weak.
        let target = unsafe { &mut *target };
        target.cpu = cpu;
        if !core::ptr::eq(target.queue.as_ptr(), Arc::as_ptr(queue)) {
            target.queue = Arc::downgrade(queue);
        }
    });
    queue.begin_delay();
    let timer = &queue.inner().timer;
    if let Some(priority) = queue.priority() {
        timer.serve(&queue.inner().priorities.absolute(priority));
    }
    tell(guard, delay, deadline, timer)
}

/// Notifies the timer; false if that has ended: then the item is not pending.
fn tell<P: Platform>(
    guard: &ItemGuard<'_, P>,
    delay: *const Delay<P>,
    deadline: Instant,
    timer: &crate::timer::Timer<P>,
) -> bool {
    let item = guard.item();
    // A reference for the hold that the timer may take, and may release before the call returns.
    item.hold();
    // SAFETY: the item's delay is in an Arc, while we have the lock.
    unsafe { Arc::increment_strong_count(delay) };
    let node: NonNull<TimerNode<P>> = NonNull::new(delay.cast_mut()).expect("not null").cast();
    // SAFETY: alive by the references; armed and disarmed under the item's lock, and on the timer of its own runtime only.
    let hold = unsafe { timer.arm(node, deadline) }.hold;
    if hold != Hold::Taken {
        // SAFETY: the reference that was added above, which is ours again: the timer has taken no hold.
        drop(unsafe { Arc::from_raw(delay) });
        item.unhold();
    }
    if hold == Hold::Refused {
        forget(guard);
    }
    hold != Hold::Refused
}

/// Takes the item off the timer; it is not pending any more.
fn forget<P: Platform>(guard: &ItemGuard<'_, P>) {
    if guard.word() & TIMED == 0 {
        return;
    }
    // SAFETY: an item that is on a timer has a delay, while we have the lock.
    if let Some(queue) = unsafe { &*current(guard) }.queue() {
        queue.end_delay();
        guard.keep(queue);
    }
    guard.clear(PENDING | TIMED | ARRIVED);
}

/// Tells the timer that the item's time does not matter any more; returns the item's delay.
fn disarm<'a, P: Platform>(guard: &'a ItemGuard<'_, P>) -> &'a Delay<P> {
    let delay = current(guard);
    // SAFETY: an item that is on a timer has a delay, while we have the lock.
    let this = unsafe { &*delay };
    // If the queue is gone, the timer notices that by itself.
    if let Some(queue) = this.queue() {
        let node = NonNull::new(delay.cast_mut()).expect("not null").cast();
        // SAFETY: the item's delay, by the pointer that it was made with; armed and disarmed under the item's lock.
        unsafe { queue.inner().timer.disarm(node) };
        guard.keep(queue);
    }
    this
}

/// Takes an item off the timer, to be sent when the lock is given back. Nothing if its queue is gone; then it is not pending any more.
fn take_off<P: Platform>(guard: &ItemGuard<'_, P>, delay: &Delay<P>) -> Option<Launch<P>> {
    let Some(queue) = delay.queue() else {
        forget(guard);
        return None;
    };
    queue.end_delay();
    let node = crate::item::proxy::take_off_timer(guard);
    // SAFETY: the cell belongs to the holder of the item's lock.
    let cpu = delay.target.with(|target| unsafe { &*target }.cpu);
    Some(Launch { queue, item: delay.item, node, cpu })
}

/// Takes an item that is on a timer off it before its time; true if it was on one. The caller has a handle.
pub(crate) fn expedite<P: Platform>(item: &Item<P>) -> bool {
    if item.current() & TIMED == 0 {
        return false;
    }
    let guard = item.lock();
    let timed = guard.word() & TIMED != 0;
    let mut launch = None;
    if timed {
        launch = take_off(&guard, disarm(&guard));
    }
    guard.unlock();
    if let Some(launch) = launch {
        launch.go();
    }
    timed
}

#[cfg(test)]
mod tests;
