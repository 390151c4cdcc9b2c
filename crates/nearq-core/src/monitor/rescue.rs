//! When the monitor calls rescuers, and starts them again in the child of a fork (`run/rescue`).

use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, Instant, Ordering, Platform};

use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;
use crate::queue::Queue;
use crate::queue::runtime::Inner;

/// How often starting rescuers is retried in the child of a fork.
const RETRY: Duration = Duration::from_millis(100);

/// Calls the rescuers that are needed. By the monitor, on each check, when it has done what it can to start workers. Returns whether it
/// must check again soon, because some may be needed.
pub(crate) fn attend<P: Platform>(inner: &Inner<P>, pools: &[Arc<Pool<P>>], now: Instant) -> bool {
    start_anew(inner, now);
    let mut any = false;
    for pool in pools.iter().filter(|pool| pool.spawn_failure.lasts()) {
        if !pool.has_waiting() {
            pool.spawn_failure.begin_anew();
            continue;
        }
        any = true;
        if pool.spawn_failure.is_due(pool.signature(), now) && !call(inner, pool) {
            // Nothing that could be rescued waits now, but something may come.
            pool.spawn_failure.begin_anew();
        }
    }
    any && inner.reserved.load(Ordering::Relaxed) != 0
}

/// Calls the rescuers of the queues that have something at the pool. Returns whether there were any.
pub(crate) fn call<P: Platform>(inner: &Inner<P>, pool: &Arc<Pool<P>>) -> bool {
    let mut any = false;
    for queue in inner.live_queues() {
        let Some(rescuer) = queue.rescuer() else { continue };
        let Some(pwq) = waiting_pwq(&queue, pool) else { continue };
        any = true;
        if rescuer.call(pool) {
            pwq.count_mayday();
        }
    }
    any
}

/// A pwq of the queue that may have something waiting at the pool. What waits may in fact be running, or waiting elsewhere. If something
/// waits but no pwq is returned, a worker will find it.
fn waiting_pwq<'a, P: Platform>(
    queue: &'a Queue<P>,
    pool: &Arc<Pool<P>>,
) -> Option<&'a PoolWorkqueue<P>> {
    let here = |pwq: &&PoolWorkqueue<P>| Arc::ptr_eq(&pwq.pool, pool);
    let kicked = || queue.domains().any(|domain| domain.activation_item.is_active());
    queue
        .pwqs_in_service()
        .filter(here)
        .find(|pwq| pwq.has_waiting())
        .or_else(|| kicked().then(|| queue.pwqs().find(here)).flatten())
        // A helper of this pool may have the item.
        .or_else(|| {
            let helped =
                |pwq: &&PoolWorkqueue<P>| pwq.pool.may_be_helped_by(&pool.key) && pwq.has_waiting();
            queue.pwqs_in_service().find(helped)
        })
}

/// In the child of a fork: starts the rescuers again.
fn start_anew<P: Platform>(inner: &Inner<P>, now: Instant) {
    if inner.services.rescuers_missing.load(Ordering::Relaxed) == 0 {
        return;
    }
    let last = inner.rescuers_tried.load(Ordering::Relaxed);
    if last != 0 && now.as_nanos() < last + RETRY.as_nanos() as u64 {
        return;
    }
    inner.rescuers_tried.store(now.as_nanos().max(1), Ordering::Relaxed);
    // Before the queues are read: a fork after this sets it again, in the child.
    inner.services.rescuers_missing.store(0, Ordering::Relaxed);
    for queue in inner.live_queues() {
        let Some(rescuer) = queue.rescuer() else { continue };
        if let Err(error) = rescuer.start(&queue) {
            if inner.is_stopping() {
                return;
            }
            inner.services.rescuers_missing.store(1, Ordering::Relaxed);
            if last == 0 {
                P::warn(&error.to_string());
            }
            return;
        }
    }
}
