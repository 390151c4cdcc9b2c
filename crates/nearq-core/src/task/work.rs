//! [`Work`]: a function that can be queued again and again.

use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use nearq_platform::{Linux, Platform, PlatformCell};

use crate::base::outcome::contain;
use crate::homes::Home;
use crate::item::owned::ItemRef;
use crate::item::{Executed, Item, ItemVtable, Parts};
use crate::item::{Name, named};

/// An item: a function that can be queued any number of times, without allocating.
///
/// At most one execution of it runs at any time, in any thread, on any queue. So the function may be `FnMut`. Queueing an item that is
/// already pending changes nothing: the function will run once for both. Queueing an item that is running makes it run once more.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Work, Workqueue};
///
/// let queue = Workqueue::builder("example").build()?;
/// let (sender, receiver) = std::sync::mpsc::channel();
/// let mut runs = 0;
/// let work = Work::new(move |_| {
///     runs += 1;
///     sender.send(runs).unwrap();
/// });
/// for run in 1..=3 {
///     assert!(queue.queue(&work));
///     assert_eq!(receiver.recv()?, run);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The function is given a handle of its own item, through which it may queue itself again. It may also drop the item's last other
/// handle.
///
/// # Clones and drop
/// Clones are handles of the same item. If the last handle is dropped while the item is queued, that execution still happens. An item may
/// have some eight million handles at once; with more, the process aborts, as with `Arc`.
///
/// What the function captured is dropped once no handle is left and nothing of the item is queued or running: by the thread that drops the
/// last handle, or by the worker after the last execution. On a worker, that drop is a part of the execution: the item still counts under
/// the queue's [`max_active`](crate::WorkqueueBuilder::max_active). So a destructor that takes long delays what the limit holds back; in an
/// ordered queue, everything. The same applies to what a spawned closure captured.
///
/// # Memory ordering
/// If [`queue`](crate::Workqueue::queue) returns true, what the caller wrote before is visible to the execution that follows from it. If it
/// returns false because the item was pending, what the caller wrote before is visible to the execution that is still to come. Each
/// execution sees what the one before it did.
///
/// # Signals
/// The runtime's threads block exactly the signals that were blocked in the thread that built the runtime. So what an item, a hook or a
/// callback starts has the program's own mask, and a profiler's signals reach the thread that computes.
///
/// # Panics in the function
/// They are caught and counted ([`PoolStatistics::panicked`](crate::inspect::PoolStatistics)). The worker goes on, and the item can be
/// queued again.
pub struct Work<P: Platform = Linux> {
    item: NonNull<Item<P>>,
}

// SAFETY: the function is Send, runs in one thread at a time, and the header is shared by design.
unsafe impl<P: Platform> Send for Work<P> {}
// SAFETY: a shared handle leads to the header alone, which is shared by design; the function belongs to the thread that has RUNNING.
unsafe impl<P: Platform> Sync for Work<P> {}

/// The header, and the function behind it.
#[repr(C)]
struct Function<P: Platform, F> {
    item: Item<P>,
    /// Dropped only by `empty`.
    function: P::Cell<ManuallyDrop<F>>,
}

impl<P: Platform, F: FnMut(&Work<P>) + Send + 'static> Function<P, F> {
    const TABLE: ItemVtable<P> = ItemVtable {
        is_optional: crate::item::never_optional,
        execute: Self::execute,
        free: Item::end_parts,
        parts: Some(Parts { empty: Self::empty, dealloc: Self::dealloc }),
        refuse: crate::item::never_refused,
        name: Name::OfType(core::any::type_name::<F>),
    };

    unsafe fn execute(item: NonNull<Item<P>>) -> Executed {
        // SAFETY: the table belongs to items of this type, whose header is the first field (repr C); RUNNING keeps it alive.
        let this = unsafe { item.cast::<Self>().as_ref() };
        // A handle for the function; not counted, because RUNNING keeps the item alive, and not dropped.
        let handle = ManuallyDrop::new(Work { item });
        let panicked = this.function.with_mut(|function| {
            // SAFETY: RUNNING is exclusive: no other thread runs the function or frees the item meanwhile.
            let function = unsafe { &mut *function };
            contain(|| function(&handle))
        });
        // SAFETY: RUNNING is ours.
        Executed { panicked, deferred: unsafe { Item::end(item) } }
    }

    /// Drops the function.
    unsafe fn empty(item: NonNull<Item<P>>) {
        // SAFETY: the table belongs to items of this type, whose header is the first field (repr C); the caller's hold keeps the
        // memory.
        let this = unsafe { item.cast::<Self>().as_ref() };
        // SAFETY: no thread can run the function any more, and it is dropped once.
        this.function.with_mut(|function| unsafe { ManuallyDrop::drop(&mut *function) });
    }

    unsafe fn dealloc(item: NonNull<Item<P>>) {
        // SAFETY: allocated as a box of this type by `Work::new_in`, and nothing holds it any more.
        drop(unsafe { Box::from_raw(item.cast::<Self>().as_ptr()) });
    }
}

impl Work<Linux> {
    /// Makes an item that runs `function`. It is not queued yet.
    pub fn new(function: impl FnMut(&Work) + Send + 'static) -> Self {
        Self::new_in(function)
    }

    /// As [`new`](Self::new), with a name for display: for `nearq dump`, `top` and `trace`, and for everything else that otherwise shows
    /// the name of the function's type, which for a closure says only where it was written.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let work = nearq::Work::named("write back", |_| ());
    /// assert!(format!("{work:?}").contains("write back"));
    /// ```
    ///
    /// What is stored for a name is never freed. If the name is empty, the item is shown by its type.
    pub fn named(name: &'static str, function: impl FnMut(&Work) + Send + 'static) -> Self {
        Self::named_in(name, function)
    }
}

impl<P: Platform> Work<P> {
    /// An item that runs `function`, on the platform given by the type.
    #[doc(hidden)]
    pub fn new_in(function: impl FnMut(&Work<P>) + Send + 'static) -> Self {
        Self::named_in("", function)
    }

    /// As [`named`](Self::named), on the platform given by the type.
    #[doc(hidden)]
    pub fn named_in<F: FnMut(&Work<P>) + Send + 'static>(name: &'static str, function: F) -> Self {
        let work = Box::new(Function {
            item: Item::new(named::table(&Function::<P, F>::TABLE, name)),
            function: P::Cell::new(ManuallyDrop::new(function)),
        });
        // The whole allocation's pointer, so that the function behind the header may be reached through it.
        // SAFETY: made a moment ago.
        Work { item: unsafe { Item::expose(NonNull::from(Box::leak(work)).cast()) } }
    }

    #[inline(always)]
    pub(crate) fn item(&self) -> ItemRef<'_, P> {
        // SAFETY: a handle keeps the item alive; the pointer is that of the whole.
        unsafe { ItemRef::new(self.item) }
    }

    pub(crate) fn header(&self) -> &Item<P> {
        // SAFETY: a handle keeps the item alive.
        unsafe { self.item.as_ref() }
    }

    /// Changes the item's [home](Home). With `None` it has none of its own, and its queue's home applies. Only queues of the home's runtime
    /// use it.
    ///
    /// In effect from the next queueing on: a running execution goes on where it is, and what is queued runs where it was queued.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue, home::Home};
    ///
    /// let queue = Workqueue::builder("tables").build()?;
    /// let work = Work::new(|_| println!("near its data"));
    /// work.set_home(&Home::pick()?);
    /// queue.queue(&work);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn set_home<'a>(&self, home: impl Into<Option<&'a Home<P>>>) {
        self.header().attachment.set_home(home.into().cloned());
    }

    /// Returns the item's own home, if it has one.
    pub fn home(&self) -> Option<Home<P>> {
        self.header().attachment.home()
    }

    /// Cancels the pending execution. Returns true if the item was pending; it is not executed for that queueing. May be called anywhere,
    /// including inside the function.
    ///
    /// Does not wait for a running execution, which goes on and may queue the item again: [`cancel_sync`](Self::cancel_sync) waits for it.
    ///
    /// The item stops counting under the queue's limit at once. If it is queued again afterwards, it goes to the end of the queue.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    /// use std::time::Duration;
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|_| unreachable!("cancelled in time"));
    /// queue.queue_delayed(&work, Duration::from_secs(3600));
    /// assert!(work.is_pending());
    /// assert!(work.cancel());
    /// assert!(!work.is_pending() && !work.cancel());
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn cancel(&self) -> bool {
        self.header().cancel()
    }

    /// Makes the item refuse to be queued, and cancels the pending execution. Returns true if it was pending. May be called anywhere.
    ///
    /// Does not wait for a running execution: [`disable_sync`](Self::disable_sync) does. To await that instead, call `disable`, and then
    /// await [`flushed`](Self::flushed).
    ///
    /// Calls nest: the item can be queued again after as many calls of [`enable`](Self::enable). Attempts to queue it meanwhile are not
    /// remembered.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Work, Workqueue};
    ///
    /// let queue = Workqueue::builder("example").build()?;
    /// let work = Work::new(|_| ());
    /// work.disable();
    /// assert!(!queue.queue(&work));
    /// assert!(work.enable());
    /// assert!(queue.queue(&work));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Panics
    /// At the 4095th call without an `enable`.
    pub fn disable(&self) -> bool {
        self.header().disable();
        self.header().cancel()
    }

    /// Undoes one [`disable`](Self::disable). Returns true if the item can be queued again.
    ///
    /// # Panics
    /// If there was no `disable` to undo. A [`cancel_sync`](Self::cancel_sync) that is under way does not count as one.
    pub fn enable(&self) -> bool {
        self.header().enable()
    }

    /// Returns whether the item refuses to be queued. May be out of date at once.
    pub fn is_disabled(&self) -> bool {
        self.header().is_disabled()
    }

    /// Returns whether both are handles of the same item.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.item == other.item
    }

    /// Returns whether the item is queued, or on a timer, and has not begun. May be out of date at once.
    ///
    /// If the system has refused the runtime's threads, some of the calls try to start them.
    pub fn is_pending(&self) -> bool {
        let pending = self.header().is_pending();
        if pending {
            P::retry_now();
        }
        pending
    }

    /// Returns whether the item is being executed. May be out of date at once.
    pub fn is_running(&self) -> bool {
        self.header().is_running()
    }
}

impl<P: Platform> Clone for Work<P> {
    fn clone(&self) -> Self {
        self.header().add_reference();
        Work { item: self.item }
    }
}

impl<P: Platform> Drop for Work<P> {
    fn drop(&mut self) {
        // SAFETY: this is a handle, which is being dropped.
        unsafe { Item::let_go(self.item) };
    }
}

impl<P: Platform> core::fmt::Debug for Work<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Work")
            .field("function", &self.header().table().name.text())
            .field("pending", &self.is_pending())
            .field("running", &self.is_running())
            .finish()
    }
}
