//! Settings and statistics of one mutex.
//!
//! A mutex of four bytes has no room for them, so they are in a slot (`slot.rs`), which is the mutex's from the first time that
//! it is given settings until it is dropped, whether waiters queue up there or not: the slot is *kept*. The word names it then,
//! with `NUMA` or without. Such a word is never zero, so every lock and unlock takes the longer way, and what is wanted is
//! counted there. Mutexes without settings of their own pay nothing.
//!
//! # Who may touch what
//! Slots are kept and let go by who holds the mutex, as they are bound and unbound, or by who has it alone. Anybody who has found the
//! slot in the word may read the settings and count: at worst the slot is another mutex's by then, and one wait follows the
//! settings, or is found in the counts, of that one.

use core::fmt;

use nearq_platform::{Atomic, Ordering, Platform};

use crate::RawMutex;
use crate::room::{MOMENT, Room, Stock};
use crate::settings::Settings;
use crate::statistics::{Counts, Event, Statistics};
use crate::word::{SLOT, SLOT_SHIFT, slot};

/// The counts of one mutex, by domain.
struct AllCounts<P: Platform>(Box<[Counts<P>]>);

/// What a slot holds for a mutex that keeps it.
pub(crate) struct Own<P: Platform> {
    /// 1 while it is kept.
    kept: P::AtomicU32,
    /// Packed.
    settings: P::AtomicU64,
    /// Made when something is to be counted, and freed with the slot.
    counts: P::AtomicPtr<AllCounts<P>>,
}

impl<P: Platform> Own<P> {
    pub(crate) fn new() -> Self {
        Own {
            kept: P::AtomicU32::new(0),
            settings: P::AtomicU64::new(0),
            counts: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    pub(crate) fn is_kept(&self) -> bool {
        // Acquire: pairs with the release in `keep`.
        self.kept.load(Ordering::Acquire) != 0
    }

    /// The settings, if the slot is kept.
    pub(crate) fn settings(&self) -> Option<Settings> {
        // Relaxed: a number; nothing is published with it.
        self.is_kept().then(|| Settings::unpack(self.settings.load(Ordering::Relaxed)))
    }

    /// The slot is the mutex's from now on.
    fn keep(&self, settings: Settings, domains: usize) {
        if settings.count {
            self.begin_to_count(domains);
        }
        // Relaxed: as above.
        self.settings.store(settings.pack(), Ordering::Relaxed);
        // Release: pairs with the acquire in `is_kept`.
        self.kept.store(1, Ordering::Release);
    }

    fn begin_to_count(&self, domains: usize) {
        if let Some(counts) = self.counts() {
            if !self.is_kept() {
                counts.iter().for_each(Counts::clear);
            }
            return;
        }
        let counts = Box::new(AllCounts((0..domains).map(|_| Counts::new()).collect()));
        // Release: pairs with the acquire in `counts`. Nobody else writes it: the caller holds the mutex.
        self.counts.store(Box::into_raw(counts), Ordering::Release);
    }

    /// The slot is no mutex's any more.
    pub(crate) fn let_go(&self) {
        // Release: the settings are not looked at any more by who follows.
        self.kept.store(0, Ordering::Release);
    }

    fn counts(&self) -> Option<&[Counts<P>]> {
        // Acquire: pairs with the release in `begin_to_count`.
        let counts = self.counts.load(Ordering::Acquire);
        // SAFETY: null, or made above, and freed with `self` only.
        unsafe { counts.as_ref() }.map(|counts| &*counts.0)
    }

    pub(crate) fn add(&self, domain: usize, event: Event) {
        if let Some(counts) = self.counts() {
            counts[domain].add(event);
        }
    }
}

impl<P: Platform> Drop for Own<P> {
    fn drop(&mut self) {
        // Relaxed: nobody else has it.
        let counts = self.counts.load(Ordering::Relaxed);
        if !counts.is_null() {
            // SAFETY: made by `Box::into_raw` above, and nobody uses it any more.
            drop(unsafe { Box::from_raw(counts) });
        }
    }
}

/// All the places are taken in which mutexes have settings of their own, or queues by cache.
///
/// There are 4095 in a process. A mutex has one from the first time that it is given settings until it is dropped, and others have one
/// while hand-overs cross caches often.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TooManySettings;

impl fmt::Display for TooManySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(
            "4095 mutexes of this process have settings of their own, or queues by cache, and there is no room for more; change \
             the settings of the process, or drop a mutex that has its own",
        )
    }
}

nearq_platform::debug_as_display!(TooManySettings);

impl core::error::Error for TooManySettings {}

impl<P: Platform> RawMutex<P> {
    /// How this mutex behaves: by its own settings, or by those of the process.
    pub fn settings(&self) -> Settings {
        Room::<P>::get().settings_of(self.word_now())
    }

    /// Gives the mutex settings of its own, which it has until it is dropped, instead of those of the process. Takes the lock for that,
    /// as changes of how waiters queue up are made by the thread that holds it. Where the new mode has no queues by cache, the next
    /// waiter that is handed the lock gives them up, and those behind it queue up anew. From other changes on, waiters follow as soon as
    /// the queues that they are in are empty.
    ///
    /// Values out of bounds are clamped, which is said by a warning the first time. Locking and unlocking a free mutex takes some 20 ns
    /// more from then on.
    ///
    /// # Errors
    /// If 4095 mutexes have settings of their own, or queues by cache.
    ///
    /// ```
    /// use nearq_lock::{Mode, RawMutex, Settings};
    ///
    /// let mutex = RawMutex::new();
    /// let mut settings = mutex.settings();
    /// (settings.mode, settings.count) = (Mode::Plain, true);
    /// mutex.set_settings(settings)?;
    /// mutex.lock();
    /// assert_eq!(mutex.statistics().map(|counted| counted.acquisitions), Some(1));
    /// # unsafe { mutex.unlock() };
    /// # Ok::<(), nearq_lock::TooManySettings>(())
    /// ```
    pub fn set_settings(&self, settings: Settings) -> Result<(), TooManySettings> {
        let settings = settings.within_bounds::<P>();
        let room = Room::<P>::get();
        loop {
            self.lock();
            let kept = self.keep_slot(room, settings);
            // SAFETY: taken above.
            unsafe { self.unlock() };
            if kept.is_some() {
                return Ok(());
            }
            // Not while the mutex is held.
            match room.stock() {
                Stock::Ready => {}
                Stock::Busy => P::sleep(MOMENT),
                Stock::Exhausted => return Err(TooManySettings),
            }
        }
    }

    /// Nothing if no slot is there to be kept. The caller holds the mutex.
    fn keep_slot(&self, room: &Room<P>, settings: Settings) -> Option<()> {
        // The slot in the word is changed by the holder only.
        let own = slot(self.word_now());
        let number = match own {
            0 => room.slots.take_made()?,
            own => own,
        };
        room.slots.get(number).own.keep(settings, room.domains.len());
        if own == 0 {
            self.change_word(|word| word | number << SLOT_SHIFT);
        }
        Some(())
    }

    /// What happened at this mutex since it was given settings that say `count`; nothing if they do not.
    ///
    /// The numbers go on while they are read: they fit together only if nobody uses the mutex.
    pub fn statistics(&self) -> Option<Statistics> {
        let word = self.word_now();
        if word & SLOT == 0 {
            return None;
        }
        let own = &Room::<P>::get().slots.get(slot(word)).own;
        own.settings().filter(|settings| settings.count)?;
        own.counts().map(Statistics::of)
    }
}
