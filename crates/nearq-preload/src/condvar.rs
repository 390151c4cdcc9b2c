//! `pthread_cond_t` with our condition variable inside, and one of the C library's for mutexes that are not ours.
//!
//! # Which one
//! One that is shared between processes is the C library's, all of it (`layout.rs` says how it is told). In all others the bytes are
//! ours. Such a one does not know its mutexes before the first wait, and need not: who waits with a mutex of ours waits at
//! `raw`; the first that comes with a mutex of the C library's makes one of the C library's condition variables (`stand_in.rs`), and
//! all that come with such a mutex wait there. Who notifies notifies both, as far as they are there.
//!
//! A shared one with a mutex of ours is the affair of `mixed.rs`.
//!
//! # Destroying
//! A condition variable may be destroyed as soon as all that wait have been notified, while they are still on their way out. `inside` counts
//! those; the destroyer waits until there are none. The step of `inside` by which one leaves is its last touch; it wakes the
//! destroyer by the address alone.
//!
//! # Forks
//! In a child, those that waited are not there. `epoch` is that of the process whose threads use the condition variable
//! (`Linux::fork_epoch`), times two; odd while it is made fit for this one, by the first that comes.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use libc::{clockid_t, pthread_cond_t, pthread_condattr_t, pthread_mutex_t};
use nearq_lock::RawCondvar;
use nearq_platform::{Linux, Platform};

use crate::clock::Deadline;
use crate::mutex::{Kind, Mutex};
use crate::{cancel, layout, mixed, process, real, stand_in};

/// In `inside`: somebody waits for the others to leave.
const DESTROYING: u32 = 1 << 31;

/// Our view of a `pthread_cond_t`. Zero is a new one that goes by the real-time clock.
#[repr(C)]
struct Condvar {
    raw: RawCondvar,
    /// How many threads are in a wait at `raw`.
    inside: AtomicU32,
    /// The process, times two.
    epoch: AtomicU32,
    /// By which clock deadlines go that do not name one.
    clock: AtomicU32,
    /// Where the C library may say that it is shared: zero.
    _others: [u32; 6],
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
    Notified,
    TimedOut,
    /// Not begun, as the mutex is not the caller's.
    NotHeld,
    /// The caller was cancelled meanwhile.
    Cancelled,
    /// Not begun, as the caller was cancelled before.
    NotBegun,
}

/// What a wait is for: how the C library would be called if it is its affair.
pub(crate) enum Way {
    Ours,
    /// With a condition variable of the C library's that stands in, or the program's own.
    Theirs(*mut pthread_cond_t),
    /// A shared one, with a mutex of ours.
    Mixed,
    /// There is no memory.
    None,
}

impl Condvar {
    /// Our view of a condition variable that is not shared.
    unsafe fn of<'a>(condvar: *mut pthread_cond_t) -> &'a Self {
        // SAFETY: as large and aligned, as asserted above; all fields are atomics.
        let view = unsafe { &*condvar.cast::<Self>() };
        let now = (Linux::fork_epoch() as u32) << 1;
        // Acquire: pairs with the release of who has renewed it.
        if view.epoch.load(Ordering::Acquire) != now {
            view.renew(now);
        }
        view
    }

    /// The first use in the child of a fork.
    #[cold]
    fn renew(&self, now: u32) {
        loop {
            // Acquire: as in `of`.
            let epoch = self.epoch.load(Ordering::Acquire);
            if epoch == now {
                return;
            }
            if epoch == now | 1 {
                Linux::yield_now();
                continue;
            }
            // Relaxed: decides who does it; the others wait for the release below.
            let step =
                self.epoch.compare_exchange(epoch, now | 1, Ordering::Relaxed, Ordering::Relaxed);
            if step.is_ok() {
                // SAFETY: all others wait for us in `of`.
                unsafe { (&raw const self.raw).cast_mut().write(RawCondvar::new()) };
                self.inside.store(0, Ordering::Relaxed);
                // Release: pairs with the acquires above.
                self.epoch.store(now, Ordering::Release);
                return;
            }
        }
    }

    /// The one of the C library's, made if it is not there; null if there is no memory.
    fn stand_in(&self) -> *mut pthread_cond_t {
        // Acquire: pairs with the release below.
        let there = self.stand_in.load(Ordering::Acquire);
        if !there.is_null() {
            return there;
        }
        let made = stand_in::take(self.clock.load(Ordering::Relaxed) as clockid_t);
        if made.is_null() {
            return made;
        }
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

    /// The caller has come to wait.
    fn come_in(&self) {
        // Relaxed: who destroys is ordered with who waits by the program.
        self.inside.fetch_add(1, Ordering::Relaxed);
    }

    /// The caller leaves; the condition variable may be gone afterwards.
    fn go_out(&self) {
        let inside = &raw const self.inside;
        // Release: all that was done inside is over.
        if self.inside.fetch_sub(1, Ordering::Release) == DESTROYING + 1 {
            Linux::wake(inside, 1);
        }
    }

    /// Waits until nobody is inside.
    fn wait_for_leavers(&self) {
        // Acquire: pairs with the release in `go_out`.
        let mut inside = self.inside.fetch_or(DESTROYING, Ordering::Acquire) | DESTROYING;
        while inside != DESTROYING {
            Linux::wait(&self.inside, inside, None);
            inside = self.inside.load(Ordering::Acquire);
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
        // SAFETY: likewise.
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
            inside: AtomicU32::new(0),
            epoch: AtomicU32::new((Linux::fork_epoch() as u32) << 1),
            clock: AtomicU32::new(clock as u32),
            _others: [0; 6],
            stand_in: AtomicPtr::new(ptr::null_mut()),
        });
    };
    0
}

/// `pthread_cond_destroy`.
pub(crate) unsafe fn destroy(condvar: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { layout::is_shared(condvar) } {
        // SAFETY: likewise.
        return unsafe { real::cond_destroy::call(condvar) };
    }
    // SAFETY: likewise; not shared.
    let view = unsafe { Condvar::of(condvar) };
    view.wait_for_leavers();
    // Acquire: pairs with who made it.
    let stand_in = view.stand_in.swap(ptr::null_mut(), Ordering::Acquire);
    if !stand_in.is_null() {
        stand_in::give_back(stand_in);
    }
    view.inside.store(0, Ordering::Relaxed);
    0
}

// ---- notifying ------------------------------------------------------------------------------------------------------------

/// `pthread_cond_signal`.
pub(crate) unsafe fn signal(condvar: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { layout::is_shared(condvar) } {
        // SAFETY: likewise.
        return mixed::notify(|| unsafe { real::cond_signal::call(condvar) });
    }
    // SAFETY: likewise; not shared.
    let view = unsafe { Condvar::of(condvar) };
    // Acquire: pairs with who made it. Before our own, after which the condition variable may be gone.
    let stand_in = view.stand_in.load(Ordering::Acquire);
    if !stand_in.is_null() {
        // SAFETY: one of ours, initialised.
        unsafe { real::cond_signal::call(stand_in) };
    }
    view.raw.notify_one();
    0
}

/// `pthread_cond_broadcast`.
pub(crate) unsafe fn broadcast(condvar: *mut pthread_cond_t) -> c_int {
    // SAFETY: as the caller promises.
    if unsafe { layout::is_shared(condvar) } {
        // SAFETY: likewise.
        return mixed::notify(|| unsafe { real::cond_broadcast::call(condvar) });
    }
    // SAFETY: likewise; not shared.
    let view = unsafe { Condvar::of(condvar) };
    // Acquire: as in `signal`.
    let stand_in = view.stand_in.load(Ordering::Acquire);
    if !stand_in.is_null() {
        // SAFETY: one of ours, initialised.
        unsafe { real::cond_broadcast::call(stand_in) };
    }
    view.raw.notify_all();
    0
}

/// Wakes all that wait at `raw`, one of whom was cancelled.
pub(crate) unsafe fn wake_all(condvar: *mut pthread_cond_t) {
    // SAFETY: as the caller promises: somebody waits there.
    unsafe { Condvar::of(condvar) }.raw.notify_all();
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
            let stand_in = unsafe { Condvar::of(condvar) }.stand_in();
            if stand_in.is_null() { Way::None } else { Way::Theirs(stand_in) }
        }
        (false, _) => Way::Ours,
    }
}

/// The clock by which a condition variable goes that is not shared.
pub(crate) unsafe fn clock(condvar: *mut pthread_cond_t) -> clockid_t {
    // SAFETY: as the caller promises.
    unsafe { Condvar::of(condvar) }.clock.load(Ordering::Relaxed) as clockid_t
}

/// A wait with a mutex of ours, at a condition variable that is not shared. The mutex is held when it returns, whatever it
/// says. With `heed`, being cancelled ends it.
pub(crate) unsafe extern "C" fn wait(
    condvar: *mut pthread_cond_t,
    mutex: *mut pthread_mutex_t,
    deadline: Option<&Deadline>,
    heed: bool,
) -> Ended {
    // SAFETY: as the caller promises.
    let (view, held_by) = unsafe { (Condvar::of(condvar), Mutex::of(mutex)) };
    process::threads_begin();
    if heed && !cancel::enter(condvar) {
        return Ended::NotBegun;
    }
    let ended = match held_by.lay_down() {
        Err(_) => Ended::NotHeld,
        Ok(held) => {
            view.come_in();
            let ended = wait_until(view, held_by, deadline);
            held_by.take_up(held);
            ended
        }
    };
    let cancelled = heed && !cancel::leave();
    if ended == Ended::NotHeld {
        return ended;
    }
    if cancelled {
        // What we were notified of, if we were, is for another one.
        view.raw.notify_one();
    }
    view.go_out();
    if cancelled { Ended::Cancelled } else { ended }
}

fn wait_until(view: &Condvar, mutex: &Mutex, deadline: Option<&Deadline>) -> Ended {
    loop {
        let look = deadline.map(|deadline| deadline.next_look());
        mutex.raw.adopt();
        // SAFETY: the caller holds it, which `lay_down` has checked as far as the mutex knows.
        let notified = unsafe { view.raw.wait(&mutex.raw, look) };
        mutex.raw.disown();
        if notified {
            return Ended::Notified;
        }
        if deadline.is_some_and(|deadline| deadline.has_passed()) {
            return Ended::TimedOut;
        }
    }
}
