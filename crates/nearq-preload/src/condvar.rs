//! `pthread_cond_t` with our condition variable inside, and one of the C library's for mutexes that are not ours.
//!
//! # Which one
//! A condition variable that is shared between processes is entirely the C library's (`layout.rs` says how it is recognised). In all others
//! the bytes are ours. Such a condition variable does not know its mutexes before the first wait. A thread with a mutex of ours waits at
//! `raw`. The first thread with a mutex of the C library's makes one of the C library's condition variables (`stand_in.rs`), and all
//! threads with such a mutex wait there. A notification goes to both, if they exist. The thread that makes it initialises it before the
//! step that puts its address here (release). A thread that finds the address (acquire) only passes it to the C library: so that step has
//! no model. `tests/c/standing_in.c`, `condvars.c` and `cancelling.c` use it.
//!
//! `mixed.rs` handles a shared one with a mutex of ours.
//!
//! # Destroying
//! A condition variable may be destroyed as soon as no thread is blocked on it. A thread that was notified no longer touches it
//! (`nearq_lock::raw::RawCondvar`), though it may still have to wait for its mutex, which the destroyer may hold. So the destroyer waits
//! only for threads that are still blocked, by the program's fault, or are about to leave because of a deadline or a cancellation, which
//! takes a few instructions. It takes no mutex.
//!
//! # Threads that may be cancelled at any moment
//! Everything except checking whether any thread waits is done while such a thread is of the deferred type (`cancel.rs`): notifying waiting
//! threads, making one of the C library's, destroying. If it is cancelled in between, it ends afterwards. So all threads that must be
//! notified are, even if the first one cancels the thread that notifies.
//!
//! # No wait is restarted
//! Between two waits of one call, a notification would find no thread. So one wait covers the whole call, on its deadline's clock, and one
//! that ends earlier for any reason returns to the program, which checks and waits again.
//!
//! # Forks
//! In a child, the waiting threads do not exist. Nothing is to be done for that here: a ring tells the records of another process from its
//! own (`ring.rs` in `nearq-lock`), in the step by which it is locked. A check at the beginning of each call, and a repair after it, would
//! be wrong: a signal handler that forks may come between the two, or between the repair and the wait, and a thread that it starts in the
//! child may wait meanwhile. The repair would forget that thread.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use core::time::Duration;

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t};
use nearq_lock::raw::RawCondvar;
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::leaving::InWait;
use crate::mutex::{Held, Kind, Mutex};
use crate::{cancel, clock, layout, mixed, process, real, stand_in};

/// How long a thread waits that checks by itself.
const MOMENT: Duration = Duration::from_millis(1);

/// Our view of a `pthread_cond_t`. All zeros are a new one that uses the real-time clock.
#[repr(C)]
struct Condvar {
    raw: RawCondvar,
    /// The clock for deadlines that do not name one.
    clock: AtomicU32,
    /// The place where the C library may say that it is shared: zero.
    _others: [u32; 8],
    /// A condition variable of the C library's, for that library's mutexes; null while there is none.
    stand_in: AtomicPtr<pthread_cond_t>,
}

const _: () = assert!(
    offset_of!(Condvar, _others) <= 28
        && offset_of!(Condvar, stand_in) == 40
        && size_of::<Condvar>() == size_of::<pthread_cond_t>()
        && align_of::<Condvar>() <= align_of::<pthread_cond_t>()
);

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Ended {
    /// The thread was notified, or woke for no reason.
    Notified,
    TimedOut,
    /// The caller was called away, most probably to be cancelled.
    Called,
    /// The wait did not begin, as the caller does not hold the mutex.
    NotHeld,
}

/// How a wait is carried out, and how to call the C library if it handles the wait.
pub(crate) enum Route {
    Ours,
    /// With a condition variable of the C library's that stands in, or the program's own.
    Theirs(*mut pthread_cond_t),
    /// A shared condition variable, with a mutex of ours.
    Mixed,
}

impl Condvar {
    /// Our view of a condition variable that is not shared.
    unsafe fn of<'a>(condvar: *mut pthread_cond_t) -> &'a Self {
        // SAFETY: as large and aligned, as asserted above; all fields are atomics.
        unsafe { &*condvar.cast::<Self>() }
    }

    /// The condition variable of the C library's, created if it does not exist. The caller may end here, if it is of the asynchronous type.
    fn stand_in(&self) -> *mut pthread_cond_t {
        // Acquire: pairs with the release in `make_stand_in`.
        let there = self.stand_in.load(Ordering::Acquire);
        if !there.is_null() {
            return there;
        }
        let before = cancel::defer();
        let made = self.make_stand_in();
        // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe { cancel::undo(before) };
        made
    }

    #[inline(never)]
    extern "C" fn make_stand_in(&self) -> *mut pthread_cond_t {
        let made = stand_in::take(self.clock.load(Ordering::Relaxed) as clockid_t);
        // Release: it is initialised. Acquire on failure: we use another thread's.
        match self.stand_in.compare_exchange(
            ptr::null_mut(),
            made,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made,
            Err(there) => {
                stand_in::give_back(made);
                there
            }
        }
    }
}

// ---- making, ending -------------------------------------------------------------------------------------------------------

/// `pthread_cond_init`, in programs that are ours.
///
/// # Safety
/// As for the C library's; this also holds for all functions below.
pub(crate) unsafe fn init(
    condvar: *mut pthread_cond_t,
    attributes: *const pthread_condattr_t,
) -> c_int {
    let (mut shared, mut clock) = (libc::PTHREAD_PROCESS_PRIVATE, libc::CLOCK_REALTIME);
    if !attributes.is_null() {
        // SAFETY: attributes, as the caller promises; the integers are ours.
        unsafe { libc::pthread_condattr_getpshared(attributes, &raw mut shared) };
        // SAFETY: attributes, as the caller promises; the integers are ours.
        unsafe { libc::pthread_condattr_getclock(attributes, &raw mut clock) };
    }
    if shared != libc::PTHREAD_PROCESS_PRIVATE {
        // SAFETY: as the caller promises.
        return unsafe { real::cond_init::call(condvar, attributes) };
    }
    // SAFETY: memory for a condition variable that no thread uses yet.
    unsafe {
        condvar.cast::<Condvar>().write(Condvar {
            raw: RawCondvar::new(),
            clock: AtomicU32::new(clock as u32),
            _others: [0; 8],
            stand_in: AtomicPtr::new(ptr::null_mut()),
        });
    };
    0
}

/// `pthread_cond_destroy`.
pub(crate) unsafe fn destroy(condvar: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { layout::is_shared(condvar) } {
        // SAFETY: a condition variable that no thread uses any more, as the caller promises; a shared one is the C library's.
        return unsafe { real::cond_destroy::call(condvar) };
    }
    let before = cancel::defer();
    // SAFETY: a condition variable, as the caller promises, and not a shared one. Nothing in this frame, or in the callers' frames, needs
    // to be cleaned up.
    unsafe {
        destroy_deferred(condvar);
        cancel::undo(before);
    }
    0
}

#[inline(never)]
unsafe extern "C" fn destroy_deferred(condvar: *mut pthread_cond_t) {
    // SAFETY: as the caller promises; not shared.
    let view = unsafe { Condvar::of(condvar) };
    view.raw.wait_until_left();
    // Acquire: pairs with the release of the thread that made it.
    let stand_in = view.stand_in.swap(ptr::null_mut(), Ordering::Acquire);
    if !stand_in.is_null() {
        stand_in::give_back(stand_in);
    }
}

// ---- notifying ------------------------------------------------------------------------------------------------------------

/// Which threads to notify.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum For {
    One,
    All,
}

impl For {
    /// Calls the C library's function.
    ///
    /// # Safety
    /// As for that function.
    pub(crate) unsafe fn of_the_c_library(self, condvar: *mut pthread_cond_t) -> c_int {
        match self {
            // SAFETY: as the caller promises.
            For::One => unsafe { real::cond_signal::call(condvar) },
            // SAFETY: as the caller promises.
            For::All => unsafe { real::cond_broadcast::call(condvar) },
        }
    }
}

/// `pthread_cond_signal` and `pthread_cond_broadcast`. The caller may end here, if it is of the asynchronous type.
#[inline]
pub(crate) unsafe fn notify(condvar: *mut pthread_cond_t, recipients: For) -> c_int {
    // SAFETY: a condition variable, as the caller promises.
    if unsafe { has_no_waiters(condvar) } {
        return 0;
    }
    // SAFETY: a condition variable, as the caller promises.
    unsafe { notify_waiters(condvar, recipients) }
}

/// Whether a notification would find no thread.
#[inline]
unsafe fn has_no_waiters(condvar: *mut pthread_cond_t) -> bool {
    // SAFETY: a condition variable, as the caller of `notify` promises.
    if unsafe { layout::is_shared(condvar) } {
        return false;
    }
    // SAFETY: not shared; as large and aligned, as asserted above; all fields are atomics.
    let view = unsafe { &*condvar.cast::<Condvar>() };
    // Acquire: pairs with the release of the thread that made it.
    view.stand_in.load(Ordering::Acquire).is_null() && !view.raw.is_waited_for()
}

#[inline(never)]
unsafe extern "C-unwind" fn notify_waiters(condvar: *mut pthread_cond_t, recipients: For) -> c_int {
    // SAFETY: a condition variable, as the caller of `notify` promises.
    let shared = unsafe { layout::is_shared(condvar) };
    if shared && !mixed::is_used() {
        // SAFETY: a condition variable, as the caller of `notify` promises; a shared one is the C library's.
        return unsafe { recipients.of_the_c_library(condvar) };
    }
    let before = cancel::defer();
    // SAFETY: a condition variable, as the caller of `notify` promises. Nothing in this frame, nor in those of the callers, needs to be
    // cleaned up.
    unsafe {
        let outcome = if shared {
            mixed::notify(condvar, recipients)
        } else {
            notify_deferred(condvar, recipients);
            0
        };
        cancel::undo(before);
        outcome
    }
}

#[inline(never)]
unsafe extern "C" fn notify_deferred(condvar: *mut pthread_cond_t, recipients: For) {
    // SAFETY: a condition variable, as the caller of `notify` promises, and not a shared one.
    let view = unsafe { Condvar::of(condvar) };
    // Acquire: pairs with the release of the thread that made it.
    let stand_in = view.stand_in.load(Ordering::Acquire);
    // A thread that is notified may destroy the condition variable at once. So the threads that wait at the stand-in are notified after
    // ours has been touched for the last time, and before those that wait at ours can know of it: until then both exist.
    let notify_stand_in = || {
        if !stand_in.is_null() {
            // At a stand-in that is shared, the first thread may wait at another condition variable.
            let recipients = if stand_in::is_common(stand_in) { For::All } else { recipients };
            // SAFETY: one of ours, initialised.
            unsafe { recipients.of_the_c_library(stand_in) };
        }
    };
    match recipients {
        For::One => {
            view.raw.notify_one_after(notify_stand_in);
        }
        For::All => {
            view.raw.notify_all_after(notify_stand_in);
        }
    }
}

// ---- waiting --------------------------------------------------------------------------------------------------------------

/// Which code handles a wait.
pub(crate) unsafe fn route(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> Route {
    // SAFETY: both are what the caller promises.
    let (shared, kind) = unsafe { (layout::is_shared(condvar), Mutex::of(mutex).kind()) };
    match (shared, kind) {
        (true, Kind::Foreign) => Route::Theirs(condvar),
        (true, _) => Route::Mixed,
        (false, Kind::Foreign) => {
            // SAFETY: not shared.
            Route::Theirs(unsafe { Condvar::of(condvar) }.stand_in())
        }
        (false, _) => Route::Ours,
    }
}

/// The clock that a condition variable uses that is not shared.
pub(crate) unsafe fn clock_of(condvar: *mut pthread_cond_t) -> clockid_t {
    // SAFETY: as the caller promises.
    unsafe { Condvar::of(condvar) }.clock.load(Ordering::Relaxed) as clockid_t
}

/// A wait with a mutex of ours, at a condition variable that is not shared. The mutex is held when it returns, whatever the result. If
/// `heed` is set, a cancellation ends it; the thread must not be cancelled in any other way during the wait. The thread may leave the wait
/// by a jump, by means of `wait`.
#[inline(never)]
pub(crate) unsafe extern "C" fn wait(
    condvar: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Instant>,
    heed: bool,
    wait: &InWait<'_>,
) -> Ended {
    // SAFETY: as the caller promises.
    let (view, held_by) = unsafe { (Condvar::of(condvar), Mutex::of(mutex)) };
    process::threads_begin();
    let Ok(held) = held_by.lay_down() else { return Ended::NotHeld };
    if !process::is_ready() {
        // SAFETY: the caller holds the mutex.
        unsafe { wait_for_a_moment(held_by, &held, deadline) };
        held_by.take_up(held);
        return match deadline {
            Some(deadline) if Linux::has_come(*deadline) => Ended::TimedOut,
            _ => Ended::Notified,
        };
    }
    let (mutex, deadline) = (&held_by.raw, deadline.copied());
    // The condition variable is not touched after the wait: it may be gone.
    let (summons, stay) = (heed.then(|| wait.summons()), wait.stay());
    let ended = if held.is_kept() {
        view.raw.wait_keeping(deadline, summons, stay)
    } else {
        mutex.adopt();
        // SAFETY: the caller holds the mutex, which `lay_down` has checked as far as the mutex knows.
        let ended = unsafe { view.raw.wait_as(mutex, deadline, summons, stay) };
        mutex.disown();
        ended
    };
    let ended = match ended {
        nearq_lock::raw::Ended::Notified => Ended::Notified,
        nearq_lock::raw::Ended::TimedOut => Ended::TimedOut,
        nearq_lock::raw::Ended::Called => Ended::Called,
    };
    held_by.take_up(held);
    ended
}

/// Used if there is no memory for what waiting needs: releases the mutex for a moment, or until the deadline if that comes first.
///
/// # Safety
/// The caller holds the mutex.
#[cold]
unsafe fn wait_for_a_moment(mutex: &Mutex, held: &Held, deadline: Option<&Instant>) {
    if !held.is_kept() {
        // SAFETY: as the caller promises.
        unsafe { mutex.give_word_back() };
    }
    let left = deadline.map_or(MOMENT, |deadline| clock::left(*deadline).min(MOMENT));
    Linux::sleep(left);
    if !held.is_kept() {
        mutex.take_word();
    }
}
