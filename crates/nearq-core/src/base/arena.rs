//! Values that are made one after another, never moved, and freed all together.
//!
//! Threads read them through raw pointers while more are added, so they must keep their addresses and must not be
//! reached through a `Box` that moves (which would claim them for itself alone).

use nearq_platform::Platform;

use crate::base::numa_box::NumaBox;

/// Owns values that are shared through raw pointers until it is dropped. The code that drops it must ensure that no thread reads them any
/// more.
pub(crate) struct Arena<T>(Vec<NumaBox<T>>);

impl<T> Arena<T> {
    pub(crate) const fn new() -> Self {
        Arena(Vec::new())
    }

    /// Keeps `value`; the pointer is good, for shared use, until this is dropped.
    pub(crate) fn add<P: Platform>(&mut self, value: T) -> *mut T {
        self.add_near::<P>(None, value)
    }

    /// As [`add`](Self::add), on that node.
    pub(crate) fn add_near<P: Platform>(&mut self, node: Option<u32>, value: T) -> *mut T {
        let mut value = Some(value);
        let kept = NumaBox::new::<P>(node, 1, || value.take().expect("one is made"));
        let pointer = kept.as_ptr();
        self.0.push(kept);
        pointer
    }

    /// The values, in the order in which they were added.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.iter().flat_map(|kept| kept.iter())
    }
}
