//! System calls as typed, safe functions; nothing here knows what they are used for.
//!
//! One file a subject. Each function makes one call, returns the bare [`Errno`] and leaves the explaining to
//! the caller, which knows what was tried. The calls go through `libc`. The constants are its too, except the few that it has not, which
//! name the kernel header.
//!
//! Under Miri, which has few of these calls, the rest answer `ENOSYS` or do nothing; the functions say which.

use core::marker::PhantomData;

mod bpf;
mod cancel;
mod clock;
mod cpu;
mod errno;
mod exec;
mod fork;
mod futex;
mod membarrier;
mod memory;
mod process;
mod sched;
mod signal;

#[cfg(test)]
pub(crate) use bpf::made;
pub(crate) use bpf::{NumberMap, SharedArray};
pub(crate) use cancel::defer_cancellation;
pub(crate) use clock::{cpu_time, monotonic, real_time};
pub(crate) use cpu::current_cpu;
pub(crate) use errno::Errno;
pub(crate) use exec::{NotSpawned, Policy, Spawn, Stack, handled_signals, spawn};
pub(crate) use fork::at_fork;
pub(crate) use futex::{futex_wait, futex_wake};
pub(crate) use membarrier::{membarrier, register_membarrier};
pub(crate) use memory::{
    MemoryMode, bind_range, default_policy, page_nodes, page_size, set_default_policy,
};
pub(crate) use process::{at_exit, has_more_rights, peer, peer_lives};
pub(crate) use sched::{
    Attributes, RESET_ON_FORK, Tid, affinity, is_real_time, is_thread_of_this_process, nice,
    nice_limit, scheduling, set_affinity, set_attributes, set_nice, set_scheduling,
    set_timer_slack, tid, urgency,
};
pub(crate) use signal::{BlockedSignals, SignalMask, unblock_synchronous_signals};

/// What a system call returns.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// The error that `libc` left for the calling thread.
fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// Restores the calling thread's `errno` when it is dropped: for code that runs in the middle of a program which must not notice it.
///
/// ```
/// use nearq_platform::SavedErrno;
///
/// # fn errno() -> Option<i32> { std::io::Error::last_os_error().raw_os_error() }
/// let before = errno();
/// {
///     let _saved = SavedErrno::new();
///     assert!(std::fs::metadata("/no/such/file").is_err());
/// }
/// assert_eq!(errno(), before);
/// ```
// The pointer keeps this value in the thread whose `errno` it holds.
#[derive(Debug)]
#[must_use = "the value is given back as soon as this is dropped"]
pub struct SavedErrno(i32, PhantomData<*const ()>);

impl SavedErrno {
    /// Saves the current value.
    #[inline]
    #[expect(clippy::new_without_default, reason = "when it is made is all that there is to it")]
    pub fn new() -> Self {
        // SAFETY: validity: the C library's address of the thread's `errno`, valid as long as the thread. Aliasing: read at
        // once. Thread: the caller's own.
        SavedErrno(unsafe { *libc::__errno_location() }, PhantomData)
    }
}

impl Drop for SavedErrno {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: validity: the C library's address of the thread's `errno`, valid as long as the thread. Aliasing: written at once.
        // Thread: the caller's own, which is the one that made this, as it cannot be sent to another.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The result of a `libc` call that returns -1 on failure.
fn check<T: PartialOrd + From<i8>>(returned: T) -> Result<T> {
    if returned < T::from(0) { Err(last_error()) } else { Ok(returned) }
}
