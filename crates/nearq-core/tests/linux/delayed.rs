//! Delayed items on this machine: they are never early, can be cancelled or moved at any time, and go away with their queue.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq_core::{Runtime, Work, Workqueue};

use crate::common;

const LONG: Duration = Duration::from_hours(1);

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

fn queue_on(runtime: &Runtime) -> Workqueue {
    runtime.workqueue_builder("delayed").build().unwrap()
}

/// An item that counts its runs, and records when the last one was.
fn clocked() -> (Work, Arc<AtomicU32>, Arc<AtomicU64>, Instant) {
    let (runs, last) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU64::new(0)));
    let (runs_clone, when, begin) = (Arc::clone(&runs), Arc::clone(&last), Instant::now());
    let work = Work::new(move |_: &Work| {
        when.store(begin.elapsed().as_nanos() as u64, Ordering::SeqCst);
        runs_clone.fetch_add(1, Ordering::SeqCst);
    });
    (work, runs, last, begin)
}

#[test]
fn a_delayed_item_runs_once_and_never_early() {
    let runtime = runtime();
    let queue = queue_on(&runtime);
    let (work, runs, last, begin) = clocked();
    let mut queued = 0;
    for round in 1..=20 {
        let delay = Duration::from_micros(round * 173);
        let due = begin.elapsed() + delay;
        assert!(queue.queue_delayed(&work, delay));
        let again = [queue.queue_delayed(&work, Duration::ZERO), queue.queue(&work)];
        // Unless this thread was preempted for so long that the item's time has come.
        assert!(again == [false; 2] || begin.elapsed() >= due, "it is pending: {again:?}");
        queued += 1 + again.into_iter().map(u32::from).sum::<u32>();
        common::eventually("it runs", || runs.load(Ordering::SeqCst) == queued);
        assert!(Duration::from_nanos(last.load(Ordering::SeqCst)) >= due, "early");
    }
}

#[test]
fn a_delay_of_zero_needs_no_timer() {
    let runtime = runtime();
    let queue = queue_on(&runtime);
    let (work, runs, ..) = clocked();
    assert!(queue.queue_delayed(&work, Duration::ZERO));
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(!queue.modify_delayed(&work, Duration::ZERO), "it was idle");
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[test]
fn modify_moves_the_deadline_and_returns_whether_the_item_was_pending() {
    let runtime = runtime();
    let queue = queue_on(&runtime);
    let (work, runs, last, begin) = clocked();
    assert!(!queue.modify_delayed(&work, LONG), "it was idle");
    assert!(queue.modify_delayed(&work, Duration::from_millis(3)), "earlier");
    common::eventually("it runs", || runs.load(Ordering::SeqCst) == 1);
    assert!(Duration::from_nanos(last.load(Ordering::SeqCst)) >= Duration::from_millis(3));
    let (mut delay, mut ran) = (Duration::from_millis(1), 1);
    loop {
        let early = begin.elapsed() + delay;
        assert!(queue.queue_delayed(&work, delay));
        let due = begin.elapsed() + 30 * delay;
        let moved = queue.modify_delayed(&work, 30 * delay);
        // Unless this thread was preempted for so long that the item's time has come.
        assert!(moved || begin.elapsed() >= early, "later");
        ran += if moved { 1 } else { 2 };
        common::eventually("it runs", || runs.load(Ordering::SeqCst) == ran);
        assert!(Duration::from_nanos(last.load(Ordering::SeqCst)) >= due);
        if moved {
            break;
        }
        delay *= 2;
    }
    assert!(queue.queue_delayed(&work, LONG));
    assert!(queue.modify_delayed(&work, Duration::ZERO), "now");
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), ran + 1);
}

#[test]
fn a_delayed_item_can_be_cancelled_disabled_and_queued_elsewhere() {
    let (first, second) = (runtime(), runtime());
    let (one, two) = (queue_on(&first), queue_on(&second));
    let (work, runs, ..) = clocked();
    assert!(one.queue_delayed(&work, LONG));
    assert!(!work.flush().unwrap(), "a flush does not wait for timers");
    assert!(work.cancel());
    assert!(!work.is_pending() && !work.cancel());
    // The timer of another runtime, while the first timer may still have the item.
    assert!(two.queue_delayed(&work, LONG));
    assert!(one.modify_delayed(&work, LONG));
    assert!(work.cancel_sync().unwrap());
    assert!(one.queue_delayed(&work, LONG));
    assert!(work.disable());
    assert!(!one.queue_delayed(&work, Duration::from_millis(1)));
    assert!(!one.modify_delayed(&work, Duration::from_millis(1)));
    assert!(!work.is_pending());
    assert!(work.enable());
    assert_eq!(runs.load(Ordering::SeqCst), 0);
    assert!(two.queue_delayed(&work, LONG));
    assert!(work.flush_delayed().unwrap(), "at once");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    assert!(!work.flush_delayed().unwrap());
}

#[test]
fn a_delayed_item_whose_queue_is_dropped_becomes_idle_at_its_deadline() {
    let runtime = runtime();
    let other = queue_on(&runtime);
    let mut delay = Duration::from_millis(20);
    let (work, runs) = loop {
        let (work, runs, _, begin) = clocked();
        let queue = queue_on(&runtime);
        let due = begin.elapsed() + delay;
        assert!(queue.queue_delayed(&work, delay));
        drop(queue);
        // Unless this thread was preempted for so long that the item's time has come.
        if begin.elapsed() < due {
            break (work, runs);
        }
        delay *= 2;
    };
    let alive = Arc::clone(&runs);
    common::eventually("it is idle", || !work.is_pending());
    assert!(other.queue(&work));
    work.flush().unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // The last handle is dropped while the item is on a timer: the item still runs, and is freed afterwards.
    assert!(other.queue_delayed(&work, Duration::from_millis(5)));
    drop(work);
    common::eventually("it has run", || alive.load(Ordering::SeqCst) == 2);
    common::eventually("it is freed", || {
        drop(runs.clone());
        Arc::strong_count(&alive) == 2
    });
    // The queue is dropped together with its runtime.
    let (work, runs, ..) = clocked();
    assert!(other.queue_delayed(&work, LONG));
    drop(other);
    drop(runtime);
    assert!(!work.is_pending());
    drop(work);
    // A thread that no other thread waits for drops it: the timer does not run the destructors of items whose queue is gone.
    common::eventually("it is freed with its queue", || Arc::strong_count(&runs) == 1);
}

#[test]
fn a_deadline_expires_while_an_item_drops_its_own_queue() {
    let runtime = runtime();
    for round in 0..200 {
        let queue = Arc::new(queue_on(&runtime));
        let works: Vec<_> = (0..8).map(|_| clocked()).collect();
        for (number, (work, ..)) in works.iter().enumerate() {
            queue.queue_delayed(work, Duration::from_micros(20 * number as u64 + round));
        }
        let last = Arc::clone(&queue);
        let dropper = queue.spawn(move || {
            std::thread::sleep(Duration::from_micros(60 + round));
            drop(last);
        });
        drop(queue);
        dropper.join().unwrap();
        for (work, runs, ..) in &works {
            common::eventually("it is idle", || !work.is_pending() && !work.is_running());
            assert!(runs.load(Ordering::SeqCst) <= 1);
        }
    }
}

#[test]
fn an_item_may_delay_itself_and_its_runs_do_not_overlap() {
    let runtime = runtime();
    let queue = Arc::new(queue_on(&runtime));
    let (inside, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (inside_clone, count, again) = (Arc::clone(&inside), Arc::clone(&runs), Arc::clone(&queue));
    let work = Work::new(move |work: &Work| {
        assert_eq!(inside_clone.fetch_add(1, Ordering::SeqCst), 0);
        assert!(again.queue_delayed(work, Duration::from_micros(50)), "not pending while it runs");
        // The item's time comes while it runs.
        std::thread::sleep(Duration::from_micros(200));
        inside_clone.fetch_sub(1, Ordering::SeqCst);
        count.fetch_add(1, Ordering::SeqCst);
    });
    queue.queue(&work);
    common::eventually("it runs again and again", || runs.load(Ordering::SeqCst) >= 50);
    work.cancel_sync().unwrap();
    let seen = runs.load(Ordering::SeqCst);
    std::thread::sleep(Duration::from_millis(5));
    assert_eq!(runs.load(Ordering::SeqCst), seen);
}

#[test]
fn concurrent_delays_cancels_and_changes() {
    let (first, second) = (runtime(), runtime());
    let queues = [queue_on(&first), queue_on(&first), queue_on(&second)];
    let (inside, runs) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (inside_clone, count) = (Arc::clone(&inside), Arc::clone(&runs));
    let work = Work::new(move |_: &Work| {
        assert_eq!(inside_clone.fetch_add(1, Ordering::SeqCst), 0, "one execution at a time");
        count.fetch_add(1, Ordering::SeqCst);
        inside_clone.fetch_sub(1, Ordering::SeqCst);
    });
    common::from_all_sides(4000, |dice| {
        let queue = &queues[(dice >> 8) as usize % 3];
        let delay = Duration::from_micros(dice >> 20 & 0x7f);
        match dice % 9 {
            0..=2 => _ = queue.queue_delayed(&work, delay),
            3 | 4 => _ = queue.modify_delayed(&work, delay),
            5 => _ = queue.queue(&work),
            6 => _ = work.cancel(),
            7 => _ = work.flush_delayed().unwrap(),
            _ => _ = work.cancel_sync().unwrap(),
        }
    });
    work.cancel_sync().unwrap();
    assert!(!work.is_pending() && !work.is_running());
    let before = runs.load(Ordering::SeqCst);
    assert!(queues[0].queue_delayed(&work, Duration::from_micros(100)));
    common::eventually("it runs", || runs.load(Ordering::SeqCst) == before + 1);
}
