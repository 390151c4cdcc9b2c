//! Fork-join: `join` and `install`, on one queue and on several, with panics, limits, sleeps and locks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nearq_core::{AffinityScope, Runtime, Scope, Workqueue, join};

use crate::common;

fn queue(name: &str) -> Workqueue {
    Runtime::builder().build().unwrap().workqueue_builder(name).build().unwrap()
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn a_tree_of_joins_is_computed() {
    let queue = queue("fib");
    for _ in 0..20 {
        assert_eq!(queue.install(|| fib(20)), 6765);
    }
    assert_eq!(fib(15), 610, "outside of items");
}

#[test]
fn each_closure_runs_once() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    fn count(depth: u32) {
        if depth == 0 {
            RUNS.fetch_add(1, Ordering::Relaxed);
        } else {
            join(|| count(depth - 1), || count(depth - 1));
        }
    }
    queue("once").install(|| count(16));
    assert_eq!(RUNS.load(Ordering::Relaxed), 1 << 16);
}

/// Long leaves can be stolen: a thief gets the second closure although the first one makes no further forks.
#[test]
fn both_closures_run_at_once() {
    let (queue, meet) = (queue("both"), Barrier::new(2));
    let _watchdog = common::watch(None);
    queue.join(|| _ = meet.wait(), || _ = meet.wait());
}

/// Four levels of forks whose leaves wait for each other: blocked workers are replaced, so all wait at once.
#[test]
fn leaves_that_block_are_replaced() {
    fn wait(depth: u32, meet: &Barrier) {
        if depth == 0 {
            nearq_core::block_in_place(|| meet.wait());
        } else {
            join(|| wait(depth - 1, meet), || wait(depth - 1, meet));
        }
    }
    let (queue, meet) = (queue("leaves"), Barrier::new(16));
    let _watchdog = common::watch(None);
    queue.install(|| wait(4, &meet));
}

#[test]
fn the_first_panic_comes_back_after_both_have_ended() {
    let queue = queue("panics");
    let ended = AtomicUsize::new(0);
    let pause = || thread::sleep(Duration::from_millis(20));
    let message = |outcome: Result<((), ()), Box<dyn std::any::Any + Send>>| {
        *outcome.unwrap_err().downcast::<&str>().unwrap()
    };
    let end = || {
        pause();
        ended.fetch_add(1, Ordering::Relaxed);
    };
    let first = catch_unwind(AssertUnwindSafe(|| queue.join(|| panic!("first"), end)));
    assert_eq!((message(first), ended.load(Ordering::Relaxed)), ("first", 1));
    let second = catch_unwind(AssertUnwindSafe(|| queue.join(end, || panic!("second"))));
    assert_eq!((message(second), ended.load(Ordering::Relaxed)), ("second", 2));
    let both = catch_unwind(AssertUnwindSafe(|| {
        queue.join(
            || {
                pause();
                panic!("first of both")
            },
            || panic!("second of both"),
        )
    }));
    assert_eq!(message(both), "first of both");
    assert_eq!(queue.join(|| 1, || 2), (1, 2));
}

/// The caller holds a lock while it waits for a closure that a thief has. It runs nothing that could want that lock.
#[test]
fn a_lock_that_is_held_in_a_join_is_not_wanted_by_what_the_caller_runs_meanwhile() {
    let queue = queue("locks");
    let lock = Mutex::new(0);
    let step = || {
        let mut guard = lock.lock().unwrap();
        join(
            || thread::sleep(Duration::from_millis(2)),
            || thread::sleep(Duration::from_millis(4)),
        );
        *guard += 1;
    };
    queue.scope(|scope| {
        for _ in 0..8 {
            scope.spawn(step);
        }
        scope.spawn(|| {
            join(step, || join(step, step));
        });
    });
    assert_eq!(lock.into_inner().unwrap(), 11);
}

#[test]
fn a_queue_that_runs_one_item_at_a_time_runs_both_in_turn() {
    let running = AtomicUsize::new(0);
    let alone = || {
        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
        thread::sleep(Duration::from_millis(5));
        running.fetch_sub(1, Ordering::SeqCst);
    };
    let runtime = Runtime::builder().build().unwrap();
    let ordered = runtime.workqueue_builder("ordered").ordered();
    let single = runtime.workqueue_builder("single").max_active(1);
    let per_cpu = runtime.workqueue_builder("per CPU").per_cpu();
    for queue in [ordered, single, per_cpu].map(|builder| builder.build().unwrap()) {
        queue.join(alone, || join(alone, alone));
    }
}

/// Roots come and go while thieves search and leave.
#[test]
fn many_short_trees_in_a_row() {
    let queue = queue("short");
    for round in 0..2000 {
        assert_eq!(queue.install(|| fib(6)), 8);
        if round % 100 == 0 {
            thread::sleep(Duration::from_micros(200));
        }
    }
}

#[test]
fn trees_of_several_queues_and_threads_at_once() {
    let queues: Vec<_> = (0..3).map(|_| queue("several")).collect();
    thread::scope(|scope| {
        for number in 0..6 {
            let queue = &queues[number % 3];
            scope.spawn(move || {
                for _ in 0..10 {
                    assert_eq!(queue.join(|| fib(14), || fib(15)), (377, 610));
                }
            });
        }
    });
}

/// The tree is deeper than a deque has space for.
#[test]
fn a_chain_of_forks_may_be_deep() {
    fn chain(depth: u32) -> u32 {
        if depth == 0 { 0 } else { join(|| chain(depth - 1), || 1).0 + 1 }
    }
    assert_eq!(queue("deep").install(|| chain(1000)), 1000);
}

/// A drain admits the closures that the queue's own items fork, and waits for them.
#[test]
fn a_tree_ends_while_its_queue_is_drained() {
    let queue = queue("drained");
    let tree = queue.spawn(|| fib(22));
    queue.drain().unwrap();
    assert!(tree.is_finished());
    assert_eq!(tree.join().unwrap(), 17711);
}

/// The items that steal leave when the tree ends: nothing is left on the queue, and it can be dropped at once.
#[test]
fn nothing_is_left_on_the_queue_after_a_tree() {
    let queue = queue("left");
    let _watchdog = common::watch(Some(queue.runtime()));
    for _ in 0..200 {
        assert_eq!(queue.install(|| fib(12)), 144);
    }
    common::eventually("thieves leave", || {
        let flight = queue.in_flight();
        flight.running + flight.waiting + flight.inactive == 0
    });
    drop(queue);
}

/// The workers that help follow the queue's limit: never more of its closures run at once.
#[test]
fn no_more_closures_run_at_once_than_max_active_allows() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime
        .workqueue_builder("limited")
        .affinity_scope(AffinityScope::System)
        .max_active(2)
        .min_active(0)
        .build()
        .unwrap();
    let (running, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    fn tree(depth: u32, leaf: &(impl Fn() + Sync)) {
        if depth == 0 {
            leaf();
        } else {
            join(|| tree(depth - 1, leaf), || tree(depth - 1, leaf));
        }
    }
    let leaf = || {
        most.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(2));
        running.fetch_sub(1, Ordering::SeqCst);
    };
    queue.install(|| tree(6, &leaf));
    let most = most.into_inner();
    let nodes = queue.limits().len();
    assert!(most <= 2 * nodes, "{most} at once");
}

/// A tree of 2 to the power of `depth` leaves of a millisecond.
fn busy_tree(depth: u32) {
    if depth == 0 {
        busy(Duration::from_millis(1));
    } else {
        join(|| busy_tree(depth - 1), || busy_tree(depth - 1));
    }
}

fn busy(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A thief that was queued before the flush leaves when the trees that came before it have ended.
#[test]
fn a_flush_does_not_wait_for_a_later_tree() {
    let queue = queue("flushed");
    let began = Instant::now();
    thread::scope(|scope| {
        let first = queue.spawn(|| {
            let sleep = |millis| thread::sleep(Duration::from_millis(millis));
            join(|| sleep(100), || sleep(200));
        });
        thread::sleep(Duration::from_millis(50));
        let flush = scope.spawn(|| {
            queue.flush().unwrap();
            began.elapsed()
        });
        thread::sleep(Duration::from_millis(50));
        let second = queue.spawn(move || {
            busy_tree(11);
            began.elapsed()
        });
        first.join().unwrap();
        let (flush, tree) = (flush.join().unwrap(), second.join().unwrap());
        assert!(flush < tree * 3 / 4, "the flush took {flush:?}, the later tree {tree:?}");
    });
}

/// The pools change while an item forks: workers of the new pools find its closures in the old pool.
#[test]
fn a_tree_is_shared_after_a_change_of_attributes() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("changed").build().unwrap();
    let _watchdog = common::watch(Some(&runtime));
    queue.install(|| {
        join(
            || {
                busy_tree(6);
                queue.set_nice(5).unwrap();
                // Leaves all thieves time to leave.
                busy(Duration::from_millis(20));
                for _ in 0..10 {
                    // Another worker has to take the second closure.
                    let meet = Barrier::new(2);
                    join(|| _ = meet.wait(), || _ = meet.wait());
                }
            },
            || (),
        )
    });
}

/// Many more leaves than there are CPUs.
#[test]
fn closures_that_block_are_replaced_as_items_are() {
    fn sleep(depth: u32) {
        if depth == 0 {
            nearq_core::block_in_place(|| thread::sleep(Duration::from_millis(100)));
        } else {
            join(|| sleep(depth - 1), || sleep(depth - 1));
        }
    }
    let queue = queue("blocks");
    let began = Instant::now();
    let items: Vec<_> = (0..64).map(|_| queue.spawn(|| sleep(0))).collect();
    for item in items {
        item.join().unwrap();
    }
    let items = began.elapsed();
    let began = Instant::now();
    queue.install(|| sleep(6));
    let took = began.elapsed();
    assert!(took < items * 4, "64 items took {items:?}, 64 closures {took:?}");
}

/// Otherwise a drop that panics would end the process, depending on which thread ran the second closure.
#[test]
fn a_result_is_not_dropped_while_the_thread_unwinds() {
    static UNWINDS: AtomicUsize = AtomicUsize::new(0);
    struct Result;
    impl Drop for Result {
        fn drop(&mut self) {
            UNWINDS.fetch_add(usize::from(thread::panicking()), Ordering::Relaxed);
        }
    }
    let runtime = Runtime::builder().build().unwrap();
    for max_active in [1, 100] {
        let queue = runtime.workqueue_builder("drops").max_active(max_active).build().unwrap();
        let outcome = catch_unwind(|| {
            let first = || {
                thread::sleep(Duration::from_millis(20));
                Result
            };
            queue.join(first, || panic!("second"));
        });
        assert!(outcome.is_err());
    }
    assert_eq!(UNWINDS.load(Ordering::Relaxed), 0);
}

// ---- scopes within items ---------------------------------------------------------------------------------

/// Two closures for each level, spawned on a scope of their own, or all on the first one.
fn spawn_tree<'scope>(scope: &'scope Scope<'scope, '_>, depth: u32, leaves: &'scope AtomicUsize) {
    if depth == 0 {
        leaves.fetch_add(1, Ordering::Relaxed);
        return;
    }
    for _ in 0..2 {
        scope.spawn(move || spawn_tree(scope, depth - 1, leaves));
    }
}

fn scope_tree(queue: &Workqueue, depth: u32) -> u32 {
    if depth == 0 {
        return 1;
    }
    let mut halves = [0, 0];
    queue.scope(|scope| {
        for half in &mut halves {
            scope.spawn(|| *half = scope_tree(queue, depth - 1));
        }
    });
    halves.iter().sum()
}

#[test]
fn a_tree_of_scopes_is_computed_by_workers_and_by_the_item() {
    let queue = queue("scopes");
    for _ in 0..20 {
        assert_eq!(queue.install(|| scope_tree(&queue, 12)), 1 << 12);
        let leaves = AtomicUsize::new(0);
        queue.install(|| queue.scope(|scope| spawn_tree(scope, 12, &leaves)));
        assert_eq!(leaves.into_inner(), 1 << 12);
    }
}

/// More closures than a deque holds: the rest are queued as items.
#[test]
fn a_scope_may_spawn_more_closures_than_a_deque_holds() {
    let queue = queue("many");
    let ended = AtomicUsize::new(0);
    queue.install(|| {
        queue.scope(|scope| {
            for _ in 0..20_000 {
                scope.spawn(|| {
                    ended.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
    });
    assert_eq!(ended.into_inner(), 20_000);
}

/// A join's first closure, its second one, and a closure of a nested scope each spawn on the outer scope.
#[test]
fn closures_are_spawned_on_an_outer_scope_from_anywhere() {
    let queue = queue("outer");
    for _ in 0..200 {
        let ended = AtomicUsize::new(0);
        let count = || {
            ended.fetch_add(1, Ordering::Relaxed);
        };
        queue.install(|| {
            queue.scope(|outer| {
                join(
                    || (0..3).for_each(|_| outer.spawn(count)),
                    || (0..3).for_each(|_| outer.spawn(count)),
                );
                queue.scope(|inner| {
                    inner.spawn(|| outer.spawn(|| _ = join(count, || outer.spawn(count))));
                    outer.spawn(count);
                });
            });
            assert_eq!(ended.load(Ordering::Relaxed), 9);
        });
    }
}

/// A thread of the program, and an item of another queue, spawn on the scope of an item. The queue's limit leaves no place for them.
#[test]
fn a_scope_runs_what_other_threads_spawn_on_it() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("full").max_active(2).build().unwrap();
    let other = runtime.workqueue_builder("other").build().unwrap();
    let gate = Barrier::new(2);
    let ended = AtomicUsize::new(0);
    let item = || {
        queue.install(|| {
            queue.scope(|scope| {
                // Both items have their places now.
                gate.wait();
                let spawn = || {
                    scope.spawn(|| {
                        ended.fetch_add(1, Ordering::Relaxed);
                    });
                };
                thread::scope(|threads| {
                    threads.spawn(spawn);
                });
                other.install(spawn);
            });
        });
    };
    thread::scope(|threads| {
        threads.spawn(item);
        threads.spawn(item);
    });
    assert_eq!(ended.into_inner(), 4);
}

/// With two places, the item and one thief, each closure is a tree that both must take part in: the item helps the thief.
#[test]
fn a_scope_that_waits_helps_the_thief() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("helps").max_active(2).build().unwrap();
    let _watchdog = common::watch(Some(&runtime));
    let (both_run, meet) = (Barrier::new(2), Barrier::new(2));
    queue.install(|| {
        queue.scope(|scope| {
            // The thief takes this one, and the item the other.
            scope.spawn(|| {
                both_run.wait();
                queue.join(|| _ = meet.wait(), || _ = meet.wait());
            });
            scope.spawn(|| _ = both_run.wait());
        });
    });
}

/// A worker that waits for a stolen job sleeps, and wakes when the thief has jobs for it.
#[test]
fn a_join_that_sleeps_is_woken_to_help() {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("woken").max_active(2).build().unwrap();
    let _watchdog = common::watch(Some(&runtime));
    let (both_run, meet) = (Barrier::new(2), Barrier::new(2));
    queue.join(
        // Ends first, and waits for the other one, which makes jobs later.
        || _ = both_run.wait(),
        || {
            both_run.wait();
            thread::sleep(Duration::from_millis(100));
            queue.join(|| _ = meet.wait(), || _ = meet.wait());
        },
    );
}

#[test]
fn panics_of_a_scopes_closures_come_back_after_all_have_ended() {
    let queue = queue("panics");
    let ended = AtomicUsize::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        queue.install(|| {
            queue.scope(|scope| {
                for number in 0..50 {
                    let ended = &ended;
                    scope.spawn(move || {
                        ended.fetch_add(1, Ordering::Relaxed);
                        assert!(number % 10 != 7, "on purpose");
                    });
                }
            });
        });
    }));
    assert_eq!(*outcome.unwrap_err().downcast::<&str>().unwrap(), "on purpose");
    assert_eq!(ended.into_inner(), 50);
    // The item itself is counted after its caller has been woken.
    queue.drain().unwrap();
    let panicked: u64 = queue.statistics().iter().map(|row| row.panicked).sum();
    assert_eq!(panicked, 6, "each closure that panicked is counted, and the item");
}

#[test]
fn each_index_is_called_once() {
    let queue = queue("indexes");
    for range in [0..0, 5..5, 7..8, 3..10, 0..1000, usize::MAX - 3..usize::MAX] {
        let called = Mutex::new(Vec::new());
        queue.for_each(range.clone(), |index| called.lock().unwrap().push(index));
        let mut called = called.into_inner().unwrap();
        called.sort_unstable();
        assert!(called.iter().copied().eq(range.clone()), "{range:?}: {called:?}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "a caller may compute one")]
    queue.for_each(5..3, |_| unreachable!("it is empty"));
}

#[test]
fn two_indexes_run_at_once() {
    let meet = Barrier::new(2);
    let _watchdog = common::watch(None);
    queue("two").for_each(0..2, |_| _ = meet.wait());
}

#[test]
fn the_panic_of_the_lowest_index_comes_back_after_all_calls() {
    let queue = queue("panics");
    let ended = AtomicUsize::new(0);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        queue.for_each(0..100, |index| {
            ended.fetch_add(1, Ordering::Relaxed);
            assert!(index % 10 != 7, "index {index}");
        });
    }));
    assert_eq!(*outcome.unwrap_err().downcast::<String>().unwrap(), "index 7");
    assert_eq!(ended.into_inner(), 100);
}
