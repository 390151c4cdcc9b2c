//! The items that one worker has taken and not yet started; other workers may take them back.
//!
//! A worker moves up to [`CAPACITY`] items under the pool's lock at a time, so that the lock costs little per item. But the first of them
//! may take long, or block. So a batch belongs to its worker only while no other worker is out of work.
//!
//! # Protocol
//! `word` packs `generation:32 | head:16 | tail:16`; the batch holds the slots `head..tail`.
//! * *fill* (owner, when `head == tail`): writes the slots, then `word` with a new generation.
//! * *pop* (owner): reads slot `head`, then moves `head` by compare-exchange.
//! * *steal* (any worker): reads the upper half of the slots, then moves `tail` by compare-exchange.
//!
//! Only the owner writes slots, and only when they are empty. The new generation makes every compare-exchange fail that began before the
//! fill, so a thief's stale reads are thrown away. The release of *fill* pairs with the acquire of *steal*'s load and hands the items over.

use core::ptr::NonNull;

use nearq_platform::{Atomic, Ordering, Platform};

use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;

/// Items that a worker moves under the pool's lock at most. Large enough that the lock's cost (two atomic
/// operations, about 10 ns) vanishes beside 32 items, small enough to fit four cache lines.
pub(crate) const CAPACITY: usize = 32;

/// A worker's batch.
pub(crate) struct Batch<P: Platform> {
    word: P::AtomicU64,
    slots: [P::AtomicPtr<Item<P>>; CAPACITY],
}

fn pack(generation: u64, head: u64, tail: u64) -> u64 {
    (generation & 0xffff_ffff) << 32 | head << 16 | tail
}

fn unpack(word: u64) -> (u64, u64, u64) {
    (word >> 32, word >> 16 & 0xffff, word & 0xffff)
}

impl<P: Platform> Batch<P> {
    pub(crate) fn new() -> Self {
        Batch {
            word: P::AtomicU64::new(0),
            slots: core::array::from_fn(|_| P::AtomicPtr::new(core::ptr::null_mut())),
        }
    }

    /// The number of items in it.
    pub(crate) fn len(&self) -> usize {
        let (_, head, tail) = unpack(self.word.load(Ordering::Relaxed));
        (tail - head) as usize
    }

    /// A number that changes whenever an item is added or removed.
    pub(crate) fn signature(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// In the child of a fork: empties it, because its content is the parent's.
    pub(crate) fn after_fork_in_child(&self) {
        let (generation, ..) = unpack(self.word.load(Ordering::Relaxed));
        crate::base::forked::set(&self.word, pack(generation, 0, 0));
    }

    /// Moves up to `count` items from the front of `list`; returns how many. Owner only, when it is empty.
    pub(crate) fn fill(&self, list: &mut List<P>, count: usize) -> usize {
        let (generation, head, tail) = unpack(self.word.load(Ordering::Relaxed));
        debug_assert_eq!(head, tail, "a batch is filled when it is empty");
        let mut moved = 0;
        while moved < count.min(CAPACITY) {
            let Some(item) = list.pop_front() else { break };
            self.slots[moved].store(item.into_raw().as_ptr(), Ordering::Relaxed);
            moved += 1;
        }
        // Release: pairs with the acquire in `steal`.
        self.word.store(pack(generation + 1, 0, moved as u64), Ordering::Release);
        moved
    }

    /// Takes the oldest item. Owner only.
    #[inline]
    pub(crate) fn pop(&self) -> Option<Pending<P>> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let (generation, head, tail) = unpack(word);
            if head == tail {
                return None;
            }
            let item = self.slots[head as usize].load(Ordering::Relaxed);
            // Relaxed is enough: only the owner pops, and it put the items there itself.
            match self.word.compare_exchange_weak(
                word,
                pack(generation, head + 1, tail),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                // SAFETY: `fill` has put it there, and the batch has given it up.
                Ok(_) => return NonNull::new(item).map(|item| unsafe { Pending::from_raw(item) }),
                Err(found) => word = found,
            }
        }
    }

    /// Takes the younger half (at least one item) into `into`; returns how many. Takes none if `owned` says that the batch belongs to
    /// another pool by now. `owned` is called after the batch has been read, so what is taken belongs to the pool for which it was
    /// requested.
    pub(crate) fn steal(&self, into: &mut List<P>, owned: impl FnOnce() -> bool) -> usize {
        // Acquire: pairs with the release in `fill`.
        let word = self.word.load(Ordering::Acquire);
        let (generation, head, tail) = unpack(word);
        let count = (tail - head).div_ceil(2);
        if count == 0 || !owned() {
            return 0;
        }
        let from = tail - count;
        let mut items = [core::ptr::null_mut(); CAPACITY];
        for slot in from..tail {
            items[(slot - from) as usize] = self.slots[slot as usize].load(Ordering::Relaxed);
        }
        if self
            .word
            .compare_exchange(
                word,
                pack(generation, head, from),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_err()
        {
            return 0;
        }
        for item in &items[..count as usize] {
            let item = NonNull::new(*item).expect("a slot below the tail is filled");
            // SAFETY: `fill` has put it there, and the step above has taken it out of the batch: no other thread gets it.
            into.push_back(unsafe { Pending::from_raw(item) });
        }
        count as usize
    }
}

#[cfg(test)]
mod tests;
