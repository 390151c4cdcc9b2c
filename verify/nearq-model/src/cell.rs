//! Plain memory that loom watches: an access that is not ordered after a conflicting one is reported.

use nearq_platform::PlatformCell;

/// loom's `UnsafeCell`.
#[derive(Debug)]
pub struct Cell<T>(loom::cell::UnsafeCell<T>);

impl<T> PlatformCell<T> for Cell<T> {
    #[track_caller]
    fn new(value: T) -> Self {
        Cell(loom::cell::UnsafeCell::new(value))
    }

    #[track_caller]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        self.0.with(f)
    }

    #[track_caller]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        self.0.with_mut(f)
    }
}
