//! Which queue and which domain the calling worker serves, and what is held back there.

use nearq_platform::Platform;

use crate::item::Item;
use crate::limit::admission::Admission;
use crate::limit::link::Link;
use crate::pool::context::{is_in_item, with_current};

/// Whether the caller is a worker that serves a link of that domain right now.
pub(crate) fn serves_domain<P: Platform>(domain: *const Admission<P>) -> bool {
    serves_link::<P>(|link| core::ptr::eq(link.admission(), domain))
}

/// Whether the caller is a worker that serves the queue at that address right now.
pub(crate) fn serves_owner<P: Platform>(queue: *const ()) -> bool {
    serves_link::<P>(|link| core::ptr::addr_eq(link.owner_address(), queue))
}

/// Whether the caller is a worker that serves such a link right now.
fn serves_link<P: Platform>(is_it: impl FnOnce(&Link<P>) -> bool) -> bool {
    with_current::<P, _>(|context| {
        // SAFETY: null, or the link that this worker serves.
        unsafe { Link::of(context.account.get()).as_ref() }.is_some_and(is_it)
    })
    .unwrap_or(false)
}

impl<P: Platform> Item<P> {
    /// The domain in which the item is held back, if the caller's own item has a place there. It exists while that item runs.
    pub(crate) fn held_back_beside_caller(&self) -> Option<*const Admission<P>> {
        if !is_in_item::<P>() {
            return None;
        }
        let mut attempt = 0;
        loop {
            let guard = self.lock();
            let domain = guard.held_back_at().map(|account| {
                // SAFETY: each account is the beginning of a link; the item is counted there while we have its lock.
                let link = account.map(|account| unsafe { &*Link::of(account.as_raw()) });
                link.map(|link| core::ptr::from_ref(link.admission()))
            });
            guard.unlock();
            if let Some(domain) = domain {
                return domain.filter(|domain| serves_domain(*domain));
            }
            crate::base::pause::for_holder::<P>(&mut attempt);
        }
    }
}
