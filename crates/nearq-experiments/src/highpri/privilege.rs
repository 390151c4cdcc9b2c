//! What the experiment does to its own threads on Linux: favours the one that queues, takes the privilege to be favoured
//! from it, and makes one a real-time thread.
//!
//! A thread's privileges are its own, and the threads that it starts inherit them. So a row without the privilege is a row
//! whose issuer has given it up before the runtime starts its first thread; the rest of the process keeps it.

use std::io;
use std::mem::size_of;

/// The number of the privilege to be favoured, `CAP_SYS_NICE`.
const SYS_NICE: u32 = 23;
/// The version of the kernel's interface that has two words of capabilities.
const VERSION_3: u32 = 0x2008_0522;

/// The kernel's `struct __user_cap_header_struct`; thread zero is the caller.
#[repr(C)]
struct Header {
    version: u32,
    thread: i32,
}

/// The kernel's `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Capabilities {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

fn check(returned: libc::c_long) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The soft limit on nice values as it was, put back when this is dropped.
#[derive(Debug)]
pub(crate) struct NiceLimit(libc::rlimit);

impl Drop for NiceLimit {
    fn drop(&mut self) {
        // SAFETY: a live rlimit that the kernel reads. The limit was in effect before: it is not above the hard one.
        unsafe { libc::setrlimit(libc::RLIMIT_NICE, &raw const self.0) };
    }
}

/// Takes the privilege to be favoured from the caller and from the threads that it starts from now on: `CAP_SYS_NICE` for good, and
/// for as long as the returned value lives what `RLIMIT_NICE` allows everybody in the process.
pub(crate) fn give_up() -> io::Result<NiceLimit> {
    let mut header = Header { version: VERSION_3, thread: 0 };
    let mut words = [Capabilities::default(); 2];
    // SAFETY: a header and, as its version says, two words that the kernel writes; both live through the call.
    check(unsafe { libc::syscall(libc::SYS_capget, &raw mut header, words.as_mut_ptr()) })?;
    words[0].effective &= !(1 << SYS_NICE);
    words[0].permitted &= !(1 << SYS_NICE);
    // SAFETY: as above, and they are only read. The call is about the calling thread alone.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw mut header, words.as_ptr()) })?;

    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live rlimit that the kernel writes.
    check(unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) }.into())?;
    let lower = libc::rlimit { rlim_cur: 0, ..limit };
    // SAFETY: a live rlimit that the kernel reads. Lowering the soft limit needs no privilege.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NICE, &raw const lower) }.into())?;
    Ok(NiceLimit(limit))
}

/// Sets the caller's class, nice value and slice (zero is the system's own). With `alone`, threads that it starts do not inherit
/// that, but are ordinary ones.
fn schedule(policy: i32, nice: i32, priority: u32, slice_ns: u64, alone: bool) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: policy.unsigned_abs(),
        sched_flags: if alone { libc::SCHED_FLAG_RESET_ON_FORK as u64 } else { 0 },
        sched_nice: nice,
        sched_priority: priority,
        sched_runtime: slice_ns,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: live attributes of the size that they name; thread zero is the caller.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0_u32) })
}

/// Favours the caller as much as a thread can be, but not what it starts.
pub(crate) fn favour_alone() -> io::Result<()> {
    schedule(libc::SCHED_OTHER, MOST_FAVOURED, 0, 0, true)
}

/// Gives the caller, and what it starts, a nice value and the system's own slice.
pub(crate) fn favour(nice: i32) -> io::Result<()> {
    schedule(libc::SCHED_OTHER, nice, 0, 0, false)
}

/// Makes the caller a real-time thread of the lowest priority, before all ordinary ones.
pub(crate) fn real_time() -> io::Result<()> {
    schedule(libc::SCHED_FIFO, 0, 1, 0, true)
}

/// Whether a thread of this process may do that: tried on one that ends at once.
pub(crate) fn may(attempt: fn() -> io::Result<()>) -> io::Result<()> {
    let tried = std::thread::Builder::new().spawn(attempt)?;
    tried.join().unwrap_or_else(|_| Err(io::Error::other("the thread that tried it panicked")))
}

/// The most favoured nice value.
pub(crate) const MOST_FAVOURED: i32 = -20;

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::{Linux, Platform as _};
    use std::thread;

    fn nice() -> i32 {
        Linux::nice(Linux::current_thread()).unwrap()
    }

    #[test]
    fn what_is_given_up_is_given_up_for_the_thread_and_its_children_alone() {
        thread::spawn(|| {
            let may = favour(-5).is_ok();
            let before = nice();
            let limit = give_up().unwrap();
            assert!(favour(-6).is_err(), "the privilege is gone");
            thread::spawn(|| assert!(favour(-7).is_err(), "and not inherited")).join().unwrap();
            assert_eq!(nice(), before);
            drop(limit);
            if may {
                assert_eq!(before, -5);
            }
        })
        .join()
        .unwrap();
        // Another thread still may, where the process could before.
        let may = |nice: i32| thread::spawn(move || favour(nice).is_ok()).join().unwrap();
        assert_eq!(may(-3), may(-4));
    }

    #[test]
    fn a_favour_for_one_alone_is_not_inherited() {
        thread::spawn(|| {
            if favour_alone().is_err() {
                return;
            }
            assert_eq!(nice(), MOST_FAVOURED);
            assert_eq!(thread::spawn(nice).join().unwrap(), 0);
        })
        .join()
        .unwrap();
    }
}
