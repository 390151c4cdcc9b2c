//! Waiting for a queue: flush and drain, as calls and as futures, and the cases that they refuse.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use crate::common::{self, block_on, watch};
use nearq_core::{Error, Runtime, Work, Workqueue};

fn queue(runtime: &Runtime, max_active: usize) -> Arc<Workqueue> {
    Arc::new(runtime.workqueue_builder("waited").max_active(max_active).build().unwrap())
}

/// An item that ends when the test allows it.
fn gated(queue: &Workqueue) -> mpsc::Sender<()> {
    let (open, gate) = mpsc::channel::<()>();
    queue.spawn(move || gate.recv().is_err());
    open
}

#[test]
fn a_flush_waits_for_queued_and_held_back_items() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for max_active in [1, 2, 1024] {
        let queue = queue(&runtime, max_active);
        for round in 1..=20 {
            let count = Arc::new(AtomicU32::new(0));
            for _ in 0..100 {
                let count = Arc::clone(&count);
                queue.spawn(move || count.fetch_add(1, Ordering::Relaxed));
            }
            if round % 2 == 0 { queue.flush() } else { block_on(queue.flushed()) }.unwrap();
            assert_eq!(count.load(Ordering::Relaxed), 100, "max_active {max_active}");
        }
        assert_eq!(common::completed(&queue), 2000);
        assert_eq!(queue.statistics().len(), queue.pods().len(), "one row a pool");
    }
}

#[test]
fn a_flush_of_a_queue_that_is_never_empty_returns() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = queue(&runtime, 16);
    let (stop, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let again: Vec<Work> = (0..4)
        .map(|_| {
            let (queue, stop, runs) =
                (Arc::downgrade(&queue), Arc::clone(&stop), Arc::clone(&runs));
            Work::new(move |work: &Work| {
                runs.fetch_add(1, Ordering::Relaxed);
                if !stop.load(Ordering::Relaxed)
                    && let Some(queue) = queue.upgrade()
                {
                    queue.queue(work);
                }
            })
        })
        .collect();
    for work in &again {
        assert!(queue.queue(work));
    }
    for _ in 0..200 {
        let task = queue.spawn(|| ());
        queue.flush().unwrap();
        assert!(task.is_finished());
    }
    assert!(
        again.iter().all(|work| work.is_pending() || work.is_running()),
        "the queue is never empty"
    );
    stop.store(true, Ordering::Relaxed);
    queue.flush().unwrap();
    queue.flush().unwrap();
}

#[test]
fn many_threads_flush_one_queue() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = queue(&runtime, 3);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..100 {
                    let task = queue.spawn(std::thread::yield_now);
                    queue.flush().unwrap();
                    assert!(task.is_finished());
                }
            });
        }
    });
    assert_eq!(common::completed(&queue), 1200);
}

#[test]
fn an_item_cannot_wait_for_its_own_queue() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let (queue, other) = (queue(&runtime, 16), queue(&runtime, 16));
    let queue_clone = Arc::clone(&queue);
    let answers = queue.spawn(move || {
        assert_eq!(
            (other.flush(), other.drain()),
            (Ok(()), Ok(())),
            "another queue can be waited for"
        );
        [
            queue_clone.flush(),
            queue_clone.drain(),
            block_on(queue_clone.flushed()),
            block_on(queue_clone.drained()),
        ]
    });
    for answer in answers.join().unwrap() {
        let Err(Error::Deadlock(text)) = answer else { panic!("{answer:?}") };
        assert!(text.contains("wait for itself"), "{text}");
    }
    assert_eq!(queue.spawn(|| 1).join().unwrap(), 1, "nothing is left of it");
}

#[test]
fn a_future_may_flush_its_own_queue() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = Arc::new(runtime.workqueue_builder("own").max_active(1).build().unwrap());
    let ran = Arc::new(AtomicU32::new(0));
    let waiter = queue.spawn_future({
        let (queue, ran) = (Arc::clone(&queue), Arc::clone(&ran));
        async move {
            let count = Arc::clone(&ran);
            drop(queue.spawn(move || count.fetch_add(1, Ordering::SeqCst)));
            queue.flushed().await?;
            assert!(matches!(queue.drained().await, Err(Error::Deadlock(_))));
            Ok::<_, Error>(ran.load(Ordering::SeqCst))
        }
    });
    assert_eq!(waiter.join().unwrap(), Ok(1));
}

#[test]
fn a_draining_queue_refuses_items_from_outside() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = queue(&runtime, 16);
    let open = gated(&queue);
    std::thread::scope(|scope| {
        let drain = scope.spawn(|| queue.drain());
        let work = Work::new(|_: &Work| ());
        common::eventually("it drains", || queue.try_queue(&work).is_err());
        let refusal = Error::Draining { queue: "waited".into() };
        assert_eq!(queue.try_queue(&work), Err(refusal.clone()));
        assert_eq!(queue.queue_on(0, &work), Err(refusal.clone()));
        assert!(!queue.queue(&work) && !work.is_pending());
        assert_eq!(*queue.try_spawn(|| ()).unwrap_err().error(), refusal);
        let (captured, gone) = (Arc::new(()), Arc::new(()));
        let moved = (Arc::clone(&captured), gone);
        assert!(queue.spawn(move || drop(moved)).join().unwrap_err().is_refused());
        assert!(queue.spawn_future(async {}).join().unwrap_err().is_refused());
        assert_eq!(Arc::strong_count(&captured), 1, "the closure is dropped");
        let scoped = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            queue.scope(|scope| scope.spawn(|| ()));
        }));
        assert!(scoped.is_err());
        assert!(!drain.is_finished());
        drop(open);
        assert_eq!(drain.join().unwrap(), Ok(()));
        assert_eq!(queue.try_queue(&work), Ok(true), "it works again");
        queue.flush().unwrap();
    });
}

#[test]
fn a_drain_waits_for_chains() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for max_active in [1, 16] {
        let queue = queue(&runtime, max_active);
        let left = Arc::new(AtomicU32::new(500));
        let works: Vec<Work> = (0..4)
            .map(|_| {
                let (queue_weak, left) = (Arc::downgrade(&queue), Arc::clone(&left));
                Work::new(move |work: &Work| {
                    let more = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                        left.checked_sub(1)
                    });
                    if more.is_ok() {
                        assert_eq!(queue_weak.upgrade().unwrap().try_queue(work), Ok(true));
                    }
                })
            })
            .collect();
        for work in &works {
            assert!(queue.queue(work));
        }
        if max_active == 1 { queue.drain() } else { block_on(queue.drained()) }.unwrap();
        assert_eq!(left.load(Ordering::Relaxed), 0);
        assert_eq!(common::completed(&queue), 504);
    }
}

#[test]
fn a_future_that_is_dropped_leaves_nothing_behind() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = queue(&runtime, 16);
    let open = gated(&queue);
    let waker = Waker::noop();
    for _ in 0..1000 {
        let mut flushed = queue.flushed();
        assert!(pin!(&mut flushed).poll(&mut Context::from_waker(waker)).is_pending());
        let mut drained = queue.drained();
        assert!(pin!(&mut drained).poll(&mut Context::from_waker(waker)).is_pending());
        assert!(queue.try_spawn(|| ()).is_err());
    }
    assert!(queue.try_spawn(|| ()).is_ok(), "no thread drains any more");
    drop(open);
    queue.flush().unwrap();
}

#[test]
fn a_flush_does_not_wait_for_cancelled_items() {
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = queue(&runtime, 1);
    let open = gated(&queue);
    let works: Vec<Work> = (0..10).map(|_| Work::new(|_: &Work| ())).collect();
    for work in &works {
        assert!(queue.queue(work));
    }
    std::thread::scope(|scope| {
        let flush = scope.spawn(|| queue.flush());
        std::thread::sleep(Duration::from_millis(5));
        drop(open);
        for work in &works {
            work.cancel();
        }
        assert_eq!(flush.join().unwrap(), Ok(()));
    });
    queue.drain().unwrap();
}

/// How long it takes to flush an empty queue. Ignored by default; run it in release mode.
#[test]
#[ignore = "a measurement"]
fn the_time_of_an_idle_flush() {
    const ROUNDS: u32 = 1_000_000;
    let runtime = Runtime::builder().build().unwrap();
    let queue = queue(&runtime, 1024);
    queue.spawn(|| ()).join().unwrap();
    queue.flush().unwrap();
    let begin = Instant::now();
    for _ in 0..ROUNDS {
        queue.flush().unwrap();
    }
    let each = begin.elapsed() / ROUNDS;
    println!("an idle flush takes {each:?}, over {} pods", queue.pods().len());
    assert!(each < Duration::from_micros(1), "{each:?}");
    let work = Work::new(|_: &Work| ());
    let begin = Instant::now();
    for _ in 0..ROUNDS / 20 {
        queue.queue(&work);
        queue.flush().unwrap();
    }
    println!("an item and its flush take {:?}", begin.elapsed() / (ROUNDS / 20));
}
