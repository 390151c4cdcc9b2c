//! What few items need: made when one is first waited for, delayed, or queued again after a cancel. And the word of an item in which it is
//! known, or, where there is none, the stamp of a sample (`observe`): most items have neither, and the header has no room for both.
//!
//! | the word | meaning |
//! |---|---|
//! | null | neither |
//! | odd | a stamp, in all bits but the lowest |
//! | else | a pointer to an [`Extra`], which has room for the stamp; never changes again |
//!
//! Whoever needs the extra makes it and takes the stamp along; of several one wins. The owner of `PENDING` writes the stamp, where the word is
//! no pointer by compare-exchange: if that fails, somebody has made the extra. AcqRel where a pointer is written, Acquire where one may be
//! read: whoever sees it sees what it leads to.

use core::ptr::NonNull;

use nearq_platform::{Atomic, Ordering, Platform};

use crate::delayed::Delay;
use crate::event::Event;
use crate::fork;
use crate::item::Item;
use crate::observe::Stamp;

/// The word of an item that says what else belongs to it.
pub(crate) struct Attachment<P: Platform>(P::AtomicPtr<Extra<P>>);

impl<P: Platform> Attachment<P> {
    pub(crate) fn none() -> Self {
        Attachment(P::AtomicPtr::new(core::ptr::null_mut()))
    }

    fn of_stamp(stamp: Stamp) -> *mut Extra<P> {
        match stamp {
            Stamp::NONE => core::ptr::null_mut(),
            Stamp(bits) => core::ptr::without_provenance_mut((bits << 1 | 1) as usize),
        }
    }

    /// The stamp in the word; none if that is a pointer.
    fn stamp_in(word: *mut Extra<P>) -> Stamp {
        if word.addr() & 1 == 0 { Stamp::NONE } else { Stamp(word.addr() as u64 >> 1) }
    }

    fn pointer_in(word: *mut Extra<P>) -> Option<NonNull<Extra<P>>> {
        NonNull::new(word).filter(|pointer| pointer.addr().get() & 1 == 0)
    }

    /// The extra, if there is one.
    pub(crate) fn extra(&self) -> Option<&Extra<P>> {
        let pointer = Self::pointer_in(self.0.load(Ordering::Acquire))?;
        // SAFETY: made by `extra_or_new`; freed with the word.
        Some(unsafe { pointer.as_ref() })
    }

    /// The extra; made now if there is none.
    pub(crate) fn extra_or_new(&self) -> &Extra<P> {
        if let Some(extra) = self.extra() {
            return extra;
        }
        let made = Box::into_raw(Box::new(Extra::new()));
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if let Some(first) = Self::pointer_in(word) {
                // SAFETY: nobody has seen ours, and the first is freed with the word.
                unsafe {
                    drop(Box::from_raw(made));
                    return first.as_ref();
                }
            }
            // SAFETY: nobody has seen it yet; never borrowed exclusively afterwards.
            let extra: &Extra<P> = unsafe { &*made };
            extra.stamp.store(Self::stamp_in(word).0, Ordering::Relaxed);
            match self.0.compare_exchange(word, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return extra,
                Err(found) => word = found,
            }
        }
    }

    /// The stamp.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        let word = self.0.load(Ordering::Acquire);
        match Self::pointer_in(word) {
            // SAFETY: as in `extra`.
            Some(extra) => Stamp(unsafe { extra.as_ref() }.stamp.load(Ordering::Relaxed)),
            None => Self::stamp_in(word),
        }
    }

    /// Writes the stamp. The caller owns the item's `PENDING`.
    #[inline]
    pub(crate) fn set_stamp(&self, stamp: Stamp) {
        let word = self.0.load(Ordering::Acquire);
        let new = Self::of_stamp(stamp);
        if word == new {
            return;
        }
        let written = Self::pointer_in(word).is_none()
            && self.0.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let (false, Some(extra)) = (written, self.extra()) {
            extra.stamp.store(stamp.0, Ordering::Relaxed);
        }
    }
}

impl<P: Platform> Drop for Attachment<P> {
    #[inline]
    fn drop(&mut self) {
        let word = self.0.load(Ordering::Acquire);
        if word.is_null() {
            return;
        }
        if let Some(extra) = Self::pointer_in(word) {
            // SAFETY: made by `extra_or_new`, and nobody has the item any more.
            drop(unsafe { Box::from_raw(extra.as_ptr()) });
        }
    }
}

/// See the fields.
pub(crate) struct Extra<P: Platform> {
    /// What has ended while somebody waited (`held`). Written under the item's lock.
    pub(crate) ended: P::AtomicU64,
    /// Queueings that were cancelled, while somebody waited, behind the execution that runs: they count when that has ended. Under the
    /// item's lock.
    pub(crate) later: P::AtomicU64,
    /// Who waits. Written under the item's lock.
    pub(crate) waiters: P::AtomicU32,
    /// `ended` has grown.
    pub(crate) event: Event<P>,
    /// The node by which an item that is `AWAY` is queued (`stand_in`). Under the item's lock.
    pub(crate) stand_in: P::AtomicPtr<Item<P>>,
    /// The stamp of a sample.
    stamp: P::AtomicU64,
    /// What the timer needs of the item (`delayed`); null if it never waited for its time. Under the item's lock.
    pub(crate) delay: P::AtomicPtr<Delay<P>>,
}

impl<P: Platform> Extra<P> {
    pub(crate) fn new() -> Self {
        Extra {
            ended: P::AtomicU64::new(0),
            later: P::AtomicU64::new(0),
            waiters: P::AtomicU32::new(0),
            event: Event::new(),
            stand_in: P::AtomicPtr::new(core::ptr::null_mut()),
            stamp: P::AtomicU64::new(Stamp::NONE.0),
            delay: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Nobody waits, and no node is under way: who did and what was are the parent's. What has ended stays counted. In the child
    /// of a fork, by who has the item to itself; `locked` if a thread of the parent had its lock.
    ///
    /// The delay is of another epoch, and is replaced when it is needed (`delayed`); unless it may be half changed, then it is
    /// forgotten.
    pub(crate) fn after_fork_in_child(&self, locked: bool) {
        fork::set(&self.waiters, 0);
        fork::set(&self.stand_in, core::ptr::null_mut());
        self.event.after_fork_in_child();
        if locked {
            fork::set(&self.delay, core::ptr::null_mut());
        }
    }
}

impl<P: Platform> Drop for Extra<P> {
    fn drop(&mut self) {
        crate::delayed::abandon(self.delay.load(Ordering::Acquire));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;

    #[test]
    fn a_stamp_is_kept_where_there_is_an_extra_and_where_there_is_none() {
        let word = Attachment::<Linux>::none();
        assert!(word.stamp() == Stamp::NONE && word.extra().is_none());
        // As large as one can be.
        for stamp in [Stamp(1), Stamp(u64::MAX >> 1), Stamp::NONE, Stamp(7)] {
            word.set_stamp(stamp);
            assert!(word.stamp() == stamp && word.extra().is_none());
        }
        let extra = core::ptr::from_ref(word.extra_or_new());
        assert_eq!(word.stamp(), Stamp(7), "it is taken along");
        for stamp in [Stamp::NONE, Stamp(u64::MAX >> 1)] {
            word.set_stamp(stamp);
            assert_eq!(word.stamp(), stamp);
        }
        assert!(core::ptr::eq(word.extra_or_new(), extra));
    }
}
