//! The trait [`Threads`], implemented for [`Sim`].

use core::cell::UnsafeCell;
use core::time::Duration;

use nearq_platform::{
    Atomic, Attempt, Instant, LockPlatform, Ordering, OsError, PAUSE, RunState, SchedPolicy,
    Scheduling, ThreadSpec, Threads, Wait,
};

use super::{Sim, allowed_slice, ask, change_weight, spin, start, system_call, wait_for_end};
use crate::atomic::{AtomicPtr, AtomicU32};
use crate::context;
use crate::costs;
use crate::thread::{JoinHandle, State, Thread};

/// `EACCES`: what Linux returns if a file may not be read.
const EACCES: i32 = 13;

impl Threads for Sim {
    type Cell<T> = UnsafeCell<T>;
    type Thread = Thread;
    type JoinHandle = JoinHandle;
    type Watch = Thread;

    fn fence(order: Ordering) {
        if let Some(shared) = context::current() {
            if order == Ordering::SeqCst {
                shared.world.borrow_mut().await_stores();
            }
            shared.step(|world| world.costs.fence);
        }
    }

    /// This is free: on real machines it only keeps the compiler from moving accesses.
    fn light_fence() {}

    /// This costs a system call, as `membarrier` does. The time that the interrupted CPUs lose is not counted.
    fn heavy_fence() -> bool {
        if context::current().is_some() {
            let shared = system_call("Threads::heavy_fence");
            shared.step(|world| world.costs.fence);
        }
        true
    }

    /// A waiting thread wakes up only when an attempt becomes available: if it woke up periodically without need, a simulated machine on
    /// which nothing more happens would never stop.
    fn wait_for_work(word: &AtomicU32, expected: u32, deadline: Option<Instant>) -> Wait {
        let shared = system_call("Threads::wait_for_work");
        let address = core::ptr::from_ref(word).addr();
        loop {
            if !Self::has_retries() {
                shared.waiting_for_work.borrow_mut().push(address);
                let ended = Self::wait(word, expected, deadline);
                let mut waiting = shared.waiting_for_work.borrow_mut();
                if let Some(index) = waiting.iter().rposition(|known| *known == address) {
                    waiting.swap_remove(index);
                }
                if ended != Wait::Woken || !Self::has_retries() {
                    return ended;
                }
            }
            Self::retry_now();
            let until = Self::now() + PAUSE;
            let own_deadline = deadline.filter(|deadline| *deadline <= until);
            let ended = Self::wait(word, expected, Some(own_deadline.unwrap_or(until)));
            if ended != Wait::TimedOut || own_deadline.is_some() {
                return ended;
            }
        }
    }

    fn retry_later(attempt: Attempt) {
        let shared = context::expect("Threads::retry_later");
        shared.retries.add(attempt);
        let waiting = core::mem::take(&mut *shared.waiting_for_work.borrow_mut());
        for address in waiting {
            shared.world.borrow_mut().wake(address, usize::MAX);
        }
    }

    fn retry_now() {
        if let Some(shared) = context::current().filter(|shared| !shared.retries.is_empty(0)) {
            shared.retries.make(Self::fork_epoch(), Self::now());
        }
    }

    fn has_retries() -> bool {
        context::current().is_some_and(|shared| !shared.retries.is_empty(Self::fork_epoch()))
    }

    fn wait_until_changed_ptr<T>(word: &AtomicPtr<T>, value: *mut T, budget: u32) -> bool {
        spin(
            core::ptr::from_ref(word).addr(),
            budget,
            || word.load(Ordering::Relaxed) != value,
            || word.peek() == value,
        )
    }

    fn wake_exactly() {
        context::expect("Threads::wake_exactly").world.borrow_mut().me_mut().exact = true;
    }

    fn spawn(
        spec: ThreadSpec,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<JoinHandle, OsError> {
        start(spec, false, main)
    }

    fn join(handle: JoinHandle) {
        let shared = system_call("Threads::join");
        let JoinHandle(thread) = handle;
        if shared.world.borrow().threads.find(thread).is_none() {
            return;
        }
        wait_for_end(shared, thread);
    }

    fn current_thread() -> Thread {
        let shared = context::expect("Threads::current_thread");
        let world = shared.world.borrow();
        Thread { slot: world.slot, id: world.me().id }
    }

    /// The threads are numbered from 1 in the order of their creation.
    fn thread_id(thread: Thread) -> u64 {
        thread.id
    }

    fn nice(thread: Thread) -> Result<i32, OsError> {
        ask(thread, |_, entry| entry.nice)
    }

    fn set_scheduling(
        thread: Thread,
        policy: SchedPolicy,
        nice: i32,
        slice: Option<Duration>,
    ) -> Result<(), OsError> {
        let standard = context::expect("Threads::set_scheduling").world.borrow().costs.slice;
        change_weight(thread, |entry| {
            entry.nice = nice.clamp(-20, 19);
            entry.weight = match policy {
                SchedPolicy::Normal => costs::weight(nice),
                SchedPolicy::Idle => costs::IDLE_WEIGHT,
            };
            entry.slice = allowed_slice(slice, standard);
        })
    }

    fn scheduling(thread: Thread) -> Result<Scheduling, OsError> {
        ask(thread, |_, entry| {
            let idle = entry.weight == costs::IDLE_WEIGHT;
            Scheduling {
                policy: if idle { SchedPolicy::Idle } else { SchedPolicy::Normal },
                nice: entry.nice,
                slice: Some(Duration::from_nanos(entry.slice)),
            }
        })
    }

    fn cpu_time(thread: Thread) -> Result<Duration, OsError> {
        ask(thread, |world, entry| {
            let running = match entry.state {
                State::Running => {
                    world.cpus[entry.cpu].clock.min(world.now()).saturating_sub(entry.counted_to)
                }
                _ => 0,
            };
            Duration::from_nanos(entry.cpu_time + running)
        })
    }

    fn run_state(thread: Thread) -> Result<RunState, OsError> {
        if context::expect("Threads::run_state").world.borrow().injection.hides_states() {
            return Err(OsError::new(
                "read what a thread does",
                EACCES,
                "enable it for the machine",
            ));
        }
        let state = ask(thread, |_, entry| match entry.state {
            State::Running | State::Ready | State::StandingStill => RunState::Runnable,
            State::Waiting { .. } | State::Sleeping | State::Joining { .. } => RunState::Blocked,
        });
        // Only a thread that has ended has no state.
        Ok(state.unwrap_or(RunState::Ended))
    }

    fn watch(thread: Thread) -> Thread {
        thread
    }

    fn watched_state(watch: &mut Thread) -> Result<RunState, OsError> {
        Self::run_state(*watch)
    }

    #[inline]
    fn slot() -> *const () {
        context::current()
            .map_or(core::ptr::null(), |shared| shared.world.borrow().me().worker_slot)
    }

    fn set_slot(value: *const ()) {
        context::expect("Threads::set_slot").world.borrow_mut().me_mut().worker_slot = value;
    }

    fn ending() -> *const () {
        context::current()
            .map_or(core::ptr::null(), |shared| shared.world.borrow().me().worker_ending)
    }

    fn set_ending(value: *const ()) {
        // A task may end after its simulation has.
        if let Some(shared) = context::current() {
            shared.world.borrow_mut().me_mut().worker_ending = value;
        }
    }

    fn employer() -> u64 {
        context::current().map_or(0, |shared| shared.world.borrow().me().employer)
    }

    fn set_employer(number: u64) {
        context::expect("Threads::set_employer").world.borrow_mut().me_mut().employer = number;
    }
}
