//! The ring's lock, through every interleaving of two and three threads that want it: the value is a watched cell, and a lost wake-up is a
//! deadlock.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{PlatformCell, ThreadSpec, Threads};

use super::super::*;
use crate::modelled::check;

struct Shared {
    word: <Loom as LockPlatform>::AtomicU32,
    waiters: WaiterSlab<Loom>,
    count: <Loom as Threads>::Cell<u32>,
}

// SAFETY: the cell is used under the lock of the ring; the model reports it if the lock does not exclude other threads.
unsafe impl Send for Shared {}
// SAFETY: the cell is used under the lock of the ring; the model reports it if the lock does not exclude other threads.
unsafe impl Sync for Shared {}

fn nowhere(_number: u32) {}

fn increment(shared: &Shared) {
    let ring = Ring::lock(&shared.word, 0, &shared.waiters);
    // SAFETY: the cell lives as long as `shared`, and the lock excludes other threads; that is what is tested.
    shared.count.with_mut(|count| unsafe { *count += 1 });
    ring.unlock();
}

fn count_with(preemptions: usize, threads: u32) {
    check(preemptions, &[], move || {
        let shared = Arc::new(Shared {
            word: <Loom as LockPlatform>::AtomicU32::new(0),
            waiters: WaiterSlab::new(nowhere),
            count: PlatformCell::new(0),
        });
        let others: Vec<_> = (1..threads)
            .map(|_| {
                let shared = Arc::clone(&shared);
                let main = move || increment(&shared);
                Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
            })
            .collect();
        increment(&shared);
        others.into_iter().for_each(Loom::join);
        // SAFETY: the others have ended.
        assert_eq!(shared.count.with(|count| unsafe { *count }), threads);
    });
}

#[test]
fn two_threads_exclude_each_other_in_a_ring_and_no_wake_up_is_lost() {
    count_with(4, 2);
}

#[test]
fn three_threads_exclude_each_other_in_a_ring_and_no_wake_up_is_lost() {
    count_with(3, 3);
}
