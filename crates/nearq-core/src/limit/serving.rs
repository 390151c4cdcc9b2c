//! Which queue and which domain the calling worker serves, and what is held back there.

use nearq_platform::Platform;

use crate::item::Item;
use crate::limit::node_active::NodeActive;
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::context::{is_in_item, with_current};

/// Whether the caller is a worker that serves a pwq of that domain right now.
pub(crate) fn serves_domain<P: Platform>(domain: *const NodeActive<P>) -> bool {
    with_served::<P, _>(|pwq| core::ptr::eq(pwq.node_active(), domain)).unwrap_or(false)
}

/// Whether the caller is a worker that serves the queue at that address right now.
pub(crate) fn serves_owner<P: Platform>(queue: *const ()) -> bool {
    with_served::<P, _>(|pwq| core::ptr::addr_eq(pwq.owner_address(), queue)).unwrap_or(false)
}

/// Runs `f` with the pwq that the caller serves right now, if it is a worker that serves one.
pub(crate) fn with_served<P: Platform, R>(f: impl FnOnce(&PoolWorkqueue<P>) -> R) -> Option<R> {
    with_current::<P, _>(|context| {
        // SAFETY: null, or the pwq that this worker serves.
        unsafe { PoolWorkqueue::of(context.account.get()).as_ref() }.map(f)
    })
    .flatten()
}

impl<P: Platform> Item<P> {
    /// The domain in which the item is held back, if the caller's own item has a place there. It exists while that item runs.
    pub(crate) fn held_back_beside_caller(&self) -> Option<*const NodeActive<P>> {
        if !is_in_item::<P>() {
            return None;
        }
        let mut attempt = 0;
        loop {
            let guard = self.lock();
            let domain = guard.held_back_at().map(|account| {
                // SAFETY: each account is the beginning of a pwq; the item is counted there while we have its lock.
                let pwq = account.map(|account| unsafe { &*PoolWorkqueue::of(account.as_raw()) });
                pwq.map(|pwq| core::ptr::from_ref(pwq.node_active()))
            });
            guard.unlock();
            if let Some(domain) = domain {
                return domain.filter(|domain| serves_domain(*domain));
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }
}
