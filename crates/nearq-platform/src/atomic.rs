//! Atomics as the runtime sees them.
//!
//! The traits mirror `core::sync::atomic` method by method, so that code over `P::AtomicU32` reads like
//! any other Rust. They exist because two platforms must see every access: the simulator charges the cost
//! of moving the cache line, the model checker explores the interleavings.

pub use core::sync::atomic::Ordering;

/// A cell of type `T` that threads may read and write at the same time.
///
/// Each method promises what the method of the same name on `core`'s atomics promises.
pub trait Atomic<T: Copy>: Send + Sync + Sized {
    /// An atomic that holds `value`.
    fn new(value: T) -> Self;
    /// Reads the value.
    fn load(&self, order: Ordering) -> T;
    /// Writes the value.
    fn store(&self, value: T, order: Ordering);
    /// Writes the value and returns the one before.
    fn swap(&self, value: T, order: Ordering) -> T;
    /// Writes `new` if the value is `current`.
    ///
    /// # Errors
    /// The value found, if it was not `current`; nothing was written then.
    fn compare_exchange(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
    /// As [`compare_exchange`](Self::compare_exchange), but may fail although the value is `current`.
    ///
    /// # Errors
    /// The value found.
    fn compare_exchange_weak(
        &self,
        current: T,
        new: T,
        success: Ordering,
        failure: Ordering,
    ) -> Result<T, T>;
}

/// An atomic integer. Arithmetic wraps around.
pub trait AtomicInt<T: Copy>: Atomic<T> {
    /// Adds, and returns the value before.
    fn fetch_add(&self, value: T, order: Ordering) -> T;
    /// Subtracts, and returns the value before.
    fn fetch_sub(&self, value: T, order: Ordering) -> T;
    /// Bitwise and; returns the value before.
    fn fetch_and(&self, value: T, order: Ordering) -> T;
    /// Bitwise or; returns the value before.
    fn fetch_or(&self, value: T, order: Ordering) -> T;
}

/// An atomic that can be made in a constant, for statics and `const fn new`.
///
/// Linux and the simulator have it; the model checker does not.
pub trait ConstAtomic {
    /// An atomic that holds zero.
    const ZERO: Self;
}

macro_rules! core_atomic {
    ($atomic:ty, $value:ty $(, $generic:ident)?) => {
        impl$(<$generic>)? Atomic<$value> for $atomic {
            #[inline(always)]
            fn new(value: $value) -> Self {
                <$atomic>::new(value)
            }
            #[inline(always)]
            fn load(&self, order: Ordering) -> $value {
                self.load(order)
            }
            #[inline(always)]
            fn store(&self, value: $value, order: Ordering) {
                self.store(value, order);
            }
            #[inline(always)]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.swap(value, order)
            }
            #[inline(always)]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
            #[inline(always)]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! core_atomic_int {
    ($atomic:ty, $value:ty) => {
        core_atomic!($atomic, $value);
        impl AtomicInt<$value> for $atomic {
            #[inline(always)]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.fetch_add(value, order)
            }
            #[inline(always)]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.fetch_sub(value, order)
            }
            #[inline(always)]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.fetch_and(value, order)
            }
            #[inline(always)]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.fetch_or(value, order)
            }
        }
        impl ConstAtomic for $atomic {
            const ZERO: Self = <$atomic>::new(0);
        }
    };
}

core_atomic_int!(core::sync::atomic::AtomicU16, u16);
core_atomic_int!(core::sync::atomic::AtomicU32, u32);
core_atomic_int!(core::sync::atomic::AtomicU64, u64);
core_atomic!(core::sync::atomic::AtomicPtr<T>, *mut T, T);
