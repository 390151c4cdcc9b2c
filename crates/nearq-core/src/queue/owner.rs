//! A queue as its items and pwqs know it: the owner of their accounts (`item/account`).

use std::sync::Arc;

use nearq_platform::Platform;

use super::Queue;
use crate::base::wait_queue::Notification;
use crate::item::Item;
use crate::item::account::{AccountRef, Leftover, Owner};
use crate::item::owned::{ItemRef, Pending};
use crate::limit::pool_workqueue::PoolWorkqueue;

impl<P: Platform> PoolWorkqueue<P> {
    /// The queue that the pwq belongs to.
    #[inline]
    pub(crate) fn queue(&self) -> &Queue<P> {
        // SAFETY: the owners of all accounts are queues. A queue outlives its pwqs, and a thread that has the pwq keeps the queue from
        // being freed: see `Account::owner`.
        unsafe { &*self.owner_address().cast() }
    }
}

/// Whether the caller is a worker that serves `queue` right now.
pub(crate) fn serves<P: Platform>(queue: *const Queue<P>) -> bool {
    crate::limit::serving::serves_owner::<P>(queue.cast())
}

/// The queue that the caller serves right now, if it is a worker that serves one.
pub(crate) fn served<P: Platform>() -> Option<Arc<Queue<P>>> {
    crate::limit::serving::with_served::<P, _>(|pwq| {
        // SAFETY: made by `Queue::new`; it is not freed while a worker serves its pwq.
        unsafe { crate::base::shared::share(pwq.queue()) }
    })
}

/// The pwq whose account that is.
fn pwq_of<P: Platform>(account: AccountRef<'_, P>) -> &PoolWorkqueue<P> {
    // SAFETY: each account is the beginning of a pwq, and the borrow has the pointer of the whole pwq.
    unsafe { &*PoolWorkqueue::of(account.as_raw()) }
}

impl<P: Platform> Owner<P> for Queue<P> {
    #[cold]
    fn retire(
        &self,
        account: AccountRef<'_, P>,
        held_back: bool,
        homed: bool,
    ) -> (Notification<P>, Option<Leftover<P>>) {
        let pwq = pwq_of(account);
        if !held_back {
            pwq.pool.count_stale();
            if homed {
                pwq.pool.homed_left();
            }
        }
        // This comes before the count, because the queue's end may be waiting for the count.
        self.begin_visit();
        let node_active = pwq.node_active();
        if held_back {
            if node_active.forget_inactive() {
                self.inner().services.alarm.ask_to_tidy();
            }
            pwq.unhold();
        } else {
            pwq.count_cancelled();
        }
        if node_active.needs_attention() {
            node_active.kick();
        }
        let notification = self.notification_of(pwq);
        (notification, self.end_visit())
    }

    fn begin_visit(&self) {
        self.rundown.begin_visit();
    }

    fn end_visit(&self) -> Option<Leftover<P>> {
        self.rundown.end_visit(|| {
            // SAFETY: `new` has put it into an exposed `Arc`, and the visit keeps it alive.
            let own: Arc<Self> = unsafe { crate::base::shared::share(self) };
            Leftover::new(own)
        })
    }

    fn send(&self, account: AccountRef<'_, P>, node: Option<Pending<P>>) {
        let pwq = pwq_of(account);
        match node {
            Some(node) => pwq.push_any(node),
            None => pwq.node_active().kick(),
        }
    }

    fn submit(self: Arc<Self>, item: ItemRef<'_, P>, node: Pending<P>, cpu: usize) {
        // We enter through the rundown reference: we have no handle of the queue, and its drop must not find it empty while we send the
        // item.
        let mut node = Some(node);
        self.pass(|| {
            if let Some(node) = node.take() {
                self.launch(item, node, cpu);
            }
        });
        // The rundown reference is closed.
        if let Some(node) = node {
            Item::unclaim(item, node);
        }
    }

    #[cold]
    fn notification_of(&self, account: AccountRef<'_, P>) -> Notification<P> {
        self.notification_of(pwq_of(account))
    }

    fn rescues(&self, account: AccountRef<'_, P>) -> bool {
        self.rescuer().is_some_and(|rescuer| rescuer.serves(account.as_raw()))
    }

    fn reap(&self) {
        self.inner().reap_orphans_now();
    }
}
