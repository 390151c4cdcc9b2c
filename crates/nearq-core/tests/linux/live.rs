//! Attributes change while items are queued and running: nothing is lost, nothing runs twice, and items of strict queues stay in their
//! pods.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use nearq_core::{AffinityScope, CpuSet, Error, Runtime, Work, Workqueue, home::Home};
use nearq_platform::{Linux, LockPlatform, Placement, Threads};

use crate::common::{self, completed, watch};

/// Items that two issuers keep queueing.
const ITEMS: usize = 64;

struct Item {
    work: Work,
    runs: Arc<AtomicU64>,
    queued: AtomicU64,
}

impl Item {
    fn new() -> Self {
        let runs = Arc::new(AtomicU64::new(0));
        let (count, inside) = (Arc::clone(&runs), AtomicBool::new(false));
        let work = Work::new(move |_: &Work| {
            assert!(!inside.swap(true, Ordering::AcqRel), "two executions at once");
            count.fetch_add(1, Ordering::Relaxed);
            inside.store(false, Ordering::Release);
        });
        Item { work, runs, queued: AtomicU64::new(0) }
    }
}

/// Two issuers queue while `change` is called with 0, 1, 2, ...
fn under_load(queue: &Workqueue, changes: usize, change: impl Fn(usize) -> Result<(), Error>) {
    let _watchdog = watch(Some(queue.runtime()));
    let items: Vec<_> = (0..ITEMS).map(|_| Item::new()).collect();
    let stop = AtomicBool::new(false);
    let before = completed(queue);
    std::thread::scope(|scope| {
        for issuer in 0..2 {
            let (items, stop) = (&items, &stop);
            scope.spawn(move || {
                let mut at = issuer;
                while !stop.load(Ordering::Relaxed) {
                    let item = &items[at % ITEMS];
                    let queued = match at % 3 {
                        0 => queue
                            .queue_on(at % 2, &item.work)
                            .unwrap_or_else(|_| queue.queue(&item.work)),
                        _ => queue.queue(&item.work),
                    };
                    item.queued.fetch_add(u64::from(queued), Ordering::Relaxed);
                    at += 1;
                }
            });
        }
        for number in 0..changes {
            change(number).unwrap();
            // Something must also run under the new attributes.
            assert_eq!(queue.spawn(move || number).join().unwrap(), number);
        }
        stop.store(true, Ordering::Relaxed);
    });
    common::eventually("everything has run", || items.iter().all(|item| !item.work.is_pending()));
    common::eventually("everything has ended", || items.iter().all(|item| !item.work.is_running()));
    let mut queued = 0;
    for item in &items {
        assert_eq!(item.runs.load(Ordering::Relaxed), item.queued.load(Ordering::Relaxed));
        queued += item.queued.load(Ordering::Relaxed);
    }
    let all = before + queued + changes as u64;
    common::eventually("everything is counted once", || completed(queue) == all);
    assert_eq!(queue.inactive(), 0);
}

fn queue() -> (Runtime, Workqueue) {
    let runtime = Runtime::builder().build().unwrap();
    let queue = runtime.workqueue_builder("live").build().unwrap();
    (runtime, queue)
}

const CHANGES: usize = 300;

#[test]
fn the_scope() {
    let (_runtime, queue) = queue();
    under_load(&queue, CHANGES, |number| {
        queue.set_affinity_scope(AffinityScope::ALL[number % AffinityScope::ALL.len()])
    });
    queue.set_affinity_scope(None).unwrap();
    assert_eq!(queue.affinity_scope_in_words(), "default (cache_shard)");
}

#[test]
fn strict_localize_and_helping() {
    let (_runtime, queue) = queue();
    queue.set_affinity_scope(AffinityScope::Cpu).unwrap();
    under_load(&queue, CHANGES, |number| queue.set_affinity_strict(number % 2 == 0));
    under_load(&queue, CHANGES / 2, |number| queue.set_localize(number % 2 == 0));
    under_load(&queue, CHANGES, |number| queue.set_helping(number % 2 == 0));
}

#[test]
fn affinity_of_the_queue_and_of_all() {
    let (runtime, queue) = queue();
    under_load(&queue, CHANGES, |number| queue.set_affinity_enabled(number % 2 == 1));
    under_load(&queue, CHANGES, |number| {
        runtime.set_affinity_enabled(number % 2 == 1);
        Ok(())
    });
    under_load(&queue, CHANGES, |number| {
        runtime.set_default_affinity_scope(AffinityScope::ALL[number % AffinityScope::ALL.len()]);
        Ok(())
    });
}

#[test]
fn the_mask() {
    let (runtime, queue) = queue();
    let cpus: Vec<_> = runtime.allowed_cpus().iter().take(2).collect();
    under_load(&queue, CHANGES, |number| match number % 3 {
        0 => queue.set_cpumask(None),
        at => queue.set_cpumask(CpuSet::single(cpus[at % cpus.len()])),
    });
}

#[test]
fn nice() {
    let (_runtime, queue) = queue();
    under_load(&queue, CHANGES, |number| queue.set_nice([0, 5, 0, 10][number % 4]));
}

#[test]
fn max_active() {
    let (_runtime, queue) = queue();
    under_load(&queue, CHANGES * 3, |number| {
        queue.set_max_active([1, 2, 50, 2048, 3][number % 5]).unwrap();
        Ok(())
    });
}

#[test]
fn all_attributes_change_at_once() {
    let (runtime, queue) = queue();
    under_load(&queue, CHANGES, |number| {
        match number % 5 {
            0 => runtime.set_affinity_enabled(number % 2 == 0),
            1 => runtime
                .set_default_affinity_scope(AffinityScope::ALL[number % AffinityScope::ALL.len()]),
            2 => queue.set_max_active(1 + number % 7).unwrap(),
            3 => runtime.refresh(),
            _ => {
                return queue.change(|attributes| {
                    attributes.affinity_scope =
                        [None, Some(AffinityScope::Cpu), Some(AffinityScope::System)][number % 3];
                    attributes.affinity_strict = number % 2 == 0;
                    attributes.localize = number % 3 == 0;
                    attributes.nice = (number % 3) as i32;
                });
            }
        }
        Ok(())
    });
}

#[test]
fn a_lowered_limit_applies_to_later_items() {
    let (_runtime, queue) = queue();
    let _watchdog = watch(Some(queue.runtime()));
    for _ in 0..200 {
        queue.set_max_active(8).unwrap();
        for _ in 0..50 {
            drop(queue.spawn(|| {}));
        }
        queue.set_max_active(1).unwrap();
        // What was admitted before has ended when this item ends.
        queue.spawn(|| {}).join().unwrap();
        common::eventually("the others have ended", || {
            queue.statistics().iter().all(|pwq| pwq.started == pwq.completed)
        });
        let inside = AtomicU32::new(0);
        queue.scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    // Long enough to overlap with another item. Not a yield, which takes milliseconds when other programs run.
                    (0..200).for_each(|_| std::hint::spin_loop());
                    inside.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
    }
}

#[test]
fn strict_workers_never_leave_their_pod() {
    let (runtime, queue) = queue();
    queue.set_affinity_scope(AffinityScope::Cpu).unwrap();
    queue.set_affinity_strict(true).unwrap();
    let cpus: Vec<_> = runtime.allowed_cpus().iter().collect();
    let wrong = Arc::new(AtomicU32::new(0));
    let _watchdog = watch(Some(&runtime));
    // There is an item for each CPU, which runs where it was queued, whatever else changes.
    let works: Vec<_> = cpus
        .iter()
        .map(|&cpu| {
            let wrong = Arc::clone(&wrong);
            let runs = Arc::new(AtomicU64::new(0));
            let count = Arc::clone(&runs);
            let work = Work::new(move |_: &Work| {
                count.fetch_add(1, Ordering::Relaxed);
                for _ in 0..20 {
                    if Linux::current_cpu() != cpu {
                        wrong.fetch_add(1, Ordering::Relaxed);
                    }
                    std::hint::spin_loop();
                }
                let mask = Linux::affinity(Linux::current_thread()).unwrap();
                if mask != CpuSet::single(cpu) {
                    wrong.fetch_add(1, Ordering::Relaxed);
                }
            });
            (cpu, work, runs)
        })
        .collect();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (cpu, work, _) in &works {
                        queue.queue_on(*cpu, work).unwrap();
                    }
                    std::thread::yield_now();
                }
            });
        }
        for number in 0..CHANGES {
            queue.set_nice((number % 2) as i32).unwrap();
            queue.set_localize(number % 3 == 0).unwrap();
            queue.set_helping(number % 5 == 0).unwrap();
            queue.set_max_active(1 + number % 4).unwrap();
            // With the mask as well, the pods are the same.
            queue.set_cpumask((number % 2 == 0).then(|| runtime.allowed_cpus())).unwrap();
            queue.spawn(|| {}).join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(wrong.load(Ordering::Relaxed), 0, "checks outside the pod");
    assert!(works.iter().all(|(_, _, runs)| runs.load(Ordering::Relaxed) > 0));
}

#[test]
fn a_queue_created_while_the_defaults_change_follows_them() {
    if !common::has_cpus("a queue made while the defaults change", 2) {
        return;
    }
    let runtime = Runtime::builder().build().unwrap();
    let _watchdog = watch(Some(&runtime));
    for round in 0..300 {
        let scope = [AffinityScope::Cpu, AffinityScope::System][round % 2];
        let queues: Vec<_> = std::thread::scope(|threads| {
            let maker = threads.spawn(|| {
                (0..4)
                    .map(|_| runtime.workqueue_builder("new").build().unwrap())
                    .collect::<Vec<_>>()
            });
            std::thread::sleep(Duration::from_micros(round as u64 % 20));
            runtime.set_default_affinity_scope(scope);
            maker.join().unwrap()
        });
        let pods = runtime.workqueue_builder("model").build().unwrap().pods();
        for queue in queues {
            assert_eq!(queue.pods(), pods, "round {round}, {}", queue.affinity_scope_in_words());
        }
    }
}

/// How many times as much CPU time a change of `many` takes as one of `few`; for each, the least time of several tries counts, because the
/// caches may be cold.
fn compare(changes: usize, mut few: impl FnMut(usize), mut many: impl FnMut(usize)) -> f64 {
    let cpu_time = || Linux::cpu_time(Linux::current_thread()).unwrap();
    let used = |change: &mut dyn FnMut(usize)| {
        let before = cpu_time();
        (0..changes).for_each(&mut *change);
        cpu_time().saturating_sub(before)
    };
    let (mut of_few, mut of_many) = (Duration::MAX, Duration::MAX);
    for _ in 0..10 {
        of_few = of_few.min(used(&mut few));
        of_many = of_many.min(used(&mut many));
    }
    println!("{changes} changes of few: {of_few:?}, of many: {of_many:?}");
    of_many.as_secs_f64() / of_few.as_secs_f64()
}

/// Each slice has its own pool, pwq and table, which are kept.
#[test]
fn a_change_costs_no_more_after_thousands_of_changes() {
    let runtime = Runtime::builder().build().unwrap();
    let [few, many] = [2, 2500].map(|slices| {
        let queue = runtime.workqueue_builder("slices").build().unwrap();
        let slice = |number: u64| Duration::from_micros(1000 + number);
        (0..slices).for_each(|number| queue.set_time_slice(slice(number)).unwrap());
        // A change to one of the slices that came last, and back.
        move |change: usize| queue.set_time_slice(slice(slices - 1 - change as u64 % 2)).unwrap()
    });
    let times = compare(50, few, many);
    assert!(times < 8.0, "{times} times as long for a change after 2500 slices");
}

/// A queue keeps the memory of each home that it has had.
#[test]
fn a_change_of_home_costs_no_more_after_thousands_of_changes() {
    let runtime = Runtime::builder().build().unwrap();
    let [few, many] = [2, 4000].map(|homes| {
        let queue = runtime.workqueue_builder("homes").build().unwrap();
        let homes: Vec<_> = (0..homes).map(|_| Home::pick_in(&runtime)).collect();
        for home in &homes {
            queue.set_home(home).unwrap();
        }
        move |change: usize| queue.set_home(&homes[homes.len() - 1 - change % 2]).unwrap()
    });
    let times = compare(500, few, many);
    assert!(times < 10.0, "{times} times as long for a change after 4000 homes");
}
