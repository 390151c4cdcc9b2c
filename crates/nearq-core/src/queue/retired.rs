//! Links of former attributes, which are not read any more.
//!
//! Links are never freed before the queue (`change`), and a queue may have had thousands of attributes. A flush, a drop, an issuer that
//! needs credits and a worker that admits items read all links of the queue or of a domain. So once there are many, those on which nothing
//! is left are retired: they accept no more items, and are not read any more. If their attributes come back, new links are made.
//!
//! # Which
//! Both lists of links, the queue's and each domain's, have the newest first. The retired links are the end of a list: from the newest link
//! that can be retired together with all older ones. So before the oldest are retired, the layout in effect gets new links: those that it
//! has may be the oldest of all. All that is known of other layouts is forgotten. A link on which something is left keeps the newer ones in
//! service; they are retired the next time.
//!
//! # An issuer that reads an outdated table
//! It may end up at a retired link, which has no credits. It checks whether the link is retired, counts the item, and checks once more
//! (`Admission::refill`, `Admission::hold_back`). The thread that retires the link marks it, then checks whether something is left. All are
//! `SeqCst`: one of the two sees the other. An issuer that sees that the link is retired takes its count back, and reads the table again.
//! Credits that were requested before do not come to the link, just as those that it had are revoked (`credits`).

use std::collections::BTreeSet;
use std::sync::Arc;

use nearq_platform::{Atomic, Ordering, Platform};

use super::{Config, Queue};
use crate::limit::link::Link;

/// This many links can be read without harm.
const FEW: usize = if cfg!(test) { 4 } else { 128 };

/// When there are too many links.
pub(super) struct Many {
    /// Links in service.
    pub(super) links: usize,
    /// Once there are this many, old ones are retired.
    limit: usize,
}

impl Many {
    pub(super) fn new() -> Self {
        Many { links: 0, limit: FEW }
    }
}

impl<P: Platform> Queue<P> {
    /// The first link that is retired, with all after it; null if there is none.
    pub(crate) fn first_retired(&self) -> *const Link<P> {
        // Acquire: pairs with the release in `retire_links`.
        self.first_retired.load(Ordering::Acquire)
    }

    /// The queue's links, without those that are retired.
    pub(crate) fn links_in_service(&self) -> impl Iterator<Item = &Link<P>> {
        // Before the newest is read: what is retired is on the list by then.
        let end = self.first_retired();
        self.links().take_while(move |link| !core::ptr::eq(*link, end))
    }

    /// Retires links of former attributes if there are many.
    pub(super) fn retire_links(&self, config: &mut Config<P>) {
        // The links in use may be as many, for each set.
        let used = self.current_table().links.len() * (config.sets.made() + 1);
        if config.many.links >= config.many.limit.max(2 * used) {
            self.retire_old_links(config);
        }
    }

    fn retire_old_links(&self, config: &mut Config<P>) {
        config.known.forget();
        let layout = Arc::clone(&self.current_table().layout);
        let table = self.table_for(config, &layout);
        self.use_table(config, table);
        // SAFETY: tables live as long as the queue.
        let table = unsafe { &*table };
        let in_use: BTreeSet<*const Link<P>> = table.links.iter().copied().collect();
        for domain in self.domains() {
            domain.retire_links(|link| in_use.contains(&core::ptr::from_ref(link)));
        }
        let links: Vec<&Link<P>> = self.links_in_service().collect();
        let mut left = links.len();
        for link in links.into_iter().rev().take_while(|link| link.is_retired()) {
            left -= 1;
            // Release: pairs with the acquire in `first_retired`.
            self.first_retired.store(core::ptr::from_ref(link).cast_mut(), Ordering::Release);
        }
        (config.many.links, config.many.limit) = (left, FEW.max(2 * left));
    }
}

#[cfg(test)]
mod tests;
