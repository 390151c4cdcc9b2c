//! What an item costs: instructions of the issuer and of the worker, counted under callgrind.
//!
//! `item_cost queue|spawn|requeue N` does N of them on the process's runtime. Run under
//! `valgrind --tool=callgrind` with two values of N, the difference is what N items cost, both sides together; without it, the
//! example prints the time for each.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the example is a program of this machine"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nearq_core::{Work, Workqueue};

/// Items between two waits: below what a queue lets in at once.
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
    match which.as_str() {
        "queue" => queued(&queue, count),
        "spawn" => spawned(&queue, count),
        "requeue" => requeued(queue, count),
        _ => return eprintln!("usage: item_cost queue|spawn|requeue N"),
    }
    let each = begin.elapsed().as_secs_f64() * 1e9 / count as f64;
    println!("{which}: {each:.1} ns each");
}

fn queued(queue: &Workqueue, count: u64) {
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
        works.iter().for_each(|work| queue_one(queue, work));
        sum += ROUND;
        while ran.load(Ordering::Relaxed) < sum {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
    }
}

#[inline(never)]
fn queue_one(queue: &Workqueue, work: &Work) {
    assert!(queue.queue(work));
}

fn spawned(queue: &Workqueue, count: u64) {
    let mut handles = Vec::with_capacity(ROUND as usize);
    for _ in 0..count.div_ceil(ROUND) {
        handles.extend((0..ROUND).map(|number| spawn_one(queue, number)));
        while !handles.iter().all(nearq_core::JoinHandle::is_finished) {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        handles.drain(..).for_each(join_one);
    }
}

#[inline(never)]
fn spawn_one(queue: &Workqueue, number: u64) -> nearq_core::JoinHandle<u64> {
    queue.spawn(move || black_box(number))
}

#[inline(never)]
fn join_one(handle: nearq_core::JoinHandle<u64>) {
    let _ = black_box(handle.join());
}

fn requeued(queue: Workqueue, count: u64) {
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
}
