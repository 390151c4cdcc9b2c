//! The asymmetric fences of [`Linux`](super::Linux): a compiler fence on the light side, `membarrier` on the heavy one.
//!
//! # How the two sides agree
//! `MODE` says what a light fence is. It is `FULL` until a heavy fence has registered the process with the kernel, and again once a heavy
//! fence has been refused. Every state is safe:
//! * While a light fence is a full fence, both `membarrier` and a full fence are a partner for it.
//! * After the registration a heavy fence is always `membarrier`. If the kernel refuses that (because of a filter on system calls that was
//!   installed later), the heavy fence returns false, and so does every later one: a light fence that began before may still be without a
//!   partner.
//!
//! # When the process is registered
//! The kernel registers a process at once while it has one thread. With more it waits for a grace period, some 10 ms. So this is done
//! before the first thread is started, if that is the process's second one, and otherwise at the first heavy fence.
//!
//! The kernel documents the pairing in `kernel/sched/membarrier.c`. A child of a fork inherits the registration with the memory.

use core::sync::atomic::{AtomicBool, AtomicU8, Ordering, compiler_fence, fence};

use crate::sys;

/// Light fences are full fences: no heavy fence has been called yet.
const FULL: u8 = 0;
/// Light fences are compiler fences, heavy ones are `membarrier`.
const ASYMMETRIC: u8 = 1;
/// The kernel has never had `membarrier`: both are full fences.
const ABSENT: u8 = 2;
/// The kernel has refused `membarrier` after it was registered.
const REFUSED: u8 = 3;

static MODE: AtomicU8 = AtomicU8::new(FULL);

#[inline(always)]
pub(super) fn light() {
    // Relaxed: see the head of the file; a value that is out of date is safe.
    if MODE.load(Ordering::Relaxed) == ASYMMETRIC {
        compiler_fence(Ordering::SeqCst);
    } else {
        full();
    }
}

/// Rare, and not to be in the way of the usual case.
#[cold]
#[inline(never)]
fn full() {
    fence(Ordering::SeqCst);
}

/// Registers the process if it has one thread. Before a thread is started; it does nothing after the first call.
pub(super) fn prepare() {
    static PREPARED: AtomicBool = AtomicBool::new(false);
    // Relaxed: to register twice does no harm.
    if !PREPARED.load(Ordering::Relaxed) {
        PREPARED.store(true, Ordering::Relaxed);
        prepare_once();
    }
}

#[cold]
fn prepare_once() {
    if MODE.load(Ordering::Relaxed) == FULL && has_one_thread() {
        register();
    }
}

/// False if that is not known.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.take(2).count() == 1)
}

pub(super) fn heavy() -> bool {
    let mode = match MODE.load(Ordering::Relaxed) {
        FULL => register(),
        mode => mode,
    };
    match mode {
        ASYMMETRIC => {
            // The compiler may move nothing across the call either: it cannot see what that does.
            let done = sys::membarrier().is_ok();
            if !done {
                MODE.store(REFUSED, Ordering::Relaxed);
            }
            done
        }
        ABSENT => {
            fence(Ordering::SeqCst);
            true
        }
        _ => false,
    }
}

/// Registers the process; returns the mode from now on.
#[cold]
fn register() -> u8 {
    let mode = if sys::register_membarrier().is_ok() { ASYMMETRIC } else { ABSENT };
    // Another thread may have found out first, and a third may have been refused since.
    match MODE.compare_exchange(FULL, mode, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => mode,
        Err(found) => found,
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The child of a fork has one thread.
    #[test]
    fn only_a_process_with_one_thread_is_registered_before_a_thread_is_started() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        assert!(!has_one_thread());
        // SAFETY: the child reads a folder, makes a system call, and ends; the C library's allocator works in the child.
        let child = unsafe { libc::fork() };
        if child == 0 {
            MODE.store(FULL, Ordering::Relaxed);
            prepare_once();
            let registered = MODE.load(Ordering::Relaxed) != FULL;
            // SAFETY: a number only.
            unsafe { libc::_exit(i32::from(!registered)) };
        }
        let mut status = 0;
        // SAFETY: the status is written during the call.
        assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
        assert_eq!(status, 0);
        drop(end);
        assert!(other.join().unwrap().is_err());
    }
}
