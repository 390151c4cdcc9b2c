//! What jobs and trees ask of the system that the standard library has not: signals as a file, a second process, descriptors of processes.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::time::Duration;

use libc::{c_int, pid_t};

/// A set of signals.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalSet(libc::sigset_t);

impl SignalSet {
    /// None.
    pub(crate) fn empty() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the place is ours, and filled by the call.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            SignalSet(set.assume_init())
        }
    }

    /// All that there are.
    pub(crate) fn all() -> Self {
        let mut set = MaybeUninit::uninit();
        // SAFETY: the place is ours, and filled by the call.
        unsafe {
            libc::sigfillset(set.as_mut_ptr());
            SignalSet(set.assume_init())
        }
    }

    /// All but those that a program brings on itself, with which it ends where it is.
    pub(crate) fn from_outside() -> Self {
        let mut set = Self::all();
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP] {
            // SAFETY: the set is ours, the number is one.
            unsafe { libc::sigdelset(&raw mut set.0, signal) };
        }
        set
    }

    /// These and one more.
    pub(crate) fn with(mut self, signal: c_int) -> Self {
        // SAFETY: the set is ours; what is no signal is refused.
        unsafe { libc::sigaddset(&raw mut self.0, signal) };
        self
    }

    /// Holds them back in this thread; what was held back before.
    pub(crate) fn block(self) -> SignalSet {
        self.change(libc::SIG_BLOCK)
    }

    /// Holds them back no more in this thread: those that have come meanwhile come now.
    pub(crate) fn unblock(self) {
        self.change(libc::SIG_UNBLOCK);
    }

    /// Holds back these and no others. May be called between fork and exec.
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

    /// A file from which those that are held back can be read.
    pub(crate) fn file(self) -> io::Result<OwnedFd> {
        // SAFETY: the set is ours.
        owned(unsafe {
            libc::signalfd(-1, &raw const self.0, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        })
    }
}

/// A signal that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Came {
    pub(crate) signal: c_int,
    /// Whether a process sent it, rather than the terminal or the kernel.
    pub(crate) by_process: bool,
}

/// The next one, if there is one.
pub(crate) fn next_signal(file: &OwnedFd) -> Option<Came> {
    let mut came = MaybeUninit::<libc::signalfd_siginfo>::uninit();
    let size = size_of::<libc::signalfd_siginfo>();
    // SAFETY: no more is written than there is room for.
    let got = unsafe { libc::read(file.as_raw_fd(), came.as_mut_ptr().cast(), size) };
    if usize::try_from(got) != Ok(size) {
        return None;
    }
    // SAFETY: filled in.
    let came = unsafe { came.assume_init() };
    Some(Came { signal: came.ssi_signo as c_int, by_process: came.ssi_code <= 0 })
}

/// Stops this process as the signal does where nobody catches it; returns when it goes on. The signal is held back otherwise.
pub(crate) fn stop_by(signal: c_int) {
    let one = SignalSet::empty().with(signal);
    // SAFETY: numbers only.
    unsafe { libc::kill(libc::getpid(), signal) };
    one.unblock();
    one.block();
}

/// Gives the signal its default action.
pub(crate) fn default_action(signal: c_int) {
    // SAFETY: the default is no handler of ours.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

/// Ends this process by the signal, as if nobody had handled it; without a core file, as of a program that ends in order.
pub fn die_by(signal: c_int) -> ! {
    default_action(signal);
    let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit is ours.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &raw const none) };
    // SAFETY: numbers only.
    unsafe { libc::kill(libc::getpid(), signal) };
    SignalSet::empty().with(signal).unblock();
    // Where the signal does not end processes, or not this one: the first of a PID namespace.
    std::process::exit(128 + signal)
}

fn owned(file: c_int) -> io::Result<OwnedFd> {
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: just made, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(file) })
}

/// A process by its number, which names this one as long as the descriptor is open.
pub(crate) fn open_process(pid: u32) -> io::Result<OwnedFd> {
    // SAFETY: numbers only.
    owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid as pid_t, 0) } as c_int)
}

/// Sends a signal to a process; one that has ended gets none.
pub(crate) fn send(process: &OwnedFd, signal: c_int) {
    let nothing = std::ptr::null::<libc::siginfo_t>();
    // SAFETY: numbers, and no description.
    unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal, nothing, 0) };
}

/// What a child did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Exited(c_int),
    Signalled(c_int),
    Stopped(c_int),
}

/// What one of the children did, with its number; none if none did anything.
pub(crate) fn next_child() -> Option<(u32, Child)> {
    let mut status = 0;
    // SAFETY: the place is ours.
    let pid = unsafe { libc::waitpid(-1, &raw mut status, libc::WNOHANG | libc::WUNTRACED) };
    let pid = u32::try_from(pid).ok().filter(|pid| *pid > 0)?;
    Some((pid, child(status)))
}

/// Waits until a child ends.
pub(crate) fn wait_for(pid: u32) -> Option<Child> {
    let mut status = 0;
    loop {
        // SAFETY: the place is ours.
        let got = unsafe { libc::waitpid(pid as pid_t, &raw mut status, 0) };
        match got {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return None,
            _ => return Some(child(status)),
        }
    }
}

fn child(status: c_int) -> Child {
    if libc::WIFSTOPPED(status) {
        Child::Stopped(libc::WSTOPSIG(status))
    } else if libc::WIFSIGNALED(status) {
        Child::Signalled(libc::WTERMSIG(status))
    } else {
        Child::Exited(libc::WEXITSTATUS(status))
    }
}

/// Which of the files have something to say, or have been closed at the other end, after so long at most.
pub(crate) fn wait_any(files: &[BorrowedFd<'_>], timeout: Option<Duration>) -> Vec<bool> {
    let entry = |file: &BorrowedFd<'_>| libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let mut entries: Vec<libc::pollfd> = files.iter().map(entry).collect();
    let timeout = timeout.map_or(-1, |timeout| {
        c_int::try_from(timeout.as_micros().div_ceil(1000)).unwrap_or(c_int::MAX)
    });
    // SAFETY: as many entries as are said.
    let got = unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout) };
    entries.iter().map(|entry| got > 0 && entry.revents != 0).collect()
}

/// This process has those that its descendants leave behind.
pub(crate) fn adopt_orphans() -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// The system sends this process the signal when its parent is gone. May be called between fork and exec.
pub(crate) fn die_with_parent(signal: c_int) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal, 0, 0, 0) })
}

fn check(returned: c_int) -> io::Result<()> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A second process that goes on from here; its number, or 0 in itself.
///
/// # Safety
/// This process has no other threads.
pub(crate) unsafe fn fork() -> io::Result<u32> {
    // SAFETY: by the caller.
    let pid = unsafe { libc::fork() };
    u32::try_from(pid).map_err(|_| io::Error::last_os_error())
}

/// The session that this process belongs to, as `/proc/PID/stat` has it: 0 where its leader is outside of this PID namespace.
pub(crate) fn own_session() -> u32 {
    // SAFETY: no pointers.
    unsafe { libc::getsid(0) }.cast_unsigned()
}

/// A group of its own: what the terminal sends is not for this process.
pub(crate) fn leave_group() {
    // SAFETY: numbers only. It fails for the leader of a session, which a child just forked is not.
    unsafe { libc::setpgid(0, 0) };
}

/// Whether memory comes from where the system has it come from by itself: nobody has set a policy for this process.
pub(crate) fn has_usual_memory() -> bool {
    let mut mode: c_int = libc::MPOL_DEFAULT;
    let nowhere = std::ptr::null_mut::<libc::c_void>();
    // SAFETY: the place is ours; nodes are not asked for, and no address is looked at.
    let returned = unsafe {
        libc::syscall(libc::SYS_get_mempolicy, &raw mut mode, nowhere, 0_usize, nowhere, 0_usize)
    };
    returned != 0 || mode == libc::MPOL_DEFAULT
}

/// The process that started this one, or has it now. May be called between fork and exec.
pub(crate) fn parent() -> u32 {
    // SAFETY: no pointers.
    unsafe { libc::getppid() }.cast_unsigned()
}

/// The name by which lists of processes have this one.
pub(crate) fn name_self(name: &str) {
    if let Ok(name) = std::ffi::CString::new(name) {
        // SAFETY: the name ends in a zero byte.
        unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
    }
}

/// As many descriptors as this process may have, from now on; how many that are.
pub(crate) fn raise_descriptors() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the place is ours.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 0;
    }
    let before = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    let raised = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) } == 0;
    if raised { limit.rlim_cur } else { before }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_back_is_read_and_what_was_before_is_again() {
        let set = SignalSet::empty().with(libc::SIGUSR2);
        let file = set.file().unwrap();
        let before = set.block();
        // SAFETY: a number; it is for this thread, which holds it back.
        unsafe { libc::raise(libc::SIGUSR2) };
        let came = next_signal(&file).unwrap();
        assert!(came.signal == libc::SIGUSR2 && came.by_process);
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
