//! A global allocator that gives every object its own cache lines.

use std::alloc::{GlobalAlloc, Layout, System};

const LINE: usize = 64;

/// A global allocator that starts every object on a cache line and shares no line between two objects.
///
/// The simulator takes lines from real addresses. Which small objects lie on one line is up to the allocator and
/// what went through it before, so the same program may cost a little more or less in another process. A binary
/// that sets this allocator makes a run a function of machine, program and seed alone:
///
/// ```
/// #[global_allocator]
/// static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;
/// # fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct LineAligned;

impl LineAligned {
    /// The same object, on lines of its own. A function of the layout, so that freeing finds what allocating did.
    fn widen(layout: Layout) -> Option<Layout> {
        Some(layout.align_to(LINE).ok()?.pad_to_align())
    }
}

// SAFETY: all memory comes from and goes back to `System`, each time with the layout that `widen` makes of the
// caller's; it is at least as large and as aligned. Nothing here unwinds or allocates.
unsafe impl GlobalAlloc for LineAligned {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        match Self::widen(layout) {
            // SAFETY: the caller's layout is not of size zero, so the wider one is not.
            Some(wide) => unsafe { System.alloc(wide) },
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        match Self::widen(layout) {
            // SAFETY: as in `alloc`.
            Some(wide) => unsafe { System.alloc_zeroed(wide) },
            None => std::ptr::null_mut(),
        }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(wide) = Self::widen(layout) {
            // SAFETY: the caller got `block` from us with `layout`, so we got it with `wide`.
            unsafe { System.dealloc(block, wide) };
        }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let new = Layout::from_size_align(size, layout.align()).ok().and_then(Self::widen);
        match (Self::widen(layout), new) {
            // SAFETY: as in `dealloc`; the new size is not zero because the caller's is not.
            (Some(old), Some(new)) => unsafe { System.realloc(block, old, new.size()) },
            _ => std::ptr::null_mut(),
        }
    }
}
