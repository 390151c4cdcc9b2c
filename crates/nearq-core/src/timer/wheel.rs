//! When each node is due: a hierarchical timing wheel, touched by one thread.
//!
//! After G. Varghese and T. Lauck, "Hashed and Hierarchical Timing Wheels: Data Structures for the Efficient
//! Implementation of a Timer Facility" (SOSP 1987), scheme 7. What is different here: deadlines are kept to the
//! nanosecond, no tick ever runs, and a slot knows its earliest deadline, so that its owner can sleep exactly until then.
//!
//! # Where a node is
//! Time is counted in ticks of 2^12 ns, about 4 µs; a tick's number is read as nine digits of six bits. `elapsed` is the tick up to which
//! time has been followed. A node whose deadline lies in tick `t` is on the level of the highest digit in which `t` differs from `elapsed`
//! (level 0 if none does), in the slot of `t`'s digit there. A deadline that has passed counts as `elapsed`.
//!
//! # Invariants
//! 1. All nodes of level `l` agree with `elapsed` in the digits above `l`, and have a larger one at `l`; on level 0, a larger one or the
//!    same. So every node of a level is due before every node of a higher one, every node of a slot before those of the slots after it, and
//!    the first nodes are in the lowest used slot of the lowest used level. Nothing wraps around, and 9 levels of 6 bits above 12 are more
//!    than the 64 bits of a deadline: no deadline is beyond the wheel.
//! 2. `elapsed` moves to a tick only if no node is due before that tick, and no slot of a higher level has begun. A slot that has begun is
//!    *cascaded* first: its nodes are put where they belong as seen from the new `elapsed`. They agree with it in one more digit, so each
//!    goes to a lower level: a node is moved eight times at most.
//! 3. `earliest` of a slot in use is not later than any deadline in it. It is exact unless the node that set it was removed. A bound that
//!    is too early costs its owner one check, which makes it exact or cascades the slot.
//!
//! Insertion and removal touch one slot: O(1). Nothing is allocated after the wheel was made; its size is 10 KB.

use core::ptr::{NonNull, null_mut};

/// A tick is 2 to this power, in nanoseconds. It only determines how far apart the nodes of one slot are, not when they are due.
const TICK_BITS: u32 = 12;
/// A level has 2 to this power slots: as many as a bitmap of 64 bits.
const DIGIT_BITS: u32 = 6;
const SLOTS: usize = 1 << DIGIT_BITS;
/// So that every deadline is inside: 12 + 9 * 6 >= 64.
const LEVELS: usize = 9;
const _: () = assert!(TICK_BITS + DIGIT_BITS * LEVELS as u32 >= u64::BITS);

/// An [`Entry::place`] that stands for none.
const NOWHERE: u16 = u16::MAX;

/// A node's part that belongs to the wheel; nothing else reads or changes it.
pub(crate) struct Entry<N> {
    /// The next and the previous node of the slot, in a ring.
    next: *mut N,
    previous: *mut N,
    deadline: u64,
    /// Level and slot, or [`NOWHERE`].
    place: u16,
}

impl<N> Entry<N> {
    pub(crate) const fn new() -> Self {
        Entry { next: null_mut(), previous: null_mut(), deadline: 0, place: NOWHERE }
    }
}

/// What can be put on a wheel.
///
/// # Safety
/// `with_entry` gives, for one node, the same entry each time, and a different one for each other node.
pub(crate) unsafe trait Node: Sized {
    /// Runs `f` on the node's entry.
    ///
    /// # Safety
    /// The node is alive, and only the caller touches its entry.
    unsafe fn with_entry<R>(node: NonNull<Self>, f: impl FnOnce(&mut Entry<Self>) -> R) -> R;
}

struct Level<N> {
    /// Which slots are in use.
    used: u64,
    /// The first node of each slot; the last one is the one before it.
    heads: [*mut N; SLOTS],
    /// Not later than any deadline of the slot; see 3.
    earliest: [u64; SLOTS],
}

/// A timing wheel of nodes that others own. A node on it is alive and stays where it is in memory, and only the wheel touches its entry:
/// the caller that inserts it promises that.
pub(crate) struct Wheel<N: Node> {
    /// In ticks.
    elapsed: u64,
    /// Which levels are in use.
    used: u32,
    levels: Box<[Level<N>]>,
}

impl<N: Node> Wheel<N> {
    /// An empty wheel, at the time `now`.
    pub(crate) fn new(now: u64) -> Self {
        let level = || Level { used: 0, heads: [null_mut(); SLOTS], earliest: [0; SLOTS] };
        let levels = (0..LEVELS).map(|_| level()).collect();
        Wheel { elapsed: now >> TICK_BITS, used: 0, levels }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Puts a node on the wheel.
    ///
    /// # Safety
    /// The node is on no wheel; it stays alive and in place until it is off again, and until then only this wheel touches its entry.
    pub(crate) unsafe fn insert(&mut self, node: NonNull<N>, deadline: u64) {
        let tick = (deadline >> TICK_BITS).max(self.elapsed);
        let differing = tick ^ self.elapsed;
        let level = differing.checked_ilog2().map_or(0, |bit| (bit / DIGIT_BITS) as usize);
        let slot = (tick >> (DIGIT_BITS * level as u32)) as usize % SLOTS;
        let row = &mut self.levels[level];
        let head = row.heads[slot];
        let (next, previous) = match NonNull::new(head) {
            None => {
                row.heads[slot] = node.as_ptr();
                row.earliest[slot] = deadline;
                row.used |= 1 << slot;
                self.used |= 1 << level;
                (node.as_ptr(), node.as_ptr())
            }
            Some(first) => {
                row.earliest[slot] = row.earliest[slot].min(deadline);
                // SAFETY: it is on this wheel.
                let last = unsafe {
                    N::with_entry(first, |first| {
                        core::mem::replace(&mut first.previous, node.as_ptr())
                    })
                };
                // SAFETY: in a ring every link leads to a node of this wheel.
                unsafe {
                    N::with_entry(NonNull::new_unchecked(last), |last| last.next = node.as_ptr());
                }
                (head, last)
            }
        };
        let place = (level * SLOTS + slot) as u16;
        // SAFETY: the caller gives us the node.
        unsafe {
            N::with_entry(node, |entry| {
                debug_assert_eq!(entry.place, NOWHERE, "a node is put on the wheel twice");
                *entry = Entry { next, previous, deadline, place };
            });
        }
    }

    /// Takes a node off the wheel; false if it was on none.
    ///
    /// # Safety
    /// The node is alive, and on no other wheel.
    pub(crate) unsafe fn remove(&mut self, node: NonNull<N>) -> bool {
        // SAFETY: alive by the caller's promise; its entry is touched by this wheel alone.
        let (next, previous, place) = unsafe {
            N::with_entry(node, |entry| {
                let place = core::mem::replace(&mut entry.place, NOWHERE);
                (entry.next, entry.previous, place)
            })
        };
        if place == NOWHERE {
            return false;
        }
        let (level, slot) = (usize::from(place) / SLOTS, usize::from(place) % SLOTS);
        let row = &mut self.levels[level];
        if next == node.as_ptr() {
            row.heads[slot] = null_mut();
            row.used &= !(1 << slot);
            if row.used == 0 {
                self.used &= !(1 << level);
            }
            return true;
        }
        if row.heads[slot] == node.as_ptr() {
            row.heads[slot] = next;
        }
        // SAFETY: in a ring every link leads to a node of this wheel.
        unsafe { N::with_entry(NonNull::new_unchecked(next), |entry| entry.previous = previous) };
        // SAFETY: in a ring every link leads to a node of this wheel, which is alive while it is there.
        unsafe { N::with_entry(NonNull::new_unchecked(previous), |entry| entry.next = next) };
        true
    }

    /// The earliest deadline, or an earlier time if a node was removed; none if the wheel is empty.
    pub(crate) fn next_expiry(&self) -> Option<u64> {
        self.first().map(|(level, slot)| self.levels[level].earliest[slot])
    }

    /// Takes off one node that is due; the earliest tick first, within a tick in no particular order.
    ///
    /// A caller that takes until nothing is left has taken all of them. In between, nodes may be put on and taken off. `now` never goes
    /// back.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<NonNull<N>> {
        let present = now >> TICK_BITS;
        debug_assert!(self.elapsed <= present, "time goes back");
        loop {
            let Some((level, slot)) = self.first() else {
                self.elapsed = present;
                return None;
            };
            let begin = self.begin(level, slot);
            if begin > present {
                self.elapsed = present;
                return None;
            }
            let earliest = self.levels[level].earliest[slot];
            if level > 0 {
                // No node is due before its earliest, nor outside the slot.
                self.cascade(level, slot, (earliest >> TICK_BITS).clamp(begin, present));
                continue;
            }
            self.elapsed = begin;
            return if earliest > now { None } else { self.take_from(slot, now) };
        }
    }

    /// Takes off any node: for the end.
    pub(crate) fn take_any(&mut self) -> Option<NonNull<N>> {
        let (level, slot) = self.first()?;
        let node = self.head(level, slot);
        // SAFETY: it is on this wheel.
        unsafe { self.remove(node) };
        Some(node)
    }

    /// The slot whose nodes are due first; see 1.
    fn first(&self) -> Option<(usize, usize)> {
        if self.used == 0 {
            return None;
        }
        let level = self.used.trailing_zeros() as usize;
        Some((level, self.levels[level].used.trailing_zeros() as usize))
    }

    /// The first tick of a slot that is in use.
    fn begin(&self, level: usize, slot: usize) -> u64 {
        let shift = DIGIT_BITS * level as u32;
        let above = self.elapsed >> shift >> DIGIT_BITS << DIGIT_BITS;
        (above | slot as u64) << shift
    }

    fn head(&self, level: usize, slot: usize) -> NonNull<N> {
        NonNull::new(self.levels[level].heads[slot]).expect("a slot in use has a node")
    }

    /// Moves time to the tick `to` inside a slot of a higher level, and its nodes to lower levels.
    fn cascade(&mut self, level: usize, slot: usize, to: u64) {
        self.elapsed = to;
        let row = &mut self.levels[level];
        let head = core::mem::replace(&mut row.heads[slot], null_mut());
        row.used &= !(1 << slot);
        if row.used == 0 {
            self.used &= !(1 << level);
        }
        let mut node = head;
        loop {
            // SAFETY: in a ring every link leads to a node of this wheel.
            let this = unsafe { NonNull::new_unchecked(node) };
            // SAFETY: a node of this wheel, hence alive; its entry is touched by this wheel alone.
            let (next, deadline) = unsafe {
                N::with_entry(this, |entry| {
                    entry.place = NOWHERE;
                    (entry.next, entry.deadline)
                })
            };
            // SAFETY: it is off its slot, and still ours.
            unsafe { self.insert(this, deadline) };
            if next == head {
                return;
            }
            node = next;
        }
    }

    /// Takes off one node of level 0 that is due. Those that are not are moved to the end, so that the next call comes to all others first.
    fn take_from(&mut self, slot: usize, now: u64) -> Option<NonNull<N>> {
        let begin = self.head(0, slot);
        let mut node = begin;
        let mut earliest = u64::MAX;
        loop {
            // SAFETY: it is on this wheel.
            let (next, deadline) =
                unsafe { N::with_entry(node, |entry| (entry.next, entry.deadline)) };
            if deadline <= now {
                self.levels[0].heads[slot] = node.as_ptr();
                // SAFETY: it is on this wheel, hence alive, and on no other.
                unsafe { self.remove(node) };
                return Some(node);
            }
            earliest = earliest.min(deadline);
            // SAFETY: in a ring every link leads to a node of this wheel.
            node = unsafe { NonNull::new_unchecked(next) };
            if node == begin {
                self.levels[0].earliest[slot] = earliest;
                return None;
            }
        }
    }
}

#[cfg(test)]
mod tests;
