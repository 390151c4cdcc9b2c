//! The identity of the caller, for mutexes that know their holder.
//!
//! Three names. The *thread pointer* (`pthread_self`) is the same in the child of a fork as in the thread that forked; a thread that begins
//! after another has ended, or in a child, may have the pointer of one that is gone. The *number* is the kernel's, for debuggers and
//! programs that read it; it differs in the child, and is reused some day. The *name* is ours: no two threads of a process and its forks'
//! children ever have the same name, except a thread that forks and its copy in the child. So the name says which thread holds a mutex.
//!
//! # Where names come from
//! A thread takes the next name when it first needs one. A child has a copy of the counter: the names that it gives out are greater than
//! those of any thread of its parent at the fork, and parent and child share no mutex that knows names.

use core::cell::Cell;
use core::sync::atomic::{AtomicU64, Ordering};

/// The name of the next thread.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The caller's names, or 0 if it has not needed them yet.
struct Names {
    number: Cell<u32>,
    name: Cell<u64>,
}

thread_local! {
    /// Without a destructor: one load each, at any time of the thread's life.
    static NAMES: Names = const { Names { number: Cell::new(0), name: Cell::new(0) } };
}

/// The caller's thread pointer, which the C library calls a `pthread_t` here.
#[inline]
pub(crate) fn pointer() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer;
        // SAFETY: the first word that the segment register leads to is its own address, for each thread during all its life; it is only
        // read.
        unsafe {
            core::arch::asm!("mov {}, qword ptr fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly, pure));
        }
        pointer
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: no arguments; answers for the caller.
    unsafe {
        libc::pthread_self()
    }
}

/// The caller's number and name; neither is 0.
#[inline]
pub(crate) fn names() -> (u32, u64) {
    NAMES.with(|names| match names.number.get() {
        0 => query_number(names),
        number => (number, names.name.get()),
    })
}

/// The caller's name if it has one; otherwise 0, and then the caller holds no mutex that knows its holder.
#[inline]
pub(crate) fn name() -> u64 {
    NAMES.with(|names| names.name.get())
}

#[cold]
fn query_number(names: &Names) -> (u32, u64) {
    // SAFETY: no arguments, and it cannot fail.
    let number = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    if names.name.get() == 0 {
        // Relaxed: a number that no other thread gets.
        names.name.set(NEXT.fetch_add(1, Ordering::Relaxed));
    }
    names.number.set(number);
    (number, names.name.get())
}

/// The caller is the only thread in the child of a fork: the thread that forked, under another number.
pub(crate) fn forked() {
    NAMES.with(|names| names.number.set(0));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_the_identity_of_the_c_library() {
        let all = || {
            // SAFETY: no arguments.
            assert_eq!(pointer(), unsafe { libc::pthread_self() });
            (pointer(), names())
        };
        let (pointer, (number, name)) = all();
        assert_eq!((pointer, (number, name)), all());
        let (others, (its_number, its_name)) = std::thread::spawn(all).join().unwrap();
        assert!(others != pointer && its_number != number && its_name != name);
        // This is what happens in the child of a fork: the number is queried again, and the name stays the same.
        forked();
        assert_eq!(names(), (number, name));
    }
}
