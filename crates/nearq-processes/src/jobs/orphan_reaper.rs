//! A second process that ends the remaining processes when the engine is killed by a signal that cannot be handled.
//!
//! A job's first process gets a signal at the engine's end (`PR_SET_PDEATHSIG`); the processes that it has started do not. The orphan
//! reaper waits for the engine's end through a descriptor of the engine's process, and does nothing else. It finds the remaining processes
//! by their environment: jobs have [`VARIABLE`] with a value that no other run has had, and pass it on. A process that clears its
//! environment or makes a session of its own is not found.
//!
//! The orphan reaper is a fork of the engine without a program of its own, which costs a tenth of a millisecond. So the engine must have
//! only one thread when it starts the reaper: a fork of a process with several may do almost nothing. An engine that ends in order ends its
//! orphan reaper first.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use libc::c_int;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};

use crate::proc;
use crate::system::{self, SignalSet};

/// The variable that jobs have in their environment.
pub const VARIABLE: &str = "NEARQ_RUN";

/// How long the remaining processes may take for an orderly end.
const GRACE: Duration = Duration::from_millis(500);

/// How long after that to wait for processes that do not even end when killed: they hang in the kernel.
const PATIENCE: Duration = Duration::from_secs(10);

/// An orphan reaper that runs.
#[derive(Debug)]
pub(crate) struct OrphanReaper(Pid);

impl OrphanReaper {
    /// Starts the orphan reaper. `value` is the value of [`VARIABLE`] in the jobs of this run. The caller has one thread.
    pub(crate) fn start(value: &str) -> io::Result<Self> {
        let engine = pidfd_open(rustix::process::getpid(), PidfdFlags::empty())?;
        let session = system::own_session();
        // SAFETY: the caller has one thread, so the child has a copy of it, and no lock is held by a thread that the child does not have.
        match unsafe { libc::fork() } {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                watch(engine, session, value);
                // SAFETY: numbers only. None of the engine's exit handlers is run, and none of its buffers written.
                unsafe { libc::_exit(0) }
            }
            pid => Pid::from_raw(pid).map(OrphanReaper).ok_or_else(|| io::ErrorKind::Other.into()),
        }
    }

    /// Whether `process` is the process of the orphan reaper.
    pub(crate) fn is(&self, process: u32) -> bool {
        self.0.as_raw_pid().unsigned_abs() == process
    }

    /// The orphan reaper has ended, and has been waited for: its number may belong to another process by now.
    pub(crate) fn ended(self) {
        std::mem::forget(self);
    }
}

impl Drop for OrphanReaper {
    fn drop(&mut self) {
        // The orphan reaper has nothing to lose, and its signals are blocked.
        let _ = kill_process(self.0, Signal::KILL);
        // The thread that waits for any child may have noted its end before.
        system::wait_for(self.0.as_raw_pid().cast_unsigned());
    }
}

/// The whole work of the orphan reaper.
fn watch(engine: OwnedFd, session: u32, value: &str) {
    leave();
    // We must not keep the engine's files open: a reader of its output waits until every copy is closed.
    let Ok(engine) = alone(engine) else { return };
    let mut polled = [PollFd::new(&engine, PollFlags::IN)];
    if rustix::io::retry_on_intr(|| poll(&mut polled, None)).is_err() {
        return;
    }
    end_all(session, value);
}

/// Moves out of the reach of the terminal and of signals.
fn leave() {
    SignalSet::all().block();
    // The call fails for the leader of a group, which a child just forked is not.
    let _ = rustix::process::setsid();
    system::name_self("nearq-guard");
}

/// Closes everything except that descriptor, which it returns under another number.
fn alone(descriptor: OwnedFd) -> io::Result<OwnedFd> {
    use std::os::fd::FromRawFd as _;
    const PLACE: c_int = 0;
    rustix::stdio::dup2_stdin(&descriptor)?;
    std::mem::forget(descriptor);
    // SAFETY: numbers only; the table of descriptors is this process's own, and nothing here uses another one.
    let closed = unsafe { libc::syscall(libc::SYS_close_range, PLACE + 1, u32::MAX, 0) };
    if closed != 0 {
        // A kernel before 5.9, or a filter of system calls. All numbers are read first: the library panics if the folder that it reads
        // is closed meanwhile.
        let numbers = fs::read_dir("/proc/self/fd")?.flatten().map(|entry| entry.file_name());
        let numbers: Vec<_> = numbers.filter_map(|name| name.to_str()?.parse().ok()).collect();
        for number in numbers.into_iter().filter(|&number| number != PLACE) {
            // SAFETY: numbers only; the table of descriptors is this process's own, and nothing here uses another one. The descriptor of
            // the folder is closed already, so closing it again is a harmless error.
            unsafe { libc::close(number) };
        }
    }
    // SAFETY: open, and owned by nothing else.
    Ok(unsafe { OwnedFd::from_raw_fd(PLACE) })
}

/// Ends all processes of the run that are in the engine's session.
fn end_all(session: u32, value: &str) {
    let wanted = format!("{VARIABLE}={value}");
    let begin = Instant::now();
    let mut signalled: Vec<u32> = Vec::new();
    while begin.elapsed() < GRACE + PATIENCE {
        let kill = begin.elapsed() >= GRACE;
        let mut left = 0;
        for (pid, process) in of_run(&wanted, session) {
            left += 1;
            let signal = if kill { Signal::KILL } else { Signal::TERM };
            if kill || !signalled.contains(&pid) {
                // The process may have ended meanwhile; the descriptor belongs to the very process that was checked.
                let _ = pidfd_send_signal(&process, signal);
                let _ = pidfd_send_signal(&process, Signal::CONT);
                signalled.push(pid);
            }
        }
        if left == 0 {
            return;
        }
        thread::sleep(Duration::from_millis(5));
    }
}

/// The processes that have the variable.
fn of_run(wanted: &str, session: u32) -> Vec<(u32, OwnedFd)> {
    let of_run = |pid: u32| {
        let number = Pid::from_raw(pid.cast_signed())?;
        // Open the descriptor first, then check: so either the checked process is the descriptor's process, or the descriptor's process has
        // ended.
        let process = pidfd_open(number, PidfdFlags::empty()).ok()?;
        // A zombie has no environment any more.
        let environment = proc::environment(pid).ok()?;
        let is_of_run = environment.split(|&byte| byte == 0).any(|one| one == wanted.as_bytes());
        (is_of_run && proc::stat(pid)?.session == session).then_some((pid, process))
    };
    proc::all().into_iter().filter_map(of_run).collect()
}
