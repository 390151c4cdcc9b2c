//! What a program is told of itself, what it does last, and who is at the other end of a socket.

use core::ffi::c_int;
use core::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Errno, Result, SavedErrno, check};

/// Whether the program has more rights than who started it (`AT_SECURE`). False under Miri.
#[inline]
pub(crate) fn has_more_rights() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: no pointers; the kernel's vector is there from the start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Has `hook` called when the program ends by `exit` or by returning from `main`.
pub(crate) fn at_exit(hook: extern "C" fn()) -> Result<()> {
    // SAFETY: validity: a function of the C calling convention, which lives as long as the program's code; the C library calls it
    // before it unloads the object that it is in. Aliasing: none. Thread: any thread may call.
    let refused = unsafe { libc::atexit(hook) };
    if refused == 0 { Ok(()) } else { Err(Errno::NOMEM) }
}

/// The number and the user of the process that connected a socket, or that listens at its other end. The number is 0 where the process
/// is none that the caller can see.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<(u32, u32)> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    let _saved = SavedErrno::new();
    let (level, option): (c_int, c_int) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: validity: the descriptor is open, the place is as long as is said. Aliasing: the only references are those passed.
    // Thread: any thread may ask.
    let returned = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            option,
            peer.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(returned)?;
    // SAFETY: validity: the call succeeded, so it has written all of it. Aliasing and thread: a local.
    let peer = unsafe { peer.assume_init() };
    Ok((u32::try_from(peer.pid).unwrap_or(0), peer.uid))
}
