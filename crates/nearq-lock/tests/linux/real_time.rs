//! Threads of real-time classes: the most urgent has the mutex next and is notified first, and none of them loses its time by waiting. If
//! the classes are refused, a line says so and nothing is tested.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Condvar, Mode, Mutex, Settings};
use nearq_platform::{Linux, LockPlatform, Ordering, RunState, ThreadSpec, Threads};

use crate::alone;
use crate::skipped::skipped;

type Cell = <Linux as LockPlatform>::AtomicU32;

const SCHED_OTHER: i32 = 0;
const SCHED_FIFO: i32 = 1;
const SCHED_DEADLINE: u32 = 6;
const SYS_SCHED_SETATTR: i64 = if cfg!(target_arch = "x86_64") { 314 } else { 274 };

#[repr(C)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

unsafe extern "C" {
    fn sched_setscheduler(thread: i32, policy: i32, priority: *const i32) -> i32;
    fn syscall(number: i64, ...) -> i64;
}

fn become_urgent(priority: i32) -> bool {
    let policy = if priority == 0 { SCHED_OTHER } else { SCHED_FIFO };
    // SAFETY: the parameter is an integer of the caller.
    unsafe { sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// Whether the classes are granted; if not, a line says so.
fn may_be_urgent() -> bool {
    let granted = become_urgent(1) && become_urgent(0);
    if !granted {
        skipped("threads of real-time classes", "refused", "run the tests as root");
    }
    granted
}

/// Gives the thread this much time in each period, until it ends.
fn become_periodic(runtime: Duration, period: Duration) -> bool {
    let [runtime, period] = [runtime, period].map(|time| time.as_nanos() as u64);
    let size = size_of::<Attributes>() as u32;
    let wanted = Attributes {
        size,
        policy: SCHED_DEADLINE,
        flags: 0,
        nice: 0,
        priority: 0,
        runtime,
        deadline: period,
        period,
    };
    // SAFETY: the attributes are as long as they say, and belong to the caller.
    unsafe { syscall(SYS_SCHED_SETATTR, 0_i32, &raw const wanted, 0_u32) == 0 }
}

fn spawn(main: impl FnOnce() + Send + 'static) -> <Linux as Threads>::JoinHandle {
    Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
}

/// Threads come to wait one after the other; each gets the mutex by its priority, in every mode.
#[test]
fn the_most_urgent_thread_locks_next() {
    let _alone = alone();
    if !may_be_urgent() {
        return;
    }
    let before = Settings::of_process();
    for &mode in Mode::ALL {
        let mut settings = before;
        settings.mode = mode;
        settings.set_for_process();
        let order = Arc::new(Mutex::<Vec<i32>>::new(Vec::new()));
        let guard = order.lock();
        let threads: Vec<_> = [10, 11, 12, 13, 50, 14]
            .map(|priority| {
                let (shared, waiter) = (Arc::clone(&order), Arc::new(Mutex::<_>::new(None)));
                let who_clone = Arc::clone(&waiter);
                let thread = spawn(move || {
                    assert!(become_urgent(priority));
                    *who_clone.lock() = Some(Linux::current_thread());
                    shared.lock().push(priority);
                });
                // Asleep for good: it waits for nothing else once it has set `waiter`.
                while !waiter
                    .lock()
                    .is_some_and(|waiter| Linux::run_state(waiter) == Ok(RunState::Blocked))
                {
                    Linux::sleep(Duration::from_millis(1));
                }
                thread
            })
            .into_iter()
            .collect();
        drop(guard);
        threads.into_iter().for_each(Linux::join);
        assert_eq!(*order.lock(), [50, 14, 13, 12, 11, 10], "{mode}");
    }
    before.set_for_process();
}

/// A mutex and a condition variable, and the threads that have been notified, in order.
#[derive(Default)]
struct Scene {
    order: Mutex<Vec<usize>>,
    condvar: Condvar,
    waiting: Mutex<usize>,
}

impl Scene {
    /// Starts a thread for each of these priorities (0 is the ordinary class), which waits for the condition. Each begins when the previous
    /// one waits, and calls `before` before it waits itself.
    fn wait_by(
        self: &Arc<Self>,
        priorities: &[i32],
        before: fn(&Self),
    ) -> Vec<<Linux as Threads>::JoinHandle> {
        let one = |(index, &priority): (usize, &i32)| {
            let scene = Arc::clone(self);
            let thread = spawn(move || {
                before(&scene);
                assert!(become_urgent(priority));
                let mut order = scene.order.lock();
                *scene.waiting.lock() += 1;
                scene.condvar.wait(&mut order);
                order.push(index);
            });
            // It counts under the mutex that it releases to wait: a thread that has the mutex after the count finds it waiting.
            while *self.waiting.lock() <= index {
                Linux::sleep(Duration::from_millis(1));
            }
            drop(self.order.lock());
            thread
        };
        priorities.iter().enumerate().map(one).collect()
    }
}

/// In every mode, with threads that wait for the first time, and with threads that have waited as ordinary ones before.
#[test]
fn the_most_urgent_waiter_is_notified_first() {
    let _alone = alone();
    if !may_be_urgent() {
        return;
    }
    let before = Settings::of_process();
    for &mode in Mode::ALL {
        let mut settings = before;
        settings.mode = mode;
        settings.set_for_process();
        let has_waited: fn(&Scene) = |scene| {
            let mut waiting = scene.waiting.lock();
            assert!(!scene.condvar.wait_for(&mut waiting, Duration::from_micros(1)));
        };
        for before_it_waits in [|_: &Scene| {}, has_waited] {
            nearq_lock::expect_urgent();
            let scene = Arc::new(Scene::default());
            let threads = scene.wait_by(&[0, 10, 11, 0, 50, 11], before_it_waits);
            for count in 1..=threads.len() {
                assert!(scene.condvar.notify_one());
                while scene.order.lock().len() < count {
                    Linux::sleep(Duration::from_millis(1));
                }
            }
            threads.into_iter().for_each(Linux::join);
            assert_eq!(*scene.order.lock(), [4, 2, 5, 1, 0, 3], "{mode}");
        }
    }
    before.set_for_process();
}

/// All at once, while the mutex is held: they wake up, and get it by their priorities.
#[test]
fn the_most_urgent_notified_waiter_locks_first() {
    let _alone = alone();
    if !may_be_urgent() {
        return;
    }
    let scene = Arc::new(Scene::default());
    let threads = scene.wait_by(&[10, 11, 50, 12], |_| {});
    let guard = scene.order.lock();
    assert_eq!(scene.condvar.notify_all(), threads.len());
    // Until they sleep by the mutex, which happens at once, as they are more urgent than anything else that runs here.
    Linux::sleep(Duration::from_millis(30));
    drop(guard);
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*scene.order.lock(), [2, 3, 1, 0]);
}

/// A thread of `SCHED_DEADLINE` that finds the mutex held does not give up the rest of its period.
#[test]
fn a_waiting_thread_keeps_its_deadline_period() {
    const PERIOD: Duration = Duration::from_secs(2);
    let _alone = alone();
    let mutex = Arc::new(Mutex::<()>::new(()));
    let at = Arc::new(Cell::new(0));
    let guard = mutex.lock();
    let (shared, at_clone) = (Arc::clone(&mutex), Arc::clone(&at));
    let thread = spawn(move || {
        if !become_periodic(Duration::from_millis(200), PERIOD) {
            let how = "run the tests as root, with all CPUs of the machine";
            skipped("a thread of SCHED_DEADLINE", "refused", how);
            at_clone.store(2, Ordering::Release);
            return;
        }
        at_clone.store(1, Ordering::Release);
        let began = Linux::now();
        drop(shared.lock());
        let waited = Linux::now() - began;
        println!("waited for {waited:?}");
        at_clone.store(if waited < PERIOD / 2 { 3 } else { 4 }, Ordering::Release);
    });
    while at.load(Ordering::Acquire) == 0 {
        Linux::yield_now();
    }
    Linux::sleep(Duration::from_millis(5));
    drop(guard);
    Linux::join(thread);
    assert_ne!(at.load(Ordering::Acquire), 4, "it was held for some milliseconds");
}
