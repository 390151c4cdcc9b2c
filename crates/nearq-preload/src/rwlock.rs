//! `pthread_rwlock_t` with our reader-writer lock inside.
//!
//! `layout.rs` lists the bytes. The lock of `nearq-lock` is at the beginning; the C library writes there only when it initialises the object,
//! with zeros, which are a free lock. The kind and whether the lock is shared between processes are the C library's own fields, and are read
//! at each call.
//!
//! # The writer
//! A writer is known by the name that a thread keeps over a fork (`thread.rs`): written when it has the lock, cleared before it leaves. A
//! thread that reads its own name wrote it itself; so `Relaxed` is enough. By that name a thread that unlocks is a writer or a reader, and a
//! writer that wants the lock again gets `EDEADLK`, as with the C library. Readers have no names: any thread may leave for any reader.
//!
//! # Threads that read may read again
//! Our lock is phase-fair: readers that come while a writer waits for readers wait for that writer. In POSIX a thread may read a lock that it
//! reads already, and the C library's usual kind lets readers in while readers have the lock, whichever writer waits. With a phase-fair lock, a thread
//! that reads again would wait for ever, and so would one that reads and waits for another thread that wants to read. So in a lock of that
//! kind (`PTHREAD_RWLOCK_PREFER_READER_NP`, and `PREFER_WRITER_NP`, which is the same in the C library):
//!
//! - a thread that has any lock of ours as a reader ([`READING`]) joins the readers, for which the writer goes on waiting. That is one step,
//!   unless they count themselves by cache: then it asks the writer to let it in (`Requests` in `nearq-lock`);
//! - a thread that only tries, and finds readers, does the same;
//! - other readers wait for the writer for [a while](Rwlock::read_politely), the mutex's patience, and then do the same;
//! - a writer that waits for readers, and is asked, lets the readers in, and waits again.
//!
//! So **no thread waits longer than the patience for a writer that waits for readers**, and whatever ends with the C library's lock ends
//! here. The count of [`READING`] is only a hint, which saves that time; it is wrong if a thread leaves for another one, or has another
//! lock. While readers stay for less than the patience, and read one lock at a time, the lock is phase-fair. Otherwise writers may starve,
//! as they do with the C library.
//!
//! In a lock of the kind `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP` no thread joins or asks. There a thread that reads again waits for
//! ever, if a writer waits in between, as with the C library.
//!
//! # Threads that may be cancelled at any moment, and forks
//! As in `mutex.rs`, everything that is more than one step of the lock is done while such a thread is of the deferred type. If it has to
//! wait, it tries again after [`MOMENT`], without a place in a queue, and so does each thread while there is no memory for waiting.
//!
//! In the child of a fork, the first thread that needs more than one step makes the lock forget the threads that waited in the parent
//! (`epoch.rs`). By one step a writer takes and leaves only a lock for which no thread seems to wait, and a reader only one without a writer.
//!
//! A jump out of a wait (`leaving.rs`) leaves a reader or a writer behind for which others wait, as with the C library.

use core::cell::Cell;
use core::ffi::c_int;
use core::mem::offset_of;
use core::ptr;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use core::time::Duration;

use libc::{clockid_t, pthread_rwlock_t, timespec};
use nearq_lock::Settings;
use nearq_lock::raw::{RawRwLock, Requests};
use nearq_platform::{Instant, Linux, LockPlatform};

use crate::epoch::Epoch;
use crate::{cancel, clock, layout, process, real, thread};

/// How long a thread that waits without a place sleeps before it tries again, and how long a thread that only tries waits for the answer of
/// a writer that it has asked. On a loaded machine that writer may not run in time; then the attempt fails.
const MOMENT: Duration = Duration::from_millis(1);

/// The kind that never lets a reader in while a writer waits: `PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP`.
const WRITERS_FIRST: u32 = 2;

/// Our view of a `pthread_rwlock_t`. All zeros are a new one of the usual kind.
#[repr(C)]
struct Rwlock {
    raw: RawRwLock,
    epoch: Epoch,
    requests: Requests,
    /// The writer's name.
    writer: AtomicU64,
    /// The writer's number, for debuggers.
    number: AtomicU32,
    shared: AtomicU32,
    _others: [u32; 4],
    kind: AtomicU32,
}

const _: () = assert!(
    offset_of!(Rwlock, shared) == layout::RWLOCK_SHARED
        && offset_of!(Rwlock, kind) == layout::RWLOCK_KIND
        && size_of::<Rwlock>() <= size_of::<pthread_rwlock_t>()
        && align_of::<Rwlock>() <= align_of::<pthread_rwlock_t>()
);

thread_local! {
    /// How many times the caller has locks of ours as a reader, as far as is known. Without a destructor.
    static READING: Cell<u32> = const { Cell::new(0) };
}

/// As what a thread wants the lock.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum As {
    Reader,
    Writer,
}

impl Rwlock {
    /// Our view of a lock.
    ///
    /// # Safety
    /// It is a lock, and stays one while the view is used: until it is unlocked.
    #[inline]
    unsafe fn of<'a>(lock: *mut pthread_rwlock_t) -> &'a Self {
        // SAFETY: as large and aligned, as asserted above; all fields are atomics.
        unsafe { &*lock.cast() }
    }

    /// Whether it is ours: of a known kind, and not shared between processes.
    #[inline]
    fn is_ours(&self) -> bool {
        // Relaxed for both: they do not change while the lock is in use.
        self.shared.load(Ordering::Relaxed) == 0
            && self.kind.load(Ordering::Relaxed) <= WRITERS_FIRST
    }

    /// Whether readers may ask a writer that waits to let them in.
    fn may_ask(&self) -> bool {
        self.kind.load(Ordering::Relaxed) != WRITERS_FIRST
    }

    /// Whether the caller has the lock as a writer.
    #[inline]
    fn is_written_by_caller(&self) -> bool {
        let writer = self.writer.load(Ordering::Relaxed);
        writer != 0 && writer == thread::name()
    }

    /// One attempt to take the lock, by one step.
    #[inline]
    fn take_free(&self, role: As) -> bool {
        let taken = match role {
            As::Reader => self.raw.take_free_read(),
            As::Writer => self.raw.take_free_write(),
        };
        if taken {
            self.taken(role);
        }
        taken
    }

    /// The caller has the lock.
    #[inline]
    fn taken(&self, role: As) {
        if role == As::Reader {
            READING.with(|reading| reading.set(reading.get().wrapping_add(1)));
        } else {
            let (number, name) = thread::names();
            self.number.store(number, Ordering::Relaxed);
            self.writer.store(name, Ordering::Relaxed);
        }
    }

    /// Takes the lock after an attempt has failed; false if the deadline came first. The caller may end here, if it is of the asynchronous
    /// type.
    #[inline(never)]
    unsafe extern "C-unwind" fn wait(&self, role: As, deadline: Option<&Instant>) -> c_int {
        if self.is_written_by_caller() {
            return libc::EDEADLK;
        }
        let before = cancel::defer();
        let entered = if before == cancel::ASYNCHRONOUS {
            // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
            unsafe { self.wait_asynchronous(role, deadline) }
        } else {
            self.wait_deferred(role, deadline)
        };
        if entered {
            self.taken(role);
        }
        // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe { cancel::undo(before) };
        if entered { 0 } else { libc::ETIMEDOUT }
    }

    /// Waits without a place. The caller, which is of the deferred type now, ends here if it is cancelled while it sleeps.
    unsafe fn wait_asynchronous(&self, role: As, deadline: Option<&Instant>) -> bool {
        /// Nothing changes it: each sleep ends by its time.
        static NOTHING: AtomicU32 = AtomicU32::new(0);
        loop {
            if self.try_deferred(role) {
                return true;
            }
            let Some(soon) = soon(deadline) else { return false };
            // SAFETY: as the caller promises; the word exists.
            unsafe { cancel::sleep(&raw const NOTHING, 0, Some(&soon)) };
        }
    }

    #[inline(never)]
    extern "C" fn wait_deferred(&self, role: As, deadline: Option<&Instant>) -> bool {
        self.make_fit();
        if !process::is_ready() {
            return self.wait_without_memory(role, deadline);
        }
        let until = deadline.copied();
        match role {
            As::Writer if self.may_ask() => self.raw.write_giving_way(&self.requests, until),
            As::Writer => self.raw.write_disowned(until),
            As::Reader if self.may_ask() => self.read_politely(deadline),
            As::Reader => self.raw.read_disowned(until),
        }
    }

    fn wait_without_memory(&self, role: As, deadline: Option<&Instant>) -> bool {
        loop {
            if self.try_deferred(role) {
                return true;
            }
            let Some(soon) = soon(deadline) else { return false };
            Linux::sleep(soon - Linux::now());
        }
    }

    /// Waits for writers up to the patience, unless the caller holds a read lock already. Then goes before those that wait for readers.
    fn read_politely(&self, deadline: Option<&Instant>) -> bool {
        if READING.with(Cell::get) == 0 {
            let patience = Settings::of_process().patience;
            let while_ = deadline.map_or(patience, |deadline| clock::left(*deadline).min(patience));
            if self.raw.read_disowned(Some(Linux::now() + while_)) {
                return true;
            }
            if deadline.is_some_and(|deadline| Linux::has_come(*deadline)) {
                return self.is_let_in();
            }
        }
        self.read_before_writers(deadline.copied())
    }

    /// Takes the lock if that is possible at once.
    #[inline(never)]
    extern "C" fn try_deferred(&self, role: As) -> bool {
        self.make_fit();
        match (process::is_ready(), role) {
            (false, As::Reader) => self.raw.try_read_alone(),
            (false, As::Writer) => self.raw.try_write_alone(),
            (true, As::Reader) => self.raw.try_read_disowned() || self.is_let_in(),
            (true, As::Writer) => self.raw.try_write_disowned(),
        }
    }

    /// Takes the lock as a reader if readers have it. If they count themselves by cache, a writer that waits for them is asked, and answers as
    /// soon as it has been woken.
    fn is_let_in(&self) -> bool {
        self.may_ask()
            && (self.raw.join_readers()
                || self.raw.is_read_by_cache()
                    && self.raw.read_asking(&self.requests, Some(Linux::now() + MOMENT)))
    }

    /// Takes the lock as a reader, before a writer that waits for readers: joins the readers, or asks the writer if that is not possible. False
    /// if the deadline came first.
    fn read_before_writers(&self, deadline: Option<Instant>) -> bool {
        self.raw.join_readers() || self.raw.read_asking(&self.requests, deadline)
    }

    /// Leaves the lock after an attempt by one step has failed. The caller may end here, if it is of the asynchronous type. Afterwards the
    /// lock may be gone.
    ///
    /// # Safety
    /// The program wants it unlocked.
    #[inline(never)]
    unsafe extern "C-unwind" fn leave(&self, role: As) -> c_int {
        let before = cancel::defer();
        // SAFETY: as the caller promises. Nothing in this frame, or in the callers' frames, needs to be cleaned up.
        unsafe {
            let outcome = self.leave_deferred(role);
            cancel::undo(before);
            outcome
        }
    }

    #[inline(never)]
    unsafe extern "C" fn leave_deferred(&self, role: As) -> c_int {
        self.make_fit();
        match role {
            As::Writer => {
                self.disown();
                // SAFETY: the caller is the writer.
                unsafe { self.raw.leave_write() };
            }
            As::Reader if !self.raw.is_read() => return libc::EINVAL,
            // SAFETY: a reader has the lock, and the program says that it leaves.
            As::Reader => unsafe { self.raw.leave_read() },
        }
        0
    }

    /// The caller, which is the writer, is about to leave.
    #[inline]
    fn disown(&self) {
        self.number.store(0, Ordering::Relaxed);
        self.writer.store(0, Ordering::Relaxed);
    }

    /// The first use in the child of a fork: the threads that waited in the parent do not exist.
    fn make_fit(&self) {
        if !self.epoch.is_now() {
            let written = self.writer.load(Ordering::Relaxed) != 0;
            // SAFETY: all other threads of this process that need more than one step wait for us here.
            self.epoch.make_fit(|| unsafe {
                self.requests.renew();
                self.raw.renew(written);
            });
        }
    }
}

/// The end of the next moment, or the deadline if that is earlier; none if that has come.
fn soon(deadline: Option<&Instant>) -> Option<Instant> {
    let left = deadline.map_or(MOMENT, |deadline| clock::left(*deadline).min(MOMENT));
    (!left.is_zero()).then(|| Linux::now() + left)
}

// ---- the C library's functions, for locks of all kinds, in programs that are ours -----------------------------------------

/// `pthread_rwlock_rdlock` and `pthread_rwlock_wrlock`.
///
/// # Safety
/// As for the C library's; this also holds for all functions below.
#[inline]
pub(crate) unsafe fn lock(lock: *mut pthread_rwlock_t, role: As) -> c_int {
    // SAFETY: a lock until it is unlocked, as the caller promises.
    let view = unsafe { Rwlock::of(lock) };
    if !view.is_ours() {
        // SAFETY: a lock of the C library's.
        return unsafe {
            match role {
                As::Reader => real::rwlock_rdlock::call(lock),
                As::Writer => real::rwlock_wrlock::call(lock),
            }
        };
    }
    // SAFETY: as the caller promises.
    if view.take_free(role) { 0 } else { unsafe { view.wait(role, None) } }
}

/// `pthread_rwlock_clockrdlock` and `pthread_rwlock_clockwrlock`. An invalid time is an error in any case, as with the C library.
pub(crate) unsafe fn clocklock(
    lock: *mut pthread_rwlock_t,
    role: As,
    clock: clockid_t,
    until: *const timespec,
) -> c_int {
    // SAFETY: a lock until it is unlocked, as the caller promises.
    let view = unsafe { Rwlock::of(lock) };
    if !view.is_ours() {
        // SAFETY: a lock of the C library's, and a time that can be read. Uses the older of the two functions if it is enough, as the other
        // one may not exist.
        return unsafe {
            match (role, clock) {
                (As::Reader, libc::CLOCK_REALTIME) => real::rwlock_timedrdlock::call(lock, until),
                (As::Writer, libc::CLOCK_REALTIME) => real::rwlock_timedwrlock::call(lock, until),
                (As::Reader, _) => real::rwlock_clockrdlock::call(lock, clock, until),
                (As::Writer, _) => real::rwlock_clockwrlock::call(lock, clock, until),
            }
        };
    }
    // SAFETY: as the caller promises.
    let deadline = match clock::deadline(clock, unsafe { *until }) {
        Ok(deadline) => deadline,
        Err(error) => return error,
    };
    // SAFETY: as the caller promises.
    if view.take_free(role) { 0 } else { unsafe { view.wait(role, Some(&deadline)) } }
}

/// `pthread_rwlock_tryrdlock` and `pthread_rwlock_trywrlock`. The caller may end here, if it is of the asynchronous type.
pub(crate) unsafe fn trylock(lock: *mut pthread_rwlock_t, role: As) -> c_int {
    // SAFETY: a lock until it is unlocked, as the caller promises.
    let view = unsafe { Rwlock::of(lock) };
    if !view.is_ours() {
        // SAFETY: a lock of the C library's.
        return unsafe {
            match role {
                As::Reader => real::rwlock_tryrdlock::call(lock),
                As::Writer => real::rwlock_trywrlock::call(lock),
            }
        };
    }
    if view.take_free(role) {
        return 0;
    }
    let before = cancel::defer();
    let taken = view.try_deferred(role);
    if taken {
        view.taken(role);
    }
    // SAFETY: nothing in this frame, or in the callers' frames, needs to be cleaned up.
    unsafe { cancel::undo(before) };
    if taken { 0 } else { libc::EBUSY }
}

/// `pthread_rwlock_unlock`. `EINVAL` if no thread has it, or another one as a writer; the C library would damage the lock.
#[inline]
pub(crate) unsafe fn unlock(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: a lock until it is unlocked, as the caller promises.
    let view = unsafe { Rwlock::of(lock) };
    if !view.is_ours() {
        // SAFETY: a lock of the C library's.
        return unsafe { real::rwlock_unlock::call(lock) };
    }
    if view.is_written_by_caller() {
        return unlock_as_writer(view);
    }
    READING.with(|reading| reading.set(reading.get().saturating_sub(1)));
    // SAFETY: a reader leaves, or no thread has the lock.
    if unsafe { view.raw.leave_read_unwaited() } {
        return 0;
    }
    // SAFETY: the program wants it unlocked.
    unsafe { view.leave(As::Reader) }
}

#[inline]
fn unlock_as_writer(view: &Rwlock) -> c_int {
    view.disown();
    // SAFETY: the caller is the writer.
    if unsafe { view.raw.leave_write_unwaited() } {
        return 0;
    }
    // SAFETY: the caller is the writer.
    unsafe { view.leave(As::Writer) }
}

/// `pthread_rwlock_destroy`.
pub(crate) unsafe fn destroy(lock: *mut pthread_rwlock_t) -> c_int {
    // SAFETY: a lock, as the caller promises; the view ends before it does.
    if !unsafe { Rwlock::of(lock) }.is_ours() {
        // SAFETY: a lock of the C library's that no thread uses any more, as the caller promises.
        return unsafe { real::rwlock_destroy::call(lock) };
    }
    let before = cancel::defer();
    // SAFETY: a lock that no thread uses any more, as the caller promises. Nothing in this frame, or in the callers' frames, needs to be
    // cleaned up.
    unsafe {
        destroy_deferred(lock);
        cancel::undo(before);
    }
    0
}

#[inline(never)]
unsafe extern "C" fn destroy_deferred(lock: *mut pthread_rwlock_t) {
    // SAFETY: a lock, as the caller promises.
    unsafe { Rwlock::of(lock) }.make_fit();
    // SAFETY: no thread uses it any more, as the caller promises; the view has ended.
    let raw = unsafe { &raw mut (*lock.cast::<Rwlock>()).raw };
    // SAFETY: likewise.
    unsafe { ptr::drop_in_place(raw) };
    // SAFETY: the memory of the lock, which no thread uses any more; what was there has been dropped.
    unsafe { raw.write(RawRwLock::new()) };
}
