//! The bits of a reader-writer lock's state; the head of `raw_rwlock.rs` says which thread changes which.

/// Which thread besides readers has the lock: [`NONE`], [`UPGRADABLE`], [`WRITER`] or [`ENDING`].
pub(super) const KIND: u32 = 3;
/// No other thread.
pub(super) const NONE: u32 = 0;
/// A reader that may become a writer.
pub(super) const UPGRADABLE: u32 = 1;
/// A writer, which has the lock once `ACTIVE` is 0. Readers that come have to wait.
pub(super) const WRITER: u32 = 2;
/// A writer that takes the row away from the lock. It has the bit of `WRITER` too.
pub(super) const ENDING: u32 = 3;
/// Changes when a writer lets readers in.
pub(super) const PHASE: u32 = 1 << 2;
/// Only the head may make `KIND` other than `NONE`.
pub(super) const RESERVED: u32 = 1 << 3;
/// A reader sleeps on the state, or is about to.
pub(super) const READERS_ASLEEP: u32 = 1 << 4;
/// The head, or a thread that upgrades, sleeps in the lock's bucket, or is about to.
pub(super) const WRITER_ASLEEP: u32 = 1 << 5;
/// The writer came as the head, and has `writers` until it leaves.
pub(super) const HEAD: u32 = 1 << 6;
/// The number of the lock's row, or 0.
const ROW: u32 = 31 << ROW_SHIFT;
pub(super) const ROW_SHIFT: u32 = 7;
/// One reader that has the lock.
pub(super) const ACTIVE_ONE: u32 = 1 << 12;
/// One reader that waits for the next phase.
pub(super) const WAITING_ONE: u32 = 1 << 22;
/// How many readers are counted, active and waiting together. Others wait until there are fewer. There is space for one more: a writer or
/// an upgradable reader that becomes a reader.
pub(super) const MOST: u32 = MASK - 1;
const MASK: u32 = (1 << 10) - 1;

/// The number of the lock's row, or 0.
#[inline]
pub(super) fn row(word: u32) -> u32 {
    (word & ROW) >> ROW_SHIFT
}

/// Whether the state is in a phase of the second kind.
#[inline]
pub(super) fn second(word: u32) -> bool {
    word & PHASE != 0
}

/// How many readers have the lock, but for those that the row counts.
#[inline]
pub(super) fn active(word: u32) -> u32 {
    (word / ACTIVE_ONE) & MASK
}

/// How many readers wait for the next phase.
#[inline]
pub(super) fn waiting(word: u32) -> u32 {
    word / WAITING_ONE
}

/// Whether one more reader may be counted.
#[inline]
pub(super) fn has_space(word: u32) -> bool {
    active(word) + waiting(word) < MOST
}

/// Whether a writer has the lock or waits for the readers to leave.
#[inline]
pub(super) fn has_writer(word: u32) -> bool {
    word & WRITER != 0
}

/// The state after the writer of `word` has left: of kind `kind`, and with the readers that wait as active ones. `loses_row`: without the
/// row.
#[inline]
pub(super) fn next_phase(word: u32, kind: u32, loses_row: bool) -> u32 {
    let row = if loses_row { 0 } else { word & ROW };
    let kept = (word & (WRITER_ASLEEP | RESERVED | PHASE)) ^ PHASE;
    kept + kind + row + waiting(word) * ACTIVE_ONE
}

/// Whether a reader may enter by one step on the state, and no reader is counted in `WAITING`: two tests, on the path that must be short.
#[inline]
pub(super) fn is_open(word: u32) -> bool {
    word & (WRITER | ROW) == 0 && word < MOST * ACTIVE_ONE
}
