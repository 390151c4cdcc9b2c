//! Shutting down: queued items run, new ones are refused, no thread is left, and busy workers are named.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, Error, Runtime, Work, Workqueue, system};

use crate::common::{
    self, Barrier, PATIENCE, alone, command, eventually, output_text, part, watch,
};

fn no_thread_is_left() {
    // A thread that was joined stays in the list for a few more microseconds.
    eventually("no thread is left", || common::threads().is_empty());
}

/// An item that runs until the barrier opens, and the barrier.
fn hold(queue: &Workqueue) -> (Barrier, nearq_core::JoinHandle<u32>) {
    let barrier = Barrier::default();
    let (barrier_clone, (sender, receiver)) = (barrier.clone(), mpsc::channel());
    let handle = queue.spawn(move || {
        nearq_core::set_description("waits at the barrier");
        sender.send(()).unwrap();
        barrier_clone.wait();
        7
    });
    receiver.recv_timeout(PATIENCE).unwrap();
    (barrier, handle)
}

#[test]
fn an_idle_runtime_shuts_down() {
    let _alone = alone();
    let _watchdog = watch(None);
    let runtime = Runtime::builder().build().unwrap();
    // Before the runtime has any thread.
    runtime.shutdown(Duration::ZERO).unwrap();
    let runtime = Runtime::builder().build().unwrap();
    let queue =
        runtime.workqueue_builder("idle").affinity_scope(AffinityScope::Cpu).build().unwrap();
    for cpu in 0..2 {
        let work = Work::new(|_: &Work| {});
        let _ = queue.queue_on(cpu, &work);
        eventually("it has run", || !work.is_pending() && !work.is_running());
    }
    assert!(runtime.thread_count() > 0);
    runtime.shutdown(PATIENCE).unwrap();
    assert_eq!(runtime.thread_count(), 0);
    no_thread_is_left();
    for _ in 0..3 {
        runtime.shutdown(Duration::ZERO).unwrap();
    }
    drop(queue);
    drop(runtime);
}

#[test]
fn items_queued_before_a_shutdown_run() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let narrow = runtime.workqueue_builder("narrow").max_active(1).build().unwrap();
    let wide =
        runtime.workqueue_builder("wide").affinity_scope(AffinityScope::Cpu).build().unwrap();
    let runs = Arc::new(AtomicU32::new(0));
    let (barrier, held) = hold(&narrow);
    for _ in 0..500 {
        for queue in [&narrow, &wide] {
            let runs = Arc::clone(&runs);
            drop(queue.spawn(move || runs.fetch_add(1, Ordering::Relaxed)));
        }
    }
    std::thread::scope(|threads| {
        let ends = threads.spawn(|| runtime.shutdown(PATIENCE));
        eventually("it is closed", || !narrow.queue(&Work::new(|_: &Work| {})));
        std::thread::sleep(Duration::from_millis(5));
        assert!(!ends.is_finished(), "an item runs");
        barrier.open();
        ends.join().unwrap().unwrap();
    });
    assert_eq!(held.join().unwrap(), 7);
    assert_eq!(runs.load(Ordering::Relaxed), 1000);
    no_thread_is_left();
}

/// Items go on queueing, to their own queue and to another, until they are done.
#[test]
fn chains_of_items_are_finished() {
    let _alone = alone();
    for _ in 0..30 {
        let runtime = Runtime::builder().build().unwrap();
        let _watchdog = watch(Some(&runtime));
        let queues: Arc<Vec<Workqueue>> = Arc::new(
            (1..4)
                .map(|limit| {
                    runtime.workqueue_builder("chained").max_active(limit).build().unwrap()
                })
                .collect(),
        );
        let steps = Arc::new(AtomicU32::new(0));
        fn step(queues: &Arc<Vec<Workqueue>>, steps: &Arc<AtomicU32>, left: usize) {
            let (more, count) = (Arc::clone(queues), Arc::clone(steps));
            let spawned = queues[left % queues.len()].try_spawn(move || {
                count.fetch_add(1, Ordering::Relaxed);
                if left > 0 {
                    step(&more, &count, left - 1);
                }
            });
            assert!(spawned.is_ok(), "it belongs to an item that must finish");
        }
        for _ in 0..3 {
            step(&queues, &steps, 50);
        }
        runtime.shutdown(PATIENCE).unwrap();
        assert_eq!(steps.load(Ordering::Relaxed), 3 * 51);
        // The last closure may have had the last handle.
        assert_eq!(Arc::strong_count(&queues), 1);
    }
    no_thread_is_left();
}

#[test]
fn a_shutdown_runtime_refuses_new_items() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("closed").build().unwrap();
    let builder = runtime.workqueue_builder("late");
    let captured = Arc::new(());
    runtime.shutdown(PATIENCE).unwrap();
    let work = Work::new(|_: &Work| unreachable!());
    assert!(!queue.queue(&work));
    assert_eq!(queue.try_queue(&work), Err(Error::ShutDown));
    assert_eq!(queue.queue_on(0, &work), Err(Error::ShutDown));
    assert!(!work.is_pending());
    let captured_clone = Arc::clone(&captured);
    let refused = queue.spawn(move || drop(captured_clone)).join().unwrap_err();
    assert!(refused.is_refused(), "{refused}");
    assert_eq!(Arc::strong_count(&captured), 1, "the closure is dropped");
    assert!(queue.try_spawn(|| ()).is_err());
    assert_eq!(builder.build().unwrap_err(), Error::ShutDown);
    let text = Error::ShutDown.to_string();
    assert!(text.contains("shut down") && !text.contains('\n'), "{text}");
    // Everything else works as before.
    queue.flush().unwrap();
    queue.drain().unwrap();
    queue.set_affinity_scope(AffinityScope::Cpu).unwrap();
    queue.set_max_active(3).unwrap();
    runtime.set_affinity_enabled(false);
    runtime.refresh();
    assert_eq!((queue.inactive(), runtime.thread_count(), runtime.workers().len()), (0, 0, 0));
    drop(queue);
    no_thread_is_left();
}

#[test]
fn a_time_out_names_the_busy_workers() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("stuck").max_active(1).build().unwrap();
    let other = runtime.workqueue_builder("empty").build().unwrap();
    let (barrier, held) = hold(&queue);
    let waiting: Vec<_> = (0..3).map(|number| queue.spawn(move || number)).collect();
    let begin = Instant::now();
    let busy = runtime.shutdown(Duration::from_millis(20)).unwrap_err();
    assert!(begin.elapsed() >= Duration::from_millis(20));

    let text = busy.to_string();
    let busy = busy.still_running().expect("the time limit has passed");
    let [item] = &busy.running[..] else { panic!("{busy:?}") };
    let label = item.queue.as_ref().expect("the queue is there");
    assert_eq!((label.name.as_str(), item.description.as_str()), ("stuck", "waits at the barrier"));
    assert!(item.function.contains("hold"), "{item:?}");
    let id = item.thread_id.unwrap();
    assert_eq!(common::threads().get(&id), Some(&item.thread), "as the system names it");
    let [left] = &busy.waiting[..] else { panic!("{busy:?}") };
    assert_eq!((left.queue.name.as_str(), left.items), ("stuck", 3));
    assert!(busy.threads > 0);
    for words in
        ["stuck", "hold", &item.thread, &id.to_string(), "waits at the barrier", "3 waiting"]
    {
        assert!(text.contains(words), "`{words}` is not in: {text}");
    }
    assert!(!text.contains("empty"), "{text}");
    println!("{text}");
    // The runtime stays closed, and nothing was thrown away.
    assert!(!other.queue(&Work::new(|_: &Work| {})));
    assert!(runtime.shutdown(Duration::ZERO).is_err());
    barrier.open();
    runtime.shutdown(PATIENCE).unwrap();
    assert_eq!(held.join().unwrap(), 7);
    assert!(waiting.into_iter().enumerate().all(|(at, handle)| handle.join().unwrap() == at));
    no_thread_is_left();
}

/// After a time-out, drops do not wait, and what is queued still runs.
#[test]
fn queues_are_dropped_after_a_time_out() {
    let _alone = alone();
    let _watchdog = watch(None);
    for _ in 0..5 {
        let runtime = Runtime::builder().build().unwrap();
        let queue = runtime.workqueue_builder("dropped").max_active(1).build().unwrap();
        let idle = runtime.workqueue_builder("idle").build().unwrap();
        let (barrier, held) = hold(&queue);
        let waiting = queue.spawn(|| 8);
        runtime.shutdown(Duration::from_millis(1)).unwrap_err();
        let begin = Instant::now();
        drop(queue);
        drop(idle);
        drop(runtime);
        assert!(begin.elapsed() < Duration::from_secs(15), "the drops waited");
        assert!(!held.is_finished());
        barrier.open();
        assert_eq!((held.join().unwrap(), waiting.join().unwrap()), (7, 8));
        // The last worker frees the queue, and with it the runtime.
        no_thread_is_left();
    }
}

#[test]
fn a_shutdown_inside_an_item_is_refused() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("inside").build().unwrap();
    let inside = runtime.clone();
    let refused = queue.spawn(move || inside.shutdown(PATIENCE)).join().unwrap().unwrap_err();
    assert_eq!(refused, nearq_core::ShutdownError::WouldDeadlock);
    assert!(refused.to_string().contains("itself"), "{refused}");
    // Nothing has happened.
    assert_eq!(queue.spawn(|| 3).join().unwrap(), 3);
    // An item of another runtime may shut this one down.
    let other = Runtime::builder().build().unwrap();
    let others = other.workqueue_builder("other").build().unwrap();
    let inside = runtime.clone();
    others.spawn(move || inside.shutdown(PATIENCE)).join().unwrap().unwrap();
    assert_eq!(runtime.thread_count(), 0);
    other.shutdown(PATIENCE).unwrap();
    no_thread_is_left();
}

/// A hook that takes long is waited for as well.
#[test]
fn a_shutdown_waits_for_stop_hooks() {
    let _alone = alone();
    let _watchdog = watch(None);
    let (barrier, stopped) = (Barrier::default(), Arc::new(AtomicU32::new(0)));
    let (barrier_clone, count) = (barrier.clone(), Arc::clone(&stopped));
    let runtime = Runtime::builder()
        .on_worker_stop(move |_| {
            barrier_clone.wait();
            count.fetch_add(1, Ordering::Relaxed);
        })
        .build()
        .unwrap();
    let queue = runtime.workqueue_builder("hooked").build().unwrap();
    queue.spawn(|| {}).join().unwrap();
    let started = runtime.thread_count() as u32;
    let busy = runtime.shutdown(Duration::from_millis(20)).unwrap_err();
    let busy = busy.still_running().expect("the time limit has passed");
    assert_eq!(
        (busy.threads, busy.running.len(), busy.waiting.len()),
        (started as usize, 0, 0),
        "{busy}"
    );
    barrier.open();
    runtime.shutdown(PATIENCE).unwrap();
    assert_eq!(stopped.load(Ordering::Relaxed), started);
    no_thread_is_left();
}

/// While issuers are queueing all the time: what was accepted has run, and what was refused has not.
#[test]
fn a_shutdown_beside_issuers() {
    const ROUNDS: usize = 60;
    let _alone = alone();
    for round in 0..ROUNDS {
        let runtime = Runtime::builder().build().unwrap();
        let _watchdog = watch(Some(&runtime));
        let limit = [1, 3, 64, 1024][round % 4];
        let queue = runtime.workqueue_builder("busy").max_active(limit).build().unwrap();
        let (runs, taken) = (Arc::new(AtomicU64::new(0)), AtomicU64::new(0));
        let (ready, refused) = (AtomicU32::new(0), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for issuer in 0..4 {
                let (queue, runs, taken, ready, refused) =
                    (&queue, &runs, &taken, &ready, &refused);
                threads.spawn(move || {
                    let works: Vec<_> = (0..8)
                        .map(|_| {
                            let runs = Arc::clone(runs);
                            Work::new(move |_: &Work| {
                                runs.fetch_add(1, Ordering::Relaxed);
                            })
                        })
                        .collect();
                    ready.fetch_add(1, Ordering::Relaxed);
                    for at in issuer.. {
                        match queue.try_queue(&works[at % works.len()]) {
                            Ok(yes) => taken.fetch_add(u64::from(yes), Ordering::Relaxed),
                            Err(error) => {
                                assert_eq!(error, Error::ShutDown);
                                refused.fetch_add(1, Ordering::Relaxed);
                                break;
                            }
                        };
                        if at.is_multiple_of(32) {
                            queue
                                .set_affinity_scope(
                                    AffinityScope::ALL[at / 32 % AffinityScope::ALL.len()],
                                )
                                .unwrap();
                        }
                    }
                    for work in &works {
                        eventually("it has run", || !work.is_pending() && !work.is_running());
                    }
                });
            }
            eventually("all issuers run", || ready.load(Ordering::Relaxed) == 4);
            std::thread::sleep(Duration::from_micros(37 * round as u64));
            runtime.shutdown(PATIENCE).unwrap();
            assert_eq!(runtime.thread_count(), 0);
        });
        assert_eq!(refused.load(Ordering::Relaxed), 4);
        assert_eq!(runs.load(Ordering::Relaxed), taken.load(Ordering::Relaxed), "round {round}");
        drop(queue);
    }
    no_thread_is_left();
}

#[test]
fn concurrent_shutdowns_beside_builders_and_drops() {
    let _alone = alone();
    for _ in 0..30 {
        let runtime = Runtime::builder().build().unwrap();
        let _watchdog = watch(Some(&runtime));
        let queue = runtime.workqueue_builder("shared").build().unwrap();
        let runs = Arc::new(AtomicU32::new(0));
        let spawned = AtomicU32::new(0);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                threads.spawn(|| {
                    while let Ok(queue) = runtime.workqueue_builder("short").build() {
                        for _ in 0..3 {
                            let runs = Arc::clone(&runs);
                            if queue.try_spawn(move || runs.fetch_add(1, Ordering::Relaxed)).is_ok()
                            {
                                spawned.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    }
                });
                threads.spawn(|| {
                    // Refused if the other thread was faster.
                    let _ = queue.spawn(|| {}).join();
                    runtime.shutdown(PATIENCE).unwrap();
                    assert_eq!(runtime.thread_count(), 0);
                });
            }
        });
        assert_eq!(runs.load(Ordering::Relaxed), spawned.load(Ordering::Relaxed));
    }
    no_thread_is_left();
}

#[test]
fn the_process_wide_runtime() {
    if part().is_some() {
        assert_eq!(system::unbound().spawn(|| 5).join().unwrap(), 5);
        let queue = Workqueue::builder("own").build().unwrap();
        let handle = queue.spawn(|| 6);
        Runtime::global().shutdown(PATIENCE).unwrap();
        assert_eq!(handle.join().unwrap(), 6);
        no_thread_is_left();
        assert!(!system::unbound().queue(&Work::new(|_: &Work| {})));
        assert_eq!(Workqueue::builder("late").build().unwrap_err(), Error::ShutDown);
        Runtime::global().shutdown(Duration::ZERO).unwrap();
        return;
    }
    let output = command(the_process_wide_runtime, "child").output().unwrap();
    assert!(output.status.success(), "{}", output_text(&output));
}

/// What a frozen queue holds back waits: it is reported, and runs when the runtime is thawed.
#[test]
fn a_frozen_runtime() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("frozen").freezable().build().unwrap();
    runtime.freeze().unwrap();
    let held: Vec<_> = (0..3).map(|number| queue.spawn(move || number)).collect();
    let report = runtime.shutdown(Duration::from_millis(20)).unwrap_err();
    let report = report.still_running().expect("the time limit has passed");
    assert_eq!(report.running, []);
    let [waiting] = &report.waiting[..] else { panic!("{report}") };
    assert_eq!((&*waiting.queue.name, waiting.items), ("frozen", 3));
    runtime.thaw();
    runtime.shutdown(PATIENCE).unwrap();
    assert!(held.into_iter().map(|handle| handle.join().unwrap()).eq(0..3));
    no_thread_is_left();
    drop(queue);
}

/// Items on timers and futures that sleep hold up nothing, and are dropped or cancelled.
#[test]
fn a_shutdown_does_not_wait_for_timers_and_sleeping_futures() {
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("asleep").build().unwrap();
    let captured = Arc::new(());
    // Longer than any thread waits for the shutdown.
    let delayed: Vec<_> = (1..100)
        .map(|number| {
            let captured_clone = Arc::clone(&captured);
            let work = Work::new(move |_: &Work| drop(Arc::clone(&captured_clone)));
            assert!(queue.queue_delayed(&work, PATIENCE + Duration::from_secs(number * number)));
            work
        })
        .collect();
    let (sender, receiver) = mpsc::channel();
    let asleep = queue.spawn_future(std::future::poll_fn(move |context| {
        let _ = sender.send(context.waker().clone());
        std::task::Poll::<()>::Pending
    }));
    let waker = receiver.recv_timeout(PATIENCE).unwrap();
    // Woken by a worker before the end, so it is finished.
    let other = queue.spawn(|| std::thread::sleep(Duration::from_millis(10)));
    let woken = queue.spawn_future(other);
    runtime.shutdown(PATIENCE).unwrap();
    woken.join().unwrap().unwrap();
    assert!(delayed.iter().all(|work| !work.is_pending()));
    assert!(!queue.queue_delayed(&delayed[0], Duration::from_secs(1)), "refused");
    assert!(!queue.modify_delayed(&delayed[0], Duration::from_secs(1)) && !delayed[0].is_pending());
    drop(delayed);
    assert_eq!(Arc::strong_count(&captured), 1, "the items are dropped");
    assert!(!asleep.is_finished());
    waker.wake();
    assert!(asleep.join().unwrap_err().is_cancelled());
    no_thread_is_left();
    drop(queue);
}
