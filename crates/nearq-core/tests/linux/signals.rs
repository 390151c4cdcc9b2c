//! Signals: what an item starts, and the thread that computes, have the program's own mask.

use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::mpsc;

use nearq_core::{Runtime, Scope};
use nearq_platform::{Linux, Platform, SignalMask};

use crate::common::{self, Barrier};

#[test]
fn what_an_item_starts_can_be_ended() {
    let runtime = Runtime::builder().build().unwrap();
    let rescued = runtime.workqueue("rescued").rescuer(true).build().unwrap();
    let queue = runtime.workqueue("jobs").build().unwrap();
    for queue in [&queue, &rescued] {
        let ended = queue.spawn(|| {
            let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
            // SAFETY: a signal to the own child, which has not been waited for.
            unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
            child.wait().unwrap()
        });
        assert_eq!(ended.join().unwrap().signal(), Some(libc::SIGTERM));
    }
}

/// Also where it is a thread of the runtime's that starts the worker: the monitor, which blocks all signals, or another worker.
#[test]
fn workers_have_the_mask_of_the_thread_that_built_the_runtime() {
    let (sender, receiver) = mpsc::channel();
    // In a thread of its own, whose mask nobody else inherits.
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
    let queue = runtime.workqueue("masks").scope(Scope::System).build().unwrap();
    let barrier = Barrier::default();
    // Each item sleeps, so another worker takes its place. The monitor or another worker starts that one.
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
    common::eventually("all of them wait", || runtime.threads() >= items);
    barrier.open();
    for mask in masks {
        assert_eq!(mask.join().unwrap(), SignalMask(1 << (libc::SIGUSR2 - 1)));
    }
}
