//! `use_current_thread`: the thread that builds a pool has the number 0.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;

use rayon_core::{
    ThreadPool, ThreadPoolBuilder, Yield, current_num_threads, current_thread_index, yield_now,
};

use crate::watched;

fn with_current(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).use_current_thread().build().unwrap()
}

fn here() -> ThreadId {
    std::thread::current().id()
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
