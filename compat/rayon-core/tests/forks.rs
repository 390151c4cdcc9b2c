//! The child of a fork uses pools that its parent has used. In rayon's own pools it waits for ever: the threads are the parent's.
//!
//! A program of its own: nothing else runs while it forks.
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it runs on Linux only")]

mod in_child;

use in_child::{Child, in_child};
use rayon_core::{ThreadPool, ThreadPoolBuilder};

/// A tree of joins, a scope, and a spawned closure.
fn use_pool(join: impl Fn(u32) -> u32, spawn: impl Fn(Box<dyn FnOnce() + Send>)) -> bool {
    let (done, ended) = std::sync::mpsc::channel();
    spawn(Box::new(move || done.send(7).unwrap()));
    join(0) == 1 << 10 && ended.recv() == Ok(7)
}

fn leaves(depth: u32) -> u32 {
    if depth == 10 {
        return 1;
    }
    let (a, b) = rayon_core::join(|| leaves(depth + 1), || leaves(depth + 1));
    a + b
}

fn use_global() -> bool {
    use_pool(leaves, rayon_core::spawn)
}

fn use_own(pool: &ThreadPool) -> bool {
    let numbers = pool.broadcast(|context| context.index());
    use_pool(|depth| pool.install(|| leaves(depth)), |closure| pool.spawn(closure))
        && numbers == [0, 1, 2]
}

fn main() {
    assert!(use_global());
    assert_eq!(in_child(use_global), Ok(()), "the global pool");

    let pool = ThreadPoolBuilder::new().num_threads(3).build().unwrap();
    assert!(use_own(&pool));
    assert_eq!(in_child(|| use_own(&pool) && use_global()), Ok(()), "a pool");

    let named = ThreadPoolBuilder::new()
        .num_threads(3)
        .thread_name(|index| format!("named-{index}"))
        .build()
        .unwrap();
    assert!(use_own(&named));
    assert_eq!(in_child(|| use_own(&named)), Ok(()), "a pool with threads of its own");

    // From within a closure: the child's only thread is a copy of a worker, and is none itself.
    let forked = pool
        .install(|| in_child(|| rayon_core::current_thread_index().is_none() && use_own(&pool)));
    assert_eq!(forked, Ok(()), "from within a closure");

    // A fork of a fork, and the parent goes on.
    assert_eq!(in_child(|| use_global() && in_child(use_global).is_ok()), Ok(()), "twice");
    assert!(use_global() && use_own(&pool) && use_own(&named));

    // A pool may end in the child, used there or not.
    for is_used in [false, true] {
        let named = ThreadPoolBuilder::new().num_threads(3).stack_size(1 << 20).build().unwrap();
        assert!(use_own(&named));
        let ends = in_child(move || {
            let is_right = !is_used || use_own(&named);
            drop(named);
            is_right
        });
        assert_eq!(ends, Ok(()), "a pool that ends in the child");
    }

    // In the closure of a scope, by a thread that is a member itself. The scope ends in the child too.
    let pool = ThreadPoolBuilder::new().num_threads(3).use_current_thread().build().unwrap();
    let mut child = None;
    pool.in_place_scope(|_| child = Child::fork());
    let is_right = use_own(&pool) && rayon_core::current_thread_index() == Some(0);
    match child {
        Some(child) => assert_eq!(child.wait(), Ok(()), "in the closure of a scope"),
        None => Child::exit(is_right),
    }
    assert!(is_right);
}
