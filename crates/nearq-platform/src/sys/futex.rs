//! Sleeping on a word, and waking the threads that sleep there.
//!
//! `errno` is left as it was: code that takes a mutex between a failed call and reading its `errno` does not expect the
//! mutex to change it.

use core::ffi::{c_int, c_long};
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::AtomicU32;

use super::{Result, SavedErrno, check};

/// Matches every waker: a plain `FUTEX_WAKE` has all bits too.
const ANY_WAKER: u32 = u32::MAX;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

// The call takes the kernel's own timespec, two longs. On some 32-bit systems the C library's is wider.
const _: () = assert!(size_of::<libc::timespec>() == 2 * size_of::<c_long>());

/// `FUTEX_WAIT_BITSET`, private to the process: sleeps while `word` holds `expected`, at most until `deadline`
/// (nanoseconds on `CLOCK_MONOTONIC` or `CLOCK_REALTIME`).
///
/// The bitset form takes an absolute time, so that a wait which is interrupted and tried again ends when the
/// first would have. A deadline in the past is not an error; one that the clock never reaches means no limit.
///
/// Through `libc` and not `rustix`: under Miri, the call of `rustix` has another signature than the one Miri knows.
pub(crate) fn futex_wait(
    word: &AtomicU32,
    expected: u32,
    deadline: Option<(libc::clockid_t, u64)>,
) -> Result<()> {
    let by_real_time = deadline.is_some_and(|(clock, _)| clock == libc::CLOCK_REALTIME);
    let clock = if by_real_time { libc::FUTEX_CLOCK_REALTIME } else { 0 };
    let deadline = deadline.map(|(_, nanos)| libc::timespec {
        tv_sec: (nanos / NANOS_PER_SECOND) as c_long,
        tv_nsec: (nanos % NANOS_PER_SECOND) as c_long,
    });
    let deadline = deadline.as_ref().map_or(ptr::null(), ptr::from_ref);
    let _saved = SavedErrno::new();
    // SAFETY: validity: `word` is a live word, and `deadline` null or a live timespec, for the whole call.
    // Aliasing: the kernel reads the word as an atomic, and the timespec that is ours alone. Thread: any
    // thread may wait on any word.
    let returned = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG | clock,
            expected,
            deadline,
            ptr::null_mut::<u32>(),
            ANY_WAKER,
        )
    };
    check(returned).map(drop)
}

/// `FUTEX_WAKE`, private to the process: wakes at most `count` threads that sleep on `word`, and says how many.
///
/// `word` is an address; nothing is read from it.
pub(crate) fn futex_wake(word: *const AtomicU32, count: usize) -> Result<usize> {
    // The kernel treats 0 as 1.
    if count == 0 {
        return Ok(0);
    }
    let count = c_int::try_from(count).unwrap_or(c_int::MAX);
    let _saved = SavedErrno::new();
    // SAFETY: validity: a private wake hashes the address and compares it with those of the sleepers; it
    // never reads or writes the memory, which may be unmapped. Aliasing: for the same reason none. Thread:
    // the call may be made from any thread.
    let woken = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.cast_mut().cast::<u32>(),
            libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
            count,
        )
    };
    check(woken).map(|woken| woken as usize)
}

#[cfg(test)]
mod tests {
    use super::super::Errno;
    use super::*;

    #[test]
    fn a_word_with_another_value_is_not_waited_on() {
        let word = AtomicU32::new(1);
        assert_eq!(futex_wait(&word, 2, None), Err(Errno::AGAIN));
    }

    #[test]
    fn a_deadline_in_the_past_ends_at_once() {
        let word = AtomicU32::new(1);
        for clock in [libc::CLOCK_MONOTONIC, libc::CLOCK_REALTIME] {
            assert_eq!(futex_wait(&word, 1, Some((clock, 1))), Err(Errno::TIMEDOUT));
        }
    }

    #[test]
    fn the_error_of_an_earlier_failure_is_kept() {
        // SAFETY: no such descriptor is open.
        assert_eq!(unsafe { libc::close(-1) }, -1);
        assert_eq!(futex_wait(&AtomicU32::new(1), 2, None), Err(Errno::AGAIN));
        assert_eq!(super::super::last_error(), Errno::BADF);
    }

    #[test]
    #[cfg_attr(miri, ignore = "the memory is not the program's")]
    fn waking_unmapped_memory_is_harmless() {
        let nowhere = core::ptr::without_provenance(0x1000);
        assert_eq!(futex_wake(nowhere, 1), Ok(0));
    }
}
