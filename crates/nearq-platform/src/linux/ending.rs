//! A callback for the end of a thread, which needs no memory.
//!
//! This uses a key of the C library's thread-specific data, not a thread-local value with a destructor: to note such a
//! destructor the C library allocates, and the thread that takes a mutex may be inside the allocator. A key that is one of the
//! first 32 of the program needs no memory, in the GNU C library as in others; a program that has more keys than that should call
//! [`call_at_thread_end`] for the first time where it may allocate. Destructors of keys also run later than those of thread-local values,
//! so those destructors still find the thread as it was.
//!
//! # The key
//! One for the process, made by the first thread that asks. `KEY` is [`UNKNOWN`] before, [`NONE`] if the C library has no more, otherwise
//! the key plus [`FIRST`]. If several threads make a key at the same time, one wins and the other threads delete theirs. Relaxed
//! everywhere: a number, and nothing is published with it.
//!
//! # A thread's state
//! From `Unknown` to `Registered` when it first asks, to `Over` when the key's destructor has run. That may be before the
//! destructors of other keys: while these run, the thread counts as one whose end is not reported.

use core::cell::Cell;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::sys;

const UNKNOWN: u32 = 0;
const NONE: u32 = 1;
const FIRST: u32 = 2;

static KEY: AtomicU32 = AtomicU32::new(UNKNOWN);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Unknown,
    Registered,
    Over,
}

thread_local! {
    // Made by the compiler, without destructors: they can be used until the thread's last instruction.
    static STATE: Cell<State> = const { Cell::new(State::Unknown) };
    static CALLBACK: Cell<Option<fn()>> = const { Cell::new(None) };
}

/// From now on, the caller's thread calls `callback` when it ends; the last `callback` that was set counts. False if `callback` will not be
/// called: the thread has run its callback already, or the C library has no key or no memory.
#[inline]
pub(super) fn call_at_thread_end(callback: fn()) -> bool {
    CALLBACK.set(Some(callback));
    match STATE.get() {
        State::Registered => true,
        State::Over => false,
        State::Unknown => register(),
    }
}

#[cold]
fn register() -> bool {
    let Some(key) = key() else { return false };
    // The value only has to be non-null; otherwise the destructor is not called.
    let something = ptr::from_ref(&KEY).cast();
    // SAFETY: validity: the key is one of ours, and never deleted. Aliasing: the value is not followed. Thread: the caller's
    // own value.
    let registered = unsafe { libc::pthread_setspecific(key, something) } == 0;
    if registered {
        STATE.set(State::Registered);
    }
    registered
}

/// The process's key, if there is one.
fn key() -> Option<libc::pthread_key_t> {
    match KEY.load(Ordering::Relaxed) {
        UNKNOWN => make_key(),
        NONE => None,
        known => Some(known - FIRST),
    }
}

#[cold]
fn make_key() -> Option<libc::pthread_key_t> {
    let mut key = 0;
    // SAFETY: validity: the key is a live integer, and the destructor lives as long as the program's code. Aliasing: the only
    // reference is the one passed. Thread: any thread may make keys.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(ended)) } == 0;
    let new = if made { key + FIRST } else { NONE };
    match KEY.compare_exchange(UNKNOWN, new, Ordering::Relaxed, Ordering::Relaxed) {
        Ok(_) => made.then_some(key),
        Err(existing) => {
            if made {
                // SAFETY: validity: made above, and not published, so no thread has a value there. Aliasing: no reference. Thread: any
                // thread may delete keys.
                unsafe { libc::pthread_key_delete(key) };
            }
            (existing != NONE).then(|| existing - FIRST)
        }
    }
}

/// A thread of the asynchronous cancellation type may still be cancelled here: from now on it is of the deferred type, as it must not end
/// in the middle of what it is about to do. This function has no call that unwinds, so that its frame can be unwound at any place.
extern "C" fn ended(_something: *mut c_void) {
    sys::defer_cancellation();
    call_back();
}

#[inline(never)]
extern "C" fn call_back() {
    STATE.set(State::Over);
    if let Some(callback) = CALLBACK.get() {
        callback();
    }
}
