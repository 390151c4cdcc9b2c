//! Weak handles of a workqueue: they queue while it is open, are refused afterwards, and return what was refused.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nearq_core::{Error, Handle, JoinError, JoinSet, Runtime, Work, Workqueue};
use nearq_platform::{Linux, LockPlatform as _};

use crate::common::{PATIENCE, block_on};

fn runtime() -> Runtime {
    Runtime::builder().build().expect("the machine is known")
}

fn queue(runtime: &Runtime, name: &str) -> Workqueue {
    runtime.workqueue_builder(name).build().expect("the call succeeds")
}

#[test]
fn a_handle_queues_while_the_queue_is_open() {
    let runtime = runtime();
    let queue = queue(&runtime, "open");
    let handle = queue.handle();
    assert_eq!(handle.name(), "open");
    assert_eq!(handle.spawn(|| 1).join().unwrap(), 1);
    assert_eq!(handle.try_spawn(|| 2).unwrap().join().unwrap(), 2);
    assert_eq!(handle.spawn_future(async { 3 }).join().unwrap(), 3);
    let (sender, receiver) = mpsc::channel();
    let work = Work::new(move |_: &Work| sender.send(()).unwrap());
    assert!(handle.queue(&work));
    receiver.recv().unwrap();
    work.flush().unwrap();
    assert_eq!(handle.try_queue_delayed(&work, Duration::from_millis(1)), Ok(true));
    receiver.recv().unwrap();
    let mut set = handle.join_set();
    set.spawn(|| 4);
    assert_eq!(set.blocking_join_next().unwrap().unwrap(), 4);
}

/// The name of the queue that the caller runs on.
fn current() -> Option<String> {
    Handle::try_current().map(|queue| queue.name().to_owned())
}

#[test]
fn an_item_finds_its_own_queue() {
    assert_eq!(current(), None, "outside of items");
    let runtime = runtime();
    let (outer, inner) = (queue(&runtime, "outer"), queue(&runtime, "inner"));
    let per_cpu = runtime.workqueue_builder("one cpu").per_cpu().build().unwrap();
    for queue in [&outer, &inner, &per_cpu] {
        let name = Some(queue.name().to_owned());
        assert_eq!(queue.spawn(current).join().unwrap(), name);
        assert_eq!(queue.spawn_future(async { current() }).join().unwrap(), name);
    }
    // Each of two closures that meet runs in a worker of its own; one of them is stolen.
    let meet = Barrier::new(2);
    let met = || {
        meet.wait();
        current()
    };
    let own = Some("outer".to_owned());
    assert_eq!(outer.join(met, met), (own.clone(), own.clone()));
    // An item of one queue that waits for one of another is back in its own queue then.
    let inside = outer.install(|| [inner.install(current), current()]);
    assert_eq!(inside, [Some("inner".to_owned()), own]);
    assert_eq!(current(), None);
}

#[test]
fn what_an_item_spawns_through_its_own_queue_is_waited_for_by_the_drop() {
    static ENDED: AtomicU32 = AtomicU32::new(0);
    fn again(left: u32) {
        if left > 0 {
            drop(Handle::try_current().unwrap().spawn(move || again(left - 1)));
        }
        ENDED.fetch_add(1, Ordering::Relaxed);
    }
    let queue = queue(&runtime(), "again");
    drop(queue.spawn(|| again(99)));
    drop(queue);
    assert_eq!(ENDED.load(Ordering::Relaxed), 100);
}

#[test]
fn after_the_last_owner_is_dropped_a_handle_gets_its_closure_back() {
    let runtime = runtime();
    let queue = queue(&runtime, "gone");
    let handle = queue.handle();
    drop(queue);
    assert!(handle.upgrade().is_none());
    let ended = Error::Ended { queue: "gone".to_owned() };
    let token = Arc::new(());
    let token_clone = Arc::clone(&token);
    let refused = handle.try_spawn(move || Arc::strong_count(&token_clone)).unwrap_err();
    assert_eq!(*refused.error(), ended);
    assert_eq!(refused.to_string(), ended.to_string());
    assert_eq!((refused.into_inner())(), 2, "the closure is whole");
    assert_eq!(Arc::strong_count(&token), 1);

    let token_clone = Arc::clone(&token);
    let refused = handle.task().try_spawn_future(async move { drop(token_clone) }).unwrap_err();
    assert_eq!(Arc::strong_count(&token), 2);
    block_on(refused.into_inner());
    assert_eq!(Arc::strong_count(&token), 1);

    for future in [false, true] {
        let token_clone = Arc::clone(&token);
        let refused = if future {
            handle.spawn_future(async move { drop(token_clone) })
        } else {
            handle.spawn(move || drop(token_clone))
        };
        assert_eq!(Arc::strong_count(&token), 1, "refused items are dropped at once");
        assert!(refused.is_finished());
        assert!(!refused.cancel(), "it is refused, not cancelled");
        let error = refused.join().unwrap_err();
        assert!(error.is_refused() && !error.is_cancelled(), "{error}");
    }

    let work = Work::new(|_: &Work| unreachable!("it is refused"));
    assert!(!handle.queue(&work) && !handle.queue_delayed(&work, Duration::from_millis(1)));
    assert_eq!(handle.try_queue(&work), Err(ended.clone()));
    assert_eq!(handle.try_queue_delayed(&work, Duration::from_millis(1)), Err(ended));
    assert!(!work.is_pending());

    let mut set: JoinSet<u32> = handle.join_set();
    set.spawn(|| unreachable!("it is refused"));
    set.spawn_future(async { 1 });
    for _ in 0..2 {
        assert!(matches!(set.blocking_join_next(), Some(Err(JoinError::Refused))));
    }
    assert!(set.blocking_join_next().is_none());
}

#[test]
fn the_queues_own_items_queue_by_a_handle_while_it_drains() {
    let runtime = runtime();
    let queue = queue(&runtime, "draining");
    let handle = queue.handle();
    let (open, closed) = mpsc::channel::<()>();
    let ran = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&ran);
    queue.spawn(move || {
        // The drop of the queue has begun, or begins now.
        closed.recv().unwrap();
        while handle.upgrade().is_some() {
            thread::yield_now();
        }
        let again = Arc::clone(&counted);
        handle.try_spawn(move || again.fetch_add(1, Ordering::Relaxed)).unwrap();
        let later = Work::new(|_: &Work| unreachable!("the queue is gone by then"));
        // The last owner is gone before the queue is closed. What is accepted in between, the drop abandons.
        while handle.try_queue_delayed(&later, Duration::from_secs(1000)).is_ok() {
            thread::yield_now();
        }
        let refused = handle.try_queue_delayed(&later, Duration::from_secs(1000));
        assert!(matches!(refused, Err(Error::Ended { .. })), "{refused:?}");
        let again = Arc::clone(&counted);
        let at_once = Work::new(move |_: &Work| {
            again.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(handle.try_queue_delayed(&at_once, Duration::ZERO), Ok(true));
        counted.fetch_add(1, Ordering::Relaxed);
    });
    open.send(()).unwrap();
    drop(queue);
    assert_eq!(ran.load(Ordering::Relaxed), 3, "the drop waited for all of them");
}

#[test]
fn items_queued_during_the_drop_are_run_or_refused() {
    for round in 0..200 {
        let runtime = runtime();
        let queue = queue(&runtime, "raced");
        let (taken, ran) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let start = Arc::new(Barrier::new(3));
        let threads = [0, 1].map(|_| {
            let (handle, start) = (queue.handle(), Arc::clone(&start));
            let (taken, ran) = (Arc::clone(&taken), Arc::clone(&ran));
            thread::spawn(move || {
                start.wait();
                loop {
                    let ran = Arc::clone(&ran);
                    match handle.try_spawn(move || ran.fetch_add(1, Ordering::Relaxed)) {
                        Ok(_) => taken.fetch_add(1, Ordering::Relaxed),
                        Err(refused) => {
                            assert!(matches!(refused.error(), Error::Ended { .. }));
                            return;
                        }
                    };
                }
            })
        });
        start.wait();
        thread::sleep(Duration::from_micros(round));
        drop(queue);
        let ran_by_then = ran.load(Ordering::Relaxed);
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(ran_by_then, ran.load(Ordering::Relaxed), "the drop waited for all of it");
        assert_eq!(ran_by_then, taken.load(Ordering::Relaxed));
    }
}

/// A delay that is armed during the drop must not keep its item pending until the item's time has come.
#[test]
fn a_delay_armed_during_the_drop_is_soon_discarded() {
    let runtime = runtime();
    for round in 0..100 {
        let queue = queue(&runtime, "delays");
        let work = Work::new(|_: &Work| ());
        let start = Barrier::new(2);
        thread::scope(|scope| {
            let handle = queue.handle();
            let (work, start) = (&work, &start);
            scope.spawn(move || {
                start.wait();
                handle.queue_delayed(work, Duration::from_hours(1));
            });
            start.wait();
            thread::sleep(Duration::from_micros(round % 20));
            drop(queue);
        });
        let begin = Instant::now();
        while work.is_pending() {
            assert!(begin.elapsed() < PATIENCE, "the timer still holds the item");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A typical service: it has its queue and its set in one struct, which moves to another thread.
#[test]
fn a_struct_can_hold_a_queue_and_its_join_set() {
    struct Service {
        queue: Workqueue,
        jobs: JoinSet<u32>,
    }
    let runtime = runtime();
    let queue = queue(&runtime, "service");
    let mut service = Service { jobs: queue.join_set(), queue };
    service.jobs.spawn(|| 20);
    let sum = thread::spawn(move || {
        service.jobs.spawn(|| 22);
        assert_eq!(service.jobs.queue().id(), service.queue.id());
        let mut sum = 0;
        while let Some(result) = service.jobs.blocking_join_next() {
            sum += result.unwrap();
        }
        sum
    });
    assert_eq!(sum.join().unwrap(), 42);
}

#[test]
fn a_task_goes_to_the_named_cpu() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("named").per_cpu().build().expect("the call succeeds");
    let error = queue.task().on_cpu(60_000).unwrap_err();
    assert!(matches!(error, Error::NoSuchCpu { cpu: 60_000, .. }), "{error}");
    for cpu in &runtime.allowed_cpus() {
        let ran_on = queue.task().on_cpu(cpu).unwrap().spawn(Linux::current_cpu);
        assert_eq!(ran_on.join().unwrap(), cpu);
    }
}

/// An item of one queue can keep a handle of another queue, and the other way round, without a cycle that keeps either queue open.
#[test]
fn handles_make_no_cycles() {
    let runtime = runtime();
    let (first, second) = (queue(&runtime, "first"), queue(&runtime, "second"));
    let bounce = |to: Handle| Work::new(move |_: &Work| drop(to.spawn(|| ())));
    let (there, back) = (bounce(second.handle()), bounce(first.handle()));
    assert!(first.queue(&there) && second.queue(&back));
    drop(first);
    drop(second);
    assert!(runtime.queues().is_empty());
}

/// Threads that keep trying after the end, each preempted at any point, must not keep the drop from returning.
#[test]
fn the_drop_returns_although_threads_keep_trying_to_queue() {
    let runtime = runtime();
    let queue = queue(&runtime, "hammered");
    let stop = Arc::new(AtomicU32::new(0));
    let threads: Vec<_> = (0..64)
        .map(|_| {
            let (handle, stop) = (queue.handle(), Arc::clone(&stop));
            thread::spawn(move || {
                let work = Work::new(|_: &Work| ());
                while stop.load(Ordering::Relaxed) == 0 {
                    if handle.upgrade().is_some() {
                        thread::yield_now();
                    } else {
                        let _ = handle.try_queue(&work);
                    }
                }
            })
        })
        .collect();
    // The item runs until all of them are refused.
    queue.spawn(|| thread::sleep(Duration::from_millis(300)));
    let (sender, dropped) = mpsc::channel();
    let dropper = thread::spawn(move || {
        drop(queue);
        sender.send(()).unwrap();
    });
    let returned = dropped.recv_timeout(PATIENCE);
    stop.store(1, Ordering::Relaxed);
    for thread in threads {
        thread.join().unwrap();
    }
    dropper.join().unwrap();
    returned.expect("the drop waits for threads that are refused");
}

#[test]
fn a_queue_that_has_ended_refuses_changes() {
    let runtime = runtime();
    let queue = queue(&runtime, "homeless");
    let view = queue.view();
    drop(queue);
    let home = nearq_core::home::Home::pick_in(&runtime);
    let ended = Error::Ended { queue: "homeless".into() };
    assert_eq!(view.set_home(&home), Err(ended.clone()));
    assert!(view.home().is_none());
    assert_eq!(view.set_max_active(3), Err(ended));
}
