//! Rows: where the readers of a lock count themselves by cache while many of them come from several caches.
//!
//! Rows belong to the process and are lent to reader-writer locks, up to 31 at a time, named by five bits of a lock's state. A row has a line
//! for each domain, in memory of the domain's node (`lines.rs`), with a count for each of two phases. `raw_rwlock.rs` says how they are used;
//! here is what makes them safe to lend.
//!
//! - **Only the sum over all lines means something.** A reader leaves at the line of the domain that it runs in then, which may be another
//!   one than that at which it entered: lines wrap around below zero.
//! - **A sum of zero, read line by line, proves that no reader is left**, if no reader can enter meanwhile. Each line has been read after all
//!   readers that entered were counted there; a reader that leaves is subtracted or not yet. So the sum is at least the number of those that
//!   are left. A
//!   *late* reader adds one and takes it back at the same line, as it finds that it has not entered: at each line it adds one or nothing.
//! - **Late readers of an earlier borrower do no harm.** They found the row's number in a state that has changed since, and take back what
//!   they added. The new borrower's writer may wait for them in the meantime: they wake it, as readers that leave do.
//! - **Waking**: a writer that is about to sleep puts the number of its bucket into `asleep`, and then reads the lines again. A reader that
//!   leaves subtracts, and then reads `asleep`. Both do so by `SeqCst` (Dekker's pattern), so one of them sees the other. The reader never
//!   touches the lock after it has subtracted.
//!
//! Rows are never freed. A row is lent again when its borrower has given it back, with sums of zero but for late readers. If a lock is freed
//! while a forgotten guard reads it, its row is not lent again.

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering};

use crate::fallible;
use crate::lines::{DomainLine, Row};
use crate::numbered::Numbered;

/// How many rows are made at first, and chunks of them: there are 31.
const FIRST_ROWS: usize = if cfg!(test) { 1 } else { 8 };
const ROW_CHUNKS: usize = if cfg!(test) { 6 } else { 3 };

/// The readers of a domain, by phase: the second count is that of the phases in which `PHASE` is set.
#[repr(align(64))]
pub(crate) struct ReaderLine<P: LockPlatform> {
    counts: [P::AtomicU32; 2],
}

impl<P: LockPlatform> DomainLine for ReaderLine<P> {
    fn new() -> Self {
        ReaderLine { counts: [P::AtomicU32::new(0), P::AtomicU32::new(0)] }
    }
}

/// What each reader that leaves reads, and few threads write.
#[repr(align(64))]
struct Asleep<P: LockPlatform>(P::AtomicU32);

/// The counts of one lock's readers.
pub(crate) struct ReaderRow<P: LockPlatform> {
    lines: Row<P, ReaderLine<P>>,
    /// The number of the bucket in which a writer sleeps, or is about to, plus one; 0 if none does.
    asleep: Asleep<P>,
    /// When a writer left last. Only for the writer of the lock.
    left: P::AtomicU64,
    /// How many nanoseconds it took a writer to read all lines, when it did so last. Only for the writer of the lock.
    cost: P::AtomicU64,
    /// How many writers in a row have found the row idle. Only for the writer of the lock.
    idle: P::AtomicU32,
}

impl<P: LockPlatform> ReaderRow<P> {
    fn new(lines: Row<P, ReaderLine<P>>) -> Self {
        ReaderRow {
            lines,
            asleep: Asleep(P::AtomicU32::new(0)),
            left: P::AtomicU64::new(0),
            cost: P::AtomicU64::new(0),
            idle: P::AtomicU32::new(0),
        }
    }

    #[inline]
    fn count(&self, domain: usize, second: bool) -> &P::AtomicU32 {
        &self.lines[domain].counts[usize::from(second)]
    }

    /// Counts a reader, which then has to read the lock's state.
    #[inline]
    pub(crate) fn enter(&self, domain: usize, second: bool) {
        // SeqCst: Dekker's pattern with a writer, which changes the state and then reads the lines.
        self.count(domain, second).fetch_add(1, Ordering::SeqCst);
        P::model_fence();
    }

    /// A reader leaves, or takes back what it has added. The number of the bucket to wake, if a writer sleeps.
    #[inline]
    pub(crate) fn leave(&self, domain: usize, second: bool) -> Option<u32> {
        // SeqCst for both: Dekker's pattern with `falls_asleep`. Release, included: pairs with the acquire in `sum`.
        self.count(domain, second).fetch_sub(1, Ordering::SeqCst);
        P::model_fence();
        if self.asleep.0.load(Ordering::SeqCst) == 0 {
            return None;
        }
        // Relaxed: the thread that finds the number wakes the writer.
        self.asleep.0.swap(0, Ordering::Relaxed).checked_sub(1)
    }

    /// Adds readers that are counted in the lock's state, and leave at lines. The caller has the lock as a writer.
    pub(crate) fn add(&self, domain: usize, second: bool, readers: u32) {
        // Relaxed: no reader is left, and the lock's release publishes it.
        self.count(domain, second).fetch_add(readers, Ordering::Relaxed);
    }

    /// In the child of a fork: no reader waits for the phase. No other thread uses the row's lock.
    pub(crate) fn forget(&self, second: bool) {
        for line in self.lines.iter() {
            // Relaxed: there is no other thread, and the lock's user publishes it (`RawRwLock::renew`).
            line.counts[usize::from(second)].store(0, Ordering::Relaxed);
        }
    }

    /// The sum of a phase's counts.
    pub(crate) fn sum(&self, second: bool) -> u32 {
        // SeqCst: Dekker's pattern with `enter` and with `leave`. Acquire, included: what readers did is over.
        let counts = self.lines.iter().map(|line| &line.counts[usize::from(second)]);
        counts.fold(0, |sum, count| sum.wrapping_add(count.load(Ordering::SeqCst)))
    }

    /// A count that is not zero, if there is one, and its value: one that may change before the sum is zero.
    pub(crate) fn busy(&self, second: bool) -> Option<(&P::AtomicU32, u32)> {
        self.lines.iter().find_map(|line| {
            let count = &line.counts[usize::from(second)];
            // Relaxed: a hint.
            let value = count.load(Ordering::Relaxed);
            (value != 0).then_some((count, value))
        })
    }

    /// The writer is about to sleep in that bucket, and then has to read the lines again.
    pub(crate) fn falls_asleep(&self, bucket: u32) {
        // SeqCst: Dekker's pattern with `leave`.
        self.asleep.0.store(bucket + 1, Ordering::SeqCst);
        P::model_fence();
    }

    /// The writer has the lock.
    pub(crate) fn is_awake(&self) {
        // Relaxed for both: a thread that finds the number wakes a bucket without need.
        if self.asleep.0.load(Ordering::Relaxed) != 0 {
            self.asleep.0.store(0, Ordering::Relaxed);
        }
    }

    /// A writer leaves at that time.
    pub(crate) fn writer_leaves(&self, now: u64) {
        // Relaxed: for the next writer, ordered by the lock.
        self.left.store(now, Ordering::Relaxed);
    }

    /// It took a writer so many nanoseconds to read the lines, and it found the row idle or not.
    pub(crate) fn is_read_in(&self, nanos: u64, idle: bool) {
        // Relaxed for both: as above.
        self.cost.store(nanos, Ordering::Relaxed);
        let count = if idle { self.idle().saturating_add(1) } else { 0 };
        self.idle.store(count, Ordering::Relaxed);
    }

    /// When a writer left last, in nanoseconds.
    pub(crate) fn left(&self) -> u64 {
        // Relaxed: as above.
        self.left.load(Ordering::Relaxed)
    }

    /// How many nanoseconds it took to read the lines.
    pub(crate) fn cost(&self) -> u64 {
        // Relaxed: as above.
        self.cost.load(Ordering::Relaxed)
    }

    /// How many writers in a row have found the row idle.
    pub(crate) fn idle(&self) -> u32 {
        // Relaxed: as above; a thread that is about to become the writer may read an old value, which only decides how soon the row goes.
        self.idle.load(Ordering::Relaxed)
    }
}

/// The rows of a process.
pub(crate) struct ReaderRows<P: LockPlatform> {
    rows: Numbered<P, ReaderRow<P>, FIRST_ROWS, ROW_CHUNKS>,
    /// 1 while a thread makes rows.
    making: P::AtomicU32,
}

impl<P: LockPlatform> ReaderRows<P> {
    pub(crate) fn new() -> Self {
        ReaderRows { rows: Numbered::new(), making: P::AtomicU32::new(0) }
    }

    /// The row of that number.
    #[inline]
    pub(crate) fn get(&self, number: u32) -> &ReaderRow<P> {
        self.rows.get(number)
    }

    /// Takes a free row; makes some if none is left. None if all are lent, another thread is making some, or there is no memory. `nodes` has
    /// the system's number of each domain's node.
    pub(crate) fn take(&self, nodes: &[Option<usize>], now: u64) -> Option<u32> {
        let number = self.rows.take_made().or_else(|| {
            // Acquire and release: what one thread makes, the next one finds.
            if self.making.swap(1, Ordering::Acquire) != 0 {
                return None;
            }
            let rows = |count| fallible::slice(Row::sheet(count, nodes)?.map(ReaderRow::new));
            let made = self.rows.is_one_free() || self.rows.make_more(rows);
            self.making.store(0, Ordering::Release);
            if made { self.rows.take_made() } else { None }
        })?;
        let row = self.get(number);
        row.writer_leaves(now);
        // Relaxed: published with the row.
        row.idle.store(0, Ordering::Relaxed);
        Some(number)
    }

    /// Makes the next writer take the row away.
    #[cfg(test)]
    pub(crate) fn is_idle(&self, number: u32) {
        self.get(number).idle.store(u32::MAX, Ordering::Relaxed);
    }

    /// In the child of a fork: the thread that was making rows does not exist. No other thread uses any row during this call. Readers that do
    /// not exist keep their locks, as they do without a row.
    pub(crate) fn renew(&self) {
        // Relaxed: there is no other thread, and `ProcessState` publishes it.
        self.making.store(0, Ordering::Relaxed);
    }

    /// Gives a row back, whose sums are zero.
    pub(crate) fn free(&self, number: u32) {
        self.rows.free(number);
    }

    /// Calls a closure with the number of each row that is lent, and about how many readers it counts, in both phases.
    pub(crate) fn each_lent(&self, mut each: impl FnMut(u32, u32)) {
        self.rows.each_used(|number, row| {
            let readers = row.sum(false).wrapping_add(row.sum(true)) as i32;
            each(number, readers.max(0) as u32);
        });
    }

    /// How many rows are lent.
    #[cfg(test)]
    pub(crate) fn lent(&self) -> usize {
        self.rows.count()
    }
}
