//! Who the caller is: for mutexes that know their holder.
//!
//! Two names. The *thread pointer* (`pthread_self`) is the same in the child of a fork as in the thread that forked, and unique
//! among the threads that live; a thread that begins after another has ended may have the same. The *number* that the kernel gave
//! is another one in the child, and is not soon given out again.

use core::cell::Cell;

thread_local! {
    /// The number, or 0 if it was not asked for yet. Without a destructor: one load, at any time of the thread's life.
    static NUMBER: Cell<u32> = const { Cell::new(0) };
}

/// The caller's thread pointer.
#[inline]
pub(crate) fn pointer() -> u64 {
    // SAFETY: no arguments; answers for the caller.
    unsafe { libc::pthread_self() }
}

/// The caller's number.
#[inline]
pub(crate) fn number() -> u32 {
    match NUMBER.get() {
        0 => ask(),
        number => number,
    }
}

#[cold]
fn ask() -> u32 {
    // SAFETY: no arguments, and it cannot fail.
    let number = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    NUMBER.set(number);
    number
}

/// The caller is the only thread in the child of a fork.
pub(crate) fn forked() {
    NUMBER.set(0);
}
