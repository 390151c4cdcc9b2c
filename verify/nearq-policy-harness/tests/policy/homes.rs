//! Tests how homes are chosen, told, inherited and changed.

use crate::common::{MS, task};
use crate::decisions::{cpus, machine, policy, runs};
use nearq_policy_harness::Policy;
use nearq_scx_policy::layout::{HomeReason, Process, Task};

#[test]
fn a_home_is_where_each_cpu_has_the_least_to_do() {
    // Three CPUs against one, all busy: the larger node takes three tasks for one of the other.
    let machine = machine("numa:2 core:3");
    let online = cpus("0-3");
    let mut policy = Policy::new(&machine, &online).unwrap();
    let mut homes = Vec::new();
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let mut task = Task::default();
        policy.init_task(&mut task, 100);
        Policy::allow(&mut task, &online);
        let home = policy.pick(&mut task, Some(1));
        policy.set_home(&mut task, home, HomeReason::Exec);
        policy.runnable(&mut task);
        homes.push(home);
        tasks.push(task);
    }
    let on = |node| homes.iter().filter(|home| **home == node).count();
    assert_eq!((on(0), on(1)), (6, 2), "{homes:?}");
    // A sleeping task does not count, nor does a task count for itself.
    policy.quiescent(&mut tasks[0], 0);
    let first = homes[0];
    assert_eq!(policy.state().on_node[first].wanting as usize, on(first) - 1);
    // A task that may run on only one node is at home there.
    Policy::allow(&mut tasks[1], &cpus("3"));
    assert_eq!(policy.pick(&mut tasks[1], Some(0)), 1);
    assert!(!policy.is_open(&mut tasks[1], 0) && policy.is_open(&mut tasks[1], 1));
}

#[test]
fn the_nearest_of_equal_nodes_is_picked_and_rather_one_where_the_task_can_begin() {
    let rows = [vec![10, 30, 20], vec![30, 10, 15], vec![20, 15, 10]];
    let machine = machine("numa:3 core:2").with_distances(&rows).unwrap();
    let mut policy = Policy::new(&machine, machine.online()).unwrap();
    let all = cpus("0-5");
    let mut task = task(&mut policy, &all, 0);
    assert_eq!(policy.pick(&mut task, Some(1)), 1);
    let _one = runs(&mut policy, &all, 1, 2, 0);
    assert_eq!(policy.pick(&mut task, Some(1)), 2, "nearer than node 0");
    // A node with an idle CPU comes first if all have equally many tasks, but not if it has far more.
    let mut others: Vec<Task> = [(1, 3), (2, 4), (2, 5), (0, 0), (0, 1)]
        .map(|(home, cpu)| runs(&mut policy, &all, home, cpu, 0))
        .into();
    policy.idle(1);
    assert_eq!(policy.pick(&mut task, Some(1)), 0);
    others.extend([0, 1].map(|cpu| runs(&mut policy, &all, 0, cpu, 0)));
    policy.idle(1);
    assert_eq!(policy.pick(&mut task, Some(1)), 1);
}

#[test]
fn a_task_that_begins_makes_a_stray_go_home_rather_than_crowd_its_home() {
    let mut policy = policy("numa:2 core:2", "");
    let all = cpus("0-3");
    let _first = runs(&mut policy, &all, 0, 0, 0);
    let _stray = runs(&mut policy, &all, 0, 2, 0);
    let _other = runs(&mut policy, &all, 1, 3, 0);
    // It was forked by a task of node 0 and runs there: once it has left, the stray gets that CPU.
    let mut begins = runs(&mut policy, &all, 0, 1, 0);
    assert_eq!(policy.pick(&mut begins, Some(0)), 1);
    policy.set_home(&mut begins, 1, HomeReason::Exec);
    policy.stopping(&mut begins, 1, MS);
    assert_eq!(policy.enqueue(&mut begins, 1, false, MS), 1);
    assert_eq!(
        (policy.wake(&mut begins, 1, MS), policy.displaces(&mut begins, 1)),
        (None, Some(2))
    );
}

#[test]
fn one_task_that_has_just_begun_in_a_crowd_gets_another_home_once() {
    let mut policy = policy("numa:3 core:2", "");
    let all = cpus("0-5");
    let mut tasks: Vec<Task> = [(0, 0), (0, 1), (0, 2), (1, 3)]
        .map(|(home, cpu)| runs(&mut policy, &all, home, cpu, 0))
        .into();
    for task in &mut tasks {
        let home = task.home as usize;
        policy.set_home(task, home, HomeReason::Exec);
    }
    assert_eq!(policy.reconsiders(&mut tasks[0], 0), None, "nothing is known yet");
    for tick in 1..=60 {
        policy.tick(&mut tasks[3], 3, 1_000 * MS + tick * 10 * MS);
    }
    let mut fresh = |task: &Task| Task { home_ns: 950 * MS, away_ns: 0, ..*task };
    let mut young: Vec<Task> = tasks.iter().map(&mut fresh).collect();
    // Tasks of node 1 have no reason to move; nor does a task with a reported home, one that may not run on the other node, an old one, or
    // one whose memory is at home.
    assert_eq!(policy.reconsiders(&mut young[3], 0), None);
    assert_eq!(policy.reconsiders(&mut young[0], 16 << 20), None);
    for other in [
        Task { why: HomeReason::Told as u8, ..young[0] },
        Task { why: HomeReason::Affinity as u8, ..young[0] },
        Task { away_ns: 60 * MS, ..young[0] },
        Task { allowed: std::array::from_fn(|word| if word == 0 { 0b11 } else { 0 }), ..young[0] },
    ] {
        assert_eq!(policy.reconsiders(&mut { other }, 0), None);
    }
    assert_eq!(
        policy.reconsiders(&mut young[2], (16 << 20) - 1),
        Some(1),
        "the first of those that are as near"
    );
    assert_eq!(policy.reconsiders(&mut young[1], 0), None, "one is enough");
    let demands = [0, 1, 2].map(|node| policy.state().on_node[node].demand);
    assert!(
        (1900..2100).contains(&demands[0]) && (1900..2100).contains(&demands[1]),
        "{demands:?}"
    );
}

#[test]
fn a_task_that_may_run_on_its_home_alone_is_bound_there() {
    let mut policy = policy("numa:2 core:70", "69-139");
    let mut is_bound = |cpus: &str, home| {
        let mut task = Task::default();
        Policy::allow(&mut task, &self::cpus(cpus));
        policy.is_bound(&mut task, home)
    };
    assert!(is_bound("0-69", 0) && is_bound("100", 1));
    assert!(!is_bound("0-139", 0) && !is_bound("0-70", 0) && !is_bound("0-69", 1));
    let mut single = self::policy("numa:1 core:2", "");
    let mut task = Task::default();
    Policy::allow(&mut task, &cpus("0"));
    assert!(!single.is_bound(&mut task, 0), "there is no other");
}

#[test]
fn threads_stay_with_their_process_until_its_home_is_full() {
    let mut policy = policy("numa:3 core:2", "");
    let mut process = Process { home: 1, ..Process::default() };
    let mut homes = Vec::new();
    for _ in 0..9 {
        let mut task = Task::default();
        policy.init_task(&mut task, 100);
        Policy::allow(&mut task, &cpus("0-5"));
        let home = policy.pick_for_thread(&mut task, &mut process);
        process.at_home[home] += 1;
        homes.push(home);
    }
    assert_eq!(homes[..6], [1, 1, 0, 0, 2, 2]);
    let mut rest = homes[6..].to_vec();
    rest.sort_unstable();
    assert_eq!(rest, [0, 1, 2], "then where they are fewest");
}

#[test]
fn nodes_are_known_by_the_systems_numbers() {
    let mut policy = policy("numa:2 core:1", "");
    assert_eq!((policy.node_by_id(1), policy.node_by_id(7)), (Some(1), None));
}

/// A task whose home was reported to be there.
fn told(policy: &mut Policy, home: usize) -> Task {
    let mut task = task(policy, &cpus("0-3"), 0);
    policy.set_home(&mut task, home, HomeReason::Told);
    task
}

/// A task that is being forked, with a home there if it has inherited one.
fn forked(policy: &mut Policy, parent: &mut Task, said: Option<usize>) -> (Task, Option<usize>) {
    let mut child = Task::default();
    policy.init_task(&mut child, 100);
    Policy::allow(&mut child, &cpus("0-3"));
    let home = policy.inherits(&mut child, parent, said);
    if let Some(home) = home {
        policy.set_home(&mut child, home, HomeReason::Told);
        Policy::inherited(&mut child);
    }
    (child, home)
}

#[test]
fn a_told_home_is_handed_down_to_children_and_theirs_and_over_programs() {
    let mut policy = policy("numa:2 core:2", "");
    let mut parent = told(&mut policy, 1);
    assert!(!Policy::keeps_home(&mut parent), "it is asked each time what is told of it");
    let (mut child, home) = forked(&mut policy, &mut parent, Some(1));
    assert_eq!(home, Some(1));
    assert!(Policy::keeps_home(&mut child), "over a program");
    // Nothing is reported for the child itself: that changes nothing, because nothing ever was.
    Policy::untold(&mut child);
    let (mut grandchild, home) = forked(&mut policy, &mut child, None);
    assert_eq!((home, grandchild.why), (Some(1), HomeReason::Told as u8));
    // What is reported for the task itself takes precedence, for its own children too.
    assert_eq!(forked(&mut policy, &mut grandchild, Some(0)).1, Some(0));
    // Not if the task may not run there: for that reason it has been given another home.
    policy.set_home(&mut grandchild, 0, HomeReason::Affinity);
    assert!(!Policy::keeps_home(&mut grandchild));
    Policy::allow(&mut child, &cpus("0-1"));
    assert_eq!(policy.inherits(&mut child, &mut parent, Some(1)), None);
}

#[test]
fn a_home_that_was_taken_back_is_not_handed_down_and_is_not_called_told() {
    let mut policy = policy("numa:2 core:2", "");
    // The task's state does not show yet that the report was taken back.
    let mut parent = told(&mut policy, 1);
    assert_eq!(forked(&mut policy, &mut parent, None).1, None);
    Policy::untold(&mut parent);
    assert_eq!((parent.why, parent.home), (HomeReason::TakenBack as u8, 1), "it stays where it is");
    assert_eq!(forked(&mut policy, &mut parent, None).1, None);
    // Nor does it show yet that a home was reported, or reported once more.
    assert_eq!(forked(&mut policy, &mut parent, Some(1)).1, Some(1));
    assert!(Policy::told_to_stay(&mut parent) && !Policy::told_to_stay(&mut parent));
    assert_eq!(parent.why, HomeReason::Told as u8);
    // A home that it has for another reason is not inherited.
    let mut other = task(&mut policy, &cpus("0-3"), 1);
    let why = other.why;
    Policy::untold(&mut other);
    assert_eq!(other.why, why);
    assert_eq!(forked(&mut policy, &mut other, None).1, None);
}

#[test]
fn what_is_inherited_can_be_told_and_then_taken_back() {
    let mut policy = policy("numa:2 core:2", "");
    let mut parent = told(&mut policy, 1);
    let (mut child, _) = forked(&mut policy, &mut parent, Some(1));
    assert!(Policy::told_to_stay(&mut child));
    Policy::untold(&mut child);
    assert_eq!(child.why, HomeReason::TakenBack as u8);
    assert!(!Policy::keeps_home(&mut child));
    assert_eq!(forked(&mut policy, &mut child, None).1, None);
    // A task that moves elsewhere for another reason no longer has an inherited home.
    let (mut child, _) = forked(&mut policy, &mut parent, Some(1));
    policy.set_home(&mut child, 0, HomeReason::Affinity);
    assert_eq!(forked(&mut policy, &mut child, None).1, None);
}
