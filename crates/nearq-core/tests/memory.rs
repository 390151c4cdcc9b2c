//! What items cost: one allocation with at most 64 bytes in addition to the function; and queueing allocates nothing at all.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use std::future::poll_fn;
use std::task::Poll;

use nearq_core::{Runtime, Work};

use common::{alone, eventually, watch};

/// Counts what the program allocates.
struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Pages that the process has in memory, in bytes.
fn resident() -> usize {
    let line = std::fs::read_to_string("/proc/self/statm").unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[test]
fn a_million_queued_items_cost_at_most_64_bytes_each() {
    const COUNT: usize = 1_000_000;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    let queue = runtime.workqueue_builder("million").max_active(2048).build().unwrap();
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let mut works: Vec<Work> = Vec::with_capacity(COUNT);
    let (bytes, pages) = (BYTES.load(Ordering::Relaxed), resident());
    for number in 0..COUNT as u64 {
        works.push(Work::new(move |_: &Work| {
            RUNS.fetch_add(1, Ordering::Relaxed);
            std::hint::black_box(number);
        }));
    }
    let asked = (BYTES.load(Ordering::Relaxed) - bytes) / COUNT;
    // The handles (the pages of their vector were not in memory before), and the closure.
    let user = size_of::<Work>() + size_of::<u64>();
    let there = resident().saturating_sub(pages) / COUNT;
    println!(
        "{asked} bytes asked for, {there} in memory, an item; {user} of them are the user's own"
    );
    assert!(asked <= 64 + size_of::<u64>(), "{asked} bytes an item");
    // The thread sanitizer keeps a shadow of all memory.
    assert!(cfg!(tsan) || there <= 64 + user, "{there} bytes an item in memory");
    let before = resident();
    for work in &works {
        assert!(queue.queue(work));
    }
    let grown = resident().saturating_sub(before) / COUNT;
    assert!(cfg!(tsan) || grown < 2, "queueing costs {grown} bytes an item");
    eventually("all have run", || RUNS.load(Ordering::Relaxed) == COUNT as u64);
}

#[test]
fn queueing_allocates_nothing() {
    const COUNT: usize = 100_000;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("still").max_active(64).build().unwrap();
    let runs = Arc::new(AtomicU64::new(0));
    let works: Vec<_> = (0..256)
        .map(|_| {
            let runs = Arc::clone(&runs);
            Work::new(move |_: &Work| {
                runs.fetch_add(1, Ordering::Relaxed);
            })
        })
        .collect();
    let rounds = |count: usize| {
        let mut queued = 0;
        for at in 0..count {
            queued += u64::from(queue.queue(&works[at % works.len()]));
        }
        queued
    };
    // Threads and lists that are made once.
    let mut queued = rounds(COUNT);
    let settle = |queued| {
        while runs.load(Ordering::Relaxed) != queued {
            std::thread::yield_now();
        }
    };
    settle(queued);
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    queued += rounds(COUNT);
    settle(queued);
    let allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
    println!("{allocations} allocations for {COUNT} calls");
    // The machine is read anew once a second, and the monitor lists the pools at each check; neither belongs to an item.
    let seconds = 2;
    assert!(allocations < 3000 * seconds, "{allocations} allocations");
    assert!(allocations < COUNT / 20, "{allocations} allocations for {COUNT} calls");
}

#[test]
fn a_spawn_allocates_once() {
    const COUNT: usize = 10_000;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("spawns").build().unwrap();
    for _ in 0..COUNT {
        queue.spawn(|| {}).join().unwrap();
    }
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..COUNT {
        queue.spawn(|| {}).join().unwrap();
    }
    let each = (ALLOCATIONS.load(Ordering::Relaxed) - before) as f64 / COUNT as f64;
    println!("{each} allocations a spawn");
    assert!(each < 1.3, "{each} allocations a spawn");
}

#[test]
fn a_future_allocates_once_and_its_wakes_never() {
    const COUNT: usize = 2_000;
    const WAKES: usize = 20;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("futures").build().unwrap();
    // Wakes itself that many times, each time by a new clone of its waker.
    let round = |wakes: usize| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for _ in 0..COUNT {
            let mut left = wakes;
            let future = poll_fn(move |context| {
                if left == 0 {
                    return Poll::Ready(());
                }
                left -= 1;
                let waker = context.waker().clone();
                waker.wake();
                context.waker().wake_by_ref();
                Poll::Pending
            });
            queue.spawn_future(future).join().unwrap();
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    round(WAKES);
    // The machine is read anew once a second, and the monitor lists the pools at each check; neither belongs to an item.
    let each = round(0) as f64 / COUNT as f64;
    let with_wakes = round(WAKES) as f64 / COUNT as f64;
    println!("{each} allocations a future, {with_wakes} with {WAKES} wakes");
    assert!(each < 2.0, "{each} allocations a future");
    assert!(with_wakes < 3.0, "{with_wakes} allocations a future with {WAKES} wakes");
}

#[test]
fn a_member_of_a_set_allocates_once() {
    const COUNT: usize = 4_000;
    let _alone = alone();
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("sets").build().unwrap();
    let mut set = queue.join_set();
    let mut round = |count: usize| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        for number in 0..count {
            if number % 2 == 0 { set.spawn(|| {}) } else { set.spawn_future(async {}) }
        }
        while let Some(result) = set.blocking_join_next() {
            result.unwrap();
        }
        ALLOCATIONS.load(Ordering::Relaxed) - before
    };
    round(COUNT);
    let each = round(COUNT) as f64 / COUNT as f64;
    println!("{each} allocations a member");
    assert!(each < 1.5, "{each} allocations a member");
}
