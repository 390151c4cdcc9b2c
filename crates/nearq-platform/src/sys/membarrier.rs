//! `membarrier`: a memory barrier on every CPU that runs a thread of this process.

use super::{Result, last_error};

/// `MEMBARRIER_CMD_PRIVATE_EXPEDITED` and its registration, `linux/membarrier.h`.
const PRIVATE_EXPEDITED: libc::c_int = 1 << 3;
const REGISTER_PRIVATE_EXPEDITED: libc::c_int = 1 << 4;

fn call(command: libc::c_int) -> Result<()> {
    if cfg!(miri) {
        return Err(super::Errno::NOSYS);
    }
    // SAFETY: the call reads no memory of ours; the arguments are integers.
    match unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } {
        0 => Ok(()),
        _ => Err(last_error()),
    }
}

/// Declares that this process will call [`membarrier`]. Again and again is fine.
pub(crate) fn register_membarrier() -> Result<()> {
    call(REGISTER_PRIVATE_EXPEDITED)
}

/// When it returns, every other running thread of this process has executed a full memory barrier since the call began. A thread that does
/// not run executes one before it runs again.
pub(crate) fn membarrier() -> Result<()> {
    call(PRIVATE_EXPEDITED)
}
