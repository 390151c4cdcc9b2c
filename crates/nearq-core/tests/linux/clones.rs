//! Clones of a workqueue: the drop of the last one ends the queue, and the drops of the others do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use nearq_core::{Runtime, Work, Workqueue};

use crate::common::PATIENCE;

fn runtime() -> Runtime {
    Runtime::builder().build().expect("the machine is known")
}

fn wait_until(mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < PATIENCE, "it takes too long");
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn only_the_drop_of_the_last_clone_waits() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("cloned").build().expect("the call succeeds");
    let (open, gate) = mpsc::channel::<()>();
    let ran = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&ran);
    queue.spawn(move || {
        let _ = gate.recv();
        counted.fetch_add(1, Ordering::Relaxed);
    });
    let clone = queue.clone();
    // Otherwise the drop would wait for ever.
    drop(queue);
    assert_eq!(clone.spawn(|| 5).join().expect("the queue works"), 5);
    assert_eq!(ran.load(Ordering::Relaxed), 0);
    open.send(()).expect("the item waits");
    drop(clone);
    assert_eq!(ran.load(Ordering::Relaxed), 1, "the last drop has waited");
    assert!(runtime.queues().is_empty());
}

#[test]
fn threads_queue_through_clones_of_their_own() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("threads").build().expect("the call succeeds");
    let ran = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (queue, ran) = (queue.clone(), Arc::clone(&ran));
            thread::spawn(move || {
                for _ in 0..100 {
                    let ran = Arc::clone(&ran);
                    queue.clone().spawn(move || ran.fetch_add(1, Ordering::Relaxed));
                }
            })
        })
        .collect();
    drop(queue);
    for thread in threads {
        thread.join().expect("no panic");
    }
    // The thread that had the last clone has waited for all items, whichever thread it was.
    assert_eq!(ran.load(Ordering::Relaxed), 400);
}

#[test]
fn an_item_may_drop_the_last_clone_of_its_own_queue() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("own").build().expect("the call succeeds");
    let (sender, receiver) = mpsc::channel();
    let (queue_clone, handle) = (queue.clone(), queue.handle());
    let (open, gate) = mpsc::channel::<()>();
    queue.spawn(move || {
        let _ = gate.recv();
        queue_clone.spawn(move || sender.send(()));
        drop(queue_clone);
    });
    drop(queue);
    assert!(handle.upgrade().is_some(), "the item has a clone");
    open.send(()).expect("the item waits");
    receiver.recv_timeout(PATIENCE).expect("the item that it queued runs");
    wait_until(|| handle.upgrade().is_none());
    // The handle keeps the queue's memory.
    drop(handle);
    wait_until(|| runtime.queues().is_empty());
}

#[test]
fn a_handle_becomes_a_queue_again_until_the_last_one_is_dropped() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("again").build().expect("the call succeeds");
    let (runs, own_handle) = (Arc::new(AtomicU32::new(0)), queue.handle());
    let counted = Arc::clone(&runs);
    let work = Work::new(move |work: &Work| {
        if counted.fetch_add(1, Ordering::Relaxed) < 9 {
            assert!(own_handle.upgrade().is_none_or(|queue: Workqueue| queue.queue(work)));
        }
    });
    assert!(queue.queue(&work));
    wait_until(|| runs.load(Ordering::Relaxed) == 10);
    let handle = queue.handle();
    let again = handle.upgrade().expect("the queue is there");
    drop(queue);
    assert!(handle.upgrade().is_some(), "the second one is there");
    drop(again);
    assert!(handle.upgrade().is_none());
    assert_eq!(handle.name(), "again", "it can be read still");
}
