//! A global allocator for programs that simulate and measure the real machine: the C library's allocator, except that the objects of a
//! simulated run are on cache lines of their own.
//!
//! The simulator takes lines from real addresses, so a simulated run is repeatable in another process only if no two objects share a line
//! ([`LineAligned`](crate::LineAligned)). The comparisons with other pools on the real machine must not pay for that. So the layout depends
//! on what the calling thread does: between [`enter`] and the end of [`Entered`] it gets whole lines, otherwise memory of the requested
//! layout. All memory comes from the C library's `malloc` and `posix_memalign` and goes back through `free`, which accepts either, so it
//! does not matter where memory is given back.

use std::alloc::{GlobalAlloc, Layout};
use std::cell::Cell;
use std::ptr::null_mut;

/// Bytes of a cache line.
const LINE: usize = 64;
/// What `malloc` aligns to on every 64-bit Linux.
const MALLOC_ALIGN: usize = 16;

thread_local! {
    static SIMULATES: Cell<bool> = const { Cell::new(false) };
}

/// The allocator. A binary that runs simulations beside measurements of the real machine sets it as its global one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Switched;

/// While this value lives, the objects that this thread allocates are on cache lines of their own.
#[derive(Debug)]
pub struct Entered {
    before: bool,
}

/// Begins a simulated run on the calling thread.
pub fn enter() -> Entered {
    Entered { before: SIMULATES.replace(true) }
}

impl Drop for Entered {
    fn drop(&mut self) {
        SIMULATES.set(self.before);
    }
}

/// The layout that is currently allocated for `layout`.
fn given(layout: Layout) -> Option<Layout> {
    // A thread that ends has no simulation.
    if SIMULATES.try_with(Cell::get).unwrap_or(false) {
        return Some(layout.align_to(LINE).ok()?.pad_to_align());
    }
    Some(layout)
}

// SAFETY: memory comes from `malloc`, `calloc` or `posix_memalign`, at least as large and as aligned as asked for, and
// goes back through `free` or `realloc`, which accept what any of them gave, whatever layout it was given for. Nothing
// here unwinds or allocates through itself: the thread-local is constant and has no destructor.
unsafe impl GlobalAlloc for Switched {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(layout) = given(layout) else { return null_mut() };
        if layout.align() <= MALLOC_ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { libc::malloc(layout.size()) }.cast();
        }
        let mut block = null_mut();
        // SAFETY: `block` is a place for a pointer; the alignment is a power of two and, above 16, a multiple of a
        // pointer's size.
        match unsafe { libc::posix_memalign(&raw mut block, layout.align(), layout.size()) } {
            0 => block.cast(),
            _ => null_mut(),
        }
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        let Some(wide) = given(layout) else { return null_mut() };
        if wide.align() <= MALLOC_ALIGN {
            // SAFETY: any size may be asked for.
            return unsafe { libc::calloc(1, wide.size()) }.cast();
        }
        // SAFETY: the caller promises a size that is not zero, and the new layout is `layout` or wider.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block is new and at least that large.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, _layout: Layout) {
        // SAFETY: the block came from `malloc`, `calloc`, `posix_memalign` or `realloc`, all of which `free` accepts.
        unsafe { libc::free(block.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        let Ok(wanted) = Layout::from_size_align(size, layout.align()) else { return null_mut() };
        let Some(wide) = given(wanted) else { return null_mut() };
        if wide.align() <= MALLOC_ALIGN {
            // SAFETY: the block came from one of the functions here; `malloc`'s alignment is enough, and the size is not zero, as the
            // caller promises.
            return unsafe { libc::realloc(block.cast(), size) }.cast();
        }
        // SAFETY: the caller promises a block of `layout` and a size that is not zero; the new block is another one, and the copy is
        // within both.
        unsafe {
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(block, layout.size().min(size));
                self.dealloc(block, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    /// Allocates, grows and frees; frees outside the run if `leave`.
    fn round(size: usize, align: usize, simulates: bool, leave: bool) {
        let entered = simulates.then(enter);
        let least = if simulates { LINE.max(align) } else { align };
        // SAFETY: sizes are not zero, each block is used within its size and freed once.
        unsafe {
            let block = Switched.alloc_zeroed(layout(size, align));
            assert!(block.addr().is_multiple_of(least), "{block:?} for {size} at {align}");
            assert!((0..size).all(|at| block.add(at).read() == 0));
            block.write_bytes(7, size);
            let grown = Switched.realloc(block, layout(size, align), size * 3);
            assert!(grown.addr().is_multiple_of(least));
            assert!((0..size).all(|at| grown.add(at).read() == 7));
            if leave {
                drop(entered);
            }
            let shrunk = Switched.realloc(grown, layout(size * 3, align), size);
            assert!(shrunk.addr().is_multiple_of(align) && shrunk.read() == 7);
            Switched.dealloc(shrunk, layout(size, align));
        }
    }

    #[test]
    fn simulated_allocations_have_their_own_cache_lines() {
        for (size, align) in [(1, 1), (24, 8), (64, 64), (100, 16), (5000, 4096), (1 << 20, 128)] {
            for simulates in [false, true] {
                for leave in [false, true] {
                    round(size, align, simulates, leave);
                }
            }
        }
    }

    #[test]
    fn no_two_objects_of_a_run_share_a_cache_line() {
        let entered = enter();
        let lines: Vec<usize> = (0..50)
            .map(|_| {
                // SAFETY: not of size zero; the test leaks it.
                unsafe { Switched.alloc(layout(8, 8)) }.addr() / LINE
            })
            .collect();
        drop(entered);
        let distinct: std::collections::BTreeSet<_> = lines.iter().collect();
        assert_eq!(distinct.len(), 50);
        assert!(!SIMULATES.get());
    }
}
