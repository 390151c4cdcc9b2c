//! The cache lines at which the threads of a domain queue up, or count themselves as readers; they are in memory of the domain's node.
//!
//! Slots are made many at a time (`process_state.rs`), and their lines with them, on one *sheet*: an area for each domain, in which the
//! lines of all the slots of the sheet lie side by side. If domains are on several nodes, areas are whole pages, and each is requested from
//! its domain's node. A slot has a *row*: its line in each area, at the same place in each, so that finding one is a multiplication and an
//! addition.
//!
//! If the system refuses a node, that is not an error: containers forbid it, and cpusets leave nodes out. The memory is then on the node of
//! the thread that made the sheet; everything works, but more slowly.

use core::ops::Index;
use core::ptr::NonNull;
use std::alloc::{self, Layout};

use nearq_platform::{Atomic, AtomicInt, LockPlatform, MemoryPolicy, Ordering};

use crate::fallible;

/// A domain's queue in one slot; `slot.rs` describes its contents. Other domains touch it only when the turn goes there.
#[repr(align(64))]
pub(crate) struct Line<P: LockPlatform> {
    /// The number of the last record, and the generation.
    pub(crate) tail: P::AtomicU64,
    /// The number of the record that stands up.
    pub(crate) front: P::AtomicU32,
    /// How often a thread of the domain took the mutex without the turn. Only the thread that holds the mutex writes it.
    pub(crate) passes: P::AtomicU32,
    /// For how many turns of the domain no thread is let run, and for how many none was the last time (`turn/running.rs`). Only the thread
    /// that has the turn uses these and the next.
    pub(crate) orderly: P::AtomicU32,
    pub(crate) orderly_before: P::AtomicU32,
    /// How many more batches ended because no thread was left in the domain than because it was another domain's turn.
    pub(crate) dry: P::AtomicU32,
    /// The number of the record with whose turn the current round of the batch ends, and how many rounds of it are over.
    pub(crate) round_ends: P::AtomicU32,
    pub(crate) rounds: P::AtomicU32,
    /// Whether the turn came back to the domain within the patience. Threads that wait read it as a hint.
    pub(crate) brisk: P::AtomicU32,
    /// When the turn last came to the domain.
    pub(crate) began: P::AtomicU64,
}

const _: () =
    assert!(size_of::<Line<nearq_platform::Linux>>() == 64, "a domain's queue is a cache line");

/// What a domain has of each slot, or of each row: at least a cache line.
pub(crate) trait DomainLine {
    fn new() -> Self;
}

impl<P: LockPlatform> DomainLine for Line<P> {
    fn new() -> Self {
        let zero = || P::AtomicU32::new(0);
        Line {
            tail: P::AtomicU64::new(0),
            front: zero(),
            passes: zero(),
            orderly: zero(),
            orderly_before: zero(),
            dry: zero(),
            round_ends: zero(),
            rounds: zero(),
            brisk: zero(),
            began: P::AtomicU64::new(0),
        }
    }
}

impl<P: LockPlatform> Line<P> {
    /// For a new binding: what is known about the mutex is forgotten.
    pub(crate) fn forget(&self) {
        // Relaxed for all: used only by the thread that has the turn; `brisk` is a hint for others.
        for known in [&self.orderly, &self.orderly_before, &self.dry, &self.brisk] {
            known.store(0, Ordering::Relaxed);
        }
        self.began.store(0, Ordering::Relaxed);
    }
}

/// The lines of slots that are made together. Freed with the last row.
struct Sheet<L> {
    start: NonNull<L>,
    layout: Layout,
    /// Bytes from one area to the next.
    stride: usize,
    slots: usize,
    domains: usize,
}

// SAFETY: it is memory of its own, and only shared references to it are given out.
unsafe impl<L: Send> Send for Sheet<L> {}
// SAFETY: lines may be shared.
unsafe impl<L: Sync> Sync for Sheet<L> {}

impl<L: DomainLine> Sheet<L> {
    /// Lines for this many slots, at least one; for each domain, on the node that `nodes` has for it. None if there is no memory.
    fn new<P: LockPlatform>(slots: usize, nodes: &[Option<usize>]) -> Option<Self> {
        let one_node = nodes.iter().all(|node| *node == nodes[0]);
        let unit = if one_node { align_of::<L>() } else { P::page_size() };
        let stride = (slots * size_of::<L>()).next_multiple_of(unit);
        let layout = Layout::from_size_align(stride * nodes.len(), unit).ok()?;
        // SAFETY: there is a slot and a domain, so it is not of size zero.
        let start = NonNull::new(unsafe { alloc::alloc_zeroed(layout) })?;
        let sheet = Sheet { start: start.cast(), layout, stride, slots, domains: nodes.len() };
        for (domain, node) in nodes.iter().enumerate() {
            if let Some(node) = node.as_ref().filter(|_| !one_node) {
                let area = start.as_ptr().wrapping_add(domain * stride).cast_const();
                // SAFETY: validity: within the allocation, zeroed. Aliasing and thread: no other thread knows of it, and nothing is written
                // while the slice is used.
                let area = unsafe { core::slice::from_raw_parts(area, stride) };
                // Allocating may have touched it. If refused: see above.
                let _ = P::bind_memory(area, &MemoryPolicy::Preferred(*node), true);
            }
            for slot in 0..slots {
                // SAFETY: validity: a line's place within the allocation, aligned. Aliasing and thread: no other thread knows of the sheet.
                unsafe { sheet.place(slot, domain).write(L::new()) };
            }
        }
        Some(sheet)
    }
}

impl<L> Sheet<L> {
    /// The place of a slot's line of a domain.
    fn place(&self, slot: usize, domain: usize) -> NonNull<L> {
        debug_assert!(slot < self.slots && domain < self.domains);
        // SAFETY: within the allocation: `stride` has space for the lines of all slots, and there are as many areas as domains.
        unsafe { self.start.byte_add(domain * self.stride).add(slot) }
    }
}

impl<L> Drop for Sheet<L> {
    fn drop(&mut self) {
        for domain in 0..self.domains {
            for slot in 0..self.slots {
                // SAFETY: each was written by `new`, and no row exists any more by which it could be reached.
                unsafe { self.place(slot, domain).drop_in_place() };
            }
        }
        // SAFETY: allocated by `new`, with that layout.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

/// A share of a sheet. It works like the standard library's `Arc`, which cannot be used because there may be no memory.
struct Share<P: LockPlatform, L>(NonNull<Shared<P, L>>);

struct Shared<P: LockPlatform, L> {
    count: P::AtomicU32,
    sheet: Sheet<L>,
}

impl<P: LockPlatform, L> Share<P, L> {
    /// The first share of a sheet; none if there is no memory.
    fn of(sheet: Sheet<L>) -> Option<Self> {
        let shared = fallible::boxed(Shared { count: P::AtomicU32::new(1), sheet })?;
        Some(Share(NonNull::from(Box::leak(shared))))
    }

    fn shared(&self) -> &Shared<P, L> {
        // SAFETY: validity: leaked by `of`, and there until the last share is dropped. Aliasing and thread: only shared.
        unsafe { self.0.as_ref() }
    }

    fn sheet(&self) -> &Sheet<L> {
        &self.shared().sheet
    }
}

impl<P: LockPlatform, L> Clone for Share<P, L> {
    fn clone(&self) -> Self {
        // Relaxed: the caller's share keeps it.
        self.shared().count.fetch_add(1, Ordering::Relaxed);
        Share(self.0)
    }
}

impl<P: LockPlatform, L> Drop for Share<P, L> {
    fn drop(&mut self) {
        // Release and acquire: what is done through the other shares is over.
        if self.shared().count.fetch_sub(1, Ordering::AcqRel) == 1 {
            // SAFETY: leaked by `of`, and this was the last share.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// A slot's lines, by domain.
pub(crate) struct Row<P: LockPlatform, L = Line<P>> {
    /// The line of the first domain.
    first: NonNull<L>,
    /// The stride of the sheet, so that one access finds all that is needed.
    stride: usize,
    domains: usize,
    _sheet: Share<P, L>,
}

// SAFETY: the lines belong to the sheet, which the row's share keeps alive, whichever thread has the row.
unsafe impl<P: LockPlatform, L: Send + Sync> Send for Row<P, L> {}
// SAFETY: a shared row gives out `&L`, and lines may be shared.
unsafe impl<P: LockPlatform, L: Sync> Sync for Row<P, L> {}

impl<P: LockPlatform, L: DomainLine> Row<P, L> {
    /// The rows of a new sheet for this many slots, at least one; `nodes` has the system's number of the node of each domain. None if there
    /// is no memory.
    pub(crate) fn sheet(
        slots: usize,
        nodes: &[Option<usize>],
    ) -> Option<impl ExactSizeIterator<Item = Self> + use<P, L>> {
        let sheet = Share::of(Sheet::new::<P>(slots, nodes)?)?;
        Some((0..slots).map(move |slot| Row {
            first: sheet.sheet().place(slot, 0),
            stride: sheet.sheet().stride,
            domains: sheet.sheet().domains,
            _sheet: sheet.clone(),
        }))
    }
}

impl<P: LockPlatform, L> Row<P, L> {
    /// The lines, by domain.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &L> {
        (0..self.domains).map(|domain| &self[domain])
    }
}

impl<P: LockPlatform, L> Index<usize> for Row<P, L> {
    type Output = L;

    #[inline]
    fn index(&self, domain: usize) -> &L {
        assert!(domain < self.domains, "there is no such domain");
        // SAFETY: validity: the slot's line of that domain (`Sheet::place`), written when the sheet was made; the sheet lives as long as
        // the row. Aliasing and thread: lines are only shared.
        unsafe { self.first.byte_add(domain * self.stride).as_ref() }
    }
}

#[cfg(test)]
mod tests;
