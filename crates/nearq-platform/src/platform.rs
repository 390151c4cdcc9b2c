//! The trait [`Platform`], and the plain data that goes through it.

use core::ops::Range;
use core::time::Duration;
use std::sync::Arc;

use nearq_topology::{CpuSet, Limits, Topology};

use crate::{
    Atomic, AtomicInt, Attempt, ConstAtomic, Held, Instant, Ordering, Places, PlatformCell, Refused,
};

/// What a machine can do for the runtime.
///
/// All items are associated functions: a lock of four bytes has no room for a handle. A platform that can be
/// instantiated several times (a simulated machine) finds the instance from the thread that calls.
///
/// **Blocking.** Only [`wait`](Self::wait) and its relatives, [`sleep`](Self::sleep), [`join`](Self::join) and
/// [`yield_now`](Self::yield_now) give up the CPU. Code over a platform blocks in no other way, and spins in no
/// other way than [`wait_until_changed`](Self::wait_until_changed).
///
/// **What is believed.** The runtime and the lock build memory safety on what this trait says: atomics are atomic and ordered as asked,
/// [`current_thread`](Self::current_thread) names the caller and nobody else, a slot of a thread holds what that thread put there,
/// [`fork_epoch`](Self::fork_epoch) changes with each fork and at no other time. A platform that says something else may lead to undefined
/// behaviour, although it is written without `unsafe`. Programs use the one of the system, `Linux`; there is no reason to write another one
/// but to model or simulate a machine.
pub trait Platform: Copy + Send + Sync + Sized + core::fmt::Debug + 'static {
    /// A 16-bit atomic.
    type AtomicU16: AtomicInt<u16>;
    /// A 32-bit atomic; the only kind that can be waited on.
    type AtomicU32: AtomicInt<u32>;
    /// A 64-bit atomic.
    type AtomicU64: AtomicInt<u64>;
    /// An atomic pointer.
    type AtomicPtr<T>: Atomic<*mut T>;
    /// Plain memory under a protocol.
    type Cell<T>: PlatformCell<T>;
    /// Names a thread, as long as it lives and longer. Cheap to copy.
    type Thread: Copy + Send + Sync + PartialEq + core::fmt::Debug + 'static;
    /// The right to wait for a thread's end. Dropping it lets the thread go on by itself.
    type JoinHandle: Send + Sync + 'static;
    /// A thread that is asked again and again what it is doing; see [`watch`](Self::watch).
    type Watch: Send + 'static;

    // ---- memory ordering -------------------------------------------------------------------------------

    /// A memory fence.
    fn fence(order: Ordering);

    /// A `SeqCst` fence under a model checker that takes `SeqCst` accesses for little more than `AcqRel`; nothing elsewhere.
    ///
    /// Stands between the write of one atomic and the read of another (Dekker's pattern) where all four
    /// accesses are `SeqCst`, which is enough by itself in the language's memory model.
    #[inline(always)]
    fn model_fence() {}

    // ---- waiting ---------------------------------------------------------------------------------------

    /// Sleeps as long as `word` holds `expected`, at most until `deadline`.
    ///
    /// The comparison and falling asleep are one step with respect to [`wake`](Self::wake). May also return
    /// [`Wait::Woken`] for no reason. No memory ordering is implied.
    fn wait(word: &Self::AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait;

    /// As [`wait`](Self::wait), for work that other threads of the program are to do. While the caller waits, it makes the attempts that
    /// were [left to be made again](Self::retry_later), because there may be no other thread that could make them. The platform holds no
    /// lock while an attempt runs; an attempt may start threads.
    #[inline]
    fn wait_for_work(word: &Self::AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        Self::wait(word, expected, deadline)
    }

    /// Leaves an attempt to be made again: something was refused for now, and the caller has no thread that would try again. A thread that
    /// [waits for work](Self::wait_for_work) makes the attempt once, a little later. Does nothing on a platform that refuses nothing.
    fn retry_later(_attempt: Attempt) {}

    /// Makes each attempt that is left once. If there are none, it costs one or two loads.
    #[inline]
    fn retry_now() {}

    /// Whether attempts are left to be made again.
    #[inline]
    fn has_retries() -> bool {
        false
    }

    /// Whether a deadline has come.
    #[inline]
    fn has_come(deadline: Instant) -> bool {
        Self::now() >= deadline
    }

    /// Wakes at most `count` threads that sleep on `word`, those that came first first. Returns how many.
    ///
    /// `word` may be memory that is no longer an atomic: it is an address, and is not read.
    fn wake(word: *const Self::AtomicU32, count: usize) -> usize;

    /// Spins while `word` holds `value`, about `budget` times as long as one look takes.
    /// Returns whether it changed. The last look is a relaxed load.
    fn wait_until_changed(word: &Self::AtomicU32, value: u32, budget: u32) -> bool;

    /// As [`wait_until_changed`](Self::wait_until_changed), for a pointer.
    fn wait_until_changed_ptr<T>(word: &Self::AtomicPtr<T>, value: *mut T, budget: u32) -> bool {
        for _ in 0..budget {
            if word.load(Ordering::Relaxed) != value {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// Keeps the CPU busy for about as long as `looks` looks of [`wait_until_changed`](Self::wait_until_changed) take,
    /// without looking at anything: for who has lost a race for a word and lets others go first.
    #[inline]
    fn pause(looks: u32) {
        for _ in 0..looks {
            core::hint::spin_loop();
        }
    }

    /// Lets another thread run that can.
    fn yield_now();

    /// Sleeps for at least `duration`.
    fn sleep(duration: Duration);

    /// Has the caller's sleeps end as soon after their deadlines as the system can, from now on, instead of together with
    /// those of others a little later. For the few threads of which others expect the time.
    #[inline]
    fn wake_exactly() {}

    // ---- time and place --------------------------------------------------------------------------------

    /// Now, on the monotonic clock.
    fn now() -> Instant;

    /// The CPU that the caller runs on. It may run on another one by the time it looks at the answer.
    fn current_cpu() -> usize;

    /// The machine, and what this process may use of it, read anew. Takes a tenth of a second on a large machine.
    ///
    /// If not all of it can be read, the answer has what is known, and is [not whole](Topology::is_whole).
    ///
    /// # Errors
    /// If not even the CPUs of the machine are known; the text says why.
    fn machine() -> Result<Machine, String>;

    /// Looks at the machine again, as far as it may have changed. `known` returns what was read before: a platform may compare with that
    /// before it reads everything, so that a look is cheap on a machine that has not changed. A platform that always reads everything does
    /// not call it.
    ///
    /// # Errors
    /// If what may have changed cannot be read; what was known before stays valid.
    fn look_again<K: AsRef<Topology> + AsRef<Limits>>(
        known: impl FnOnce() -> Arc<K>,
    ) -> Result<Look, String> {
        drop(known);
        Self::machine()
            .map(|machine| Look { topology: Some(machine.topology), limits: machine.limits })
    }

    // ---- threads ---------------------------------------------------------------------------------------

    /// Starts a thread. A name that is refused or too long is cut; a nice or an affinity that is refused is
    /// reported to `spec.refused` from the new thread, which runs all the same. Of `spec.scheduling` it has what
    /// [`favour`](Self::favour) can give it, and nothing is reported: [`scheduling`](Self::scheduling) tells.
    ///
    /// # Errors
    /// The thread could not be created (limits on processes, memory).
    fn spawn(
        spec: ThreadSpec,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<Self::JoinHandle, Refused>;

    /// Waits until the thread has ended. What it wrote is visible.
    fn join(handle: Self::JoinHandle);

    /// The caller.
    fn current_thread() -> Self::Thread;

    /// A number that a person can find in the system's own tools (on Linux: the thread id).
    fn thread_id(thread: Self::Thread) -> u64;

    /// The CPUs on which the thread may run now.
    ///
    /// # Errors
    /// The thread is gone.
    fn affinity(thread: Self::Thread) -> Result<CpuSet, Refused>;

    /// Restricts the thread to `cpus`. When it returns, the caller itself runs inside `cpus`.
    ///
    /// # Errors
    /// No CPU of `cpus` is allowed, or the thread is gone, or not ours.
    fn set_affinity(thread: Self::Thread, cpus: &CpuSet) -> Result<(), Refused>;

    /// The nice value in effect.
    ///
    /// # Errors
    /// The thread is gone.
    fn nice(thread: Self::Thread) -> Result<i32, Refused>;

    /// Sets the scheduling class, nice value and the length of the time slice in one call; a `slice` of `None` is the system's own.
    ///
    /// # Errors
    /// Refused by privilege, or not known to this kernel.
    fn set_scheduling(
        thread: Self::Thread,
        policy: SchedPolicy,
        nice: i32,
        slice: Option<Duration>,
    ) -> Result<(), Refused>;

    /// The scheduling class, nice value and slice in effect; a `slice` of `None` is one that the system does not tell. A class
    /// that [`SchedPolicy`] does not know is `Normal`.
    ///
    /// # Errors
    /// The thread is gone.
    fn scheduling(thread: Self::Thread) -> Result<Scheduling, Refused>;

    /// Sets as much of `wanted` as is allowed and known here: where its nice value is refused, the one nearest to it that is not.
    /// What this system has not (slices, the idle class) is left out without a word; in place of the class `Idle` the nice value
    /// counts alone.
    ///
    /// # Errors
    /// Something was refused; the rest was done. Or the thread is gone.
    fn favour(thread: Self::Thread, wanted: Scheduling) -> Result<(), Refused> {
        Self::set_scheduling(thread, wanted.policy, wanted.nice, wanted.slice)
    }

    /// The nice value that the caller could have now if it asked for `wanted`: that, or the nearest that is allowed. Leaves the
    /// caller as it was.
    fn attainable_nice(wanted: i32) -> i32 {
        wanted
    }

    /// CPU time that the thread has used.
    ///
    /// # Errors
    /// The thread is gone.
    fn cpu_time(thread: Self::Thread) -> Result<Duration, Refused>;

    /// What the thread is doing. One that is gone has [`Ended`](RunState::Ended).
    ///
    /// # Errors
    /// The state cannot be read (no `/proc`).
    fn run_state(thread: Self::Thread) -> Result<RunState, Refused>;

    /// Prepares to ask for the thread's state often.
    fn watch(thread: Self::Thread) -> Self::Watch;

    /// As [`run_state`](Self::run_state), and faster from the second time on.
    ///
    /// # Errors
    /// As [`run_state`](Self::run_state).
    fn watched_state(watch: &mut Self::Watch) -> Result<RunState, Refused>;

    /// Where a thread sleeps, in the system's own words (on Linux: the kernel's function, or the number of the system call). None if
    /// it does not sleep, or the system does not tell.
    fn sleeps_in(_thread: Self::Thread) -> Option<String> {
        None
    }

    /// Whether the caller is of a real-time class now (on Linux: `SCHED_FIFO`, `SCHED_RR`, `SCHED_DEADLINE`). A system call.
    ///
    /// For such a thread [`yield_now`](Self::yield_now) lets nobody run that is less urgent, and may take the rest of its time.
    fn is_real_time() -> bool {
        false
    }

    /// How urgent the caller is now: 0 for a thread of an ordinary class, a greater number for a more urgent thread of a real-time class.
    /// On Linux it is the priority for `SCHED_FIFO` and `SCHED_RR`, and a number above all priorities for `SCHED_DEADLINE`. One or two
    /// system calls.
    fn urgency() -> u32 {
        0
    }

    /// The caller's slot, as last set by [`set_slot`](Self::set_slot); null before.
    fn slot() -> *const ();

    /// Sets the caller's slot: one pointer per thread, for "the worker that I am".
    fn set_slot(value: *const ());

    /// The caller's second slot, as last set by [`set_ending`](Self::set_ending); null before, and where there is none.
    fn ending() -> *const ();

    /// Sets the caller's second slot: one more pointer per thread, for "the ends that I am within".
    fn set_ending(value: *const ());

    /// The caller's number, as last set by [`set_employer`](Self::set_employer); 0 before.
    fn employer() -> u64;

    /// Sets the caller's number, for "the runtime that started me". It stays until the thread's last instruction, destructors of
    /// thread-locals included.
    fn set_employer(number: u64);

    // ---- what locks need -------------------------------------------------------------------------------

    /// Which CPUs are near each other, read anew; one place with one CPU where the machine cannot be read.
    fn places() -> Places {
        Self::machine().map_or_else(|_| Places::single(1), |machine| Places::of(&machine))
    }

    /// What the locks of this process share, as [`share`](Self::share) returned it; null before, and where there is no
    /// process to ask (outside of a simulation).
    fn shared() -> *const ();

    /// What the locks of this process share. `make` makes it where nobody has yet; of several that are made at the same
    /// time one stays, `end` takes the others back, and also the one that stays where the platform's process ends and
    /// the program does not. What was done before it was made is visible.
    ///
    /// # Safety
    /// `make` always makes the same kind of thing; it may be used by all threads until the process ends, and `end` may be
    /// called with it.
    unsafe fn share(make: fn() -> *const (), end: unsafe fn(*const ())) -> *const ();

    /// The caller's number in the locks' tables, as last set by [`set_number`](Self::set_number); 0 before.
    fn number() -> u32;

    /// Sets the caller's number. When the thread ends, `end` is called by it with the number that it has then, if that is
    /// not 0 (never in a model). False if `end` will not be called: the thread is ending and has done it already, or the
    /// system cannot note it; the number is set all the same. Allocates nothing, unless it is called for the first time in a
    /// program that has noted much of the kind before.
    fn set_number(number: u32, end: fn(u32)) -> bool;

    /// Calls `with` with the list of locks that the caller holds, which locks note there in debug builds; a copy of it is that of the
    /// child's thread after a fork. Costs nothing where there is a clock that would count it, and is no step of a model. None
    /// where the caller is no thread of the platform (outside of a simulation). `with` does not call the platform.
    fn with_held<R>(with: impl FnOnce(&Held) -> R) -> Option<R>;

    // ---- forks -----------------------------------------------------------------------------------------

    /// The signals that the caller has blocked; none where there are no signals.
    fn signal_mask() -> SignalMask {
        SignalMask::default()
    }

    /// How many forks lie between the program's start and this process; what was made in another epoch is another
    /// process's. Forks are counted from the first [`follow_forks`](Self::follow_forks) on. Never changes while two
    /// threads of a process live. One load; a constant where nothing forks.
    #[inline(always)]
    fn fork_epoch() -> u64 {
        0
    }

    /// From now on, each fork of this process calls `hooks` with `subject`, until
    /// [`unfollow_forks`](Self::unfollow_forks). Nothing where nothing forks.
    ///
    /// # Safety
    /// Until `unfollow_forks(subject)` returns, the hooks may be called with `subject` by any thread that forks, and after
    /// the fork in the child too.
    unsafe fn follow_forks(_subject: *const (), _hooks: &'static ForkHooks) {}

    /// Forks do not touch `subject` any more when this returns. Nothing if they never did. Not from inside a hook.
    fn unfollow_forks(_subject: *const ()) {}

    // ---- homes -----------------------------------------------------------------------------------------

    /// Tells the machine's scheduler that a thread is at home on a node, as the system numbers nodes, or on none any more: where it is to
    /// run if there is room. A wish, which changes nothing of where it may run, and nothing at all where nobody listens. For changes,
    /// not for each item: where somebody listens it takes some microseconds. The thread is the caller, or does not end meanwhile.
    fn tell_home(_thread: Self::Thread, _node: Option<usize>) {}

    /// Who hears [`tell_home`](Self::tell_home): another number is another one, who has heard nothing yet; 0 where nobody listens. For
    /// now and then: it takes a microsecond or two.
    fn hears_homes() -> u64 {
        0
    }

    // ---- memory placement ------------------------------------------------------------------------------

    /// Where the pages that the caller touches first shall come from.
    ///
    /// # Errors
    /// Refused by a container, or a node that does not exist.
    fn set_memory_policy(policy: &MemoryPolicy) -> Result<(), Refused>;

    /// Where the pages that the caller touches first come from now: what was [set](Self::set_memory_policy), or what it has from
    /// the thread that started it.
    ///
    /// # Errors
    /// Refused by a container, or a policy that [`MemoryPolicy`] has no word for.
    fn memory_policy() -> Result<MemoryPolicy, Refused>;

    /// Where the pages of a range shall come from; with `move_pages`, those already there are moved.
    ///
    /// The range is widened to whole pages inwards: a page that is only partly inside is left alone.
    ///
    /// # Errors
    /// As [`set_memory_policy`](Self::set_memory_policy).
    fn bind_memory(range: &[u8], policy: &MemoryPolicy, move_pages: bool) -> Result<(), Refused>;

    /// On which node each sampled page of a range is; at most `samples` pages, spread evenly.
    ///
    /// # Errors
    /// Refused by a container.
    fn residency(range: &[u8], samples: usize) -> Result<Residency, Refused> {
        let start = range.as_ptr().addr();
        Self::residency_at(start..start + range.len(), samples)
    }

    /// As [`residency`](Self::residency), of addresses, which are looked up and not followed: where no memory is, pages are absent.
    ///
    /// # Errors
    /// As [`residency`](Self::residency).
    fn residency_at(range: Range<usize>, samples: usize) -> Result<Residency, Refused>;

    /// Bytes in a page: memory that is placed by itself begins and ends with one.
    fn page_size() -> usize {
        4096
    }

    // ---- saying ----------------------------------------------------------------------------------------

    /// A setting from outside the program (on Linux: an environment variable).
    fn setting(name: &str) -> Option<String>;

    /// Tells the person who runs the program one line (on Linux: standard error).
    fn warn(line: &str);

    /// As [`warn`](Self::warn), but only the first time that this process warns of `cause`. Two warnings should have the same cause if a
    /// person would do the same about both, whichever threads or objects they are about.
    fn warn_once(cause: &str, line: &str);
}

/// What [`Platform::follow_forks`] has called around a fork. All by the thread that forks, and one fork at a time.
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
    /// [`Platform::fork_epoch`] has the new value already.
    pub child: unsafe fn(*const ()),
}

/// A platform on which atomics can be made in constants: statics and `const fn new` work there.
pub trait ConstPlatform:
    Platform<AtomicU16: ConstAtomic, AtomicU32: ConstAtomic, AtomicU64: ConstAtomic>
{
}

impl<P> ConstPlatform for P where
    P: Platform<AtomicU16: ConstAtomic, AtomicU32: ConstAtomic, AtomicU64: ConstAtomic>
{
}

/// How a [`Platform::wait`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Woken, or for no reason.
    Woken,
    /// The word did not hold the expected value; the caller did not sleep.
    Changed,
    /// The deadline came.
    TimedOut,
}

/// The machine and what this process may use of it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// The CPUs and the quota that this process has.
    pub limits: Limits,
}

/// What a [look](Platform::look_again) at the machine has found.
#[derive(Clone, Debug)]
pub struct Look {
    /// The machine; `None` if it is known not to have changed.
    pub topology: Option<Topology>,
    /// The CPUs and the quota that this process has now.
    pub limits: Limits,
}

/// What a thread is doing, as far as the system tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// On a CPU, or ready and waiting for one.
    Runnable,
    /// Asleep: waiting for an event, a lock or a device.
    Blocked,
    /// Ended.
    Ended,
}

/// A scheduling class for ordinary work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedPolicy {
    /// The ordinary class (`SCHED_OTHER`).
    Normal,
    /// Only when nothing else wants the CPU (`SCHED_IDLE`).
    Idle,
}

/// How the scheduler treats a thread of the ordinary classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The class.
    pub policy: SchedPolicy,
    /// The nice value, -20 (most favoured) to 19.
    pub nice: i32,
    /// How long it runs in one go while others want its CPU, which also says how soon it gets that after a sleep; `None` is the
    /// system's own.
    pub slice: Option<Duration>,
}

/// The signals that a thread has blocked: bit `n - 1` is signal `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMask(pub u64);

/// How a thread is started.
#[derive(Clone, Debug, Default)]
pub struct ThreadSpec {
    /// Shown by the system's own tools; at most 15 bytes on Linux.
    pub name: String,
    /// Bytes of stack; `None` is the system's default.
    pub stack_size: Option<usize>,
    /// The CPUs it may run on, from its first instruction; `None` inherits the creator's.
    pub affinity: Option<CpuSet>,
    /// Its nice value; `None` inherits the creator's.
    pub nice: Option<i32>,
    /// Its class, nice value and slice, as far as they are allowed, before anything else; `None` inherits the creator's.
    pub scheduling: Option<Scheduling>,
    /// The signals that it blocks, as from its first instruction; with `None` it blocks all but those that its own faults raise. No
    /// signal is taken before the thread has that mask.
    pub signals: Option<SignalMask>,
    /// Told of a nice value or an affinity that was refused.
    pub refused: Option<fn(&Refused)>,
}

/// Where memory comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemoryPolicy {
    /// The node of the CPU that touches it first.
    Local,
    /// This node while it has memory, others after.
    Preferred(usize),
    /// These nodes only.
    Bind(Vec<usize>),
    /// These nodes in turn, page by page.
    Interleave(Vec<usize>),
}

/// How many pages of a range are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Residency {
    /// Pages per node, by node number.
    pub pages: Vec<usize>,
    /// Pages that nobody has touched yet, or that are swapped out.
    pub absent: usize,
    /// Bytes a page.
    pub page_size: usize,
}

/// Pages of a range that are looked up to know where it is: some 0.1 ms on Linux.
const SAMPLES: usize = 256;

impl Residency {
    /// Where a range is, by 256 pages of it at most, spread evenly.
    ///
    /// ```
    /// # use nearq_platform as nearq;
    /// # #[cfg(target_os = "linux")] {
    /// let memory = vec![1_u8; 1 << 20];
    /// match nearq::Residency::of(&memory) {
    ///     Ok(residency) => println!("pages by node: {:?}", residency.pages),
    ///     Err(refused) => println!("{refused}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Refused by a container.
    #[cfg(target_os = "linux")]
    pub fn of(range: &[u8]) -> Result<Self, Refused> {
        Self::of_in::<crate::Linux>(range)
    }

    /// As `of`, on the platform that the type says.
    ///
    /// # Errors
    /// Refused by a container.
    pub fn of_in<P: Platform>(range: &[u8]) -> Result<Self, Refused> {
        P::residency(range, SAMPLES)
    }

    /// The node with most of the pages, the first of several; `None` where nothing is there.
    pub fn most(&self) -> Option<usize> {
        let pages = self.pages.iter().enumerate().filter(|(_, pages)| **pages > 0);
        pages.max_by_key(|(node, pages)| (**pages, core::cmp::Reverse(*node))).map(|(node, _)| node)
    }
}
