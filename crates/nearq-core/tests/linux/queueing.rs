//! What queueing promises: every item runs, once for each successful `queue`, never twice at once.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use nearq_core::{AffinityScope, Runtime, Work, Workqueue};

use crate::common::{self, PATIENCE};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

#[test]
fn an_item_runs_and_can_be_queued_again() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("again").build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let mut runs = 0;
    let work = Work::new(move |_: &Work| {
        runs += 1;
        sender.send(runs).unwrap();
    });
    for expected in 1..=1000 {
        // The item may still be in the middle of its last instructions, but it is not pending.
        assert!(queue.queue(&work));
        assert_eq!(receiver.recv_timeout(PATIENCE), Ok(expected));
    }
}

#[test]
fn an_item_never_runs_twice_at_once_and_no_queueing_is_lost() {
    let runtime = runtime();
    let queues: Vec<_> = [AffinityScope::Cpu, AffinityScope::System]
        .map(|scope| runtime.workqueue_builder("reentrance").affinity_scope(scope).build().unwrap())
        .into_iter()
        .collect();
    let inside = Arc::new(AtomicBool::new(false));
    let runs = Arc::new(AtomicU64::new(0));
    let (flag, count) = (Arc::clone(&inside), Arc::clone(&runs));
    let work = Work::new(move |_: &Work| {
        assert!(!flag.swap(true, Ordering::AcqRel), "two executions at once");
        std::hint::spin_loop();
        count.fetch_add(1, Ordering::Relaxed);
        flag.store(false, Ordering::Release);
    });
    let queued = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for queue in &queues {
            for _ in 0..2 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        queued.fetch_add(u64::from(queue.queue(&work)), Ordering::Relaxed);
                    }
                });
            }
        }
    });
    drop(queues);
    assert_eq!(runs.load(Ordering::Relaxed), queued.load(Ordering::Relaxed));
    assert!(!work.is_pending() && !work.is_running());
}

#[test]
fn the_function_may_queue_its_own_item() {
    let runtime = runtime();
    let queue = Arc::new(runtime.workqueue_builder("own").build().unwrap());
    let (sender, receiver) = mpsc::channel();
    let inner = Arc::downgrade(&queue);
    let mut left = 1000;
    let work = Work::new(move |work: &Work| {
        left -= 1;
        if left > 0 {
            assert!(inner.upgrade().unwrap().queue(work));
        } else {
            sender.send(()).unwrap();
        }
    });
    assert!(queue.queue(&work));
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(()));
    drop(work);
}

#[test]
fn the_function_may_drop_the_last_handle_of_its_own_item() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("last").build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let slot: Arc<std::sync::Mutex<Option<Work>>> = Arc::default();
    let slot_clone = Arc::clone(&slot);
    let tail = Arc::new(());
    let captured = Arc::clone(&tail);
    let work = Work::new(move |_: &Work| {
        drop(slot_clone.lock().unwrap().take());
        sender.send(Arc::strong_count(&captured)).unwrap();
    });
    let mut guard = slot.lock().unwrap();
    queue.queue(&work);
    *guard = Some(work);
    drop(guard);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(2), "the function is alive while it runs");
    drop(queue);
    assert_eq!(Arc::strong_count(&tail), 1, "and freed after it");
}

#[test]
fn a_panic_is_counted_and_the_item_runs_again() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("panics").build().unwrap();
    let (sender, receiver) = mpsc::channel();
    let mut runs = 0;
    let work = Work::new(move |_: &Work| {
        runs += 1;
        sender.send(runs).unwrap();
        assert_ne!(runs, 1, "the first run panics, as it should");
    });
    queue.queue(&work);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(1));
    while work.is_running() {
        std::thread::yield_now();
    }
    queue.queue(&work);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(2));
    while work.is_running() {
        std::thread::yield_now();
    }
    let deadline = std::time::Instant::now() + PATIENCE;
    while queue.statistics().iter().map(|pwq| pwq.completed).sum::<u64>() != 2 {
        assert!(std::time::Instant::now() < deadline, "{:?}", queue.statistics());
    }
    assert_eq!(queue.statistics().iter().map(|pwq| pwq.panicked).sum::<u64>(), 1);
}

/// Panics when it is dropped, with a payload that panics fewer times.
struct Bomb(u32);

impl Drop for Bomb {
    fn drop(&mut self) {
        if self.0 > 0 {
            std::panic::panic_any(Bomb(self.0 - 1));
        }
    }
}

#[test]
fn a_panic_payload_may_panic_when_dropped() {
    let runtime =
        Runtime::builder().on_worker_start(|_| std::panic::panic_any(Bomb(2))).build().unwrap();
    let queue = runtime.workqueue_builder("bombs").build().unwrap();
    let _watchdog = common::watch(Some(&runtime));
    let (bomb, held) = (Bomb(2), Arc::new(AtomicBool::new(false)));
    let hold = Arc::clone(&held);
    let work = Work::new(move |_: &Work| {
        let _ = &bomb;
        while hold.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        std::panic::panic_any(Bomb(2));
    });
    for _ in 0..3 {
        assert!(queue.queue(&work));
        work.flush().unwrap();
    }
    // A worker drops it, and not this thread.
    held.store(true, Ordering::Relaxed);
    assert!(queue.queue(&work));
    drop(work);
    held.store(false, Ordering::Relaxed);
    queue.drain().unwrap();
    assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
    assert_eq!(queue.statistics().iter().map(|pwq| pwq.panicked).sum::<u64>(), 4);
}

#[test]
fn many_issuers_many_items() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("many").max_active(64).build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    let runs = Arc::clone(&runs);
                    drop(queue.spawn(move || runs.fetch_add(1, Ordering::Relaxed)));
                }
            });
        }
    });
    drop(queue);
    assert_eq!(runs.load(Ordering::Relaxed), 80_000);
}

#[test]
fn max_active_bounds_how_many_items_run_at_once() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("bounded").max_active(1).build().unwrap();
    let running = Arc::new(AtomicU64::new(0));
    let handles: Vec<_> = (0..200)
        .map(|_| {
            let running = Arc::clone(&running);
            queue.spawn(move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                std::thread::yield_now();
                running.fetch_sub(1, Ordering::SeqCst);
                now
            })
        })
        .collect();
    assert!(handles.into_iter().all(|handle| handle.join().unwrap() == 1));
    queue.set_max_active(2).unwrap();
    assert_eq!(queue.max_active(), 2);
    let (sender, receiver) = mpsc::channel();
    let barrier = Arc::new(std::sync::Barrier::new(2));
    for _ in 0..2 {
        let (sender, barrier) = (sender.clone(), Arc::clone(&barrier));
        drop(queue.spawn(move || {
            barrier.wait();
            sender.send(()).unwrap();
        }));
    }
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(()), "two items run together now");
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(()));
}

#[test]
fn held_back_items_start_in_order() {
    let runtime = runtime();
    let queue = runtime
        .workqueue_builder("order")
        .affinity_scope(AffinityScope::System)
        .max_active(1)
        .build()
        .unwrap();
    let (sender, receiver) = mpsc::channel();
    let gate = Arc::new(std::sync::Barrier::new(2));
    let opener = Arc::clone(&gate);
    drop(queue.spawn(move || {
        opener.wait();
    }));
    for number in 0..500 {
        let sender = sender.clone();
        drop(queue.spawn(move || sender.send(number).unwrap()));
    }
    assert_eq!(queue.inactive(), 500);
    gate.wait();
    drop(queue);
    assert_eq!(receiver.try_iter().collect::<Vec<_>>(), (0..500).collect::<Vec<_>>());
}

#[test]
fn dropping_a_queue_from_its_own_item_does_not_wait_for_itself() {
    let runtime = runtime();
    let queue: Workqueue = runtime.workqueue_builder("self").build().unwrap();
    let slot = Arc::new(std::sync::Mutex::new(None));
    let slot_clone = Arc::clone(&slot);
    let (sender, receiver) = mpsc::channel();
    let mut guard = slot.lock().unwrap();
    drop(queue.spawn(move || {
        drop(slot_clone.lock().unwrap().take());
        sender.send(()).unwrap();
    }));
    *guard = Some(queue);
    drop(guard);
    assert_eq!(receiver.recv_timeout(PATIENCE), Ok(()));
}
