//! The control socket, where `NEARQ_CONTROL` asks for one: the program's mutexes can be looked into and tuned while it runs.
//!
//! A program that was not asked about it gets no thread. One that was gets it when it creates a thread of its own: before, nobody can
//! wait for a mutex, and there is nothing to see. That is also the moment that is safe: who creates a thread may allocate with the
//! program's `malloc`, as creating one does, and holds nothing that our thread needs. A mutex that is waited for may be `malloc`'s.
//!
//! # Forks, exec, and what programs do to themselves
//! A child of a fork has no server; it gets one of its own, under its own number, with the first thread that it creates. So a program
//! that goes into the background is listed under the number that it has there, and a child that never has a second thread is not
//! listed. `exec` closes the sockets; the next program decides for itself.
//!
//! The socket stays where it was made when the program changes its root or its user. Who may speak is the user that the program has when
//! it is asked, and root; as others cannot enter the directory, that is root alone if root has made it. One that confines itself
//! to few system calls (seccomp) may be ended when somebody asks, and one that wants to be single-threaded again (`unshare` of
//! its user) is not: these are not to be asked about.
//!
//! # Programs that use nearq themselves
//! They have a server of their own, with a runtime behind it, and one number. That server takes the name over, and this one is not found
//! any more: what the program has made to be looked into counts more than what was put into it. If it is there first, ours stays away.

use core::sync::atomic::{AtomicU32, Ordering};

use nearq_control::locks::LocksOnly;
use nearq_control::protocol::Access;
use nearq_control::server::{self, Options};
use nearq_control::subject::Subject;
use nearq_platform::{Linux, LockPlatform};

use crate::arena;

/// What the variable says: nothing, to look, to change as well, or something that is none of it.
const NO: u32 = 0;
const READ: u32 = 1;
const FULL: u32 = 2;
const UNKNOWN: u32 = 3;

static ASKED: AtomicU32 = AtomicU32::new(NO);

/// Remembers what the variable says. Relaxed, all of it: said before the program has two threads.
pub(crate) fn ask(value: Option<&[u8]>) {
    let Some(value) = value.map(<[u8]>::trim_ascii).filter(|value| !value.is_empty()) else {
        return;
    };
    let asked = match core::str::from_utf8(value).map(str::parse) {
        Ok(Ok(Access::Off)) => NO,
        Ok(Ok(Access::Read)) => READ,
        Ok(Ok(Access::Full)) => FULL,
        Ok(Err(_)) | Err(_) => UNKNOWN,
    };
    ASKED.store(asked, Ordering::Relaxed);
}

/// Whether there is to be a server, or something to be said about it.
#[inline]
pub(crate) fn is_asked() -> bool {
    ASKED.load(Ordering::Relaxed) != NO
}

/// What the server tells. Called by its thread, before anything else.
fn subject() -> Box<dyn Subject> {
    arena::wait_for_memory();
    Box::new(LocksOnly::new())
}

/// The program is about to create a thread. Nothing is waited for: the socket is opened by the server's thread.
pub(crate) fn start() {
    let access = match ASKED.load(Ordering::Relaxed) {
        READ => Access::Read,
        FULL => Access::Full,
        NO => return,
        _ => {
            // Once: whoever takes it away says it.
            if ASKED.swap(NO, Ordering::Relaxed) == UNKNOWN {
                Linux::warn(&format!(
                    "NEARQ_CONTROL is not understood; it may be {}. Going on with off",
                    Access::NAMES
                ));
            }
            return;
        }
    };
    // It creates a thread, and so comes here again; by then it counts as started.
    server::ensure(subject, Options { access });
}
