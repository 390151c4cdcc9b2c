//! The system calls that the torture makes itself.

use std::ffi::c_void;

unsafe extern "C" {
    pub(crate) fn fork() -> i32;
    pub(crate) fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    pub(crate) fn _exit(status: i32) -> !;
    pub(crate) fn alarm(seconds: u32) -> u32;
    pub(crate) fn mmap(
        at: *mut c_void,
        size: usize,
        may: i32,
        flags: i32,
        file: i32,
        from: i64,
    ) -> *mut c_void;
    pub(crate) fn munmap(at: *mut c_void, size: usize) -> i32;
    pub(crate) fn getpid() -> i32;
    pub(crate) fn tgkill(process: i32, thread: i32, signal: i32) -> i32;
    pub(crate) fn signal(signal: i32, handler: extern "C" fn(i32)) -> usize;
    pub(crate) fn pthread_sigmask(how: i32, set: *const [u64; 16], before: *mut [u64; 16]) -> i32;
    pub(crate) fn usleep(micros: u32) -> i32;
}

/// `SIGUSR1`, by which workers are interrupted.
pub(crate) const INTERRUPT: i32 = 10;

pub(crate) extern "C" fn stand_still(_signal: i32) {
    // SAFETY: a sleep, which a signal handler may do. (It sets `errno` only if it is interrupted.)
    unsafe { usleep(30) };
}

/// The caller may be interrupted from now on.
pub(crate) fn may_be_interrupted() {
    const UNBLOCK: i32 = 1;
    let mut set = [0; 16];
    set[0] = 1 << (INTERRUPT - 1);
    // SAFETY: the set is as large as the C library's on Linux; the previous mask is not requested.
    assert_eq!(unsafe { pthread_sigmask(UNBLOCK, &raw const set, core::ptr::null_mut()) }, 0);
}

/// Whether a child has ended; it must have ended well.
pub(crate) fn has_ended(child: i32, wait: bool) -> bool {
    const RETURN_AT_ONCE: i32 = 1;
    let mut status = -1;
    // SAFETY: the status is ours.
    let ended = unsafe { waitpid(child, &raw mut status, if wait { 0 } else { RETURN_AT_ONCE }) };
    assert!(ended == 0 || status == 0, "a child hung, or found something wrong: {status:#x}");
    ended == child
}
