//! What was seen on a list of items while its lock was held, to be examined afterwards (`snapshot`).

use nearq_platform::Platform;

use crate::item::account::Account;
use crate::item::stamp::Stamp;
use crate::item::{Item, ItemVtable};

/// The most nodes that are examined in one place: some 10 us.
pub(crate) const MOST: usize = 512;

/// What is recorded of a node on a list.
pub(crate) struct Seen<P: Platform> {
    pub(crate) table: &'static ItemVtable<P>,
    /// The pointer is compared, never followed: what it points to may be gone.
    pub(crate) account: *const Account<P>,
    pub(crate) stamp: Stamp,
}

/// Nodes that were seen in one place, without allocating.
pub(crate) struct WaitSnapshot<P: Platform> {
    pub(crate) seen: Vec<Seen<P>>,
    /// Whether there were more.
    more: bool,
}

impl<P: Platform> WaitSnapshot<P> {
    pub(crate) fn new() -> Self {
        WaitSnapshot { seen: Vec::with_capacity(MOST), more: false }
    }

    /// Notes the nodes.
    ///
    /// # Safety
    /// They are alive during the call, and their tables are their own or proxies'.
    pub(crate) unsafe fn note(&mut self, nodes: impl Iterator<Item = *const Item<P>>) {
        for node in nodes {
            if self.seen.len() == MOST {
                self.more = true;
                return;
            }
            // SAFETY: as the caller says.
            let item = unsafe { &*node };
            let account = item.accounted();
            // The activation item has none; a cancelled one is not waited for.
            if account.is_null() || item.is_stale() {
                continue;
            }
            // SAFETY: on a list, and not stale a moment ago: it stays there, so it is a proxy or none.
            let table = unsafe { crate::item::proxy::table_of(item) };
            self.seen.push(Seen { table, account, stamp: item.stamp() });
        }
    }

    /// Whether there were more nodes than were noted.
    pub(crate) fn is_full(&self) -> bool {
        self.more
    }
}
