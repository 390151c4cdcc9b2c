//! What only few items need: made when an item is first waited for, delayed, or queued again after a cancel. Also the word of an item that
//! points to it or, if there is none, holds the stamp of a sample (`observe`): most items have neither, and the header has no room for
//! both.
//!
//! | the word | meaning |
//! |---|---|
//! | null | neither |
//! | odd | a stamp, in all bits but the lowest |
//! | bit 1 | a handle of a home ([`Home::into_raw`]), in all other bits: of a spawned item, whose home never changes |
//! | otherwise | a pointer to an [`ItemExt`], which has room for the stamp and the home; never changes again |
//!
//! A thread that needs the extension makes it and moves the stamp or the home into it; if several do so, one wins. A thread that reads a
//! home in the word meanwhile may use it while the item lives: the handle stays the same, and is dropped with the item. The home of a
//! [`Work`](crate::Work) can be changed, so it is in the extension, behind a lock. The owner of `PENDING` writes the stamp, by
//! compare-exchange if the word is no pointer: if that fails, another thread has made the extension. AcqRel when a pointer is written,
//! Acquire when one may be read: a thread that sees the pointer sees what it points to.

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Platform};

use crate::base::forked;
use crate::base::wait_queue::WaitQueue;
use crate::homes::{Home, Inside};
use crate::item::Item;
use crate::item::account::Later;
use crate::item::stamp::Stamp;

/// Set in a word whose other bits are the handle of a home.
const HOME: usize = 1 << 1;

/// The word of an item that says what else belongs to it.
pub(crate) struct Attachment<P: Platform>(P::AtomicPtr<ItemExt<P>>);

impl<P: Platform> Attachment<P> {
    pub(crate) fn none() -> Self {
        Attachment(P::AtomicPtr::new(core::ptr::null_mut()))
    }

    fn of_stamp(stamp: Stamp) -> *mut ItemExt<P> {
        match stamp {
            Stamp::NONE => core::ptr::null_mut(),
            Stamp(bits) => core::ptr::without_provenance_mut((bits << 1 | 1) as usize),
        }
    }

    /// The stamp in the word; none if the word is a pointer.
    fn stamp_in(word: *mut ItemExt<P>) -> Stamp {
        if word.addr() & 1 == 0 { Stamp::NONE } else { Stamp(word.addr() as u64 >> 1) }
    }

    fn pointer_in(word: *mut ItemExt<P>) -> Option<NonNull<ItemExt<P>>> {
        NonNull::new(word).filter(|pointer| pointer.addr().get() & (HOME | 1) == 0)
    }

    /// The handle in the word, as it was before it was stored there.
    fn home_in(word: *mut ItemExt<P>) -> Option<*const Inside<P>> {
        let is_home = word.addr() & (HOME | 1) == HOME;
        is_home.then(|| word.map_addr(|address| address & !HOME).cast_const().cast())
    }

    /// The extension, if there is one.
    pub(crate) fn ext(&self) -> Option<&ItemExt<P>> {
        let pointer = Self::pointer_in(self.0.load(Ordering::Acquire))?;
        // SAFETY: made by `ext_or_new`; freed with the word.
        Some(unsafe { pointer.as_ref() })
    }

    /// The extension; made now if there is none.
    pub(crate) fn ext_or_new(&self) -> &ItemExt<P> {
        if let Some(ext) = self.ext() {
            return ext;
        }
        let made = Box::into_raw(Box::new(ItemExt::new()));
        let mut word = self.0.load(Ordering::Acquire);
        loop {
            if let Some(first) = Self::pointer_in(word) {
                // SAFETY: no other thread has seen ours, and the first is freed with the word.
                unsafe {
                    drop(Box::from_raw(made));
                    return first.as_ref();
                }
            }
            // SAFETY: no other thread has seen it yet; never borrowed exclusively afterwards.
            let ext: &ItemExt<P> = unsafe { &*made };
            ext.stamp.store(Self::stamp_in(word).0, Ordering::Relaxed);
            // SAFETY: the word's handle, which belongs to the extension after the exchange; if the exchange fails, it is left alone.
            let home = Self::home_in(word).map(|home| unsafe { Home::from_raw(home) });
            *ext.home.lock() = home;
            match self.0.compare_exchange(word, made, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return ext,
                Err(found) => word = found,
            }
            core::mem::forget(ext.home.lock().take());
        }
    }

    /// The stamp.
    #[inline]
    pub(crate) fn stamp(&self) -> Stamp {
        let word = self.0.load(Ordering::Acquire);
        match Self::pointer_in(word) {
            // SAFETY: made by `ext_or_new`, and freed with the word, which is borrowed.
            Some(ext) => Stamp(unsafe { ext.as_ref() }.stamp.load(Ordering::Relaxed)),
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
        if Self::home_in(word).is_some() && stamp != Stamp::NONE {
            self.ext_or_new().stamp.store(stamp.0, Ordering::Relaxed);
            return;
        }
        let written = Self::pointer_in(word).is_none()
            && Self::home_in(word).is_none()
            && self.0.compare_exchange(word, new, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if let (false, Some(ext)) = (written, self.ext()) {
            ext.stamp.store(stamp.0, Ordering::Relaxed);
        }
    }

    // ---- the home ----------------------------------------------------------------------------------------

    /// Gives the item a home for good. Called by the thread that made the item, before any other thread can reach it.
    pub(crate) fn give_home(&self, home: Home<P>) {
        let raw = home.into_raw().cast_mut().cast::<ItemExt<P>>();
        let word = raw.map_addr(|address| address | HOME);
        let given = self.0.compare_exchange(
            core::ptr::null_mut(),
            word,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        if given.is_err() {
            // SAFETY: from `into_raw` above, and not given away.
            let home = unsafe { Home::from_raw(raw.cast_const().cast()) };
            self.set_home(Some(home));
        }
    }

    /// Changes the item's home. Not called for an item whose home is in the word.
    pub(crate) fn set_home(&self, home: Option<Home<P>>) {
        if home.is_none() && self.ext().is_none() {
            return;
        }
        let before = core::mem::replace(&mut *self.ext_or_new().home.lock(), home);
        // Outside the lock.
        drop(before);
    }

    /// The item's home.
    pub(crate) fn home(&self) -> Option<Home<P>> {
        self.with_home(|home| {
            // SAFETY: the pointer of an `Arc`, which the item's handle keeps alive; this adds the reference that is taken.
            unsafe { Arc::increment_strong_count(home) };
            // SAFETY: the pointer of an `Arc`; this takes over the reference that was added just now.
            Home::of(unsafe { Arc::from_raw(home) })
        })
    }

    /// The result of `read` on the item's home, if it has one. The caller keeps the item alive.
    pub(crate) fn with_home<R>(&self, read: impl FnOnce(*const Inside<P>) -> R) -> Option<R> {
        let word = self.0.load(Ordering::Acquire);
        if let Some(home) = Self::home_in(word) {
            return Some(read(home));
        }
        let home = self.ext()?.home.lock();
        home.as_ref().map(|home| read(Arc::as_ptr(home.inside())))
    }

    /// As [`home`](Self::home), for a worker, which does not wait: also none if another thread is changing it.
    pub(crate) fn home_at_once(&self) -> Option<Home<P>> {
        match self.ext() {
            Some(ext) => ext.home.try_lock()?.clone(),
            None => self.home(),
        }
    }
}

impl<P: Platform> Attachment<P> {
    /// Frees what the word holds. Called by the item's drop before any of its fields is dropped: the simulator forgets a cache line when an
    /// atomic on it is dropped, and the word of an item whose state has been dropped would have to come from memory.
    ///
    /// # Safety
    /// This is called once, and the attachment is not used afterwards.
    #[inline]
    pub(crate) unsafe fn free(&mut self) {
        let word = self.0.load(Ordering::Acquire);
        if !word.is_null() {
            // SAFETY: as the caller says.
            unsafe { Self::free_contents(word) };
        }
    }

    /// # Safety
    /// As for [`free`](Self::free); the word is the attachment's.
    #[inline(never)]
    unsafe fn free_contents(word: *mut ItemExt<P>) {
        if let Some(ext) = Self::pointer_in(word) {
            // SAFETY: made by `ext_or_new`, no other thread has the item, and this is the only call.
            drop(unsafe { Box::from_raw(ext.as_ptr()) });
        } else if let Some(home) = Self::home_in(word) {
            // SAFETY: the word's handle, which is given back once.
            drop(unsafe { Home::from_raw(home) });
        }
    }
}

/// See the fields.
pub(crate) struct ItemExt<P: Platform> {
    /// The count of what has ended while a thread waited (`guard`). Written under the item's lock.
    pub(crate) ended: P::AtomicU64,
    /// Queueings that were cancelled behind the running execution while a thread waited: they count when that execution has ended. Under
    /// the item's lock.
    pub(crate) later: P::AtomicU64,
    /// The number of waiters. Written under the item's lock.
    pub(crate) waiting: P::AtomicU32,
    /// Notified when `ended` has grown.
    pub(crate) waiters: WaitQueue<P>,
    /// Holds on the memory; the item's own is one (`item/holds`).
    pub(crate) holds: P::AtomicU32,
    /// Calls of `cancel_sync` that are under way. Under the item's lock.
    pub(crate) syncs: P::AtomicU32,
    /// The node by which an item that is `PROXIED` is queued (`proxy`). Under the item's lock.
    pub(crate) proxy: P::AtomicPtr<Item<P>>,
    /// The stamp of a sample.
    stamp: P::AtomicU64,
    home: Mutex<Option<Home<P>>, P>,
    /// What the timer needs of the item (`queue/delay`); null if it never waited for its time. Under the item's lock.
    pub(crate) delay: P::AtomicPtr<Later<P>>,
}

impl<P: Platform> ItemExt<P> {
    pub(crate) fn new() -> Self {
        ItemExt {
            ended: P::AtomicU64::new(0),
            later: P::AtomicU64::new(0),
            waiting: P::AtomicU32::new(0),
            waiters: WaitQueue::new(),
            holds: P::AtomicU32::new(1),
            syncs: P::AtomicU32::new(0),
            proxy: P::AtomicPtr::new(core::ptr::null_mut()),
            stamp: P::AtomicU64::new(Stamp::NONE.0),
            home: Mutex::new_in(None),
            delay: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    /// Resets it: the waiters and the nodes under way are the parent's. What has ended stays counted. In the child of a fork, by the thread
    /// that has the item to itself; `locked` if a thread of the parent had its lock.
    ///
    /// The delay belongs to another epoch, and is replaced when it is needed (`queue/delay`); but if it may be half changed, it is
    /// forgotten.
    pub(crate) fn after_fork_in_child(&self, locked: bool) {
        forked::set(&self.waiting, 0);
        forked::set(&self.syncs, 0);
        forked::set(&self.proxy, core::ptr::null_mut());
        self.waiters.after_fork_in_child();
        if self.home.is_locked() {
            // SAFETY: this is the only thread, and it is not in the middle of a change. The value may be half changed: it leaks.
            unsafe { self.home.renew(None) };
        }
        if locked {
            forked::set(&self.delay, core::ptr::null_mut());
        }
    }
}

impl<P: Platform> Drop for ItemExt<P> {
    fn drop(&mut self) {
        // SAFETY: null, or the record of the item, which is being dropped.
        unsafe { Later::abandon(self.delay.load(Ordering::Acquire)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;

    #[test]
    fn a_stamp_is_kept_where_there_is_an_extra_and_where_there_is_none() {
        let mut word = Attachment::<Linux>::none();
        assert!(word.stamp() == Stamp::NONE && word.ext().is_none());
        // The largest possible one.
        for stamp in [Stamp(1), Stamp(u64::MAX >> 1), Stamp::NONE, Stamp(7)] {
            word.set_stamp(stamp);
            assert!(word.stamp() == stamp && word.ext().is_none());
        }
        let ext = core::ptr::from_ref(word.ext_or_new());
        assert_eq!(word.stamp(), Stamp(7), "it is taken along");
        for stamp in [Stamp::NONE, Stamp(u64::MAX >> 1)] {
            word.set_stamp(stamp);
            assert_eq!(word.stamp(), stamp);
        }
        assert!(core::ptr::eq(word.ext_or_new(), ext));
        // SAFETY: the word is not used any more.
        unsafe { word.free() };
    }

    #[test]
    fn a_home_is_kept_in_the_word_or_in_the_extra_and_given_back() {
        let runtime = crate::Runtime::<Linux>::builder().build().unwrap();
        let home = Home::pick_in(&runtime);
        let same = |word: &Attachment<Linux>| word.home().as_ref() == Some(&home);
        let none = Attachment::<Linux>::none();
        assert!(none.home().is_none() && none.home_at_once().is_none());
        none.set_home(None);
        assert!(none.ext().is_none(), "nothing is made for nothing");
        for stamped in [false, true] {
            let mut word = Attachment::<Linux>::none();
            if stamped {
                word.set_stamp(Stamp(3));
            }
            word.give_home(home.clone());
            assert!(same(&word) && word.home_at_once().as_ref() == Some(&home));
            assert_eq!(word.ext().is_some(), stamped, "the word has room for one of them");
            // No sample: the home stays.
            word.set_stamp(Stamp::NONE);
            assert!(same(&word));
            word.set_stamp(Stamp(u64::MAX >> 1));
            assert!(same(&word) && word.stamp() == Stamp(u64::MAX >> 1));
            assert!(word.ext().is_some(), "it takes the home along");
            word.set_home(None);
            assert!(word.home().is_none());
            word.set_home(Some(home.clone()));
            assert!(same(&word));
            // SAFETY: the word is not used any more.
            unsafe { word.free() };
        }
        let inside = Arc::clone(home.inside());
        drop(home);
        assert!(!inside.is_held(), "the words have given theirs back");
    }
}
