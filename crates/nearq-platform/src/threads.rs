//! What the runtime needs of threads in addition to what a lock needs: the trait [`Threads`], and the plain data that goes through it.
//!
//! The trait is for `nearq-core`, whose workers, monitor and timer are threads that are started, watched and favoured. The data: how a
//! thread is started ([`ThreadSpec`]), how it is scheduled ([`Scheduling`], [`SchedPolicy`]), what it is doing ([`RunState`]), which
//! signals it has blocked ([`SignalMask`]).

use core::time::Duration;

use nearq_topology::CpuSet;

use crate::{Atomic, Attempt, Instant, LockPlatform, Ordering, OsError, PlatformCell, Wait};

/// What a machine can do for threads: what they share beyond a lock's words, waiting for work, their start, scheduling, state and end.
///
/// **Blocking.** [`wait_for_work`](Self::wait_for_work) and [`join`](Self::join) give up the CPU too.
///
/// **What is relied on** for memory safety, in addition to [what a lock relies on](LockPlatform): fences order, a [cell](PlatformCell)
/// gives the address of the value in it, [`current_thread`](Self::current_thread) names the caller and no other thread,
/// [`slot`](Self::slot) and [`ending`](Self::ending) hold what the calling thread itself put there.
pub trait Threads: LockPlatform {
    /// Plain memory under a protocol.
    type Cell<T>: PlatformCell<T>;
    /// Names a thread while it lives and after it has ended. Cheap to copy.
    type Thread: Copy + Send + Sync + PartialEq + core::fmt::Debug + 'static;
    /// The right to wait for a thread's end. Dropping it lets the thread go on by itself.
    type JoinHandle: Send + Sync + 'static;
    /// A thread whose state is read again and again; see [`watch`](Self::watch).
    type Watch: Send + 'static;

    // ---- memory -----------------------------------------------------------------------------------------

    /// A memory fence.
    fn fence(order: Ordering);

    /// The cheap side of an asymmetric pair of fences; [`heavy_fence`](Self::heavy_fence) is the other.
    ///
    /// In Dekker's pattern, one thread writes *x*, calls `light_fence` and reads *y*; another writes *y*, calls `heavy_fence` and reads
    /// *x*. If `heavy_fence` returned true, at least one of them sees what the other wrote. Two light fences order nothing.
    ///
    /// For a pair in which one side is executed very often, and the other seldom. The default is a `SeqCst` fence on both sides.
    #[inline(always)]
    fn light_fence() {
        Self::fence(Ordering::SeqCst);
    }

    /// The expensive side of an asymmetric pair of fences; see [`light_fence`](Self::light_fence). It may make a system call, and may
    /// interrupt all CPUs that run threads of this process.
    ///
    /// False if the system refused it; then nothing is ordered, and the caller must not rely on what it reads.
    #[must_use]
    fn heavy_fence() -> bool {
        Self::fence(Ordering::SeqCst);
        true
    }

    // ---- waiting ----------------------------------------------------------------------------------------

    /// As [`wait`](LockPlatform::wait), for work that other threads of the program will do. While the caller waits, it makes the
    /// attempts that were [left to be made again](Self::retry_later), because there may be no other thread that could make them. The
    /// platform holds no lock while an attempt runs; an attempt may start threads.
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

    /// As [`wait_until_changed`](LockPlatform::wait_until_changed), for a pointer.
    fn wait_until_changed_ptr<T>(word: &Self::AtomicPtr<T>, value: *mut T, budget: u32) -> bool {
        for _ in 0..budget {
            if word.load(Ordering::Relaxed) != value {
                return true;
            }
            core::hint::spin_loop();
        }
        false
    }

    /// From now on, the caller's sleeps end as soon after their deadlines as the system can make them, instead of a little later together
    /// with those of other threads. For the few threads on whose timing others depend.
    #[inline]
    fn wake_exactly() {}

    // ---- start and end ----------------------------------------------------------------------------------

    /// Starts a thread. A name that is refused or too long is cut; a nice or an affinity that is refused is reported to `spec.refused` from
    /// the new thread, which runs anyway. It gets as much of `spec.scheduling` as [`favour`](Self::favour) can give it, and nothing is
    /// reported: [`scheduling`](Self::scheduling) shows the result.
    ///
    /// # Errors
    /// The thread could not be created (limits on processes, memory).
    fn spawn(
        spec: ThreadSpec,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<Self::JoinHandle, OsError>;

    /// The signals that the caller has blocked; none on a platform without signals.
    fn signal_mask() -> SignalMask {
        SignalMask::default()
    }

    /// Waits until the thread has ended. What it wrote is visible afterwards.
    fn join(handle: Self::JoinHandle);

    /// The caller.
    fn current_thread() -> Self::Thread;

    /// A number that a person can find in the system's own tools (on Linux: the thread id).
    fn thread_id(thread: Self::Thread) -> u64;

    // ---- scheduling -------------------------------------------------------------------------------------

    /// The nice value in effect.
    ///
    /// # Errors
    /// The thread is gone.
    fn nice(thread: Self::Thread) -> Result<i32, OsError>;

    /// Sets the scheduling class, nice value and the length of the time slice in one call; a `slice` of `None` is the system's own.
    ///
    /// # Errors
    /// The caller lacks the privilege, or this kernel does not know the policy.
    fn set_scheduling(
        thread: Self::Thread,
        policy: SchedPolicy,
        nice: i32,
        slice: Option<Duration>,
    ) -> Result<(), OsError>;

    /// The scheduling class, nice value and slice in effect; a `slice` of `None` is one that the system does not report. A class
    /// that [`SchedPolicy`] does not know is `Normal`.
    ///
    /// # Errors
    /// The thread is gone.
    fn scheduling(thread: Self::Thread) -> Result<Scheduling, OsError>;

    /// Sets as much of `wanted` as is allowed and known here: if its nice value is refused, the nearest one that is allowed. Features that
    /// this system lacks (slices, the idle class) are silently left out; without the class `Idle`, only the nice value is set.
    ///
    /// # Errors
    /// A part was refused, and the rest was done; or the thread is gone.
    fn favour(thread: Self::Thread, wanted: Scheduling) -> Result<(), OsError> {
        Self::set_scheduling(thread, wanted.policy, wanted.nice, wanted.slice)
    }

    /// The nice value that the caller could have now if it asked for `wanted`: that, or the nearest that is allowed. Leaves the
    /// caller as it was.
    fn attainable_nice(wanted: i32) -> i32 {
        wanted
    }

    // ---- state ------------------------------------------------------------------------------------------

    /// CPU time that the thread has used.
    ///
    /// # Errors
    /// The thread is gone.
    fn cpu_time(thread: Self::Thread) -> Result<Duration, OsError>;

    /// What the thread is doing. One that is gone has [`Ended`](RunState::Ended).
    ///
    /// # Errors
    /// The state cannot be read (no `/proc`).
    fn run_state(thread: Self::Thread) -> Result<RunState, OsError>;

    /// Prepares for reading the thread's state often.
    fn watch(thread: Self::Thread) -> Self::Watch;

    /// As [`run_state`](Self::run_state), and faster from the second time on.
    ///
    /// # Errors
    /// As [`run_state`](Self::run_state).
    fn watched_state(watch: &mut Self::Watch) -> Result<RunState, OsError>;

    /// Where a thread sleeps, in the system's own words (on Linux: the kernel's function, or the number of the system call). None if
    /// it does not sleep, or the system does not say.
    fn sleeps_in(_thread: Self::Thread) -> Option<String> {
        None
    }

    // ---- what is the caller's own -----------------------------------------------------------------------

    /// The caller's slot, as last set by [`set_slot`](Self::set_slot); null before.
    fn slot() -> *const ();

    /// Sets the caller's slot: one pointer per thread, for "the worker that I am".
    fn set_slot(value: *const ());

    /// The caller's second slot, as last set by [`set_ending`](Self::set_ending); null before, and on a platform without one.
    fn ending() -> *const ();

    /// Sets the caller's second slot: one more pointer per thread, for "the ends that I am within".
    fn set_ending(value: *const ());

    /// The caller's number, as last set by [`set_employer`](Self::set_employer); 0 before.
    fn employer() -> u64;

    /// Sets the caller's number, for "the runtime that started me". It stays until the thread's last instruction, destructors of
    /// thread-locals included.
    fn set_employer(number: u64);
}

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
    /// Its class, nice value and slice, as far as they are allowed, set before anything else; `None` inherits the creator's.
    pub scheduling: Option<Scheduling>,
    /// The signals that it blocks, from its first instruction; with `None` it blocks all except those that its own faults raise. No
    /// signal is taken before the thread has that mask.
    pub signals: Option<SignalMask>,
    /// Called with a nice value or an affinity that was refused.
    pub refused: Option<fn(&OsError)>,
}

/// How the scheduler treats a thread of the ordinary classes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scheduling {
    /// The class.
    pub policy: SchedPolicy,
    /// The nice value, -20 (most favoured) to 19.
    pub nice: i32,
    /// How long it runs without a break while other threads want its CPU. This also determines how soon it gets the CPU after a sleep;
    /// `None` is the system's own.
    pub slice: Option<Duration>,
}

/// A scheduling class for ordinary work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedPolicy {
    /// The ordinary class (`SCHED_OTHER`).
    Normal,
    /// Only when nothing else wants the CPU (`SCHED_IDLE`).
    Idle,
}

/// What a thread is doing, as far as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// On a CPU, or ready and waiting for one.
    Runnable,
    /// Asleep: waiting for an event, a lock or a device.
    Blocked,
    /// Ended.
    Ended,
}

/// The signals that a thread has blocked: bit `n - 1` is signal `n`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SignalMask(pub u64);
