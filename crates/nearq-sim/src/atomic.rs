//! Atomics that cost what the machine makes them cost.
//!
//! The value itself is a real atomic, so a value that is shared with another real thread by mistake is at worst slow or stale. Orderings
//! have no influence here: simulated threads see each other's accesses in one order. Missing orderings are left to the model checker.
//! Outside a simulation the access happens and costs nothing.

#![allow(clippy::disallowed_types, reason = "the values behind the simulated atomics")]

use core::sync::atomic;

use nearq_platform::{Atomic, AtomicInt, ConstAtomic, Ordering};

use crate::context;
use crate::memory::Access;

/// Charges an access to the calling simulated thread and carries it out at its time. `access` returns the result
/// and whether the value was changed.
#[inline]
fn at<A, R>(atomic: &A, kind: Access, access: impl FnOnce() -> (R, bool)) -> R {
    let Some(shared) = context::current() else {
        return access().0;
    };
    let address = core::ptr::from_ref(atomic).addr();
    let mut world = loop {
        shared.sync();
        let mut world = shared.world.borrow_mut();
        if !world.waits_for_stores(kind) && !world.waits_for_line(address, kind) {
            break world;
        }
    };
    world.access(address, kind);
    let (result, changed) = access();
    if changed {
        world.changed(address);
    }
    result
}

/// Gives back the line of an atomic that goes out of use.
fn give_back<A>(atomic: &A) {
    if let Some(shared) = context::current()
        && let Ok(mut world) = shared.world.try_borrow_mut()
    {
        world.give_line_back(core::ptr::from_ref(atomic).addr());
    }
}

/// Says that the caller will read this atomic, and that its address depends on nothing that the caller still waits for: a CPU asks for such a
/// line before it needs it, while it executes what comes before. Costs nothing itself; does nothing outside a simulation, or on a machine
/// without a store buffer, whose CPUs do one access after the other.
///
/// ```
/// use nearq_platform::{Atomic, Ordering};
/// use nearq_sim::{AtomicU64, fetch_ahead};
///
/// fn sum(first: &AtomicU64, second: &AtomicU64) -> u64 {
///     fetch_ahead(second);
///     first.load(Ordering::Relaxed) + second.load(Ordering::Relaxed)
/// }
/// # assert_eq!(sum(&AtomicU64::new(1), &AtomicU64::new(2)), 3);
/// ```
pub fn fetch_ahead<A>(atomic: &A) {
    if let Some(shared) = context::current()
        && shared.world.borrow().costs.store_buffer > 0
    {
        shared.sync();
        shared.world.borrow_mut().fetch_ahead(core::ptr::from_ref(atomic).addr());
    }
}

macro_rules! simulated_atomic {
    ($(#[$doc:meta])* $name:ident $(<$generic:ident>)?, $inner:ty, $value:ty) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name $(<$generic>)? ($inner);

        impl $(<$generic>)? Drop for $name $(<$generic>)? {
            fn drop(&mut self) {
                give_back(self);
            }
        }

        impl $(<$generic>)? $name $(<$generic>)? {
            /// The value, read by the simulator itself: free of charge.
            #[allow(dead_code, reason = "only words are waited on")]
            pub(crate) fn peek(&self) -> $value {
                self.0.load(Ordering::Relaxed)
            }
        }

        impl $(<$generic>)? Atomic<$value> for $name $(<$generic>)? {
            fn new(value: $value) -> Self {
                $name(<$inner>::new(value))
            }
            #[inline]
            fn load(&self, order: Ordering) -> $value {
                at(self, Access::Read, || (self.0.load(order), false))
            }
            #[inline]
            fn store(&self, value: $value, order: Ordering) {
                let access =
                    if order == Ordering::SeqCst { Access::WriteInOrder } else { Access::Write };
                at(self, access, || (self.0.store(value, order), true));
            }
            #[inline]
            fn swap(&self, value: $value, order: Ordering) -> $value {
                at(self, Access::Update, || {
                    let before = self.0.swap(value, order);
                    (before, before != value)
                })
            }
            #[inline]
            fn compare_exchange(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                // A failed exchange takes the line for writing as well, as on hardware.
                at(self, Access::ReadModifyWrite, || {
                    let result = self.0.compare_exchange(current, new, success, failure);
                    (result, result.is_ok() && current != new)
                })
            }
            #[inline]
            fn compare_exchange_weak(
                &self,
                current: $value,
                new: $value,
                success: Ordering,
                failure: Ordering,
            ) -> Result<$value, $value> {
                self.compare_exchange(current, new, success, failure)
            }
        }
    };
}

macro_rules! simulated_atomic_int {
    ($(#[$doc:meta])* $name:ident, $inner:ty, $value:ty) => {
        simulated_atomic!($(#[$doc])* $name, $inner, $value);

        impl AtomicInt<$value> for $name {
            #[inline]
            fn fetch_add(&self, value: $value, order: Ordering) -> $value {
                at(self, Access::Update, || (self.0.fetch_add(value, order), value != 0))
            }
            #[inline]
            fn fetch_sub(&self, value: $value, order: Ordering) -> $value {
                at(self, Access::Update, || (self.0.fetch_sub(value, order), value != 0))
            }
            #[inline]
            fn fetch_and(&self, value: $value, order: Ordering) -> $value {
                at(self, Access::Update, || {
                    let before = self.0.fetch_and(value, order);
                    (before, before & value != before)
                })
            }
            #[inline]
            fn fetch_or(&self, value: $value, order: Ordering) -> $value {
                at(self, Access::Update, || {
                    let before = self.0.fetch_or(value, order);
                    (before, before | value != before)
                })
            }
        }

        impl ConstAtomic for $name {
            const ZERO: Self = $name(<$inner>::new(0));
        }
    };
}

simulated_atomic_int!(
    /// A simulated 16-bit atomic.
    AtomicU16,
    atomic::AtomicU16,
    u16
);
simulated_atomic_int!(
    /// A simulated 32-bit atomic.
    AtomicU32,
    atomic::AtomicU32,
    u32
);
impl AtomicU32 {
    /// Makes the bits of `mask` those of `bits` by an exchange of this part of the word alone, as `xchg` of two bytes. Returns the word
    /// before.
    ///
    /// Rust's memory model has no access to a part of an atomic; here a word is a simulated one, and the step costs what the machine's
    /// instruction does.
    pub fn exchange_part(&self, mask: u32, bits: u32) -> u32 {
        at(self, Access::Update, || self.replace_part(mask, bits))
    }

    /// Makes the bits of `mask` those of `bits` by a plain store to this part of the word, as `mov` to a byte: the CPU does not need to know
    /// the rest.
    pub fn store_part(&self, mask: u32, bits: u32) {
        at(self, Access::Write, || self.replace_part(mask, bits));
    }

    /// Nothing else happens in between: simulated threads run one at a time. Returns the word before, and whether it changed.
    fn replace_part(&self, mask: u32, bits: u32) -> (u32, bool) {
        let before = self.0.load(Ordering::Relaxed);
        let after = before & !mask | bits & mask;
        self.0.store(after, Ordering::Relaxed);
        (before, before != after)
    }
}

simulated_atomic_int!(
    /// A simulated 64-bit atomic.
    AtomicU64,
    atomic::AtomicU64,
    u64
);
simulated_atomic!(
    /// A simulated atomic pointer.
    AtomicPtr<T>,
    atomic::AtomicPtr<T>,
    *mut T
);
