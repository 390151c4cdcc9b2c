//! Condition variables that are shared between processes, with mutexes of ours: a program may use them that way within one process.
//!
//! The C library waits only with a mutex of its own. There is one for the whole process, the *gate*, which stands for all of ours. A thread
//! that waits takes the gate before it releases its own mutex. A thread that notifies takes it too, once any thread has waited this way: so
//! no notification falls in between. Other processes cannot have the mutex, and need not be waited for.
//!
//! A thread must not be cancelled during such a wait, because it would leave the gate held. So it waits for a second at most. Then its wait
//! ends for no reason: if it waited on without letting the program check, it would miss a notification in between.
//!
//! In the child of a fork, the gate may be held by a thread that does not exist there: it is reset (`forked`).
//!
//! There is no model of this: the gate and the condition variable are the C library's, and `USED` needs no order of its own (`is_used`).
//! Programs in `tests/c` test it: notified in all ways, after a long time, and held twice (`condvars.c`), cancelled (`cancelling.c`), left
//! by a jump (`jumping.c`), and in the child of a fork (`forking.c`).

use core::cell::UnsafeCell;
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use libc::{pthread_cond_t, pthread_mutex_t, timespec};
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::condvar::For;
use crate::mutex::Mutex;
use crate::{clock, real};

/// The wait ended without a notification and before the deadline.
pub(crate) const FOR_NO_REASON: c_int = -1;

/// How long a thread cannot be cancelled.
const MOMENT: Duration = Duration::from_secs(1);

/// The C library's mutex that stands for all of ours. All zeros are a new one.
struct Gate(UnsafeCell<MaybeUninit<pthread_mutex_t>>);

// SAFETY: only ever passed to the C library, which handles it.
unsafe impl Sync for Gate {}

static GATE: Gate = Gate(UnsafeCell::new(MaybeUninit::zeroed()));

/// 1 once a thread has waited this way.
static USED: AtomicU32 = AtomicU32::new(0);

fn gate() -> *mut pthread_mutex_t {
    GATE.0.get().cast()
}

/// Whether a thread has waited this way. Until then, a thread that notifies needs no gate.
pub(crate) fn is_used() -> bool {
    // Relaxed: what is notified was changed under the mutex after the waiting thread released it, which orders the two.
    USED.load(Ordering::Relaxed) != 0
}

/// Notifies, but not while a thread is between releasing a mutex of ours and waiting. The caller, of the deferred type, does not leave the
/// gate held.
///
/// # Safety
/// As for `pthread_cond_signal`; the condition variable is shared.
#[inline(never)]
pub(crate) unsafe extern "C" fn notify(condvar: *mut pthread_cond_t, recipients: For) -> c_int {
    // SAFETY: a mutex of the C library's, which lives as long as the program.
    unsafe { real::mutex_lock::call(gate()) };
    // SAFETY: as the caller promises.
    let outcome = unsafe { recipients.of_the_c_library(condvar) };
    // SAFETY: taken above.
    unsafe { real::mutex_unlock::call(gate()) };
    outcome
}

/// In the child of a fork, whose only thread is the caller: no thread holds the gate.
pub(crate) fn forked() {
    // SAFETY: the threads that used it are not in this process; zeros are a new mutex.
    unsafe { *GATE.0.get() = MaybeUninit::zeroed() };
}

/// Waits for a moment, or until `deadline`. The mutex is held when it returns, whatever the result. The caller cannot be cancelled.
///
/// # Safety
/// As for `pthread_cond_wait`; the condition variable is shared, and the mutex one of ours.
#[inline(never)]
pub(crate) unsafe extern "C" fn wait(
    condvar: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Instant>,
) -> c_int {
    // SAFETY: as the caller promises.
    let view = unsafe { Mutex::of(mutex) };
    let held = match view.lay_down() {
        Ok(held) => held,
        Err(error) => return error,
    };
    let left = deadline.map_or(MOMENT, |deadline| clock::left(*deadline).min(MOMENT));
    let until = (Linux::now() + left).as_nanos();
    let until = timespec {
        tv_sec: (until / 1_000_000_000) as i64,
        tv_nsec: (until % 1_000_000_000) as i64,
    };
    // Relaxed: a thread that notifies changed something under the mutex after it is released below, which orders the two.
    USED.store(1, Ordering::Relaxed);
    // SAFETY: a mutex of the C library's, which lives as long as the program.
    unsafe { real::mutex_lock::call(gate()) };
    if !held.is_kept() {
        // SAFETY: the caller holds it.
        unsafe { view.give_word_back() };
    }
    // SAFETY: both are the C library's.
    let outcome = unsafe {
        real::cond_clockwait::call(condvar, gate(), libc::CLOCK_MONOTONIC, &raw const until)
    };
    // SAFETY: taken above, and again by the wait.
    unsafe { real::mutex_unlock::call(gate()) };
    if !held.is_kept() {
        view.take_word();
    }
    view.take_up(held);
    match outcome {
        libc::ETIMEDOUT if !deadline.is_some_and(|deadline| Linux::has_come(*deadline)) => {
            FOR_NO_REASON
        }
        outcome => outcome,
    }
}
