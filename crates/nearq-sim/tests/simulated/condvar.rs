//! The condition variable on simulated machines: no item and no wake-up is lost with 2 to 384 threads, in every mode of the mutex, with any
//! schedule, while threads are preempted, deadlines come late and waits end for no reason. Also measures the gain from letting notified
//! threads sleep until it is their turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Condvar, Mode, Mutex, MutexGuard, Settings};
use nearq_model::bound;
use nearq_platform::{Atomic, AtomicInt, Instant, LockPlatform, Ordering, RunState, Threads};
use nearq_sim::{Faults, Machine, Schedule, Sim, Simulation, compute};

use crate::common::{machine, schedule_of, spawn, spawn_on};

const MODES: [Mode; 4] = [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa];

fn set(mode: Mode) {
    let mut settings = Settings::default();
    settings.mode = mode;
    // This makes a short run see changes in both directions.
    settings.hand_overs = 16;
    settings.remote_percent = 1;
    settings.batch = 5;
    settings.quiet = 1;
    settings.set_for_process_in::<Sim>();
}

struct Queue {
    items: Mutex<State, Sim>,
    not_empty: Condvar<Sim>,
    not_full: Condvar<Sim>,
}

#[derive(Default)]
struct State {
    items: VecDeque<u32>,
    passed: u32,
    sum: u64,
}

/// Half of the threads put items into a queue of few places, the others take them; some wait for short times only, and check
/// again. Returns how many items went through, and their sum.
fn pass_items(mode: Mode, threads: u32, each: u32) -> (u32, u64) {
    set(mode);
    let all = threads / 2 * each;
    let queue = Arc::new(Queue {
        items: Mutex::new_in(State::default()),
        not_empty: Condvar::new_in(),
        not_full: Condvar::new_in(),
    });
    let threads: Vec<_> = (0..threads / 2 * 2)
        .map(|index| {
            let queue = Arc::clone(&queue);
            spawn(move || {
                let time = Duration::from_micros(u64::from(index % 7) * 8);
                if index % 2 == 0 {
                    for item in 0..each {
                        let mut state = queue.items.lock();
                        if index % 3 == 0 {
                            while state.items.len() >= 4 {
                                queue.not_full.wait_for(&mut state, time);
                            }
                        } else {
                            queue.not_full.wait_while(&mut state, |state| state.items.len() >= 4);
                        }
                        state.items.push_back(item);
                        if item % 2 == 0 {
                            drop(state);
                            queue.not_empty.notify_one();
                        } else {
                            queue.not_empty.notify_one();
                            drop(state);
                        }
                    }
                    return;
                }
                loop {
                    let mut state = queue.items.lock();
                    let nothing = |state: &mut State| state.items.is_empty() && state.passed < all;
                    if index % 3 == 0 {
                        if !queue.not_empty.wait_while_for(&mut state, nothing, time) {
                            drop(state);
                            compute(Duration::from_micros(5));
                            continue;
                        }
                    } else {
                        queue.not_empty.wait_while(&mut state, nothing);
                    }
                    let Some(item) = state.items.pop_front() else { return };
                    state.passed += 1;
                    state.sum += u64::from(item);
                    if state.passed == all {
                        queue.not_empty.notify_all();
                    }
                    drop(state);
                    queue.not_full.notify_one();
                    compute(Duration::from_nanos(u64::from(item % 5) * 300));
                }
            })
        })
        .collect();
    threads.into_iter().for_each(Sim::join);
    assert_eq!((queue.not_empty.notify_all(), queue.not_full.notify_all()), (0, 0));
    let state = queue.items.lock();
    (state.passed, state.sum)
}

fn right(threads: u32, each: u32) -> (u32, u64) {
    let pairs = threads / 2;
    (pairs * each, u64::from(pairs) * u64::from(each * (each - 1) / 2))
}

#[test]
fn items_pass_with_two_to_384_threads() {
    for (shape, threads, each) in [
        ("core:1", 6, 40),
        ("l3:2 core:4", 2, 200),
        ("numa:2 l3:2 core:4", 16, 80),
        ("numa:2 l3:4 core:4 pu:2", 64, 30),
        ("numa:8 l3:4 core:6 pu:2", 384, 8),
    ] {
        for mode in MODES {
            let outcome =
                Simulation::new(machine(shape), 1).run(move || pass_items(mode, threads, each));
            assert_eq!(outcome.expect(), right(threads, each), "{shape} {mode:?}");
        }
    }
}

#[test]
fn the_condvar_survives_any_schedule_and_every_fault() {
    for seed in 0..bound(48, 480) {
        let schedule = schedule_of(seed / 4);
        let mut faults = Faults::ALL;
        faults.spawn_refused_one_in = 0;
        let mode = MODES[seed as usize % 4];
        let outcome = Simulation::new(machine("numa:2 l3:2 core:2"), seed)
            .schedule(schedule)
            .faults(faults)
            .run(move || pass_items(mode, 20, 24));
        assert_eq!(outcome.expect(), right(20, 24), "{mode:?} seed {seed}");
    }
}

/// Two caches between which the turn goes back and forth, and threads that are preempted for long between any two steps: a thread that is
/// moved learns in every possible way that it is at the front.
#[test]
fn no_wake_up_is_lost_between_two_caches() {
    for seed in 0..bound(48, 480) {
        let mut faults = Faults::NONE;
        faults.preempted_one_in = 40;
        faults.preemption = Duration::from_micros(500);
        faults.spurious_wake_one_in = 16;
        let schedule = if seed % 2 == 0 { Schedule::Fair } else { Schedule::Random };
        let outcome = Simulation::new(machine("l3:2 core:2"), seed)
            .schedule(schedule)
            .faults(faults)
            .time_limit(Duration::from_secs(5))
            .run(move || pass_items(Mode::Numa, 12, 40));
        assert_eq!(outcome.expect(), right(12, 40), "seed {seed}");
    }
}

/// Threads that only take the mutex, beside others that wait and are notified: threads that are moved to the mutex's queues meet
/// threads that join and leave them by themselves, in every cache.
fn mix_waiters_and_lockers(mode: Mode, threads: u32, rounds: u32) -> (u32, u32) {
    set(mode);
    let shared = Arc::new((Mutex::<_, Sim>::new_in((0_u32, 0_u32)), Condvar::<Sim>::new_in()));
    let all: Vec<_> = (0..threads)
        .map(|index| {
            let shared = Arc::clone(&shared);
            spawn(move || {
                let (mutex, condvar) = &*shared;
                for round in 0..rounds {
                    let mut state = mutex.lock();
                    state.0 += 1;
                    match (index + round) % 8 {
                        0 | 1 => {
                            state.1 += 1;
                            condvar.wait(&mut state);
                            state.1 -= 1;
                        }
                        2 => {
                            condvar.wait_for(&mut state, Duration::from_micros(3));
                        }
                        3 => {
                            condvar.notify_all();
                        }
                        4 => {
                            drop(state);
                            condvar.notify_one();
                        }
                        _ => compute(Duration::from_nanos(200)),
                    }
                }
                let mut state = mutex.lock();
                state.0 += 1;
                // Threads that still wait are released by those that have finished.
                while state.0 < threads * (rounds + 1) {
                    condvar.notify_all();
                    drop(state);
                    Sim::sleep(Duration::from_micros(50));
                    state = mutex.lock();
                }
            })
        })
        .collect();
    all.into_iter().for_each(Sim::join);
    assert_eq!(shared.1.notify_all(), 0);
    *shared.0.lock()
}

#[test]
fn requeued_waiters_mix_with_threads_that_lock_directly() {
    for seed in 0..bound(24, 240) {
        let mode = [Mode::Numa, Mode::Auto, Mode::Plain][seed as usize % 3];
        let mut faults = Faults::NONE;
        if seed % 2 == 1 {
            // This makes a thread be preempted between joining a queue and linking, while the thread before it leaves.
            faults.preempted_one_in = 20;
            faults.preemption = Duration::from_micros(30);
            faults.spurious_wake_one_in = 16;
        }
        let outcome = Simulation::new(machine("numa:2 l3:2 core:8"), seed)
            .faults(faults)
            .time_limit(Duration::from_secs(5))
            .run(move || mix_waiters_and_lockers(mode, 32, 40));
        assert_eq!(outcome.expect(), (32 * 41, 0), "{mode:?} seed {seed}");
    }
}

/// A gate that opens repeatedly for all waiting threads, while other threads wait at it for short times only.
#[test]
fn repeated_broadcasts_wake_all_waiters() {
    for seed in 0..bound(8, 24) {
        let mode = MODES[seed as usize % 4];
        let outcome = Simulation::new(machine("numa:4 l3:2 core:4 pu:2"), seed).run(move || {
            set(mode);
            let shared = Arc::new((Mutex::<_, Sim>::new_in((0, 0)), Condvar::<Sim>::new_in()));
            let threads: Vec<_> = (0..64)
                .map(|index| {
                    let shared = Arc::clone(&shared);
                    spawn(move || {
                        let (mutex, condvar) = &*shared;
                        for round in 1..=20 {
                            let mut state = mutex.lock();
                            state.1 += 1;
                            if state.1 == 64 {
                                *state = (round, 0);
                                condvar.notify_all();
                            }
                            while state.0 < round {
                                if index % 4 == 0 {
                                    condvar.wait_for(&mut state, Duration::from_micros(20));
                                } else {
                                    condvar.wait(&mut state);
                                }
                            }
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            let (mutex, condvar) = &*shared;
            assert_eq!(condvar.notify_all(), 0);
            *mutex.lock()
        });
        assert_eq!(outcome.expect(), (20, 0), "{mode:?} seed {seed}");
    }
}

/// While the notifying thread has the mutex, the others sleep on.
#[test]
fn notified_waiters_sleep_until_the_mutex_is_theirs() {
    const THREADS: usize = 384;
    for mode in MODES {
        let outcome = Simulation::new(machine("numa:8 l3:4 core:6 pu:2"), 3).run(move || {
            set(mode);
            let shared = Arc::new((Mutex::<_, Sim>::new_in(Vec::new()), Condvar::<Sim>::new_in()));
            let threads: Vec<_> = (0..THREADS)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    spawn(move || {
                        let mut waiting = shared.0.lock();
                        waiting.push(Sim::current_thread());
                        shared.1.wait(&mut waiting);
                        waiting.pop();
                    })
                })
                .collect();
            let waiting = loop {
                let waiting = shared.0.lock();
                if waiting.len() == THREADS {
                    break waiting;
                }
                drop(waiting);
                Sim::sleep(Duration::from_micros(100));
            };
            // Long enough for the last thread to sleep, too.
            compute(Duration::from_millis(1));
            let used = |thread| Sim::cpu_time(thread).expect("it is there");
            let before: Vec<Duration> = waiting.iter().map(|&thread| used(thread)).collect();
            assert_eq!(shared.1.notify_all(), THREADS);
            compute(Duration::from_millis(1));
            let woken = waiting.iter().zip(before).filter(|&(&thread, before)| {
                used(thread) != before || Sim::run_state(thread) != Ok(RunState::Blocked)
            });
            let woken = woken.count();
            drop(waiting);
            threads.into_iter().for_each(Sim::join);
            (woken, shared.0.lock().len())
        });
        let (woken, left) = outcome.expect();
        assert!(woken <= 2, "{mode:?}: {woken} were woken");
        assert_eq!(left, 0, "{mode:?}");
    }
}

/// The alternative without queues: a count of the notifications, on which all threads sleep and are woken together.
struct WakeAll(<Sim as LockPlatform>::AtomicU32);

trait Bell: Send + Sync + 'static {
    fn new() -> Self;
    fn wait<'a>(
        &self,
        mutex: &'a Mutex<Counts, Sim>,
        guard: MutexGuard<'a, Counts, Sim>,
    ) -> MutexGuard<'a, Counts, Sim>;
    fn ring(&self);
}

impl Bell for WakeAll {
    fn new() -> Self {
        WakeAll(Atomic::new(0))
    }

    fn wait<'a>(
        &self,
        mutex: &'a Mutex<Counts, Sim>,
        guard: MutexGuard<'a, Counts, Sim>,
    ) -> MutexGuard<'a, Counts, Sim> {
        let count = self.0.load(Ordering::Relaxed);
        drop(guard);
        Sim::wait(&self.0, count, None);
        mutex.lock()
    }

    fn ring(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        Sim::wake(&raw const self.0, usize::MAX);
    }
}

impl Bell for Condvar<Sim> {
    fn new() -> Self {
        Condvar::new_in()
    }

    fn wait<'a>(
        &self,
        _mutex: &'a Mutex<Counts, Sim>,
        mut guard: MutexGuard<'a, Counts, Sim>,
    ) -> MutexGuard<'a, Counts, Sim> {
        Condvar::wait(self, &mut guard);
        guard
    }

    fn ring(&self) {
        self.notify_all();
    }
}

#[derive(Default)]
struct Counts {
    round: u32,
    waiting: usize,
    back: usize,
    last: Instant,
}

/// A mutex and its bell, one after the other from the beginning of a cache line: otherwise their position within lines, which the allocator
/// chooses, would decide the cost of either kind of bell.
#[repr(align(64))]
struct Shared<B>(Mutex<Counts, Sim>, B);

/// All threads wait, all are notified under the mutex, and each does a little work under it afterwards. Returns how long
/// that takes from the notification to the last thread, and how often a CPU changed threads in all.
fn broadcast<B: Bell>(mode: Mode, threads: usize, seed: u64) -> (Duration, u64) {
    const ROUNDS: u32 = 20;
    let machine = Machine::named("epyc-7551-2s").expect("built in");
    let outcome = Simulation::on(&machine, seed).run(move || {
        let mut settings = Settings::default();
        settings.mode = mode;
        settings.set_for_process_in::<Sim>();
        let shared = Arc::new(Shared(Mutex::new_in(Counts::default()), B::new()));
        let all: Vec<_> = (0..threads)
            .map(|cpu| {
                let shared = Arc::clone(&shared);
                spawn_on(cpu, move || {
                    for round in 1..=ROUNDS {
                        let mut counts = shared.0.lock();
                        counts.waiting += 1;
                        while counts.round < round {
                            counts = shared.1.wait(&shared.0, counts);
                        }
                        compute(Duration::from_nanos(500));
                        counts.back += 1;
                        counts.last = Sim::now();
                    }
                })
            })
            .collect();
        let mut took = Duration::ZERO;
        for round in 1..=ROUNDS {
            let mut counts = loop {
                let counts = shared.0.lock();
                if counts.waiting == threads {
                    break counts;
                }
                drop(counts);
                Sim::sleep(Duration::from_micros(50));
            };
            (counts.round, counts.waiting, counts.back) = (round, 0, 0);
            let began = Sim::now();
            shared.1.ring();
            drop(counts);
            loop {
                let counts = shared.0.lock();
                if counts.back == threads {
                    took += counts.last - began;
                    break;
                }
                drop(counts);
                Sim::sleep(Duration::from_micros(200));
            }
        }
        all.into_iter().for_each(Sim::join);
        took / ROUNDS
    });
    let switches = outcome.switches / u64::from(ROUNDS);
    (outcome.expect(), switches)
}

#[test]
fn waking_waiters_one_by_one_costs_no_time_and_saves_work() {
    // It is by chance which of the threads that wake up together is first: one schedule takes twice as long as another, depending on the
    // seed and on where the allocator puts the objects that both of them touch. So many schedules are compared, not one.
    fn mean<B: Bell>(mode: Mode, threads: usize) -> (Duration, u64) {
        let schedules = bound(4, 16);
        let all = (1..=schedules).map(|seed| broadcast::<B>(mode, threads, seed));
        let (took, switches) =
            all.fold((Duration::ZERO, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        (took / schedules as u32, switches / schedules)
    }
    for mode in [Mode::Plain, Mode::Auto] {
        for threads in [16, 64] {
            let (wake_all, ours) =
                (mean::<WakeAll>(mode, threads), mean::<Condvar<Sim>>(mode, threads));
            println!("{mode:?} {threads}: all at once {wake_all:?}, one after the other {ours:?}");
            assert!(
                ours.0 <= wake_all.0 * 11 / 10,
                "{mode:?} {threads}: {ours:?} against {wake_all:?}"
            );
            assert!(ours.1 <= wake_all.1, "{mode:?} {threads}: {ours:?} against {wake_all:?}");
        }
    }
}
