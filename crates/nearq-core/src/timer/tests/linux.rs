//! The timer on the machine that the tests run on.

use core::ptr::NonNull;
use core::task::Waker;
use core::time::Duration;
use std::sync::{Arc, mpsc};

use nearq_lock::Mutex;
use nearq_platform::{Linux, LockPlatform, Ordering, ThreadSpec, Threads};

use super::super::{Hold, Timer};
use super::{Foreign, Owner, TimerNode, TimerTable, end, goes_on};
use crate::queue::runtime::Runtime;

const MILLISECOND: Duration = Duration::from_millis(1);

fn timer() -> Arc<Timer<Linux>> {
    Arc::new(Timer::new(None))
}

/// Context switches of the timer's thread so far.
fn switches(timer: &Timer<Linux>) -> u64 {
    let thread = timer.shared.thread.thread().expect("it was started");
    let path = format!("/proc/self/task/{}/status", Linux::thread_id(thread));
    let status = std::fs::read_to_string(path).expect("it is alive");
    let lines = status.lines().filter(|line| line.contains("ctxt_switches"));
    lines.map(|line| line.split_whitespace().last().unwrap().parse::<u64>().unwrap()).sum()
}

#[test]
fn each_deadline_expires_once_and_never_early() {
    const EACH: u64 = if cfg!(miri) { 8 } else { 300 };
    let timer = timer();
    let issuers: Vec<_> = (1..=3)
        .map(|issuer: u64| {
            let timer = Arc::clone(&timer);
            let main = move || {
                let owners: Vec<_> = (0..EACH).map(|_| Owner::new(&timer)).collect();
                for step in 0..6 * EACH {
                    let random = (step * issuer).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 20;
                    let owner = &owners[(random % EACH) as usize];
                    if random.is_multiple_of(5) {
                        owner.disarm();
                    } else {
                        owner.arm_in(Duration::from_nanos(random % 40_000_000));
                    }
                }
                while owners.iter().any(|owner| owner.0.node.is_armed()) {
                    Linux::sleep(MILLISECOND);
                }
                end_of(&timer, &owners);
            };
            Linux::spawn(ThreadSpec::default(), main).expect("a thread can be started")
        })
        .collect();
    issuers.into_iter().for_each(Linux::join);
    end(&timer);
}

/// Everything that was wanted has come, and is released in the end.
fn end_of(timer: &Timer<Linux>, owners: &[Owner<Linux>]) {
    // A deadline in the near future makes the thread read everything.
    let last = Owner::new(&owners[0].0.timer);
    last.arm_in(Duration::ZERO);
    last.wait(1);
    while owners.iter().any(Owner::is_held) {
        Linux::sleep(MILLISECOND);
    }
    owners.iter().for_each(Owner::check);
    assert!(!timer.is_current());
}

#[test]
fn the_end_releases_all_nodes() {
    let timer = timer();
    let owners: Vec<_> = (0..50).map(|_| Owner::new(&timer)).collect();
    for (number, owner) in owners.iter().enumerate() {
        owner.arm_in(Duration::from_secs(1000 * number as u64 + 1000));
    }
    owners[7].disarm();
    end(&timer);
    owners.iter().for_each(Owner::check);
    let dropped: u32 = owners.iter().map(|owner| owner.0.dropped.load(Ordering::Relaxed)).sum();
    assert_eq!(dropped, 49);
}

#[test]
#[cfg_attr(miri, ignore = "it is about time")]
fn the_timer_keeps_deadlines_while_many_queues_end() {
    let timer = timer();
    let owners: Vec<_> = (0..20_000).map(|_| Owner::new(&timer)).collect();
    for owner in &owners {
        owner.arm_in(Duration::from_secs(1000));
    }
    // When it has expired, the others are on the wheel, and the thread has identified itself.
    let last = Owner::new(&timer);
    last.arm_in(Duration::ZERO);
    last.wait(1);
    let thread = timer.shared.thread.thread().expect("it was started");
    let cpu = || Linux::cpu_time(thread).expect("it is alive");
    let (begin, used) = (Linux::now(), cpu());
    while Linux::now() - begin < 300 * MILLISECOND {
        timer.sweep();
        Linux::yield_now();
    }
    let (passed, used) = (Linux::now() - begin, cpu().saturating_sub(used));
    // A tenth, plus the time to be woken, plus one sweep that is not over.
    assert!(used * 2 < passed, "{used:?} of {passed:?}");
    assert!(used > Duration::ZERO);
    end(&timer);
    owners.iter().chain([&last]).for_each(Owner::check);
}

/// The timer of a runtime.
fn timer_of(runtime: &Runtime) -> Arc<Timer<Linux>> {
    Arc::new(Timer { shared: Arc::clone(&runtime.inner().timer.shared) })
}

/// Waits until the thread has released everything.
fn until_the_thread_has_ended(timer: &Timer<Linux>) {
    while Arc::strong_count(&timer.shared) > 1 {
        Linux::sleep(MILLISECOND);
    }
    // The count is read without ordering; after this, what the thread did before is visible.
    Linux::fence(Ordering::Acquire);
}

#[test]
fn a_runtime_ends_its_timer() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let timer = timer_of(&runtime);
    let owners = [Owner::new(&timer), Owner::new(&timer)];
    owners[0].arm_in(Duration::ZERO);
    owners[0].wait(1);
    owners[1].arm_in(Duration::from_secs(1000));
    drop(runtime);
    owners.iter().for_each(Owner::check);
    until_the_thread_has_ended(&timer);
}

/// A node that owns a handle of its runtime until it is notified.
#[repr(C)]
struct Last {
    node: TimerNode<Linux>,
    runtime: Mutex<Option<Runtime>, Linux>,
}

const LAST: &TimerTable<Linux> = &TimerTable {
    end_if_over: goes_on::<Linux>,
    expire: |node| {
        // SAFETY: such an object begins with its node, and the hold keeps it alive.
        let last = unsafe { node.cast::<Last>().as_ref() };
        drop(last.runtime.lock().take());
        None
    },
    // SAFETY: the hold was a reference, which comes back.
    release: |node, _| drop(unsafe { Arc::from_raw(node.cast::<Last>().as_ptr()) }),
};

#[test]
fn the_last_handle_of_a_runtime_may_be_dropped_on_the_timers_thread() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let timer = timer_of(&runtime);
    let last = Last { node: TimerNode::new(LAST), runtime: Mutex::new_in(Some(runtime)) };
    let last = Arc::new(last);
    let raw = Arc::into_raw(Arc::clone(&last)).cast_mut();
    let node = NonNull::new(raw).expect("an address").cast();
    // SAFETY: the reference keeps it alive until it comes back by `release`.
    let armed = unsafe { timer.arm(node, Linux::now() + MILLISECOND) };
    timer.see_to_the_thread();
    assert_eq!(armed.hold, Hold::Taken);
    until_the_thread_has_ended(&timer);
    assert!(last.runtime.lock().is_none());
    assert_eq!(Arc::strong_count(&last), 1, "it was released");
}

#[test]
fn an_unused_timer_ends() {
    end(&timer());
}

#[test]
#[cfg_attr(miri, ignore = "reads /proc")]
fn a_distant_deadline_causes_no_wake_ups() {
    let timer = timer();
    let owner = Owner::new(&timer);
    owner.arm_in(Duration::from_hours(1));
    // Repeats until a tenth of a second brings nothing new.
    let mut before = 0;
    loop {
        Linux::sleep(100 * MILLISECOND);
        let started = timer.shared.thread.thread().is_some();
        let now = if started { switches(&timer) } else { 0 };
        if now != 0 && now == before {
            break;
        }
        before = now;
    }
    Linux::sleep(Duration::from_millis(500));
    assert_eq!(switches(&timer), before, "wake-ups for a deadline in an hour");
    assert_eq!(owner.expired(), 0);
    end(&timer);
    owner.check();
}

fn resident() -> usize {
    let line = std::fs::read_to_string("/proc/self/statm").expect("/proc is mounted");
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_node_is_one_cache_line() {
    assert_eq!(size_of::<super::TimerNode<Linux>>(), 64);
}

#[test]
#[cfg_attr(miri, ignore = "too many")]
fn a_million_armed_timers() {
    const COUNT: u32 = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let timer = timer();
    let owners: Vec<_> = (0..COUNT).map(|_| Owner::new(&timer)).collect();
    let (begin, memory) = (Linux::now(), resident());
    // Half of them within the next second, the others within a day.
    for (number, owner) in (0_u64..).zip(&owners) {
        let spread = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 11;
        let range = [1_000_000_000, 86_400_000_000_000][number as usize % 2];
        owner.arm(
            begin
                + Duration::from_millis(number % 2 * 60_000)
                + Duration::from_nanos(spread % range),
        );
    }
    let armed = Linux::now();
    let soon = owners.iter().step_by(2);
    while soon.clone().any(|owner| owner.expired() == 0) {
        Linux::sleep(MILLISECOND);
    }
    let expired = Linux::now();
    let used = Linux::cpu_time(timer.shared.thread.thread().expect("it runs")).expect("alive");
    let disarming = Linux::now();
    let rest: Vec<_> = owners.iter().skip(1).step_by(2).collect();
    assert!(rest.iter().all(|owner| owner.expired() == 0), "they expire in a minute");
    assert!(rest.iter().all(|owner| owner.disarm()));
    let disarmed = Linux::now();
    println!(
        "{COUNT} timers: armed in {:?}, half of them expired after {:?}, {used:?} of the thread's time; the others \
         disarmed in {:?}; {} KiB more than the nodes",
        armed - begin,
        expired - begin,
        disarmed - disarming,
        resident().saturating_sub(memory) / 1024,
    );
    end(&timer);
    owners.iter().for_each(Owner::check);
}

/// How late each of this many deadlines is noticed, one deadline after the other; sorted.
fn lateness(count: u64) -> Vec<Duration> {
    let timer = timer();
    let owner = Owner::new(&timer);
    let mut late: Vec<_> = (0..count)
        .map(|number| {
            let deadline = Linux::now() + Duration::from_nanos(500_000 + number * 7919 % 2_000_000);
            owner.arm(deadline);
            owner.wait(number as u32 + 1);
            Duration::from_nanos(owner.0.expired_at.load(Ordering::Relaxed) - deadline.as_nanos())
        })
        .collect();
    end(&timer);
    owner.check();
    late.sort_unstable();
    late
}

/// Generous: the machine may be busy with other tests.
#[test]
#[cfg_attr(miri, ignore = "the interpreter is slow")]
fn deadlines_are_noticed_soon() {
    let late = lateness(100);
    let median = late[late.len() / 2];
    assert!(median < 50 * MILLISECOND, "half of the deadlines are noticed {median:?} late");
}

#[test]
#[ignore = "measures, and says something on an idle machine only"]
fn how_late_deadlines_are_noticed() {
    let late = lateness(5_000);
    let part = |percent: usize| late[(late.len() - 1) * percent / 100];
    println!(
        "late by p50 {:?}, p90 {:?}, p99 {:?}, at most {:?}",
        part(50),
        part(90),
        part(99),
        part(100)
    );
}

/// A future whose queue is gone ends where it is woken. On the timer's thread that would delay every other deadline.
#[test]
#[cfg(not(miri))]
fn a_future_ended_by_a_timers_wake_is_dropped_on_another_thread() {
    #[repr(C)]
    struct Wakes {
        node: TimerNode<Linux>,
        waker: Waker,
    }
    unsafe fn wake(node: NonNull<TimerNode<Linux>>) -> Option<Foreign> {
        // SAFETY: the hold keeps it alive.
        unsafe { node.cast::<Wakes>().as_ref() }.waker.wake_by_ref();
        None
    }
    unsafe fn let_go(node: NonNull<TimerNode<Linux>>, _: bool) {
        // SAFETY: the hold was a reference.
        drop(unsafe { Arc::from_raw(node.cast::<Wakes>().as_ptr()) });
    }
    struct Says(mpsc::Sender<String>);
    impl Drop for Says {
        fn drop(&mut self) {
            let name = std::fs::read_to_string("/proc/thread-self/comm").expect("is there");
            self.0.send(name).expect("the test waits");
        }
    }
    const TABLE: &TimerTable<Linux> =
        &TimerTable { expire: wake, end_if_over: goes_on::<Linux>, release: let_go };
    let runtime = Runtime::builder().build().expect("the call succeeds");
    let queue = runtime.workqueue_builder("gone").build().expect("the call succeeds");
    let ((dropped, drops), (left, wakers)) = (mpsc::channel(), mpsc::channel());
    let says = Says(dropped);
    drop(queue.spawn_future(core::future::poll_fn(move |context| {
        let _ = &says;
        left.send(context.waker().clone()).expect("the test waits");
        core::task::Poll::<()>::Pending
    })));
    let waker = wakers.recv().expect("it is polled");
    drop(queue);
    let wakes = Arc::new(Wakes { node: TimerNode::new(TABLE), waker });
    let node = NonNull::new(Arc::into_raw(wakes).cast_mut()).expect("an address").cast();
    let timer = &runtime.inner().timer;
    // SAFETY: the reference keeps it alive until it is released.
    let armed = unsafe { timer.arm(node, Linux::now()) };
    assert_eq!(armed.hold, Hold::Taken);
    timer.see_to_the_thread();
    let name = drops.recv_timeout(Duration::from_mins(1)).expect("it ends");
    assert_eq!(name.trim(), "nq/drop");
}
