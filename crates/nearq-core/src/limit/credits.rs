//! Admissions that a pwq has in advance, so that the issuers of one pod write a line of their own.
//!
//! Without them every item of a domain, on whichever CPU it is queued, would write the domain's one counter: on a node with a hundred CPUs
//! the items of all pods would wait for that line, one after the other, however small the pods are.
//!
//! # Protocol
//! One word: how many credits there are, a version, and how many items have *entered* (were admitted on this pwq, all in all). Each credit
//! is already counted in the domain's `admitted`; a thread that takes one has nothing more to count.
//! * `take`: an issuer uses a credit, and its item has entered.
//! * `enter`: an item enters that was admitted without a credit. `enter_with`: the same, by an issuer that got several credits from the
//!   domain (`NodeActive::refill`); it leaves the rest here, if the version is the one that it saw *before* it checked whether the queue is
//!   open.
//! * `withdraw`: takes all back, for other pwqs. `revoke`: the same, and increments the version. A thread that closes a queue revokes after
//!   it has closed. Then no credit is left, and none comes: a thread that saw the new version saw the queue closed, and one that saw the
//!   old version cannot add. A thread that has taken credits back or could not add them returns them to the domain.
//!
//! An item has entered before any worker can run it: so if as many have ended as have entered, none is left. That costs nothing: `take`
//! adds one number to the word, whatever is in it. The count has 32 bits, and so have the counts that it is compared with: far fewer items
//! than that are on pools and running.
//!
//! # Races
//! If many CPUs of one pod change the word by compare-exchange, one succeeds at a time, and each of the others has fetched the line for
//! nothing: with 128 issuers, that took most of the time of queueing. So `take` tries once. An issuer that loses the race goes to the domain
//! as if there were no credit. There it is admitted by additions, which cannot fail; and since credits are left, it brings no more.
//!
//! All are `SeqCst`, because the order of the closed ceiling and the version matters, and (`pool_workqueue`) that of what has entered and
//! ended.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

/// Where the version begins in the word; credits come before it.
const VERSION: u32 = 10;
/// Where the count of what has entered begins.
const ENTERED: u32 = 32;
/// As many as fit; the excess goes back.
const MOST: u32 = (1 << VERSION) - 1;
const VERSIONS: u32 = (1 << (ENTERED - VERSION)) - 1;
const ONE_ENTERED: u64 = 1 << ENTERED;

/// Credits of one pwq.
pub(crate) struct Credits<P: Platform> {
    word: P::AtomicU64,
}

/// When credits were requested; those that come later than a revocation do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Version(u32);

fn credits(word: u64) -> u32 {
    word as u32 & MOST
}

fn version(word: u64) -> Version {
    Version(word as u32 >> VERSION)
}

/// `word` with no credits and the next version.
fn next_version(word: u64) -> u64 {
    let Version(before) = version(word);
    let next = before.wrapping_add(1) & VERSIONS;
    (word & !(ONE_ENTERED - 1)) | u64::from(next << VERSION)
}

impl<P: Platform> Credits<P> {
    pub(crate) fn new() -> Self {
        Credits { word: P::AtomicU64::new(0) }
    }

    /// Uses one, if there is one and no other thread changes the word at the same time.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        let seen = self.word.load(Ordering::SeqCst);
        // One credit less, and one more item that has entered.
        let taken = seen.wrapping_add(ONE_ENTERED - 1);
        let (success, failure) = (Ordering::SeqCst, Ordering::SeqCst);
        credits(seen) != 0 && self.word.compare_exchange(seen, taken, success, failure).is_ok()
    }

    /// The version of credits that are requested from now on.
    pub(crate) fn version(&self) -> Version {
        version(self.word.load(Ordering::SeqCst))
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        credits(self.word.load(Ordering::SeqCst))
    }

    /// How many items have entered, in 32 bits.
    pub(crate) fn entered(&self) -> u32 {
        (self.word.load(Ordering::SeqCst) >> ENTERED) as u32
    }

    /// Counts an item that was admitted without a credit.
    pub(crate) fn enter(&self) {
        self.word.fetch_add(ONE_ENTERED, Ordering::SeqCst);
    }

    /// Takes back an [`enter`](Self::enter): the item goes elsewhere.
    pub(crate) fn leave(&self) {
        self.word.fetch_sub(ONE_ENTERED, Ordering::SeqCst);
    }

    /// As [`enter`](Self::enter), with more credits that were requested at `asked`. False if these have been revoked since, or are too many
    /// to fit: then they are not added.
    pub(crate) fn enter_with(&self, more: u32, asked: Version) -> bool {
        let added = self.update(|word| {
            let fits = version(word) == asked && credits(word) + more <= MOST;
            fits.then(|| word.wrapping_add(ONE_ENTERED + u64::from(more)))
        });
        if added.is_none() {
            self.enter();
        }
        added.is_some()
    }

    /// Takes all.
    pub(crate) fn withdraw(&self) -> u32 {
        let before = self.update(|word| (credits(word) != 0).then(|| word & !u64::from(MOST)));
        before.map_or(0, credits)
    }

    /// Takes all, including those that are on their way here.
    pub(crate) fn revoke(&self) -> u32 {
        self.update(|word| Some(next_version(word))).map_or(0, credits)
    }

    /// Resets it to no credits, and as many items entered as have `ended`. In the child of a fork, where no thread brings any.
    pub(crate) fn after_fork_in_child(&self, ended: u32) {
        let rest = self.word.load(Ordering::Relaxed) & (ONE_ENTERED - 1) & !u64::from(MOST);
        crate::base::forked::set(&self.word, u64::from(ended) << ENTERED | rest);
    }

    /// Changes the word unless `change` finds nothing to change; returns the word before.
    #[inline]
    fn update(&self, change: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut seen = self.word.load(Ordering::SeqCst);
        let mut attempt = 0;
        loop {
            let changed = change(seen)?;
            match self.word.compare_exchange_weak(seen, changed, Ordering::SeqCst, Ordering::SeqCst)
            {
                Ok(_) => return Some(seen),
                Err(_) => crate::base::pause::after_failure::<P>(&mut attempt),
            }
            seen = self.word.load(Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use nearq_platform::Linux;

    use super::*;

    #[test]
    fn each_number_keeps_its_place() {
        let all = Credits::<Linux>::new();
        let first = all.version();
        assert!(!all.take() && all.entered() == 0, "there is none");
        assert!(all.enter_with(3, first));
        assert_eq!((all.count(), all.entered(), all.version()), (3, 1, first));
        assert!(all.take());
        assert_eq!((all.count(), all.entered(), all.version()), (2, 2, first));
        assert_eq!(all.withdraw(), 2);
        assert_eq!((all.count(), all.entered(), all.version()), (0, 2, first));
        all.enter();
        all.leave();
        assert_eq!((all.count(), all.entered(), all.version()), (0, 2, first));
        assert!(all.enter_with(5, first));
        assert_eq!(all.revoke(), 5);
        assert_ne!(all.version(), first);
        assert!(!all.enter_with(5, first), "asked for before the revocation");
        assert_eq!((all.count(), all.entered()), (0, 4), "but it has entered");
    }

    #[test]
    fn nothing_flows_over_into_its_neighbour() {
        let all = Credits::<Linux>::new();
        // The last version, and the last item but one.
        all.word.store(!u64::from(MOST) - ONE_ENTERED, Ordering::SeqCst);
        assert!(all.enter_with(MOST, all.version()));
        assert_eq!((all.count(), all.entered()), (MOST, u32::MAX));
        assert!(!all.enter_with(1, all.version()), "no more fit");
        assert_eq!((all.count(), all.entered()), (MOST, 0));
        assert_eq!(all.revoke(), MOST);
        assert_eq!((all.count(), all.entered(), all.version()), (0, 0, Version(0)));
    }
}
