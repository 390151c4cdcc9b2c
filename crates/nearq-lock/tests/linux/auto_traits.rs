//! Which types may go to other threads and through a caught panic. Checked when this is compiled: an accidental change breaks programs.

use core::panic::{RefUnwindSafe, UnwindSafe};

use nearq_lock::raw::{OsqGuard, OsqLock, RawCondvar, RawMutex, RawRwLock};
use nearq_lock::{
    Condvar, Mode, Mutex, MutexGuard, OutOfBounds, RwLock, RwLockReadGuard,
    RwLockUpgradableReadGuard, RwLockWriteGuard, Settings, SlottedMutex, Snapshot, Statistics,
    Threshold, UnknownMode,
};

/// Each type has all of the marks.
macro_rules! is {
    (@one $kind:ty: [$($mark:path),+]) => {
        const _: () = {
            const fn is<T: ?Sized $(+ $mark)+>() {}
            is::<$kind>();
        };
    };
    ($($kind:ty),+: $marks:tt) => {
        $(is!(@one $kind: $marks);)+
    };
}

/// The type does not implement the trait. If it does, the compiler cannot choose between the two implementations.
macro_rules! is_not {
    ($kind:ty: $mark:path) => {
        const _: fn() = || {
            trait Either<A> {
                fn one() {}
            }
            impl<T: ?Sized> Either<()> for T {}
            struct Other;
            impl<T: ?Sized + $mark> Either<Other> for T {}
            <$kind as Either<_>>::one();
        };
    };
}

/// May be sent to another thread, and not shared.
type Sent = core::cell::Cell<u32>;
/// May be neither sent nor shared.
type Bound = *const u32;

is!(
    Mode, Threshold, Settings, Snapshot, SlottedMutex, Statistics, UnknownMode, OutOfBounds:
    [Send, Sync, UnwindSafe, RefUnwindSafe, Unpin]
);
// As with parking_lot: a value that is never poisoned may be found half changed after a panic.
is!(Mutex<u32>, Mutex<str>, OsqLock<u32>: [Send, Sync, UnwindSafe, Unpin]);
is_not!(Mutex<u32>: RefUnwindSafe);
is_not!(OsqLock<u32>: RefUnwindSafe);
// A mutex makes what may be sent shareable.
is!(Mutex<Sent>, OsqLock<Sent>: [Send, Sync]);
is_not!(Mutex<Bound>: Send);
is_not!(Mutex<Bound>: Sync);
is_not!(OsqLock<Bound>: Send);
is_not!(OsqLock<Bound>: Sync);
// Readers share the value, so it must be shareable itself.
is!(RwLock<u32>, RwLock<str>: [Send, Sync, UnwindSafe, Unpin]);
is_not!(RwLock<u32>: RefUnwindSafe);
is!(RwLock<Sent>: [Send]);
is_not!(RwLock<Sent>: Sync);
is_not!(RwLock<Bound>: Send);
is!(Condvar, RawMutex, RawCondvar, RawRwLock: [Send, Sync, Unpin, UnwindSafe, RefUnwindSafe]);
// A guard stays in its thread.
is_not!(MutexGuard<'static, u32>: Send);
is_not!(OsqGuard<'static, u32>: Send);
is!(MutexGuard<'static, u32>, OsqGuard<'static, u32>: [Sync, Unpin]);
is_not!(MutexGuard<'static, Sent>: Sync);
is_not!(OsqGuard<'static, Sent>: Sync);
is_not!(RwLockReadGuard<'static, u32>: Send);
is_not!(RwLockWriteGuard<'static, u32>: Send);
is_not!(RwLockUpgradableReadGuard<'static, u32>: Send);
is!(
    RwLockReadGuard<'static, u32>, RwLockWriteGuard<'static, u32>, RwLockUpgradableReadGuard<'static, u32>:
    [Sync, Unpin]
);
is_not!(RwLockReadGuard<'static, Sent>: Sync);
is_not!(RwLockWriteGuard<'static, Sent>: Sync);
is_not!(RwLockUpgradableReadGuard<'static, Sent>: Sync);
