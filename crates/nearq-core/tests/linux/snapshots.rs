//! Observers see what runs and what waits, by the names of functions.

use std::sync::mpsc;
use std::time::Duration;

use nearq_core::{Runtime, Work, Workqueue};

use crate::common::eventually;

fn held_queue(runtime: &Runtime, name: &str) -> (Workqueue, mpsc::Sender<()>) {
    let queue = runtime.workqueue_builder(name).max_active(1).build().unwrap();
    let (go, wait) = mpsc::channel::<()>();
    queue.spawn(move || wait.recv().is_ok());
    eventually("it begins", || runtime.running().len() == 1);
    (queue, go)
}

fn pending_of_test(_: &Work) {}

#[test]
fn running_items_are_listed_with_their_queue_and_run_time() {
    let runtime = Runtime::builder().build().unwrap();
    assert!(runtime.running().is_empty());
    let (queue, go) = held_queue(&runtime, "held");
    std::thread::sleep(Duration::from_millis(10));
    let running = runtime.running();
    let [item] = &running[..] else { panic!("{running:?}") };
    let label = item.queue.as_ref().expect("it has one");
    assert_eq!((label.id, label.name.as_str()), (queue.id(), "held"));
    assert!(item.function.contains("held_queue"));
    assert!(item.at_most >= Duration::from_millis(10) && item.thread.starts_with("nq/u"));
    assert!(!item.rescuer && item.thread_id.is_some());
    drop(go);
    queue.flush().unwrap();
    eventually("it ends", || runtime.running().is_empty());
}

#[test]
fn held_back_items_are_listed_and_cancelled_items_are_not() {
    let runtime = Runtime::builder().build().unwrap();
    let (queue, go) = held_queue(&runtime, "held");
    let works: Vec<Work> = (0..10).map(|_| Work::new(pending_of_test)).collect();
    for work in &works {
        assert!(queue.queue(work));
    }
    let spawned = queue.spawn(|| ());
    let waiting = runtime.waiting();
    let rows = &waiting.items;
    assert!(!waiting.truncated);
    let mut seen: Vec<_> = rows.iter().map(|row| (row.count, row.inactive)).collect();
    seen.sort_unstable();
    assert_eq!(seen, [(1, true), (10, true)]);
    assert!(rows.iter().any(|row| row.function.contains("pending_of_test")));
    assert!(rows.iter().all(|row| row.queue.name == "held" && row.oldest.is_none()));
    for work in &works[..4] {
        assert!(work.cancel());
    }
    // An item that is queued again, after its first queueing was cancelled, has a proxy.
    assert!(queue.queue(&works[0]));
    let waiting = runtime.waiting();
    let rows = &waiting.items;
    let pending = rows.iter().find(|row| row.function.contains("pending_of_test")).unwrap();
    assert_eq!(pending.count, 7);
    drop(go);
    spawned.join().unwrap();
    queue.flush().unwrap();
    assert!(runtime.waiting().items.is_empty());
}

#[test]
fn waiting_items_are_listed_with_their_wait_time() {
    let runtime = Runtime::builder().thread_limit(1).build().unwrap();
    let _timing = runtime.time_items();
    let (first, go) = held_queue(&runtime, "first");
    let second = runtime.workqueue_builder("second").build().unwrap();
    let works: Vec<Work> = (0..600).map(|_| Work::new(pending_of_test)).collect();
    for work in &works {
        assert!(second.queue(work));
    }
    std::thread::sleep(Duration::from_millis(5));
    let waiting = runtime.waiting();
    let rows = &waiting.items;
    assert!(waiting.truncated, "at most 512 are examined");
    let [row] = &rows[..] else { panic!("{rows:?}") };
    assert_eq!((row.count, row.inactive, row.queue.name.as_str()), (512, false, "second"));
    assert!(row.oldest.unwrap() >= Duration::from_millis(5));
    let hand = second.handle().in_flight();
    assert_eq!((hand.running, hand.waiting, hand.inactive), (0, 600, 0));
    drop(go);
    second.flush().unwrap();
    first.flush().unwrap();
}

#[test]
fn snapshots_under_load_lose_no_items() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("busy").max_active(4).build().unwrap();
    let works: Vec<Work> = (0..100).map(|_| Work::new(|_| ())).collect();
    std::thread::scope(|threads| {
        let looker = threads.spawn(|| {
            (0..300).map(|_| runtime.waiting().items.len() + runtime.running().len()).sum::<usize>()
        });
        while !looker.is_finished() {
            for (index, work) in works.iter().enumerate() {
                queue.queue(work);
                if index % 7 == 0 {
                    work.cancel();
                }
            }
        }
    });
    for work in &works {
        work.flush().unwrap();
    }
    queue.flush().unwrap();
    assert_eq!(queue.inactive(), 0);
}

#[test]
fn items_are_shown_by_the_names_that_they_were_given() {
    let runtime = Runtime::builder().build().expect("the machine is known");
    let queue = runtime.workqueue_builder("named").ordered().build().expect("the call succeeds");
    let (end, ended) = mpsc::channel::<()>();
    let runs = queue.task().named("scan").spawn(move || assert!(ended.recv().is_err()));
    let work = nearq_core::Work::named("write\nback", |_| ());
    queue.queue(&work);
    let waits = queue.task().named("poll").spawn_future(async {});
    eventually("one runs", || !runtime.running().is_empty());
    assert_eq!(runtime.running()[0].function, "scan");
    let mut waiting: Vec<_> = runtime.waiting().items.iter().map(|row| row.function).collect();
    waiting.sort_unstable();
    assert_eq!(waiting, ["poll", "write back"]);
    drop(end);
    runs.join().unwrap();
    waits.join().unwrap();
}
