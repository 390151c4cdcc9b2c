//! `use_current_thread`: the thread that builds a pool has the number 0.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread::ThreadId;
use std::time::Duration;

use rayon_core::{
    ThreadPool, ThreadPoolBuilder, Yield, current_num_threads, current_thread_index, yield_now,
};

use crate::{eventually, pool, watched};

fn with_current(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().unwrap()
}

fn here() -> ThreadId {
    std::thread::current().id()
}

/// Fails if a worker has the only number of the pool while its thread, the caller, does not wait. A worker would begin the closure at once.
fn assert_alone(pool: &ThreadPool) {
    // What was spawned before.
    while yield_now() == Some(Yield::Executed) {}
    let (done, ran_in) = channel();
    pool.spawn(move || done.send(here()).unwrap());
    let by_a_worker = ran_in.recv_timeout(Duration::from_millis(50));
    assert!(by_a_worker.is_err(), "a worker has number 0");
    assert_eq!(yield_now(), Some(Yield::Executed));
    assert_eq!(ran_in.recv(), Ok(here()));
}

#[test]
fn alone_it_is_the_pool() {
    watched(|| {
        let pool = with_current(1);
        assert_eq!((current_thread_index(), current_num_threads()), (Some(0), 1));
        assert_eq!(pool.install(here), here());
        assert_eq!(yield_now(), Some(Yield::Idle));
        let (done, ran_in) = channel();
        pool.spawn(move || done.send((here(), current_thread_index())).unwrap());
        // No other thread has a number while this one does not wait in the pool.
        assert_eq!(yield_now(), Some(Yield::Executed));
        assert_eq!(ran_in.recv(), Ok((here(), Some(0))));
        // While it waits, its number is used.
        assert_eq!(pool.join(current_thread_index, current_thread_index), (Some(0), Some(0)));
        assert_eq!(pool.broadcast(|context| context.index()), [0]);
        assert_eq!(current_thread_index(), Some(0));
    });
}

#[test]
fn with_a_second_thread_that_one_runs_what_is_spawned() {
    watched(|| {
        let pool = with_current(2);
        assert_eq!((current_thread_index(), current_num_threads()), (Some(0), 2));
        let (done, ended) = channel();
        for _ in 0..20 {
            let done = done.clone();
            pool.spawn(move || done.send((here(), current_thread_index())).unwrap());
        }
        // This wait is not one in the pool: number 0 stays this thread's.
        for (thread, number) in ended.iter().take(20) {
            assert_ne!(thread, here());
            assert_eq!(number, Some(1));
        }
        assert_eq!(pool.broadcast(|context| context.index()), [0, 1]);
    });
}

#[test]
fn it_lends_its_number_only_while_it_waits_in_the_pool() {
    watched(|| {
        let pool = with_current(2);
        let running = Arc::new(AtomicUsize::new(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..50 {
            pool.scope(|scope| {
                for _ in 0..8 {
                    let (running, seen) = (&running, &seen);
                    scope.spawn(move |_| {
                        assert!(running.fetch_add(1, Ordering::SeqCst) < 2);
                        seen.lock().unwrap().push(current_thread_index().unwrap());
                        running.fetch_sub(1, Ordering::SeqCst);
                    });
                }
            });
            assert_eq!(current_thread_index(), Some(0));
            // Nothing of the pool has its number now.
            let (done, number) = channel();
            pool.spawn(move || done.send(current_thread_index()).unwrap());
            assert_eq!(number.recv(), Ok(Some(1)));
        }
        assert!(seen.lock().unwrap().iter().all(|number| *number < 2));
    });
}

#[test]
fn a_thread_is_in_one_pool_only() {
    watched(|| {
        let _pool = with_current(1);
        let second = ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        assert!(second.unwrap_err().to_string().contains("current thread"));
    });
}

#[test]
fn it_has_its_number_back_after_a_panic() {
    watched(|| {
        let pool = with_current(1);
        let join = || pool.join(|| panic!("of the first closure"), || ());
        assert!(catch_unwind(AssertUnwindSafe(join)).is_err());
        assert_alone(&pool);
        let scope = || pool.in_place_scope(|_| panic!("of the scope"));
        assert!(catch_unwind(AssertUnwindSafe(scope)).is_err());
        assert_alone(&pool);
        let spawned = || pool.in_place_scope(|scope| scope.spawn(|_| panic!("of a closure")));
        assert!(catch_unwind(AssertUnwindSafe(spawned)).is_err());
        assert_alone(&pool);
    });
}

#[test]
fn it_does_not_lend_its_number_while_it_runs_the_closure_of_a_scope() {
    watched(|| {
        let pool = with_current(1);
        let mut ran_in = None;
        pool.in_place_scope(|scope| {
            scope.spawn(|_| ran_in = Some((here(), current_thread_index())));
            assert_alone_beside(&pool);
        });
        let (thread, number) = ran_in.expect("a scope ends after its closures");
        assert_eq!(number, Some(0));
        assert_ne!(thread, here());
        assert_alone(&pool);
    });
}

/// As [`assert_alone`], while other closures wait in the pool.
fn assert_alone_beside(pool: &ThreadPool) {
    let began = Arc::new(AtomicBool::new(false));
    let begins = Arc::clone(&began);
    pool.spawn(move || begins.store(true, Ordering::SeqCst));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!began.load(Ordering::SeqCst), "a worker has number 0");
}

#[test]
fn a_join_in_the_closure_of_a_scope_lends_its_number_once() {
    watched(|| {
        let pool = with_current(2);
        for _ in 0..20 {
            pool.in_place_scope(|_| {
                let both = Barrier::new(2);
                let meet = || {
                    both.wait();
                    current_thread_index()
                };
                let (a, b) = rayon_core::join(meet, meet);
                assert_eq!([a, b].iter().max(), Some(&Some(1)));
                assert_eq!([a, b].iter().min(), Some(&Some(0)));
                // Between two waits nothing of the pool has its number.
                let (done, number) = channel();
                pool.spawn(move || done.send(current_thread_index()).unwrap());
                assert_eq!(number.recv(), Ok(Some(1)));
            });
        }
    });
}

#[test]
fn a_member_that_waits_for_another_pool_is_woken_when_it_takes_its_number_back() {
    watched(|| {
        let (own, other) = (Arc::new(with_current(2)), Arc::new(pool(1)));
        for round in 0..400 {
            let (done, ended) = channel::<()>();
            let (begin, begun) = channel();
            let installed = Arc::clone(&other);
            own.spawn(move || {
                begin.send(()).unwrap();
                // Longer than a member searches before it sleeps.
                installed.install(move || ended.recv().unwrap());
            });
            begun.recv().unwrap();
            std::thread::sleep(Duration::from_micros(300));
            // While the number is lent, a number is left for the closure; then none is.
            let outside = Arc::clone(&own);
            let (spawned, all) = (Arc::new(Barrier::new(2)), Arc::new(AtomicBool::new(false)));
            let (meets, ends) = (Arc::clone(&spawned), Arc::clone(&all));
            let thread = std::thread::spawn(move || {
                meets.wait();
                for _ in 0..round % 50 {
                    std::hint::spin_loop();
                }
                outside.spawn(move || {
                    done.send(()).unwrap();
                    ends.store(true, Ordering::SeqCst);
                });
            });
            spawned.wait();
            own.in_place_scope(|_| ());
            eventually("the closure has run", || all.load(Ordering::SeqCst));
            thread.join().unwrap();
        }
    });
}

#[test]
fn it_lends_its_number_while_it_waits_for_another_pool() {
    watched(|| {
        let (own, other) = (with_current(1), pool(1));
        assert_eq!(other.install(|| own.install(current_thread_index)), Some(0));
        assert_alone(&own);
        let mut ran_in = None;
        other.in_place_scope(|scope| scope.spawn(|_| ran_in = Some(own.install(here))));
        assert_ne!(ran_in.expect("a scope ends after its closures"), here());
        assert_alone(&own);
        assert_eq!(other.broadcast(|_| own.install(current_thread_index)), [Some(0)]);
        assert_alone(&own);
    });
}

#[test]
fn a_worker_gives_its_number_back_between_two_closures() {
    const CLOSURES: usize = 1000;
    watched(|| {
        let pool = with_current(1);
        let (ran, is_over) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
        pool.scope(|_| {
            for _ in 0..CLOSURES {
                let (ran, is_over) = (Arc::clone(&ran), Arc::clone(&is_over));
                rayon_core::spawn(move || {
                    if !is_over.load(Ordering::SeqCst) {
                        std::thread::sleep(Duration::from_millis(2));
                    }
                    ran.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        let before = ran.load(Ordering::SeqCst);
        assert!(before < CLOSURES, "the wait took as long as all that was spawned");
        is_over.store(true, Ordering::SeqCst);
        while yield_now() == Some(Yield::Executed) {}
        assert_eq!(ran.load(Ordering::SeqCst), CLOSURES);
    });
}

#[test]
fn a_thread_that_serves_another_pool_keeps_its_number() {
    watched(|| {
        let (done, ended) = channel();
        let other = ThreadPoolBuilder::new()
            .num_threads(1)
            .spawn_handler(|thread| {
                let done = done.clone();
                std::thread::spawn(move || {
                    let pool = Arc::new(with_current(1));
                    done.send((Arc::clone(&pool), current_thread_index())).unwrap();
                    thread.run();
                    done.send((pool, current_thread_index())).unwrap();
                });
                Ok(())
            })
            .build()
            .unwrap();
        let (own, before) = ended.recv().unwrap();
        assert_eq!(before, Some(0));
        assert_eq!(other.install(|| (own.current_thread_index(), here())).0, None);
        // While it waits in the other pool, it lends the number.
        assert_eq!(other.install(|| own.install(|| own.current_thread_index())), Some(0));
        drop(other);
        assert_eq!(ended.recv().unwrap().1, Some(0));
    });
}

#[test]
fn the_builder_asks_once_for_the_name_of_each_thread() {
    let names_asked = |threads: usize| {
        let asked = Arc::new(Mutex::new(Vec::new()));
        let asks = Arc::clone(&asked);
        let name = move |index| {
            asks.lock().unwrap().push(index);
            format!("asked-{index}")
        };
        let builder = ThreadPoolBuilder::new().num_threads(threads).use_current_thread();
        let pool = builder.thread_name(name).build().unwrap();
        drop(pool);
        Arc::try_unwrap(asked)
            .map_or_else(|asked| asked.lock().unwrap().clone(), |asked| asked.into_inner().unwrap())
    };
    assert_eq!(watched(move || names_asked(1)), [0]);
    assert_eq!(watched(move || names_asked(3)), [0, 1, 2]);
}
