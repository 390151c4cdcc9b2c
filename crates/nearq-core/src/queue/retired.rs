//! Pwqs of former attributes, which are not read any more.
//!
//! Pwqs are never freed before the queue (`change`), and a queue may have had thousands of attributes. A flush, a drop, an issuer that
//! needs credits and a worker that admits items read all pwqs of the queue or of a domain. So once there are many, those on which nothing
//! is left are retired: they accept no more items, and are not read any more. If their attributes come back, new pwqs are made.
//!
//! # Which
//! Both lists of pwqs, the queue's and each domain's, have the newest first. The retired pwqs are the end of a list: from the newest pwq
//! that can be retired together with all older ones. So before the oldest are retired, the layout in effect gets new pwqs: those that it
//! has may be the oldest of all. All that is known of other layouts is forgotten. A pwq on which something is left keeps the newer ones in
//! service; they are retired the next time.
//!
//! # An issuer that reads an outdated CPU map
//! It may end up at a retired pwq, which has no credits. It checks whether the pwq is retired, counts the item, and checks once more
//! (`NodeActive::refill`, `NodeActive::hold_back`). The thread that retires the pwq marks it, then checks whether something is left. All
//! are `SeqCst`: one of the two sees the other. An issuer that sees that the pwq is retired takes its count back, and reads the CPU map
//! again. Credits that were requested before do not come to the pwq, just as those that it had are revoked (`credits`).

use std::collections::BTreeSet;
use std::sync::Arc;

use nearq_platform::{Atomic, Ordering, Platform};

use super::{Config, Queue};
use crate::limit::pool_workqueue::PoolWorkqueue;

/// Reading this many pwqs costs little.
const FEW: usize = if cfg!(test) { 4 } else { 128 };

/// When there are too many pwqs.
pub(super) struct Many {
    /// Pwqs in service.
    pub(super) pwqs: usize,
    /// Once there are this many, old ones are retired.
    limit: usize,
}

impl Many {
    pub(super) fn new() -> Self {
        Many { pwqs: 0, limit: FEW }
    }
}

impl<P: Platform> Queue<P> {
    /// The first pwq that is retired, with all after it; null if there is none.
    pub(crate) fn first_retired(&self) -> *const PoolWorkqueue<P> {
        // Acquire: pairs with the release in `retire_pwqs`.
        self.first_retired.load(Ordering::Acquire)
    }

    /// The queue's pwqs, without those that are retired.
    pub(crate) fn pwqs_in_service(&self) -> impl Iterator<Item = &PoolWorkqueue<P>> {
        // Before the newest is read: what is retired is on the list by then.
        let end = self.first_retired();
        self.pwqs().take_while(move |pwq| !core::ptr::eq(*pwq, end))
    }

    /// Retires pwqs of former attributes if there are many.
    pub(super) fn retire_pwqs(&self, config: &mut Config<P>) {
        // The pwqs in use may be as many, for each set.
        let used = self.current_map().pwqs.len() * (config.sets.made() + 1);
        if config.many.pwqs >= config.many.limit.max(2 * used) {
            self.retire_old_pwqs(config);
        }
    }

    fn retire_old_pwqs(&self, config: &mut Config<P>) {
        config.known.forget();
        let layout = Arc::clone(&self.current_map().layout);
        let cpu_map = self.map_for(config, &layout);
        self.use_map(config, cpu_map);
        // SAFETY: CPU maps live as long as the queue.
        let cpu_map = unsafe { &*cpu_map };
        let in_use: BTreeSet<*const PoolWorkqueue<P>> = cpu_map.pwqs.iter().copied().collect();
        for domain in self.domains() {
            domain.retire_pwqs(|pwq| in_use.contains(&core::ptr::from_ref(pwq)));
        }
        let pwqs: Vec<&PoolWorkqueue<P>> = self.pwqs_in_service().collect();
        let mut left = pwqs.len();
        for pwq in pwqs.into_iter().rev().take_while(|pwq| pwq.is_retired()) {
            left -= 1;
            // Release: pairs with the acquire in `first_retired`.
            self.first_retired.store(core::ptr::from_ref(pwq).cast_mut(), Ordering::Release);
        }
        (config.many.pwqs, config.many.limit) = (left, FEW.max(2 * left));
    }
}

#[cfg(test)]
mod tests;
