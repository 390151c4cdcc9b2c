//! Ordered queues: one item at a time in the order of queueing, under load, through live changes, and with faults.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "what a test writes down is no part of the simulated machine"
)]

use std::sync::Arc;
use std::time::Duration;

use nearq_core::inspect::QueueKind;
use nearq_core::{AffinityScope, Error, JoinError, Runtime, Work, Workqueue};
use nearq_lock::Mutex;
use nearq_platform::{LockPlatform, Placement, ThreadSpec, Threads};
use nearq_sim::{Faults, Schedule, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Topology};

const ISSUERS: usize = 6;
const ITEMS: usize = 60;

/// The thread that queued an item, and the item's number in that thread's order.
type Started = Arc<std::sync::Mutex<Vec<(usize, usize)>>>;

fn issue(queue: &Workqueue<Sim>, issuer: usize, number: usize, started: &Started) {
    let started = Arc::clone(started);
    drop(queue.spawn(move || {
        // Held while the item runs: an item that runs at the same time would find the lock taken.
        let mut started = started.try_lock().expect("one at a time");
        started.push((issuer, number));
        compute(Duration::from_micros(number as u64 % 4));
        if number.is_multiple_of(13) {
            Sim::sleep(Duration::from_micros(100));
        }
    }));
}

/// Six threads queue while the mask and the nice value change: the items of each thread start in the order in which it queued them.
fn under_changes(seed: u64) {
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2 pu:2").expect("well formed");
    let mut faults = Faults::NONE;
    if !seed.is_multiple_of(3) {
        faults = Faults::ALL;
        faults.preempted_one_in = 100;
        faults.preemption = Duration::from_millis(1);
    }
    let schedule =
        [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }][seed as usize % 3];
    let all = machine.possible().clone();
    let outcome = Simulation::new(machine, seed).faults(faults).schedule(schedule).run(move || {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let builder =
            runtime.workqueue_builder("ordered").ordered().affinity_scope(AffinityScope::Cache);
        let queue = Arc::new(builder.build().expect("the call succeeds"));
        let started = Started::default();
        let mut issuers = Vec::new();
        while issuers.len() < ISSUERS {
            let (queue, started, issuer) =
                (Arc::clone(&queue), Arc::clone(&started), issuers.len());
            let main = move || {
                for number in 0..ITEMS {
                    issue(&queue, issuer, number, &started);
                    if number % 7 == issuer {
                        Sim::sleep(Duration::from_micros(30));
                    }
                }
            };
            // The machine refuses some of the threads.
            issuers.extend(Sim::spawn(ThreadSpec::default(), main));
        }
        for change in 0..20 {
            Sim::sleep(Duration::from_micros(40));
            queue.set_nice(change % 3).expect("the call succeeds");
            let mask: CpuSet =
                all.iter().filter(|cpu| !(cpu + change as usize).is_multiple_of(3)).collect();
            // The machine may have refused all of them.
            let _ = queue.set_cpumask((change % 2 == 0).then_some(mask));
        }
        issuers.into_iter().for_each(Sim::join);
        drop(queue);
        drop(runtime);
        Arc::into_inner(started)
            .expect("all have ended")
            .into_inner()
            .expect("the mutex is not poisoned")
    });
    assert!(outcome.panics.is_empty(), "seed {seed}: {}", outcome.report());
    let started = outcome.expect();
    assert_eq!(started.len(), ISSUERS * ITEMS, "seed {seed}");
    for issuer in 0..ISSUERS {
        let issued = started.iter().filter(|(by, _)| *by == issuer).map(|(_, number)| *number);
        assert!(issued.eq(0..ITEMS), "seed {seed}: {started:?}");
    }
}

#[test]
fn order_is_kept_through_changes_and_faults() {
    (0..18).for_each(under_changes);
}

/// One thread on each CPU, one after the other, so the order over all of them is known.
#[test]
fn items_run_in_queueing_order_across_cpus_and_changes_of_the_mask() {
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2").expect("well formed");
    let outcome = Simulation::new(machine, 5).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue =
            runtime.workqueue_builder("ordered").ordered().build().expect("the call succeeds");
        let started = Started::default();
        for number in 0..200 {
            let cpu = number * 5 % 8;
            Sim::set_affinity(Sim::current_thread(), &CpuSet::single(cpu)).expect("allowed");
            if number.is_multiple_of(10) {
                let mask = [None, Some("0-3".parse().unwrap()), Some("2-7".parse().unwrap())];
                queue.set_cpumask(mask[number / 10 % 3].clone()).expect("the call succeeds");
            }
            issue(&queue, 0, number, &started);
        }
        drop(queue);
        Arc::into_inner(started)
            .expect("all have ended")
            .into_inner()
            .expect("the mutex is not poisoned")
    });
    assert!(outcome.expect().into_iter().map(|(_, number)| number).eq(0..200));
}

#[test]
fn an_item_that_queues_itself_runs_after_the_others() {
    let machine = Topology::from_synthetic("core:4").expect("well formed");
    let outcome = Simulation::new(machine, 5).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let queue =
            runtime.workqueue_builder("ordered").ordered().build().expect("the call succeeds");
        let queue = Arc::new(queue);
        let order: Arc<Mutex<Vec<usize>, Sim>> = Arc::new(Mutex::new_in(Vec::new()));
        let (queue_weak, log) = (Arc::downgrade(&queue), Arc::clone(&order));
        let again = Work::new_in(move |work: &Work<Sim>| {
            Sim::sleep(Duration::from_micros(500));
            log.lock().push(0);
            if log.lock().len() < 4 {
                queue_weak.upgrade().expect("alive").queue(work);
            }
        });
        queue.queue(&again);
        for number in 1..3 {
            let order = Arc::clone(&order);
            drop(queue.spawn(move || order.lock().push(number)));
        }
        // Two more rounds; the item must not have the last handle of the queue.
        Sim::sleep(Duration::from_millis(10));
        core::mem::take(&mut *order.lock())
    });
    assert_eq!(outcome.expect(), [0, 1, 2, 0]);
}

#[test]
fn an_ordered_queue_has_no_limit_to_set() {
    let machine = Topology::from_synthetic("core:2").expect("well formed");
    let outcome = Simulation::new(machine, 5).run(|| {
        let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
        let ordered = || runtime.workqueue_builder("ordered").ordered();
        assert_eq!(
            ordered().max_active(2).build().map(drop),
            Err(Error::Unsupported { attribute: "max_active", kind: QueueKind::Ordered })
        );
        assert_eq!(
            ordered().min_active(1).build().map(drop),
            Err(Error::Unsupported { attribute: "min_active", kind: QueueKind::Ordered })
        );
        let last = ordered().per_cpu().build().expect("the last kind counts");
        assert!(last.is_per_cpu() && !last.is_ordered());
        let queue = ordered().max_active(1).build().expect("the limit is 1");
        assert!(queue.is_ordered() && queue.max_active() == 1);
        assert_eq!(
            queue.set_max_active(1),
            Err(Error::Unsupported { attribute: "max_active", kind: QueueKind::Ordered })
        );
        assert_eq!(
            queue.set_min_active(0),
            Err(Error::Unsupported { attribute: "min_active", kind: QueueKind::Ordered })
        );
        assert_eq!(queue.affinity_scope_in_words(), "ordered");
        let text = queue.set_max_active(5).unwrap_err().to_string();
        assert!(text.contains("one item at a time"), "{text}");
    });
    outcome.expect();
}

/// An item that joins members which can only start after it gets an error for one after the other. This does not visit all members each
/// time.
#[test]
fn rejecting_all_members_of_a_set_takes_linear_time() {
    let accesses = |members: u64| {
        let machine = Topology::from_synthetic("core:2").expect("well formed");
        let outcome = Simulation::new(machine, 1).run(move || {
            let runtime = Runtime::<Sim>::builder_in().build().expect("the machine is known");
            let queue =
                runtime.workqueue_builder("ordered").ordered().build().expect("the call succeeds");
            let queue = Arc::new(queue);
            let queue_clone = Arc::clone(&queue);
            let joiner = queue.spawn(move || {
                let mut set = queue_clone.join_set();
                (0..members).for_each(|number| set.spawn(move || number));
                let results = core::iter::from_fn(|| set.blocking_join_next());
                results.filter(|result| matches!(result, Err(JoinError::Deadlock))).count() as u64
            });
            assert_eq!(joiner.join().expect("does not panic"), members);
        });
        let accesses = outcome.accesses;
        outcome.expect();
        accesses
    };
    let (none, few, many) = (accesses(0), accesses(50), accesses(200));
    let (of_few, of_many) = ((few - none) / 50, (many - none) / 200);
    assert!(of_many < of_few * 3 / 2, "{of_few} accesses for one of 50, {of_many} for one of 200");
}
