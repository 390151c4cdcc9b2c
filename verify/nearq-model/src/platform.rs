//! The platform [`Loom`]: loom's threads and fences, a small made-up machine, and nothing else.

use core::cell::Cell as StdCell;
use core::ops::Range;
use core::time::Duration;

use nearq_platform::{
    Atomic, CacheMap, HeldLocks, Instant, LockPlatform, Machine, MemoryPolicy, Ordering, OsError,
    Placement, Residency, RunState, SchedPolicy, Scheduling, ThreadSpec, Threads, Wait,
};
use nearq_topology::{CpuSet, Limits, Topology};

use crate::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Cell, futex};

/// The machine that [`Loom`] claims to be: two last-level caches of two cores each.
const MACHINE: &str = "l3:2 core:2 pu:1";

loom::thread_local! {
    static SLOT: StdCell<*const ()> = StdCell::new(core::ptr::null());
    static ENDING: StdCell<*const ()> = StdCell::new(core::ptr::null());
    static EMPLOYER: StdCell<u64> = StdCell::new(0);
    static CPU: StdCell<usize> = StdCell::new(0);
    static NUMBER: StdCell<u32> = StdCell::new(0);
    static HELD: HeldLocks = HeldLocks::new();
    static DEADLINES_COME: StdCell<bool> = StdCell::new(false);
    static URGENCY: StdCell<u32> = StdCell::new(0);
    static JUMPS: StdCell<bool> = StdCell::new(false);
}

loom::lazy_static! {
    /// What the locks share. Created again for each execution of the model.
    static ref SHARED: Shared = Shared(StdCell::new((core::ptr::null(), nothing)));
    /// Whether it exists; this orders its creation before its use.
    static ref IS_SHARED: loom::sync::atomic::AtomicUsize = loom::sync::atomic::AtomicUsize::new(0);
}

type End = unsafe fn(*const ());

/// A pointer, and the function that takes back what it points to.
struct Shared(StdCell<(*const (), End)>);

// SAFETY: the threads of a model are coroutines of one thread, and no step of the model is taken while the cell is used.
unsafe impl Sync for Shared {}
// SAFETY: the coroutines that share it are of one thread, which also drops it.
unsafe impl Send for Shared {}

impl Drop for Shared {
    fn drop(&mut self) {
        let (shared, end) = self.0.get();
        if !shared.is_null() {
            // SAFETY: made for `end` (`LockPlatform::share`), and the execution's threads have ended.
            unsafe { end(shared) };
        }
    }
}

unsafe fn nothing(_shared: *const ()) {}

/// The platform for code inside `loom::model`.
#[derive(Clone, Copy, Debug)]
pub struct Loom;

impl Loom {
    /// Says what [`LockPlatform::current_cpu`] answers in this thread from now on; 0 before.
    pub fn set_current_cpu(cpu: usize) {
        CPU.with(|own| own.set(cpu));
    }

    /// Says whether the deadlines of this thread's waits come from now on. They come at the moment at which it would sleep, and only then:
    /// what may happen before or after is explored, as for any step. Before the first call, deadlines never come.
    pub fn set_deadlines_come(come: bool) {
        DEADLINES_COME.with(|own| own.set(come));
    }

    /// Calls `what`, and jumps out of it when it would sleep, as a signal handler may do. The jump is an unwinding: `what` must have
    /// nothing to drop on the way. True if `what` ran to its end instead.
    ///
    /// # Panics
    /// If `what` does.
    pub fn jump_out_of(what: impl FnOnce()) -> bool {
        JUMPS.with(|own| own.set(true));
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(what));
        JUMPS.with(|own| own.set(false));
        match outcome {
            Ok(()) => true,
            Err(payload) if payload.is::<Jumped>() => false,
            Err(payload) => std::panic::resume_unwind(payload),
        }
    }

    /// Sets what [`LockPlatform::urgency`] returns in this thread from now on; 0 before.
    pub fn set_urgency(urgency: u32) {
        URGENCY.with(|own| own.set(urgency));
    }
}

/// What unwinds a thread that jumps out of its sleep ([`Loom::jump_out_of`]).
struct Jumped;

/// A loom thread's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(loom::thread::ThreadId);

/// Waits for a loom thread's end.
#[derive(Debug)]
pub struct JoinHandle(loom::thread::JoinHandle<()>);

impl LockPlatform for Loom {
    type AtomicU16 = AtomicU16;
    type AtomicU32 = AtomicU32;
    type AtomicU64 = AtomicU64;
    type AtomicPtr<T> = AtomicPtr<T>;

    fn wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        let jumps = JUMPS.with(StdCell::get);
        let comes = jumps || deadline.is_some() && DEADLINES_COME.with(StdCell::get);
        let outcome = futex::wait(word, expected, comes);
        if jumps && outcome == Wait::TimedOut {
            // Not a panic, so that no message is printed: nothing is wrong.
            std::panic::resume_unwind(Box::new(Jumped));
        }
        outcome
    }

    fn wake(word: *const AtomicU32, count: usize) -> usize {
        futex::wake(word, count)
    }

    /// Reads once. With the budget `u32::MAX`, which says that the caller reads until it changes, it lets the
    /// other threads go on first. With a smaller one it does not: loom runs a thread that has yielded only when
    /// the others cannot go on, so what the caller does after an unsuccessful read would not be explored.
    #[track_caller]
    fn wait_until_changed(word: &AtomicU32, value: u32, budget: u32) -> bool {
        if budget == u32::MAX {
            loom::thread::yield_now();
        }
        word.load(Ordering::Relaxed) != value
    }

    fn yield_now() {
        loom::thread::yield_now();
    }

    fn sleep(_duration: Duration) {
        loom::thread::yield_now();
    }

    #[track_caller]
    fn model_fence() {
        loom::sync::atomic::fence(Ordering::SeqCst);
    }

    fn now() -> Instant {
        Instant::from_nanos(0)
    }

    fn current_cpu() -> usize {
        CPU.with(StdCell::get)
    }

    fn cache_map() -> CacheMap {
        CacheMap::of(&Self::machine().expect("the made-up machine is well formed"))
    }

    fn number() -> u32 {
        NUMBER.with(StdCell::get)
    }

    fn set_number(number: u32, _end: fn(u32)) -> bool {
        NUMBER.with(|own| own.set(number));
        true
    }

    fn with_held<R>(with: impl FnOnce(&HeldLocks) -> R) -> Option<R> {
        Some(HELD.with(with))
    }

    fn urgency() -> u32 {
        URGENCY.with(StdCell::get)
    }

    fn shared() -> *const () {
        if IS_SHARED.load(Ordering::Acquire) == 0 { core::ptr::null() } else { SHARED.0.get().0 }
    }

    unsafe fn share(make: fn() -> *const (), end: unsafe fn(*const ())) -> *const () {
        let made = SHARED.0.get().0.is_null().then(make);
        // The step of the model, before which others may come in between. A thread that finds the pointer has done this step
        // after the thread that left it there.
        IS_SHARED.swap(1, Ordering::AcqRel);
        if let Some(made) = made {
            if SHARED.0.get().0.is_null() {
                SHARED.0.set((made, end));
            } else {
                // SAFETY: ours, and not published.
                unsafe { end(made) };
            }
        }
        SHARED.0.get().0
    }

    fn bind_memory(
        _range: &[u8],
        _policy: &MemoryPolicy,
        _move_pages: bool,
    ) -> Result<(), OsError> {
        Ok(())
    }

    /// No setting is set, except that mutexes have no queues, which makes models of other things smaller. A model of the queues sets
    /// another mode.
    fn setting(name: &str) -> Option<String> {
        (name == "NEARQ_LOCK").then(|| "off".to_owned())
    }

    /// Fails the model: nothing in a model may have a reason to warn.
    fn warn(line: &str) {
        panic!("warning in a model: {line}");
    }

    fn warn_once(_cause: &str, line: &str) {
        Self::warn(line);
    }
}

impl Threads for Loom {
    type Cell<T> = Cell<T>;
    type Thread = Thread;
    type JoinHandle = JoinHandle;
    type Watch = Thread;

    #[track_caller]
    fn fence(order: Ordering) {
        loom::sync::atomic::fence(order);
    }

    fn spawn(
        _spec: ThreadSpec,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle, OsError> {
        Ok(JoinHandle(loom::thread::spawn(main)))
    }

    fn join(handle: JoinHandle) {
        handle.0.join().expect("a panic in a modelled thread ends the whole model before this");
    }

    fn current_thread() -> Thread {
        Thread(loom::thread::current().id())
    }

    /// loom's own number, the one in its messages.
    fn thread_id(thread: Thread) -> u64 {
        // loom shows its number only through `Debug`: "ThreadId(3)".
        let shown = format!("{:?}", thread.0);
        let digits: String = shown.chars().filter(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    }

    fn nice(_thread: Thread) -> Result<i32, OsError> {
        Ok(0)
    }

    fn set_scheduling(
        _thread: Thread,
        _policy: SchedPolicy,
        _nice: i32,
        _slice: Option<Duration>,
    ) -> Result<(), OsError> {
        Ok(())
    }

    fn scheduling(_thread: Thread) -> Result<Scheduling, OsError> {
        Ok(Scheduling { policy: SchedPolicy::Normal, nice: 0, slice: None })
    }

    fn cpu_time(_thread: Thread) -> Result<Duration, OsError> {
        Ok(Duration::ZERO)
    }

    fn run_state(_thread: Thread) -> Result<RunState, OsError> {
        Ok(RunState::Runnable)
    }

    fn watch(thread: Thread) -> Thread {
        thread
    }

    fn watched_state(watch: &mut Thread) -> Result<RunState, OsError> {
        Self::run_state(*watch)
    }

    fn slot() -> *const () {
        SLOT.with(StdCell::get)
    }

    fn set_slot(value: *const ()) {
        SLOT.with(|slot| slot.set(value));
    }

    fn ending() -> *const () {
        ENDING.with(StdCell::get)
    }

    fn set_ending(value: *const ()) {
        ENDING.with(|slot| slot.set(value));
    }

    fn employer() -> u64 {
        EMPLOYER.with(StdCell::get)
    }

    fn set_employer(number: u64) {
        EMPLOYER.with(|slot| slot.set(number));
    }
}

impl Placement for Loom {
    fn machine() -> Result<Machine, String> {
        let topology = Topology::from_synthetic(MACHINE).map_err(|error| error.to_string())?;
        let limits = Limits::unlimited(topology.possible().clone());
        Ok(Machine { topology, limits })
    }

    fn affinity(_thread: Thread) -> Result<CpuSet, OsError> {
        Ok(CpuSet::all(4))
    }

    fn set_affinity(_thread: Thread, _cpus: &CpuSet) -> Result<(), OsError> {
        Ok(())
    }

    fn set_memory_policy(_policy: &MemoryPolicy) -> Result<(), OsError> {
        Ok(())
    }

    fn memory_policy() -> Result<MemoryPolicy, OsError> {
        Ok(MemoryPolicy::Local)
    }

    fn residency_at(_range: Range<usize>, _samples: usize) -> Result<Residency, OsError> {
        Ok(Residency::default())
    }
}
