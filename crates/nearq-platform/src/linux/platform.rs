//! `Linux`, and its implementations of the traits of a [platform](crate::Platform).

use core::cell::{Cell, UnsafeCell};
use core::hint::spin_loop;
use core::mem::ManuallyDrop;
use core::num::NonZeroU64;
use core::ops::Range;
use core::ptr;
use core::sync::atomic::{self, AtomicPtr, AtomicU16, AtomicU32, AtomicU64};
use core::time::Duration;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;
use std::sync::Arc;

use nearq_topology::{CpuSet, Limits, Topology};

use super::thread::Thread;
use super::{
    ending, fences, fork, home_hint, machine, memory, retry, run_state, spawn, thread, wake_hint,
};
use crate::sys::{self, Errno};
use crate::{
    Attempt, CacheMap, ForkHooks, HeldLocks, Instant, LockPlatform, Machine, MachineChange,
    MemoryPolicy, Ordering, OsError, Placement, Residency, RunState, Said, SchedPolicy, Scheduling,
    SignalMask, ThreadSpec, Threads, Wait,
};

/// The machine that the program runs on.
///
/// # What the calls cost
/// On a virtual x86-64 machine of two CPUs with Linux 6.18; `tests/linux/costs.rs` measures it again.
///
/// | call | cost |
/// |---|---|
/// | [`current_cpu`](LockPlatform::current_cpu), [`slot`](Threads::slot) | below 1 ns |
/// | `current_cpu` where the C library is not GNU's 2.35 or later | 4 ns |
/// | [`now`](LockPlatform::now) | 22 ns |
/// | [`current_thread`](Threads::current_thread) | 0.1 µs |
/// | [`wake`](LockPlatform::wake) that finds no sleeper, [`wait`](LockPlatform::wait) that finds another value | 0.2 µs |
/// | [`cpu_time`](Threads::cpu_time) | 0.2 µs |
/// | [`affinity`](Placement::affinity), [`set_affinity`](Placement::set_affinity) without a move | 1 to 1.5 µs |
/// | two threads waking each other, there and back | 4 µs on one CPU, 30 to 50 µs between idle ones |
/// | [`run_state`](Threads::run_state) | 8 µs |
/// | [`watched_state`](Threads::watched_state) from the second time on | WATCHED |
/// | [`spawn`](Threads::spawn) and [`join`](Threads::join) | 25 to 50 µs |
///
/// # What it does beyond the trait's promises
/// - **Waking** goes in the order in which the threads fell asleep, threads of a real-time class first.
/// - **Threads** that it spawns block all signals except those that a fault of their own raises (`SIGSEGV`, `SIGBUS`, `SIGFPE`, `SIGILL`,
///   `SIGTRAP`, `SIGSYS`), from their first instruction: the program's handlers run on the program's threads. A stack size of `None` is
///   that of every Rust thread: `RUST_MIN_STACK`, or 2 MiB. The thread gives itself its class, nice value and affinity before anything
///   else, so that `main` and everything it allocates are where they belong. It sets the first two before the third, so that a favoured
///   thread does not wait for a crowded CPU like an ordinary one.
/// - **A thread that has ended** is distinguished from a thread of another program that was given its number:
///   such calls end with `ESRCH`, and [`run_state`](Threads::run_state) says `Ended`.
/// - **Nice** values belong to one thread, not to the process, as everywhere on Linux. Values out of range are clamped.
/// - **Watching** a thread keeps a file open, of which a process has 64 at most; for threads beyond that each state costs as much
///   as by `run_state`. A program may close all files it does not know, so a file is checked before it is read or closed.
/// - **Slices** in [`set_scheduling`](Threads::set_scheduling) are heeded by Linux 6.12 and later, which cut
///   them to 0.1 to 100 ms; older kernels accept and ignore them, and so does the class `Idle`. Leaving that
///   class needs the same privilege as being favoured more.
/// - **Homes** are reported to the node affine scheduler of the whole machine if it is loaded and allows this user to report them.
///   Nothing is reported about a process's first thread, because its number stands for all of them. Nothing is reported in a process
///   namespace other than the first one, where numbers differ.
/// - **Memory:** the policy `Local` restores the thread's system default, which is local too, and leaves the
///   kernel's own balancing between nodes on.
/// - **A machine that cannot be read** (no `/sys`, no file descriptors, a filter on system calls): the CPUs that the process may use stand
///   in for it, on one node. One warning says what could not be read, with the path and the error; this also holds for a machine that could
///   be read only in part. Each check tries to read the machine again.
/// - **A [later check](Placement::reread_machine)** reads a dozen files, however large the machine is: those of the control group, and the
///   lists of the CPUs and nodes that are online. [`Topology::reread`] says what it does not see.
/// - **Forks** are those that the C library's `fork` makes, also for `Command` with a `pre_exec`; not `vfork`,
///   `posix_spawn` (what `Command` uses without one) or `clone` called by hand.
/// - **Settings** are environment variables; what is not Unicode in them is replaced by U+FFFD.
/// - **Warnings** are one line on standard error that begins with `nearq: `, written at once and without a lock: a child
///   of a fork may warn although another thread of its parent was writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Linux;

thread_local! {
    /// One pointer for each thread. Made by the compiler, without a destructor: reading it is one load, and
    /// it can be read until the thread's last instruction.
    static SLOT: Cell<*const ()> = const { Cell::new(ptr::null()) };
    static ENDING: Cell<*const ()> = const { Cell::new(ptr::null()) };
    static EMPLOYER: Cell<u64> = const { Cell::new(0) };

    /// The thread's number in the locks' tables. Likewise.
    static NUMBER: Cell<u32> = const { Cell::new(0) };

    /// What the thread holds. Likewise. Only debug builds of the locks use it; if nothing does, the linker leaves it out.
    static HELD: HeldLocks = const { HeldLocks::new() };

    /// What to call with that number when the thread ends.
    static END: Cell<Option<fn(u32)>> = const { Cell::new(None) };
}

/// Called when the caller's thread ends.
fn thread_ends() {
    let number = NUMBER.replace(0);
    if let Some(end) = END.get().filter(|_| number != 0) {
        end(number);
    }
}

/// The state that the locks share; it lives as long as the process.
static SHARED: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// The causes of the warnings given so far.
static WARNED_CAUSES: Said = Said::new();

impl LockPlatform for Linux {
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        waited(sys::futex_wait(word, expected, deadline.map(by_clock)))
    }

    fn wake(word: *const AtomicU32, count: usize) -> usize {
        // An error means that no thread can sleep there: EFAULT (not an address of a program), EINVAL (the
        // memory was given back, and holds another kind of lock now).
        sys::futex_wake(word, count).unwrap_or(0)
    }

    #[inline]
    fn wait_until_changed(word: &AtomicU32, value: u32, budget: u32) -> bool {
        for _ in 0..budget {
            // Relaxed, as the trait says: the caller decides by an ordered access.
            if word.load(Ordering::Relaxed) != value {
                return true;
            }
            spin_loop();
        }
        word.load(Ordering::Relaxed) != value
    }

    fn yield_now() {
        std::thread::yield_now();
    }

    fn sleep(duration: Duration) {
        std::thread::sleep(duration);
    }

    #[inline]
    fn now() -> Instant {
        Instant::from_nanos(sys::monotonic())
    }

    #[inline]
    fn has_come(deadline: Instant) -> bool {
        match deadline.real_time() {
            None => Self::now() >= deadline,
            Some(nanos) => sys::real_time() >= nanos,
        }
    }

    #[inline]
    fn current_cpu() -> usize {
        sys::current_cpu()
    }

    fn cache_map() -> CacheMap {
        Self::machine().map_or_else(|_| CacheMap::single(1), |machine| CacheMap::of(&machine))
    }

    #[inline]
    fn number() -> u32 {
        NUMBER.get()
    }

    fn set_number(number: u32, end: fn(u32)) -> bool {
        NUMBER.set(number);
        END.set(Some(end));
        ending::call_at_thread_end(thread_ends)
    }

    #[inline]
    fn with_held<R>(with: impl FnOnce(&HeldLocks) -> R) -> Option<R> {
        Some(HELD.with(with))
    }

    fn is_real_time() -> bool {
        sys::is_real_time()
    }

    fn urgency() -> u32 {
        sys::urgency()
    }

    #[inline]
    fn shared() -> *const () {
        // Acquire: pairs with the release in `share`.
        SHARED.load(Ordering::Acquire)
    }

    unsafe fn share(make: fn() -> *const (), end: unsafe fn(*const ())) -> *const () {
        let there = Self::shared();
        if !there.is_null() {
            return there;
        }
        let made = make();
        // Release: pairs with the acquire of a thread that finds it. Acquire on failure: we use another thread's.
        match SHARED.compare_exchange(
            ptr::null_mut(),
            made.cast_mut(),
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            Ok(_) => made,
            Err(there) => {
                // SAFETY: ours, made a moment ago and not published.
                unsafe { end(made) };
                there
            }
        }
    }

    #[inline(always)]
    fn fork_epoch() -> u64 {
        fork::epoch()
    }

    unsafe fn follow_forks(subject: *const (), hooks: &'static ForkHooks) {
        if let Err(error) = fork::follow(subject, hooks) {
            let line = format!(
                "the C library cannot register a fork handler: {error}; a child process must not use nearq"
            );
            Self::warn_once("fork", &line);
        }
    }

    fn unfollow_forks(subject: *const ()) {
        fork::unfollow(subject);
    }

    fn bind_memory(range: &[u8], policy: &MemoryPolicy, move_pages: bool) -> Result<(), OsError> {
        memory::bind(range, policy, move_pages)
    }

    fn page_size() -> usize {
        sys::page_size()
    }

    fn setting(name: &str) -> Option<String> {
        // Not `var`, which has no answer for text that is not Unicode: a setting that is wrong should be
        // seen and complained about, not ignored.
        std::env::var_os(name).map(to_text)
    }

    fn warn(line: &str) {
        let line = format!("nearq: {}\n", line.trim_end().replace(char::is_control, " "));
        // Written at once, so that lines of several threads do not mix. If nothing reads them, nothing is lost. Not by
        // `std::io::stderr`: its lock would stay held for good in the child of a fork that came while it was held. SAFETY:
        // validity: a write to a descriptor that is not open is an error. Thread and aliasing: the file is never closed by
        // us (it is not dropped), and any thread may write to standard error.
        let stderr = ManuallyDrop::new(unsafe { File::from_raw_fd(libc::STDERR_FILENO) });
        let _ = (&*stderr).write_all(line.as_bytes());
    }

    fn warn_once(cause: &str, line: &str) {
        if WARNED_CAUSES.is_first(cause) {
            Self::warn(line);
        }
    }
}

impl Threads for Linux {
    type Cell<T> = UnsafeCell<T>;
    type Thread = Thread;
    type JoinHandle = std::thread::JoinHandle<()>;
    type Watch = run_state::Watch;

    #[inline(always)]
    fn fence(order: Ordering) {
        atomic::fence(order);
    }

    #[inline(always)]
    fn light_fence() {
        fences::light();
    }

    fn heavy_fence() -> bool {
        fences::heavy()
    }

    fn wait_for_work(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        retry::wait(word, expected, deadline)
    }

    fn retry_later(attempt: Attempt) {
        retry::RETRIES.add(attempt);
    }

    #[inline]
    fn retry_now() {
        if Self::has_retries() {
            retry::RETRIES.make(Self::fork_epoch(), Self::now());
        }
    }

    #[inline]
    fn has_retries() -> bool {
        !retry::RETRIES.is_empty(Self::fork_epoch())
    }

    fn wake_exactly() {
        // The smallest slack; by default a sleep may take 50 µs longer. If the call is refused, the default stays in effect.
        let _ = sys::set_timer_slack(NonZeroU64::MIN);
    }

    fn spawn(
        spec: ThreadSpec,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<Self::JoinHandle, OsError> {
        spawn::spawn(spec, main)
    }

    fn signal_mask() -> SignalMask {
        SignalMask(sys::SignalMask::of_caller().bits())
    }

    fn join(handle: Self::JoinHandle) {
        // If `main` panicked, the panic hook has reported it; the thread has ended in either case.
        let _ = handle.join();
    }

    fn current_thread() -> Thread {
        Thread::current()
    }

    fn thread_id(thread: Thread) -> u64 {
        thread.id()
    }

    fn nice(thread: Thread) -> Result<i32, OsError> {
        thread::nice(thread)
    }

    fn set_scheduling(
        thread: Thread,
        policy: SchedPolicy,
        nice: i32,
        slice: Option<Duration>,
    ) -> Result<(), OsError> {
        thread::set_scheduling(thread, policy, nice, slice)
    }

    fn scheduling(thread: Thread) -> Result<Scheduling, OsError> {
        thread::scheduling(thread)
    }

    fn favour(thread: Thread, wanted: Scheduling) -> Result<(), OsError> {
        thread::favour(thread, wanted)
    }

    fn attainable_nice(wanted: i32) -> i32 {
        thread::attainable_nice(wanted)
    }

    fn cpu_time(thread: Thread) -> Result<Duration, OsError> {
        thread::cpu_time(thread)
    }

    fn run_state(thread: Thread) -> Result<RunState, OsError> {
        run_state::of(thread)
    }

    fn watch(thread: Thread) -> run_state::Watch {
        run_state::Watch::new(thread)
    }

    fn watched_state(watch: &mut run_state::Watch) -> Result<RunState, OsError> {
        watch.state()
    }

    fn sleeps_in(thread: Thread) -> Option<String> {
        run_state::sleeps_in(thread)
    }

    // Always: LLVM leaves the calls to the closures of `thread_local!` in recursive functions that call this.
    #[inline(always)]
    fn slot() -> *const () {
        SLOT.get()
    }

    #[inline]
    fn set_slot(value: *const ()) {
        SLOT.set(value);
    }

    fn ending() -> *const () {
        ENDING.get()
    }

    fn set_ending(value: *const ()) {
        ENDING.set(value);
    }

    fn employer() -> u64 {
        EMPLOYER.get()
    }

    fn set_employer(number: u64) {
        EMPLOYER.set(number);
    }
}

impl Placement for Linux {
    fn machine() -> Result<Machine, String> {
        machine::read()
    }

    fn reread_machine<K: AsRef<Topology> + AsRef<Limits>>(
        known: impl FnOnce() -> Arc<K>,
    ) -> Result<MachineChange, String> {
        let known = known();
        machine::reread_machine((*known).as_ref(), (*known).as_ref())
    }

    fn affinity(thread: Thread) -> Result<CpuSet, OsError> {
        thread::affinity(thread)
    }

    fn set_affinity(thread: Thread, cpus: &CpuSet) -> Result<(), OsError> {
        thread::set_affinity(thread, cpus)
    }

    fn set_home_hint(thread: Thread, node: Option<usize>) {
        home_hint::set_home_hint(thread, node);
    }

    fn set_wake_hint(thread: Thread, cpu: usize) {
        wake_hint::set(thread, cpu);
    }

    fn receives_wake_hints() -> bool {
        wake_hint::are_received()
    }

    fn hint_receiver() -> u64 {
        home_hint::hint_receiver()
    }

    fn set_memory_policy(policy: &MemoryPolicy) -> Result<(), OsError> {
        memory::set_default_policy(policy)
    }

    fn memory_policy() -> Result<MemoryPolicy, OsError> {
        memory::default_policy()
    }

    fn residency_at(range: Range<usize>, samples: usize) -> Result<Residency, OsError> {
        memory::residency(range, samples)
    }
}

fn to_text(value: OsString) -> String {
    value.into_string().unwrap_or_else(|value| value.to_string_lossy().into_owned())
}

/// A deadline as the system takes it.
fn by_clock(deadline: Instant) -> (libc::clockid_t, u64) {
    match deadline.real_time() {
        None => (libc::CLOCK_MONOTONIC, deadline.as_nanos()),
        Some(nanos) => (libc::CLOCK_REALTIME, nanos),
    }
}

/// How a sleep ended.
fn waited(outcome: Result<(), Errno>) -> Wait {
    match outcome {
        // Woken; perhaps for no reason: by a thread that meant what was at this address before, or (EINTR)
        // because a signal handler ran. The caller checks its word and waits again.
        Ok(()) | Err(Errno::INTR) => Wait::Woken,
        // The kernel found another value, under the lock that wakers take too.
        Err(Errno::AGAIN) => Wait::Changed,
        Err(Errno::TIMEDOUT) => Wait::TimedOut,
        Err(error) => cannot_wait(error),
    }
}

/// The errors of a futex wait that mean the program or the system is broken. Going on would mean spinning, or treating a sleep that did not
/// happen as one that did.
///
/// `EINVAL`: the word also holds a priority-inheritance lock, or the deadline is no time. `EFAULT`: the word
/// is not in memory. `ENOSYS`, `EPERM`: a kernel without futexes, or a filter that forbids them.
#[cold]
fn cannot_wait(error: Errno) -> ! {
    panic!("futex wait: {error}; nearq cannot run where threads cannot wait for each other")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_has_its_own_slot() {
        assert!(Linux::slot().is_null());
        let mark = &raw const MARK;
        Linux::set_slot(mark.cast());
        assert_eq!(Linux::slot(), mark.cast());
        std::thread::spawn(|| assert!(Linux::slot().is_null())).join().unwrap();
    }

    static MARK: u8 = 0;

    #[test]
    fn a_number_is_released_when_its_thread_exits() {
        static RELEASED: AtomicU32 = AtomicU32::new(0);
        fn end(number: u32) {
            RELEASED.fetch_add(number, Ordering::Relaxed);
        }
        assert_eq!(Linux::number(), 0);
        std::thread::spawn(|| {
            assert!(Linux::set_number(3, end));
            assert!(Linux::set_number(7, end));
            assert_eq!(Linux::number(), 7);
        })
        .join()
        .unwrap();
        std::thread::spawn(|| assert!(Linux::set_number(0, end))).join().unwrap();
        assert_eq!((RELEASED.load(Ordering::Relaxed), Linux::number()), (7, 0));
    }

    #[test]
    #[cfg_attr(miri, ignore = "the order of destructors is that of the GNU C library")]
    fn a_number_taken_in_a_destructor_is_released_or_refused() {
        static RELEASED: AtomicU32 = AtomicU32::new(0);
        static REFUSED: AtomicU32 = AtomicU32::new(0);
        fn end(number: u32) {
            RELEASED.fetch_add(number, Ordering::Relaxed);
        }
        struct Late;
        impl Drop for Late {
            fn drop(&mut self) {
                assert!(Linux::set_number(5, end), "thread-local values are dropped before");
            }
        }
        thread_local!(static LATE: Late = const { Late });
        extern "C" fn later_still(_: *mut libc::c_void) {
            REFUSED.store(u32::from(!Linux::set_number(0, end)), Ordering::Relaxed);
        }
        let mut key = 0;
        std::thread::spawn(|| assert!(Linux::set_number(0, end))).join().unwrap();
        // SAFETY: the key is ours; made after that of the platform, its destructor runs after that one's.
        assert_eq!(unsafe { libc::pthread_key_create(&raw mut key, Some(later_still)) }, 0);
        std::thread::spawn(move || {
            LATE.with(|_| {});
            // SAFETY: the key was made above and is not deleted; the value is not followed.
            assert_eq!(unsafe { libc::pthread_setspecific(key, (&raw const REFUSED).cast()) }, 0);
        })
        .join()
        .unwrap();
        assert_eq!((RELEASED.load(Ordering::Relaxed), REFUSED.load(Ordering::Relaxed)), (5, 1));
    }

    #[test]
    fn spinning_ends_at_the_limit_or_a_change() {
        let word = AtomicU32::new(1);
        assert!(!Linux::wait_until_changed(&word, 1, 0));
        assert!(!Linux::wait_until_changed(&word, 1, 10));
        assert!(Linux::wait_until_changed(&word, 2, 0));
        assert!(Linux::wait_until_changed(&word, 2, u32::MAX));
    }

    #[test]
    fn an_unset_setting_is_none() {
        assert_eq!(Linux::setting("NEARQ_A_SETTING_THAT_NOBODY_HAS"), None);
        assert_eq!(Linux::setting("="), None);
        assert_eq!(Linux::setting(""), None);
    }
}
