//! Readers that observe how items are queued and run: how long they wait and run, and each event.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use nearq_core::{Runtime, Work, Workqueue, trace::TraceKind};

fn runtime() -> Runtime {
    Runtime::builder().build().unwrap()
}

fn queue(runtime: &Runtime, name: &str) -> Workqueue {
    runtime.workqueue_builder(name).build().unwrap()
}

/// The numbers of samples of a queue: of waiting times and of running times.
fn samples(queue: &Workqueue) -> (u64, u64) {
    queue.times().map_or((0, 0), |times| (times.wait.samples, times.run.samples))
}

#[test]
fn nothing_is_timed_without_a_reader() {
    let runtime = runtime();
    let queue = queue(&runtime, "quiet");
    queue.spawn(|| ()).join().unwrap();
    assert!(queue.times().is_none() && !runtime.is_observed());
    assert_eq!(runtime.samples(), 0);
}

#[test]
fn items_are_timed_while_there_is_a_reader() {
    let runtime = runtime();
    let before = queue(&runtime, "before");
    let timing = runtime.time_items();
    let later = queue(&runtime, "later");
    for queue in [&before, &later] {
        for _ in 0..10 {
            queue.spawn(|| std::thread::sleep(Duration::from_millis(1))).join().unwrap();
        }
        queue.flush().unwrap();
        assert_eq!(samples(queue), (10, 10), "{}", queue.name());
        let run = queue.times().unwrap().run;
        assert!(run.buckets.iter().all(|class| class.below_nanos > 1_000_000));
        assert!(run.sum_nanos >= 10_000_000);
    }
    drop(timing);
    before.spawn(|| ()).join().unwrap();
    before.flush().unwrap();
    assert_eq!(samples(&before), (10, 10), "there is no reader any more");
    assert!(!runtime.is_observed());
}

#[test]
fn an_item_queued_before_timing_began_is_no_sample() {
    let runtime = runtime();
    let queue = queue(&runtime, "stale");
    let work = Work::new(|_| ());
    let timing = runtime.time_items();
    queue.queue(&work);
    queue.flush().unwrap();
    assert_eq!(samples(&queue), (1, 1));
    drop(timing);
    // The item still has its stamp, and is queued without a reader.
    queue.set_max_active(1).unwrap();
    let (go, wait) = mpsc::channel::<()>();
    let holder = queue.spawn(move || wait.recv().unwrap());
    queue.queue(&work);
    let _timing = runtime.time_items();
    go.send(()).unwrap();
    holder.join().unwrap();
    queue.flush().unwrap();
    assert_eq!(samples(&queue), (1, 1));
}

#[test]
fn time_spent_held_back_counts_as_waiting() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("limited").max_active(1).build().unwrap();
    let _timing = runtime.time_items();
    let (go, wait) = mpsc::channel::<()>();
    let holder = queue.spawn(move || wait.recv().unwrap());
    let held = queue.spawn(|| ());
    std::thread::sleep(Duration::from_millis(20));
    go.send(()).unwrap();
    held.join().unwrap();
    holder.join().unwrap();
    queue.flush().unwrap();
    let wait = queue.times().unwrap().wait;
    assert!(wait.sum_nanos >= 20_000_000, "{wait:?}");
}

#[test]
fn a_cancelled_item_is_timed_when_it_is_queued_again() {
    let runtime = runtime();
    let queue = runtime.workqueue_builder("cancelled").max_active(1).build().unwrap();
    let _timing = runtime.time_items();
    let (go, wait) = mpsc::channel::<()>();
    let holder = queue.spawn(move || wait.recv().unwrap());
    let work = Work::new(|_| ());
    queue.queue(&work);
    assert!(work.cancel());
    // The item's own node is still on the list, so this queueing has another node.
    queue.queue(&work);
    go.send(()).unwrap();
    holder.join().unwrap();
    work.flush().unwrap();
    queue.flush().unwrap();
    assert_eq!(samples(&queue), (2, 2));
}

#[test]
fn a_trace_has_the_events_of_its_queue_in_order() {
    let runtime = runtime();
    let (one, other) = (queue(&runtime, "one"), queue(&runtime, "other"));
    let mut tracer = runtime.trace(Some(one.handle().id()), 1);
    let mut all = runtime.trace(None, 1);
    for _ in 0..100 {
        one.spawn(|| ()).join().unwrap();
        other.spawn(|| ()).join().unwrap();
    }
    one.flush().unwrap();
    other.flush().unwrap();
    let events = tracer.take(usize::MAX);
    assert_eq!((events.len(), tracer.dropped()), (300, 0));
    assert!(events.iter().all(|event| event.queue == one.handle().id()));
    assert!(events.windows(2).all(|pair| pair[0].at_nanos <= pair[1].at_nanos));
    for kind in [TraceKind::Queue, TraceKind::Start, TraceKind::End] {
        let of_kind: Vec<_> = events.iter().filter(|event| event.kind == kind).collect();
        assert_eq!(of_kind.len(), 100);
        assert!(of_kind.iter().all(|event| event.thread.is_some() == (kind != TraceKind::Queue)));
        assert!(
            of_kind.iter().all(|event| event.function().contains("events_of_its_queue_in_order"))
        );
    }
    assert_eq!(all.take(usize::MAX).len(), 600);
    assert!(all.take(usize::MAX).is_empty());
    drop(tracer);
    drop(all);
    one.spawn(|| ()).join().unwrap();
    assert!(!runtime.is_observed());
}

#[test]
fn events_lost_to_a_full_buffer_are_counted() {
    let runtime = runtime();
    let queue = queue(&runtime, "many");
    let mut tracer = runtime.trace(None, 1);
    // At most 20,000 items a second are reported, so this takes a few seconds.
    let end = std::time::Instant::now() + Duration::from_mins(1);
    while tracer.dropped() == 0 && std::time::Instant::now() < end {
        // More events than a tracer keeps.
        let before = runtime.samples();
        while runtime.samples() < before + 33_000 {
            (0..100).for_each(|_| drop(queue.spawn(|| ())));
            queue.flush().unwrap();
        }
        let taken = tracer.take(usize::MAX).len() as u64;
        assert!(taken <= 32 * 1024);
    }
    assert!(tracer.dropped() > 0);
}

#[test]
fn a_trace_of_every_eighth_item_has_every_eighth() {
    let runtime = runtime();
    let queue = runtime
        .workqueue_builder("eighth")
        .affinity_scope(nearq_core::AffinityScope::System)
        .build()
        .unwrap();
    let mut tracer = runtime.trace(None, 7);
    assert_eq!(tracer.every(), 8);
    for _ in 0..800 {
        queue.spawn(|| ()).join().unwrap();
    }
    queue.flush().unwrap();
    assert_eq!(tracer.take(usize::MAX).len(), 300);
}

#[test]
fn everything_is_counted_while_readers_start_and_stop() {
    let runtime = runtime();
    let queue = Arc::new(queue(&runtime, "busy"));
    let stop = Arc::new(AtomicBool::new(false));
    let ran = Arc::new(AtomicU64::new(0));
    let issuers: Vec<_> = (0..2)
        .map(|_| {
            let (queue, stop, ran) = (Arc::clone(&queue), Arc::clone(&stop), Arc::clone(&ran));
            std::thread::spawn(move || {
                let mut sent = 0;
                while !stop.load(Relaxed) {
                    let ran = Arc::clone(&ran);
                    queue.spawn(move || ran.fetch_add(1, Relaxed)).join().unwrap();
                    sent += 1;
                }
                sent
            })
        })
        .collect();
    for round in 0..200 {
        let timing = runtime.time_items();
        let mut tracer = runtime.trace(None, 1);
        if round % 10 == 0 {
            queue.set_affinity_strict(round % 20 == 0).unwrap();
        }
        tracer.take(100);
        drop(timing);
    }
    stop.store(true, Relaxed);
    let sent: u64 = issuers.into_iter().map(|issuer| issuer.join().unwrap()).sum();
    queue.flush().unwrap();
    assert_eq!(ran.load(Relaxed), sent);
    let completed: u64 = queue.statistics().iter().map(|row| row.completed).sum();
    assert_eq!(completed, sent);
}
