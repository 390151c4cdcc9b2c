//! The places of a concurrency limit: how many there are, which pool gets the next, and that no pool waits while one is free.

use std::sync::Arc;

use nearq_platform::{Linux, LockPlatform, Platform, Threads};
use nearq_topology::CpuSet;

use super::ConcurrencyLimit;
use crate::layout::attributes::{Attributes, PoolKey};
use crate::layout::priority::Priority;
use crate::pool::Pool;
use crate::queue::runtime::Runtime;

/// A runtime whose monitor sleeps and which starts no threads: it has pools, concurrency limits and workers, but nothing runs by itself.
/// Its concurrency limit of nice 0 has this many places.
fn limit_without_workers<P: Platform>(places: u32) -> (Runtime<P>, Arc<ConcurrencyLimit<P>>) {
    use nearq_platform::{Atomic, Ordering};

    let runtime = Runtime::<P>::builder_in().spin(0).build().expect("the machine is known");
    runtime.inner().services.alarm.stop();
    runtime.inner().stopping.store(1, Ordering::SeqCst);
    let concurrency = Arc::clone(&pool(&runtime, 0).concurrency);
    concurrency.set_limit(places);
    (runtime, concurrency)
}

/// The pool of one CPU.
fn pool<P: Platform>(runtime: &Runtime<P>, cpu: usize) -> Arc<Pool<P>> {
    let pod = CpuSet::single(cpu);
    runtime.inner().pool(&PoolKey {
        bound: false,
        priority: Priority::of(&Attributes::default()),
        strict: true,
        helping: false,
        allowed: pod.clone(),
        pod,
    })
}

/// The number of places taken, and the number of places.
fn usage<P: Platform>(concurrency: &ConcurrencyLimit<P>) -> (u32, u32) {
    use nearq_platform::{Atomic, Ordering};

    (concurrency.running.load(Ordering::SeqCst), concurrency.places())
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn there_are_as_many_places_as_the_limit() {
    let (_runtime, concurrency) = limit_without_workers::<Linux>(2);
    assert!(concurrency.try_acquire() && concurrency.try_acquire());
    assert!(concurrency.is_full() && !concurrency.leave_if_over());
    assert!(!concurrency.try_acquire());
    concurrency.acquire_anyway();
    assert!(concurrency.leave_if_over());
    assert!(!concurrency.leave_if_over());
    concurrency.release();
    assert_eq!(usage(&concurrency), (1, 2));
    concurrency.release();
    assert!(!concurrency.is_full() && !concurrency.has_waiting());
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn an_extra_place_stays_until_it_is_removed() {
    let (_runtime, concurrency) = limit_without_workers::<Linux>(1);
    assert!(concurrency.try_acquire());
    concurrency.set_extra(1);
    assert_eq!(usage(&concurrency), (1, 2));
    assert!(concurrency.try_acquire());
    assert!(!concurrency.try_acquire());
    concurrency.set_extra(0);
    assert_eq!(usage(&concurrency), (2, 1));
    assert!(concurrency.leave_if_over());
    assert!(!concurrency.leave_if_over());
    concurrency.release();
    assert_eq!(usage(&concurrency), (0, 1));
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn a_pool_without_work_passes_its_place_on() {
    let (runtime, concurrency) = limit_without_workers::<Linux>(1);
    assert!(concurrency.try_acquire());
    assert!(!concurrency.acquire(&pool(&runtime, 0)), "queued up");
    assert!(!concurrency.acquire(&pool(&runtime, 0)), "and once only");
    assert!(concurrency.has_waiting());
    concurrency.release();
    assert!(!concurrency.has_waiting());
    assert_eq!(usage(&concurrency), (0, 1), "the pool had no work");
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn a_pool_is_asked_for_a_place_only_if_another_one_waits() {
    let (runtime, concurrency) = limit_without_workers::<Linux>(1);
    let (one, other) = (pool(&runtime, 0), pool(&runtime, 1));
    let asked = || [&one, &other].map(|pool| concurrency.has_waiting_besides(pool));
    assert_eq!(asked(), [false, false]);
    assert!(concurrency.try_acquire() && !concurrency.acquire(&one));
    assert_eq!(asked(), [false, true]);
    assert!(!concurrency.acquire(&other));
    assert_eq!(asked(), [true, true]);
    concurrency.release();
    assert_eq!(asked(), [false, false], "neither pool had work");
}

#[test]
#[cfg_attr(miri, ignore = "reads the machine")]
fn a_worker_in_its_start_hook_has_no_place() {
    let (runtime, concurrency) = limit_without_workers::<Linux>(1);
    let pool = pool(&runtime, 0);
    let worker = pool.entry_for_test();
    // As when a pool's worker is started with a place.
    assert!(concurrency.try_acquire());
    worker.grant();
    pool.idle().begin_search();
    pool.enter_hook(worker);
    assert_eq!(usage(&concurrency), (0, 1));
    assert!(!pool.idle().has_searching() && worker.is_alive());
    pool.leave_hook(worker);
    assert!(pool.idle().has_searching() && !worker.take_grant());
    assert_eq!(usage(&concurrency), (0, 1));
}

#[cfg(not(miri))]
mod modelled {

    use nearq_model::Loom;
    use nearq_platform::{Atomic, AtomicInt, Ordering};

    use super::*;
    use crate::item::tests::{blank, model, pending, spawn};
    use crate::pool::worker::Worker;

    /// A worker of `pool` that searches, and an item that waits there.
    fn worker_with_work(runtime: &Runtime<Loom>, pool: &Arc<Pool<Loom>>) -> u32 {
        let worker =
            runtime.inner().services.workers.add(|index| Worker::new(index, Arc::as_ptr(pool)));
        // It is the only worker that the pool wants.
        pool.count_worker();
        pool.idle().begin_search();
        // That worker searches, so no other one is woken.
        pool.push(pending(Box::leak(Box::new(blank()))));
        worker.expect("there is room").index
    }

    /// What a worker does to get a place: `take_place` and `rest` of the module `run`.
    fn get_place(runtime: &Runtime<Loom>, pool: &Arc<Pool<Loom>>, worker: u32) {
        let worker = runtime.inner().services.workers.get(worker);
        while !(worker.take_grant() || pool.concurrency.acquire(pool)) {
            worker.set_sched_idle();
            pool.idle().settle(worker);
            if pool.has_work() {
                pool.call_worker();
            }
            while worker.is_idle() {
                worker.parker.park(None);
            }
        }
    }

    #[test]
    fn a_pool_queues_up_while_a_place_is_released() {
        model(3, || {
            let (runtime, concurrency) = limit_without_workers::<Loom>(1);
            let pool = pool(&runtime, 1);
            let worker = worker_with_work(&runtime, &pool);
            assert!(concurrency.try_acquire());
            let waiter = {
                let (runtime, pool) = (runtime.clone(), Arc::clone(&pool));
                spawn(move || get_place(&runtime, &pool, worker))
            };
            concurrency.release();
            Loom::join(waiter);
            assert_eq!(usage(&concurrency), (1, 1));
            concurrency.release();
            assert_eq!(usage(&concurrency), (0, 1));
        });
    }

    #[test]
    fn two_pools_wait_for_one_place() {
        model(2, || {
            let (runtime, concurrency) = limit_without_workers::<Loom>(1);
            assert!(concurrency.try_acquire());
            let inside = Arc::new(<Loom as LockPlatform>::AtomicU32::new(0));
            let waiters = [0, 1].map(|cpu| {
                let pool = pool(&runtime, cpu);
                let worker = worker_with_work(&runtime, &pool);
                let (runtime, inside) = (runtime.clone(), Arc::clone(&inside));
                spawn(move || {
                    get_place(&runtime, &pool, worker);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "one at a time");
                    inside.fetch_sub(1, Ordering::Relaxed);
                    pool.concurrency.release();
                })
            });
            concurrency.release();
            waiters.into_iter().for_each(Loom::join);
        });
    }
}
