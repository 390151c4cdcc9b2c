//! Signals: threads and processes that an item starts, and the thread that computes, have the program's own signal mask.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc;
use std::time::Duration;

use nearq_core::{AffinityScope, Runtime, Work};
use nearq_platform::{Linux, SignalMask, Threads};

use crate::common::{self, Barrier};

#[test]
fn a_process_started_by_an_item_can_be_terminated() {
    let runtime = Runtime::builder().build().unwrap();
    let rescued = runtime.workqueue_builder("rescued").rescuer().build().unwrap();
    let queue = runtime.workqueue_builder("jobs").build().unwrap();
    for queue in [&queue, &rescued] {
        let ended = queue.spawn(ended_by_term);
        assert_eq!(ended.join().unwrap().signal(), Some(libc::SIGTERM));
    }
}

/// Starts a program in the calling thread and asks it to end; returns how it ended.
fn ended_by_term() -> ExitStatus {
    let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
    // SAFETY: a signal to our own child, which has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    child.wait().unwrap()
}

#[test]
fn a_process_started_by_a_stall_callback_can_be_terminated() {
    let (sender, receiver) = mpsc::channel();
    let gate = Barrier::default();
    let runtime = Runtime::builder()
        .thread_limit(1)
        .stall_after(Duration::from_millis(50))
        .on_stall(move |_| sender.send(ended_by_term()).unwrap_or_default())
        .build()
        .unwrap();
    let queue = runtime.workqueue_builder("stalls").build().unwrap();
    let inside = gate.clone();
    let holder = queue.spawn(move || inside.wait());
    let behind = queue.spawn(|| {});
    assert_eq!(receiver.recv().unwrap().signal(), Some(libc::SIGTERM));
    gate.open();
    holder.join().unwrap();
    behind.join().unwrap();
}

/// If no thread can be started for that, the timer's thread drops what a cancelled item captured.
#[test]
fn the_timers_thread_has_the_mask_of_the_thread_that_built_the_runtime() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("delayed").build().unwrap();
    let work = Work::new(|_: &Work| {});
    assert!(queue.queue_delayed(&work, Duration::from_secs(1000)));
    let blocked = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        tasks.map(|task| task.unwrap().path()).find_map(|task| {
            let name = std::fs::read_to_string(task.join("comm")).ok()?;
            let status = std::fs::read_to_string(task.join("status")).ok()?;
            let mask = status.lines().find_map(|line| line.strip_prefix("SigBlk:"))?;
            (name.trim() == "nq/timer").then(|| u64::from_str_radix(mask.trim(), 16).unwrap())
        })
    };
    common::eventually("it has begun", || blocked() == Some(Linux::signal_mask().0));
    assert!(work.cancel());
}

/// The same if a thread of the runtime starts the worker: the monitor, or another worker.
#[test]
fn workers_have_the_mask_of_the_thread_that_built_the_runtime() {
    let (sender, receiver) = mpsc::channel();
    // In a thread of its own, whose mask no other thread inherits.
    std::thread::spawn(move || {
        // SAFETY: validity: an all-zero set is an empty one. Aliasing and thread: a local value.
        let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: validity: the set is initialised. Aliasing and thread: a local value.
        unsafe { libc::sigaddset(&raw mut set, libc::SIGUSR2) };
        // SAFETY: validity: the set is initialised. Aliasing: only read. Thread: the caller's mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const set, std::ptr::null_mut()) };
        sender.send(Runtime::builder().build().unwrap()).unwrap();
    })
    .join()
    .unwrap();
    let runtime = receiver.recv().unwrap();
    let queue =
        runtime.workqueue_builder("masks").affinity_scope(AffinityScope::System).build().unwrap();
    let barrier = Barrier::default();
    // Each item sleeps, so another worker takes its place. The monitor or a worker starts that one.
    let items = 4 * runtime.parallelism();
    let masks: Vec<_> = (0..items)
        .map(|_| {
            let barrier = barrier.clone();
            queue.spawn(move || {
                let mask = Linux::signal_mask();
                barrier.wait();
                mask
            })
        })
        .collect();
    common::eventually("all of them wait", || runtime.thread_count() >= items);
    barrier.open();
    for mask in masks {
        assert_eq!(mask.join().unwrap(), SignalMask(1 << (libc::SIGUSR2 - 1)));
    }
}
