//! Pwqs that are retired while issuers, workers and waiting threads use them; and how many are left.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads of a program that uses queues; the models are in a module of their own"
)]

use std::sync::Arc;
use std::time::Duration;

use nearq_model::bound;
use nearq_platform::Linux;

use super::FEW;
use crate::queue::runtime::Runtime;
use crate::user::workqueue::Workqueue;

/// A queue whose attributes have changed this often, and on which an item has run after each change.
fn changed(
    runtime: &Runtime<Linux>,
    kind: fn(&Runtime<Linux>) -> Workqueue,
    times: u64,
) -> Workqueue {
    let queue = kind(runtime);
    for change in 1..=times {
        queue
            .change(|attributes| attributes.time_slice = Some(Duration::from_micros(100 + change)))
            .expect("each queue may have a slice");
        queue.spawn(|| ()).join().expect("it does not panic");
    }
    // The last one is counted.
    queue.flush().expect("from outside");
    queue
}

fn unbound(runtime: &Runtime<Linux>) -> Workqueue {
    runtime.workqueue_builder("unbound").build().expect("plain")
}

fn ordered(runtime: &Runtime<Linux>) -> Workqueue {
    runtime.workqueue_builder("ordered").ordered().build().expect("plain")
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn the_number_of_visited_pwqs_and_pools_stays_small() {
    let runtime = Runtime::<Linux>::builder().build().expect("this machine");
    let changes = bound(130, 300);
    let queue = changed(&runtime, unbound, changes);
    let inner = queue.inside();
    let pods = inner.layout().pools.len();
    assert!(inner.pwqs().count() > 100, "each slice has pwqs of its own");
    let most = 4 * (FEW + 4 * pods);
    assert!(inner.pwqs_in_service().count() <= most, "of {}", inner.pwqs().count());
    for domain in inner.domains() {
        assert!(domain.pwqs().count() <= most);
    }
    let completed: u64 =
        inner.domains().map(crate::limit::node_active::NodeActive::completed).sum();
    assert_eq!(completed, changes, "items that ended on retired pwqs are counted");
    assert!(runtime.inner().pools_in_service().len() <= most);
    // The earlier attributes come back.
    queue
        .change(|attributes| attributes.time_slice = Some(Duration::from_micros(101)))
        .expect("again");
    assert_eq!(queue.spawn(|| 7).join().expect("it does not panic"), 7);
    queue.flush().expect("from outside");
    let rows = queue.statistics();
    assert_eq!(
        rows.iter().map(|row| row.completed).sum::<u64>(),
        changes + 1,
        "each pool's row is there"
    );
}

#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn an_ordered_queue_keeps_its_order_through_many_changes() {
    let runtime = Runtime::<Linux>::builder().build().expect("this machine");
    let queue = changed(&runtime, ordered, 20);
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    for number in 0..400_u64 {
        let seen = Arc::clone(&seen);
        drop(queue.spawn(move || seen.lock().expect("no panic").push(number)));
        if number % 8 == 0 {
            queue
                .change(|attributes| {
                    attributes.time_slice = Some(Duration::from_micros(1000 + number))
                })
                .expect("a slice");
        }
    }
    queue.flush().expect("from outside");
    assert!(seen.lock().expect("no panic").iter().copied().eq(0..400), "{seen:?}");
    assert_eq!(queue.inside().pwqs_in_service().filter(|pwq| pwq.held() != 0).count(), 0);
}

/// Items are queued and waited for by some threads while another one changes the attributes, and the limit is kept.
#[test]
#[cfg_attr(miri, ignore = "many threads")]
fn nothing_is_lost_while_pwqs_are_retired() {
    use std::sync::atomic::{AtomicU64, Ordering};
    let runtime = Runtime::<Linux>::builder().build().expect("this machine");
    let queue = runtime.workqueue_builder("busy").max_active(2).build().expect("plain");
    let (active, most, ended) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    let ends = std::sync::atomic::AtomicBool::new(false);
    let rounds = bound(25, 100);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            for slice in (100..100_000).cycle().take_while(|_| !ends.load(Ordering::Relaxed)) {
                queue
                    .change(|attributes| attributes.time_slice = Some(Duration::from_micros(slice)))
                    .expect("a slice");
                // Each pool needs threads of its own.
                std::thread::sleep(Duration::from_micros(200));
            }
        });
        let issuers = [(); 3].map(|()| {
            threads.spawn(|| {
                for round in 0..rounds {
                    queue.scope(|scope| {
                        for _ in 0..4 {
                            scope.spawn(|| {
                                let now = active.fetch_add(1, Ordering::SeqCst) + 1;
                                most.fetch_max(now, Ordering::SeqCst);
                                std::thread::yield_now();
                                active.fetch_sub(1, Ordering::SeqCst);
                                ended.fetch_add(1, Ordering::SeqCst);
                            });
                        }
                    });
                    if round % 16 == 0 {
                        queue.flush().expect("from outside");
                    }
                }
            })
        });
        for issuer in issuers {
            issuer.join().expect("it does not panic");
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(ended.load(Ordering::SeqCst), 3 * rounds * 4);
    assert!(most.load(Ordering::SeqCst) <= 2, "the limit holds while pwqs are retired");
    queue.drain().expect("from outside");
}

#[cfg(not(miri))]
mod models {
    use std::sync::Arc;

    use nearq_model::Loom;
    use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};

    use crate::item::tests::{model_within, spawn};
    use crate::limit::node_active::tests::{Stub, idle};
    use crate::limit::pool_workqueue::PoolWorkqueue;
    use crate::task::work::Work;

    type AtomicU32 = <Loom as LockPlatform>::AtomicU32;

    /// Retires what can be retired, as if there were many.
    fn retire(stub: &Stub) {
        let mut config = stub.queue.lock_config();
        stub.queue.retire_old_pwqs(&mut config);
    }

    fn counting(runs: &Arc<AtomicU32>) -> Work<Loom> {
        let runs_clone = Arc::clone(runs);
        Work::new_in(move |_: &Work<Loom>| {
            runs_clone.fetch_add(1, Ordering::Relaxed);
        })
    }

    /// An issuer has read the old CPU map: a thread that checks afterwards sees the issuer's item.
    #[test]
    fn an_issuer_reaches_a_retired_pwq() {
        model_within(2, 3, || {
            let stub = Stub::new(2, 1);
            let runs = Arc::new(AtomicU32::new(0));
            let work = counting(&runs);
            let issuer = stub.issuer(&work);
            retire(&stub);
            Loom::join(issuer);
            assert!(!stub.queue.is_empty(), "queued items are seen");
            assert!(!stub.queue.pwqs_in_service().all(PoolWorkqueue::is_drained));
            stub.run_out();
            assert_eq!(runs.load(Ordering::Relaxed), 1);
            stub.check(1);
        });
    }

    /// The issuer finds the limit used up, and the item that uses it ends, while the pwq of both is retired.
    #[test]
    fn an_item_is_held_back_while_pwqs_are_retired() {
        model_within(1, 2, || {
            let stub = Stub::new(1, 2);
            let runs = Arc::new(AtomicU32::new(0));
            let (first, second) = (counting(&runs), counting(&runs));
            stub.issue(&first);
            assert!(stub.work(0));
            let issuer = stub.issuer(&second);
            retire(&stub);
            Loom::join(issuer);
            stub.run_out();
            assert_eq!(runs.load(Ordering::Relaxed), 2, "nothing is held back for ever");
            stub.check(2);
        });
    }

    /// What has ended on a pwq counts once, at any moment: otherwise the limit would admit more.
    #[test]
    fn the_limit_holds_while_pwqs_are_retired() {
        model_within(1, 2, || {
            let stub = Stub::new(1, 2);
            stub.issue(&idle());
            assert!(stub.work(0));
            let works = [idle(), idle()];
            let issuer = {
                let (stub, works) = (Arc::clone(&stub), works.clone());
                spawn(move || works.iter().for_each(|work| stub.issue(work)))
            };
            retire(&stub);
            Loom::join(issuer);
            let (active, held_back) = stub.node_active().in_use();
            assert!(
                active <= 1 && active + held_back == 2,
                "{active} active, {held_back} held back"
            );
            stub.run_out();
            stub.check(3);
        });
    }

    /// Once the limit is closed, no pwq has credits, not even one that was retired while its issuer got some.
    #[test]
    fn no_credits_are_left_on_a_retired_pwq() {
        model_within(2, 3, || {
            let stub = Stub::new(64, 1);
            let work = idle();
            let issuer = stub.issuer(&work);
            retire(&stub);
            stub.queue.domains().for_each(|domain| domain.set_limit(0));
            Loom::join(issuer);
            assert!(stub.queue.pwqs().all(|pwq| pwq.credits.count() == 0));
            stub.set_max_active(2);
            stub.run_out();
            stub.check(1);
        });
    }

    /// A thread waits for the queue to be empty; the last item ends, and its pwq is retired.
    #[test]
    fn a_queue_is_drained_while_pwqs_are_retired() {
        model_within(1, 2, || {
            let stub = Stub::new(2, 2);
            stub.issue(&idle());
            let drains = {
                let stub = Arc::clone(&stub);
                spawn(move || stub.queue.drain().expect("from outside"))
            };
            assert!(stub.work(0));
            retire(&stub);
            stub.run_out();
            Loom::join(drains);
            stub.run_out();
            stub.check(1);
        });
    }

    /// An unused pool is taken off the monitor's list while an issuer with an old CPU map pushes something there.
    #[test]
    fn a_pool_is_unlisted_while_an_item_is_pushed_to_it() {
        model_within(2, 3, || {
            let stub = Stub::new(1, 1);
            let inner = stub.queue.inner();
            let mut key = inner.pools_in_service()[0].key.clone();
            key.priority.nice = 1;
            let pool = inner.pool(&key);
            let pusher = {
                let (stub, pool) = (Arc::clone(&stub), Arc::clone(&pool));
                spawn(move || stub.node_active().activation_item.send(&pool))
            };
            let left = inner.take_out_of_service(&pool);
            Loom::join(pusher);
            assert!(pool.has_waiting());
            let is_seen = inner.pools_in_service().iter().any(|other| other.id == pool.id);
            assert!(
                is_seen,
                "what waits there is seen; it {}",
                if left { "left" } else { "stayed" }
            );
            // Before the runtime ends.
            let inner = stub.queue.inner();
            assert!(crate::item::tests::step(&pool, inner.services.workers.get(0)));
        });
    }
}
