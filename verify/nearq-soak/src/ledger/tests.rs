//! Breaks each promise by hand, and checks that the ledger names it. What is allowed causes no complaint.

use nearq::AffinityScope;
use nearq_topology::Topology;

use super::*;

/// The one worker.
const WORKER: u64 = 7;

/// A ledger with an item 0 and a queue 0.
fn ledger(max_active: usize, ordered: bool) -> Ledger {
    let kind = if ordered { Kind::Ordered } else { Kind::Unbound };
    of_kind(max_active, kind, "0-1")
}

/// The same with another kind of queue, which is freezable, and with a worker of another pod.
fn of_kind(max_active: usize, kind: Kind, pod: &str) -> Ledger {
    let topology = Topology::from_synthetic("core:2").unwrap();
    let allowed = topology.possible().clone();
    let ground = Ground { topology, shard_size: 8, allowed: Some(allowed) };
    let ledger = Ledger::new(ground, Defaults { scope: AffinityScope::System, affinity: true });
    ledger.add_unit("item 0".into());
    let attributes = Attributes::default();
    let plan = QueuePlan {
        attributes: attributes.clone(),
        max_active,
        dropped_early: false,
        kind,
        freezable: true,
        rescuer: false,
        cpu_intensive: false,
    };
    ledger.add_queue(attributes, &plan);
    ledger.worker_begins(WORKER, "worker".into(), pod.parse().unwrap());
    ledger
}

/// Queues a unit; it is pending then.
fn queue(ledger: &Ledger, unit: Unit) {
    let call = ledger.begin_call(unit, 0, None);
    ledger.end_call(call, true);
}

fn start(ledger: &Ledger, unit: Unit) -> Execution {
    ledger.begin_execution(unit, WORKER, 0, Instant::from_nanos(50))
}

/// Checks that a complaint of the closed ledger contains `text`, or that there is none if `text` is empty.
#[track_caller]
fn complains(ledger: &Ledger, text: &str) {
    ledger.worker_ends(WORKER);
    ledger.close();
    let (violations, _) = ledger.result();
    match text {
        "" => assert!(violations.is_empty(), "{violations:?}"),
        text => {
            assert!(!violations.is_empty(), "{text} was not noticed");
            assert!(violations.iter().any(|line| line.contains(text)), "{violations:?}");
        }
    }
}

#[test]
fn an_item_that_is_queued_again_while_it_runs_runs_again() {
    let ledger = ledger(1, true);
    queue(&ledger, 0);
    let first = start(&ledger, 0);
    queue(&ledger, 0);
    ledger.end_execution(0, first, false);
    assert!(ledger.still_waiting(0, u64::MAX).is_some());
    let second = start(&ledger, 0);
    ledger.end_execution(0, second, true);
    assert!(ledger.still_waiting(0, u64::MAX).is_none());
    assert_eq!(ledger.counts(0), (2..=2, 1..=1));
    complains(&ledger, "");
}

#[test]
fn a_queueing_that_is_lost() {
    let ledger = ledger(1, false);
    queue(&ledger, 0);
    complains(&ledger, "1 queueings were accepted, 0 cancelled, 0 executions started");
}

#[test]
fn one_execution_too_many() {
    let ledger = ledger(1, false);
    queue(&ledger, 0);
    for _ in 0..2 {
        let execution = start(&ledger, 0);
        ledger.end_execution(0, execution, false);
    }
    complains(&ledger, "it runs for the 2. time, but was queued 1 times");
}

#[test]
fn two_executions_at_once() {
    let ledger = ledger(2, false);
    queue(&ledger, 0);
    let first = start(&ledger, 0);
    queue(&ledger, 0);
    let second = start(&ledger, 0);
    ledger.end_execution(0, first, false);
    ledger.end_execution(0, second, false);
    complains(&ledger, "two executions of it run at once");
}

#[test]
fn a_queueing_is_refused_only_if_the_item_was_pending() {
    let ledger = ledger(1, false);
    queue(&ledger, 0);
    let call = ledger.begin_call(0, 0, None);
    // It was pending when the call began, although it starts before the call returns.
    let execution = start(&ledger, 0);
    ledger.end_call(call, false);
    ledger.end_execution(0, execution, false);
    let call = ledger.begin_call(0, 0, None);
    ledger.end_call(call, false);
    complains(&ledger, "queueing it was refused as pending, but it was not");
}

#[test]
fn a_refused_queueing_needs_an_execution_that_comes_after_it() {
    let ledger = ledger(1, false);
    queue(&ledger, 0);
    let execution = start(&ledger, 0);
    let call = ledger.begin_call(0, 0, None);
    ledger.end_call(call, false);
    ledger.end_execution(0, execution, false);
    complains(&ledger, "did not run again");
}

#[test]
fn no_more_at_once_than_allowed_since_the_oldest_was_queued() {
    let ledger = ledger(2, false);
    let closures = [(); 3].map(|()| ledger.add_closure());
    for closure in closures {
        queue(&ledger, closure);
    }
    // Lowered: the two that were admitted before may still run together.
    ledger.begin_limit(0, |bounds| bounds.with_max_active(1));
    ledger.end_limit(0);
    let [first, second] = [closures[0], closures[1]].map(|closure| start(&ledger, closure));
    assert!(ledger.result().0.is_empty());
    let third = start(&ledger, closures[2]);
    for (closure, execution) in closures.into_iter().zip([first, second, third]) {
        ledger.end_execution(closure, execution, false);
    }
    complains(&ledger, "3 items run at once, max_active was at most 2");
}

#[test]
fn a_lowered_limit_counts_for_what_is_queued_later() {
    let ledger = ledger(2, false);
    ledger.begin_limit(0, |bounds| bounds.with_max_active(1));
    ledger.end_limit(0);
    let closures = [(); 2].map(|()| ledger.add_closure());
    for closure in closures {
        queue(&ledger, closure);
    }
    let executions = closures.map(|closure| start(&ledger, closure));
    for (closure, execution) in closures.into_iter().zip(executions) {
        ledger.end_execution(closure, execution, false);
    }
    complains(&ledger, "2 items run at once, max_active was at most 1");
}

#[test]
fn what_was_queued_before_is_overtaken_on_an_ordered_queue() {
    let ledger = ledger(1, true);
    let closures = [(); 2].map(|()| ledger.add_closure());
    for closure in closures {
        queue(&ledger, closure);
    }
    for closure in [closures[1], closures[0]] {
        let execution = start(&ledger, closure);
        ledger.end_execution(closure, execution, false);
    }
    complains(&ledger, "closure 2 starts before closure 1, which was queued before it");
}

#[test]
fn what_is_queued_at_the_same_time_may_start_in_any_order() {
    let ledger = ledger(1, true);
    let closures = [(); 2].map(|()| ledger.add_closure());
    let calls = closures.map(|closure| ledger.begin_call(closure, 0, None));
    for call in calls {
        ledger.end_call(call, true);
    }
    for closure in [closures[1], closures[0]] {
        let execution = start(&ledger, closure);
        ledger.end_execution(closure, execution, false);
    }
    complains(&ledger, "");
}

#[test]
fn an_item_that_queues_itself_on_an_ordered_queue_and_gets_past_another() {
    let ledger = ledger(1, true);
    queue(&ledger, 0);
    let first = start(&ledger, 0);
    let other = ledger.add_closure();
    queue(&ledger, other);
    queue(&ledger, 0);
    ledger.end_execution(0, first, false);
    for unit in [0, other] {
        let execution = start(&ledger, unit);
        ledger.end_execution(unit, execution, false);
    }
    complains(&ledger, "item 0 starts before closure 1, which was queued before it");
}

#[test]
fn a_limit_of_a_per_cpu_queue_counts_for_a_cpu() {
    let ledger = of_kind(1, Kind::PerCpu, "0");
    ledger.worker_begins(8, "other".into(), CpuSet::single(1));
    let closures = [(); 3].map(|()| ledger.add_closure());
    for closure in closures {
        queue(&ledger, closure);
    }
    let first = start(&ledger, closures[0]);
    let second = ledger.begin_execution(closures[1], 8, 1, Instant::from_nanos(50));
    assert!(ledger.result().0.is_empty(), "one on each");
    ledger.end_execution(closures[0], first, false);
    let third = ledger.begin_execution(closures[2], 8, 1, Instant::from_nanos(50));
    ledger.end_execution(closures[1], second, false);
    ledger.end_execution(closures[2], third, false);
    ledger.worker_ends(8);
    complains(&ledger, "2 items run at once, max_active was at most 1");
}

#[test]
fn a_rescuer_of_a_per_cpu_queue_takes_one_cpus_share() {
    let ledger = of_kind(1, Kind::PerCpu, "0");
    ledger.worker_begins(8, "other".into(), CpuSet::single(1));
    ledger.worker_begins(9, "nq/R-queue-0".into(), "0-1".parse().unwrap());
    let closures = [(); 3].map(|()| ledger.add_closure());
    for closure in closures {
        queue(&ledger, closure);
    }
    let now = Instant::from_nanos(50);
    let first = start(&ledger, closures[0]);
    let rescued = ledger.begin_execution(closures[1], 9, 0, now);
    assert!(ledger.result().0.is_empty(), "it may work for CPU 1");
    let other = ledger.begin_execution(closures[2], 8, 1, now);
    for (closure, execution) in closures.into_iter().zip([first, rescued, other]) {
        ledger.end_execution(closure, execution, false);
    }
    for worker in [8, 9] {
        ledger.worker_ends(worker);
    }
    complains(&ledger, "3 items run at once, max_active was at most 2");
}

#[test]
fn nothing_starts_or_runs_while_it_is_frozen() {
    let running = ledger(1, false);
    queue(&running, 0);
    let execution = start(&running, 0);
    running.begin_frozen();
    running.end_execution(0, execution, false);
    running.end_frozen();
    complains(&running, "the runtime is frozen, and items of it run");
    let starting = ledger(1, false);
    queue(&starting, 0);
    starting.begin_frozen();
    let execution = start(&starting, 0);
    starting.end_execution(0, execution, false);
    complains(&starting, "item 0 starts although the runtime is frozen");
    let thawed = ledger(1, false);
    queue(&thawed, 0);
    thawed.begin_frozen();
    thawed.end_frozen();
    let execution = start(&thawed, 0);
    thawed.end_execution(0, execution, false);
    complains(&thawed, "");
}

#[test]
fn what_is_left_at_the_end() {
    let leaked = ledger(1, false);
    leaked.captured("item 0", 1);
    complains(&leaked, "1 of the values that item 0 captured were never dropped");
    let asleep = ledger(1, false);
    asleep.wakers(1);
    complains(&asleep, "1 wakers of polled closures were never called");
    let left = ledger(1, false);
    left.worker_begins(8, "late".into(), CpuSet::all(1));
    complains(&left, "worker late was still there");
}

#[test]
fn what_was_cancelled_runs_all_the_same() {
    let ledger = ledger(1, false);
    queue(&ledger, 0);
    let cancel = ledger.begin_cancel(0);
    ledger.end_cancel(cancel, true);
    let execution = start(&ledger, 0);
    ledger.end_execution(0, execution, false);
    complains(&ledger, "but was queued 1 times, of which 1 were cancelled");
}

#[test]
fn a_cancel_that_takes_nothing_back_and_one_too_many() {
    let lost = ledger(1, false);
    queue(&lost, 0);
    let cancel = lost.begin_cancel(0);
    lost.end_cancel(cancel, false);
    complains(&lost, "1 queueings were accepted, 0 cancelled, 0 executions started");
    let twice = ledger(1, false);
    queue(&twice, 0);
    for _ in 0..2 {
        let cancel = twice.begin_cancel(0);
        twice.end_cancel(cancel, true);
    }
    complains(&twice, "2 queueings were cancelled and 0 executed, of 1");
}

#[test]
fn it_runs_before_its_time_or_although_it_is_disabled_or_is_still_busy() {
    let early = ledger(1, false);
    let call = early.begin_delayed(0, 0, None, Some(Instant::from_nanos(51)));
    early.end_call(call, true);
    let execution = start(&early, 0);
    early.end_execution(0, execution, false);
    complains(&early, "before its time");
    let disabled = ledger(1, false);
    disabled.begin_disable(0);
    disabled.end_disable(0);
    queue(&disabled, 0);
    complains(&disabled, "it was queued although it was disabled");
    let busy = ledger(1, false);
    queue(&busy, 0);
    let execution = start(&busy, 0);
    let (cancel, wait) = (busy.begin_cancel(0), busy.begin_wait(0));
    busy.end_cancel_sync(cancel, false, true);
    busy.end_wait(wait);
    busy.end_execution(0, execution, false);
    complains(&busy, "it is not idle");
}

#[test]
fn a_future_is_polled_twice_at_once_or_for_no_reason_or_lost() {
    let lost = ledger(1, false);
    let future = lost.add_future(0);
    lost.begin_poll(future, WORKER);
    lost.begin_poll(future, WORKER);
    lost.end_poll(future, false, false);
    complains(&lost, "two polls of it at once");
    complains_again(&lost, "it was woken 0 times");
    complains_again(&lost, "it was never dropped");
}

fn complains_again(ledger: &Ledger, text: &str) {
    assert!(ledger.result().0.iter().any(|line| line.contains(text)), "{text}");
}

/// Another worker, of the same pod.
const THIEF: u64 = 8;

/// A ledger with an item that runs and forks, and a thief.
fn forking(max_active: usize, kind: Kind) -> (Ledger, Execution) {
    let ledger = of_kind(max_active, kind, "0-1");
    ledger.worker_begins(THIEF, "thief".into(), "0-1".parse().unwrap());
    queue(&ledger, 0);
    let execution = start(&ledger, 0);
    assert!(!ledger.begin_leaf(0, WORKER, 0, WORKER), "the item's own thread");
    (ledger, execution)
}

/// The leaf and the item end.
fn join(ledger: &Ledger, execution: Execution) {
    ledger.end_leaf(0, WORKER, false);
    ledger.end_execution(0, execution, false);
    ledger.worker_ends(THIEF);
}

#[test]
fn a_leaf_counts_as_an_item_in_another_thread_only() {
    let (allowed, execution) = forking(2, Kind::Unbound);
    assert!(allowed.begin_leaf(0, THIEF, 1, WORKER));
    assert!(!allowed.begin_leaf(0, THIEF, 1, WORKER), "a leaf within a leaf");
    allowed.end_leaf(0, THIEF, false);
    allowed.end_leaf(0, THIEF, true);
    join(&allowed, execution);
    complains(&allowed, "");
    let (beyond, execution) = forking(1, Kind::Unbound);
    beyond.end_leaf(0, THIEF, beyond.begin_leaf(0, THIEF, 1, WORKER));
    join(&beyond, execution);
    complains(&beyond, "2 threads run its items and leaves at once, max_active was at most 1");
}

#[test]
fn a_leaf_runs_where_or_when_it_must_not() {
    for kind in [Kind::Ordered, Kind::PerCpu] {
        let (ledger, execution) = forking(1, kind);
        ledger.end_leaf(0, THIEF, ledger.begin_leaf(0, THIEF, 1, WORKER));
        join(&ledger, execution);
        complains(&ledger, "two threads run leaves of one tree");
    }
    let (ledger, execution) = forking(8, Kind::Unbound);
    ledger.end_leaf(0, 99, ledger.begin_leaf(0, 99, 1, WORKER));
    ledger.end_leaf(0, THIEF, ledger.begin_leaf(0, THIEF, 2, WORKER));
    ledger.begin_frozen();
    ledger.end_leaf(0, THIEF, ledger.begin_leaf(0, THIEF, 1, WORKER));
    ledger.end_frozen();
    join(&ledger, execution);
    complains(&ledger, "a leaf runs in thread 99, which is no worker");
    complains_again(&ledger, "a leaf ran on CPU 2");
    complains_again(&ledger, "the runtime is frozen, and items of it run");
    complains_again(&ledger, "a leaf starts although the runtime is frozen");
}

#[test]
fn a_leaf_of_a_strict_queue_runs_in_another_pod() {
    let (ledger, execution) = forking(8, Kind::Unbound);
    ledger.book().queues[0].attributes.all[0].affinity_strict = true;
    for (thread, pod) in [(10, "0"), (11, "1")] {
        ledger.worker_begins(thread, "strict".into(), pod.parse().unwrap());
    }
    ledger.end_leaf(0, 10, ledger.begin_leaf(0, 10, 0, 10));
    assert!(ledger.result().0.is_empty());
    ledger.end_leaf(0, 11, ledger.begin_leaf(0, 11, 1, 10));
    ledger.worker_ends(10);
    ledger.worker_ends(11);
    join(&ledger, execution);
    complains(&ledger, "it is strict");
}
