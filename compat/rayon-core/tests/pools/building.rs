//! Pools whose threads cannot be started, and what the queues of pools are called.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex};

use rayon_core::ThreadPoolBuilder;

use crate::{pool, watched};

fn queues() -> Vec<String> {
    nearq::Runtime::global().queues().iter().map(|queue| queue.name().to_owned()).collect()
}

#[test]
fn a_pool_whose_threads_the_system_refuses_is_an_error_and_the_next_pool_works() {
    watched(|| {
        // No thread has so large a stack.
        let error = ThreadPoolBuilder::new().num_threads(2).stack_size(1 << 52).build();
        let error = error.expect_err("there is no memory for such a stack");
        assert!(error.source().is_some_and(|source| source.is::<io::Error>()), "{error:?}");
        let pool = ThreadPoolBuilder::new().num_threads(2).stack_size(1 << 20).build().unwrap();
        assert_eq!(pool.join(|| 1, || 2), (1, 2));
    });
}

#[test]
fn threads_end_whose_pool_could_not_be_built() {
    watched(|| {
        let mut threads = Vec::new();
        let built = ThreadPoolBuilder::new()
            .num_threads(4)
            .spawn_handler(|thread| {
                if thread.index() == 2 {
                    return Err(io::Error::other("refused"));
                }
                threads.push(std::thread::spawn(|| thread.run()));
                Ok(())
            })
            .build();
        assert!(built.unwrap_err().to_string().contains("refused"));
        assert_eq!(threads.len(), 2);
        for thread in threads {
            thread.join().unwrap();
        }
    });
}

#[test]
fn the_runtime_shows_the_queues_of_pools_with_their_names() {
    watched(|| {
        rayon_core::join(|| (), || ());
        assert!(queues().contains(&"rayon".to_owned()), "{:?}", queues());
        let numbered = || queues().into_iter().filter(|name| name.starts_with("rayon-")).count();
        let pools: Vec<_> = (0..20).map(|_| pool(1)).collect();
        assert!(numbered() >= 20, "{:?}", queues());
        // Each has a name of its own.
        let mut names = queues();
        names.sort_unstable();
        let all = names.len();
        names.dedup();
        assert_eq!(names.len(), all);
        drop(pools);
    });
}

#[test]
fn threads_have_the_names_that_the_builder_sets() {
    watched(|| {
        let names = Arc::new(Mutex::new(Vec::new()));
        let pool = ThreadPoolBuilder::new()
            .num_threads(3)
            .thread_name(|index| format!("decoder-{index}"))
            .build()
            .unwrap();
        pool.broadcast(|_| {
            let name = std::thread::current().name().map(str::to_owned);
            names.lock().unwrap().push(name.expect("it has a name"));
        });
        let names = names.lock().unwrap();
        assert_eq!(names.len(), 3);
        assert!(names.iter().all(|name| name.starts_with("decoder-")), "{names:?}");
    });
}
