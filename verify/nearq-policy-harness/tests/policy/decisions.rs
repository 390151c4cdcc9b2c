//! Tests single decisions: wake-ups, what a CPU takes and in which order, which tasks go home and when.

use crate::common::{MS, Model, STEP, State, TICK, task};
use nearq_policy_harness::{Policy, Take};
use nearq_scx_policy::layout::{EVENTS, TakeWhich, Task, WAITED};
use nearq_topology::{CpuSet, Topology};

pub(crate) fn cpus(list: &str) -> CpuSet {
    list.parse().unwrap()
}

pub(crate) fn machine(text: &str) -> Topology {
    Topology::from_synthetic(text).unwrap()
}

/// A policy of a machine on which these CPUs are idle.
pub(crate) fn policy(text: &str, idle: &str) -> Policy {
    let machine = machine(text);
    let mut policy = Policy::new(&machine, machine.online()).unwrap();
    for cpu in &cpus(idle) {
        policy.idle(cpu);
    }
    policy
}

/// The number of an event by its name.
pub(crate) fn event(name: &str) -> usize {
    EVENTS.iter().position(|(known, _)| *known == name).expect("there is such an event")
}

/// Adds a task that runs on a CPU from now on.
pub(crate) fn runs(
    policy: &mut Policy,
    allowed: &CpuSet,
    home: usize,
    cpu: usize,
    now: u64,
) -> Task {
    let mut task = task(policy, allowed, home);
    policy.runnable(&mut task);
    policy.running(&mut task, cpu, now);
    task
}

/// Adds a task that waits in the queue of a CPU.
pub(crate) fn waits(
    policy: &mut Policy,
    allowed: &CpuSet,
    home: usize,
    cpu: usize,
    now: u64,
) -> Task {
    let mut task = task(policy, allowed, home);
    policy.runnable(&mut task);
    // The task last ran on the node where it now waits.
    task.place = policy.node_of(cpu) as u32;
    policy.enqueue(&mut task, cpu, false, now);
    task
}

/// Everything that a CPU tries, in order: the queue, which of its tasks, and the event.
pub(crate) fn tries(
    policy: &mut Policy,
    cpu: usize,
    stays: bool,
    now: u64,
) -> Vec<(usize, TakeWhich, usize)> {
    policy.begin(cpu);
    let next = || policy.next(cpu, stays, now);
    std::iter::from_fn(next).map(|Take { llc, which, event }| (llc, which, event)).collect()
}

// ---- wake-ups ----------------------------------------------------------------------------------------------

#[test]
fn a_task_wakes_up_on_its_cpu_then_its_cache_then_its_node_then_the_nearest() {
    // Node 0 has CPUs 0 to 7: caches 0-3 and 4-7 of two cores with two threads each; node 1 CPUs 8 to 15.
    let all = cpus("0-15");
    let mut policy = policy("numa:2 l3:2 core:2 pu:2", "0-15");
    let mut task = task(&mut policy, &all, 0);
    let mut woken = Vec::new();
    loop {
        let (cpu, event) = policy.select_cpu(&mut task, 1, None);
        woken.push((cpu, event));
        if event == WAITED {
            break;
        }
    }
    let (previous, cache, node, away) =
        (event("woke_previous"), event("woke_cache"), event("woke_node"), event("woke_away"));
    let at_home = [
        (1, previous),
        // First a whole core under the cache, then whole cores of the node, then the remaining threads of these.
        (2, cache),
        (4, node),
        (6, node),
        (0, cache),
        (3, cache),
        (5, node),
        (7, node),
    ];
    assert_eq!(woken[..8], at_home);
    assert!(woken[8..16].iter().all(|(cpu, event)| *cpu >= 8 && *event == away));
    assert_eq!(woken[16], (1, WAITED), "it waits near where it was");
}

#[test]
fn a_stray_wakes_up_at_home_and_masks_are_kept() {
    let mut policy = policy("numa:2 core:2", "0-3");
    let mut stray = task(&mut policy, &cpus("0-3"), 0);
    assert_eq!(policy.select_cpu(&mut stray, 3, None).0, 0, "its CPU is idle, but away");
    let mut pinned = task(&mut policy, &cpus("3"), 1);
    assert_eq!(policy.select_cpu(&mut pinned, 2, None).0, 3);
    assert_eq!(policy.select_cpu(&mut pinned, 2, None).1, WAITED);
}

#[test]
fn a_hint_counts_where_the_task_may_run_at_home() {
    let mut policy = policy("numa:2 core:4", "0-7");
    let mut task = task(&mut policy, &cpus("0-2,4-7"), 0);
    assert_eq!(policy.wakes_near(&mut task, 1, 2), 2);
    assert_eq!(policy.wakes_near(&mut task, 1, 3), 1, "it may not run there");
    assert_eq!(policy.wakes_near(&mut task, 1, 5), 1, "that is not its home");
    policy.online(2, false);
    assert_eq!(policy.wakes_near(&mut task, 1, 2), 1, "the CPU is off");
    for absent in [8, 700, usize::MAX] {
        assert_eq!(policy.wakes_near(&mut task, 1, absent), 1, "there is no CPU {absent}");
    }
}

// ---- queues ------------------------------------------------------------------------------------------------

#[test]
fn a_stray_waits_at_home_once_there_is_room_and_stays_otherwise() {
    let all = cpus("0-3");
    let mut policy = policy("numa:2 core:2", "");
    let mut stray = runs(&mut policy, &all, 0, 2, 0);
    let _here = runs(&mut policy, &all, 1, 3, 0);
    let mut at_home: Vec<Task> = (0..2).map(|cpu| runs(&mut policy, &all, 0, cpu, 0)).collect();
    let waiting: Vec<Task> = (0..4).map(|_| waits(&mut policy, &all, 0, 0, 0)).collect();
    // Loads are smoothed: ticks notice the change in time.
    for time in 1..40 {
        policy.tick(&mut at_home[0], 0, time * 10 * MS);
        policy.tick(&mut stray, 2, time * 10 * MS);
    }
    let now = 400 * MS;
    policy.stopping(&mut stray, 2, now);
    assert_eq!(policy.enqueue(&mut stray, 2, false, now), 1, "home is crowded");
    let away = |policy: &Policy| policy.state().on_llc[1].waiting_of[0];
    assert_eq!(away(&policy), 1);
    assert_eq!(policy.enqueue(&mut stray, 2, true, now), 0, "who slept waits at home");
    assert_eq!(away(&policy), 0);
    policy.idle(1);
    assert_eq!(policy.enqueue(&mut stray, 2, false, now), 0, "somebody is idle there");
    assert_eq!(policy.wake(&mut stray, 0, now), Some(1));
    drop(waiting);
}

#[test]
fn a_busy_cpu_relieves_a_place_that_is_more_crowded_by_far_the_farther_the_more() {
    for (distance, waiting, relieved) in
        [(20, 3, false), (20, 4, true), (40, 4, false), (40, 6, true)]
    {
        let rows = [vec![10, distance], vec![distance, 10]];
        let machine = machine("numa:2 core:2").with_distances(&rows).unwrap();
        let mut policy = Policy::new(&machine, machine.online()).unwrap();
        let all = cpus("0-3");
        let mut here = runs(&mut policy, &all, 0, 0, 0);
        let mut other = runs(&mut policy, &all, 0, 1, 0);
        let mut there: Vec<Task> = (2..4).map(|cpu| runs(&mut policy, &all, 1, cpu, 0)).collect();
        let queued: Vec<Task> = (0..waiting).map(|_| waits(&mut policy, &all, 1, 2, 0)).collect();
        for time in 1..60 {
            policy.tick(&mut here, 0, time * 10 * MS);
            policy.tick(&mut there[0], 2, time * 10 * MS);
        }
        policy.tick(&mut other, 1, 600 * MS);
        let tried = tries(&mut policy, 0, true, 600 * MS);
        let relief = (1, TakeWhich::First, event("took_relief"));
        assert_eq!(tried.contains(&relief), relieved, "{distance} {waiting}: {tried:?}");
        assert!(!tries(&mut policy, 0, true, 605 * MS).contains(&relief), "not so often");
        drop(queued);
    }
}

#[test]
fn whoever_waits_too_long_is_looked_for() {
    let all = cpus("0");
    let mut policy = policy("core:1", "");
    let start = 1000 * MS;
    let mut old = waits(&mut policy, &all, 0, 0, start);
    let mut is_old =
        |policy: &mut Policy, time| policy.fits(&mut old, 0, TakeWhich::Old, start + time * MS);
    assert!(!is_old(&mut policy, 1_999) && is_old(&mut policy, 2_000));
    let look = (0, TakeWhich::Old, event("took_rescue"));
    assert_eq!(tries(&mut policy, 0, true, start + 2_000 * MS)[0], look);
    assert_ne!(tries(&mut policy, 0, true, start + 2_010 * MS)[0], look, "one each 20 ms");
    assert_eq!(tries(&mut policy, 0, true, start + 2_020 * MS)[0], look);
}

#[test]
fn a_queue_that_nobody_serves_is_rescued_by_anybody() {
    let all = cpus("0-3");
    let mut policy = policy("numa:2 core:2", "");
    let mut busy = runs(&mut policy, &all, 1, 2, 0);
    let start = 1000 * MS;
    let _waits = waits(&mut policy, &cpus("1-2"), 0, 1, start);
    policy.online(0, false);
    policy.online(1, false);
    assert_eq!(policy.state().on_llc[0].capacity, 0);
    let rescue = (0, TakeWhich::First, event("took_rescue"));
    for time in 1..12 {
        policy.tick(&mut busy, 2, start + time * 4 * MS);
    }
    assert!(!tries(&mut policy, 2, true, start + 48 * MS).contains(&rescue));
    for time in 13..16 {
        policy.tick(&mut busy, 2, start + time * 4 * MS);
    }
    assert!(tries(&mut policy, 2, true, start + 64 * MS).contains(&rescue));
}

// ---- idle CPUs, strays, hotplug ----------------------------------------------------------------------------

#[test]
fn ticks_wake_idle_cpus_in_turn_and_the_own_node_first() {
    let all = cpus("0-7");
    let mut policy = policy("numa:2 l3:2 core:2", "2,3,5,7");
    let start = 1000 * MS;
    let mut busy = runs(&mut policy, &all, 0, 0, start);
    let mut wakes = |policy: &mut Policy, now| policy.tick(&mut busy, 0, now).wakes;
    assert_eq!(wakes(&mut policy, start), None, "nobody waits");
    let _waits = waits(&mut policy, &all, 0, 0, start);
    policy.busy(2);
    policy.busy(3);
    assert_eq!(wakes(&mut policy, start), None, "another node's not before the delay");
    policy.idle(2);
    policy.idle(3);
    let mut woken = Vec::new();
    for after in 10..16 {
        let cpu = wakes(&mut policy, start + after * MS).expect("there are idle ones");
        woken.push(cpu);
        // The CPU found nothing that it may run.
        policy.idle(cpu);
    }
    assert_eq!(woken, [2, 3, 5, 7, 2, 3]);
}

#[test]
fn a_core_is_idle_when_all_of_its_cpus_are() {
    let mut policy = policy("core:2 pu:2", "0");
    assert_eq!(policy.state().idle_cores[0], 0);
    policy.idle(1);
    assert_eq!(policy.state().idle_cores[0], 0b11);
    assert!(policy.busy(0) && !policy.busy(0), "claimed once");
    assert_eq!((policy.state().idle_cores[0], policy.state().idle[0]), (0, 0b10));
}

#[test]
fn a_stray_is_sent_home_after_its_stay_which_is_doubled_for_one_that_swings() {
    let all = cpus("0-3");
    for swings in 0..3 {
        let mut policy = policy("numa:2 core:2", "");
        let start = 10_000 * MS;
        let mut stray = runs(&mut policy, &all, 0, 0, start);
        policy.stopping(&mut stray, 0, start);
        policy.running(&mut stray, 2, start);
        stray.swings = swings;
        let stay = (20 << swings) * MS;
        let mut tick =
            |policy: &mut Policy, after| policy.tick(&mut stray, 2, start + after).yields;
        assert!(!tick(&mut policy, stay), "nobody is idle at home");
        policy.idle(1);
        assert!(!tick(&mut policy, stay - 1));
        assert!(tick(&mut policy, stay));
        assert_eq!(policy.counted(event("sent")), 1);
    }
}

#[test]
fn what_a_node_is_wanted_for_is_smoothed_whoever_ticks_and_wherever_its_tasks_are() {
    let mut policy = policy("numa:2 core:2", "");
    let all = cpus("0-3");
    let mut away = runs(&mut policy, &all, 1, 0, 0);
    let _own = runs(&mut policy, &all, 0, 1, 0);
    let demands = |policy: &Policy| [0, 1].map(|node| policy.state().on_node[node].demand);
    policy.tick(&mut away, 0, 1_010 * MS);
    assert_eq!(demands(&policy)[0], 250);
    for tick in 2..=60 {
        policy.tick(&mut away, 0, 1_000 * MS + tick * 10 * MS);
    }
    assert!(demands(&policy).iter().all(|one| (990..=1000).contains(one)));
    // It sleeps, so no CPU ticks on its node; that is noticed anyway.
    let mut last = runs(&mut policy, &all, 0, 1, 0);
    policy.quiescent(&mut away, 0);
    for tick in 61..=120 {
        policy.tick(&mut last, 1, 1_000 * MS + tick * 10 * MS);
    }
    let [home, other] = demands(&policy);
    assert!(home > 1900 && other < 10, "{home} {other}");
}

#[test]
fn a_task_that_leaves_soon_after_it_came_home_swings() {
    let all = cpus("0-3");
    let mut policy = policy("numa:2 core:2", "");
    let mut task = runs(&mut policy, &all, 0, 0, 0);
    let mut now = 5_000 * MS;
    for (cpu, after, swings) in
        [(2, 0, 0), (0, 100, 0), (3, 100, 1), (0, 50, 1), (2, 50, 2), (1, 9, 2), (2, 2_000, 0)]
    {
        now += after * MS;
        policy.stopping(&mut task, cpu, now);
        policy.running(&mut task, cpu, now);
        assert_eq!(task.swings, swings, "on {cpu} at {} ms", now / MS);
    }
    let counted = ["left", "returned"].map(|name| policy.counted(event(name)));
    assert_eq!((counted, task.crossings), ([4, 3], 7));
}

#[test]
fn strays_in_each_others_places_go_home_though_no_cpu_is_idle() {
    let mut model = Model::new("numa:2 core:2");
    let all = model.all();
    let sides = [cpus("0-1"), cpus("2-3")];
    // Two tasks of each node, all of which began on the other node.
    let tasks: Vec<(usize, usize)> = (0..4)
        .map(|number| {
            let home = number % 2;
            (model.fork(100, &sides[1 - home], MS, 0), home)
        })
        .collect();
    for (task, home) in &tasks {
        model.set_affinity(*task, &all);
        model.set_home(*task, *home);
        assert_eq!(model.node_of_task(*task), Some(1 - home));
    }
    // This is long before their slices are over.
    model.run(60 * MS);
    for (task, home) in &tasks {
        assert_eq!(model.node_of_task(*task), Some(*home));
        let crossings = model.threads[*task].task.crossings;
        assert!(crossings <= 3, "{crossings}");
    }
}

#[test]
fn an_overloaded_home_is_helped_by_idle_nodes_and_everybody_comes_back() {
    let mut model = Model::new("numa:2 core:4");
    let first = cpus("0-3");
    let tasks: Vec<usize> = (0..8).map(|_| model.fork(100, &first, MS, 0)).collect();
    model.run(100 * MS);
    let all = model.all();
    for task in &tasks {
        model.set_affinity(*task, &all);
    }
    model.run(100 * MS);
    assert!(model.cpus.iter().all(|cpu| cpu.current.is_some()), "all work");
    let crossings = |model: &Model| -> u32 {
        tasks.iter().map(|task| model.threads[*task].task.crossings).sum()
    };
    let before = crossings(&model);
    model.run(1_000 * MS);
    assert!(crossings(&model) - before <= 1, "who is out stays out as long as home is full");
    for task in &tasks[..4] {
        model.end(*task);
    }
    model.run(200 * MS);
    assert!(tasks[4..].iter().all(|task| model.node_of_task(*task) == Some(0)));
}

#[test]
fn virtual_time_goes_by_weight() {
    let mut policy = policy("core:2", "");
    let all = cpus("0-1");
    let mut heavy = task(&mut policy, &all, 0);
    let mut light = task(&mut policy, &all, 0);
    Policy::set_weight(&mut heavy, 8668);
    Policy::set_weight(&mut light, 0);
    for (number, task) in [&mut heavy, &mut light].into_iter().enumerate() {
        policy.running(task, number, 0);
    }
    let before = (heavy.vtime, light.vtime);
    policy.charge(&mut heavy, 0, 8668 * MS);
    policy.charge(&mut light, 1, MS);
    assert_eq!((heavy.vtime - before.0, light.vtime - before.1), (100 * MS, 100 * MS));
    assert_eq!((heavy.home_ns, heavy.away_ns), (8668 * MS, 0));
}

#[test]
fn cpus_that_come_and_go_are_counted_once() {
    let mut policy = policy("numa:2 core:2", "0-3");
    for _ in 0..2 {
        policy.online(1, false);
        assert_eq!(
            (policy.state().on_llc[0].capacity, policy.state().on_node[0].capacity),
            (1024, 1024)
        );
        assert_eq!(policy.state().idle[0], 0b1101, "it is not idle, it is gone");
    }
    policy.online(1, true);
    policy.online(1, true);
    assert_eq!(policy.state().on_node[0].capacity, 2048);
    // A task of a node that is gone may begin elsewhere.
    policy.online(0, false);
    policy.online(1, false);
    let mut task = Task::default();
    policy.init_task(&mut task, 100);
    Policy::allow(&mut task, &cpus("0-3"));
    assert_eq!(policy.pick(&mut task, Some(0)), 1);
}

#[test]
fn a_node_that_goes_leaves_nobody_behind() {
    let mut model = Model::new("numa:2 core:2");
    let all = model.all();
    let tasks: Vec<usize> = (0..6).map(|_| model.fork(100, &all, MS, 0)).collect();
    model.run(50 * MS);
    model.set_online(0, false);
    model.set_online(1, false);
    model.run(2_000 * MS);
    for task in &tasks {
        let thread = &model.threads[*task];
        assert!(
            thread.state != State::Sleeps && thread.task.away_ns + thread.task.home_ns > 200 * MS
        );
        assert!(thread.longest_wait <= 200 * MS + TICK + STEP, "{} ms", thread.longest_wait / MS);
    }
    model.set_online(0, true);
    model.set_online(1, true);
    model.run(500 * MS);
    assert!(model.cpus.iter().all(|cpu| cpu.current.is_some()));
}

/// Extreme numbers: the harness ends the test if a sum overflows.
#[test]
fn no_weight_makes_a_sum_overflow() {
    let all = cpus("0-3");
    for huge in [u64::MAX, u64::MAX / 2, u64::MAX / 2 + 1, 1 << 62] {
        let mut policy = policy("numa:2 core:2", "0-3");
        let weights = policy.weights_mut();
        (weights.slice, weights.busy_slice, weights.credit) = (huge, huge, huge);
        (weights.preempt, weights.steal_delay, weights.stay) = (huge, huge, huge);
        (weights.relief_interval, weights.rescue, weights.period) = (huge, huge, huge);
        let mut waiting = waits(&mut policy, &all, 0, 0, huge);
        let mut running = runs(&mut policy, &all, 0, 0, huge);
        for now in [huge, 0, 1, huge] {
            policy.enqueue(&mut waiting, 1, true, now);
            policy.tick(&mut running, 0, now);
            policy.stopping(&mut running, 0, now);
            policy.running(&mut running, 0, now);
            policy.preempts(&mut waiting, 0, now);
        }
    }
}
