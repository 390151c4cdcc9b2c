//! `pthread_mutex_t` with our mutex inside.
//!
//! `layout.rs` says which byte is what. The word at the beginning is the mutex of `nearq-lock`; the C library never touches it, as each of
//! its functions that would is one of ours. What kind a mutex is says the C library's own field, at each call: whoever made the mutex,
//! by whatever initialiser, wrote it there.
//!
//! # The holder
//! Error-checking and recursive mutexes know theirs. It is written by who has taken the word, and cleared before the word is given back. Who
//! reads it finds itself only if it wrote that itself; so `Relaxed` is enough. It is the caller if the thread pointer is the
//! caller's, and either the kernel's number too, or the mutex was taken before a fork, which the caller came out of under another number.
//! So the child of a fork can give back what was taken in the parent, which POSIX wants and glibc refuses.
//!
//! The others belong to nobody: as with the C library's, any thread may give them back, and who holds one and takes it again waits until
//! another thread does. So no word is ever taken in a thread's own name (`RawMutex::disown`), or debug builds of ours would not
//! let programs do that.
//!
//! # Unlocking is the last touch
//! The step of the word that frees the mutex is the last access to it: the next holder may destroy it.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{pthread_mutex_t, timespec};
use nearq_lock::RawMutex;
use nearq_platform::{Linux, Platform};

use crate::clock::Deadline;
use crate::{layout, process, real, thread};

/// In the kind: bits that choose between ways of the C library to do the same (`PTHREAD_MUTEX_ELISION_NP` and its opposite).
const WAYS: i32 = 256 | 512;
/// The type `PTHREAD_MUTEX_ADAPTIVE_NP`.
const ADAPTIVE: i32 = 3;
/// In the kind, after the mutex was destroyed: as the C library writes it.
const DESTROYED: i32 = -1;

/// Our view of a `pthread_mutex_t`.
#[repr(C)]
pub(crate) struct Mutex {
    pub(crate) raw: RawMutex,
    /// How often a recursive one is held.
    depth: AtomicU32,
    /// The holder's number.
    number: AtomicU32,
    /// The process in which the holder took it.
    epoch: AtomicU32,
    kind: AtomicI32,
    _spins: u32,
    /// The holder's thread pointer.
    pointer: AtomicU64,
}

const _: () = assert!(
    offset_of!(Mutex, raw) == 0
        && offset_of!(Mutex, kind) == layout::KIND
        && size_of::<Mutex>() <= size_of::<pthread_mutex_t>()
        && align_of::<Mutex>() <= align_of::<pthread_mutex_t>()
);

/// What a mutex checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Nothing.
    Plain,
    /// Its holder may take it again.
    Recursive,
    /// Its holder is told that it has it, others that they have not.
    ErrorChecking,
    /// Not ours.
    Foreign,
}

/// What was held, for who waits for a condition meanwhile.
pub(crate) struct Held {
    depth: u32,
}

impl Mutex {
    /// Our view of a mutex.
    ///
    /// # Safety
    /// It is a mutex, and stays one while the view is used: until it is unlocked.
    #[inline]
    pub(crate) unsafe fn of<'a>(mutex: *mut pthread_mutex_t) -> &'a Self {
        // SAFETY: as large and aligned, as asserted above; all fields are atomics.
        unsafe { &*mutex.cast() }
    }

    #[inline]
    pub(crate) fn kind(&self) -> Kind {
        // Relaxed: does not change while the mutex is in use.
        match self.kind.load(Ordering::Relaxed) & !WAYS {
            libc::PTHREAD_MUTEX_NORMAL | ADAPTIVE => Kind::Plain,
            libc::PTHREAD_MUTEX_RECURSIVE => Kind::Recursive,
            libc::PTHREAD_MUTEX_ERRORCHECK => Kind::ErrorChecking,
            _ => Kind::Foreign,
        }
    }

    /// Whether the caller holds it. Only those that know their holder tell.
    fn is_mine(&self) -> bool {
        self.pointer.load(Ordering::Relaxed) == thread::pointer()
            && (self.number.load(Ordering::Relaxed) == thread::number()
                || self.epoch.load(Ordering::Relaxed) != Linux::fork_epoch() as u32)
    }

    fn set_mine(&self, depth: u32) {
        self.number.store(thread::number(), Ordering::Relaxed);
        self.epoch.store(Linux::fork_epoch() as u32, Ordering::Relaxed);
        self.pointer.store(thread::pointer(), Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn set_nobodys(&self) {
        self.pointer.store(0, Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
        self.depth.store(0, Ordering::Relaxed);
    }

    /// What taking it again by its holder leads to; nothing if the caller does not hold it, or it does not know.
    fn again(&self, kind: Kind, checked: c_int) -> Option<c_int> {
        if kind == Kind::Plain || !self.is_mine() {
            return None;
        }
        if kind == Kind::ErrorChecking {
            return Some(checked);
        }
        let depth = self.depth.load(Ordering::Relaxed);
        if depth == u32::MAX {
            return Some(libc::EAGAIN);
        }
        self.depth.store(depth + 1, Ordering::Relaxed);
        Some(0)
    }

    /// The caller has taken the word.
    #[inline]
    fn taken(&self, kind: Kind) -> c_int {
        if kind != Kind::Plain {
            self.set_mine(1);
        }
        0
    }

    #[inline]
    fn lock(&self, kind: Kind) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EDEADLK) {
            return outcome;
        }
        self.take_word();
        self.taken(kind)
    }

    /// Takes the word, waiting if need be.
    #[inline]
    pub(crate) fn take_word(&self) {
        if !self.raw.try_lock() {
            self.wait();
        }
        self.raw.disown();
    }

    /// Takes the word if it is free.
    #[inline]
    fn try_word(&self) -> bool {
        let locked = self.raw.try_lock();
        if locked {
            self.raw.disown();
        }
        locked
    }

    /// Gives the word back.
    ///
    /// # Safety
    /// Somebody has taken it, and the program wants it given back.
    #[inline]
    pub(crate) unsafe fn give_word_back(&self) {
        self.raw.adopt();
        // SAFETY: as the caller promises.
        unsafe { self.raw.unlock() };
    }

    #[cold]
    fn wait(&self) {
        if process::is_ready() {
            self.raw.lock();
        } else {
            self.raw.lock_unqueued(None);
        }
    }

    fn try_lock(&self, kind: Kind) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EBUSY) {
            return outcome;
        }
        if self.try_word() { self.taken(kind) } else { libc::EBUSY }
    }

    fn lock_until(&self, kind: Kind, clock: libc::clockid_t, time: timespec) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EDEADLK) {
            return outcome;
        }
        if self.try_word() {
            return self.taken(kind);
        }
        // A time that is none is only an error for who has to wait.
        let deadline = match Deadline::new(clock, time) {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        loop {
            let look = deadline.next_look();
            let locked = if process::is_ready() {
                self.raw.try_lock_until(look)
            } else {
                self.raw.lock_unqueued(Some(look))
            };
            if locked {
                self.raw.disown();
                return self.taken(kind);
            }
            if deadline.has_passed() {
                return libc::ETIMEDOUT;
            }
        }
    }

    #[inline]
    fn unlock(&self, kind: Kind) -> c_int {
        if kind != Kind::Plain {
            if !self.is_mine() {
                return libc::EPERM;
            }
            let depth = self.depth.load(Ordering::Relaxed);
            if kind == Kind::Recursive && depth > 1 {
                self.depth.store(depth - 1, Ordering::Relaxed);
                return 0;
            }
            self.set_nobodys();
        }
        // SAFETY: the caller holds it: we have seen that it does, or it is the caller's duty as for the C library's.
        unsafe { self.give_word_back() };
        0
    }

    /// The caller, who holds it, is about to give the word back for as long as it waits for a condition. `EPERM` if it is
    /// known not to hold it. A recursive mutex is given back however often it is held.
    pub(crate) fn lay_down(&self) -> Result<Held, c_int> {
        if self.kind() == Kind::Plain {
            return Ok(Held { depth: 0 });
        }
        if !self.is_mine() {
            return Err(libc::EPERM);
        }
        let depth = self.depth.load(Ordering::Relaxed);
        self.set_nobodys();
        Ok(Held { depth })
    }

    /// The caller has the word again.
    pub(crate) fn take_up(&self, held: Held) {
        if held.depth > 0 {
            self.set_mine(held.depth);
        }
    }
}

// ---- the C library's functions, for mutexes of all kinds, in programs that are ours ---------------------------------------

/// `pthread_mutex_lock`.
///
/// # Safety
/// As for the C library's; so for all that follow.
#[inline]
pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: as the caller promises; likewise in all that follow.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: likewise.
        Kind::Foreign => unsafe { real::mutex_lock::call(mutex) },
        kind => view.lock(kind),
    }
}

/// `pthread_mutex_trylock`.
#[inline]
pub(crate) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see `lock`.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: see `lock`.
        Kind::Foreign => unsafe { real::mutex_trylock::call(mutex) },
        kind => view.try_lock(kind),
    }
}

/// `pthread_mutex_clocklock`, for a clock that there is.
pub(crate) unsafe fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: see `lock`.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: see `lock`. The older of the two functions where it will do, as the other one may not be there.
        Kind::Foreign if clock == libc::CLOCK_REALTIME => unsafe {
            real::mutex_timedlock::call(mutex, until)
        },
        // SAFETY: see `lock`.
        Kind::Foreign => unsafe { real::mutex_clocklock::call(mutex, clock, until) },
        // SAFETY: the time is one to read, as the caller promises.
        kind => view.lock_until(kind, clock, unsafe { *until }),
    }
}

/// `pthread_mutex_unlock`.
#[inline]
pub(crate) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see `lock`.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: see `lock`.
        Kind::Foreign => unsafe { real::mutex_unlock::call(mutex) },
        kind => view.unlock(kind),
    }
}

/// `pthread_mutex_destroy`. `EBUSY` for one that is held.
pub(crate) unsafe fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: see `lock`.
    let view = unsafe { Mutex::of(mutex) };
    if view.kind() == Kind::Foreign {
        // SAFETY: see `lock`.
        return unsafe { real::mutex_destroy::call(mutex) };
    }
    if !view.raw.try_lock() {
        return libc::EBUSY;
    }
    // SAFETY: nobody uses it any more, as the caller promises; the view has ended. It is not used again before it is initialised.
    unsafe { ptr::drop_in_place(&raw mut (*mutex.cast::<Mutex>()).raw) };
    // SAFETY: likewise.
    unsafe { (&raw mut (*mutex.cast::<Mutex>()).raw).write(RawMutex::new()) };
    view.kind.store(DESTROYED, Ordering::Relaxed);
    0
}

#[cfg(test)]
mod tests {
    use core::mem::MaybeUninit;

    use super::*;

    fn of_kind(kind: i32) -> MaybeUninit<pthread_mutex_t> {
        let mut mutex = MaybeUninit::zeroed();
        // SAFETY: ours, and zeros are a mutex.
        unsafe { Mutex::of(mutex.as_mut_ptr()) }.kind.store(kind, Ordering::Relaxed);
        mutex
    }

    #[test]
    fn kinds_are_told_apart() {
        for (kind, expected) in [
            (0, Kind::Plain),
            (1, Kind::Recursive),
            (2, Kind::ErrorChecking),
            (3, Kind::Plain),
            (256, Kind::Plain),
            (512, Kind::Plain),
            (513, Kind::Recursive),
            (4, Kind::Foreign),
            (16, Kind::Foreign),
            (33, Kind::Foreign),
            (64, Kind::Foreign),
            (128, Kind::Foreign),
            (DESTROYED, Kind::Foreign),
        ] {
            let mut mutex = of_kind(kind);
            // SAFETY: ours.
            assert_eq!(unsafe { Mutex::of(mutex.as_mut_ptr()) }.kind(), expected, "{kind}");
        }
    }

    #[test]
    fn a_recursive_mutex_is_held_as_often_as_can_be_counted() {
        let mut mutex = of_kind(libc::PTHREAD_MUTEX_RECURSIVE);
        let mutex = mutex.as_mut_ptr();
        // SAFETY: for all of them, ours.
        unsafe {
            assert_eq!((lock(mutex), lock(mutex)), (0, 0));
            Mutex::of(mutex).depth.store(u32::MAX, Ordering::Relaxed);
            assert_eq!((lock(mutex), trylock(mutex)), (libc::EAGAIN, libc::EAGAIN));
            Mutex::of(mutex).depth.store(2, Ordering::Relaxed);
            assert_eq!((unlock(mutex), destroy(mutex)), (0, libc::EBUSY));
            assert_eq!((unlock(mutex), unlock(mutex), destroy(mutex)), (0, libc::EPERM, 0));
        }
    }
}
