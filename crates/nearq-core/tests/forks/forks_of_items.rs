//! What becomes of items, futures, sets, timers and waiting in the child of a fork: what is under way belongs to the parent; what the child
//! queues itself runs in the child, once; and nothing in the child waits for a thread that the child does not have.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use nearq_core::{Runtime, Work, Workqueue};

use crate::common::child::{child, drop_in_child};
use crate::common::{Barrier, PATIENCE, alone_with_runtime, eventually};

/// A time after the end of every test.
const NEVER: Duration = Duration::from_secs(1000);
const SOON: Duration = Duration::from_millis(2);

/// A queue whose limit has one place.
fn narrow(runtime: &Runtime) -> Workqueue {
    runtime.workqueue_builder("narrow").max_active(1).build().unwrap()
}

/// An item that counts its executions and waits at the barrier.
fn counting(runs: &Arc<AtomicU32>, barrier: &Barrier) -> Work {
    let (runs, barrier) = (Arc::clone(runs), barrier.clone());
    Work::new(move |_: &Work| {
        runs.fetch_add(1, Ordering::SeqCst);
        barrier.wait();
    })
}

/// Everything that can be done with an item, tried in a child with an item that is under way in the parent.
fn uses(queue: &Workqueue, work: &Work, runs: &AtomicU32, barrier: &Barrier) {
    barrier.open();
    let before = runs.load(Ordering::SeqCst);
    assert!(!work.is_pending() && !work.is_running(), "it is the parent's");
    assert!(!work.flush().unwrap() && !work.cancel(), "nothing to wait for or to cancel");
    assert!(!work.cancel_sync().unwrap());
    let runs_once = |what: &str| {
        assert!(work.flush().unwrap() || !work.is_pending());
        eventually(what, || !work.is_pending() && !work.is_running());
    };
    assert!(queue.queue(work), "it can be queued");
    runs_once("queued");
    assert_eq!(runs.load(Ordering::SeqCst), before + 1, "and runs once");
    assert!(!work.disable() && !queue.queue(work) && work.enable());
    assert!(!work.disable_sync().unwrap() && work.enable());
    assert!(queue.queue_delayed(work, SOON));
    assert!(!queue.queue(work), "it is pending");
    eventually("its time has come", || runs.load(Ordering::SeqCst) == before + 2);
    runs_once("delayed");
    assert!(queue.queue_delayed(work, NEVER) && work.is_pending());
    assert!(queue.modify_delayed(work, SOON));
    eventually("its time has come", || runs.load(Ordering::SeqCst) == before + 3);
    runs_once("modified");
    assert!(queue.queue_delayed(work, NEVER) && work.flush_delayed().unwrap());
    runs_once("expedited");
    assert!(queue.queue_delayed(work, NEVER) && work.cancel());
    // The item is cancelled while it is held back, and queued again by a proxy.
    let limit = queue.max_active();
    queue.set_max_active(1).unwrap();
    let gate = Barrier::default();
    let holder = gate.hold(queue);
    eventually("the holder runs", || {
        queue.statistics().iter().any(|pwq| pwq.started > pwq.completed)
    });
    for _ in 0..3 {
        assert!(queue.queue(work) && work.cancel());
    }
    assert!(queue.queue(work));
    gate.open();
    holder.join().unwrap();
    work.flush().unwrap();
    eventually("all items have run", || runs.load(Ordering::SeqCst) == before + 5);
    queue.set_max_active(limit).unwrap();
    queue.flush().unwrap();
    queue.drain().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), before + 5);
}

/// Forks several children, one after the other, which use an item that the parent has brought into some state; each child forks another
/// one. Then the barrier opens in the parent.
fn in_children(queue: &Workqueue, work: &Work, runs: &AtomicU32, barrier: &Barrier) {
    for _ in 0..3 {
        child(|| {
            child(|| {
                uses(queue, work, runs, barrier);
                true
            });
            uses(queue, work, runs, barrier);
            // The same once more, with what this child has queued itself.
            assert!(queue.queue_delayed(work, NEVER));
            child(|| {
                uses(queue, work, runs, barrier);
                true
            });
            assert!(work.is_pending() && work.cancel());
            drop_in_child(work);
            drop_in_child(queue);
            true
        });
    }
    barrier.open();
}

#[test]
fn a_running_item() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let (queue, barrier, runs) = (narrow(&runtime), Barrier::default(), Arc::default());
    let work = counting(&runs, &barrier);
    assert!(queue.queue(&work));
    eventually("it runs", || work.is_running());
    in_children(&queue, &work, &runs, &barrier);
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn an_item_that_was_queued_while_it_runs() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("wide").build().unwrap();
    let (barrier, runs) = (Barrier::default(), Arc::default());
    let work = counting(&runs, &barrier);
    assert!(queue.queue(&work));
    eventually("it runs", || work.is_running());
    assert!(queue.queue(&work));
    in_children(&queue, &work, &runs, &barrier);
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

/// An item that is held back after a cancelled queueing (so it has a proxy), that threads wait for, and that is disabled.
#[test]
fn an_item_that_is_held_back() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    for stale in [false, true] {
        let (queue, barrier, runs) = (narrow(&runtime), Barrier::default(), Arc::default());
        let holder = barrier.hold(&queue);
        let work = counting(&runs, &barrier);
        assert!(queue.queue(&work));
        if stale {
            assert!(work.cancel() && queue.queue(&work));
        }
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| assert!(work.flush().unwrap()));
            }
            std::thread::sleep(Duration::from_millis(5));
            in_children(&queue, &work, &runs, &barrier);
        });
        holder.join().unwrap();
        assert_eq!(runs.load(Ordering::SeqCst), 1, "once in the parent");
        drop(queue);
    }
}

#[test]
fn a_disabled_item_stays_disabled() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let (queue, barrier, runs) = (narrow(&runtime), Barrier::default(), Arc::default());
    let holder = barrier.hold(&queue);
    let work = counting(&runs, &barrier);
    assert!(queue.queue(&work));
    assert!(work.disable() && !work.disable());
    child(|| {
        assert!(work.is_disabled() && !queue.queue(&work));
        assert!(!work.enable() && work.enable());
        uses(&queue, &work, &runs, &barrier);
        true
    });
    barrier.open();
    holder.join().unwrap();
}

#[test]
fn an_item_on_a_timer() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let (queue, barrier, runs) = (narrow(&runtime), Barrier::default(), Arc::default());
    let work = counting(&runs, &barrier);
    assert!(queue.queue_delayed(&work, NEVER));
    in_children(&queue, &work, &runs, &barrier);
    assert!(work.flush_delayed().unwrap());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // The item's time comes while the child lives: it is queued in the parent only.
    assert!(queue.queue_delayed(&work, Duration::from_millis(300)));
    child(|| {
        std::thread::sleep(Duration::from_millis(400));
        let other = Work::new(|_: &Work| {});
        assert!(queue.queue_delayed(&other, SOON));
        eventually("the child's timer works", || !other.is_pending());
        !work.is_pending() && runs.load(Ordering::SeqCst) == 1
    });
    eventually("its time has come", || runs.load(Ordering::SeqCst) == 2);
}

/// Forks while other threads lock items, because they cancel, arm and wait for them.
#[test]
fn beside_threads_that_lock_items() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("locked").build().unwrap();
    let works: Vec<_> = (0..4).map(|_| Work::new(|_: &Work| {})).collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        for thread in 0..3_usize {
            let (queue, works, stop) = (&queue, &works, &stop);
            threads.spawn(move || {
                let mut at = thread;
                while !stop.load(Ordering::Relaxed) {
                    let work = &works[at % works.len()];
                    match at % 7 {
                        0 | 3 => drop(queue.queue_delayed(work, Duration::from_micros(50))),
                        1 => drop(work.cancel()),
                        2 => drop(work.flush()),
                        4 => drop(work.cancel_sync()),
                        5 => drop(queue.modify_delayed(work, NEVER)),
                        _ => drop(queue.queue(work)),
                    }
                    at += 1;
                }
                for work in works {
                    work.cancel_sync().unwrap();
                }
            });
        }
        for round in 0..100 {
            child(|| {
                for work in &works {
                    if round % 2 == 0 {
                        assert!(!work.is_pending() && !work.is_running());
                    }
                    assert!(queue.queue(work));
                    work.flush().unwrap();
                    assert!(queue.queue_delayed(work, Duration::from_micros(100)));
                    work.flush_delayed().unwrap();
                    work.flush().unwrap();
                    assert!(queue.queue_delayed(work, NEVER) && work.cancel());
                }
                queue.drain().unwrap();
                drop_in_child(&queue);
                true
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

struct Counted(AtomicU32);

/// A waker whose drop takes a lock, as the waker of another executor may.
struct Locking(Arc<Mutex<u32>>);

impl Wake for Locking {
    fn wake(self: Arc<Self>) {}
}

impl Drop for Locking {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

impl Wake for Counted {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Polls until it is ready.
fn block_on<F: Future>(future: F) -> F::Output {
    let counted = Arc::new(Counted(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&counted));
    let mut future = pin!(future);
    loop {
        let before = counted.0.load(Ordering::SeqCst);
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        eventually("woken", || counted.0.load(Ordering::SeqCst) != before);
    }
}

/// Futures that wait for items and queues were polled in the parent, and are polled again in the child.
#[test]
fn forks_with_waiting_futures() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let (queue, barrier, runs) = (narrow(&runtime), Barrier::default(), Arc::default());
    let work = counting(&runs, &barrier);
    assert!(queue.queue(&work));
    eventually("it runs", || work.is_running());
    let task = queue.spawn(|| 5);
    let mut flushed = Box::pin(work.flushed());
    let mut queue_flushed = Box::pin(queue.flushed());
    let mut drained = Box::pin(queue.drained());
    let mut task = Box::pin(task);
    let counted = Arc::new(Counted(AtomicU32::new(0)));
    let waker = Waker::from(Arc::clone(&counted));
    let context = &mut Context::from_waker(&waker);
    assert!(flushed.as_mut().poll(context).is_pending());
    assert!(queue_flushed.as_mut().poll(context).is_pending());
    assert!(drained.as_mut().poll(context).is_pending());
    assert!(task.as_mut().poll(context).is_pending());
    for drops in [false, true] {
        child(|| {
            // SAFETY: each is alive, and is not used beside its copy: the child ends without running any destructor of what is
            // outside its part.
            let (copy, queue_copy, drained_copy, task_copy) = unsafe {
                (
                    core::ptr::read(&raw const flushed),
                    core::ptr::read(&raw const queue_flushed),
                    core::ptr::read(&raw const drained),
                    core::ptr::read(&raw const task),
                )
            };
            if drops {
                drop((copy, queue_copy, drained_copy, task_copy));
            } else {
                block_on(copy).unwrap();
                block_on(queue_copy).unwrap();
                assert!(block_on(task_copy).unwrap_err().is_cancelled());
                // The future drains the child's queue from the start, until it is done.
                let barrier = Barrier::default();
                let last = barrier.hold(&queue);
                let mut drained = drained_copy;
                let waker = Waker::noop();
                assert!(drained.as_mut().poll(&mut Context::from_waker(waker)).is_pending());
                assert!(queue.try_spawn(|| ()).is_err());
                barrier.open();
                block_on(drained).unwrap();
                last.join().unwrap();
            }
            assert_eq!(counted.0.load(Ordering::SeqCst), 0, "a waker of the parent's was called");
            uses(&queue, &work, &runs, &barrier);
            counted.0.load(Ordering::SeqCst) == 0
        });
    }
    barrier.open();
    block_on(flushed).unwrap();
    block_on(queue_flushed).unwrap();
    block_on(drained).unwrap();
    assert_eq!(block_on(task).unwrap(), 5);
}

/// The parent's spawned closures and futures count as cancelled in the child, whichever function asks for their results.
#[test]
fn handles_and_futures_of_the_parents() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let (queue, barrier) = (narrow(&runtime), Barrier::default());
    let done = queue.spawn(|| 1);
    let future_done = queue.spawn_future(async { 2 });
    eventually("they have ended", || done.is_finished() && future_done.is_finished());
    // A future that sleeps, and its waker.
    let (sender, receiver) = mpsc::channel();
    let polls = Arc::new(AtomicU32::new(0));
    let polls_clone = Arc::clone(&polls);
    let asleep = queue.spawn_future(std::future::poll_fn(move |context: &mut Context<'_>| {
        let polls = polls_clone.fetch_add(1, Ordering::SeqCst);
        sender.send(context.waker().clone()).unwrap();
        if polls == 0 { Poll::Pending } else { Poll::Ready(3) }
    }));
    let waker = receiver.recv_timeout(PATIENCE).unwrap();
    let running = barrier.hold(&queue);
    let (waiting, cancelled) = (queue.spawn(|| 4), queue.spawn(|| 5));
    assert!(cancelled.cancel());
    child(|| {
        assert!(!done.cancel() && !future_done.cancel());
        assert_eq!((done.join().unwrap(), future_done.join().unwrap()), (1, 2));
        waker.wake_by_ref();
        drop(waker.clone());
        for _ in 0..2 {
            assert!(running.cancel() && waiting.cancel() && cancelled.cancel() && asleep.cancel());
        }
        assert!(running.is_finished() && asleep.is_finished());
        assert!(running.join().unwrap_err().is_cancelled());
        assert!(block_on(waiting).unwrap_err().is_cancelled());
        assert!(cancelled.join().unwrap_err().is_cancelled());
        assert!(block_on(asleep).unwrap_err().is_cancelled());
        assert_eq!(block_on(queue.spawn_future(async { 6 })).unwrap(), 6);
        queue.drain().unwrap();
        assert_eq!(polls.load(Ordering::SeqCst), 1, "the parent's future was polled in the child");
        drop_in_child(&queue);
        true
    });
    barrier.open();
    waker.wake();
    // `child` has used copies of the handles; what they stand for goes on nevertheless.
    eventually("the parent's future continues", || polls.load(Ordering::SeqCst) == 2);
}

/// In the child, the lock that the parent's waker takes when it is dropped may be held for ever.
#[test]
fn a_waker_of_the_parent_is_not_dropped_in_the_child() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = narrow(&runtime);
    let barrier = Barrier::default();
    let last = barrier.hold(&queue);
    let mut set = queue.join_set();
    set.spawn(|| ());
    let work = Work::new(|_: &Work| ());
    assert!(queue.queue(&work));
    let mut flushed = Box::pin(work.flushed());
    let drops = Arc::new(Mutex::new(0));
    let waker = Waker::from(Arc::new(Locking(Arc::clone(&drops))));
    let context = &mut Context::from_waker(&waker);
    assert!(set.poll_join_next(context).is_pending());
    assert!(flushed.as_mut().poll(context).is_pending());
    let held = drops.lock().unwrap();
    child(|| {
        // SAFETY: the child ends without running any destructor of what is outside its part.
        let mut copy = unsafe { core::ptr::read(&raw const flushed) };
        let noop = &mut Context::from_waker(Waker::noop());
        let _ = copy.as_mut().poll(noop);
        assert!(set.blocking_join_next().unwrap().unwrap_err().is_cancelled());
        set.spawn_future(std::future::pending());
        set.poll_join_next(noop).is_pending()
    });
    drop(held);
    barrier.open();
    last.join().unwrap();
    set.blocking_join_next().unwrap().unwrap();
    block_on(flushed).unwrap();
}

#[test]
fn sets() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = narrow(&runtime);
    for polled in [false, true] {
        let barrier = Barrier::default();
        let mut set = queue.join_set();
        for number in 0..3 {
            set.spawn(move || number);
        }
        queue.flush().unwrap();
        set.spawn({
            let barrier = barrier.clone();
            move || {
                barrier.wait();
                3
            }
        });
        for number in 4..20 {
            set.spawn(move || number);
        }
        set.spawn_future(std::future::pending());
        let counted = Arc::new(Counted(AtomicU32::new(0)));
        if polled {
            // The set has a waker.
            for _ in 0..3 {
                set.blocking_join_next().unwrap().unwrap();
            }
            let waker = Waker::from(Arc::clone(&counted));
            assert!(set.poll_join_next(&mut Context::from_waker(&waker)).is_pending());
        }
        let ended = if polled { 0 } else { 3 };
        let left = set.len();
        child(|| {
            let mut results = 0;
            for at in 0..left {
                if at == left / 2 {
                    // The set also has members of the child's own, and is used by a grandchild.
                    child(|| {
                        while let Some(result) = set.blocking_join_next() {
                            assert!(result.unwrap_err().is_cancelled());
                        }
                        set.spawn(|| 1);
                        set.blocking_join_next().unwrap().unwrap() == 1 && set.is_empty()
                    });
                }
                let result =
                    if at % 2 == 0 { set.blocking_join_next() } else { block_on(set.join_next()) };
                match result.unwrap() {
                    Ok(number) => {
                        assert!(number < 3);
                        results += 1;
                    }
                    Err(error) => assert!(error.is_cancelled()),
                }
            }
            assert_eq!(results, ended, "tasks that had ended have their result");
            assert!(set.blocking_join_next().is_none() && set.is_empty());
            for number in 0..50 {
                set.spawn(move || number);
            }
            let sum: u32 =
                core::iter::from_fn(|| block_on(set.join_next())).map(Result::unwrap).sum();
            assert_eq!(sum, 49 * 25);
            assert_eq!(counted.0.load(Ordering::SeqCst), 0, "a waker of the parent's was called");
            set.spawn_future(std::future::pending());
            set.cancel_all();
            set.blocking_join_next().unwrap().unwrap_err().is_cancelled()
        });
        barrier.open();
        drop(set);
    }
}

#[test]
fn a_frozen_runtime_stays_frozen() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("frozen").freezable().build().unwrap();
    queue.spawn(|| ()).join().unwrap();
    runtime.freeze().unwrap();
    let held = queue.spawn(|| 1);
    child(|| {
        assert!(runtime.is_frozen());
        assert_eq!(queue.inactive(), 0, "held-back items are the parent's");
        let childs_handle = queue.spawn(|| 2);
        std::thread::sleep(SOON);
        assert!(!childs_handle.is_finished() && queue.inactive() == 1);
        runtime.freeze().unwrap();
        runtime.thaw();
        assert_eq!(childs_handle.join().unwrap(), 2);
        drop_in_child(&queue);
        true
    });
    // Another thread freezes or thaws the runtime when the process forks.
    runtime.thaw();
    assert_eq!(held.join().unwrap(), 1);
    let stop = AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                runtime.freeze().unwrap();
                runtime.thaw();
            }
        });
        for _ in 0..50 {
            child(|| {
                let childs_handle = queue.spawn(|| 3);
                runtime.thaw();
                assert_eq!(childs_handle.join().unwrap(), 3);
                runtime.freeze().unwrap();
                let childs_handle = queue.spawn(|| 4);
                std::thread::sleep(Duration::from_micros(100));
                assert!(!childs_handle.is_finished());
                runtime.thaw();
                childs_handle.join().unwrap() == 4
            });
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn the_places_of_a_bound() {
    let (_alone, runtime, _watchdog) = alone_with_runtime();
    let queue = runtime.workqueue_builder("bounded").build().unwrap();
    let bounded = queue.bounded(1);
    let (barrier, waits) = (Barrier::default(), bounded.clone());
    let holder = {
        let barrier = barrier.clone();
        bounded.spawn(move || barrier.wait())
    };
    // The list of waiters has one more thread, and its lock may be held at any time.
    let waiter = std::thread::spawn(move || waits.spawn(|| 5).join().unwrap());
    let works = bounded.work(|| ());
    for _ in 0..10 {
        child(|| {
            assert_eq!(bounded.in_use(), 0, "what has the place is the parent's");
            assert_eq!(bounded.spawn(|| 6).join().unwrap(), 6);
            assert!(works.queue());
            queue.flush().unwrap();
            eventually("the place is free", || bounded.in_use() == 0);
            true
        });
    }
    // A task that forks: its copy has no place to give back.
    barrier.open();
    holder.join().unwrap();
    assert_eq!(waiter.join().unwrap(), 5);
    bounded
        .spawn({
            let bounded = bounded.clone();
            move || {
                assert_eq!(bounded.in_use(), 1);
                child(|| {
                    drop(bounded.try_reserve().expect("the place is free"));
                    bounded.in_use() == 0
                });
            }
        })
        .join()
        .unwrap();
    assert_eq!((bounded.in_use(), bounded.places()), (0, 1));
}
