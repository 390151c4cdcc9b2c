//! Entries that are named by small numbers and made as they are needed: waiters' records, slots.
//!
//! They are in chunks that double in size. A chunk is made when it is first needed and is never moved or freed, so any thread can follow a
//! number at any time. With `CHUNKS` chunks, the first of `FIRST` entries, the numbers are 1 to `(FIRST << (CHUNKS - 1)) - 1`.
//! [`Numbered::take`] makes the chunk that it needs. Callers that must not allocate have chunks made beforehand ([`Numbered::make_more`]),
//! and take only what is there ([`Numbered::take_made`]).
//!
//! Each chunk has a bit for each entry, set while a thread *uses* it. The thread that sets the bit has the entry (acquire), and clears the
//! bit to give it back (release): so what the previous owner did with it is over and visible.

use core::ptr;

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering};

use crate::fallible;

struct Chunk<P: LockPlatform, T> {
    /// A bit for each entry, set while a thread has it.
    used: Box<[P::AtomicU64]>,
    entries: Box<[T]>,
}

/// Entries by number.
pub(crate) struct Numbered<P: LockPlatform, T: 'static, const FIRST: usize, const CHUNKS: usize> {
    chunks: [P::AtomicPtr<Chunk<P, T>>; CHUNKS],
}

impl<P: LockPlatform, T, const FIRST: usize, const CHUNKS: usize> Numbered<P, T, FIRST, CHUNKS> {
    pub(crate) fn new() -> Self {
        Numbered { chunks: core::array::from_fn(|_| P::AtomicPtr::new(ptr::null_mut())) }
    }

    /// How many entries a chunk has.
    fn size(chunk: usize) -> usize {
        if chunk == 0 { FIRST } else { FIRST << (chunk - 1) }
    }

    /// The chunk of an entry, and its position there.
    #[inline]
    fn find(number: u32) -> (usize, usize) {
        let index = number as usize - 1;
        if index < FIRST {
            return (0, index);
        }
        let chunk = (index / FIRST).ilog2() as usize + 1;
        (chunk, index - Self::size(chunk))
    }

    /// The number of the entry at a position in a chunk.
    fn number(chunk: usize, at: usize) -> u32 {
        let before = if chunk == 0 { 0 } else { Self::size(chunk) };
        (before + at + 1) as u32
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &Chunk<P, T> {
        // Acquire: pairs with the release in `make`.
        let found = self.chunks[chunk].load(Ordering::Acquire);
        debug_assert!(!found.is_null(), "a number comes from a chunk");
        // SAFETY: not null: a number of this chunk was given out only after the chunk was made, and the caller's number comes from there.
        // Chunks are freed only with the whole.
        unsafe { &*found }
    }

    /// The entry of that number, which was given out before.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &T {
        let (chunk, at) = Self::find(number);
        &self.chunk(chunk).entries[at]
    }

    /// The entry of that number, which may be arbitrary; none if it has not been made.
    pub(crate) fn get_if_made(&self, number: u32) -> Option<&T> {
        if number == 0 {
            return None;
        }
        let (chunk, at) = Self::find(number);
        self.chunks.get(chunk)?;
        self.made(chunk)?.entries.get(at)
    }

    /// The chunk, if it has been made.
    fn made(&self, chunk: usize) -> Option<&Chunk<P, T>> {
        // Acquire: pairs with the release in `make`.
        // SAFETY: null, or made by `make`, and freed only with the whole.
        unsafe { self.chunks[chunk].load(Ordering::Acquire).as_ref() }
    }

    /// Takes a free entry, made by `make` if need be; none if all are taken, or there is no memory for more. The caller has it until it
    /// calls [`free`](Self::free).
    pub(crate) fn take(&self, make: impl Fn() -> T) -> Option<u32> {
        for chunk in 0..CHUNKS {
            let existing = match self.made(chunk) {
                Some(existing) => existing,
                None => {
                    let entries = fallible::slice((0..Self::size(chunk)).map(|_| make()))?;
                    self.make(chunk, entries)?
                }
            };
            if let Some(number) = Self::take_from(chunk, existing) {
                return Some(number);
            }
        }
        None
    }

    /// As [`take`](Self::take), but only among those that are already made.
    pub(crate) fn take_made(&self) -> Option<u32> {
        (0..CHUNKS).find_map(|chunk| Self::take_from(chunk, self.made(chunk)?))
    }

    /// Whether an entry is made and free. That may have changed by the time the caller uses the answer.
    pub(crate) fn is_one_free(&self) -> bool {
        (0..CHUNKS).filter_map(|chunk| self.made(chunk)).any(|existing| {
            // Relaxed: a hint.
            existing.used.iter().any(|word| word.load(Ordering::Relaxed) != u64::MAX)
        })
    }

    /// Whether the chunk has been made. If so, all entries of the chunks before it were taken at that time.
    pub(crate) fn is_made(&self, chunk: usize) -> bool {
        self.made(chunk).is_some()
    }

    /// Whether there are chunks that have not been made.
    pub(crate) fn are_more(&self) -> bool {
        self.made(CHUNKS - 1).is_none()
    }

    /// Makes the next chunk, by a function that makes the given number of entries. False if all are made, or the function makes none.
    pub(crate) fn make_more(&self, make: impl FnOnce(usize) -> Option<Box<[T]>>) -> bool {
        let Some(chunk) = (0..CHUNKS).find(|chunk| self.made(*chunk).is_none()) else {
            return false;
        };
        make(Self::size(chunk)).and_then(|entries| self.make(chunk, entries)).is_some()
    }

    fn take_from(chunk: usize, existing: &Chunk<P, T>) -> Option<u32> {
        for (at, word) in existing.used.iter().enumerate() {
            // Relaxed: decided by the step below.
            let mut used = word.load(Ordering::Relaxed);
            while used != u64::MAX {
                let bit = used.trailing_ones();
                // Acquire: pairs with the release in `free`.
                let before = word.fetch_or(1 << bit, Ordering::Acquire);
                if before & 1 << bit == 0 {
                    return Some(Self::number(chunk, at * 64 + bit as usize));
                }
                used = before;
            }
        }
        None
    }

    /// Publishes a chunk of entries in its place, unless another thread has done so first; returns the chunk that is there. None if there
    /// is no memory.
    #[cold]
    fn make(&self, chunk: usize, entries: Box<[T]>) -> Option<&Chunk<P, T>> {
        let size = entries.len();
        let used = (0..size.div_ceil(64)).map(|word| {
            // The bits beyond the chunk's end, and the entry whose number would not fit, stay taken for ever.
            let last = usize::from(chunk == CHUNKS - 1 && (word + 1) * 64 >= size);
            let valid = (size - word * 64).min(64) - last;
            P::AtomicU64::new(if valid == 64 { 0 } else { u64::MAX << valid })
        });
        let made = Box::into_raw(fallible::boxed(Chunk { used: fallible::slice(used)?, entries })?);
        // Release: pairs with the acquire of the threads that find it. Acquire on failure: we use another thread's chunk.
        let existing = self.chunks[chunk].compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match existing {
            // SAFETY: in `chunks` from now on, and freed with it.
            Ok(_) => Some(unsafe { &*made }),
            Err(existing) => {
                // SAFETY: made by us above, and never shared.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: in `chunks`, hence made by another thread, and freed with `self`, which is borrowed.
                Some(unsafe { &*existing })
            }
        }
    }

    /// Gives the entry back.
    pub(crate) fn free(&self, number: u32) {
        let (chunk, at) = Self::find(number);
        // Release: pairs with the acquire in `take_from`.
        self.chunk(chunk).used[at / 64].fetch_and(!(1 << (at % 64)), Ordering::Release);
    }

    /// Calls `each` with all that have been made.
    pub(crate) fn each(&self, each: impl Fn(&T)) {
        self.made_chunks().for_each(|(_, existing)| existing.entries.iter().for_each(&each));
    }

    /// Calls `each` with all entries in use, and their numbers. They may have changed hands by then.
    pub(crate) fn each_used(&self, mut each: impl FnMut(u32, &T)) {
        for (chunk, existing) in self.made_chunks() {
            for (at, entry) in existing.entries.iter().enumerate().take(Self::takeable(chunk)) {
                // Relaxed: a hint.
                if existing.used[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1 {
                    each(Self::number(chunk, at), entry);
                }
            }
        }
    }

    /// How many have been made, taken or free.
    pub(crate) fn made_count(&self) -> usize {
        self.made_chunks().map(|(chunk, _)| Self::takeable(chunk)).sum()
    }

    /// The chunks that have been made.
    fn made_chunks(&self) -> impl Iterator<Item = (usize, &Chunk<P, T>)> {
        (0..CHUNKS).filter_map(|chunk| Some((chunk, self.made(chunk)?)))
    }

    /// How many entries of a chunk can be taken: all except the one whose number would not fit.
    fn takeable(chunk: usize) -> usize {
        Self::size(chunk) - usize::from(chunk == CHUNKS - 1)
    }

    /// How many entries are taken.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        self.each_used(|_, _| count += 1);
        count
    }
}

impl<P: LockPlatform, T, const FIRST: usize, const CHUNKS: usize> Drop
    for Numbered<P, T, FIRST, CHUNKS>
{
    fn drop(&mut self) {
        for chunk in &self.chunks {
            let chunk = chunk.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: made as a box, and in one `Numbered` only, which no thread uses any more.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use nearq_platform::Linux;

    use super::*;

    type Many = Numbered<Linux, u8, 4, 15>;

    #[test]
    fn numbers_and_positions_correspond() {
        for (number, place) in [(1, (0, 0)), (4, (0, 3)), (5, (1, 0)), (9, (2, 0)), (16, (2, 7))] {
            assert_eq!((Many::find(number), Many::number(place.0, place.1)), (place, number));
        }
        for number in [32_768, 32_769, 65_535] {
            let (chunk, at) = Many::find(number);
            assert!(at < Many::size(chunk));
            assert_eq!(Many::number(chunk, at), number);
        }
    }

    fn all<const FIRST: usize, const CHUNKS: usize>(most: u32) {
        let entries = Numbered::<Linux, u32, FIRST, CHUNKS>::new();
        let all: BTreeSet<u32> = core::iter::from_fn(|| entries.take(|| 7)).collect();
        assert_eq!((all.len() as u32, all.first(), all.last()), (most, Some(&1), Some(&most)));
        assert_eq!(
            (entries.count() as u32, entries.take(|| 7), *entries.get(most)),
            (most, None, 7)
        );
        entries.free(most / 2);
        assert_eq!((entries.take(|| 7), entries.take(|| 7)), (Some(most / 2), None));
        for number in all {
            entries.free(number);
        }
        assert_eq!(entries.count(), 0);
    }

    #[test]
    #[cfg_attr(miri, ignore = "too many")]
    fn all_entries_that_fit_can_be_taken_and_no_more() {
        all::<4, 15>(65_535);
        all::<1, 13>(4_095);
        all::<64, 7>(4_095);
        all::<64, 1>(63);
    }

    #[test]
    fn taking_an_existing_entry_creates_none() {
        let entries = Numbered::<Linux, u32, 2, 3>::new();
        let make = |count| Some(vec![7; count].into_boxed_slice());
        assert_eq!(
            (entries.take_made(), entries.is_one_free(), entries.are_more()),
            (None, false, true)
        );
        assert!(!entries.make_more(|_| None), "there was no memory");
        assert!(entries.make_more(make));
        assert!(entries.is_one_free());
        assert_eq!([(); 3].map(|()| entries.take_made()), [Some(1), Some(2), None]);
        assert!(!entries.is_one_free());
        assert!(entries.make_more(make) && entries.make_more(make));
        assert!(!entries.make_more(make) && !entries.are_more());
        assert_eq!(core::iter::from_fn(|| entries.take_made()).count(), 5);
        assert_eq!((entries.is_one_free(), entries.count(), entries.made_count()), (false, 7, 7));
        entries.free(2);
        assert_eq!((entries.is_one_free(), entries.take_made()), (true, Some(2)));
    }
}
