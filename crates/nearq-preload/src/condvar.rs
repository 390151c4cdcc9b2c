//! `pthread_cond_t` with our condition variable inside, and one of the C library's for mutexes that are not ours.
//!
//! # Which one
//! One that is shared between processes is the C library's, all of it (`layout.rs` says how it is told). In all others the bytes are ours.
//! Such a condition variable does not know its mutexes before the first wait. A thread with a mutex of ours waits at `raw`. The first thread
//! with a mutex of the C library's makes one of the C library's condition variables (`stand_in.rs`), and all threads with such a mutex wait
//! there. A notification goes to both, as far as they are there. The thread that makes it initialises it before the step that
//! puts its address here (release), and a thread that finds the address (acquire) does nothing with it but call the C library: so that
//! step has no model. `tests/c/standing_in.c`, `condvars.c` and `cancelling.c` use it.
//!
//! A shared one with a mutex of ours is the affair of `mixed.rs`.
//!
//! # Destroying
//! A condition variable may be destroyed as soon as nobody is blocked on it. Who was notified does not touch it any more
//! (`nearq_lock::RawCondvar`), though it may have its mutex still to wait for, which the destroyer may hold. So the destroyer waits
//! for those alone that are blocked still, by the program's fault, or are about to leave because of a deadline or a cancellation, which
//! is a matter of some instructions. It takes no mutex.
//!
//! # Threads that may be cancelled at any moment
//! Everything that is more than finding out whether anybody waits is done while such a thread is of the deferred type (`cancel.rs`):
//! notifying those who wait, making one of the C library's, destroying. If it is cancelled meanwhile, it ends afterwards. So all that
//! were to be notified are, even if the first one cancels the thread that notifies.
//!
//! # No wait begins anew
//! Between two waits of one call a notification would find nobody. So a wait goes to the end by the clock that its deadline is on, and
//! what ends before for any reason returns to the program, which looks and waits again.
//!
//! # Forks
//! In a child, those that waited are not there. The first thread that comes makes the condition variable fit for the child (`epoch.rs`).

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use core::time::Duration;

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t};
use nearq_lock::RawCondvar;
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::epoch::Epoch;
use crate::leaving::InWait;
use crate::mutex::{Held, Kind, Mutex};
use crate::{cancel, clock, layout, mixed, process, real, stand_in};

/// How long one waits that looks by itself.
const MOMENT: Duration = Duration::from_millis(1);

/// Our view of a `pthread_cond_t`. Zero is a new one that goes by the real-time clock.
#[repr(C)]
struct Condvar {
    raw: RawCondvar,
    epoch: Epoch,
    /// By which clock deadlines go that do not name one.
    clock: AtomicU32,
    /// Where the C library may say that it is shared: zero.
    _others: [u32; 7],
    /// One of the C library's, for its mutexes; null while there is none.
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
    /// Or for no reason.
    Notified,
    TimedOut,
    /// The caller was called away, to be cancelled most probably.
    Called,
    /// Not begun, as the mutex is not the caller's.
    NotHeld,
}

/// What a wait is for: how the C library would be called if it is its affair.
pub(crate) enum Way {
    Ours,
    /// With a condition variable of the C library's that stands in, or the program's own.
    Theirs(*mut pthread_cond_t),
    /// A shared one, with a mutex of ours.
    Mixed,
}

impl Condvar {
    /// Our view of a condition variable that is not shared.
    unsafe fn of<'a>(condvar: *mut pthread_cond_t) -> &'a Self {
        // SAFETY: as large and aligned, as asserted above; all fields are atomics.
        let view = unsafe { &*condvar.cast::<Self>() };
        if !view.epoch.is_now() {
            view.renew();
        }
        view
    }

    /// The first use in the child of a fork. The caller may end here, if it is of the asynchronous type.
    #[cold]
    fn renew(&self) {
        let before = cancel::defer();
        self.renew_deferred();
        // SAFETY: nothing in this frame, nor in those of the callers, is to be put in order.
        unsafe { cancel::undo(before) };
    }

    #[inline(never)]
    extern "C" fn renew_deferred(&self) {
        // SAFETY: all others wait for us in `of`.
        self.epoch.make_fit(|| unsafe {
            (&raw const self.raw).cast_mut().write(RawCondvar::new());
        });
    }

    /// The one of the C library's, made if it is not there. The caller may end here, if it is of the asynchronous type.
    fn stand_in(&self) -> *mut pthread_cond_t {
        // Acquire: pairs with the release in `make_stand_in`.
        let there = self.stand_in.load(Ordering::Acquire);
        if !there.is_null() {
            return there;
        }
        let before = cancel::defer();
        let made = self.make_stand_in();
        // SAFETY: nothing in this frame, nor in those of the callers, is to be put in order.
        unsafe { cancel::undo(before) };
        made
    }

    #[inline(never)]
    extern "C" fn make_stand_in(&self) -> *mut pthread_cond_t {
        let made = stand_in::take(self.clock.load(Ordering::Relaxed) as clockid_t);
        // Release: it is initialised. Acquire on failure: we use another's.
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
/// As for the C library's; so for all that follow.
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
    // SAFETY: memory for a condition variable that nobody uses yet.
    unsafe {
        condvar.cast::<Condvar>().write(Condvar {
            raw: RawCondvar::new(),
            epoch: Epoch::new(),
            clock: AtomicU32::new(clock as u32),
            _others: [0; 7],
            stand_in: AtomicPtr::new(ptr::null_mut()),
        });
    };
    0
}

/// `pthread_cond_destroy`.
pub(crate) unsafe fn destroy(condvar: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { layout::is_shared(condvar) } {
        // SAFETY: a condition variable that nobody uses any more, as the caller promises; a shared one is the C library's.
        return unsafe { real::cond_destroy::call(condvar) };
    }
    let before = cancel::defer();
    // SAFETY: a condition variable, as the caller promises, and not a shared one. Nothing in this frame, nor in those of the callers,
    // is to be put in order.
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
    // Acquire: pairs with who made it.
    let stand_in = view.stand_in.swap(ptr::null_mut(), Ordering::Acquire);
    if !stand_in.is_null() {
        stand_in::give_back(stand_in);
    }
}

// ---- notifying ------------------------------------------------------------------------------------------------------------

/// Who is to be notified.
#[derive(Clone, Copy)]
#[repr(i32)]
pub(crate) enum For {
    One,
    All,
}

impl For {
    /// The C library's function, called.
    ///
    /// # Safety
    /// As for that.
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
pub(crate) unsafe fn notify(condvar: *mut pthread_cond_t, whom: For) -> c_int {
    // SAFETY: a condition variable, as the caller promises.
    if unsafe { nobody_waits(condvar) } {
        return 0;
    }
    // SAFETY: a condition variable, as the caller promises.
    unsafe { notify_those_who_wait(condvar, whom) }
}

/// Whether a notification would find nobody.
#[inline]
unsafe fn nobody_waits(condvar: *mut pthread_cond_t) -> bool {
    // SAFETY: a condition variable, as the caller of `notify` promises.
    if unsafe { layout::is_shared(condvar) } {
        return false;
    }
    // SAFETY: not shared; as large and aligned, as asserted above; all fields are atomics.
    let view = unsafe { &*condvar.cast::<Condvar>() };
    view.epoch.is_now()
        // Acquire: pairs with who made it.
        && view.stand_in.load(Ordering::Acquire).is_null()
        && !view.raw.is_waited_for()
}

#[inline(never)]
unsafe extern "C-unwind" fn notify_those_who_wait(
    condvar: *mut pthread_cond_t,
    whom: For,
) -> c_int {
    // SAFETY: a condition variable, as the caller of `notify` promises.
    let shared = unsafe { layout::is_shared(condvar) };
    if shared && !mixed::is_used() {
        // SAFETY: a condition variable, as the caller of `notify` promises; a shared one is the C library's.
        return unsafe { whom.of_the_c_library(condvar) };
    }
    let before = cancel::defer();
    // SAFETY: a condition variable, as the caller of `notify` promises. Nothing in this frame, nor in those of the callers, is to be
    // put in order.
    unsafe {
        let outcome = if shared {
            mixed::notify(condvar, whom)
        } else {
            notify_deferred(condvar, whom);
            0
        };
        cancel::undo(before);
        outcome
    }
}

#[inline(never)]
unsafe extern "C" fn notify_deferred(condvar: *mut pthread_cond_t, whom: For) {
    // SAFETY: a condition variable, as the caller of `notify` promises, and not a shared one.
    let view = unsafe { Condvar::of(condvar) };
    // Acquire: pairs with who made it.
    let stand_in = view.stand_in.load(Ordering::Acquire);
    // A thread that is notified may destroy the condition variable at once. So the threads that wait at the one that stands in are notified
    // when ours is not touched any more, and before those that wait at ours can know of it: until then both exist.
    let theirs = || {
        if !stand_in.is_null() {
            // At one that stands in for others too, the first may be another one's.
            let whom = if stand_in::is_common(stand_in) { For::All } else { whom };
            // SAFETY: one of ours, initialised.
            unsafe { whom.of_the_c_library(stand_in) };
        }
    };
    match whom {
        For::One => {
            view.raw.notify_one_after(theirs);
        }
        For::All => {
            view.raw.notify_all_after(theirs);
        }
    }
}

// ---- waiting --------------------------------------------------------------------------------------------------------------

/// Whose affair a wait is.
pub(crate) unsafe fn way(condvar: *mut pthread_cond_t, mutex: *mut pthread_mutex_t) -> Way {
    // SAFETY: both are what the caller promises.
    let (shared, kind) = unsafe { (layout::is_shared(condvar), Mutex::of(mutex).kind()) };
    match (shared, kind) {
        (true, Kind::Foreign) => Way::Theirs(condvar),
        (true, _) => Way::Mixed,
        (false, Kind::Foreign) => {
            // SAFETY: not shared.
            Way::Theirs(unsafe { Condvar::of(condvar) }.stand_in())
        }
        (false, _) => Way::Ours,
    }
}

/// The clock by which a condition variable goes that is not shared.
pub(crate) unsafe fn clock_of(condvar: *mut pthread_cond_t) -> clockid_t {
    // SAFETY: as the caller promises.
    unsafe { Condvar::of(condvar) }.clock.load(Ordering::Relaxed) as clockid_t
}

/// A wait with a mutex of ours, at a condition variable that is not shared. The mutex is held when it returns, whatever it
/// says. With `heed`, being cancelled ends it; it is not to be cancelled in any other way meanwhile. The thread may leave the wait by a
/// jump, by means of `wait`.
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
        nearq_lock::Ended::Notified => Ended::Notified,
        nearq_lock::Ended::TimedOut => Ended::TimedOut,
        nearq_lock::Ended::Called => Ended::Called,
    };
    held_by.take_up(held);
    ended
}

/// Where there was no memory for what waiting takes: gives the mutex up for a moment, or until the deadline if that comes first.
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
