//! Fork-join: [`join`], [`Workqueue::join`], [`Workqueue::for_each`] and [`Workqueue::install`].

use core::ops::Range;

use nearq_platform::{Linux, Platform};

use crate::user::workqueue::Workqueue;

/// Runs two closures, possibly at the same time, and returns both results.
///
/// The caller runs `a`. Meanwhile another worker may run `b`; if none has begun it when `a` has returned, the caller runs it too. So a fork
/// costs little more than two calls if all CPUs are busy, and a recursive algorithm needs no cut-off for the sake of the forks.
///
/// **Inside an item**, this forks on the item's own queue, as [`Workqueue::join`] of that queue does. Anywhere else, it forks on
/// [`system::unbound`](crate::system::unbound): both closures run in its workers, and the caller sleeps meanwhile.
///
/// ```
/// # use nearq_core as nearq;
/// fn sum(numbers: &[u64]) -> u64 {
///     if numbers.len() <= 1000 {
///         return numbers.iter().sum();
///     }
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     let (left, right) = nearq::join(|| sum(left), || sum(right));
///     left + right
/// }
///
/// let numbers: Vec<u64> = (0..100_000).collect();
/// assert_eq!(sum(&numbers), 4_999_950_000);
/// ```
///
/// # Panics
/// As [`Workqueue::join`]; outside of items also if the process-wide runtime cannot be made
/// ([`Runtime::try_global`](crate::Runtime::try_global)).
#[inline(always)]
pub fn join<A, B, RA, RB>(a: A, b: B) -> (RA, RB)
where
    A: FnOnce() -> RA + Send,
    B: FnOnce() -> RB + Send,
    RA: Send,
    RB: Send,
{
    crate::fork_join::join::<Linux, _, _, _, _>(a, b, |a, b| {
        crate::user::default::unbound().join(a, b)
    })
}

impl<P: Platform> Workqueue<P> {
    /// Runs two closures on this queue, possibly at the same time, and returns both results.
    ///
    /// Inside one of the queue's own items, the caller runs `a`. Meanwhile another worker of the queue may run `b`; if none has begun it
    /// when `a` has returned, the caller runs it too. Anywhere else, the caller sleeps until an item of the queue has done so.
    ///
    /// The workers that help are items of this queue, so its scope, CPU mask, priority, [`max_active`](crate::WorkqueueBuilder::max_active)
    /// and homes apply to them: the nearest workers take the oldest closures. They count as completed items, and as
    /// [thieves](crate::inspect::PoolStatistics::thieves). On ordered queues, per-CPU queues, and queues with a `max_active` of 1, both
    /// closures run one after the other.
    ///
    /// A closure may block; another worker runs in its place, as for any item. While a caller waits for `b`, it runs only closures that `a`
    /// or `b` has forked, or spawned in a scope around this call. So no unrelated closure can want a lock that the caller holds.
    ///
    /// **Limits.** The worker that runs `b` takes a place under `max_active`, and the caller keeps its own while it waits. So a closure
    /// that waits for another item of the queue needs a limit that has room for that item, the caller and the worker; otherwise it can wait
    /// for ever. The same holds for a [limit on threads](crate::RuntimeBuilder::thread_limit). A stolen closure may be half of a
    /// computation: other items that need its place or its worker wait until it ends.
    ///
    /// What `b` did is visible to the caller. What the caller did before is visible to both closures.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::Workqueue;
    ///
    /// let queue = Workqueue::builder("sorting").build()?;
    /// let (mut low, mut high) = (vec![3, 1, 2], vec![9, 8, 7]);
    /// queue.join(|| low.sort(), || high.sort());
    /// assert_eq!((low, high), (vec![1, 2, 3], vec![7, 8, 9]));
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Panics
    /// With the panic of `a`, or else of `b`, after both have ended. With the text of the [`Error`](crate::Error) if the queue refuses the
    /// closures, because it is being [drained](Self::drain) or the runtime was shut down. In the child of a fork that one closure makes, if
    /// a thread of the parent runs the other one.
    #[inline(always)]
    pub fn join<A, B, RA, RB>(&self, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce() -> RA + Send,
        B: FnOnce() -> RB + Send,
        RA: Send,
        RB: Send,
    {
        if self.is_served_here() {
            crate::fork_join::join::<P, _, _, _, _>(a, b, |a, b| (a(), b()))
        } else {
            self.install(|| self.join(a, b))
        }
    }

    /// Calls `f` once with each index of the range, possibly several at the same time, and waits until all calls have returned.
    ///
    /// The range is halved by [`join`](Self::join) down to single indexes, so it does no harm if calls take very different times. A fork
    /// costs a few nanoseconds. If a call does not take much longer than that, let each call handle several elements:
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use std::sync::atomic::{AtomicU64, Ordering};
    ///
    /// let queue = nearq::Workqueue::builder("sums").build()?;
    /// let numbers: Vec<u64> = (0..100_000).collect();
    /// let sum = AtomicU64::new(0);
    /// let parts: Vec<&[u64]> = numbers.chunks(1000).collect();
    /// queue.for_each(0..parts.len(), |part| {
    ///     sum.fetch_add(parts[part].iter().sum(), Ordering::Relaxed);
    /// });
    /// assert_eq!(sum.into_inner(), 4_999_950_000);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// What the calls did is visible to the caller.
    ///
    /// # Panics
    /// With the panic of the lowest index whose call panicked, after all calls have ended. If the queue refuses the calls, or if one of
    /// them forks the process: as [`join`](Self::join).
    pub fn for_each(&self, range: Range<usize>, f: impl Fn(usize) + Sync) {
        fn halves<P: Platform>(
            queue: &Workqueue<P>,
            range: Range<usize>,
            f: &(impl Fn(usize) + Sync),
        ) {
            if range.len() == 1 {
                return f(range.start);
            }
            let middle = range.start + range.len() / 2;
            queue.join(
                || halves(queue, range.start..middle, f),
                || halves(queue, middle..range.end, f),
            );
        }
        if !range.is_empty() {
            self.install(|| halves(self, range, &f));
        }
    }

    /// Runs `f` in a worker of this queue, waits for it, and returns its result. Inside one of the queue's own items, `f` is called
    /// directly.
    ///
    /// In `f`, [`join`] forks on this queue. If the caller is a worker, another one runs in its place while it waits.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{AffinityScope, Workqueue};
    ///
    /// // Forks stay among CPUs that share a cache.
    /// let queue = Workqueue::builder("near").affinity_scope(AffinityScope::Cache).build()?;
    /// let (a, b) = queue.install(|| nearq::join(|| 1, || 2));
    /// assert_eq!(a + b, 3);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Panics
    /// With the panic of `f`. If the queue refuses `f`: as [`join`](Self::join).
    pub fn install<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        if self.is_served_here() {
            return f();
        }
        let mut result = None;
        self.scope(|scope| scope.spawn(|| result = Some(f())));
        result.expect("a scope ends after its closures")
    }
}
