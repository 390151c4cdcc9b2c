//! What the kernel says about the program itself, its exit hook, and the process at the other end of a socket.

use core::ffi::c_int;
use core::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use super::{Errno, Result, SavedErrno, check};

/// Whether the program has more privileges than the process that started it (`AT_SECURE`). False under Miri.
#[inline]
pub(crate) fn has_more_rights() -> bool {
    if cfg!(miri) {
        return false;
    }
    // SAFETY: no pointers; the kernel's vector is there from the start.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

/// Calls `hook` when the program ends by `exit` or by returning from `main`.
pub(crate) fn at_exit(hook: extern "C" fn()) -> Result<()> {
    // SAFETY: validity: a function of the C calling convention, which lives as long as the program's code; the C library calls it
    // before it unloads the object that it is in. Aliasing: none. Thread: any thread may call.
    let refused = unsafe { libc::atexit(hook) };
    if refused == 0 { Ok(()) } else { Err(Errno::NOMEM) }
}

/// The PID and the user ID of the process that connected a socket, or that listens at its other end. The PID is 0 if the caller cannot see
/// the process.
pub(crate) fn peer(socket: BorrowedFd<'_>) -> Result<(u32, u32)> {
    let peer = option::<libc::ucred>(socket, libc::SO_PEERCRED)?;
    Ok((u32::try_from(peer.pid).unwrap_or(0), peer.uid))
}

/// Whether the process that connected a socket, or that listens at its other end, still lives. Since Linux 6.5; `ENOPROTOOPT` before.
pub(crate) fn peer_lives(socket: BorrowedFd<'_>) -> Result<bool> {
    let number = match option::<c_int>(socket, libc::SO_PEERPIDFD) {
        Ok(number) => number,
        // The process has been reaped. Later kernels return a descriptor even then.
        Err(Errno::SRCH | Errno::INVAL | Errno::NODATA) => return Ok(false),
        Err(error) => return Err(error),
    };
    // SAFETY: the kernel has just made this descriptor for the caller.
    let process = unsafe { OwnedFd::from_raw_fd(number) };
    let mut ended = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let _saved = SavedErrno::new();
    // SAFETY: validity: one place, which is ours. Aliasing: the only reference is that passed. Thread: any thread may ask.
    let returned = unsafe { libc::poll(&raw mut ended, 1, 0) };
    check(returned)?;
    Ok(returned == 0)
}

/// An option of a socket: numbers, for which any bits are a valid value.
fn option<T: Copy>(socket: BorrowedFd<'_>, option: c_int) -> Result<T> {
    let mut value = MaybeUninit::<T>::uninit();
    let mut length = size_of::<T>() as libc::socklen_t;
    let _saved = SavedErrno::new();
    // SAFETY: validity: the descriptor is open, the place has the stated length. Aliasing: the only references are those passed.
    // Thread: any thread may ask.
    let returned = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            value.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    check(returned)?;
    // SAFETY: validity: the call succeeded, so it has written all of it. Aliasing and thread: a local.
    Ok(unsafe { value.assume_init() })
}
