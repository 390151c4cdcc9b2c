//! Counts the forks of this process, and calls hooks around them.
//!
//! The C library calls three functions of ours around each `fork`; they are registered with it (`pthread_atfork`) when the
//! first subject is added. They call the hooks of all subjects.
//!
//! # Protocol
//! `SUBJECTS` is locked from *prepare* to *parent* or *child*: forks come one after the other, and no subject leaves between its hooks. The
//! guard stays in `LOCKED_FOR_FORK` meanwhile; it belongs to the thread that forks, and only that thread touches `LOCKED_FOR_FORK`, because
//! it has the lock. The child has a copy of that thread, which gives its copy of the lock back.
//!
//! A thread that has the lock has all signals blocked except faults, which its own instructions raise. Otherwise a signal handler that
//! forks would wait for the lock that its own thread has, and hooks would be called within hooks. Counting how deep a thread is in forks
//! would not be enough: the child of the inner fork goes on in the middle of the outer one. If handlers that the program registered change
//! the mask between ours, those changes are undone.
//!
//! `EPOCH` is written by the child's only thread; every later thread is started by one that knows the value. So relaxed loads
//! are enough, and no thread ever sees it change except the one that forked.
//!
//! Threads of ours that begin or end hold locks of the standard library; a fork waits for them (`thread_start_gate`).
//!
//! # What is not followed
//! `vfork`, `posix_spawn` and `clone` called by hand do not go through the C library's handlers. The first two are for
//! callers that `exec` at once; their children must not touch anything of this library.
//!
//! # Other people's handlers
//! *prepare* runs in the reverse order of registration, the other two in the order of registration. So handlers that were
//! registered before the first subject run between ours, and must not wait for a lock that a subject's *prepare* takes.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::thread_start_gate;
use crate::ForkHooks;
use crate::sys::{self, BlockedSignals};

static EPOCH: AtomicU64 = AtomicU64::new(0);

static SUBJECTS: Mutex<Subjects> = Mutex::new(Subjects { list: Vec::new(), registered: false });

static LOCKED_FOR_FORK: LockedForFork = LockedForFork(UnsafeCell::new(None));

struct Subjects {
    list: Vec<Subject>,
    /// Whether our functions are registered with the C library.
    registered: bool,
}

struct Subject {
    address: *const (),
    hooks: &'static ForkHooks,
}

// SAFETY: the address is only handed to the hooks, which any thread may call (`LockPlatform::follow_forks`).
unsafe impl Send for Subject {}

/// `SUBJECTS`, locked, while its thread has signals blocked.
struct Locked {
    // Dropped in this order.
    subjects: MutexGuard<'static, Subjects>,
    _signals: BlockedSignals,
}

/// What the thread that forks has locked.
struct LockedForFork(UnsafeCell<Option<Locked>>);

// SAFETY: touched only by the thread that has the lock.
unsafe impl Sync for LockedForFork {}

fn lock() -> Locked {
    let signals = BlockedSignals::block();
    sys::unblock_synchronous_signals();
    // A hook that panicked did so in a function of the C convention, which ends the process: so poisoning can be ignored.
    let subjects = SUBJECTS.lock().unwrap_or_else(PoisonError::into_inner);
    Locked { subjects, _signals: signals }
}

/// How many forks there were up to this process.
#[inline(always)]
pub(super) fn epoch() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Adds a subject. Fails if the C library has no memory to note our functions; forks then go unnoticed.
pub(super) fn follow(address: *const (), hooks: &'static ForkHooks) -> sys::Result<()> {
    let mut locked = lock();
    let subjects = &mut *locked.subjects;
    subjects.list.push(Subject { address, hooks });
    if !subjects.registered {
        sys::at_fork(prepare, parent, child)?;
        subjects.registered = true;
    }
    Ok(())
}

/// Takes a subject away.
pub(super) fn unfollow(address: *const ()) {
    lock().subjects.list.retain(|subject| subject.address != address);
}

extern "C" fn prepare() {
    let locked = lock();
    for Subject { address, hooks } in &locked.subjects.list {
        // SAFETY: it is on the list, and stays there until we give the lock back.
        unsafe { (hooks.prepare)(*address) };
    }
    // This comes last: a thread that creates another one may hold a lock that a hook takes.
    thread_start_gate::close();
    // SAFETY: we have the lock.
    unsafe { *LOCKED_FOR_FORK.0.get() = Some(locked) };
}

/// What `prepare` has locked.
fn take_held() -> Locked {
    // SAFETY: this thread, or the one that it is a copy of, has had the lock since `prepare`.
    unsafe { (*LOCKED_FOR_FORK.0.get()).take() }.expect("the C library calls `prepare` first")
}

extern "C" fn parent() {
    let locked = take_held();
    thread_start_gate::open();
    for Subject { address, hooks } in &locked.subjects.list {
        // SAFETY: it is on the list, and stays there until we give the lock back; `prepare` was called for it.
        unsafe { (hooks.parent)(*address) };
    }
}

extern "C" fn child() {
    let locked = take_held();
    thread_start_gate::open_in_child();
    EPOCH.fetch_add(1, Ordering::Relaxed);
    for Subject { address, hooks } in &locked.subjects.list {
        // SAFETY: it is on the list, and stays there until we give the lock back; `prepare` was called for it, before the fork.
        unsafe { (hooks.child)(*address) };
    }
}
