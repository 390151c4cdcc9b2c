//! Threads that are cancelled: while they wait for a condition, or, if they are of the asynchronous type, anywhere in our functions.
//!
//! # For a condition
//! `pthread_cond_wait` is a cancellation point: a thread that is cancelled while it waits wakes, takes the mutex again, and ends; its
//! clean-up handlers run with the mutex held. The C library wakes a cancelled thread by a signal only while it is of the asynchronous type,
//! which its own waits are for the duration of the system call. We cannot do the same: the thread would leave from anywhere within our
//! wait, by unwinding through frames that have things to clean up. Instead, the thread that cancels calls the other one away from its wait;
//! then, with the mutex held and nothing left to clean up, that thread calls the C library's `pthread_testcancel` from a frame that may be
//! unwound.
//!
//! # Protocol
//! Each thread has a `Summons` (`nearq_lock`; `leaving.rs` keeps it), which a canceller finds at the same distance from the thread's
//! pointer as its own summons: thread-local values of a library that was loaded with the program are at a fixed place in each thread
//! (`build.rs` ensures that it is loaded with the program).
//!
//! - *cancel*: send the summons; then make the C library note the cancellation; then wake the thread by the record by which it waited when
//!   the summons was sent, if it did. The first step is the last that touches the thread's memory: once the C library has noted the
//!   cancellation, the thread may end and be joined. The third step touches only the record, which exists for ever. The canceller cannot
//!   itself be cancelled in between.
//! - *wait*: first a cancellation point. Then no cancellation until the mutex is held again (*forbid*). A thread that can be cancelled
//!   waits by its summons. If that was sent before it waited, the wait lasts a moment; if it is sent during the wait, the thread is woken.
//!   After the wait, *allow*, and if the thread was called away, a cancellation point again.
//!
//! So **a thread that can be cancelled never waits without heeding a cancellation**. A cancellation that the C library had noted before the
//! wait ends the thread at the first point. If a cancellation was noted later, the summons was sent later or is being sent: then the thread
//! is woken after the cancellation was noted, or its waits last only moments, each of which ends with a check. The thread waits for no
//! other thread: a canceller that is preempted between its steps only delays the end, and until then the wait sometimes returns for no
//! reason, which POSIX allows.
//!
//! A thread that was notified and cancelled has been notified: its wait returns, and it ends at the next cancellation point. So no
//! notification is lost with the thread, and it has nothing to pass on.
//!
//! # Threads of the asynchronous type
//! Such a thread ends wherever it is (`pthread_setcanceltype`): a signal handler of the C library unwinds its stack from there. If that
//! happened in the middle of a protocol, other threads would wait for ever. And Rust ends the process when a frame that has an LSDA, a
//! table of the calls at which it can be unwound, is unwound from any other place. The compiler gives a function an LSDA if it has
//! something to clean up, or if a panic ends in it. So the rule is: **while a thread is of the asynchronous type, no frame of a function of
//! ours that has an LSDA is on its stack**.
//!
//! - A mutex that no thread waits for is taken and released by one step of the word, and whether any thread waits for a condition is found
//!   out by reading: in functions without an LSDA.
//! - Everything else is done while the thread is of the deferred type. A function without an LSDA calls [`defer`], then a second function
//!   that does the work, then [`undo`]. The second function is `extern "C"`, so that a panic ends there, and is not inlined, because
//!   otherwise the first one would get its LSDA. A thread that was cancelled in between ends in `undo`, when everything is done: waiters
//!   are woken, and a mutex that it took is held.
//! - The C library's functions are called while the thread has its own type, so that they do what they would do without us. The exceptions
//!   are calls that are part of a protocol of ours.
//! - Taking a mutex is not a cancellation point, but a thread of the asynchronous type ends while it waits for one. It sleeps by [`sleep`],
//!   which makes it asynchronous only for the duration of the system call. It checks the mutex again now and then by itself, as another
//!   thread that was woken in its place may have ended.
//! - It waits for a condition as other threads do: it is of the deferred type during the wait, and is woken by its summons.
//!
//! [`forbid`] also makes the type deferred: in some versions of the C library, a signal that is on its way ends a thread of the
//! asynchronous type although the thread has just disabled that.
//!
//! `tests/unwinding.sh` checks the rule in the compiled library.
//!
//! # Forks
//! In the child of a fork, no thread is about to cancel the only thread (`forked`). What the C library has noted stays noted.

use core::ffi::{c_int, c_long};
use core::ptr;
use core::sync::atomic::AtomicU32;
use core::time::Duration;

use libc::{pthread_t, timespec};
use nearq_lock::raw::{Called, Summons};
use nearq_platform::{Instant, Wait};

use crate::{clock, leaving, real};

unsafe extern "C-unwind" {
    fn pthread_testcancel();
    fn pthread_setcancelstate(state: c_int, before: *mut c_int) -> c_int;
    fn pthread_setcanceltype(kind: c_int, before: *mut c_int) -> c_int;
    fn syscall(number: c_long, ...) -> c_long;
}

/// The caller can be cancelled.
pub(crate) const ENABLED: c_int = 0;
const DISABLED: c_int = 1;
const DEFERRED: c_int = 0;
/// The caller may be cancelled at any moment.
pub(crate) const ASYNCHRONOUS: c_int = 1;

/// How long a thread that sleeps by [`sleep`] waits before it checks by itself.
const MOMENT: Duration = Duration::from_millis(100);

/// Another thread's summons.
fn of(thread: pthread_t) -> *const Summons {
    let distance =
        ptr::from_ref(leaving::summons()).addr().wrapping_sub(crate::thread::pointer() as usize);
    ptr::with_exposed_provenance((thread as usize).wrapping_add(distance))
}

/// How a thread could be cancelled.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Could {
    pub(crate) state: c_int,
    kind: c_int,
}

/// The caller cannot be cancelled from now on. Returns how it could before, for [`allow`].
pub(crate) fn forbid() -> Could {
    let kind = defer();
    let mut state = DISABLED;
    // SAFETY: the integer is ours; the state is a valid one.
    unsafe { pthread_setcancelstate(DISABLED, &raw mut state) };
    Could { state, kind }
}

/// Undoes [`forbid`]. A thread of the asynchronous type that was cancelled in between ends here.
pub(crate) unsafe extern "C-unwind" fn allow(before: Could) {
    // The state first, while the thread is still of the deferred type: here glibc would end a thread of the asynchronous type without
    // noting that it was cancelled, which `pthread_join` returns. In `undo` it notes that.
    set_state(before.state);
    // SAFETY: this frame has nothing to clean up, nor do the callers', as they promise.
    unsafe { undo(before.kind) };
}

/// The caller, of the deferred type, can be cancelled as in that state from now on.
pub(crate) fn set_state(state: c_int) {
    // SAFETY: a state that the thread was in before; a thread of the deferred type does not end here.
    unsafe { pthread_setcancelstate(state, ptr::null_mut()) };
}

/// The caller is cancelled only at cancellation points from now on. Returns its previous type, for [`undo`].
///
/// Inlined, so that the compiled library shows which functions call it.
#[inline(always)]
pub(crate) fn defer() -> c_int {
    let mut before = DEFERRED;
    // SAFETY: the integer is ours; the type is a valid one, and setting it does not end the thread.
    unsafe { pthread_setcanceltype(DEFERRED, &raw mut before) };
    before
}

/// Undoes [`defer`]. A thread of the asynchronous type that was cancelled in between ends here.
///
/// # Safety
/// The caller's frame, and those of its callers as far as they are ours, have nothing to clean up.
pub(crate) unsafe extern "C-unwind" fn undo(before: c_int) {
    if before != DEFERRED {
        // SAFETY: a type that the thread had before; there is nothing to clean up, as the caller promises.
        unsafe { pthread_setcanceltype(before, ptr::null_mut()) };
    }
}

/// Sleeps while a word has the given value, but only for a moment, or until the deadline. A thread that is cancelled during the sleep ends
/// here.
///
/// Not inlined, so that it can be found in the compiled library.
///
/// # Safety
/// The word exists. Nothing in the caller's frames needs to be cleaned up.
#[inline(never)]
pub(crate) unsafe fn sleep(word: *const AtomicU32, value: u32, deadline: Option<&Instant>) -> Wait {
    let left = deadline.map_or(MOMENT, |deadline| clock::left(*deadline).min(MOMENT));
    if left.is_zero() {
        return Wait::TimedOut;
    }
    let time = timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: for all of them, a live word and time, and the caller's own `errno`; there is nothing to drop in this frame, nor in
    // the caller's.
    unsafe {
        let errno = *libc::__errno_location();
        pthread_setcanceltype(ASYNCHRONOUS, ptr::null_mut());
        syscall(libc::SYS_futex, word, wait, value, &raw const time);
        pthread_setcanceltype(DEFERRED, ptr::null_mut());
        *libc::__errno_location() = errno;
    }
    Wait::Woken
}

/// A cancellation point.
pub(crate) unsafe extern "C-unwind" fn test() {
    // SAFETY: the caller has nothing in its frames to clean up.
    unsafe { pthread_testcancel() };
}

/// The caller is the only thread in the child of a fork.
pub(crate) fn forked() {
    leaving::summons().renew();
}

/// `pthread_cancel`, in programs that are ours.
///
/// # Safety
/// As for the C library's function: the thread was not joined.
pub(crate) unsafe extern "C-unwind" fn cancel(thread: pthread_t) -> c_int {
    // The thread may be the caller.
    let before = forbid();
    // SAFETY: it belongs to a thread that was not joined, and is at the same place in each thread.
    let called = unsafe { &*of(thread) }.send();
    // SAFETY: as the caller promises.
    let outcome = unsafe { real::cancel::call(thread) };
    wake(called);
    // SAFETY: nothing in this frame, or in the caller's, needs to be cleaned up.
    unsafe { allow(before) };
    outcome
}

#[inline(never)]
#[allow(improper_ctypes_definitions, reason = "for the sake of panics only")]
extern "C" fn wake(called: Called) {
    called.wake();
}
