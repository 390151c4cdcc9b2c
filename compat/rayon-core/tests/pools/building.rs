//! Pools whose threads cannot be started, and what the queues of pools are called.

use std::error::Error as _;
use std::io;
use std::sync::{Arc, Mutex};

use nearq::CpuSet;
use nearq_platform::{Linux, Placement, Threads};
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

/// The CPUs that the calling thread may use.
fn mask() -> CpuSet {
    Linux::affinity(Linux::current_thread()).unwrap()
}

/// Restricts the calling thread to a CPU.
fn pin(cpu: usize) {
    Linux::set_affinity(Linux::current_thread(), &CpuSet::single(cpu)).unwrap();
}

/// Programs have a pool for each cache, whose threads they restrict to the CPUs of the cache.
#[test]
fn threads_stay_where_a_handler_has_put_them() {
    if mask().len() == 1 {
        println!("skipped: threads that are restricted: there is one CPU");
        return;
    }
    let cpu = mask().last().unwrap();
    let by_start = ThreadPoolBuilder::new().num_threads(2).start_handler(move |_| pin(cpu));
    let by_spawn = ThreadPoolBuilder::new().num_threads(2).spawn_handler(move |thread| {
        std::thread::spawn(move || {
            pin(cpu);
            thread.run();
        });
        Ok(())
    });
    let pools = [by_start.build().unwrap(), by_spawn.build().unwrap()];
    watched(move || {
        for pool in &pools {
            for _ in 0..3 {
                assert!(pool.broadcast(|_| mask()).iter().all(|mask| *mask == CpuSet::single(cpu)));
                // Workers that block are replaced by others.
                pool.broadcast(|_| std::thread::sleep(std::time::Duration::from_millis(10)));
            }
        }
    });
}

/// In a process where workers stay on a CPU each: what a thread may use in the pool and after it.
#[test]
#[ignore = "another test runs it, with the strict scope `cpu`"]
fn print_masks() {
    let (all, masks) = (mask(), Arc::new(Mutex::new(Vec::new())));
    let after = Arc::clone(&masks);
    let pool = ThreadPoolBuilder::new().num_threads(1).spawn_handler(move |thread| {
        let after = Arc::clone(&after);
        std::thread::spawn(move || {
            thread.run();
            after.lock().unwrap().push(mask());
        });
        Ok(())
    });
    let pool = pool.build().unwrap();
    let within = pool.install(mask);
    drop(pool);
    crate::eventually("the thread ends", || !masks.lock().unwrap().is_empty());
    println!("MASKS {} {}", within.len(), masks.lock().unwrap()[0] == all);
}

#[test]
fn a_thread_has_its_own_mask_again_after_the_pool() {
    if mask().len() == 1 {
        println!("skipped: masks of threads after the pool: there is one CPU");
        return;
    }
    let mut command = std::process::Command::new(std::env::current_exe().unwrap());
    command.args(["building::print_masks", "--exact", "--ignored", "--nocapture"]);
    let output = command.envs([("NEARQ_RAYON_SCOPE", "cpu"), ("NEARQ_RAYON_STRICT", "1")]).output();
    let output = String::from_utf8(output.unwrap().stdout).unwrap();
    assert!(output.contains("MASKS 1 true"), "{output}");
}
