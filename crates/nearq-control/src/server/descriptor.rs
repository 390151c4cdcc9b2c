//! Open files of the server, and what happens to them in the child of a fork.
//!
//! A child has copies of the parent's sockets. While it keeps them, a client does not see that the parent has closed a connection or is
//! gone. So the child closes them at once, in the hook of the fork, before it runs anything else.
//!
//! # Protocol
//! `TABLE` lists the open descriptors. A descriptor is opened and closed under the lock of the table, which a fork takes too (*prepare* to
//! *parent* or *child*). So the child has a complete list of its descriptors. The lock is held for one system call, and nothing waits while
//! it is held.
//!
//! # Programs that close what they do not know
//! A daemon may close all descriptors, and open files of its own under the same numbers. So before a number is used or closed, the server
//! checks whether it still leads to the file that was opened ([`Descriptor::is_unchanged`]).

use core::cell::UnsafeCell;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearq_platform::{ForkHooks, Linux, LockPlatform};
use rustix::fs::Stat;
use rustix::io::Result;

static TABLE: Mutex<Vec<Entry>> = Mutex::new(Vec::new());
static FOLLOWED: AtomicBool = AtomicBool::new(false);
static HELD: ForkGuard = ForkGuard(UnsafeCell::new(None));

/// A number and the file that it led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    number: RawFd,
    file: (u64, u64),
}

/// The guard of `TABLE` while the process forks.
struct ForkGuard(UnsafeCell<Option<MutexGuard<'static, Vec<Entry>>>>);

// SAFETY: touched by the thread that has the lock only.
unsafe impl Sync for ForkGuard {}

static HOOKS: ForkHooks = ForkHooks { prepare, parent, child };

/// Makes the child of each fork close the descriptors listed here.
pub(super) fn follow_forks() {
    // Relaxed: nothing is published with it; a second caller has no descriptor yet.
    if !FOLLOWED.swap(true, Ordering::Relaxed) {
        // SAFETY: the hooks make nothing of the subject, and live as long as the program.
        unsafe { Linux::follow_forks((&raw const TABLE).cast(), &HOOKS) };
    }
}

fn lock() -> MutexGuard<'static, Vec<Entry>> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe fn prepare(_subject: *const ()) {
    let table = lock();
    // SAFETY: we have the lock.
    unsafe { *HELD.0.get() = Some(table) };
}

fn take_held() -> Option<MutexGuard<'static, Vec<Entry>>> {
    // SAFETY: this thread, or the one that it is a copy of, has had the lock since `prepare`.
    unsafe { (*HELD.0.get()).take() }
}

unsafe fn parent(_subject: *const ()) {
    drop(take_held());
}

unsafe fn child(_subject: *const ()) {
    let Some(mut table) = take_held() else { return };
    for entry in table.iter().filter(|entry| entry.is_unchanged()) {
        entry.close();
    }
    table.clear();
}

impl Entry {
    fn of(fd: BorrowedFd<'_>) -> Result<Self> {
        Ok(Entry { number: fd.as_raw_fd(), file: identity(&rustix::fs::fstat(fd)?) })
    }

    fn is_unchanged(&self) -> bool {
        // SAFETY: validity: a number that is not open is an error of the call. Thread and aliasing: nothing is changed.
        let fd = unsafe { BorrowedFd::borrow_raw(self.number) };
        rustix::fs::fstat(fd).is_ok_and(|found| identity(&found) == self.file)
    }

    fn close(&self) {
        // SAFETY: validity: the number leads to the file that was opened under it. Aliasing: its owner does not use it any more: it is
        // the one that calls, or a thread that does not exist in this process. Thread: any may close.
        unsafe { rustix::io::close(self.number) };
    }
}

fn identity(found: &Stat) -> (u64, u64) {
    (found.st_dev, found.st_ino)
}

/// An open file that is closed in the child of a fork.
#[derive(Debug)]
pub(super) struct Descriptor {
    entry: Entry,
    epoch: u64,
}

impl Descriptor {
    /// Opens a file.
    pub(super) fn open<E: From<rustix::io::Errno>>(
        open: impl FnOnce() -> core::result::Result<OwnedFd, E>,
    ) -> core::result::Result<Self, E> {
        let mut table = lock();
        let fd = open()?;
        let entry = Entry::of(fd.as_fd())?;
        table.push(entry);
        // Closed by `drop` below, or by the child.
        let _ = fd.into_raw_fd();
        Ok(Descriptor { entry, epoch: Linux::fork_epoch() })
    }

    /// Whether the number still leads to the file.
    pub(super) fn is_unchanged(&self) -> bool {
        self.entry.is_unchanged()
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: validity: the descriptor is open until it is dropped, unless the program closes descriptors that are not its own; then
        // calls fail, or `is_unchanged` returns false. Aliasing and thread: a number.
        unsafe { BorrowedFd::borrow_raw(self.entry.number) }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        if self.epoch != Linux::fork_epoch() {
            // Closed by the child's hook.
            return;
        }
        let mut table = lock();
        table.retain(|entry| *entry != self.entry);
        if self.entry.is_unchanged() {
            self.entry.close();
        }
    }
}
