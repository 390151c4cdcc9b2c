//! A function that runs in the child of a fork. For the tests of the packages here.

use std::io;
use std::time::{Duration, Instant};

/// How long a child may take; it takes some milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// Whether `f` returns true in a child, in time.
pub(crate) fn in_child(f: impl FnOnce() -> bool) -> Result<(), String> {
    match Child::fork() {
        Some(child) => child.wait(),
        None => {
            let is_right = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
            Child::exit(is_right.unwrap_or(false))
        }
    }
}

/// The child of a fork, in its parent.
pub(crate) struct Child(libc::pid_t);

impl Child {
    /// Forks; none in the child, which calls [`exit`](Self::exit) in the end.
    pub(crate) fn fork() -> Option<Child> {
        // SAFETY: the child runs what its caller says, and ends without a return to the test harness. The C library's and the pools' locks
        // survive a fork.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "{}", io::Error::last_os_error());
        (child > 0).then_some(Child(child))
    }

    /// Ends the child.
    pub(crate) fn exit(is_right: bool) -> ! {
        // SAFETY: it ends the process.
        unsafe { libc::_exit(i32::from(!is_right)) }
    }

    /// Whether it ends in time, and says that all is right.
    pub(crate) fn wait(self) -> Result<(), String> {
        let Child(child) = self;
        let begin = Instant::now();
        loop {
            let mut status = 0;
            // SAFETY: the status is a place of ours.
            match unsafe { libc::waitpid(child, &raw mut status, libc::WNOHANG) } {
                0 if begin.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(1)),
                0 => {
                    // SAFETY: the child is ours and has not been waited for.
                    unsafe { libc::kill(child, libc::SIGKILL) };
                    // SAFETY: as above.
                    unsafe { libc::waitpid(child, &raw mut status, 0) };
                    return Err(format!("the child has not ended within {PATIENCE:?}"));
                }
                _ if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0 => return Ok(()),
                _ => return Err(format!("the child ended with the status {status:#x}")),
            }
        }
    }
}
