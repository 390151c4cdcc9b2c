//! loom's atomics behind the platform's traits.

use nearq_platform::{Atomic, AtomicInt, Ordering};

macro_rules! loom_atomic {
    ($(#[$doc:meta])* $name:ident $(<$generic:ident>)?, $inner:ty, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name $(<$generic>)? (pub(crate) $inner);

        impl $(<$generic>)? Atomic<$value> for $name $(<$generic>)? {
            #[track_caller]
            fn new(value: $value) -> Self {
                $name(<$inner>::new(value))
            }
            #[track_caller]
            fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }
            #[track_caller]
            fn store(&self, value: $value, order: Ordering) {
                self.0.store(value, order);
            }
            #[track_caller]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                self.0.swap(value, order)
            }
            #[track_caller]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.0.compare_exchange(current, new, success, failure)
            }
            #[track_caller]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                // loom's weak compare-exchange never fails for no reason.
                self.0.compare_exchange_weak(current, new, success, failure)
            }
        }
    };
}

macro_rules! loom_atomic_int {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $value:ty) => {
        loom_atomic!($(#[$doc])* $name, $inner, $value);

        impl AtomicInt<$value> for $name {
            #[track_caller]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_add(value, order)
            }
            #[track_caller]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_sub(value, order)
            }
            #[track_caller]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_and(value, order)
            }
            #[track_caller]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                self.0.fetch_or(value, order)
            }
        }
    };
}

loom_atomic_int!(
    /// loom's 16-bit atomic.
    AtomicU16,
    loom::sync::atomic::AtomicU16,
    u16
);
loom_atomic_int!(
    /// loom's 32-bit atomic.
    AtomicU32,
    loom::sync::atomic::AtomicU32,
    u32
);
loom_atomic_int!(
    /// loom's 64-bit atomic.
    AtomicU64,
    loom::sync::atomic::AtomicU64,
    u64
);
loom_atomic!(
    /// loom's atomic pointer.
    AtomicPtr<T>,
    loom::sync::atomic::AtomicPtr<T>,
    *mut T
);
