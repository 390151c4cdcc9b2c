//! Readers that count themselves by cache, in a row that is lent to the lock. `raw_rwlock.rs` has the state and the rest of the protocol,
//! whose invariants go on here; `readers.rs` says what makes rows safe to lend.
//!
//! # Protocol
//! If readers of several caches meet at `state`, each of them moves its line from cache to cache. So a reader that loses the race for it
//! lends a *row* to the lock (`readers.rs`): a line with two counts for each domain, one for the phases in which `PHASE` is set and
//! one for the others. While the lock has a row, readers do not write `state`.
//!
//! - *read*: find `ROW` and `PHASE` in `state`, add one to the count of that phase at the line of the reader's domain, and read `state`
//!   again. Same `ROW`, same `PHASE` and no writer: the reader has the lock. If there was a writer, the reader adds one to the count of the
//!   *next* phase instead, and has the lock when `PHASE` has changed and `ROW` is still the same. In all other cases it takes back what it
//!   has added, and starts over. While `KIND` is `ENDING`, it is counted in `WAITING`, because the row is about to go.
//! - *lend*: with the bucket's `lending` taken, so that no other reader lends the lock a row: if `ROW` is 0, add the row's number to the
//!   state. That step cannot fail, however many readers come at once, and the lock may have a writer by then: its lines are all zero, and
//!   readers that come count themselves there. The writer may be asleep, or about to be, without having told the row (`readers.rs`), and
//!   readers that entered by `ACTIVE` leave at the row from now on. So the lender wakes it.
//! - *leave as a reader*: if there is a row, subtract one from the count of the phase at the line of the domain in which the reader is now;
//!   otherwise as in `raw_rwlock.rs`. It need not remember how it entered, because only the sum means something: the lock's readers are
//!   `ACTIVE` plus the sum of the phase's counts, of which some may have wrapped around.
//! - *write*: as there; the lock is the writer's when that sum is zero. A writer that leaves puts what `ACTIVE` still counts into the row,
//!   from which those readers were subtracted: so `ACTIVE` does not grow.
//! - *take the row away*: the writer says so by the same step that keeps new readers out (`ENDING`), and does it by the step that leaves. No
//!   reader is left then, and those that wait are in `WAITING`. But if readers are counted for the next phase, which may have found an
//!   earlier writer that gave up, the row stays. [`IDLE`] says when.
//!
//! Invariants:
//! 7. **A reader by cache that finds no writer has the lock.** It adds one and then reads `state`; a writer changes `state` and then reads
//!    the lines (`SeqCst`, Dekker's pattern). So if the reader does not find the writer, the writer finds the reader.
//! 8. **A reader by cache that waits has the lock when `PHASE` has changed.** It was counted for that phase when it last found the previous
//!    phase in `state`; so a writer of that phase came later, and finds it. The row is not taken away in between: otherwise a writer could
//!    come while there is none, and the same row could be lent again before it leaves.
//! 9. **A reader that has the lock leaves at the right place.** The row cannot be taken away, nor the phase change, while a reader has the
//!    lock: so what it finds in `state` when it leaves is a row in which it is counted, or none since before it entered. A row may have been
//!    lent since it entered by `ACTIVE`: then the sum is still right.
//! 10. **A reader by cache does not touch the lock after it has subtracted**: the row belongs to the process.

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering};

use super::waiting::Waiting;
use super::word::{ENDING, KIND, ROW_SHIFT, WRITER, active, has_writer, row, second};
use crate::process_state::ProcessState;
use crate::settings::Settings;

/// A writer finds the row *idle* if no reader is there, and the previous writer left less than this many times what it takes to read the row
/// ago. Then writers lose more than a tenth of their time to reading rows for nothing (as in BRAVO: Dice, Kogan, 2019).
const TIMES: u64 = 9;
/// A writer takes the row away if this many writers in a row have found it idle. A row in which there are readers stays, however often
/// writers come: on two simulated EPYC 7551 with 64 threads, of whose uses 1 % are writes, both classes get three times as much with it.
const IDLE: u32 = 8;

/// The result of an attempt to be counted in the row.
pub(super) enum Counted {
    /// The reader has the lock.
    In,
    /// It waits for the next phase.
    Waits,
    /// It is not counted: the state is another one by now.
    No,
}

/// A reader in a row: where it is counted.
#[derive(Clone, Copy)]
pub(super) struct Place {
    row: u32,
    domain: usize,
    second: bool,
}

impl Place {
    /// Whether a reader that is counted here has the lock, if it was counted before that state.
    pub(super) fn is_in(self, word: u32) -> bool {
        row(word) == self.row && second(word) == self.second
    }

    /// Whether it has to wait for the end of the phase.
    pub(super) fn waits(self, word: u32) -> bool {
        row(word) == self.row && second(word) != self.second && word & KIND == WRITER
    }

    /// The reader is no longer counted.
    pub(super) fn leave<P: LockPlatform>(self, process: &ProcessState<P>) {
        if let Some(bucket) = process.readers.get(self.row).leave(self.domain, self.second) {
            process.wake_bucket(bucket);
        }
    }
}

/// A reader leaves, which found `word` while it has the lock.
pub(super) fn leave<P: LockPlatform>(word: u32) {
    let process = ProcessState::<P>::of_any_process();
    let domain = process.current_domain();
    Place { row: row(word), domain, second: second(word) }.leave(process);
}

/// An upgradable reader, which found `word` while it has the lock, is counted as a reader, too. No writer comes before it has left as an
/// upgradable reader, so no reader has to be counted by the order of steps here.
#[cold]
pub(super) fn becomes_reader<P: LockPlatform>(word: u32) {
    let process = ProcessState::<P>::get();
    process.readers.get(row(word)).enter(process.current_domain(), second(word));
}

/// How many readers have the lock. If a writer keeps other ones out, and finds none, it is sure.
pub(super) fn readers<P: LockPlatform>(word: u32) -> u32 {
    match row(word) {
        0 => active(word),
        number => {
            let row = ProcessState::<P>::get().readers.get(number);
            active(word).wrapping_add(row.sum(second(word)))
        }
    }
}

/// The kind of a writer that comes: whether it takes the row away.
pub(super) fn kind_of_writer<P: LockPlatform>(process: &ProcessState<P>, word: u32) -> u32 {
    if row(word) == 0 {
        return WRITER;
    }
    let Settings { mode, .. } = process.settings();
    let idle = process.readers.get(row(word)).idle();
    if idle >= IDLE || !process.may_bind(mode) { ENDING } else { WRITER }
}

/// How many readers a writer that keeps new ones out has to wait for; notes how long it takes to find out, and whether the row is idle.
pub(super) fn readers_first<P: LockPlatform>(process: &ProcessState<P>, word: u32) -> u32 {
    if row(word) == 0 {
        return active(word);
    }
    let began = P::now();
    let readers = readers::<P>(word);
    let cost = (P::now() - began).as_nanos() as u64;
    let row = process.readers.get(row(word));
    let since = began.as_nanos().saturating_sub(row.left());
    row.is_read_in(cost, readers == 0 && since < TIMES * cost);
    readers
}

/// The writer of `word`, which has a row, is about to leave: readers that are counted in the state are counted in the row from now on, where
/// they have left. Returns whether the writer takes the row away.
#[cold]
pub(super) fn before_writer_leaves<P: LockPlatform>(word: u32) -> bool {
    let process = ProcessState::<P>::get();
    let row = process.readers.get(row(word));
    if active(word) > 0 {
        row.add(process.current_domain(), second(word), active(word));
    }
    row.is_awake();
    row.writer_leaves(P::now().as_nanos());
    // A reader may still wait in the row that has found an earlier writer, which gave up: it has the lock in the next phase (invariant 8).
    word & KIND == ENDING && row.sum(!second(word)) == 0
}

/// The writer of `word`, which had a row, has left the lock whose state has that address, and taken the row away.
#[cold]
pub(super) fn has_lost_row<P: LockPlatform>(word: u32, address: usize) {
    let process = ProcessState::<P>::get();
    let row_then = process.readers.get(row(word));
    let bucket = process.bucket(ProcessState::<P>::bucket_of(address));
    // Relaxed: a time and nothing else.
    bucket.no_row_until.store(row_then.left() + TIMES * row_then.cost(), Ordering::Relaxed);
    process.readers.free(row(word));
}

/// In the child of a fork: no thread waits for the lock, which has that state.
#[cold]
pub(super) fn forget_waiting<P: LockPlatform>(word: u32) {
    if row(word) != 0 {
        let row = ProcessState::<P>::get().readers.get(row(word));
        row.forget(!second(word));
        row.is_awake();
    }
}

/// The lock, which had that state, ends. No other thread uses it.
#[cold]
pub(super) fn lock_ends<P: LockPlatform>(word: u32) {
    if row(word) == 0 || P::shared().is_null() {
        return;
    }
    let process = ProcessState::<P>::get();
    let row_now = process.readers.get(row(word));
    // A late reader, which takes back what it has added, or a guard that was forgotten: then the row is not lent again.
    if readers::<P>(word) == 0 && row_now.sum(!second(word)) == 0 {
        row_now.add(process.current_domain(), second(word), active(word));
        process.readers.free(row(word));
    }
}

impl<P: LockPlatform> Waiting<'_, P> {
    /// Counts a reader in the row of the lock, which has found `word`.
    pub(super) fn count_by_cache(&self, process: &ProcessState<P>, word: u32) -> (Counted, Place) {
        // While there is a writer, the next phase is the reader's.
        let place = Place {
            row: row(word),
            domain: process.current_domain(),
            second: second(word) != has_writer(word),
        };
        process.readers.get(place.row).enter(place.domain, place.second);
        // SeqCst: Dekker's pattern with a writer: it has found us in the row, or we find it here. Acquire, included: pairs with the release
        // of the writer that left last.
        let now = self.state.load(Ordering::SeqCst);
        let counted = if place.is_in(now) && !has_writer(now) {
            Counted::In
        } else if place.waits(now) {
            Counted::Waits
        } else {
            place.leave(process);
            Counted::No
        };
        (counted, place)
    }

    /// Lends a row to the lock, if it has none and may have one. The caller is a reader that has not entered.
    #[cold]
    pub(super) fn lend_row(&self) {
        let process = ProcessState::<P>::get();
        if !process.may_bind(process.settings().mode) {
            return;
        }
        let number = ProcessState::<P>::bucket_of(core::ptr::from_ref(self.state).addr());
        let bucket = process.bucket(number);
        // Relaxed for both: a hint, so that of many readers that come at once most only read it; and a time and nothing else.
        if bucket.lending.load(Ordering::Relaxed) != 0
            || P::now().as_nanos() < bucket.no_row_until.load(Ordering::Relaxed)
            // Acquire: pairs with the release below: the state shows the row that another reader has lent.
            || bucket.lending.swap(1, Ordering::Acquire) != 0
        {
            return;
        }
        // Relaxed: only a reader that has `lending` changes the row from 0.
        if row(self.state.load(Ordering::Relaxed)) == 0 {
            if let Some(row) = process.lend_row(P::now().as_nanos()) {
                // Release: the row is made; pairs with the acquires of all threads that find it in the state and use it.
                let before = self.state.fetch_add(row << ROW_SHIFT, Ordering::Release);
                if has_writer(before) {
                    process.wake_bucket(number);
                }
            }
        }
        // Release: pairs with the acquire above.
        bucket.lending.store(0, Ordering::Release);
    }
}
