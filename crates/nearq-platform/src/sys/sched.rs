//! A thread's number, CPUs, nice value and scheduling class.

use core::mem::size_of;
use core::num::NonZeroU64;
use std::time::Duration;

use super::{Errno, Result, check};
use crate::SchedPolicy;

// The kernel's masks are arrays of `unsigned long`. Words of 64 bits have the same layout in memory if the two
// types are the same, or if the lower half comes first.
const _: () = assert!(cfg!(any(target_pointer_width = "64", target_endian = "little")));

/// A thread's number, unique on the machine while the thread lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Tid(i32);

impl Tid {
    /// The number that the kernel knows.
    pub(crate) const fn as_raw(self) -> i32 {
        self.0
    }

    /// The thread that the process began with: its number is the process's.
    pub(crate) fn of_first_thread() -> Self {
        // SAFETY: no pointers; it cannot fail.
        Tid(unsafe { libc::getpid() })
    }

    /// A number that a thread of any process may have; none if it is not positive.
    pub(crate) fn from_raw(raw: i32) -> Option<Self> {
        (raw > 0).then_some(Tid(raw))
    }
}

/// The caller's number. A system call, about 60 ns: not cached, because a fork changes it.
pub(crate) fn tid() -> Tid {
    // By its number: C libraries older than glibc 2.30 have no function for it.
    // SAFETY: no pointers; it cannot fail.
    Tid(unsafe { libc::syscall(libc::SYS_gettid) } as i32)
}

/// Whether the number is that of a thread of this process. Two system calls.
///
/// Numbers are reused: without this check, a call about a thread that has ended could reach a thread of
/// another program.
pub(crate) fn is_thread_of_this_process(tid: Tid) -> bool {
    if cfg!(miri) {
        return true;
    }
    let process = Tid::of_first_thread();
    // SAFETY: validity: three numbers; signal 0 is none, only the checks are made. Aliasing: none.
    // Thread: any thread may ask.
    let returned = unsafe { libc::syscall(libc::SYS_tgkill, process.as_raw(), tid.as_raw(), 0) };
    // Any other refusal (a filter on system calls) says nothing about the thread.
    !matches!(check(returned), Err(Errno::SRCH))
}

/// By how many nanoseconds the system may end the caller's sleeps late, to wake several threads at once.
pub(crate) fn set_timer_slack(nanoseconds: NonZeroU64) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: numbers. It concerns the caller alone.
    let returned =
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, nanoseconds.get() as libc::c_ulong) };
    check(returned).map(drop)
}

/// The CPUs on which the thread may run, as words of the kernel's mask.
///
/// Any number of CPUs: the buffer grows until the kernel's mask fits.
pub(crate) fn affinity(tid: Tid) -> Result<Vec<u64>> {
    if cfg!(miri) {
        return Ok(vec![1]);
    }
    /// Enough for 1024 CPUs, more than most kernels are built for.
    const FIRST_WORDS: usize = 16;
    /// More than any kernel has: CPU numbers have 16 bits at most.
    const MOST_WORDS: usize = 1024;

    let mut words = vec![0_u64; FIRST_WORDS];
    loop {
        let bytes = size_of::<u64>() * words.len();
        // SAFETY: validity: the buffer has `bytes` bytes that the kernel may write. Aliasing: the only
        // reference is the one passed. Thread: any thread may ask.
        let returned = unsafe {
            libc::syscall(libc::SYS_sched_getaffinity, tid.as_raw(), bytes, words.as_mut_ptr())
        };
        match check(returned) {
            // The kernel's mask is longer than the buffer.
            Err(Errno::INVAL) if words.len() < MOST_WORDS => {
                let longer = words.len() * 2;
                words.resize(longer, 0);
            }
            outcome => return outcome.map(|_| words),
        }
    }
}

/// Restricts the thread to the CPUs of a mask of any length; those the kernel does not know are ignored.
pub(crate) fn set_affinity(tid: Tid, words: &[u64]) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let bytes = size_of_val(words);
    // SAFETY: validity: `words` is `bytes` bytes that the kernel reads. Aliasing: only read.
    // Thread: any thread may ask.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_setaffinity, tid.as_raw(), bytes, words.as_ptr()) };
    check(returned).map(drop)
}

/// The thread's nice value.
pub(crate) fn nice(tid: Tid) -> Result<i32> {
    if cfg!(miri) {
        return Ok(0);
    }
    // Not by the C library's function, which returns -1 both for a failure and for a nice value: the kernel returns 20 less the value.
    // SAFETY: numbers.
    let returned =
        unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, tid.as_raw()) };
    check(returned).map(|returned| 20 - returned as i32)
}

/// Sets the thread's nice value (on Linux the call, though named after processes, is about one thread).
pub(crate) fn set_nice(tid: Tid, nice: i32) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: numbers.
    let returned =
        unsafe { libc::syscall(libc::SYS_setpriority, libc::PRIO_PROCESS, tid.as_raw(), nice) };
    check(returned).map(drop)
}

/// The limit on nice values, `RLIMIT_NICE`: `20 - nice` for the most favoured value allowed.
/// `None` is no limit.
pub(crate) fn nice_limit() -> Option<u64> {
    // If the call is refused (by a filter on system calls), no nice value below 20 is taken to be allowed.
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: validity: a place for the answer, which is ours. Aliasing: the only reference is the one passed. Thread: any thread may ask.
    unsafe { libc::getrlimit(libc::RLIMIT_NICE, &raw mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// Sets class, nice value and slice (zero is the system's own) in one call.
pub(crate) fn set_scheduling(
    tid: Tid,
    policy: SchedPolicy,
    nice: i32,
    slice: Duration,
) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let policy = match policy {
        SchedPolicy::Normal => libc::SCHED_OTHER,
        SchedPolicy::Idle => libc::SCHED_IDLE,
    };
    let runtime = u64::try_from(slice.as_nanos()).unwrap_or(u64::MAX);
    set_attributes(tid, Attributes { policy: policy.unsigned_abs(), flags: 0, nice, runtime })
}

/// The caller's class, if it is a real-time class.
fn real_time_class() -> Option<i32> {
    if cfg!(miri) {
        return None;
    }
    // SAFETY: a number; 0 is the caller.
    let policy = unsafe { libc::sched_getscheduler(0) };
    // If the call is refused (by a filter on system calls), the class is taken to be an ordinary one.
    let class = if policy < 0 { return None } else { policy & !libc::SCHED_RESET_ON_FORK };
    matches!(class, libc::SCHED_FIFO | libc::SCHED_RR | libc::SCHED_DEADLINE).then_some(class)
}

/// Whether the caller is of a real-time class.
pub(crate) fn is_real_time() -> bool {
    real_time_class().is_some()
}

/// How urgent the caller is: the priority of `SCHED_FIFO` and `SCHED_RR`, one more than the highest of these priorities for
/// `SCHED_DEADLINE`, 0 for other classes.
pub(crate) fn urgency() -> u32 {
    /// The kernel has priorities from 1 to 99.
    const ABOVE_ALL: u32 = 100;
    match real_time_class() {
        None => 0,
        Some(libc::SCHED_DEADLINE) => ABOVE_ALL,
        Some(_) => {
            // All that the kernel's `sched_param` has. musl's is longer, and its function refuses.
            let mut priority: libc::c_int = 0;
            // SAFETY: a number, 0 is the caller; the kernel writes into the place, which is ours.
            unsafe { libc::syscall(libc::SYS_sched_getparam, 0, &raw mut priority) };
            // If this call was refused, or the class has changed since, the thread still counts as real-time, by the answer above.
            priority.clamp(1, 99).unsigned_abs()
        }
    }
}

/// The flag that keeps what a thread starts from being favoured as the thread is (`SCHED_FLAG_RESET_ON_FORK`).
pub(crate) const RESET_ON_FORK: u64 = libc::SCHED_FLAG_RESET_ON_FORK as u64;

/// What `sched_setattr` and `sched_getattr` say of a thread of the ordinary classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    /// The class: `SCHED_OTHER`, ...
    pub(crate) policy: u32,
    pub(crate) flags: u64,
    pub(crate) nice: i32,
    /// The slice in nanoseconds; zero is the system's own, or unknown.
    pub(crate) runtime: u64,
}

/// Sets all of them in one call.
pub(crate) fn set_attributes(tid: Tid, wanted: Attributes) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    let mut attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: wanted.policy,
        sched_flags: wanted.flags,
        sched_nice: wanted.nice,
        sched_priority: 0,
        sched_runtime: wanted.runtime,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: validity: `attributes` is live, and `size` is its size; where the kernel refuses that, it
    // writes its own there. Aliasing: the only reference is the one passed. Thread: any thread may ask.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_setattr, tid.as_raw(), &raw mut attributes, 0_u32) };
    check(returned).map(drop)
}

/// What the thread has.
pub(crate) fn scheduling(tid: Tid) -> Result<Attributes> {
    if cfg!(miri) {
        return Ok(Attributes { policy: 0, flags: 0, nice: 0, runtime: 0 });
    }
    let size = size_of::<libc::sched_attr>();
    let mut attributes = libc::sched_attr {
        size: size as u32,
        sched_policy: 0,
        sched_flags: 0,
        sched_nice: 0,
        sched_priority: 0,
        sched_runtime: 0,
        sched_deadline: 0,
        sched_period: 0,
    };
    // SAFETY: validity: `attributes` is `size` bytes that the kernel may write. Aliasing: the only reference is
    // the one passed. Thread: any thread may ask.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_sched_getattr,
            tid.as_raw(),
            &raw mut attributes,
            size as u32,
            0_u32,
        )
    };
    check(returned)?;
    Ok(Attributes {
        policy: attributes.sched_policy,
        flags: attributes.sched_flags,
        nice: attributes.sched_nice,
        runtime: attributes.sched_runtime,
    })
}
