//! Memory on a node: what the threads of one node write is kept on that node, on separate pages.
//!
//! This applies only if there are several nodes and a node is given; otherwise it is memory like any other. It is not an error if the
//! system refuses a node: containers forbid it, and cpusets leave nodes out. The memory is then where the allocating thread runs.

use core::ops::Deref;
use core::ptr::NonNull;
use std::alloc::{self, Layout};

use nearq_platform::{MemoryPolicy, Platform};

/// Some values side by side, which never move.
pub(crate) struct NumaBox<T> {
    start: NonNull<T>,
    len: usize,
    layout: Layout,
}

// SAFETY: it owns its values, and hands out shared references only.
unsafe impl<T: Send> Send for NumaBox<T> {}
// SAFETY: a shared `NumaBox` gives out only `&T`, and its own fields are never written.
unsafe impl<T: Sync> Sync for NumaBox<T> {}

impl<T> NumaBox<T> {
    /// `len` values, at least one.
    ///
    /// # Panics
    /// If there are none, or more than memory could hold.
    pub(crate) fn new<P: Platform>(
        node: Option<u32>,
        len: usize,
        mut make: impl FnMut() -> T,
    ) -> Self {
        let layout = Layout::array::<T>(len).expect("less than all of memory");
        assert!(layout.size() != 0, "there is something to keep");
        let layout = match node {
            None => layout,
            Some(_) => {
                let whole = layout.align_to(P::page_size()).expect("a page is a power of two");
                whole.pad_to_align()
            }
        };
        // SAFETY: not of size zero.
        let memory = unsafe { alloc::alloc_zeroed(layout) };
        let Some(start) = NonNull::new(memory) else { alloc::handle_alloc_error(layout) };
        if let Some(node) = node {
            // SAFETY: validity: the allocation, zeroed. Aliasing and thread: no other thread has the pointer, and nothing is written while
            // the slice is used.
            let all = unsafe { core::slice::from_raw_parts(memory.cast_const(), layout.size()) };
            // The allocation may have touched it already. If the node is refused: see above.
            let _ = P::bind_memory(all, &MemoryPolicy::Preferred(node as usize), true);
        }
        let mut near = NumaBox { start: start.cast(), len: 0, layout };
        while near.len < len {
            // SAFETY: within the allocation, which has room for `len` values, aligned, and not written yet.
            unsafe { near.start.add(near.len).write(make()) };
            near.len += 1;
        }
        near
    }

    /// The first value, for shared use.
    pub(crate) fn as_ptr(&self) -> *mut T {
        self.start.as_ptr()
    }
}

impl<T> Deref for NumaBox<T> {
    type Target = [T];

    #[inline(always)]
    fn deref(&self) -> &[T] {
        // SAFETY: `new` wrote that many, and they are never borrowed exclusively before the drop.
        unsafe { core::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl<T> Drop for NumaBox<T> {
    fn drop(&mut self) {
        for index in 0..self.len {
            // SAFETY: written by `new`, and dropped once.
            unsafe { self.start.add(index).drop_in_place() };
        }
        // SAFETY: allocated by `new`, with that layout.
        unsafe { alloc::dealloc(self.start.as_ptr().cast(), self.layout) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Linux, LockPlatform, Placement};
    use std::rc::Rc;

    #[test]
    fn values_are_kept_in_order_and_dropped_once() {
        for node in [None, Some(0)] {
            let counted = Rc::new(());
            let mut next = 0;
            let make = || {
                next += 1;
                (next, Rc::clone(&counted))
            };
            let near = NumaBox::new::<Linux>(node, 3, make);
            let numbers: Vec<_> = near.iter().map(|(number, _)| *number).collect();
            assert_eq!((numbers, Rc::strong_count(&counted)), (vec![1, 2, 3], 4));
            assert!(core::ptr::eq(near.as_ptr(), &raw const near[0]));
            drop(near);
            assert_eq!(Rc::strong_count(&counted), 1);
        }
    }

    #[test]
    #[cfg(not(miri))]
    fn they_lie_on_the_node_that_was_said() {
        use nearq_sim::{Sim, Simulation};
        use nearq_topology::Topology;
        let machine = Topology::from_synthetic("numa:2 core:2").expect("well formed");
        let outcome = Simulation::new(machine, 1).run(|| {
            let near = NumaBox::new::<Sim>(Some(1), 1, || [0_u8; 100]);
            let start = near.as_ptr().cast::<u8>();
            assert_eq!(start.addr() % Sim::page_size(), 0);
            // SAFETY: the value's own bytes; no other reference exists.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start, 100) };
            Sim::write(bytes);
            Sim::residency(bytes, 1).expect("works").most()
        });
        assert_eq!(outcome.expect(), Some(1));
    }
}
