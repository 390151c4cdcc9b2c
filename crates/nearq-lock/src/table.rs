//! The records by which threads wait, and the numbers that name them.
//!
//! A lock's word has 16 bits for "the one who came last", so a waiter is named by a number from 1 to 65535, not by an
//! address. The records are in chunks that double in size (4, 4, 8, ... 32768), made when they are first needed and
//! never moved or given back: a number can be followed at any time, by anybody, also after its thread has ended.
//!
//! # Who has a record
//! Each chunk has a bit for each record: set while somebody *has* the record. Whoever sets the bit has it, whoever has it
//! clears the bit (release, pairs with the acquire of the next one to set it).
//! - A thread keeps the record that it takes first until it ends (`Platform::set_number`), so that taking one again is
//!   a look at the thread's own number. While the record is in a queue, the number carries `IN_USE`.
//! - Who waits while its own record is in use (a signal handler, an [`OsqLock`](crate::OsqLock) that is held), or after
//!   its thread's locals are gone, takes another record for that time.
//! - A record can be *left behind* in a queue (`queue.rs`). Then whoever takes it out of the queue has it.
//!
//! There is no record only while 65535 are in use at once. Who finds none waits in some other way.

use core::ptr;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

#[cfg(test)]
/// How many records there can be. The numbers are 1 to this.
pub(crate) const MOST: usize = 65_535;

/// Records in the first chunk.
const FIRST: usize = 4;
/// Chunks that hold them all, and one more that has no number.
const CHUNKS: usize = 15;

/// The mark on a thread's number: its record is in a queue.
const IN_USE: u32 = 1 << 31;

/// What a thread waits by. Its protocol is in `queue.rs`.
#[repr(align(64))]
pub(crate) struct Record<P: Platform> {
    /// What its owner waits for, and where it sleeps.
    pub(crate) state: P::AtomicU32,
    /// Who came after it.
    pub(crate) next: P::AtomicU32,
    /// The place that its owner waits at.
    pub(crate) place: P::AtomicU32,
    /// What the one before hands over, beside the message itself.
    pub(crate) passed: P::AtomicU64,
    /// Likewise: a time.
    pub(crate) since: P::AtomicU64,
}

impl<P: Platform> Record<P> {
    fn new() -> Self {
        Record {
            state: P::AtomicU32::new(0),
            next: P::AtomicU32::new(0),
            place: P::AtomicU32::new(0),
            passed: P::AtomicU64::new(0),
            since: P::AtomicU64::new(0),
        }
    }
}

struct Chunk<P: Platform> {
    /// A bit for each record that somebody has.
    had: Box<[P::AtomicU64]>,
    records: Box<[Record<P>]>,
}

/// All records of a process.
pub(crate) struct Table<P: Platform> {
    chunks: [P::AtomicPtr<Chunk<P>>; CHUNKS],
    /// Called when a thread ends that has a number.
    end: fn(u32),
}

/// How many records a chunk has.
fn size(chunk: usize) -> usize {
    if chunk == 0 { FIRST } else { FIRST << (chunk - 1) }
}

/// The chunk of a record, and its place there.
#[inline]
fn find(number: u32) -> (usize, usize) {
    let index = number as usize - 1;
    if index < FIRST {
        return (0, index);
    }
    let chunk = (index / FIRST).ilog2() as usize + 1;
    (chunk, index - size(chunk))
}

/// The number of the record at a place of a chunk.
fn number(chunk: usize, at: usize) -> u32 {
    let before = if chunk == 0 { 0 } else { size(chunk) };
    (before + at + 1) as u32
}

impl<P: Platform> Table<P> {
    /// Without records. `end` must lead to [`ended`](Self::ended) of this table.
    pub(crate) fn new(end: fn(u32)) -> Self {
        Table { chunks: core::array::from_fn(|_| P::AtomicPtr::new(ptr::null_mut())), end }
    }

    /// The record of that number, which somebody was given once.
    #[inline]
    pub(crate) fn record(&self, number: u32) -> &Record<P> {
        let (chunk, at) = find(number);
        &self.chunk(chunk).records[at]
    }

    #[inline]
    fn chunk(&self, chunk: usize) -> &Chunk<P> {
        // Acquire: pairs with the release in `make`.
        let found = self.chunks[chunk].load(Ordering::Acquire);
        debug_assert!(!found.is_null(), "a number comes from a chunk");
        // SAFETY: not null, as a number of this chunk was given out after it was made, and who knows the number learnt it
        // from there. Chunks are freed with the table only.
        unsafe { &*found }
    }

    /// Takes a record; none if all are in use. The caller has it until it calls one of [`give_back`](Self::give_back),
    /// [`leave_behind`](Self::leave_behind).
    #[inline]
    pub(crate) fn take(&self) -> Option<u32> {
        let own = P::number();
        if own != 0 && own & IN_USE == 0 {
            P::set_number(own | IN_USE, self.end);
            return Some(own);
        }
        self.take_new(own == 0)
    }

    #[cold]
    fn take_new(&self, keep: bool) -> Option<u32> {
        let number = (0..CHUNKS).find_map(|chunk| self.take_from(chunk))?;
        if keep && !P::set_number(number | IN_USE, self.end) {
            // The thread is ending, and nobody would give the record back for it.
            P::set_number(0, self.end);
        }
        Some(number)
    }

    fn take_from(&self, chunk: usize) -> Option<u32> {
        // Acquire: pairs with the release in `make`.
        let found = self.chunks[chunk].load(Ordering::Acquire);
        // SAFETY: as in `chunk`.
        let chunk_there = if found.is_null() { self.make(chunk) } else { unsafe { &*found } };
        for (at, word) in chunk_there.had.iter().enumerate() {
            // Relaxed: decided by the step below.
            let mut had = word.load(Ordering::Relaxed);
            while had != u64::MAX {
                let bit = had.trailing_ones();
                // Acquire: pairs with the release in `free`; what the one before did with the record is over.
                let before = word.fetch_or(1 << bit, Ordering::Acquire);
                if before & 1 << bit == 0 {
                    return Some(number(chunk, at * 64 + bit as usize));
                }
                had = before;
            }
        }
        None
    }

    #[cold]
    fn make(&self, chunk: usize) -> &Chunk<P> {
        let size = size(chunk);
        let had = (0..size.div_ceil(64)).map(|word| {
            // What is beyond the chunk's end, and the record whose number would not fit, are had by nobody for ever.
            let there = size - word * 64;
            let mut none = if there >= 64 { 0 } else { u64::MAX << there };
            if chunk == CHUNKS - 1 && (word + 1) * 64 == size {
                none |= 1 << 63;
            }
            P::AtomicU64::new(none)
        });
        let made = Box::into_raw(Box::new(Chunk {
            had: had.collect(),
            records: (0..size).map(|_| Record::new()).collect(),
        }));
        // Release: pairs with the acquire of whoever finds it. Acquire on failure: we use another's.
        let there = self.chunks[chunk].compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        );
        match there {
            // SAFETY: in the table from now on, and freed with it.
            Ok(_) => unsafe { &*made },
            Err(there) => {
                // SAFETY: made by us above, and told to nobody.
                drop(unsafe { Box::from_raw(made) });
                // SAFETY: as in `chunk`.
                unsafe { &*there }
            }
        }
    }

    /// The caller does not need the record any more, which nobody can reach.
    #[inline]
    pub(crate) fn give_back(&self, number: u32) {
        if P::number() == number | IN_USE {
            P::set_number(number, self.end);
        } else {
            self.free(number);
        }
    }

    /// The caller leaves the record to whoever takes it out of its queue.
    pub(crate) fn leave_behind(&self, number: u32) {
        if P::number() == number | IN_USE {
            P::set_number(0, self.end);
        }
    }

    /// Nobody has the record any more.
    pub(crate) fn free(&self, number: u32) {
        let (chunk, at) = find(number);
        // Release: pairs with the acquire in `take_from`.
        self.chunk(chunk).had[at / 64].fetch_and(!(1 << (at % 64)), Ordering::Release);
    }

    /// A thread has ended that had this number.
    pub(crate) fn ended(&self, number: u32) {
        self.free(number & !IN_USE);
    }

    /// How many records somebody has.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        let mut count = 0;
        for (chunk, there) in self.chunks.iter().enumerate() {
            let there = there.load(Ordering::Acquire);
            if there.is_null() {
                continue;
            }
            // SAFETY: as in `chunk`.
            let had = unsafe { &(*there).had };
            let ones: u32 = had.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
            let never = size(chunk).next_multiple_of(64) - size(chunk);
            count += ones as usize - never - usize::from(chunk == CHUNKS - 1);
        }
        count
    }
}

impl<P: Platform> Drop for Table<P> {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            let chunk = chunk.load(Ordering::Acquire);
            if !chunk.is_null() {
                // SAFETY: made as a box, and in one table only, which nobody uses any more.
                drop(unsafe { Box::from_raw(chunk) });
            }
        }
    }
}

#[cfg(test)]
mod tests;
