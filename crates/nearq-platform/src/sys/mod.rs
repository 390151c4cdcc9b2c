//! System calls as typed, safe functions; nothing here knows what they are used for.
//!
//! One file a subject. Each function makes one call, returns the bare [`Errno`] and leaves the explaining to
//! the caller, who knows what was tried. Where `rustix` has the call it is used; the rest goes through
//! `libc`. The constants are theirs too, but for the few that neither has, which name the kernel header.
//!
//! Under Miri, which has few of these calls, the rest answer `ENOSYS` or do nothing; the functions say which.

mod clock;
mod cpu;
mod fork;
mod futex;
mod futex2;
mod memory;
mod process;
mod sched;
mod signal;
mod slice;

pub(crate) use clock::{cpu_time, monotonic};
pub(crate) use cpu::current_cpu;
pub(crate) use fork::at_fork;
pub(crate) use futex::{futex_wait, futex_wake};
pub(crate) use futex2::{current_node, futex_wait_at_node, futex_wake_at_node};
pub(crate) use memory::{MemoryMode, bind_range, page_nodes, page_size, set_default_policy};
pub(crate) use process::{at_exit, has_more_rights, peer};
pub(crate) use rustix::io::Errno;
pub(crate) use sched::{
    Attributes, RESET_ON_FORK, Tid, affinity, is_thread_of_this_process, nice, nice_limit,
    scheduling, set_affinity, set_attributes, set_name, set_nice, set_scheduling, set_timer_slack,
    tid,
};
pub(crate) use signal::{BlockedSignals, unblock_synchronous_signals};
pub(crate) use slice::SliceControl;

/// What a system call returns.
pub(crate) type Result<T> = core::result::Result<T, Errno>;

/// The error that `libc` left for the calling thread.
fn last_error() -> Errno {
    let code = std::io::Error::last_os_error().raw_os_error();
    Errno::from_raw_os_error(code.unwrap_or(libc::EIO))
}

/// Gives `errno` of the calling thread its value back when it is dropped.
pub(crate) struct SavedErrno(i32);

impl SavedErrno {
    pub(crate) fn new() -> Self {
        // SAFETY: validity: the C library's address of the thread's `errno`, valid as long as the thread. Aliasing: read at
        // once. Thread: the caller's own.
        SavedErrno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for SavedErrno {
    fn drop(&mut self) {
        // SAFETY: as in `new`; dropped by the thread that made it, as it is a local of one function.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// The result of a `libc` call that says -1 where it failed.
fn check<T: PartialOrd + From<i8>>(returned: T) -> Result<T> {
    if returned < T::from(0) { Err(last_error()) } else { Ok(returned) }
}
