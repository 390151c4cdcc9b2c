//! Back-pressure: what is spawned through a bound has a place until it has ended, however it ends.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use nearq_core::{Bounded, Error, JoinError, Runtime, Workqueue};

use crate::common::{block_on, eventually, watch};

fn bound(places: usize) -> (Runtime, Workqueue, Bounded) {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("bounded").build().expect("the call succeeds");
    let bounded = queue.bounded(places);
    (runtime, queue, bounded)
}

/// As [`bound`], of a queue that runs one item at a time.
fn ordered(places: usize) -> (Runtime, Workqueue, Bounded) {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("ordered").ordered().build().expect("the call succeeds");
    let bounded = queue.bounded(places);
    (runtime, queue, bounded)
}

/// Takes a place until the sender is dropped.
fn hold(bounded: &Bounded) -> (mpsc::Sender<()>, nearq_core::JoinHandle<()>) {
    let (end, ended) = mpsc::channel::<()>();
    let task = bounded.spawn(move || assert!(ended.recv().is_err()));
    (end, task)
}

#[test]
fn no_more_tasks_exist_than_there_are_places() {
    let (_runtime, _queue, bounded) = bound(3);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = Vec::new();
    thread::scope(|scope| {
        let spawners: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let one = || {
                        let (now, most) = (Arc::clone(&now), Arc::clone(&most));
                        // It exists from here on, which is before it has its place.
                        bounded.spawn(move || {
                            most.fetch_max(
                                now.fetch_add(1, Ordering::SeqCst) + 1,
                                Ordering::SeqCst,
                            );
                            thread::yield_now();
                            now.fetch_sub(1, Ordering::SeqCst);
                        })
                    };
                    (0..200).map(|_| one()).collect::<Vec<_>>()
                })
            })
            .collect();
        for spawner in spawners {
            tasks.extend(spawner.join().unwrap());
        }
    });
    for task in tasks {
        task.join().unwrap();
    }
    assert!((1..=3).contains(&most.load(Ordering::SeqCst)), "{most:?}");
    assert_eq!(bounded.in_use(), 0);
    assert_eq!(bounded.places(), 3);
}

#[test]
fn a_spawn_waits_for_a_place_and_try_spawn_refuses() {
    let (_runtime, _queue, bounded) = bound(1);
    let (end, first) = hold(&bounded);
    let refused = bounded.try_spawn(|| 1).unwrap_err();
    assert_eq!(refused.error(), &Error::Full { queue: "bounded".into(), places: 1 });
    assert!(bounded.try_reserve().is_none());
    let waits = thread::spawn({
        let bounded = bounded.clone();
        move || bounded.spawn(|| 2).join().unwrap()
    });
    thread::sleep(Duration::from_millis(20));
    assert!(!waits.is_finished());
    drop(end);
    first.join().unwrap();
    assert_eq!(waits.join().unwrap(), 2);
    assert_eq!(bounded.spawn(refused.into_inner()).join().unwrap(), 1);
    assert_eq!(bounded.in_use(), 0);
}

#[test]
fn places_are_given_in_the_order_in_which_they_are_asked_for() {
    let (_runtime, _queue, bounded) = bound(1);
    let (end, first) = hold(&bounded);
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut waiting: Vec<_> = (0..5).map(|_| Box::pin(bounded.reserve())).collect();
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.iter_mut().all(|future| future.as_mut().poll(&mut context).is_pending()));
    // One that leaves does not stop those behind it.
    drop(waiting.remove(1));
    drop(end);
    first.join().unwrap();
    for (number, future) in waiting.into_iter().enumerate() {
        let order = Arc::clone(&order);
        block_on(future).spawn(move || order.lock().unwrap().push(number)).join().unwrap();
    }
    assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3]);
    assert_eq!(bounded.in_use(), 0);
}

#[test]
fn a_future_that_leaves_after_it_got_its_place_gives_it_back() {
    let (_runtime, _queue, bounded) = bound(1);
    let (end, first) = hold(&bounded);
    let mut leaves = Box::pin(bounded.reserve());
    let mut context = Context::from_waker(Waker::noop());
    assert!(leaves.as_mut().poll(&mut context).is_pending());
    drop(end);
    first.join().unwrap();
    assert_eq!(bounded.in_use(), 1, "the place is the future's");
    drop(leaves);
    assert_eq!(bounded.in_use(), 0);
    drop(bounded.try_reserve().expect("there is a place"));
    assert_eq!(bounded.in_use(), 0);
}

#[test]
fn a_task_gives_its_place_back_however_it_ends() {
    let (runtime, _queue, bounded) = bound(1);
    assert!(bounded.spawn(|| -> () { panic!("on purpose") }).join().unwrap_err().panic().is_some());
    bounded.spawn_future(async {}).join().unwrap();
    assert!(
        bounded.spawn_future(async { panic!("on purpose") }).join().unwrap_err().panic().is_some()
    );
    let never = bounded.spawn_future(std::future::pending::<()>());
    assert_eq!(bounded.in_use(), 1);
    assert!(never.cancel() && never.join().unwrap_err().is_cancelled());
    assert_eq!(bounded.in_use(), 0);
    // Cancelled before it starts: the queue's only place is taken.
    let serial = runtime.workqueue_builder("serial").ordered().build().unwrap();
    let bounded = serial.bounded(2);
    let (end, first) = hold(&bounded);
    let never = bounded.spawn(|| unreachable!());
    assert_eq!(bounded.in_use(), 2);
    assert!(never.cancel());
    assert_eq!(bounded.in_use(), 1);
    drop(end);
    first.join().unwrap();
    // Refused, because the queue has ended: by either call.
    drop(serial);
    assert!(matches!(bounded.spawn(|| ()).join(), Err(JoinError::Refused)));
    let refused = bounded.try_spawn(|| 7).unwrap_err();
    assert!(matches!(refused.error(), Error::Ended { .. }));
    assert_eq!(refused.into_inner()(), 7);
    let refused = bounded.task().try_spawn_future(async { 8 }).unwrap_err();
    assert_eq!(block_on(refused.into_inner()), 8);
    assert_eq!(bounded.in_use(), 0);
}

#[test]
fn a_task_of_the_bound_that_spawns_does_not_wait_for_itself() {
    let (_runtime, _queue, bounded) = bound(1);
    let inner = bounded.clone();
    let outer = bounded.spawn(move || {
        assert!(matches!(inner.try_spawn(|| ()).unwrap_err().error(), Error::Full { .. }));
        let deeper = inner.clone();
        inner.spawn(move || deeper.spawn(|| 3).join().unwrap()).join().unwrap()
    });
    assert_eq!(outer.join().unwrap(), 3);
    let inner = bounded.clone();
    let outer = bounded.spawn_future(async move {
        let permit = inner.reserve().await;
        permit.spawn(|| 4).await.unwrap()
    });
    assert_eq!(outer.join().unwrap(), 4);
    assert_eq!(bounded.in_use(), 0);
}

#[test]
fn an_item_takes_a_place_each_time_that_it_is_queued() {
    let (_runtime, _queue, bounded) = bound(2);
    let (barrier, runs) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let work = bounded.work({
        let (barrier, runs) = (Arc::clone(&barrier), Arc::clone(&runs));
        move || {
            barrier.wait();
            runs.fetch_add(1, Ordering::SeqCst);
            barrier.wait();
        }
    });
    assert!(work.queue());
    eventually("it runs", || work.is_running());
    assert!(work.queue());
    assert_eq!(bounded.in_use(), 2);
    assert_eq!(work.try_queue(), Ok(false), "it is pending");
    assert!(matches!(bounded.work(|| ()).try_queue(), Err(Error::Full { .. })));
    assert!(work.cancel());
    assert_eq!(bounded.in_use(), 1);
    barrier.wait();
    barrier.wait();
    work.flush().unwrap();
    eventually("the place is free", || bounded.in_use() == 0);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[test]
fn queueing_a_pending_item_does_not_wait_for_a_place() {
    let (_runtime, _queue, bounded) = ordered(2);
    let (end, first) = hold(&bounded);
    let work = bounded.work(|| ());
    assert!(work.queue());
    assert_eq!(bounded.in_use(), 2);
    let again = thread::spawn({
        let work = work.clone();
        move || work.queue()
    });
    eventually("the call returns", || again.is_finished());
    assert!(!again.join().unwrap(), "it is pending");
    assert_eq!(bounded.in_use(), 2);
    drop(end);
    first.join().unwrap();
    work.flush().unwrap();
    eventually("the places are free", || bounded.in_use() == 0);
}

#[test]
fn an_item_may_queue_itself_while_every_place_is_taken() {
    let (_runtime, queue, bounded) = bound(1);
    let (sender, receiver) = mpsc::channel();
    let own: Arc<std::sync::OnceLock<nearq_core::BoundedWork>> = Arc::default();
    let work = bounded.work({
        let own = Arc::clone(&own);
        let mut runs = 0;
        move || {
            runs += 1;
            sender.send(runs).unwrap();
            if runs < 3 {
                assert!(own.get().unwrap().queue());
            }
        }
    });
    own.set(work.clone()).unwrap();
    assert!(work.queue());
    assert_eq!(receiver.iter().take(3).collect::<Vec<_>>(), [1, 2, 3]);
    queue.flush().unwrap();
    eventually("the place is free", || bounded.in_use() == 0);
    assert!(bounded.try_reserve().is_some());
    assert_eq!(bounded.places(), 1);
}

#[test]
fn the_functions_name_is_that_of_the_user() {
    let (_runtime, _queue, bounded) = bound(1);
    let work = bounded.work(|| ());
    assert!(format!("{work:?}").contains("the_functions_name_is_that_of_the_user"), "{work:?}");
}

#[test]
#[should_panic(expected = "a bound needs at least one place")]
fn a_bound_without_places_is_refused() {
    drop(bound(0));
}

#[test]
fn futures_that_wait_on_another_executor_are_woken() {
    let (_runtime, _queue, bounded) = bound(1);
    let (end, first) = hold(&bounded);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| block_on(async { bounded.reserve().await.spawn(|| ()).await.unwrap() }));
        }
        thread::sleep(Duration::from_millis(5));
        drop(end);
    });
    first.join().unwrap();
    assert_eq!(bounded.in_use(), 0);
    let ready = pin!(bounded.reserve()).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(matches!(ready, Poll::Ready(_)));
}

/// Polled once; then it waits.
fn waits(bounded: &Bounded) -> std::pin::Pin<Box<nearq_core::future::Reserve<'_>>> {
    let mut reserve = Box::pin(bounded.reserve());
    assert!(reserve.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    reserve
}

#[test]
fn many_futures_that_leave_take_no_time_for_each_other() {
    let (_runtime, _queue, bounded) = bound(1);
    let permit = bounded.try_reserve().unwrap();
    let (done, is_done) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            // From the front, from the back, and one after the other behind others: each of them looked at all others once.
            let mut all: Vec<_> = (0..100_000).map(|_| waits(&bounded)).collect();
            drop(all.split_off(50_000));
            (0..1000).for_each(|_| drop(waits(&bounded)));
            let last = all.pop();
            drop(all);
            drop(permit);
            assert!(block_on(last.unwrap()).spawn(|| 1).join().is_ok());
            done.send(()).unwrap();
        });
        // It takes a second. With a look at all others, it takes an hour.
        if is_done.recv_timeout(Duration::from_secs(60)).is_err() {
            eprintln!("futures that leave look at all others");
            std::process::abort();
        }
    });
    eventually("the place is free", || bounded.in_use() == 0);
}

/// Spawns when it is dropped.
struct Spawner(Bounded, mpsc::Sender<i32>);

impl Drop for Spawner {
    fn drop(&mut self) {
        let sender = self.1.clone();
        drop(self.0.spawn(move || sender.send(7).unwrap()));
    }
}

#[test]
fn what_a_task_drops_at_its_end_may_spawn_on_its_bound() {
    struct Ends(Option<Spawner>);
    impl Future for Ends {
        type Output = ();
        fn poll(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
            if self.0.is_some() { Poll::Ready(()) } else { Poll::Pending }
        }
    }
    let (runtime, _queue, bounded) = bound(1);
    let _watchdog = watch(Some(&runtime));
    let (sender, receiver) = mpsc::channel();
    let spawner = |bounded: &Bounded| Spawner(bounded.clone(), sender.clone());
    let seen = || assert_eq!(receiver.recv_timeout(Duration::from_secs(60)), Ok(7));
    // By the thread that cancels it before it begins.
    let serial = runtime.workqueue_builder("serial").ordered().build().unwrap();
    let (end, ended) = mpsc::channel::<()>();
    let first = serial.spawn(move || assert!(ended.recv().is_err()));
    let of_serial = serial.bounded(1);
    let captured = spawner(&of_serial);
    let task = of_serial.spawn(move || drop(captured));
    assert!(task.cancel());
    drop(end);
    first.join().unwrap();
    seen();
    // By the worker that has polled it for the last time, and by that which finds it cancelled.
    bounded.spawn_future(Ends(Some(spawner(&bounded)))).join().unwrap();
    seen();
    let captured = spawner(&bounded);
    let task = bounded.spawn_future(async move {
        let _captured = captured;
        std::future::pending::<()>().await;
    });
    task.cancel();
    task.join().unwrap_err();
    seen();
    eventually("the place is free", || bounded.in_use() == 0);
}
