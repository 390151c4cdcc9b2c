//! What an item costs: instructions of the issuer and of the worker, counted under callgrind.
//!
//! `item_cost queue|spawn|requeue N` does N of them on the process's runtime. Run under
//! `valgrind --tool=callgrind` with two values of N, the difference is what N items cost, both sides together; without it, the
//! example prints the time for each. `cancel` times the cancelling of items that are on a pool, `held` of items that are held back by
//! the queue's limit, `flush` the flushing of an idle queue, `delay` putting items on a timer and `undelay` taking them off.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the example is a program of this machine"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq_core::{Runtime, Work, Workqueue};

/// The number of items between two waits: less than a queue admits at once.
const ROUND: u64 = 512;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let which = arguments.next().unwrap_or_default();
    let count: u64 = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let queue = match Workqueue::builder("cost").build() {
        Ok(queue) => queue,
        Err(error) => return eprintln!("{error}"),
    };
    let begin = Instant::now();
    let time = match which.as_str() {
        "queue" => queued(&queue, count),
        "spawn" => spawned(&queue, count),
        "requeue" => requeued(queue, count),
        "cancel" => Some(cancelled(0, count)),
        "held" => Some(cancelled(1, count)),
        "flush" => flushed(&queue, count),
        "delay" => Some(delayed(&queue, count).0),
        "undelay" => Some(delayed(&queue, count).1),
        _ => {
            return eprintln!(
                "usage: item_cost queue|spawn|requeue|cancel|held|flush|delay|undelay N"
            );
        }
    };
    let time = time.unwrap_or_else(|| begin.elapsed());
    println!("{which}: {:.1} ns each", time.as_secs_f64() * 1e9 / count as f64);
}

/// Items of which one blocks the only worker, and the others wait behind it: on its pool, or held back if `max_active` is 1.
fn cancelled(max_active: usize, count: u64) -> Duration {
    let runtime = Runtime::builder().thread_limit(1).build().expect("this machine");
    let queue = runtime.workqueue_builder("cost").max_active(max_active).build().expect("plain");
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let (entered, inside) = std::sync::mpsc::channel();
    let blocker = queue.spawn(move || {
        let _ = entered.send(());
        let _ = gate.recv();
    });
    let _ = inside.recv();
    let works: Vec<Work> = (0..ROUND).map(|_| Work::new(|_: &Work| {})).collect();
    let mut time = Duration::ZERO;
    for _ in 0..count.div_ceil(ROUND) {
        for work in &works {
            queue_one(&queue, work);
        }
        let begin = Instant::now();
        for work in &works {
            assert!(work.cancel());
        }
        time += begin.elapsed();
    }
    drop(open);
    let _ = blocker.join();
    time
}

fn flushed(queue: &Workqueue, count: u64) -> Option<Duration> {
    queue.spawn(|| {}).join().ok()?;
    queue.flush().ok()?;
    let begin = Instant::now();
    for _ in 0..count {
        queue.flush().ok()?;
    }
    Some(begin.elapsed())
}

/// How long it took to put items on a timer, and to take them off.
fn delayed(queue: &Workqueue, count: u64) -> (Duration, Duration) {
    let works: Vec<Work> = (0..ROUND).map(|_| Work::new(|_: &Work| {})).collect();
    let (mut on, mut off) = (Duration::ZERO, Duration::ZERO);
    for round in 0..=count.div_ceil(ROUND) {
        let begin = Instant::now();
        for work in &works {
            assert!(queue.queue_delayed(work, Duration::from_secs(30)));
        }
        let between = Instant::now();
        for work in &works {
            assert!(work.cancel());
        }
        // The first round allocates what an item needs for its first delay.
        if round != 0 {
            on += between - begin;
            off += between.elapsed();
        }
    }
    (on, off)
}

fn queued(queue: &Workqueue, count: u64) -> Option<Duration> {
    let ran = Arc::new(AtomicU64::new(0));
    let works: Vec<Work> = (0..ROUND)
        .map(|_| {
            let ran = Arc::clone(&ran);
            Work::new(move |_: &Work| {
                ran.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    let mut sum = 0;
    while sum < count {
        for work in &works {
            queue_one(queue, work);
        }
        sum += ROUND;
        while ran.load(Ordering::Relaxed) < sum {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    None
}

#[inline(never)]
fn queue_one(queue: &Workqueue, work: &Work) {
    assert!(queue.queue(work));
}

fn spawned(queue: &Workqueue, count: u64) -> Option<Duration> {
    let mut handles = Vec::with_capacity(ROUND as usize);
    for _ in 0..count.div_ceil(ROUND) {
        handles.extend((0..ROUND).map(|number| spawn_one(queue, number)));
        while !handles.iter().all(nearq_core::JoinHandle::is_finished) {
            std::thread::sleep(Duration::from_micros(100));
        }
        handles.drain(..).for_each(join_one);
    }
    None
}

#[inline(never)]
fn spawn_one(queue: &Workqueue, number: u64) -> nearq_core::JoinHandle<u64> {
    queue.spawn(move || black_box(number))
}

#[inline(never)]
fn join_one(handle: nearq_core::JoinHandle<u64>) {
    let _ = black_box(handle.join());
}

fn requeued(queue: Workqueue, count: u64) -> Option<Duration> {
    let queue = Arc::new(queue);
    let (done, finished) = std::sync::mpsc::channel();
    let again = Arc::clone(&queue);
    let mut left = count;
    let work = Work::new(move |work: &Work| {
        left -= 1;
        if left == 0 {
            let _ = done.send(());
        } else {
            again.queue(work);
        }
    });
    queue.queue(&work);
    let _ = finished.recv();
    None
}
