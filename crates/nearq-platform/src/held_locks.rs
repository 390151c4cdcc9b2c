//! Which locks a thread holds, as far as locks note it: for debug builds, which check that locks are used correctly.
//!
//! A lock of four bytes has no space for its holder, so each thread has a list of what it holds ([`LockPlatform::with_held`]). A lock is
//! known by its address alone; the list never follows it.
//!
//! # What the list knows
//! - A thread that does not have a lock in its list does not hold it, unless it took it without noting it, or the lock was moved.
//!   The list has space for [`CAPACITY`] locks. Beyond that it only counts, and gives the benefit of the doubt.
//! - A thread that has a lock in its list may not hold it: the lock was leaked while it was held, and another one is at its
//!   address now. So a thread that takes a lock also leaves its mark in a table of the whole program, at the entry for that
//!   address ([`LAST`]). If the mark is that of the thread and of that address, no other thread has taken the lock since.
//!
//! # Which thread may touch what
//! The list belongs to its thread. A signal handler may change it in between; each step leaves it in a state in which a handler
//! that gives back as much as it takes does no harm. The table is shared by all threads: relaxed, a mark and nothing else.
//!
//! [`LockPlatform::with_held`]: crate::LockPlatform::with_held

use core::cell::{Cell, UnsafeCell};
use core::sync::atomic::{AtomicU64, Ordering};

/// How many locks a list has space for. More than two or three at once are rare, except for a thread that forks: it holds them all.
const CAPACITY: usize = 32;
/// How many marks there are. Two locks that share a mark overwrite each other's; this only loses information.
const MARKS: usize = 1024;

/// The mark of the thread that took a lock last, by address.
static LAST: [AtomicU64; MARKS] = [const { AtomicU64::new(0) }; MARKS];
/// How many lists have been given a name so far.
static LISTS: AtomicU64 = AtomicU64::new(0);

/// The locks that one thread holds.
#[derive(Debug)]
pub struct HeldLocks {
    /// The addresses, in no order. No reference to it is ever made. It is not made of cells, because each read of a cell is a call in
    /// debug builds.
    list: UnsafeCell<[usize; CAPACITY]>,
    /// How many there are.
    count: Cell<usize>,
    /// How many more it holds that are not in the list.
    beyond: Cell<u32>,
    /// A number that no other list has had; 0 if it has not been needed yet.
    name: Cell<u64>,
}

impl HeldLocks {
    /// The list of a thread that holds no lock.
    pub const fn new() -> Self {
        HeldLocks {
            list: UnsafeCell::new([0; CAPACITY]),
            count: Cell::new(0),
            beyond: Cell::new(0),
            name: Cell::new(0),
        }
    }

    fn find(&self, lock: usize) -> Option<usize> {
        // The last one taken is usually the first one given back.
        let mut at = self.count.get();
        while at > 0 {
            at -= 1;
            if self.at(at) == lock {
                return Some(at);
            }
        }
        None
    }

    #[inline(always)]
    fn at(&self, at: usize) -> usize {
        let list = self.list.get();
        // SAFETY: ours, and of the caller's thread alone, which makes no reference to it; the index is checked.
        unsafe { (*list)[at] }
    }

    fn put(&self, at: usize, lock: usize) {
        let list = self.list.get();
        // SAFETY: ours, and of the caller's thread alone, which makes no reference to it; the index is checked.
        unsafe { (*list)[at] = lock };
    }

    /// The mark of this thread for a lock, and the entry where it belongs.
    fn mark(&self, lock: usize) -> (&'static AtomicU64, u64) {
        if self.name.get() == 0 {
            // Relaxed: a number that no other list gets.
            self.name.set(LISTS.fetch_add(1, Ordering::Relaxed) + 1);
        }
        // Knuth's multiplicative hashing: adjacent addresses are spread over the table.
        let spread = (lock as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (&LAST[(spread >> 54) as usize], spread ^ self.name.get())
    }

    /// The thread has taken the lock.
    pub fn add(&self, lock: usize) {
        let (last, mark) = self.mark(lock);
        // Relaxed: see the head of the file.
        last.store(mark, Ordering::Relaxed);
        if self.find(lock).is_none() {
            self.push(lock);
        }
    }

    /// As [`add`](Self::add), for a lock that a thread may take several times: it is in the list as often as the thread has it.
    pub fn add_again(&self, lock: usize) {
        let (last, mark) = self.mark(lock);
        // Relaxed: see the head of the file.
        last.store(mark, Ordering::Relaxed);
        self.push(lock);
    }

    fn push(&self, lock: usize) {
        let count = self.count.get();
        if count < CAPACITY {
            self.count.set(count + 1);
            self.put(count, lock);
        } else {
            // A new lock matters more than one that may have been leaked long ago.
            let beyond = self.beyond.get();
            self.beyond.set(beyond + 1);
            self.put(beyond as usize % CAPACITY, lock);
        }
    }

    /// The thread gives the lock back, or has lost it. Returns whether it was in the list.
    pub fn forget(&self, lock: usize) -> bool {
        let Some(at) = self.find(lock) else { return false };
        let last = self.count.get() - 1;
        self.put(at, self.at(last));
        self.count.set(last);
        true
    }

    /// The thread releases the lock. False if it cannot hold it.
    pub fn remove(&self, lock: usize) -> bool {
        if self.forget(lock) {
            return true;
        }
        let beyond = self.beyond.get();
        self.beyond.set(beyond.saturating_sub(1));
        beyond > 0
    }

    /// False if the thread cannot hold the lock.
    pub fn may_have(&self, lock: usize) -> bool {
        self.beyond.get() > 0 || self.find(lock).is_some()
    }

    /// Whether the thread took the lock, has not given it back, and no other thread has noted since that it took it.
    pub fn surely_has(&self, lock: usize) -> bool {
        let (last, mark) = self.mark(lock);
        // Relaxed: see the head of the file.
        self.find(lock).is_some() && last.load(Ordering::Relaxed) == mark
    }
}

impl Default for HeldLocks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_lock_is_recorded_until_it_is_released() {
        let held = HeldLocks::new();
        assert!(!held.remove(64) && !held.may_have(64) && !held.surely_has(64));
        for lock in [64, 128, 192] {
            held.add(lock);
        }
        assert!(held.remove(128) && !held.remove(128));
        assert!(held.surely_has(64) && held.surely_has(192) && !held.may_have(128));
        assert!(held.remove(192) && held.remove(64) && !held.may_have(64));
    }

    #[test]
    fn a_lock_whose_address_was_reused_is_only_possibly_held() {
        let (leaker, other) = (HeldLocks::new(), HeldLocks::new());
        leaker.add(0x1000);
        assert!(leaker.surely_has(0x1000));
        other.add(0x1000);
        assert!(leaker.may_have(0x1000) && !leaker.surely_has(0x1000));
        assert!(other.remove(0x1000) && !leaker.surely_has(0x1000));
        // The thread takes the new lock: it is in the list once, and is removed when the lock is released.
        leaker.add(0x1000);
        assert!(leaker.surely_has(0x1000));
        assert!(leaker.remove(0x1000) && !leaker.may_have(0x1000));
    }

    #[test]
    fn beyond_its_capacity_the_record_is_uncertain_until_it_empties() {
        let held = HeldLocks::new();
        let all = 1..=2 * CAPACITY + 5;
        for lock in all.clone() {
            held.add(lock * 8);
        }
        assert!(held.surely_has((2 * CAPACITY + 5) * 8) && held.may_have(4));
        for lock in all {
            assert!(held.remove(lock * 8), "{lock}");
        }
        assert!(!held.may_have(8) && !held.remove(8));
    }
}
