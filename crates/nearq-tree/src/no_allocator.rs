//! An allocator that never returns memory: this library allocates nothing.

use core::alloc::{GlobalAlloc, Layout};
use core::ptr;

pub(crate) struct NoAllocator;

// SAFETY: it always reports that there is no memory, which is allowed; so no memory can be returned to it.
unsafe impl GlobalAlloc for NoAllocator {
    unsafe fn alloc(&self, _layout: Layout) -> *mut u8 {
        ptr::null_mut()
    }

    unsafe fn dealloc(&self, _memory: *mut u8, _layout: Layout) {}
}
