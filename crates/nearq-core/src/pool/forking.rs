//! What a pool records of workers whose items fork (`fork_join`): their deques, and whether only optional items wait, such as thieves.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::Pool;
use crate::deque::Deque;

impl<P: Platform> Pool<P> {
    /// The item of a worker begins to fork, or has ended.
    pub(crate) fn change_forking(&self, more: bool) {
        // Relaxed: a worker that begins to fork has a light fence after this, and a thief that leaves has a heavy one before it reads this
        // (`queue/thieves`).
        if more {
            self.forking.fetch_add(1, Ordering::Relaxed);
        } else {
            self.forking.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// The deques of this pool that are in use for that group, each with its worker.
    pub(crate) fn deques(&self, group: *const ()) -> impl Iterator<Item = &Deque<P>> {
        let forking = self.forking.load(Ordering::Relaxed) != 0;
        let entries = forking.then(|| self.entries()).into_iter().flatten();
        entries
            .filter_map(|worker| worker.deque.get())
            .filter(move |deque| core::ptr::eq(deque.group(), group))
    }

    /// Whether nothing waits except optional items. By the monitor.
    pub(crate) fn waits_for_optional_only(&self) -> bool {
        if self.has_batches() {
            return false;
        }
        let listed = &*self.listed;
        // A worker that holds it is about to take something.
        let Some(mut ready) = listed.ready.try_lock() else { return false };
        self.gather(&mut ready);
        listed.len.store(ready.len() as u32, Ordering::SeqCst);
        let only = ready.nodes().all(|item| {
            let item = NonNull::new(item.cast_mut()).expect("there are no null nodes");
            // SAFETY: what is on the list stays alive while we have its lock.
            let table = unsafe { item.as_ref() }.table();
            // SAFETY: it is the item's own table.
            unsafe { (table.is_optional)(item) }
        });
        drop(ready);
        if self.has_work() {
            // As in `tidy`.
            self.call_again();
        }
        only
    }
}
