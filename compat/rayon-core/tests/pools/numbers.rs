//! `current_thread_index`, by which programs choose a slot of an array that they then use without a lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rayon_core::{
    ThreadPoolBuilder, current_num_threads, current_thread_index, join, max_num_threads,
};

use crate::{eventually, pool, watched};

/// What closures hold, by number.
struct Held(Vec<AtomicBool>);

impl Held {
    fn new(size: usize) -> Arc<Held> {
        Arc::new(Held((0..size).map(|_| AtomicBool::new(false)).collect()))
    }

    /// Runs `f` as the only closure with the number of the current thread.
    fn alone(&self, f: impl FnOnce()) {
        let number = current_thread_index().expect("a closure of the pool");
        assert_eq!(current_num_threads(), self.0.len());
        assert!(number < self.0.len(), "number {number} of {}", self.0.len());
        assert!(!self.0[number].swap(true, Ordering::SeqCst), "number {number} is held twice");
        f();
        assert_eq!(current_thread_index(), Some(number));
        self.0[number].store(false, Ordering::SeqCst);
    }
}

/// Every seventh time it sleeps for so long that the worker is replaced.
fn work(part: usize) {
    if part % 7 == 0 {
        std::thread::sleep(Duration::from_millis(6));
    } else {
        std::hint::black_box((0..part % 1000).sum::<usize>());
    }
}

fn no_two_spawned_closures_have_a_number(builder: ThreadPoolBuilder) {
    const CLOSURES: usize = 1500;
    let pool = builder.build().unwrap();
    let held = Held::new(pool.current_num_threads());
    let ended = Arc::new(AtomicUsize::new(0));
    for part in 0..CLOSURES {
        let (held, ended) = (Arc::clone(&held), Arc::clone(&ended));
        pool.spawn(move || {
            held.alone(|| work(part));
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    eventually("all have run", || ended.load(Ordering::SeqCst) == CLOSURES);
}

#[test]
fn no_two_spawned_closures_have_a_number_at_once_while_workers_are_replaced() {
    watched(|| no_two_spawned_closures_have_a_number(ThreadPoolBuilder::new()));
}

#[test]
fn no_two_spawned_closures_have_a_number_at_once_in_a_pool_of_a_set_size() {
    watched(|| no_two_spawned_closures_have_a_number(ThreadPoolBuilder::new().num_threads(3)));
}

#[test]
fn no_two_spawned_closures_have_a_number_at_once_in_a_pool_with_threads_of_its_own() {
    watched(|| {
        let builder = ThreadPoolBuilder::new().num_threads(3);
        no_two_spawned_closures_have_a_number(builder.thread_name(|index| format!("own-{index}")));
    });
}

#[test]
fn no_two_leaves_of_a_join_have_a_number_at_once_while_workers_are_replaced() {
    fn halves(held: &Held, from: usize, to: usize) {
        if to - from == 1 {
            held.alone(|| work(from));
            return;
        }
        let middle = from.midpoint(to);
        join(|| halves(held, from, middle), || halves(held, middle, to));
    }
    watched(|| {
        let pool = ThreadPoolBuilder::new().build().unwrap();
        let held = Held::new(pool.current_num_threads());
        // Several trees at once.
        pool.scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|_| halves(&held, 0, 400));
            }
        });
    });
}

#[test]
fn a_pool_of_no_threads_has_the_default_size() {
    watched(|| {
        let (none, default) = (pool(0), ThreadPoolBuilder::new().build().unwrap());
        assert!(none.current_num_threads() > 0);
        assert_eq!(none.current_num_threads(), default.current_num_threads());
        assert_eq!(none.join(|| 1, || 2), (1, 2));
    });
}

#[test]
fn a_pool_of_far_too_many_threads_has_as_many_as_may_be() {
    watched(|| {
        let pool = pool(100_000);
        assert_eq!(pool.current_num_threads(), max_num_threads());
        assert_eq!(pool.join(current_num_threads, || 2), (max_num_threads(), 2));
        let numbers = pool.broadcast(|context| context.index());
        assert_eq!(numbers, (0..max_num_threads()).collect::<Vec<_>>());
        // The queue lets as many closures run at once, also on each node.
        let queues = nearq::Runtime::global().queues();
        assert!(queues.iter().any(|queue| queue.max_active() > max_num_threads()), "{queues:?}");
        assert!(queues.iter().any(|queue| queue.min_active() > max_num_threads()), "{queues:?}");
    });
}

/// A thief that finds every number held must not call the next one: that one would find the same, and a CPU would do nothing else.
#[test]
fn a_pool_whose_numbers_are_all_held_keeps_no_other_cpu_busy() {
    fn halves(depth: u32, until: Instant) {
        if depth == 0 {
            let leaf = Instant::now();
            while leaf.elapsed() < Duration::from_micros(20) {}
        } else if Instant::now() < until {
            join(|| halves(depth - 1, until), || halves(depth - 1, until));
        }
    }
    let pool = pool(1);
    let queue = pool.install(|| {
        halves(16, Instant::now() + Duration::from_millis(200));
        let task = std::fs::read_link("/proc/thread-self").unwrap();
        let thread: u64 = task.file_name().unwrap().to_str().unwrap().parse().unwrap();
        let running = nearq::Runtime::global().running();
        let own = running.into_iter().find(|item| item.thread_id == Some(thread));
        own.and_then(|item| item.queue).expect("the closure is a part of an item").id
    });
    let queues = nearq::Runtime::global().queues();
    let queue = queues.iter().find(|other| other.id() == queue).expect("its pool exists");
    let thieves: u64 = queue.statistics().iter().map(|row| row.thieves).sum();
    assert!(thieves < 2000, "{thieves} thieves came");
}
