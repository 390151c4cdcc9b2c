//! [`JoinSet`]: spawned closures and futures that are joined in the order in which they end.
//!
//! # Protocol
//! * Each member has its set's ring beside its header. The thread that ends a member pushes it onto the ring's list, by one
//!   compare-exchange, and notifies. The set takes the whole list; it polls no member.
//! * The set holds each member's handle until it has returned the result, so what is on the list is alive. A set that is dropped gives its
//!   handles back and never reads the list again; members that end later push themselves all the same: a push follows no pointer.
//! * A member is pushed once, after `DONE`, while `RUNNING` or the canceller's handle keeps it alive. `next` belongs to the thread that
//!   pushes it, and to the set once it has taken the list.
//! * Push and take are `SeqCst`, for the wait queue.
//! * A member that cannot be waited for ([`JoinError::Deadlock`]) is not a member any more; its handle stays, because it still pushes
//!   itself, and is dropped when it is taken off the list.
//! * In the child of a fork, members of the parent's never push themselves. Once the list is empty there, those that are left are returned
//!   one after the other: cancelled, or with the result that they had at the fork.

use core::future::Future;
use core::pin::Pin;
use core::ptr::NonNull;
use core::task::{Context, Poll};
use std::sync::Arc;

use nearq_platform::{Atomic, Linux, Ordering, Platform};

use crate::base::outcome::JoinError;
use crate::base::wait_queue::{Listener, WaitQueue};
use crate::item::Item;
use crate::item::owned::Pending;
use crate::limit::node_active::NodeActive;
use crate::pool::context::blocking;
use crate::task::join::JoinHandle;
use crate::task::waiting::Beside;
use crate::task::{Head, Owner};
use crate::user::handle::Handle;

mod order;

use order::Order;

/// What the members of a set share.
struct Ring<P: Platform> {
    /// Members that have ended and have not been taken, the last one first.
    newest: P::AtomicPtr<Item<P>>,
    /// For the thread or the future that waits for the next one.
    waiters: WaitQueue<P>,
}

impl<P: Platform> Ring<P> {
    /// Whether a member has ended that has not been taken.
    fn has_ended(&self) -> bool {
        // SeqCst: for the wait queue.
        !self.newest.load(Ordering::SeqCst).is_null()
    }
}

/// The set of a member.
pub(crate) struct InSet<P: Platform> {
    ring: Arc<Ring<P>>,
    /// The member that ended before.
    next: P::AtomicPtr<Item<P>>,
    /// Where the set has its handle.
    place: u32,
    /// Whether it has been polled, if it is a future.
    begun: P::AtomicU32,
}

/// How every member begins.
#[repr(C)]
struct Member<P: Platform> {
    head: Head<P>,
    owner: InSet<P>,
}

impl<P: Platform> InSet<P> {
    /// # Safety
    /// The item is the header of a task whose owner is an `InSet`, alive for `'a`.
    unsafe fn of<'a>(item: NonNull<Item<P>>) -> &'a Self {
        // SAFETY: a task begins with its head and its owner (repr C).
        &unsafe { item.cast::<Member<P>>().as_ref() }.owner
    }
}

impl<P: Platform> Owner<P> for InSet<P> {
    const NOTIFIED: bool = true;

    fn began(&self) {
        // Relaxed: a caller that reads it late cancels what has just begun, which is allowed.
        self.begun.store(1, Ordering::Relaxed);
    }

    fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) != 0
    }

    unsafe fn ended(&self, item: NonNull<Item<P>>) {
        let node = crate::base::shared::pushed(item);
        let newest = &self.ring.newest;
        let mut head = newest.load(Ordering::Relaxed);
        let mut attempt = 0;
        loop {
            self.next.store(head, Ordering::Relaxed);
            // SeqCst: for the wait queue. It also releases `next`.
            match newest.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break,
                Err(_) => crate::base::pause::after_failure::<P>(&mut attempt),
            }
            head = newest.load(Ordering::Relaxed);
        }
        self.ring.waiters.notify();
    }
}

/// The members, and those that have ended; knows no queue.
struct Members<T, P: Platform> {
    ring: Arc<Ring<P>>,
    /// Dropped with the set, so that the last member, which is freed where no foreign code may run, has no waker to drop.
    listener: Listener<P>,
    handles: Vec<Option<JoinHandle<T, P>>>,
    free: Vec<u32>,
    /// The members. A handle that is in no order belongs to a member for which the set has returned that it cannot be waited for.
    order: Order,
    /// The domain in which the members seen so far were held back, and how many items it had admitted before.
    held_back: Option<(*const NodeActive<P>, u64)>,
    /// Taken off the ring's list, the first to end first.
    ended: *mut Item<P>,
    /// The process in which all members that had stayed behind in a fork were checked.
    epoch: u64,
    /// How far that check has got, and in which process.
    checked: (u64, usize),
}

// SAFETY: it owns its members' handles, which are Send; the pointers point to members and to where those are counted.
unsafe impl<T: Send, P: Platform> Send for Members<T, P> {}
// SAFETY: when shared, it cancels and counts.
unsafe impl<T: Send, P: Platform> Sync for Members<T, P> {}

impl<T: Send, P: Platform> Members<T, P> {
    fn new() -> Self {
        let newest = P::AtomicPtr::new(core::ptr::null_mut());
        Members {
            ring: Arc::new(Ring { newest, waiters: WaitQueue::new() }),
            listener: Listener::new(),
            handles: Vec::new(),
            free: Vec::new(),
            order: Order::new(),
            held_back: None,
            ended: core::ptr::null_mut(),
            epoch: P::fork_epoch(),
            checked: (P::fork_epoch(), 0),
        }
    }

    fn len(&self) -> usize {
        self.order.len()
    }

    /// Adds what `make` allocates with the owner that it is given; returns the item, which the caller queues.
    fn add(&mut self, make: impl FnOnce(InSet<P>) -> (Pending<P>, JoinHandle<T, P>)) -> Pending<P> {
        let place = self.free.pop().unwrap_or_else(|| {
            self.handles.push(None);
            u32::try_from(self.handles.len() - 1).expect("fewer than four billion members")
        });
        let (item, handle) = make(InSet {
            ring: Arc::clone(&self.ring),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            place,
            begun: P::AtomicU32::new(0),
        });
        self.handles[place as usize] = Some(handle);
        self.order.add(place);
        item
    }

    /// The result of the first member that has ended and was not taken.
    fn take(&mut self) -> Option<Result<T, JoinError>> {
        loop {
            let (place, result) = self.take_any()?;
            self.free.push(place);
            if self.order.remove(place) {
                return Some(result);
            }
        }
    }

    /// The result of a member that has ended, and the place where the set had its handle.
    fn take_any(&mut self) -> Option<(u32, Result<T, JoinError>)> {
        if self.ended.is_null() {
            // SeqCst: for the wait queue. It also acquires what the pushes released.
            let mut newest = self.ring.newest.swap(core::ptr::null_mut(), Ordering::SeqCst);
            while let Some(item) = crate::base::shared::taken(newest) {
                // SAFETY: a member of ours; we have its handle.
                let next = &unsafe { InSet::of(item) }.next;
                newest = next.load(Ordering::Relaxed);
                next.store(self.ended, Ordering::Relaxed);
                self.ended = item.as_ptr();
            }
        }
        let Some(item) = NonNull::new(self.ended) else { return self.take_left_behind() };
        // SAFETY: on the list, so a member of ours; we have its handle, which is taken below.
        let member = unsafe { InSet::of(item) };
        self.ended = member.next.load(Ordering::Relaxed);
        let place = member.place;
        let mut handle = self.handles[place as usize].take().expect("on the list once");
        Some((place, handle.try_take().expect("pushed after DONE")))
    }

    /// In the child of a fork, with an empty list: the result of a member of the parent's. It puts itself on no list here; if it had ended
    /// and was about to do so, its result is here nevertheless.
    fn take_left_behind(&mut self) -> Option<(u32, Result<T, JoinError>)> {
        let epoch = P::fork_epoch();
        if self.epoch == epoch {
            return None;
        }
        if self.checked.0 != epoch {
            self.checked = (epoch, 0);
        }
        for place in self.checked.1..self.handles.len() {
            if let Some(mut handle) = self.handles[place].take_if(|handle| handle.is_left_behind())
            {
                self.checked.1 = place + 1;
                let place = u32::try_from(place).expect("made from one");
                return handle.try_take().map(|result| (place, result));
            }
        }
        self.epoch = epoch;
        None
    }

    /// Begins to wait for one of the members; nothing if none of them could ever start meanwhile.
    fn beside(&mut self) -> Option<Beside<P>> {
        let within = crate::pool::context::is_in_item::<P>();
        Beside::in_domain(if within { self.all_held_back() } else { None })
    }

    /// The domain in which all members are held back, if the caller's item has a place there.
    ///
    /// A member that was held back stays so while its domain has admitted nothing. So if one member after the other cannot be waited for,
    /// none is checked twice.
    fn all_held_back(&mut self) -> Option<*const NodeActive<P>> {
        // Checks first where the last check ended: that is most often the member that will end next.
        if let Some(place) = self.order.unseen() {
            self.held_back_at(place)?;
        }
        let still = self.held_back.is_some_and(|(domain, entered)| {
            // SAFETY: a domain of the set's queue, of which the set has a handle.
            crate::limit::serving::serves_domain(domain) && unsafe { &*domain }.entered() == entered
        });
        if !still {
            self.order.forget();
            let domain = self.held_back_at(self.order.first()?)?;
            // SAFETY: a domain of the set's queue, of which the set has a handle. Read before any member is seen.
            self.held_back = Some((domain, unsafe { &*domain }.entered()));
        }
        while let Some(place) = self.order.unseen() {
            self.held_back_at(place)?;
            self.order.see();
        }
        self.held_back.map(|(domain, _)| domain)
    }

    /// The domain in which a member is held back, if the caller's item has a place in it.
    fn held_back_at(&self, place: u32) -> Option<*const NodeActive<P>> {
        self.handles[place as usize].as_ref()?.held_back_beside_caller()
    }

    /// Removes one of the members.
    fn give_up(&mut self) {
        if let Some(first) = self.order.first() {
            self.order.remove(first);
        }
    }

    fn wait(&self) {
        self.ring.waiters.sleep_until(None, || self.ring.has_ended());
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        loop {
            let result = self.take();
            if result.is_some() || self.len() == 0 {
                self.listener.leave();
                return Poll::Ready(result);
            }
            let ring = &self.ring;
            if !self.listener.poll_until(&ring.waiters, context.waker(), || ring.has_ended()) {
                P::retry_now();
                return Poll::Pending;
            }
        }
    }

    fn handles(&self) -> impl Iterator<Item = &JoinHandle<T, P>> {
        self.handles.iter().flatten()
    }
}

/// Closures and futures that are spawned on one queue and joined in the order in which they end.
///
/// The set keeps a [`Handle`] of the queue, so a service can store both in one struct. It does not keep the queue open.
///
/// Taking a result costs the same whether ten or ten thousand members are still running, because each member puts itself on the set's list
/// when it ends.
///
/// **Dropping** the set cancels what has not started; the rest goes on by itself.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::Workqueue;
///
/// let queue = Workqueue::builder("set").build()?;
/// let mut set = queue.join_set();
/// for number in 1..=10_u32 {
///     set.spawn(move || number * number);
/// }
/// set.spawn_future(async { 0 });
/// let mut sum = 0;
/// while let Some(result) = set.blocking_join_next() {
///     sum += result.unwrap();
/// }
/// assert_eq!(sum, 385);
/// # Ok::<(), nearq::Error>(())
/// ```
///
/// In an async task, await [`join_next`](Self::join_next):
///
/// ```
/// # use nearq_core as nearq;
/// # let queue = nearq::Workqueue::builder("set").build()?;
/// let mut set = queue.join_set();
/// (1..=10_u32).for_each(|number| set.spawn(move || number * number));
/// let task = async move {
///     let mut sum = 0;
///     while let Some(result) = set.join_next().await {
///         sum += result?;
///     }
///     Ok::<u32, nearq::JoinError>(sum)
/// };
/// # assert_eq!(queue.spawn_future(task).join()??, 385);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct JoinSet<T: Send + 'static, P: Platform = Linux> {
    queue: Handle<P>,
    members: Members<T, P>,
}

impl<T: Send + 'static, P: Platform> JoinSet<T, P> {
    /// Makes an empty set, whose members run on the queue of `queue`.
    pub fn new(queue: Handle<P>) -> Self {
        JoinSet { queue, members: Members::new() }
    }

    /// Adds a closure, and queues it as [`Handle::spawn`] does. If it is refused, its result is [`JoinError::Refused`].
    pub fn spawn(&mut self, closure: impl FnOnce() -> T + Send + 'static) {
        let item = self.members.add(|owner| crate::task::owned(owner, closure));
        self.queue.task().send_or_refuse(item);
    }

    /// Adds a future, and queues it as [`Handle::spawn_future`] does. If it is refused, its result is [`JoinError::Refused`].
    pub fn spawn_future(&mut self, future: impl Future<Output = T> + Send + 'static) {
        let route = Arc::downgrade(self.queue.shared());
        let item = self.members.add(|owner| crate::task::future::owned(owner, route, future));
        self.queue.task().send_or_refuse(item);
    }

    /// Returns the queue that the members run on.
    pub fn queue(&self) -> &Handle<P> {
        &self.queue
    }

    /// Returns the number of members whose results have not been taken.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns whether every result has been taken.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Blocks until the next member has ended, and returns its result; `None` if there are no members. What the member wrote is visible.
    /// The form to await is [`join_next`](Self::join_next).
    ///
    /// On a worker, another worker runs in its place meanwhile.
    ///
    /// If the caller is itself an item of the queue, the limit may hold all members back while the caller, and every other item that counts
    /// under the limit, waits like that. Then none of them would ever end. So one of the members is returned as [`JoinError::Deadlock`]; it
    /// goes on by itself.
    pub fn blocking_join_next(&mut self) -> Option<Result<T, JoinError>> {
        loop {
            let result = self.members.take();
            if result.is_some() || self.is_empty() {
                return result;
            }
            let Some(beside) = self.members.beside() else {
                self.members.give_up();
                return Some(Err(JoinError::Deadlock));
            };
            blocking::<P, _>(|| self.members.wait());
            drop(beside);
        }
    }

    /// Returns the result of a member that has ended; `None` if there is none at the moment. Does not block.
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.members.take()
    }

    /// Returns a future that does what [`blocking_join_next`](Self::blocking_join_next) does. Dropping it before it is ready loses no
    /// result.
    pub fn join_next(&mut self) -> JoinNext<'_, T, P> {
        JoinNext { set: self }
    }

    /// Polls for the result of the next member that ends, as [`join_next`](Self::join_next) does. For futures that are written by hand.
    pub fn poll_join_next(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<T, JoinError>>> {
        self.members.poll(context)
    }

    /// Cancels every member, as [`JoinHandle::cancel`] does: closures that have not started, and all futures. They stay members; their
    /// results are [`JoinError::Cancelled`].
    pub fn cancel_all(&self) {
        for handle in self.members.handles() {
            handle.cancel();
        }
    }
}

impl<T: Send + 'static, P: Platform> Drop for JoinSet<T, P> {
    fn drop(&mut self) {
        for handle in self.members.handles() {
            handle.abandon();
        }
    }
}

impl<T: Send + 'static, P: Platform> core::fmt::Debug for JoinSet<T, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish()
    }
}

/// A future that waits for the next result of a [`JoinSet`]; returned by [`JoinSet::join_next`].
///
/// [`JoinHandle`](JoinHandle#wakers) says which thread calls its waker, and what applies if threads are refused.
#[must_use = "a future does nothing until it is awaited"]
pub struct JoinNext<'set, T: Send + 'static, P: Platform = Linux> {
    set: &'set mut JoinSet<T, P>,
}

impl<T: Send + 'static, P: Platform> Future for JoinNext<'_, T, P> {
    type Output = Option<Result<T, JoinError>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.set.poll_join_next(context)
    }
}

impl<T: Send + 'static, P: Platform> core::fmt::Debug for JoinNext<'_, T, P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("JoinNext").field("set", &self.set).finish()
    }
}

#[cfg(test)]
mod tests;
