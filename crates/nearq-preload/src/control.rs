//! The control socket, if `NEARQ_CONTROL` asks for one: the program's mutexes can be inspected and tuned while it runs.
//!
//! A program without the variable gets no thread. A program with it gets the thread when it creates a thread of its own: before that, no
//! thread can wait for a mutex, and there is nothing to see. That moment is also safe: a thread that creates another one may allocate with
//! the program's `malloc`, as creating one does, and holds nothing that our thread needs. A mutex that is waited for may be `malloc`'s.
//!
//! # Forks, exec, and what programs do to themselves
//! A child of a fork has no server; it gets one of its own, under its own number, with the first thread that it creates. So a program that
//! goes into the background is listed under its new number, and a child that never has a second thread is not listed. `exec` closes the
//! sockets; the next program decides for itself.
//!
//! The socket stays where it was made when the program changes its root or its user. It accepts requests from the program's user at the
//! time of the request, and from root; as other users cannot enter the directory, only root can connect if root has made it. A program that
//! confines itself to few system calls (seccomp) may be killed by a request, and one that needs to become single-threaded again (`unshare`
//! of its user) cannot. Do not set the variable for such programs.
//!
//! # Programs that use nearq themselves
//! Such programs have a server of their own, with a runtime behind it, under the same process number. That server takes over the name, and
//! this one can no longer be found: what the program itself makes visible takes precedence over what was preloaded. If that server starts
//! first, ours is not started.

use core::sync::atomic::{AtomicU32, Ordering};

use nearq_control::control_target::ControlTarget;
use nearq_control::locks::LocksOnly;
use nearq_control::protocol::Access;
use nearq_control::server::{self, Options};
use nearq_platform::{Linux, LockPlatform};

use crate::arena;

/// What the variable asks for: nothing, reading, changing as well, or an unknown value.
const NO: u32 = 0;
const READ: u32 = 1;
const FULL: u32 = 2;
const UNKNOWN: u32 = 3;

static ASKED: AtomicU32 = AtomicU32::new(NO);

/// Remembers what the variable says. Relaxed throughout: called before the program has two threads.
pub(crate) fn ask(value: Option<&[u8]>) {
    let Some(value) = value.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty()) else {
        return;
    };
    let asked = match core::str::from_utf8(value).map(str::parse) {
        Ok(Ok(Access::Off)) => NO,
        Ok(Ok(Access::Read)) => READ,
        Ok(Ok(Access::Full)) => FULL,
        _ => UNKNOWN,
    };
    ASKED.store(asked, Ordering::Relaxed);
}

/// Whether a server must be started, or a warning printed.
#[inline]
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed) != NO
}

/// What the server offers. Called by its thread, before anything else.
fn target() -> Box<dyn ControlTarget> {
    arena::wait_for_memory();
    Box::new(LocksOnly::new())
}

/// The program is about to create a thread. This waits for nothing: the server's thread opens the socket.
pub(crate) fn start() {
    let access = match ASKED.load(Ordering::Relaxed) {
        READ => Access::Read,
        FULL => Access::Full,
        NO => return,
        _ => {
            // Only once: the thread that clears the mark prints the warning.
            if ASKED.swap(NO, Ordering::Relaxed) == UNKNOWN {
                Linux::warn(&format!(
                    "the value of NEARQ_CONTROL is invalid; it must be {}. Using off",
                    Access::NAMES
                ));
            }
            return;
        }
    };
    // Starting the server creates a thread, which calls this function again; by then the server counts as started.
    server::ensure(target, Options { access });
}
