//! Sleeping on a word with the sleepers kept on a node of the caller's choice: `FUTEX2_NUMA`, since Linux 6.16.
//!
//! Behind the word, in a *pair* of eight bytes that is aligned to them, is the number of the node. The kernel keeps the sleepers of such a word in that node's table, where otherwise they
//! are wherever a hash puts them. Who wakes must find the node that was there when they fell asleep.
//!
//! `errno` is left as it was (`futex.rs` says why).

use core::ffi::{c_int, c_long, c_uint};
use core::ptr;
use core::sync::atomic::AtomicU32;

use super::{Result, SavedErrno, check};

/// The calls' numbers, which are the same on all processors; where they are not, those of calls that there are not.
const FUTEX_WAKE: c_long = 454;
const FUTEX_WAIT: c_long = 455;

/// `FUTEX2_SIZE_U32 | FUTEX2_NUMA | FUTEX2_PRIVATE` of the kernel's `include/uapi/linux/futex.h`.
const FLAGS: c_uint = 0x02 | 0x04 | 0x80;

/// Matches every waker. As many bits as the word has, or the call is refused.
const ANY_WAKER: c_long = u32::MAX as c_long;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// The kernel's timespec, which is 64 bits wide everywhere in these calls.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanos: i64,
}

/// `futex_wait`, private to the process: sleeps while the word holds `expected`, at most until `deadline` (nanoseconds on
/// `CLOCK_MONOTONIC` or `CLOCK_REALTIME`). Of a deadline in the past, and of one that is never reached, as `futex.rs` says.
pub(crate) fn futex_wait_at_node(
    pair: &[AtomicU32; 2],
    expected: u32,
    deadline: Option<(libc::clockid_t, u64)>,
) -> Result<()> {
    let clock = deadline.map_or(libc::CLOCK_MONOTONIC, |(clock, _)| clock);
    let deadline = deadline.map(|(_, nanos)| Timespec {
        seconds: (nanos / NANOS_PER_SECOND) as i64,
        nanos: (nanos % NANOS_PER_SECOND) as i64,
    });
    let deadline = deadline.as_ref().map_or(ptr::null(), ptr::from_ref);
    let _saved = SavedErrno::new();
    // SAFETY: validity: the pair is two live words, and `deadline` null or a live timespec, for the whole call.
    // Aliasing: the kernel reads the words as atomics, and the timespec that is ours alone. Thread: any thread may wait on any word.
    let returned = unsafe {
        libc::syscall(
            FUTEX_WAIT,
            pair[0].as_ptr(),
            c_long::from(expected as c_int) & ANY_WAKER,
            ANY_WAKER,
            FLAGS,
            deadline,
            clock,
        )
    };
    check(returned).map(drop)
}

/// `futex_wake`, private to the process: wakes at most `count` threads that sleep on the word, and says how many.
pub(crate) fn futex_wake_at_node(pair: &[AtomicU32; 2], count: usize) -> Result<usize> {
    // The kernel takes 0 for 1.
    if count == 0 {
        return Ok(0);
    }
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    let _saved = SavedErrno::new();
    // SAFETY: validity: two live words; the kernel reads the second. Aliasing: as an atomic. Thread: any thread may wake.
    let woken = unsafe { libc::syscall(FUTEX_WAKE, pair[0].as_ptr(), ANY_WAKER, count, FLAGS) };
    check(woken).map(|woken| woken as usize)
}

/// The node of the CPU that the caller runs on.
pub(crate) fn current_node() -> Result<u32> {
    if cfg!(miri) {
        return Err(super::Errno::NOSYS);
    }
    let mut node: c_uint = 0;
    let _saved = SavedErrno::new();
    // SAFETY: validity: null, or a live number that the kernel writes. Aliasing: ours alone. Thread: answers for the caller.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_getcpu,
            ptr::null_mut::<c_uint>(),
            &raw mut node,
            ptr::null_mut::<libc::c_void>(),
        )
    };
    check(returned).map(|_| node)
}
