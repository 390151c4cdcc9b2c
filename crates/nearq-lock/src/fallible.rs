//! Allocation that may fail, for threads that wait: if an allocation fails, they go on without it.
//!
//! The standard library's boxes and vectors end the process if they get no memory. A thread that waits for a mutex of four bytes must not
//! end the process.

use std::alloc::{self, Layout};

/// A box; none if there is no memory.
pub(crate) fn boxed<T>(value: T) -> Option<Box<T>> {
    const { assert!(size_of::<T>() > 0, "something to allocate") };
    // SAFETY: not of size zero, as asserted.
    let place = unsafe { alloc::alloc(Layout::new::<T>()) }.cast::<T>();
    if place.is_null() {
        return None;
    }
    // SAFETY: validity: allocated for it. Aliasing and thread: no other thread knows of it.
    unsafe { place.write(value) };
    // SAFETY: allocated as a box is, and written.
    Some(unsafe { Box::from_raw(place) })
}

/// As many items as the iterator yields; none if there is no memory.
pub(crate) fn slice<T>(items: impl ExactSizeIterator<Item = T>) -> Option<Box<[T]>> {
    let mut all = Vec::new();
    let count = items.len();
    all.try_reserve_exact(count).ok()?;
    // Exactly as much as the items need, so that nothing is reallocated: there might be no memory for that.
    all.extend(items.take(count));
    Some(all.into_boxed_slice())
}
