//! Threads of real-time classes: the most urgent has the mutex next, and nobody loses its time by waiting. Where the classes are refused, a
//! line says so and nothing is tested.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings};
use nearq_platform::{Linux, Ordering, Platform, RunState, ThreadSpec};

use crate::alone;

type Cell = <Linux as Platform>::AtomicU32;

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
    // SAFETY: the parameter is an integer, of the caller.
    unsafe { sched_setscheduler(0, policy, &raw const priority) == 0 }
}

/// So much time in each period, until the thread ends.
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
    // SAFETY: the attributes are as long as they say; of the caller.
    unsafe { syscall(SYS_SCHED_SETATTR, 0_i32, &raw const wanted, 0_u32) == 0 }
}

fn spawn(main: impl FnOnce() + Send + 'static) -> <Linux as Platform>::JoinHandle {
    Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
}

/// One thread after the other comes to wait; each of them has the mutex by its priority, whatever the mode.
#[test]
fn the_most_urgent_is_next() {
    let _alone = alone();
    if !become_urgent(1) || !become_urgent(0) {
        println!(
            "skipped: threads of real-time classes: refused; to have it: run the tests as root"
        );
        return;
    }
    let before = Settings::of_process::<Linux>();
    for mode in Mode::ALL {
        let mut settings = before;
        settings.mode = mode;
        settings.set_for_process::<Linux>();
        let order = Arc::new(Mutex::<Vec<i32>>::new(Vec::new()));
        let guard = order.lock();
        let threads: Vec<_> = [10, 11, 12, 13, 50, 14]
            .map(|priority| {
                let (shared, who) = (Arc::clone(&order), Arc::new(Mutex::<_>::new(None)));
                let told = Arc::clone(&who);
                let thread = spawn(move || {
                    assert!(become_urgent(priority));
                    *told.lock() = Some(Linux::current_thread());
                    shared.lock().push(priority);
                });
                // Asleep for good: it waits for nothing else once it has told.
                while !who.lock().is_some_and(|who| Linux::run_state(who) == Ok(RunState::Blocked))
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
    before.set_for_process::<Linux>();
}

/// A thread of `SCHED_DEADLINE` that finds the mutex held does not give up the rest of its period.
#[test]
fn who_waits_keeps_its_period() {
    const PERIOD: Duration = Duration::from_secs(2);
    let _alone = alone();
    let mutex = Arc::new(Mutex::<()>::new(()));
    let at = Arc::new(Cell::new(0));
    let guard = mutex.lock();
    let (shared, its) = (Arc::clone(&mutex), Arc::clone(&at));
    let thread = spawn(move || {
        if !become_periodic(Duration::from_millis(200), PERIOD) {
            println!(
                "skipped: a thread of SCHED_DEADLINE: refused; to have it: run the tests as root, with all CPUs of the machine"
            );
            its.store(2, Ordering::Release);
            return;
        }
        its.store(1, Ordering::Release);
        let began = Linux::now();
        drop(shared.lock());
        let waited = Linux::now() - began;
        println!("waited for {waited:?}");
        its.store(if waited < PERIOD / 2 { 3 } else { 4 }, Ordering::Release);
    });
    while at.load(Ordering::Acquire) == 0 {
        Linux::yield_now();
    }
    Linux::sleep(Duration::from_millis(5));
    drop(guard);
    Linux::join(thread);
    assert_ne!(at.load(Ordering::Acquire), 4, "it was held for some milliseconds");
}
