//! The priorities of threads, how long they ran, and what they are doing.

#![allow(clippy::disallowed_types, reason = "a flag is a flag")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{OneShot, Sleeper, Thread, eventually, in_thread, spin};
use nearq_platform::{Linux, LockPlatform, RunState, SchedPolicy, Scheduling, ThreadSpec, Threads};
use rustix::process::{Resource, getrlimit};
use rustix::thread::CapabilitySet;

fn ordinary(nice: i32) -> Scheduling {
    Scheduling { policy: SchedPolicy::Normal, nice, slice: None }
}

#[test]
fn lowering_a_threads_priority_is_always_allowed() {
    let before = Linux::nice(Linux::current_thread()).unwrap();
    let sleeper = Sleeper::start(ThreadSpec::default());
    assert_eq!(Linux::nice(sleeper.thread).unwrap(), before, "inherited");
    let more = (before + 5).min(19);
    Linux::favour(sleeper.thread, ordinary(more)).unwrap();
    assert_eq!(Linux::nice(sleeper.thread).unwrap(), more);
    assert_eq!(Linux::nice(Linux::current_thread()).unwrap(), before, "of one thread, not of all");
}

#[test]
fn raising_a_threads_priority_needs_the_privilege() {
    let spec = ThreadSpec { nice: Some(19), ..ThreadSpec::default() };
    in_thread(spec, || match Linux::favour(Linux::current_thread(), ordinary(-20)) {
        Ok(()) => assert_eq!(Linux::nice(Linux::current_thread()).unwrap(), -20),
        Err(refused) => assert_eq!(refused.errno(), libc::EACCES, "{refused}"),
    });
}

/// Takes the privilege away from the caller, a thread of its own.
fn give_up_sys_nice() {
    let mut capabilities = rustix::thread::capabilities(None).unwrap();
    capabilities.effective.remove(CapabilitySet::SYS_NICE);
    capabilities.permitted.remove(CapabilitySet::SYS_NICE);
    capabilities.inheritable.remove(CapabilitySet::SYS_NICE);
    rustix::thread::set_capabilities(None, capabilities).unwrap();
}

#[test]
fn a_refused_nice_value_names_the_privilege() {
    let limit = getrlimit(Resource::Nice).current;
    if limit.is_none_or(|limit| limit >= 25) {
        eprintln!("not tried: RLIMIT_NICE allows it here");
        return;
    }
    in_thread(ThreadSpec::default(), || {
        give_up_sys_nice();
        let me = Linux::current_thread();
        let refused = Linux::favour(me, ordinary(-5)).unwrap_err();
        let text = refused.to_string();
        let limit = getrlimit(Resource::Nice).current.unwrap();
        assert!(text.contains(&format!("give thread {} nice -5", Linux::thread_id(me))), "{text}");
        let remedy = format!(
            "needs CAP_SYS_NICE, or RLIMIT_NICE of at least 25 (ulimit -e 25; it is {limit})"
        );
        assert_eq!(refused.remedy(), remedy);

        let refused = Linux::set_scheduling(me, SchedPolicy::Normal, -5, None).unwrap_err();
        assert_eq!(refused.remedy(), remedy);
    });
}

/// What the kernel says about a thread's class, nice value and slice.
fn attributes_of(thread: Thread) -> libc::sched_attr {
    // SAFETY: validity: all zero is a value of every field. Aliasing and thread: a local value.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    let thread = Linux::thread_id(thread);
    let size = size_of::<libc::sched_attr>();
    // SAFETY: validity: `attributes` is `size` bytes that the kernel may write. Aliasing: the only reference is
    // the one passed. Thread: any may ask about any.
    let returned =
        unsafe { libc::syscall(libc::SYS_sched_getattr, thread, &raw mut attributes, size, 0) };
    assert_eq!(returned, 0);
    attributes
}

#[test]
fn class_nice_and_slice_are_set_in_one_call() {
    let sleeper = Sleeper::start(ThreadSpec { nice: Some(3), ..ThreadSpec::default() });
    let slice = Duration::from_micros(500);
    Linux::set_scheduling(sleeper.thread, SchedPolicy::Normal, 4, Some(slice)).unwrap();
    let set = attributes_of(sleeper.thread);
    assert_eq!(set.sched_policy, libc::SCHED_OTHER.unsigned_abs());
    assert_eq!((set.sched_nice, Linux::nice(sleeper.thread).unwrap()), (4, 4));
    // Kernels before 6.12 have no slices of threads, and say 0.
    if set.sched_runtime != 0 {
        assert_eq!(Duration::from_nanos(set.sched_runtime), slice);
        Linux::set_scheduling(sleeper.thread, SchedPolicy::Normal, 4, None).unwrap();
        let default_slice = attributes_of(sleeper.thread).sched_runtime;
        assert_ne!(Duration::from_nanos(default_slice), slice, "the system's default again");
    }
    Linux::set_scheduling(sleeper.thread, SchedPolicy::Idle, 5, None).unwrap();
    let set = attributes_of(sleeper.thread);
    assert_eq!((set.sched_policy, set.sched_nice), (libc::SCHED_IDLE.unsigned_abs(), 5));
}

#[test]
fn cpu_time_grows_with_work() {
    let me = Linux::current_thread();
    let before = Linux::cpu_time(me).unwrap();
    eventually("20 ms of CPU time", || {
        spin(Duration::from_millis(1));
        Linux::cpu_time(me).unwrap() >= before + Duration::from_millis(20)
    });
}

#[test]
fn cpu_time_stands_still_in_sleep() {
    let sleeper = Sleeper::start(ThreadSpec::default());
    eventually("the thread sleeps", || Linux::run_state(sleeper.thread) == Ok(RunState::Blocked));
    // The last microseconds before it fell asleep are accounted when it does.
    let before = Linux::cpu_time(sleeper.thread).unwrap();
    Linux::sleep(Duration::from_millis(30));
    let after = Linux::cpu_time(sleeper.thread).unwrap();
    assert!(after < before + Duration::from_millis(1), "{before:?} to {after:?}");
}

#[test]
fn a_sleep_is_not_shorter_than_asked_for() {
    let start = Linux::now();
    Linux::sleep(Duration::from_millis(5));
    assert!(Linux::now().saturating_since(start) >= Duration::from_millis(5));
}

#[test]
fn only_threads_that_wake_exactly_have_the_smallest_slack() {
    let slack = || rustix::thread::current_timer_slack().unwrap();
    let before = slack();
    in_thread(ThreadSpec::default(), move || {
        Linux::wake_exactly();
        assert_eq!(slack(), 1);
    });
    assert_eq!(slack(), before);
}

#[test]
fn a_sleeping_thread_is_blocked_whatever_its_name() {
    let name = "a) R (b".to_owned();
    let sleeper = Sleeper::start(ThreadSpec { name, ..ThreadSpec::default() });
    eventually("blocked", || Linux::run_state(sleeper.thread) == Ok(RunState::Blocked));
    for _ in 0..100 {
        assert_eq!(Linux::run_state(sleeper.thread), Ok(RunState::Blocked));
    }
}

#[test]
fn a_working_thread_is_runnable() {
    assert_eq!(Linux::run_state(Linux::current_thread()), Ok(RunState::Runnable));

    let stop = Arc::new(AtomicBool::new(false));
    let stop_clone = Arc::clone(&stop);
    let (sender, receiver) = OneShot::pair();
    let name = "a) S (b".to_owned();
    let handle = Linux::spawn(ThreadSpec { name, ..ThreadSpec::default() }, move || {
        sender.send(Linux::current_thread());
        while !stop_clone.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    })
    .unwrap();
    let thread = receiver.receive();
    let mut seen = 0;
    eventually("runnable a hundred times in a row", || {
        let runnable = Linux::run_state(thread) == Ok(RunState::Runnable);
        seen = if runnable { seen + 1 } else { 0 };
        seen == 100
    });
    stop.store(true, Ordering::Relaxed);
    Linux::join(handle);
    eventually("ended", || Linux::run_state(thread) == Ok(RunState::Ended));
}
