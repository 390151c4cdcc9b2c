//! Starting a program as a child process, placed before its first instruction.
//!
//! The child is made by `clone(CLONE_VM | CLONE_VFORK)`: it borrows the parent's memory, on a stack of its own, while the parent's thread
//! is stopped, so that nothing is copied and the time does not grow with the parent's memory. (`posix_spawn` does the same, but can set
//! neither CPUs, nor a memory policy, nor what happens to the child when its parent ends.) It ends by `execve` or by `_exit`, and until
//! then
//! - it makes system calls and touches what [`Order`] points to, and nothing else: no allocation, no lock, no panic;
//! - no handler of the parent runs in it: all signals are blocked in the parent before the clone, and stay blocked in the child
//!   until it has given all signals that have a handler their default action. Its table of actions is a copy (no `CLONE_SIGHAND`).
//!   The two signals of the C library that cannot be blocked are sent to threads by number, and no thread has the child's number.
//!
//! What went wrong comes back in the order itself, as the memory is the same. `errno` is the parent's thread's too: the parent
//! reads it only after a call of its own that failed.

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::mem::MaybeUninit;
use core::ptr;

use super::memory::{MemoryMode, NodeMask};
use super::signal::{BlockedSignals, SignalMask};
use super::{Errno, Result, Tid, check};

/// The child's stack. Its calls are a few frames deep; the C library's own spawning has 32 KiB and more for the same.
const STACK: usize = 64 * 1024;

/// What a stack is aligned to on every architecture that Linux runs on.
const ALIGNMENT: usize = 16;

/// The highest number of a signal.
const LAST_SIGNAL: c_int = 64;

#[repr(C, align(16))]
struct Line([MaybeUninit<u8>; ALIGNMENT]);

/// The stack of children, one at a time: the thread that starts a child holds it exclusively until the child has left it.
pub(crate) struct Stack(Box<[Line]>);

impl Stack {
    pub(crate) fn new() -> Self {
        let line = || Line([MaybeUninit::uninit(); ALIGNMENT]);
        Stack((0..STACK / ALIGNMENT).map(|_| line()).collect())
    }

    /// One past the last byte: stacks grow downwards.
    fn top(&mut self) -> *mut c_void {
        self.0.as_mut_ptr_range().end.cast()
    }
}

/// Which memory the child gets.
pub(crate) struct Policy<'a> {
    pub(crate) mode: MemoryMode,
    pub(crate) nodes: &'a [usize],
}

/// What to start, and how.
pub(crate) struct Spawn<'a> {
    pub(crate) path: &'a CStr,
    /// Ends with a null pointer, as do the environment's.
    pub(crate) arguments: &'a [*const c_char],
    pub(crate) environment: &'a [*const c_char],
    /// What becomes the descriptors 0, 1 and 2; -1 leaves the parent's. None may be below 3.
    pub(crate) files: [c_int; 3],
    /// Whether it leads a process group of its own.
    pub(crate) own_group: bool,
    /// The signal that it gets when the thread that starts it ends; 0 is none.
    pub(crate) parent_death_signal: c_int,
    /// The signals that the program will find blocked.
    pub(crate) mask: &'a SignalMask,
    /// The signals that have a handler in the parent, or that only the parent should ignore: they get the default action.
    pub(crate) defaults: &'a [c_int],
    /// The CPUs, as words of the kernel's mask; empty leaves the parent's.
    pub(crate) affinity: &'a [u64],
    pub(crate) policy: Option<Policy<'a>>,
}

/// The parts of the placement that were refused. The program runs anyway.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) affinity: Option<Errno>,
    pub(crate) policy: Option<Errno>,
}

/// Why nothing runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotSpawned {
    /// The process could not be created: a limit was reached, or there is no memory.
    NoProcess(Errno),
    /// Its descriptors, its group or the signal at its parent's end could not be set up.
    NotSetUp(Errno),
    /// The program could not be executed.
    NotExecuted(Errno),
}

/// The memory that the child reads and writes.
struct Order<'a> {
    spawn: &'a Spawn<'a>,
    parent: c_int,
    policy: Option<(c_int, *const c_ulong, c_ulong)>,
    placed: Placed,
    failed: Option<NotSpawned>,
}

/// Starts the program; returns its number when it has been executed.
pub(crate) fn spawn(
    stack: &mut Stack,
    spawn: &Spawn<'_>,
) -> core::result::Result<(i32, Placed), NotSpawned> {
    if cfg!(miri) {
        return Err(NotSpawned::NoProcess(Errno::NOSYS));
    }
    let terminated = |list: &[*const c_char]| list.last().is_some_and(|last| last.is_null());
    assert!(terminated(spawn.arguments) && terminated(spawn.environment));
    if spawn.files.iter().any(|file| (0..3).contains(file)) {
        return Err(NotSpawned::NotSetUp(Errno::BADF));
    }
    let nodes = spawn.policy.as_ref().map(|policy| (policy.mode, NodeMask::new(policy.nodes)));
    let (nodes, bad_nodes) = match nodes {
        Some((mode, Ok(nodes))) => (Some((mode, nodes)), None),
        Some((_, Err(error))) => (None, Some(error)),
        None => (None, None),
    };
    let policy = nodes.as_ref().map(|(mode, nodes)| {
        let (words, bits) = nodes.as_argument();
        (mode.as_raw(), words, bits)
    });
    let mut order = Order {
        spawn,
        parent: Tid::of_first_thread().as_raw(),
        policy,
        placed: Placed { affinity: None, policy: bad_nodes },
        failed: None,
    };
    let blocked = BlockedSignals::block();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // SAFETY: validity: the stack is exclusively ours and as long as `child` needs; the order lives on in this frame, which stands
    // still until the child has left the shared memory (CLONE_VFORK). Aliasing: `order` is not touched here meanwhile. Thread: other
    // threads run on, but the child touches nothing of theirs: see the head of the file.
    let returned = unsafe { libc::clone(child, stack.top(), flags, (&raw mut order).cast()) };
    let returned = check(returned);
    drop(blocked);
    let pid = returned.map_err(NotSpawned::NoProcess)?;
    match order.failed {
        None => Ok((pid, order.placed)),
        Some(failed) => {
            reap(pid);
            Err(failed)
        }
    }
}

/// Waits for a child that is about to end.
fn reap(pid: i32) {
    loop {
        // SAFETY: validity: no status is asked for. Aliasing: none. Thread: the number is that of a child that no other thread waits
        // for, because it has not been published.
        let returned = unsafe { libc::waitpid(pid, ptr::null_mut(), 0) };
        if check(returned) != Err(Errno::INTR) {
            return;
        }
    }
}

/// What the child does. `argument` is the [`Order`].
extern "C" fn child(argument: *mut c_void) -> c_int {
    // SAFETY: validity: `spawn` passes its own local, which lives until this has left the memory. Aliasing: `spawn` stands still, so
    // this is the only reference in use. Thread: this is the only one that runs on it.
    let order = unsafe { &mut *argument.cast::<Order<'_>>() };
    let failed = match set_up(order) {
        Err(error) => NotSpawned::NotSetUp(error),
        Ok(()) => {
            place(order);
            NotSpawned::NotExecuted(execute(order.spawn))
        }
    };
    order.failed = Some(failed);
    // SAFETY: no pointers; it runs none of the parent's exit handlers.
    unsafe { libc::_exit(127) }
}

fn set_up(order: &Order<'_>) -> Result<()> {
    let spawn = order.spawn;
    if spawn.parent_death_signal != 0 {
        // SAFETY: numbers only; about the calling process.
        check(unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, spawn.parent_death_signal) })?;
        // The parent may have ended before that; then the signal never comes. SAFETY: no arguments.
        if unsafe { libc::getppid() } != order.parent {
            return Err(Errno::SRCH);
        }
    }
    if spawn.own_group {
        // SAFETY: numbers only; about the calling process.
        check(unsafe { libc::setpgid(0, 0) })?;
    }
    for (file, target) in spawn.files.into_iter().zip(0..) {
        if file >= 0 {
            // SAFETY: validity: the descriptor is the parent's, open in this copy of its table. Aliasing: the table is the child's own
            // (no CLONE_FILES). Thread: the child's only one.
            check(unsafe { libc::dup2(file, target) })?;
        }
    }
    for &signal in spawn.defaults {
        let action = default_action();
        // SAFETY: validity: the action is initialised. Aliasing: only read. Thread: the table of actions is the child's own.
        check(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) })?;
    }
    spawn.mask.apply();
    Ok(())
}

/// `SIG_DFL`, with no flags.
fn default_action() -> libc::sigaction {
    // SAFETY: a structure of numbers and pointers, for which all zeros is the default action with an empty mask.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// A refused placement is only noted: the program must run anyway.
fn place(order: &mut Order<'_>) {
    let words = order.spawn.affinity;
    if !words.is_empty() {
        // SAFETY: validity: `words` has the stated number of bytes, which the kernel reads. Aliasing: only read. Thread: about the
        // calling one.
        let returned = unsafe {
            libc::syscall(libc::SYS_sched_setaffinity, 0, size_of_val(words), words.as_ptr())
        };
        order.placed.affinity = check(returned).err();
    }
    if let Some((mode, nodes, bits)) = order.policy {
        // SAFETY: validity: `nodes` is that many bits of a mask in the parent's frame. Aliasing: only read. Thread: about the
        // calling one.
        let returned =
            unsafe { libc::syscall(libc::SYS_set_mempolicy, c_long::from(mode), nodes, bits) };
        order.placed.policy = check(returned).err();
    }
}

/// Returns only if it fails, with the reason.
fn execute(spawn: &Spawn<'_>) -> Errno {
    let (path, arguments) = (spawn.path.as_ptr(), spawn.arguments.as_ptr());
    // SAFETY: validity: a path, and two lists of texts that end with null, as `spawn` has checked, all of which live on. Aliasing:
    // only read. Thread: this process's only one.
    unsafe { libc::execve(path, arguments, spawn.environment.as_ptr()) };
    super::last_error()
}

/// The signals that have a handler in this process. None under Miri.
pub(crate) fn handled_signals() -> Vec<c_int> {
    if cfg!(miri) {
        return Vec::new();
    }
    let is_handled = |signal: &c_int| {
        let mut action = default_action();
        // SAFETY: validity: the place is a whole structure; a number that is no signal is refused. Aliasing: the only reference is
        // the one passed. Thread: any thread may ask.
        let returned = unsafe { libc::sigaction(*signal, ptr::null(), &raw mut action) };
        returned == 0 && ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction)
    };
    (1..=LAST_SIGNAL).filter(is_handled).collect()
}
