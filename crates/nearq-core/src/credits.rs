//! Admissions that a link has in advance, so that the issuers of one pod write a line of their own.
//!
//! Without them every item of a domain, on whatever CPU it is queued, would write the domain's one counter: on a node
//! with a hundred CPUs the items of all pods would wait for that line, one after the other, however small the pods are.
//!
//! # Protocol
//! One word: how many credits there are, and an epoch. Each credit is counted in the queue's `admitted` already; whoever
//! takes one has nothing more to count.
//! * `take`: an issuer uses one.
//! * `add`: an issuer that got several from the queue (`Admission::refill`) leaves the rest here, if the epoch is the
//!   one that it saw *before* it looked whether the queue is open.
//! * `withdraw`: takes all back, for other links. `revoke`: the same, and moves the epoch on. Who closes a queue revokes
//!   after it has closed: then no credit is left, and none comes: who saw the new epoch saw the queue closed, who saw
//!   the old one cannot add. Whoever has taken back or could not add gives back to the queue.
//!
//! All `SeqCst`, because the order of the closed ceiling and the epoch decides.

use nearq_platform::{Atomic, Ordering, Platform};

/// The part of the word that counts credits; the rest is the epoch.
const CREDITS: u32 = 32;

/// Credits of one link.
pub(crate) struct Credits<P: Platform> {
    word: P::AtomicU64,
}

/// When credits were asked for; those that come later than a revocation do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch(u32);

fn parts(word: u64) -> (u32, Epoch) {
    (word as u32, Epoch((word >> CREDITS) as u32))
}

fn word((credits, Epoch(epoch)): (u32, Epoch)) -> u64 {
    u64::from(epoch) << CREDITS | u64::from(credits)
}

impl<P: Platform> Credits<P> {
    pub(crate) fn new() -> Self {
        Credits { word: P::AtomicU64::new(0) }
    }

    /// Uses one, if there is one.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        self.update(|credits, epoch| Some((credits.checked_sub(1)?, epoch))).is_some()
    }

    /// The epoch that credits which are asked for from now on belong to.
    pub(crate) fn epoch(&self) -> Epoch {
        parts(self.word.load(Ordering::SeqCst)).1
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        parts(self.word.load(Ordering::SeqCst)).0
    }

    /// Adds credits that were asked for at `epoch`. False if they have been revoked since.
    pub(crate) fn add(&self, more: u32, asked: Epoch) -> bool {
        self.update(|credits, epoch| (epoch == asked).then_some((credits + more, epoch))).is_some()
    }

    /// Takes all.
    pub(crate) fn withdraw(&self) -> u32 {
        self.update(|credits, epoch| (credits != 0).then_some((0, epoch))).unwrap_or(0)
    }

    /// Takes all, also those that are on their way here.
    pub(crate) fn revoke(&self) -> u32 {
        self.update(|_, Epoch(epoch)| Some((0, Epoch(epoch.wrapping_add(1))))).unwrap_or(0)
    }

    /// Changes the word unless `change` finds nothing to change; the credits that there were.
    #[inline]
    fn update(&self, change: impl Fn(u32, Epoch) -> Option<(u32, Epoch)>) -> Option<u32> {
        let mut seen = self.word.load(Ordering::SeqCst);
        let mut attempt = 0;
        loop {
            let (credits, epoch) = parts(seen);
            let changed = word(change(credits, epoch)?);
            match self.word.compare_exchange_weak(seen, changed, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return Some(credits),
                Err(_) => crate::pause::after_failure::<P>(&mut attempt),
            }
            seen = self.word.load(Ordering::SeqCst);
        }
    }
}
