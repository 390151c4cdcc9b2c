//! Properties that always hold while tasks are forked, sleep, wake up, are pinned, weighted and given homes on CPUs that come and go.

use crate::common::{MS, Model, STEP, State, TICK};
use nearq_topology::CpuSet;
use proptest::prelude::*;

/// Machines: one cache, caches on one node, SMT, nodes of one cache, of several, of one CPU each.
const MACHINES: [&str; 6] = [
    "core:3",
    "l3:2 core:2",
    "l3:2 core:2 pu:2",
    "numa:2 core:2",
    "numa:2 l3:2 core:2",
    "numa:4 core:1",
];
/// The kernel's weights for nice 19, 10, 0, -5 and -20.
const WEIGHTS: [u32; 5] = [1, 11, 100, 305, 8668];

#[derive(Clone, Debug)]
enum Op {
    Fork { weight: usize, pinned: u16, works: u64, sleeps: u64 },
    Wake(usize),
    WakeWhile(usize, usize),
    Sleep(usize),
    End(usize),
    Affinity(usize, u16),
    Weight(usize, usize),
    Home(usize, usize),
    Online(usize, bool),
    Run(u64),
}

fn op() -> impl Strategy<Value = Op> {
    // Three of four may run anywhere.
    let mask = prop_oneof![3 => Just(u16::MAX), 1 => any::<u16>()];
    let task = 0..64_usize;
    prop_oneof![
        6 => (0..WEIGHTS.len(), mask.clone(), 1..40_u64, prop_oneof![2 => Just(0), 1 => 1..20_u64])
            .prop_map(|(weight, pinned, works, sleeps)| Op::Fork {
                weight, pinned, works: works * STEP, sleeps: sleeps * STEP
            }),
        3 => task.clone().prop_map(Op::Wake),
        3 => (task.clone(), task.clone()).prop_map(|(task, other)| Op::WakeWhile(task, other)),
        2 => task.clone().prop_map(Op::Sleep),
        2 => task.clone().prop_map(Op::End),
        2 => (task.clone(), mask).prop_map(|(task, mask)| Op::Affinity(task, mask)),
        1 => (task.clone(), 0..WEIGHTS.len()).prop_map(|(task, weight)| Op::Weight(task, weight)),
        1 => (task, 0..4_usize).prop_map(|(task, node)| Op::Home(task, node)),
        2 => (0..8_usize, any::<bool>()).prop_map(|(cpu, online)| Op::Online(cpu, online)),
        8 => (1..60_u64).prop_map(|time| Op::Run(time * MS)),
    ]
}

/// The machine's CPUs in a mask; all of the machine's CPUs if none of these is online.
fn cpus(model: &Model, mask: u16) -> CpuSet {
    let of_mask = |cpu: &usize| mask >> (cpu % 16) & 1 != 0;
    let set: CpuSet = model.all().iter().filter(of_mask).collect();
    if set.iter().any(|cpu| model.cpus[cpu].online) { set } else { model.all() }
}

/// How much more a waiting task counts for its home's CPUs: not at all, as in the document of 2003, much more.
const BONUSES: [u64; 3] = [0, 1_000, 100_000];

/// Carries out all steps, and calls `each` after each one.
fn play(machine: &str, bonus: u64, ops: &[Op], mut each: impl FnMut(&Model)) -> Model {
    let mut model = Model::new(machine);
    model.policy.weights_mut().own_bonus = bonus;
    for op in ops {
        let count = model.threads.len().max(1);
        let some = |task: &usize| (!model.threads.is_empty()).then_some(task % count);
        match op {
            Op::Fork { weight, pinned, works, sleeps } => {
                if model.threads.len() < 40 {
                    let cpus = cpus(&model, *pinned);
                    model.fork(WEIGHTS[*weight], &cpus, *works, *sleeps);
                }
            }
            Op::Wake(task) => {
                if let Some(task) = some(task) {
                    model.wake(task);
                }
            }
            Op::WakeWhile(task, other) => {
                if let (Some(task), Some(other)) = (some(task), some(other)) {
                    model.wake_while(task, Some(other));
                }
            }
            Op::Sleep(task) => {
                if let Some(task) = some(task) {
                    model.sleep(task);
                }
            }
            Op::End(task) => {
                if let Some(task) = some(task) {
                    model.end(task);
                }
            }
            Op::Affinity(task, mask) => {
                if let Some(task) = some(task) {
                    let cpus = cpus(&model, *mask);
                    model.set_affinity(task, &cpus);
                }
            }
            Op::Weight(task, weight) => {
                if let Some(task) = some(task) {
                    model.set_weight(task, WEIGHTS[*weight]);
                }
            }
            Op::Home(task, node) => {
                let node = node % model.policy.state().nodes as usize;
                if let Some(task) = some(task) {
                    model.set_home(task, node);
                }
            }
            Op::Online(cpu, online) => {
                let cpu = cpu % model.cpus.len();
                model.set_online(cpu, *online);
            }
            Op::Run(time) => {
                for _ in 0..time / STEP {
                    model.step();
                    each(&model);
                }
            }
        }
        model.check();
    }
    model
}

/// How long a task may wait: it has its turn when all others have got as far as it has, or after two seconds, whatever their weights are.
/// After that, every 20 ms, at the end of a slice, each CPU takes one of the tasks that have waited that long; the slice that runs at that
/// time is added.
fn longest_wait(model: &Model) -> u64 {
    let wanting = model.threads.iter().filter(|thread| thread.state != State::Ended).count() as u64;
    // It runs on for up to four slices if the idle CPU that was woken for the waiting tasks is one on which none of them may run.
    let slice = 4 * model.policy.state().weights.busy_slice + TICK + STEP;
    2_000 * MS + (wanting + 1) * (20 * MS + slice)
}

/// In debug builds a case takes about 10 ms. With the variable `NEARQ_LONG` in the environment, more cases are run.
pub(crate) fn config() -> ProptestConfig {
    let cases = if std::env::var_os("NEARQ_LONG").is_some() { 960 } else { 32 };
    ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// No CPU is idle beyond the delay for its distance while a task that it may run waits: each tick wakes one idle CPU, in turn, so it
    /// may take as many ticks as there are pairs of a CPU and a task until the right pair meets.
    #[test]
    fn work_is_conserved(
        machine in prop::sample::select(&MACHINES[..]),
        bonus in prop::sample::select(&BONUSES[..]),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        play(machine, bonus, &ops, |model| {
            let most = TICK * (model.cpus.len() as u64 + 1);
            let wasted = model.wasted();
            assert!(wasted <= most, "{} ms", wasted / MS);
        });
    }

    /// No task waits longer than the bound; a task that still waits at the end gets a CPU within it.
    #[test]
    fn nobody_starves(
        machine in prop::sample::select(&MACHINES[..]),
        bonus in prop::sample::select(&BONUSES[..]),
        ops in prop::collection::vec(op(), 1..60),
    ) {
        let mut model = play(machine, bonus, &ops, |_| {});
        for _ in 0..6_000 * MS / STEP {
            model.step();
        }
        let bound = longest_wait(&model);
        for (number, thread) in model.threads.iter().enumerate() {
            let waits = match thread.state {
                State::Waits { .. } => model.now - thread.since,
                _ => 0,
            };
            let longest = waits.max(thread.longest_wait);
            prop_assert!(longest <= bound, "{number} of weight {}: {} ms", thread.task.weight, longest / MS);
        }
    }

    /// The clock of a cache and a task's own time on one clock never go back, except for what sleeping gives.
    #[test]
    fn virtual_time_goes_on(
        machine in prop::sample::select(&MACHINES[..]),
        bonus in prop::sample::select(&BONUSES[..]),
        ops in prop::collection::vec(op(), 1..40),
    ) {
        let mut clocks: Vec<u64> = Vec::new();
        play(machine, bonus, &ops, |model| {
            let state = model.policy.state();
            let now: Vec<u64> = (0..state.llcs as usize).map(|llc| state.on_llc[llc].vnow).collect();
            for (before, now) in clocks.iter().zip(&now) {
                assert!(now >= before, "a clock went back");
            }
            clocks = now;
        });
    }
}

#[test]
fn a_task_for_which_another_node_has_an_idle_cpu_waits_for_the_delay_and_a_tick() {
    let mut model = Model::new("numa:2 core:2");
    let node: CpuSet = "0-1".parse().unwrap();
    for _ in 0..2 {
        model.fork(100, &node, MS, 0);
    }
    // Its home is full, and the other node is not open to it yet.
    let third = model.fork(100, &node, MS, 0);
    model.run(40 * MS);
    assert!(model.node_of_task(third).is_none_or(|node| node == 0));
    let all = model.all();
    model.set_affinity(third, &all);
    // It may be on a CPU; when its slice is over it waits, and then the other node may take it.
    let weights = model.policy.state().weights;
    model.run(4 * weights.busy_slice + TICK + weights.steal_delay + TICK + 2 * STEP);
    assert_eq!((model.wasted(), model.node_of_task(third)), (0, Some(1)));
    let running = model.threads.iter().filter(|t| matches!(t.state, State::Runs(_))).count();
    assert_eq!(running, 3);
}

#[test]
fn a_cpu_that_becomes_idle_does_not_miss_a_task_on_its_way_to_a_queue() {
    let mut model = Model::new("core:1");
    let all = model.all();
    let first = model.fork(100, &all, MS, 0);
    let second = model.fork(100, &all, MS, 0);
    model.run(20 * MS);
    model.sleep(second);
    assert!(model.runs_on(first).is_some());
    // It searched for an idle CPU, found none, and was not in the queue when the CPU searched there.
    model.wake_while(second, Some(first));
    assert_eq!(model.runs_on(second), Some(0));
}

#[test]
fn a_task_that_comes_to_a_long_crowded_cpu_does_not_wait_for_others_to_catch_up() {
    // Four share a CPU for a minute, while the others of its cache have one each.
    let mut model = Model::new("core:4");
    let first: CpuSet = "0".parse().unwrap();
    for _ in 0..4 {
        model.fork(100, &first, MS, 0);
    }
    for cpu in 1..4 {
        model.fork(100, &CpuSet::single(cpu), MS, 0);
    }
    model.run(60_000 * MS);
    let late = model.fork(100, &first, MS, 0);
    model.run(2_000 * MS);
    assert!(model.threads[late].task.home_ns > 0, "it has run");
}

#[test]
fn a_light_task_runs_within_seconds_beside_heavy_ones() {
    for heavy in [1, 3, 10] {
        let mut model = Model::new("core:1");
        let all = model.all();
        let light = model.fork(1, &all, MS, 0);
        model.run(500 * MS);
        let before = model.threads[light].task.home_ns;
        for _ in 0..heavy {
            model.fork(8668, &all, MS, 0);
        }
        model.run(1_000 * MS);
        let before_long = model.threads[light].task.home_ns;
        assert!(before_long - before < 100 * MS, "{}", before_long - before);
        model.run(8_000 * MS);
        let ran = model.threads[light].task.home_ns - before_long;
        assert!(
            ran > 0,
            "beside {heavy}: the kernel ejects a scheduler that lets a task wait for ten seconds"
        );
        assert!(ran < 100 * MS, "{ran}");
    }
}
