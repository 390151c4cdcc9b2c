//! The bits of a mutex's word.

/// A thread holds the mutex.
pub(crate) const LOCKED: u32 = 1;
/// A thread sleeps on the word, or is about to. Only together with `LOCKED`.
pub(crate) const ASLEEP: u32 = 1 << 1;
/// Reserved for the thread that has the turn: no thread with a place in a queue takes it otherwise.
pub(crate) const RESERVED: u32 = 1 << 2;
/// Waiters queue up in the slot, by domain.
pub(crate) const NUMA: u32 = 1 << 3;
/// The slot's number, or 0.
pub(crate) const SLOT: u32 = 0xfff << SLOT_SHIFT;
pub(crate) const SLOT_SHIFT: u32 = 4;
/// The number of the last record in the plain queue, or 0.
pub(crate) const TAIL: u32 = 0xffff << TAIL_SHIFT;
pub(crate) const TAIL_SHIFT: u32 = 16;

/// The slot that a word names.
#[inline]
pub(crate) fn slot(word: u32) -> u32 {
    (word & SLOT) >> SLOT_SHIFT
}
