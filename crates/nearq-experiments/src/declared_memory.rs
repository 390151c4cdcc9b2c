//! Memory whose accesses a simulated run declares: it has pages of its own, which the simulation forgets when they are freed.
//!
//! The command's allocator gives a simulated run cache lines of its own, not pages, and freed memory may be allocated again at the same
//! address, for which the simulation still knows which CPU touched it. Declared memory begins untouched each time.

use nearq_sim::LineAligned;
use std::alloc::{GlobalAlloc as _, Layout, handle_alloc_error};
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Bytes of a page.
const PAGE: usize = 4096;

/// Zeroes, in pages of their own.
#[derive(Debug)]
pub struct DeclaredMemory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the value owns its bytes, as a `Box<[u8]>` does.
unsafe impl Send for DeclaredMemory {}
// SAFETY: a shared reference gives `&[u8]` and nothing else, as that of a `Box<[u8]>` does.
unsafe impl Sync for DeclaredMemory {}

impl DeclaredMemory {
    /// That many bytes, rounded up to pages, at least one. The system provides real memory only for pages that are really
    /// touched; declaring an access does not touch any.
    pub fn new(bytes: usize) -> Self {
        let bytes = bytes.max(1).next_multiple_of(PAGE);
        let layout = Layout::from_size_align(bytes, PAGE).expect("a size that memory can have");
        // SAFETY: the size is not zero.
        let start = unsafe { LineAligned.alloc_zeroed(layout) };
        NonNull::new(start)
            .map_or_else(|| handle_alloc_error(layout), |start| Self { start, layout })
    }
}

impl Drop for DeclaredMemory {
    fn drop(&mut self) {
        // SAFETY: from this allocator, with this layout, and nothing uses it any more.
        unsafe { LineAligned.dealloc(self.start.as_ptr(), self.layout) };
    }
}

impl Deref for DeclaredMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: that many bytes, all zeroed, borrowed as `self` is.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.layout.size()) }
    }
}

impl DerefMut for DeclaredMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: that many bytes, all initialised, which `self` owns; it is borrowed exclusively, as the slice is.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.layout.size()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declared_memory_is_zeroed_page_aligned_and_writable() {
        for bytes in [0, 1, 5000] {
            let mut memory = DeclaredMemory::new(bytes);
            assert_eq!(memory.len(), bytes.max(1).next_multiple_of(PAGE));
            assert!(memory.as_ptr().addr().is_multiple_of(PAGE));
            assert!(memory.iter().all(|byte| *byte == 0));
            memory[bytes / 2] = 7;
            assert_eq!(memory[bytes / 2], 7);
        }
    }
}
