//! Threads that are cancelled while they wait for a condition.
//!
//! `pthread_cond_wait` is a cancellation point: a thread that is cancelled while it waits wakes, takes the mutex again, and ends; its clean-up
//! handlers run with the mutex held. The C library wakes a cancelled thread by a signal only while it is of the asynchronous
//! type, which its own waits are for the moment of the system call. That way is not ours: the thread would leave from anywhere within
//! our wait, by unwinding through frames that have things to put in order. Instead, who cancels wakes the one cancelled, whose wait
//! ends as if it had been notified for no reason; then, with the mutex held and nothing left to put in order, it calls the C library's
//! `pthread_testcancel` from a frame that may be unwound.
//!
//! # Protocol
//! Each thread has two words, which who cancels it finds at the same distance from the thread's pointer as its own: thread-local values
//! of a library that was loaded with the program are at a fixed place in each thread (`build.rs` sees to the "with the
//! program").
//!
//! | word | values | who may change it |
//! |---|---|---|
//! | `at` | null: does not wait; a condition variable; that one plus `PINNED` | its thread, null to a condition variable and back; who cancels it, to `PINNED` and back |
//! | `asked` | 0, 1: somebody has cancelled it | who cancels it, to 1 |
//!
//! - *wait*: write `at`; then look at `asked`: if it is 1, do not wait. After the wait, take `at` back, which waits while it is pinned.
//! - *cancel*: set `asked`; then look at `at`. If it names a condition variable, pin it; have the C library note the
//!   cancellation; wake all that wait there; unpin. Otherwise have the C library note it, and touch the thread no more, which may end.
//!
//! Dekker's pattern, all `SeqCst`: either who waits sees `asked`, or who cancels sees `at`. Pinned, the thread does not leave its
//! wait, so its words and the condition variable are there as long as who cancels uses them. Who sees `asked` without the C library
//! having noted it (its second case) waits for that (`act`).
//!
//! Others that wait there are woken for no reason, which POSIX allows. A notification that one was given who ends instead is passed
//! on (`condvar.rs`).

use core::ffi::c_int;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{pthread_cond_t, pthread_t};
use nearq_platform::{Linux, Platform};

use crate::{condvar, real};

/// In `at`: who cancels is using it.
const PINNED: usize = 1;

/// So often a thread lets others run until what was announced to it is noted by the C library.
const ROUNDS: u32 = 10_000;

struct Words {
    at: AtomicPtr<pthread_cond_t>,
    asked: AtomicU32,
}

thread_local! {
    // Without a destructor: at a fixed place, at any time of the thread's life.
    static WORDS: Words = const { Words { at: AtomicPtr::new(ptr::null_mut()), asked: AtomicU32::new(0) } };
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
}

const ENABLED: c_int = 0;
const DISABLED: c_int = 1;
const DEFERRED: c_int = 0;

/// The caller's words.
fn own() -> *const Words {
    WORDS.with(ptr::from_ref)
}

/// Another thread's words.
fn of(thread: pthread_t) -> *const Words {
    let distance = own().addr().wrapping_sub(crate::thread::pointer() as usize);
    ptr::with_exposed_provenance((thread as usize).wrapping_add(distance))
}

/// The caller is about to wait at a condition variable, where it can be woken from now on. False, and nothing, if it was
/// cancelled.
pub(crate) fn enter(condvar: *mut pthread_cond_t) -> bool {
    WORDS.with(|own| {
        own.at.store(condvar, Ordering::SeqCst);
        let go = own.asked.load(Ordering::SeqCst) == 0;
        if !go {
            leave();
        }
        go
    })
}

/// The caller does not wait any more. False if it was cancelled.
pub(crate) fn leave() -> bool {
    WORDS.with(|own| {
        let mut at = own.at.load(Ordering::Relaxed);
        loop {
            if at.addr() & PINNED != 0 {
                Linux::yield_now();
                at = own.at.load(Ordering::Relaxed);
                continue;
            }
            // Acquire: pairs with the release of who unpins.
            match own.at.compare_exchange_weak(
                at,
                ptr::null_mut(),
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return own.asked.load(Ordering::SeqCst) == 0,
                Err(found) => at = found,
            }
        }
    })
}

/// Has the caller end, which was cancelled. Returns if it may not be cancelled at present.
pub(crate) unsafe extern "C-unwind" fn act() {
    for _ in 0..ROUNDS {
        // SAFETY: the caller is at a cancellation point, with nothing in its frames to put in order.
        unsafe { pthread_testcancel() };
        if !is_enabled() {
            return;
        }
        Linux::yield_now();
    }
}

fn is_enabled() -> bool {
    let before = forbid();
    allow(before);
    before == ENABLED
}

/// The caller cannot be cancelled from now on. Whether it could before, for [`allow`].
pub(crate) fn forbid() -> c_int {
    let mut before = DISABLED;
    // SAFETY: the integer is ours; a state that there is.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut before) };
    before
}

/// Undoes [`forbid`].
pub(crate) fn allow(before: c_int) {
    // SAFETY: a state that it was in before.
    unsafe { pthread_setcancelstate(before, ptr::null_mut()) };
}

/// A cancellation point.
pub(crate) unsafe extern "C-unwind" fn test() {
    // SAFETY: the caller has nothing in its frames to put in order.
    unsafe { pthread_testcancel() };
}

/// For the time of a wait, has the caller be cancelled at cancellation points only. What it was before.
pub(crate) unsafe extern "C-unwind" fn defer() -> c_int {
    let mut before = DEFERRED;
    // SAFETY: the integer is ours; a type that there is.
    unsafe { pthread_setcanceltype(DEFERRED, &raw mut before) };
    before
}

/// Undoes [`defer`]; the caller may end here.
pub(crate) unsafe extern "C-unwind" fn undo(before: c_int) {
    if before != DEFERRED {
        // SAFETY: a type that it was before; with nothing in its frames to put in order.
        unsafe { pthread_setcanceltype(before, ptr::null_mut()) };
    }
}

/// `pthread_cancel`, in programs that are ours.
///
/// # Safety
/// As for the C library's: the thread was not joined.
pub(crate) unsafe extern "C-unwind" fn cancel(thread: pthread_t) -> c_int {
    let words = of(thread);
    let Some(condvar) = announce(words) else {
        // SAFETY: as the caller promises.
        return unsafe { real::cancel::call(thread) };
    };
    // SAFETY: likewise; it is deferred, and does not end before it is unpinned.
    let outcome = unsafe { real::cancel::call(thread) };
    release(words, condvar);
    outcome
}

/// Tells a thread that it is cancelled; the condition variable where it waits, pinned.
fn announce(words: *const Words) -> Option<*mut pthread_cond_t> {
    // SAFETY: words of a thread that was not joined, at the place where each thread has them.
    let words = unsafe { &*words };
    words.asked.store(1, Ordering::SeqCst);
    loop {
        let at = words.at.load(Ordering::SeqCst);
        if at.is_null() {
            return None;
        }
        if at.addr() & PINNED != 0 {
            // Another thread cancels it too.
            Linux::yield_now();
            continue;
        }
        let pinned = at.map_addr(|at| at | PINNED);
        // Acquire: pairs with the release of who unpinned it before.
        let step = words.at.compare_exchange(at, pinned, Ordering::SeqCst, Ordering::Relaxed);
        if step.is_ok() {
            return Some(at);
        }
    }
}

/// Wakes all that wait at a condition variable, and unpins it.
fn release(words: *const Words, condvar: *mut pthread_cond_t) {
    // SAFETY: somebody waits there and stays until we unpin it.
    unsafe { condvar::wake_all(condvar) };
    // SAFETY: its thread has not ended for the same reason. Release: we are done with both.
    unsafe { &(*words).at }.store(condvar, Ordering::Release);
}
