//! Plain memory that a protocol, not the compiler, keeps from being shared.

/// An `UnsafeCell` whose accesses a model checker can watch.
///
/// The closures get raw pointers; dereferencing them is where the caller states, in a `SAFETY` comment,
/// which protocol makes the access exclusive or shared.
pub trait PlatformCell<T>: Sized {
    /// A cell that holds `value`.
    fn new(value: T) -> Self;
    /// Runs `f` with a pointer for reading.
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R;
    /// Runs `f` with a pointer for writing.
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R;
}

impl<T> PlatformCell<T> for core::cell::UnsafeCell<T> {
    #[inline(always)]
    fn new(value: T) -> Self {
        core::cell::UnsafeCell::new(value)
    }
    #[inline(always)]
    fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.get())
    }
    #[inline(always)]
    fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.get())
    }
}
