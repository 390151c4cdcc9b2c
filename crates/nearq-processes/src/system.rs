//! System functions for jobs and trees that the standard library does not have: signals as a file, a second process, descriptors of
//! processes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libc::{c_int, rusage};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, WaitOptions, getrlimit, kill_process, pidfd_open,
    pidfd_send_signal, setrlimit, waitpid,
};

/// A set of signals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// No signals.
    pub(crate) fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the place is ours, and filled by the call.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            SignalSet(set.assume_init())
        }
    }

    /// All signals.
    pub(crate) fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the place is ours, and filled by the call.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            SignalSet(set.assume_init())
        }
    }

    /// All signals except those that a program's own faults raise, which end it at once.
    pub(crate) fn from_outside() -> Self {
        let mut set = Self::all();
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            // SAFETY: the set is ours, the number is one.
            unsafe { libc::sigdelset(&raw mut set.0, signal) };
        }
        set
    }

    /// These signals and one more.
    pub(crate) fn with(mut self, signal: c_int) -> Self {
        // SAFETY: the set is ours; a number that is no signal is refused.
        unsafe { libc::sigaddset(&raw mut self.0, signal) };
        self
    }

    /// Blocks these signals in this thread. Returns the signals that were blocked before.
    pub(crate) fn block(self) -> SignalSet {
        self.change(libc::SIG_BLOCK)
    }

    /// Unblocks these signals in this thread: signals that arrived meanwhile are delivered now.
    pub(crate) fn unblock(self) {
        self.change(libc::SIG_UNBLOCK);
    }

    /// Blocks these signals and no others. May be called between fork and exec.
    pub(crate) fn restore(self) {
        self.change(libc::SIG_SETMASK);
    }

    fn change(self, how: c_int) -> SignalSet {
        let mut before = MaybeUninit::uninit();
        // SAFETY: both sets are ours; the old one is filled by the call, which cannot fail with this `how`.
        unsafe {
            libc::pthread_sigmask(how, &raw const self.0, before.as_mut_ptr());
            SignalSet(before.assume_init())
        }
    }

    /// The blocked signals that have come to this thread or process, and that nobody has read.
    pub(crate) fn pending() -> Self {
        let mut set = Self::empty();
        // SAFETY: the set is ours.
        unsafe { libc::sigpending(&raw mut set.0) };
        set
    }

    /// Whether a signal is in this set.
    pub(crate) fn has(&self, signal: c_int) -> bool {
        // SAFETY: the set is ours; of a number that is no signal, the answer is not 1.
        unsafe { libc::sigismember(&raw const self.0, signal) == 1 }
    }

    /// A file from which blocked signals of this set can be read.
    pub(crate) fn file(self) -> io::Result<OwnedFd> {
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is ours.
        let file = unsafe { libc::signalfd(-1, &raw const self.0, flags) };
        if file < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made, and owned by nothing else.
        Ok(unsafe { OwnedFd::from_raw_fd(file) })
    }
}

/// A signal that has arrived.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReceivedSignal {
    pub(crate) signal: c_int,
    /// Whether a process sent it, rather than the terminal or the kernel.
    pub(crate) by_process: bool,
}

/// The next signal, if one has arrived.
pub(crate) fn next_signal(file: &OwnedFd) -> Option<ReceivedSignal> {
    let mut received = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: no more is written than fits.
    let got = unsafe { libc::read(file.as_raw_fd(), received.as_mut_ptr().cast(), size) };
    if usize::try_from(got) != Ok(size) {
        return None;
    }
    // SAFETY: filled in.
    let received = unsafe { received.assume_init() };
    Some(ReceivedSignal { signal: received.ssi_signo as c_int, by_process: received.ssi_code <= 0 })
}

/// The signal with that number.
pub(crate) fn signal(number: c_int) -> Signal {
    // SAFETY: no number comes here that the kernel has not given, or that is not one of its constants.
    unsafe { Signal::from_raw_unchecked(number) }
}

/// Sends this process the signal.
fn send_self(number: c_int) {
    // A process may always send itself a signal.
    let _ = kill_process(rustix::process::getpid(), signal(number));
}

/// Stops this process as the signal does if it is not caught; returns when the process continues. Otherwise the signal stays blocked.
pub(crate) fn stop_by(signal: c_int) {
    let one = SignalSet::empty().with(signal);
    send_self(signal);
    one.unblock();
    one.block();
}

/// Gives the signal its default action.
pub(crate) fn default_action(signal: c_int) {
    // SAFETY: the default is no handler of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Ends this process by the signal, as if the signal had not been handled, but without a core file, because the program ends in an orderly
/// way.
pub fn die_by(signal: c_int) -> ! {
    default_action(signal);
    // If the limit cannot be set, there is a core file.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    send_self(signal);
    SignalSet::empty().with(signal).unblock();
    // Reached if the signal does not end processes, or does not end this one because it is the first of a PID namespace.
    std::process::exit(128 + signal)
}

/// Opens a process by its number; the descriptor refers to this very process while it is open.
pub(crate) fn open_process(pid: u32) -> io::Result<OwnedFd> {
    let pid = Pid::from_raw(pid.cast_signed()).ok_or(rustix::io::Errno::SRCH)?;
    Ok(pidfd_open(pid, PidfdFlags::empty())?)
}

/// Sends a signal to a process, unless it has ended.
pub(crate) fn send(process: &OwnedFd, number: c_int) {
    let _ = pidfd_send_signal(process, signal(number));
}

/// What has happened to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Exited(c_int),
    Signalled(c_int),
    Stopped(c_int),
}

impl Child {
    /// Decodes the kernel's status word.
    fn of(status: c_int) -> Self {
        if libc::WIFSTOPPED(status) {
            Child::Stopped(libc::WSTOPSIG(status))
        } else if libc::WIFSIGNALED(status) {
            Child::Signalled(libc::WTERMSIG(status))
        } else {
            Child::Exited(libc::WEXITSTATUS(status))
        }
    }
}

/// The next child that has ended or was stopped, and what it used; `None` if none has. `Err` if there are no children.
pub(crate) fn next_child() -> io::Result<Option<(u32, Child, rusage)>> {
    let mut status = 0;
    let mut usage = MaybeUninit::<rusage>::zeroed();
    // SAFETY: both places have the types that the call writes.
    let pid = unsafe {
        libc::wait4(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED, usage.as_mut_ptr())
    };
    // SAFETY: numbers, for which zeros are a value.
    let usage = unsafe { usage.assume_init() };
    match u32::try_from(pid) {
        Ok(0) => Ok(None),
        Ok(pid) => Ok(Some((pid, Child::of(status), usage))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}

/// Waits until a child ends.
pub(crate) fn wait_for(pid: u32) -> Option<Child> {
    let pid = Pid::from_raw(pid.cast_signed())?;
    let ended = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
    ended.ok()?.map(|(_, status)| Child::of(status.as_raw()))
}

/// Waits until some of the files are readable or have been closed at the other end, at most for that long. Returns which.
pub(crate) fn wait_any(files: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
    let mut entries: Vec<PollFd<'_>> =
        files.iter().map(|file| PollFd::from_borrowed_fd(*file, PollFlags::IN)).collect();
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let got = poll(&mut entries, timeout.as_ref());
    entries.iter().map(|entry| got.is_ok() && !entry.revents().is_empty()).collect()
}

/// Makes this process the parent of orphans that its descendants leave behind.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    Ok(rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?)
}

/// The system sends this process the signal when its parent is gone. May be called between fork and exec.
pub(crate) fn die_with_parent(number: c_int) -> io::Result<()> {
    Ok(rustix::process::set_parent_process_death_signal(Some(signal(number)))?)
}

/// Forks: a second process continues from here. Returns its number, or 0 in the second process.
///
/// # Safety
/// This process has no other threads.
pub(crate) unsafe fn fork() -> io::Result<u32> {
    // SAFETY: as the caller promises.
    let pid = unsafe { libc::fork() };
    u32::try_from(pid).map_err(|_| io::Error::last_os_error())
}

/// The session that this process belongs to, as `/proc/PID/stat` has it: 0 if its leader is outside of this PID namespace, for which
/// rustix has no value.
pub(crate) fn own_session() -> u32 {
    // SAFETY: no pointers.
    unsafe { libc::getsid(0) }.cast_unsigned()
}

/// Moves to a process group of its own: signals from the terminal do not reach this process.
pub(crate) fn leave_group() {
    // The call fails for the leader of a session, which a child just forked is not.
    let _ = rustix::process::setpgid(None, None);
}

/// Whether the memory policy is the system's default: no policy has been set for this process.
pub(crate) fn has_usual_memory() -> bool {
    let mut mode: c_int = libc::MPOL_DEFAULT;
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the place is ours; nodes are not asked for, and no address is used.
    let returned = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nowhere, 0_usize, nowhere, 0_usize)
    };
    returned != 0 || mode == libc::MPOL_DEFAULT
}

/// The parent of this process: the process that started it, or that has adopted it since. May be called between fork and exec.
pub(crate) fn parent() -> u32 {
    Pid::as_raw(rustix::process::getppid()).cast_unsigned()
}

/// Sets the name that lists of processes show for this process.
pub(crate) fn name_self(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // Only the name of the process depends on this call.
        let _ = rustix::thread::set_name(&name);
    }
}

/// Raises the limit on descriptors as far as this process may. Returns the limit.
pub(crate) fn raise_descriptors() -> u64 {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).is_ok();
    // No limit counts as the largest number.
    if raised { maximum } else { current }.unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_signals_can_be_read_and_the_mask_is_restored() {
        let set = SignalSet::empty().with(libc::SIGUSR2);
        let file = set.file().unwrap();
        let before = set.block();
        // SAFETY: a number; the signal is for this thread, which blocks it.
        unsafe { libc::raise(libc::SIGUSR2) };
        let received = next_signal(&file).unwrap();
        assert!(received.signal == libc::SIGUSR2 && received.by_process);
        assert!(next_signal(&file).is_none());
        before.restore();
        let has = |set: SignalSet, signal| {
            // SAFETY: the set is ours.
            unsafe { libc::sigismember(&raw const set.0, signal) == 1 }
        };
        let now = SignalSet::empty().block();
        assert!(!has(now, libc::SIGUSR2) && has(set, libc::SIGUSR2));
        assert!(has(SignalSet::all(), libc::SIGSEGV));
        let outside = SignalSet::from_outside();
        assert!(has(outside, libc::SIGCHLD) && !has(outside, libc::SIGSEGV));
    }
}
