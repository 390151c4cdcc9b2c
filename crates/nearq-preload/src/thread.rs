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

/// The caller's thread pointer, which is what the C library calls a `pthread_t` here.
#[inline]
pub(crate) fn pointer() -> u64 {
    #[cfg(target_arch = "x86_64")]
    {
        let pointer;
        // SAFETY: the first word that the segment register leads to is its own address, for each thread and all its life; only
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_told_apart_as_the_c_library_does() {
        let names = || {
            // SAFETY: no arguments.
            assert_eq!(pointer(), unsafe { libc::pthread_self() });
            (pointer(), number())
        };
        let own = names();
        assert_eq!(own, names());
        let (pointer, number) = std::thread::spawn(names).join().unwrap();
        assert!(pointer != own.0 && number != own.1);
    }
}
