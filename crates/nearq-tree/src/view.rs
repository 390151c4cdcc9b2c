//! The table as a slice of words: all operations that read and count, for nearq and for members alike.
//!
//! Nothing here trusts the contents of the table. Positions come from the layout, which is checked against the slice once. Numbers that are
//! read are bounded before they are used, and an entry with a home that does not exist is ignored. Nothing allocates and nothing panics:
//! this also runs in a program before its `main`.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{Entry, Layout, MAGIC, header, home};

/// A number of tasks above this is nonsense.
const MOST_TASKS: u64 = 1 << 22;

/// A table that is mapped.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    words: &'a [AtomicU64],
    layout: Layout,
}

impl<'a> View<'a> {
    /// A table, if it is valid: it has the expected token, if one is given, and the length that its header gives.
    #[inline]
    pub fn of(words: &'a [AtomicU64], token: Option<u64>) -> Option<Self> {
        // Relaxed: written before the table is known to any other process.
        let word = |at: usize| words.get(at).map(|word| word.load(Ordering::Relaxed));
        let is_one = word(header::MAGIC)? == MAGIC
            && token.is_none_or(|token| word(header::TOKEN) == Some(token));
        let layout = Layout::of_word(word(header::LAYOUT)?)?;
        (is_one && layout.words() <= words.len()).then_some(Self { words, layout })
    }

    /// Makes a table from words that are all zero.
    pub fn make(words: &'a [AtomicU64], layout: Layout, token: u64) -> Option<Self> {
        let view = (layout.words() <= words.len()).then_some(Self { words, layout })?;
        view.put(header::LAYOUT, layout.to_word());
        view.put(header::TOKEN, token);
        view.put(header::MAGIC, MAGIC);
        Some(view)
    }

    /// A table whose layout is already known. There must be as many words as the layout needs.
    pub fn known(words: &'a [AtomicU64], layout: Layout) -> Self {
        Self { words, layout }
    }

    /// How many of each part there are.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The token by which members recognise the table.
    #[inline]
    pub fn token(&self) -> u64 {
        self.get(header::TOKEN)
    }

    // Relaxed, both: single numbers, on which nothing else depends.
    #[inline]
    fn get(&self, at: usize) -> u64 {
        self.words.get(at).map_or(0, |word| word.load(Ordering::Relaxed))
    }

    #[inline]
    fn put(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn add(&self, at: usize, value: u64) {
        if let Some(word) = self.words.get(at) {
            word.fetch_add(value, Ordering::Relaxed);
        }
    }

    #[inline]
    fn home_word(&self, home: usize, word: usize) -> u64 {
        if home < self.layout.homes() { self.get(Layout::home_at(home) + word) } else { 0 }
    }

    /// Sets a word of a home.
    pub fn set_home_word(&self, home: usize, word: usize, value: u64) {
        if home < self.layout.homes() {
            self.put(Layout::home_at(home) + word, value);
        }
    }

    /// A word of the header.
    #[inline]
    pub fn count(&self, what: usize) -> u64 {
        self.get(what)
    }

    /// Adds one to a word of the header.
    #[inline]
    pub fn count_up(&self, what: usize) {
        self.add(what, 1);
    }

    /// Sets a word of the header.
    pub fn set_count(&self, what: usize, value: u64) {
        self.put(what, value);
    }

    /// How many processes live at the home with that index.
    #[inline]
    pub fn given(&self, home: usize) -> u32 {
        let given = self.home_word(home, home::GIVEN);
        // The count is below zero for a moment when an entry that was not counted is removed.
        if given > MOST_TASKS { 0 } else { given as u32 }
    }

    /// Adds one process to a home, if the count is still the one that was seen.
    #[inline]
    pub fn give(&self, home: usize, seen: u32) -> bool {
        let word = self.words.get(Layout::home_at(home) + home::GIVEN);
        let Some(word) = word.filter(|_| home < self.layout.homes()) else { return false };
        let current = word.load(Ordering::Relaxed);
        let as_seen = if current > MOST_TASKS { 0 } else { current as u32 };
        // Relaxed: a count.
        as_seen == seen
            && word
                .compare_exchange(
                    current,
                    u64::from(seen) + 1,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Adds that many processes to a home, or removes them.
    #[inline]
    pub fn correct(&self, home: usize, by: i64) {
        if home < self.layout.homes() {
            self.add(Layout::home_at(home) + home::GIVEN, by as u64);
        }
    }

    /// How often members have chosen a home.
    #[inline]
    pub fn chosen(&self, home: usize) -> u64 {
        self.home_word(home, home::CHOSEN)
    }

    /// Counts that a member has chosen a home.
    #[inline]
    pub fn count_chosen(&self, home: usize) {
        if home < self.layout.homes() {
            self.add(Layout::home_at(home) + home::CHOSEN, 1);
        }
    }

    /// The load of a home, in thousandths of a task: the processes that live there, and the running work of tasks without a home
    /// there.
    #[inline]
    pub fn load(&self, home: usize) -> u64 {
        let others = self.home_word(home, home::OTHERS).min(MOST_TASKS * 1000);
        u64::from(self.given(home)) * 1000 + others
    }

    /// The capacity of a home's CPUs together, in thousandths of a CPU.
    #[inline]
    pub fn capacity(&self, home: usize) -> u32 {
        self.home_word(home, home::CAPACITY).clamp(1, 1 << 26) as u32
    }

    /// The system's number of the node that a home's memory comes from.
    #[inline]
    pub fn memory(&self, home: usize) -> u32 {
        self.home_word(home, home::MEMORY) as u32
    }

    /// The system's number of a home: of its node, or of its cache.
    #[inline]
    pub fn id(&self, home: usize) -> u32 {
        self.home_word(home, home::ID) as u32
    }

    /// The distance between two homes; 10 is the distance of a home to itself.
    #[inline]
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        let (word, shift) = self.layout.distance_at(from, to);
        (self.get(word) >> shift & 0xff) as u32
    }

    /// Sets the distance between two homes.
    pub fn set_distance(&self, from: usize, to: usize, distance: u8) {
        let (word, shift) = self.layout.distance_at(from, to);
        let others = self.get(word) & !(0xff << shift);
        self.put(word, others | u64::from(distance) << shift);
    }

    /// A word of a home's mask of CPUs. The index after the last home is the widest possible mask.
    #[inline]
    pub fn mask_word(&self, home: usize, word: usize) -> u64 {
        let is_one = home <= self.layout.homes() && word < self.layout.mask_words();
        if is_one { self.get(self.layout.mask_at(home) + word) } else { 0 }
    }

    /// Sets a word of a home's mask of CPUs.
    pub fn set_mask_word(&self, home: usize, word: usize, value: u64) {
        self.put(self.layout.mask_at(home) + word, value);
    }

    /// The two words of an entry.
    #[inline]
    pub fn slot(&self, entry: usize) -> Option<(&'a AtomicU64, &'a AtomicU64)> {
        let at = self.layout.entry_at(entry & (self.layout.entries() - 1));
        Some((self.words.get(at)?, self.words.get(at + 1)?))
    }

    /// An entry, and the time since when its process has that home, in nanoseconds of the clock that also counts while the machine sleeps;
    /// 0 while it is being written.
    #[inline]
    pub fn entry(&self, entry: usize) -> Option<(Entry, u64)> {
        let (word, since) = self.slot(entry)?;
        // Acquire: pairs with the release that freed the entry, after its time was set to zero.
        let found = Entry::of_word(word.load(Ordering::Acquire))?;
        (found.home < self.layout.homes()).then(|| (found, since.load(Ordering::Relaxed)))
    }

    /// Changes an entry, if it has not changed since it was read.
    pub fn replace(&self, entry: usize, seen: Entry, new: Entry) -> bool {
        let Some((word, _)) = self.slot(entry) else { return false };
        // Relaxed: the word is complete in itself, and its time stays.
        let (seen, new) = (seen.to_word(), new.to_word());
        word.compare_exchange(seen, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// All entries that are in use, with their index.
    pub fn entries(self) -> impl Iterator<Item = (usize, Entry, u64)> + use<'a> {
        (0..self.layout.entries())
            .filter_map(move |at| self.entry(at).map(|(entry, since)| (at, entry, since)))
    }
}
