//! What CPUs take from queues of other nodes: from which queue, and which of its tasks. The weight `own_bonus` selects the rule of 2003.

use nearq_policy_harness::{Policy, Take};
use nearq_scx_policy::layout::{EVENTS, TakeWhich, Task};
use nearq_topology::{CpuSet, Topology};
use proptest::prelude::*;

use crate::common::MS;
use crate::decisions::{cpus, event, machine, runs, tries, waits};
use crate::properties::config;

/// The time of all searches: all tasks have waited for long.
const START: u64 = 1_000 * MS;

/// What a CPU tries on other nodes: queues, in order, and the events. They begin with the events' names.
fn elsewhere(policy: &mut Policy, cpu: usize, stays: bool, now: u64) -> Vec<(usize, &'static str)> {
    let node = policy.state().cpu[cpu].node;
    let mut all = tries(policy, cpu, stays, now);
    all.retain(|(llc, which, _)| policy.state().llc[*llc].node != node && *which != TakeWhich::Old);
    all.into_iter().map(|(llc, _, event)| (llc, EVENTS[event].0)).collect()
}

/// Three nodes of one CPU; node 2 is farther from node 0.
fn three_nodes() -> Topology {
    let rows = [vec![10, 20, 40], vec![20, 10, 20], vec![40, 20, 10]];
    machine("numa:3 core:1").with_distances(&rows).unwrap()
}

/// A policy without relief, in which these tasks, by home, wait in the queues of these CPUs; each is bound to its CPU, so it waits there
/// wherever its home is.
fn queued(machine: &Topology, bonus: u64, tasks: &[(usize, usize)]) -> (Policy, Vec<Task>) {
    let mut policy = Policy::new(machine, machine.online()).unwrap();
    policy.weights_mut().relief_interval = u64::MAX;
    policy.weights_mut().own_bonus = bonus;
    let wait = |(home, cpu): &(usize, usize)| {
        waits(&mut policy, &CpuSet::single(*cpu), *home, *cpu, START)
    };
    let tasks = tasks.iter().map(wait).collect();
    (policy, tasks)
}

#[test]
fn a_cpu_takes_from_its_cache_its_node_then_from_others_its_own_then_natives_after_a_delay() {
    // Nodes 0 to 2 with two caches of one CPU each; node 2 is farther from node 0.
    let rows = [vec![10, 20, 40], vec![20, 10, 20], vec![40, 20, 10]];
    let machine = machine("numa:3 l3:2 core:1").with_distances(&rows).unwrap();
    let tasks = [(0, 0), (0, 1), (1, 2), (0, 3), (2, 4)];
    let (mut policy, _tasks) = queued(&machine, 0, &tasks);
    let (first, by_home) = (TakeWhich::First, TakeWhich::ByHome);
    let [cache, node, own, idle] = ["took_cache", "took_node", "took_own", "took_idle"].map(event);
    // The first search is for tasks that have waited long: there is none.
    let mut look = |now| {
        let mut all = tries(&mut policy, 0, false, now);
        all.retain(|(_, which, _)| *which != TakeWhich::Old);
        all
    };
    let near = [(0, first, cache), (1, first, node), (3, by_home, own)];
    assert_eq!(look(START), near);
    assert_eq!(look(START + MS - 1), near, "not yet");
    let next_node = [&near[..], &[(2, by_home, idle)]].concat();
    assert_eq!(look(START + MS), next_node, "a millisecond for a distance of 20");
    assert_eq!(look(START + 3 * MS - 1), next_node);
    let everybody = [&next_node[..], &[(4, by_home, idle)]].concat();
    assert_eq!(look(START + 3 * MS), everybody, "three for 40");
    // A CPU with a task that can go on takes one that is further behind, and nothing from elsewhere.
    let mut stays = tries(&mut policy, 0, true, START + 10 * MS);
    stays.retain(|(_, which, _)| *which != TakeWhich::Old);
    assert_eq!(stays, [(0, TakeWhich::Earlier, cache)]);
}

#[test]
fn of_a_queue_own_tasks_are_taken_then_strays_at_once_and_natives_after_the_delay() {
    let (mut policy, mut tasks) = queued(&three_nodes(), 1_000, &[(1, 1), (2, 1), (0, 1), (2, 1)]);
    for task in &mut tasks {
        Policy::allow(task, &cpus("0-2"));
    }
    // Which of the tasks fit at each step.
    let mut fitting = |now| {
        let mut all = Vec::new();
        policy.begin(0);
        while let Some(Take { which, event, .. }) = policy.next(0, false, now) {
            let fit = |number: &usize| policy.fits(&mut tasks[*number], 0, which, now);
            let fit: Vec<usize> = (0..4).filter(fit).collect();
            all.push((EVENTS[event].0, fit));
        }
        all
    };
    let at_once = [("took_own", vec![2]), ("took_idle", vec![1, 3])];
    assert_eq!(fitting(START), at_once);
    assert_eq!(fitting(START + MS), [&at_once[..], &[("took_idle", vec![0])]].concat());
}

#[test]
fn an_own_task_makes_a_queue_as_crowded_as_one_more_and_by_default_it_comes_first() {
    // Three natives on node 1 against two tasks on node 2, which is farther: both natives, one own, two own.
    for (homes, of_2003, by_default) in
        [([2, 2], [1, 2], [1, 2]), ([2, 0], [1, 2], [2, 1]), ([0, 0], [2, 1], [2, 1])]
    {
        for (bonus, expected) in [(1_000, of_2003), (0, by_default)] {
            let tasks = [(1, 1), (1, 1), (1, 1), (homes[0], 2), (homes[1], 2)];
            let (mut policy, _tasks) = queued(&three_nodes(), bonus, &tasks);
            let mut tried: Vec<usize> = elsewhere(&mut policy, 0, false, START + 10 * MS)
                .into_iter()
                .map(|(llc, _)| llc)
                .collect();
            tried.dedup();
            assert_eq!(tried, expected, "{homes:?}, a bonus of {bonus}");
        }
    }
}

/// A machine of three nodes of two CPUs at the same distance, all busy, with these tasks, by home, that wait on nodes 1 and 2. The loads
/// have settled.
fn crowded(bonus: u64, waiting: [&[usize]; 2]) -> (Policy, Vec<Task>) {
    let machine = machine("numa:3 core:2");
    let mut policy = Policy::new(&machine, machine.online()).unwrap();
    policy.weights_mut().own_bonus = bonus;
    // Nobody serves the queues for as long as it takes the loads to settle.
    policy.weights_mut().rescue = 1 << 62;
    let all = cpus("0-5");
    let mut running: Vec<Task> =
        (0..6).map(|cpu| runs(&mut policy, &all, cpu / 2, cpu, START)).collect();
    let mut tasks = Vec::new();
    for (cpu, homes) in [2, 4].into_iter().zip(waiting) {
        let there = CpuSet::single(cpu);
        tasks.extend(homes.iter().map(|home| waits(&mut policy, &there, *home, cpu, START)));
    }
    for time in 1..60 {
        for (cpu, task) in running.iter_mut().enumerate() {
            policy.tick(task, cpu, START + time * 10 * MS);
        }
    }
    (policy, tasks)
}

#[test]
fn a_busy_cpu_relieves_the_node_with_tasks_of_its_own_which_it_takes_first() {
    let now = START + 700 * MS;
    let relief = |bonus, waiting| {
        let (mut policy, _tasks) = crowded(bonus, waiting);
        elsewhere(&mut policy, 0, true, now)
    };
    // Four tasks wait on each of the others: by load alone that is node 1 as well as node 2.
    let waiting = [&[1, 1, 1, 1][..], &[2, 1, 0, 2]];
    assert_eq!(relief(0, waiting), [(1, "took_relief")]);
    assert_eq!(
        relief(1_000, waiting),
        [(2, "took_own"), (2, "took_relief"), (2, "took_relief")],
        "its own, strays, natives"
    );
    // Three that wait for two CPUs are not worth the way, unless two of them belong here.
    assert_eq!(relief(0, [&[1, 0, 0], &[]]), []);
    assert_eq!(relief(1_000, [&[1, 0, 0], &[]]), [(1, "took_own"), (1, "took_relief")]);
    assert_eq!(relief(1_000, [&[1, 2, 2], &[]]), []);
}

#[test]
fn a_queues_head_is_not_taken_for_relief_while_an_own_task_waits_behind_it() {
    let now = START + 700 * MS;
    for (bonus, expected) in [(0, [true, true, true]), (1_000, [false, false, true])] {
        let (mut policy, mut tasks) = crowded(bonus, [&[1, 2, 0], &[]]);
        for task in &mut tasks {
            Policy::allow(task, &cpus("0-5"));
        }
        policy.weights_mut().imbalance = 0;
        policy.begin(0);
        let take = std::iter::from_fn(|| policy.next(0, true, now))
            .find(|take| take.llc == 1)
            .expect("it is crowded");
        let fits: Vec<bool> =
            tasks.iter_mut().map(|task| policy.fits(task, 0, take.which, now)).collect();
        assert_eq!(fits, expected);
    }
}

#[test]
fn a_busy_cpu_relieves_the_queue_of_a_node_with_tasks_of_its_own() {
    // Node 1 has two caches of two CPUs each, with as many tasks.
    let machine = machine("numa:2 l3:2 core:2");
    for (own_in, bonus, expected) in [(0, 1_000, 2), (1, 1_000, 3), (1, 0, 2)] {
        let mut policy = Policy::new(&machine, machine.online()).unwrap();
        policy.weights_mut().own_bonus = bonus;
        policy.weights_mut().rescue = 1 << 62;
        let mut running: Vec<Task> = (0..8)
            .map(|cpu| runs(&mut policy, &CpuSet::single(cpu), cpu / 4, cpu, START))
            .collect();
        let mut tasks = Vec::new();
        for queue in 0..2 {
            for number in 0..6 {
                let home = usize::from(number > 0 || queue != own_in);
                let cpu = 4 + 2 * queue;
                tasks.push(waits(&mut policy, &CpuSet::single(cpu), home, cpu, START));
            }
        }
        for time in 1..60 {
            for (cpu, task) in running.iter_mut().enumerate() {
                policy.tick(task, cpu, START + time * 10 * MS);
            }
        }
        let tried = elsewhere(&mut policy, 0, true, START + 700 * MS);
        assert_eq!(tried.first().map(|tried| tried.0), Some(expected), "{tried:?}");
    }
}

#[test]
fn natives_are_taken_when_they_have_waited_themselves_or_for_relief() {
    // The first one, which has waited for long, is bound to its CPU; the other two have come a moment ago.
    let (mut policy, mut tasks) = queued(&three_nodes(), 1_000, &[(1, 1)]);
    tasks
        .extend([2, 1].map(|home| waits(&mut policy, &CpuSet::single(1), home, 1, START + 5 * MS)));
    for task in &mut tasks[1..] {
        Policy::allow(task, &cpus("0-2"));
    }
    let mut taken = |now| {
        let mut all = Vec::new();
        policy.begin(0);
        while let Some(Take { which, .. }) = policy.next(0, false, now) {
            let fit = |number: &usize| policy.fits(&mut tasks[*number], 0, which, now);
            all.extend((0..3).filter(fit));
        }
        all
    };
    assert_eq!(taken(START + 5 * MS), [1], "a stray");
    assert_eq!(taken(START + 6 * MS), [1, 2]);
    // A busy CPU does not wait.
    let now = START + 700 * MS;
    let (mut policy, mut tasks) = crowded(1_000, [&[1, 1, 1, 1], &[]]);
    let last = &mut tasks[3];
    policy.leave_queue(last, now);
    policy.enqueue(last, 2, false, now);
    Policy::allow(last, &cpus("0-5"));
    policy.begin(0);
    let mut takes = std::iter::from_fn(|| policy.next(0, true, now));
    let take = takes.find(|take| take.llc == 1).expect("it is crowded");
    assert!(policy.fits(last, 0, take.which, now));
}

#[test]
fn an_idle_cpu_has_work_where_its_own_tasks_or_strays_wait_and_natives_after_the_delay() {
    for (home, at_once) in [(0, true), (2, true), (1, false)] {
        let (mut policy, _tasks) = queued(&three_nodes(), 0, &[(home, 1)]);
        assert_eq!(policy.anything(0, START), at_once, "home {home}");
        assert!(policy.anything(0, START + MS));
    }
}

#[test]
fn a_waiting_task_is_counted_by_its_home_wherever_that_moves() {
    let (mut policy, mut tasks) = queued(&three_nodes(), 1_000, &[(1, 1)]);
    let waiting = |policy: &Policy| policy.state().on_llc[1].waiting_of[..3].to_vec();
    assert_eq!(waiting(&policy), [0, 1, 0]);
    policy.set_home(&mut tasks[0], 2, nearq_scx_policy::layout::HomeReason::Told);
    assert_eq!(waiting(&policy), [0, 0, 1]);
    policy.leave_queue(&mut tasks[0], START);
    assert_eq!(waiting(&policy), [0, 0, 0]);
    policy.set_home(&mut tasks[0], 0, nearq_scx_policy::layout::HomeReason::Told);
    assert_eq!(waiting(&policy), [0, 0, 0]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * config().cases, ..config() })]

    /// An idle CPU tries the queues in the order of their crowds, where each own task that waits counts more; in each those of the three
    /// kinds of tasks of which one waits.
    #[test]
    fn queues_are_tried_in_the_order_of_their_loads_with_the_bonus(
        tasks in prop::collection::vec((0..3_usize, 2..6_usize), 0..24),
        running in prop::collection::vec(2..6_usize, 0..4),
        bonus in 1..4_000_u64,
    ) {
        // Each cache of node 1 has two CPUs, and node 2 has half as many online.
        let machine = machine("numa:3 l3:2 core:1").with_online(&cpus("0-5"));
        let (mut policy, _tasks) = queued(&machine, bonus, &tasks);
        let mut busy: Vec<usize> = running;
        busy.sort_unstable();
        busy.dedup();
        let _running: Vec<Task> =
            busy.iter().map(|cpu| runs(&mut policy, &CpuSet::single(*cpu), cpu / 2, *cpu, START)).collect();
        let tried = elsewhere(&mut policy, 0, false, START + 10 * MS);

        let of = |llc: usize, home: usize| tasks.iter().filter(|task| **task == (home, llc)).count() as u64;
        let crowd = |llc: usize| {
            let waiting: u64 = (0..3).map(|home| of(llc, home)).sum();
            1000 * (waiting + u64::from(busy.contains(&llc))) + bonus * of(llc, 0)
        };
        let mut queues: Vec<usize> = (2..6).filter(|llc| (0..3).any(|home| of(*llc, home) > 0)).collect();
        queues.sort_by_key(|llc| (std::cmp::Reverse(crowd(*llc)), *llc));
        let expected: Vec<(usize, &str)> = queues
            .into_iter()
            .flat_map(|llc| {
                let native = llc / 2;
                let groups = [(0, "took_own"), (3 - native, "took_idle"), (native, "took_idle")];
                groups.into_iter().filter(move |(home, _)| of(llc, *home) > 0).map(move |(_, event)| (llc, event))
            })
            .collect();
        prop_assert_eq!(tried, expected);
    }
}
