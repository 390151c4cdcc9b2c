//! `pthread_mutex_t` with our mutex inside.
//!
//! `layout.rs` lists the bytes. The word at the beginning is the mutex of `nearq-lock`; the C library never touches it, as each of its
//! functions that would is one of ours. The C library's own field gives the mutex's kind, and is read at each call: any initialiser,
//! whatever code used it, has written the field.
//!
//! # The holder
//! Error-checking and recursive mutexes know their holder, by the name that a thread keeps over a fork (`thread.rs`). It is written by the
//! thread that has taken the word, and cleared before the word is released. A thread that reads its own name wrote it itself; so `Relaxed`
//! is enough. So the child of a fork can release what the thread that forked took in the parent, which POSIX wants and glibc refuses, but
//! not what other threads took there: their thread pointers may be those of the child's threads, but no thread in the child has their
//! names. The thread pointer is kept beside the name because reading it needs no call: most threads that ask find out by it that they are
//! not the holder.
//!
//! The other mutexes belong to no thread: as with the C library's mutexes, any thread may release them, and a thread that holds one and
//! takes it again waits until another thread releases it. So no word is ever taken in a thread's own name (`RawMutex::disown`), because
//! debug builds of our mutex would panic if programs did that.
//!
//! # Threads that may be cancelled at any moment
//! Threads of the asynchronous type (`pthread_setcanceltype`) end at once when they are cancelled, even while they wait for a mutex, as
//! with the C library's. If such a thread ended in a place in a queue, all threads behind it would wait for it. So it waits without a
//! place: only on the word, by a sleep from which it may not return (`cancel.rs`). It is as fair as the system's wake-ups.
//!
//! Everything that is more than one step of the word is done while such a thread is of the deferred type: waiting, except for the sleep;
//! releasing a mutex that threads wait for; trying to take one that is reserved for a thread; destroying. If it is cancelled in between, it
//! ends afterwards. So the thread that gets the mutex may cancel the one that released it at once, although that one may still be waking
//! others.
//!
//! # Threads that wait for a condition with it
//! `users` counts them, from before they release the word until they have it again, so only the thread that holds the mutex changes it.
//! Such a mutex is busy for `pthread_mutex_destroy` although no thread holds it, as the C library's is. There is no model of this: it has
//! no order of its own, except that of the mutex, of which `nearq-lock` has models. `tests/c/mutexes.c` destroys mutexes with which threads
//! wait.
//!
//! # Unlocking is the last access
//! The step of the word that frees the mutex is the last access to the mutex: the next holder may destroy it.

use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use libc::{pthread_mutex_t, timespec};
use nearq_lock::raw::RawMutex;
use nearq_platform::Instant;

use crate::leaving::{Before, InWait};
use crate::{cancel, clock, layout, leaving, process, real, thread};

/// In the kind: bits that enable or disable lock elision in the C library (`PTHREAD_MUTEX_ELISION_NP` and its opposite).
const ELISION: i32 = 256 | 512;
/// The type `PTHREAD_MUTEX_ADAPTIVE_NP`.
const ADAPTIVE: i32 = 3;
/// In the kind, after the mutex was destroyed: as the C library writes it.
const DESTROYED: i32 = -1;

/// Our view of a `pthread_mutex_t`.
#[repr(C)]
pub(crate) struct Mutex {
    pub(crate) raw: RawMutex,
    /// How many times a recursive mutex is held, while it is.
    depth: AtomicU32,
    /// The holder's number.
    number: AtomicU32,
    /// How many threads wait for a condition with it.
    users: AtomicU32,
    kind: AtomicI32,
    _spins: u32,
    /// The holder's thread pointer.
    pointer: AtomicU64,
    /// The holder's name.
    name: AtomicU64,
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
    /// The holder gets an error if it takes the mutex again, and other threads get one if they release it.
    ErrorChecking,
    /// The mutex is not ours.
    Foreign,
}

/// The state of a mutex that a thread held before it began to wait for a condition.
pub(crate) struct Held {
    depth: u32,
}

impl Held {
    /// Whether the caller keeps the word while it waits: for a recursive mutex that is held more than once.
    pub(crate) fn is_kept(&self) -> bool {
        self.depth > 1
    }
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
        match self.kind.load(Ordering::Relaxed) & !ELISION {
            libc::PTHREAD_MUTEX_NORMAL | ADAPTIVE => Kind::Plain,
            libc::PTHREAD_MUTEX_RECURSIVE => Kind::Recursive,
            libc::PTHREAD_MUTEX_ERRORCHECK => Kind::ErrorChecking,
            _ => Kind::Foreign,
        }
    }

    /// Whether it checks nothing, as most do.
    #[inline]
    fn is_plain(&self) -> bool {
        // Relaxed: does not change while the mutex is in use.
        let kind = self.kind.load(Ordering::Relaxed) & !ELISION;
        kind == libc::PTHREAD_MUTEX_NORMAL || kind == ADAPTIVE
    }

    /// Whether the caller holds it. Only mutexes that record their holder know.
    fn is_held_by_caller(&self) -> bool {
        self.pointer.load(Ordering::Relaxed) == thread::pointer()
            && self.name.load(Ordering::Relaxed) == thread::name()
    }

    fn set_owner_to_caller(&self, depth: u32) {
        let (number, name) = thread::names();
        self.number.store(number, Ordering::Relaxed);
        self.name.store(name, Ordering::Relaxed);
        self.pointer.store(thread::pointer(), Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
    }

    fn set_nobodys(&self) {
        self.pointer.store(0, Ordering::Relaxed);
        self.number.store(0, Ordering::Relaxed);
    }

    /// The result if its holder takes it again; none if the caller does not hold it, or the mutex does not know its holder.
    fn again(&self, kind: Kind, checked: c_int) -> Option<c_int> {
        if kind == Kind::Plain || !self.is_held_by_caller() {
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
            self.set_owner_to_caller(1);
        }
        0
    }

    #[inline]
    fn lock_checked(&self, kind: Kind) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EDEADLK) {
            return outcome;
        }
        self.take_word();
        self.taken(kind)
    }

    /// Takes the word, waiting if need be. It belongs to no thread then.
    #[inline]
    pub(crate) fn take_word(&self) -> c_int {
        if self.raw.take_free() { 0 } else { self.wait_long() }
    }

    /// Takes the word if it is free. It belongs to no thread then.
    #[inline]
    fn try_word(&self) -> bool {
        self.raw.take_free_or(|| self.try_long())
    }

    /// The same if the word may be reserved for another thread. The caller may end here, if it is of the asynchronous type.
    #[cold]
    fn try_long(&self) -> bool {
        let before = cancel::defer();
        let locked = self.try_deferred();
        // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe { cancel::undo(before) };
        locked
    }

    #[inline(never)]
    extern "C" fn try_deferred(&self) -> bool {
        let locked = self.raw.try_lock();
        if locked {
            self.raw.disown();
        }
        locked
    }

    /// Releases the word. The caller may end here, if it is of the asynchronous type.
    ///
    /// # Safety
    /// A thread has taken it, and the program wants it released.
    #[inline]
    pub(crate) unsafe fn give_word_back(&self) {
        // SAFETY: as the caller promises.
        if !unsafe { self.raw.give_back_unwaited() } {
            // SAFETY: the caller promises that the word is taken and must be released; no step has released it yet.
            unsafe { Self::give_back_long(&raw const self.raw) };
        }
    }

    /// The same if a thread may wait for it. Afterwards the mutex may be gone.
    ///
    /// # Safety
    /// As for [`give_word_back`](Self::give_word_back).
    #[cold]
    unsafe extern "C-unwind" fn give_back_long(raw: *const RawMutex) {
        let before = cancel::defer();
        // SAFETY: as the caller promises. Nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe {
            Self::give_back_deferred(raw);
            cancel::undo(before);
        }
    }

    #[inline(never)]
    unsafe extern "C" fn give_back_deferred(raw: *const RawMutex) {
        // SAFETY: the mutex exists until the step that frees it.
        let raw = unsafe { &*raw };
        raw.adopt();
        // SAFETY: as the caller promises.
        unsafe { raw.unlock() };
    }

    /// Waits for the word, which belongs to no thread then.
    #[cold]
    fn wait_long(&self) -> c_int {
        self.wait(None);
        0
    }

    /// Waits for the word, which belongs to no thread then; false if the deadline came first. The caller may end here, if it is of the
    /// asynchronous type.
    #[cold]
    fn wait(&self, deadline: Option<&Instant>) -> bool {
        let before = cancel::defer();
        let wait = leaving::begin(Before::Type(before));
        let locked = if before == cancel::ASYNCHRONOUS {
            // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
            self.raw.lock_unqueued_by(|word, value| unsafe { cancel::sleep(word, value, deadline) })
        } else {
            self.wait_deferred(deadline, &wait)
        };
        leaving::end(&wait);
        if locked {
            self.disown();
        }
        // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe { cancel::undo(before) };
        locked
    }

    #[inline(never)]
    extern "C" fn disown(&self) {
        self.raw.disown();
    }

    #[inline(never)]
    extern "C" fn wait_deferred(&self, deadline: Option<&Instant>, wait: &InWait<'_>) -> bool {
        match (process::is_ready(), wait.stay(), deadline) {
            (false, _, deadline) => self.raw.lock_unqueued(deadline.copied()),
            (true, Some(stay), deadline) => self.raw.lock_staying(deadline.copied(), stay),
            (true, None, Some(deadline)) => self.raw.try_lock_until_in(*deadline),
            (true, None, None) => {
                self.raw.lock();
                true
            }
        }
    }

    fn try_lock(&self, kind: Kind) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EBUSY) {
            return outcome;
        }
        if self.try_word() { self.taken(kind) } else { libc::EBUSY }
    }

    /// # Safety
    /// The time can be read, if the caller has to wait.
    unsafe fn lock_until(
        &self,
        kind: Kind,
        clock: libc::clockid_t,
        until: *const timespec,
    ) -> c_int {
        if let Some(outcome) = self.again(kind, libc::EDEADLK) {
            return outcome;
        }
        if self.try_word() {
            return self.taken(kind);
        }
        // An invalid time is an error only if the caller has to wait, and is read only then.
        // SAFETY: as the caller promises.
        let deadline = match clock::deadline(clock, unsafe { *until }) {
            Ok(deadline) => deadline,
            Err(error) => return error,
        };
        if !self.wait(Some(&deadline)) {
            return libc::ETIMEDOUT;
        }
        self.taken(kind)
    }

    #[inline]
    fn unlock_checked(&self, kind: Kind) -> c_int {
        if !self.is_held_by_caller() {
            return libc::EPERM;
        }
        let depth = self.depth.load(Ordering::Relaxed);
        if kind == Kind::Recursive && depth > 1 {
            self.depth.store(depth - 1, Ordering::Relaxed);
            return 0;
        }
        self.set_nobodys();
        // SAFETY: the caller holds it, as we have seen.
        unsafe { self.give_word_back() };
        0
    }

    /// The caller, which holds it, is about to release the word while it waits for a condition. `EPERM` if it is known not to hold it. A
    /// recursive mutex is released once, as the C library's is: the word [is kept](Held::is_kept) if it is held more than once.
    pub(crate) fn lay_down(&self) -> Result<Held, c_int> {
        let plain = self.kind() == Kind::Plain;
        if !plain && !self.is_held_by_caller() {
            return Err(libc::EPERM);
        }
        // Relaxed: under the mutex.
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if plain {
            return Ok(Held { depth: 0 });
        }
        let held = Held { depth: self.depth.load(Ordering::Relaxed) };
        if held.is_kept() {
            self.depth.store(held.depth - 1, Ordering::Relaxed);
        } else {
            self.set_nobodys();
        }
        Ok(held)
    }

    /// The caller has the word again.
    pub(crate) fn take_up(&self, held: Held) {
        // Relaxed: under the mutex.
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
        if held.depth > 0 {
            self.set_owner_to_caller(held.depth);
        }
    }
}

// ---- the C library's functions, for mutexes of all kinds, in programs that are ours ---------------------------------------

/// `pthread_mutex_lock`.
///
/// # Safety
/// As for the C library's; this also holds for all functions below.
#[inline]
pub(crate) unsafe fn lock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller promises.
    let view = unsafe { Mutex::of(mutex) };
    // SAFETY: a mutex, as the caller promises.
    if view.is_plain() { view.take_word() } else { unsafe { lock_other(mutex) } }
}

/// The same, for mutexes that check or are not ours: a separate function, so that the common path is short.
#[inline(never)]
unsafe fn lock_other(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller of `lock` promises.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: a mutex of the C library's, as its kind says.
        Kind::Foreign => unsafe { real::mutex_lock::call(mutex) },
        Kind::Plain => view.take_word(),
        kind => view.lock_checked(kind),
    }
}

/// `pthread_mutex_trylock`.
#[inline]
pub(crate) unsafe fn trylock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller promises.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: a mutex of the C library's, as its kind says.
        Kind::Foreign => unsafe { real::mutex_trylock::call(mutex) },
        kind => view.try_lock(kind),
    }
}

/// `pthread_mutex_clocklock`, for a valid clock.
pub(crate) unsafe fn clocklock(
    mutex: *mut pthread_mutex_t,
    clock: libc::clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller promises.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: a mutex of the C library's, and a time that can be read, as the caller promises. Uses the older of the two functions if
        // it is enough, as the other one may not exist.
        Kind::Foreign if clock == libc::CLOCK_REALTIME => unsafe {
            real::mutex_timedlock::call(mutex, until)
        },
        // SAFETY: a mutex of the C library's, and a time that can be read, as the caller promises.
        Kind::Foreign => unsafe { real::mutex_clocklock::call(mutex, clock, until) },
        // SAFETY: the time can be read, as the caller promises.
        kind => unsafe { view.lock_until(kind, clock, until) },
    }
}

/// `pthread_mutex_unlock`.
#[inline]
pub(crate) unsafe fn unlock(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller promises.
    let view = unsafe { Mutex::of(mutex) };
    if view.is_plain() {
        // SAFETY: the caller must hold it, as for the C library's.
        unsafe { view.give_word_back() };
        return 0;
    }
    // SAFETY: a mutex that the caller wants unlocked, as it promises.
    unsafe { unlock_other(mutex) }
}

/// As `lock_other`.
#[inline(never)]
unsafe fn unlock_other(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex until it is unlocked, as the caller of `unlock` promises.
    let view = unsafe { Mutex::of(mutex) };
    match view.kind() {
        // SAFETY: a mutex of the C library's, as its kind says; the caller must hold it.
        Kind::Foreign => unsafe { real::mutex_unlock::call(mutex) },
        Kind::Plain => {
            // SAFETY: the caller must hold it, as for the C library's.
            unsafe { view.give_word_back() };
            0
        }
        kind => view.unlock_checked(kind),
    }
}

/// `pthread_mutex_destroy`. `EBUSY` for a mutex that is held, or with which a thread waits for a condition.
pub(crate) unsafe fn destroy(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex, as the caller promises; the view ends before it does.
    let view = unsafe { Mutex::of(mutex) };
    if view.kind() == Kind::Foreign {
        // SAFETY: a mutex of the C library's that no thread uses any more, as the caller promises.
        return unsafe { real::mutex_destroy::call(mutex) };
    }
    let before = cancel::defer();
    // SAFETY: a mutex that no thread uses any more, as the caller promises. Nothing in this frame, or in the callers' frames, needs to be
    // cleaned up.
    unsafe {
        let outcome = destroy_deferred(mutex);
        cancel::undo(before);
        outcome
    }
}

#[inline(never)]
unsafe extern "C" fn destroy_deferred(mutex: *mut pthread_mutex_t) -> c_int {
    // SAFETY: a mutex, as the caller of `destroy` promises.
    let view = unsafe { Mutex::of(mutex) };
    if !view.raw.try_lock() {
        return libc::EBUSY;
    }
    // Relaxed: changed only by the thread that holds it.
    if view.users.load(Ordering::Relaxed) != 0 {
        // SAFETY: taken above.
        unsafe { view.raw.unlock() };
        return libc::EBUSY;
    }
    // SAFETY: no thread uses it any more, as the caller promises; the view has ended. It is not used again before it is initialised.
    unsafe { ptr::drop_in_place(&raw mut (*mutex.cast::<Mutex>()).raw) };
    // SAFETY: the memory of the mutex, which no thread uses any more; what was there has been dropped.
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
    fn kinds_of_mutexes_are_distinguished() {
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
    fn a_recursive_mutex_can_be_locked_up_to_its_maximum_depth() {
        let mut mutex = of_kind(libc::PTHREAD_MUTEX_RECURSIVE);
        let mutex = mutex.as_mut_ptr();
        // SAFETY: for all calls, ours.
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
