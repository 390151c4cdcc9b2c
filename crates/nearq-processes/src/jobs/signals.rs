//! Signals as a descriptor to poll: a loop that waits for ends of jobs, for input and for readers of output also receives signals there.
//!
//! Signals are blocked and read from a descriptor, so there are no handlers, and no system call is interrupted. A signal that was ignored
//! when the program began (`nohup`, a job in the background of a script) stays ignored: if it were blocked, it would be delivered.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr;

use libc::c_int;

use crate::system::{SignalSet, default_action, next_signal};

/// The signals that end the whole run. They are passed on to the jobs.
const ENDING: [c_int; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// What has happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// A child has ended.
    Child,
    /// The whole run must end.
    End {
        signal: c_int,
        /// Whether the terminal sent it, to the whole process group in the foreground.
        by_terminal: bool,
    },
    /// The terminal stops the foreground job, which is this process.
    Stop,
    /// This process was continued.
    Continue,
}

/// Receives the signals while it exists.
#[derive(Debug)]
pub(crate) struct Signals {
    descriptor: OwnedFd,
    before: SignalSet,
}

impl Signals {
    /// Blocks the signals in the calling thread: threads that are started later have them blocked too.
    pub(crate) fn take() -> io::Result<Self> {
        // Children whose end is ignored leave no status. Programs must not find that setting.
        default_action(libc::SIGCHLD);
        let may_be_ignored = ENDING.into_iter().chain([libc::SIGTSTP]);
        let set = may_be_ignored
            .filter(|&signal| !is_ignored(signal))
            .chain([libc::SIGCHLD, libc::SIGCONT])
            .fold(SignalSet::empty(), SignalSet::with);
        let descriptor = set.file()?;
        Ok(Self { descriptor, before: set.block() })
    }

    /// The next event that has arrived.
    pub(crate) fn next(&self) -> Option<Signal> {
        while let Some(came) = next_signal(&self.descriptor) {
            match came.signal {
                libc::SIGCHLD => return Some(Signal::Child),
                libc::SIGTSTP => return Some(Signal::Stop),
                libc::SIGCONT => return Some(Signal::Continue),
                signal if ENDING.contains(&signal) => {
                    return Some(Signal::End { signal, by_terminal: !came.by_process });
                }
                _ => {}
            }
        }
        None
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.before.restore();
    }
}

/// Whether a signal that ends the whole run has come while signals belong to the engine, and the engine has not read it. A
/// [`Source`](super::Source) that waits in [`begin`](super::Source::begin) for something that may take long asks this, and fails if it is so:
/// then the signal ends this process, as if it had not been the engine's.
pub fn is_asked_to_end() -> bool {
    let pending = SignalSet::pending();
    ENDING.into_iter().any(|signal| pending.has(signal))
}

/// Stops this process as the terminal would have, until it is continued.
pub(crate) fn stop_self() {
    // SAFETY: numbers only.
    unsafe { libc::raise(libc::SIGSTOP) };
}

fn is_ignored(signal: c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: validity: the place is a whole structure. Aliasing: the only reference is the one passed. Thread: any.
    unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    // SAFETY: validity: numbers and pointers, for which zeros are a value. Aliasing and thread: a local.
    unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
