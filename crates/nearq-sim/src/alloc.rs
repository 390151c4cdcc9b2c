//! A global allocator that gives every object its own cache lines, and large ones their own pages.

use std::alloc::{GlobalAlloc, Layout, System};

use crate::memory::{self, PAGE};

const LINE: usize = 64;
/// Bytes of the note in front of an object of pages.
const NOTE: usize = size_of::<*mut u8>();

/// A global allocator that starts every object on a cache line and shares no line between two objects; objects of a
/// page (4 KiB) or more start on a page and share none.
///
/// The simulator takes lines and pages from real addresses. Which objects lie side by side depends on the allocator and its history, so the
/// same program may cost a little more or less in another process. In a binary that sets this allocator, a run is a function of machine,
/// program and seed alone, if the ranges that the binary declares ([`Sim::read`](crate::Sim::read)) are inside objects of a page or more:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;
/// # fn main() {}
/// ```
///
/// It also reports to the simulation when pages are returned, so that declared memory that is used again starts as new. Without the
/// allocator, the simulation treats declared memory as if it had never been freed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LineAligned;

/// How an object is placed. It is a function of the layout, so that freeing finds the same placement as allocating.
enum Placed {
    /// In a block of this layout: the object has its own lines.
    Lines(Layout),
    /// Inside a block of this layout, which leaves space for aligning the object itself: the object has its own pages. If the system were
    /// asked for the alignment instead, it would write to all of a zeroed object, which may be much larger than the part that is ever used.
    Pages(Layout),
}

/// The alignment that an object of pages gets.
fn page_align(layout: Layout) -> usize {
    layout.align().max(PAGE)
}

impl LineAligned {
    fn placed(layout: Layout) -> Option<Placed> {
        if layout.size() < PAGE {
            return Some(Placed::Lines(layout.align_to(LINE).ok()?.pad_to_align()));
        }
        let whole = layout.size().checked_next_multiple_of(PAGE)?;
        // In front of the object, at least a word that says where the block begins.
        let header = page_align(layout).checked_add(LINE)?;
        Layout::from_size_align(whole.checked_add(header)?, LINE / 4).ok().map(Placed::Pages)
    }

    /// Where in a block the object of pages begins; notes in front of that where the block begins.
    ///
    /// # Safety
    /// `block` is null or a block of the layout that `placed` makes for an object of pages of this layout.
    unsafe fn into_pages(block: *mut u8, layout: Layout) -> *mut u8 {
        if block.is_null() {
            return block;
        }
        let align = page_align(layout);
        let gap = (block.addr() + NOTE).next_multiple_of(align) - block.addr();
        // SAFETY: the gap is at least a word, so there is space for the note; and it is at most the alignment, as the
        // block is aligned to a word, so the object is within the block.
        unsafe {
            let object = block.add(gap);
            object.sub(NOTE).cast::<*mut u8>().write_unaligned(block);
            object
        }
    }

    /// The block of an object of pages.
    ///
    /// # Safety
    /// `object` was made by `into_pages`.
    unsafe fn noted(object: *mut u8) -> *mut u8 {
        // SAFETY: the note is where `into_pages` put it, and nothing else writes there.
        unsafe { object.sub(NOTE).cast::<*mut u8>().read_unaligned() }
    }
}

// SAFETY: all memory comes from and goes back to `System`, each time with the layout that `placed` makes of the caller's. The object is
// inside that memory, as large and aligned as the caller wants it, and nothing writes to the note in front of an object of pages. This code
// does not unwind or allocate: the calls to a simulation only make it forget.
unsafe impl GlobalAlloc for LineAligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Self::placed(layout) {
            // SAFETY: the caller's layout is not of size zero, so the wider one is not.
            Some(Placed::Lines(wide)) => unsafe { System.alloc(wide) },
            // SAFETY: the caller's layout is not of size zero, so the wider one is not; the block has the layout that `placed` makes.
            Some(Placed::Pages(wide)) => unsafe { Self::into_pages(System.alloc(wide), layout) },
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match Self::placed(layout) {
            // SAFETY: the caller's layout is not of size zero, so the wider one is not.
            Some(Placed::Lines(wide)) => unsafe { System.alloc_zeroed(wide) },
            // SAFETY: the caller's layout is not of size zero, so the wider one is not; the block has the layout that `placed` makes.
            Some(Placed::Pages(wide)) => unsafe {
                Self::into_pages(System.alloc_zeroed(wide), layout)
            },
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, object: *mut u8, layout: Layout) {
        match Self::placed(layout) {
            // SAFETY: the caller got `object` from us with `layout`, so we got it with `wide`.
            Some(Placed::Lines(wide)) => unsafe { System.dealloc(object, wide) },
            Some(Placed::Pages(wide)) => {
                memory::given_back(object.addr(), layout.size().next_multiple_of(PAGE));
                // SAFETY: the caller got `object` from us with `layout`, so `into_pages` noted its block.
                unsafe { System.dealloc(Self::noted(object), wide) };
            }
            None => {}
        }
    }

    unsafe fn realloc(&self, object: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(new) = Layout::from_size_align(size, layout.align()) else {
            return std::ptr::null_mut();
        };
        if let (Some(Placed::Lines(old)), Some(Placed::Lines(new))) =
            (Self::placed(layout), Self::placed(new))
        {
            // SAFETY: the caller got `object` from us with `layout`, so we got it with `old`; the new size is not zero because the
            // caller's is not.
            return unsafe { System.realloc(object, old, new.size()) };
        }
        // Pages always move: whether the system has space behind them must not matter. SAFETY: `alloc` as the
        // size is not zero; both objects are as large as what is copied, and they are different; `dealloc` as
        // the caller gives `object` up if this succeeds.
        unsafe {
            let moved = self.alloc(new);
            if !moved.is_null() {
                moved.copy_from_nonoverlapping(object, layout.size().min(size));
                self.dealloc(object, layout);
            }
            moved
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Not under Miri: there the pointer of a `Vec` is valid for the bytes of the `Vec` alone, and an allocator that
    /// widens objects frees more than those.
    #[cfg(not(miri))]
    #[global_allocator]
    static ALLOCATOR: LineAligned = LineAligned;

    #[test]
    fn large_objects_have_their_own_pages_and_keep_their_contents() {
        for (size, align) in
            [(1, 1), (4095, 8), (4096, 1), (5000, 64), (70_000, 16), (4096, 32_768)]
        {
            let layout = Layout::from_size_align(size, align).expect("small enough");
            let required_align = if size < PAGE { LINE } else { PAGE };
            // SAFETY: the size is not zero; everything is used with the layout that it has at that time.
            unsafe {
                let object = LineAligned.alloc_zeroed(layout);
                assert!(
                    !object.is_null() && object.addr().is_multiple_of(required_align.max(align)),
                    "{size} {align}"
                );
                assert!((0..size).all(|at| object.add(at).read() == 0));
                object.write_bytes(7, size);
                for new in [3 * size, size / 2 + 1] {
                    let object = LineAligned.realloc(LineAligned.alloc_zeroed(layout), layout, new);
                    assert_eq!(object.add(size.min(new) - 1).read(), 0);
                    let required_align = if new < PAGE { LINE } else { PAGE };
                    assert_eq!(
                        object.addr() % required_align.max(align),
                        0,
                        "{size} to {new}, {align}"
                    );
                    let layout = Layout::from_size_align(new, align).expect("small enough");
                    object.write_bytes(9, new);
                    LineAligned.dealloc(object, layout);
                }
                assert!((0..size).all(|at| object.add(at).read() == 7));
                LineAligned.dealloc(object, layout);
            }
        }
    }
}
