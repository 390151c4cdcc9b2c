//! What a lock needs of the machine: the trait [`LockPlatform`], and the plain data that goes through it.
//!
//! The trait is for `nearq-lock`, which calls each of these functions and no others, and for primitives that are as small, like
//! [`Parker`](crate::Parker). The data: how a wait ended ([`Wait`]), where memory must come from ([`MemoryPolicy`]), and what is called
//! around a fork ([`ForkHooks`]).

use core::time::Duration;

use crate::{Atomic, AtomicInt, CacheMap, ConstAtomic, HeldLocks, Instant, OsError};

/// What a machine can do for a lock: atomics, sleeping and spinning, time, which thread the caller is and where it runs, forks.
///
/// All items are associated functions: a lock of four bytes has no room for a handle. A platform that can be
/// instantiated several times (a simulated machine) finds the instance from the thread that calls.
///
/// **Blocking.** Only [`wait`](Self::wait), [`sleep`](Self::sleep) and [`yield_now`](Self::yield_now) give up the CPU. A lock blocks in no
/// other way, and spins in no other way than [`wait_until_changed`](Self::wait_until_changed).
///
/// **What is relied on.** Locks base memory safety on the promises of this trait: atomics are atomic and ordered as asked,
/// [`number`](Self::number) is what the calling thread itself has set, [`shared`](Self::shared) is what [`share`](Self::share) made,
/// [`fork_epoch`](Self::fork_epoch) changes with each fork and at no other time, [`page_size`](Self::page_size) is a multiple of a cache
/// line. A platform that breaks these promises may lead to undefined behaviour, even if it is written without `unsafe`. Programs use the
/// system's, `Linux`; the only reason to write another one is to model or simulate a machine.
pub trait LockPlatform: Copy + Send + Sync + Sized + core::fmt::Debug + 'static {
    /// A 16-bit atomic.
    type AtomicU16: AtomicInt<u16>;
    /// A 32-bit atomic; the only kind that can be waited on.
    type AtomicU32: AtomicInt<u32>;
    /// A 64-bit atomic.
    type AtomicU64: AtomicInt<u64>;
    /// An atomic pointer.
    type AtomicPtr<T>: Atomic<*mut T>;

    // ---- waiting ----------------------------------------------------------------------------------------

    /// Sleeps as long as `word` holds `expected`, at most until `deadline`.
    ///
    /// The comparison and falling asleep are one step with respect to [`wake`](Self::wake). May also return
    /// [`Wait::Woken`] for no reason. No memory ordering is implied.
    fn wait(word: &Self::AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait;

    /// Wakes at most `count` threads that sleep on `word`, in the order in which they came. Returns how many.
    ///
    /// `word` may be memory that is no longer an atomic: it is an address, and is not read.
    fn wake(word: *const Self::AtomicU32, count: usize) -> usize;

    /// Spins while `word` holds `value`, about `budget` times as long as one read takes.
    /// Returns whether it changed. The last read is a relaxed load.
    fn wait_until_changed(word: &Self::AtomicU32, value: u32, budget: u32) -> bool;

    /// Keeps the CPU busy for about as long as `reads` reads of [`wait_until_changed`](Self::wait_until_changed) take, without reading
    /// anything: for a thread that has lost a race for a word and lets other threads go first.
    #[inline]
    fn pause(reads: u32) {
        for _ in 0..reads {
            core::hint::spin_loop();
        }
    }

    /// Lets another runnable thread run.
    fn yield_now();

    /// Sleeps for at least `duration`.
    fn sleep(duration: Duration);

    // ---- memory ordering --------------------------------------------------------------------------------

    /// A `SeqCst` fence under a model checker that treats `SeqCst` accesses as little more than `AcqRel`; nothing elsewhere.
    ///
    /// Belongs between the write of one atomic and the read of another (Dekker's pattern) if all four accesses are `SeqCst`, which is
    /// enough by itself in the language's memory model.
    #[inline(always)]
    fn model_fence() {}

    // ---- time and place ---------------------------------------------------------------------------------

    /// Now, on the monotonic clock.
    fn now() -> Instant;

    /// Whether a deadline has come.
    #[inline]
    fn has_come(deadline: Instant) -> bool {
        Self::now() >= deadline
    }

    /// The CPU that the caller runs on. It may run on another one by the time it uses the answer.
    fn current_cpu() -> usize;

    /// Reads again which CPUs are near each other; one cache with one CPU if the machine cannot be read.
    fn cache_map() -> CacheMap;

    // ---- the caller -------------------------------------------------------------------------------------

    /// The caller's number in the locks' tables, as last set by [`set_number`](Self::set_number); 0 before.
    fn number() -> u32;

    /// Sets the caller's number. When the thread ends, it calls `end` with the number that it has then, if that is not 0 (never
    /// in a model). False if `end` will not be called: the thread is ending and has already called it, or the system cannot note
    /// it. The number is set all the same. Allocates nothing, unless this is the first call in a program that has already noted
    /// many such things.
    fn set_number(number: u32, end: fn(u32)) -> bool;

    /// Calls `with` with the list of locks that the caller holds, which locks note there in debug builds. After a fork, the child's
    /// thread has a copy of the list. The call costs no time on a simulated clock, and is no step of a model. None if the caller is no
    /// thread of the platform (outside of a simulation). `with` does not call the platform.
    fn with_held<R>(with: impl FnOnce(&HeldLocks) -> R) -> Option<R>;

    /// Whether the caller is of a real-time class now (on Linux: `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`). A system call.
    ///
    /// For such a thread [`yield_now`](Self::yield_now) lets no less urgent thread run, and may use up the rest of its time.
    fn is_real_time() -> bool {
        Self::urgency() != 0
    }

    /// How urgent the caller is now: 0 for a thread of an ordinary class, a greater number for a more urgent thread of a real-time class.
    /// On Linux it is the priority for `SCHED_FIFO` and `SCHED_RR`, and a number above all priorities for `SCHED_DEADLINE`. One or two
    /// system calls.
    fn urgency() -> u32 {
        0
    }

    // ---- the process ------------------------------------------------------------------------------------

    /// What the locks of this process share, as [`share`](Self::share) returned it; null before, and if there is no
    /// process to ask (outside of a simulation).
    fn shared() -> *const ();

    /// The state that the locks of this process share. `make` creates it if it does not exist yet. If several threads create it at the same
    /// time, one of the states stays and `end` frees the others. `end` also frees the one that stays if the platform's process ends before
    /// the program does. What was done before it was created is visible.
    ///
    /// # Safety
    /// `make` always makes the same kind of thing; the result may be used by all threads until the process ends, and `end`
    /// may be called with it.
    unsafe fn share(make: fn() -> *const (), end: unsafe fn(*const ())) -> *const ();

    /// How many forks lie between the program's start and this process; what was made in another epoch belongs to
    /// another process. Forks are counted from the first [`follow_forks`](Self::follow_forks) on. Never changes while
    /// two threads of a process live. One load; a constant on a platform without forks.
    #[inline(always)]
    fn fork_epoch() -> u64 {
        0
    }

    /// From now on, each fork of this process calls `hooks` with `subject`, until
    /// [`unfollow_forks`](Self::unfollow_forks). Does nothing on a platform without forks.
    ///
    /// # Safety
    /// Until `unfollow_forks(subject)` returns, the hooks may be called with `subject` by any thread that forks, and after
    /// the fork in the child too.
    unsafe fn follow_forks(_subject: *const (), _hooks: &'static ForkHooks) {}

    /// Once this returns, forks no longer touch `subject`. Does nothing if they never did. Must not be called from inside a hook.
    fn unfollow_forks(_subject: *const ()) {}

    // ---- memory -----------------------------------------------------------------------------------------

    /// Sets where the pages of a range come from; with `move_pages`, pages that already exist are moved.
    ///
    /// The range is narrowed to whole pages: a page that is only partly inside is left alone.
    ///
    /// # Errors
    /// A container refuses it, or a node does not exist.
    fn bind_memory(range: &[u8], policy: &MemoryPolicy, move_pages: bool) -> Result<(), OsError>;

    /// Bytes in a page: memory that is placed by itself begins and ends with one.
    fn page_size() -> usize {
        4096
    }

    // ---- settings and warnings --------------------------------------------------------------------------

    /// A setting from outside the program (on Linux: an environment variable).
    fn setting(name: &str) -> Option<String>;

    /// Shows one line to the user of the program (on Linux: standard error).
    fn warn(line: &str);

    /// As [`warn`](Self::warn), but only the first time that this process warns of `cause`. Two warnings should have the same cause if both
    /// call for the same remedy, whichever threads or objects they are about.
    fn warn_once(cause: &str, line: &str);
}

/// A platform on which atomics can be made in constants: statics and `const fn new` work there.
pub trait ConstPlatform:
    LockPlatform<AtomicU16: ConstAtomic, AtomicU32: ConstAtomic, AtomicU64: ConstAtomic>
{
}

impl<P> ConstPlatform for P where
    P: LockPlatform<AtomicU16: ConstAtomic, AtomicU32: ConstAtomic, AtomicU64: ConstAtomic>
{
}

/// How a [`LockPlatform::wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Woken, or for no reason.
    Woken,
    /// The word did not hold the expected value; the caller did not sleep.
    Changed,
    /// The deadline came.
    TimedOut,
}

/// Where memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The node of the CPU that touches it first.
    Local,
    /// This node while it has memory, then other nodes.
    Preferred(usize),
    /// These nodes only.
    Bind(Vec<usize>),
    /// These nodes in turn, page by page.
    Interleave(Vec<usize>),
}

/// The functions that [`LockPlatform::follow_forks`] has called around a fork. The thread that forks calls them all, for one fork at a
/// time.
///
/// They run wherever the program forks, so they take no lock that may be held there, and should allocate nothing.
#[derive(Clone, Copy, Debug)]
pub struct ForkHooks {
    /// Before the fork: brings the subject into a state that may be copied, and keeps it there. Called for each subject
    /// before the process forks.
    pub prepare: unsafe fn(*const ()),
    /// After the fork, in the process that forked: lets the subject go on.
    pub parent: unsafe fn(*const ()),
    /// After the fork, in the new process, where the caller is the only thread: makes the copy usable.
    /// [`LockPlatform::fork_epoch`] has the new value already.
    pub child: unsafe fn(*const ()),
}
