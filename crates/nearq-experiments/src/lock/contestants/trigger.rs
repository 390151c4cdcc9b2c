//! When a lock with one queue changes to queues by group: two rules, each with the thresholds that its authors chose.
//!
//! What a thread in front is told is a count, never 0, that it makes from its own and passes on. The chain of counts ends when the queue is
//! empty.

use super::roster::Records;
use nearq_platform::{Atomic as _, LockPlatform, Ordering};

pub(super) trait Trigger: Send + Sync + 'static {
    /// Whether threads note how many have queued up before them.
    const NUMBERS_THREADS: bool;
    /// Whether the lock goes back to one queue when nobody waits.
    const TURNS_BACK: bool;

    /// What `name`, which was told `told`, tells the thread behind it, `next`; `last` is the last one of the queue.
    fn count<P: LockPlatform>(hand_over: &HandOver<'_, P>) -> u32;

    /// Whether a thread that is told this changes the lock.
    fn is_due(told: u32) -> bool;
}

/// A hand-over in the one queue.
pub(super) struct HandOver<'a, P: LockPlatform> {
    pub(super) records: &'a Records<P>,
    pub(super) groups: &'a [usize],
    pub(super) name: u32,
    pub(super) told: u32,
    pub(super) next: u32,
    pub(super) last: u32,
}

/// By hand-overs, and those of them to other groups: HQ-spinlock, version 3.
pub(super) struct ByHandOvers;

/// Hand-overs without a break, and those to other groups among them.
const GENERAL: u32 = 50;
const REMOTE: u32 = 2;
/// The first bit of the hand-overs to other groups.
const REMOTE_SHIFT: u32 = 16;

impl Trigger for ByHandOvers {
    const NUMBERS_THREADS: bool = false;
    const TURNS_BACK: bool = true;

    fn count<P: LockPlatform>(hand_over: &HandOver<'_, P>) -> u32 {
        let group = |name: u32| hand_over.groups[name as usize - 1];
        let [general, remote] = [hand_over.told & 0xffff, hand_over.told >> REMOTE_SHIFT];
        let crosses = u32::from(group(hand_over.name) != group(hand_over.next));
        (general + 1).min(0xffff) | (remote + crosses).min(0xffff) << REMOTE_SHIFT
    }

    fn is_due(told: u32) -> bool {
        told & 0xffff >= GENERAL && told >> REMOTE_SHIFT >= REMOTE
    }
}

/// By the length of the queue: the document of 2024. Threads number themselves when they queue up, so the queue is as long as the difference
/// of its ends' numbers. The lock changes when more than `depth` threads waited at `TIMES` hand-overs in a row.
pub(super) struct ByDepth;

/// The document's `osq_keep_times`.
const TIMES: u32 = 32;

impl Trigger for ByDepth {
    const NUMBERS_THREADS: bool = true;
    /// The document looks for idle locks once a minute: never within a run.
    const TURNS_BACK: bool = false;

    fn count<P: LockPlatform>(hand_over: &HandOver<'_, P>) -> u32 {
        // Relaxed, both: a hint. The last thread may not have noted its number yet.
        let number = |name| hand_over.records.at(name).serial.load(Ordering::Relaxed);
        let waiting = number(hand_over.last).wrapping_sub(number(hand_over.name)) as i32;
        let deep = waiting > hand_over.records.roster.depth as i32;
        if deep { hand_over.told.saturating_add(1) } else { 1 }
    }

    fn is_due(told: u32) -> bool {
        told > TIMES
    }
}

/// Notes how many threads have queued up before this one: `before` is the thread in front of it, 0 if there is none.
pub(super) fn note_number<P: LockPlatform>(records: &Records<P>, name: u32, before: u32) {
    // Relaxed, both: a hint.
    let ahead = if before == 0 { 0 } else { records.at(before).serial.load(Ordering::Relaxed) };
    records.at(name).serial.store(ahead.wrapping_add(1), Ordering::Relaxed);
}
