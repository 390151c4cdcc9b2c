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
//! The kernel documents the pairing in `kernel/sched/membarrier.c`. A child of a fork inherits the registration with the memory.

use core::sync::atomic::{AtomicU8, Ordering, compiler_fence, fence};

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
