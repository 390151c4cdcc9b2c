//! Hooks that run on forks.

use super::{Errno, Result};

/// `pthread_atfork`: from now on, each `fork` of this process calls the three. This cannot be undone.
///
/// Does nothing under Miri, where nothing forks.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> Result<()> {
    if cfg!(miri) {
        return Ok(());
    }
    // SAFETY: validity: three functions of the C calling convention, which live as long as the program's code; the C
    // library drops them if it unloads the object that they are in. Aliasing: none. Thread: any thread may call.
    let error = unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    if error == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(error)) }
}
