//! How closures and pools end: by panics, and when the handle of the pool is dropped.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use rayon_core::ThreadPoolBuilder;

use crate::{eventually, pool, watched};

/// The text with which `f` panics.
fn panic_of(f: impl FnOnce()) -> &'static str {
    let payload = catch_unwind(AssertUnwindSafe(f)).expect_err("it panics");
    payload.downcast_ref::<&str>().copied().expect("the payload is the closure's")
}

#[test]
fn if_both_closures_of_a_join_panic_the_first_panic_is_the_result_after_both_have_ended() {
    watched(|| {
        let pool = pool(2);
        for _ in 0..100 {
            let second_ends = AtomicBool::new(false);
            let text = panic_of(|| {
                pool.install(|| {
                    let (begin, begun) = channel();
                    rayon_core::join(
                        move || {
                            // So that another worker is within the second closure.
                            begun.recv().unwrap();
                            panic!("first");
                        },
                        || {
                            begin.send(()).unwrap();
                            std::thread::yield_now();
                            second_ends.store(true, Ordering::SeqCst);
                            panic!("second");
                        },
                    );
                });
            });
            assert_eq!(text, "first");
            assert!(second_ends.load(Ordering::SeqCst));
        }
        let text = panic_of(|| {
            pool.join(|| (), || panic!("second"));
        });
        assert_eq!(text, "second");
        assert_eq!(pool.join(|| 1, || 2), (1, 2));
    });
}

#[test]
fn a_panic_of_a_spawned_closure_goes_to_the_handler_and_the_worker_goes_on() {
    watched(|| {
        let (seen, panics) = channel();
        let seen = std::sync::Mutex::new(seen);
        let pool = ThreadPoolBuilder::new()
            .num_threads(1)
            .panic_handler(move |payload| {
                let text = payload.downcast_ref::<&str>().copied();
                seen.lock().unwrap().send(text).unwrap();
            })
            .build()
            .unwrap();
        for _ in 0..3 {
            pool.spawn(|| panic!("spawned"));
        }
        let texts: Vec<_> = panics.iter().take(3).collect();
        assert_eq!(texts, [Some("spawned"); 3]);
        assert_eq!(pool.install(|| 5), 5);
    });
}

#[test]
fn a_pool_that_is_dropped_runs_what_it_was_given_and_ends_its_threads() {
    watched(|| {
        const CLOSURES: usize = 20;
        let ended_threads = Arc::new(AtomicUsize::new(0));
        let at_exit = Arc::clone(&ended_threads);
        let pool = ThreadPoolBuilder::new()
            .num_threads(3)
            .exit_handler(move |_| {
                at_exit.fetch_add(1, Ordering::SeqCst);
            })
            .build()
            .unwrap();
        let gate = Arc::new(std::sync::Barrier::new(2));
        let ran = Arc::new(AtomicUsize::new(0));
        for number in 0..CLOSURES {
            let (gate, ran) = (Arc::clone(&gate), Arc::clone(&ran));
            pool.spawn(move || {
                if number == 0 {
                    gate.wait();
                }
                // What a closure spawns runs too.
                rayon_core::spawn(move || {
                    ran.fetch_add(1, Ordering::SeqCst);
                });
            });
        }
        drop(pool);
        // The drop has not waited for the closures.
        gate.wait();
        eventually("all have run", || ran.load(Ordering::SeqCst) == CLOSURES);
        eventually("the threads end", || ended_threads.load(Ordering::SeqCst) == 3);
    });
}

#[test]
fn the_queue_of_a_pool_is_gone_when_the_pool_and_its_closures_are() {
    watched(|| {
        let pool = pool(2);
        let id = format!("{pool:?}");
        let id = id.split_once("id: ").unwrap().1.trim_end_matches(" }");
        let name = format!("rayon-{id}");
        let is_there =
            || nearq::Runtime::global().queues().iter().any(|queue| queue.name() == name);
        let (open, gate) = channel::<()>();
        pool.spawn(move || gate.recv().unwrap());
        drop(pool);
        assert!(is_there(), "a closure is still there");
        open.send(()).unwrap();
        eventually("the queue is gone", || !is_there());
    });
}

/// Closures of a broadcast come for numbers that members give back at this moment.
#[test]
fn a_broadcast_ends_while_members_leave() {
    watched(|| {
        let pool = pool(5);
        for round in 0..2000_u64 {
            assert_eq!(pool.broadcast(|context| context.index()), [0, 1, 2, 3, 4]);
            std::thread::sleep(Duration::from_micros(round % 100));
        }
    });
}

#[test]
fn what_the_panic_handler_holds_may_use_scopes_when_the_last_closure_drops_the_pool() {
    struct UsesScope(std::sync::mpsc::Sender<[usize; 3]>);
    impl Drop for UsesScope {
        fn drop(&mut self) {
            let mut sizes = [0; 3];
            let [a, b, c] = &mut sizes;
            // The pool is gone, so the global one is used.
            rayon_core::scope(|scope| {
                *a = rayon_core::current_num_threads();
                scope.spawn(|_| *b = rayon_core::current_num_threads());
            });
            rayon_core::in_place_scope(|scope| {
                scope.spawn(|_| *c = rayon_core::current_num_threads());
            });
            self.0.send(sizes).unwrap();
        }
    }
    watched(|| {
        for has_threads in [false, true] {
            let (dropped, sizes) = channel();
            let uses = UsesScope(dropped);
            let mut builder = ThreadPoolBuilder::new().num_threads(1);
            if has_threads {
                builder = builder.stack_size(1 << 20);
            }
            let builder = builder.panic_handler(move |_| {
                let _ = &uses;
            });
            let pool = builder.build().unwrap();
            let (go, gone) = channel();
            pool.spawn(move || gone.recv().unwrap());
            drop(pool);
            go.send(()).unwrap();
            assert_eq!(sizes.recv(), Ok([rayon_core::current_num_threads(); 3]));
        }
    });
}
