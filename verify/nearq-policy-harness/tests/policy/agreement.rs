//! The policy and `nearq-home` make the same decisions on any machine and under any load, as far as both make them:
//!
//! | decision | policy | `nearq-home` |
//! |---|---|---|
//! | the home of a new task | `nq_pick` | `least_loaded` |
//! | the imbalance at which a task leaves for a CPU that is not idle | `nq_out_of_balance` | `Weights::is_worth_leaving` |
//! | how long a stray stays away, and how much longer if it has to leave again soon | `nq_running`, `nq_tick` | `SoftAffinity` |
//! | whether a stray goes home | `nq_leaves` | `SoftAffinity` |
//! | which tasks leave a crowded node for a third one first: strays, then those at home | `nq_next_group` | `SoftAffinity` |
//!
//! They differ by design, because the kernel knows at once what a process sees once per period:
//!
//! - **What is on a node.** The policy counts tasks that want a CPU now, because it sees each wake-up and each idle CPU. A node where the
//!   task could not begin at once counts as if its load were half as much more. `nearq-home` counts homes, including those of sleeping
//!   tasks, because these come back.
//! - **What a node can do.** The policy counts all online CPUs, because it sees all tasks; `nearq-home` counts those that may be used.
//! - **Distances** count as the next multiple of ten for the policy: its delay for any other node must not be zero. Of nodes at
//!   distance 10 from each other, `nearq-home` takes the first, while the policy stays where it is.
//! - **Room at home.** The policy sends a stray home if its home without it is no more crowded than its current node with it: this is a
//!   step from queue to queue, and an idle CPU of any node ends the wait. `SoftAffinity` counts the stray at home too, because a mask keeps
//!   it there for a period.
//! - **Which node is helped first.** A CPU of the policy chooses between queues, in the document's way if `own_bonus` is set: by load, where
//!   each of its own tasks counts more. `SoftAffinity` samples all nodes at once, and no CPU chooses: all strays that fit come home before
//!   any task is let out. So own tasks always come first, and a bonus would have no effect.
//! - **Times.** For the policy, a task leaves again soon if it does so within a second. For `SoftAffinity` the limit is 400 ms, because all
//!   tasks must be at home within a second of a disturbance's end, and they stay away longer: 40 ms, not 20 ms, its period.
//!
//! Only one side decides the rest. Moving a home to where the memory is is left to `nearq_home::HomeMigration`, which `nearq-scx` uses too.
//! Which task leaves a crowded node is chosen by the CPU that takes it, or by `SoftAffinity`, which lets it out. `nearq-home` knows neither
//! the threads of a process nor tasks that have just begun their program.

use std::time::Duration;

use nearq_home::{Action, NodeLoad, Nodes, Seen, SoftAffinity, least_loaded};
use nearq_policy_harness::Policy;
use nearq_topology::{CpuSet, Topology};
use proptest::prelude::*;

use crate::common::{MS, task};
use crate::properties::config;

/// The maximum number of nodes, and of CPUs of each node.
const NODES: usize = 4;
const CPUS: usize = 3;

/// A set of these CPUs of a machine.
fn some(bits: u32) -> CpuSet {
    (0..NODES * CPUS).filter(|cpu| bits >> cpu & 1 != 0).collect()
}

fn node_cpus(node: usize) -> CpuSet {
    CpuSet::from_range(node * CPUS..(node + 1) * CPUS)
}

/// A machine whose nodes have different distances, in each direction.
fn machine(distances: [[u32; NODES]; NODES]) -> Topology {
    let rows: Vec<Vec<u32>> = (0..NODES)
        .map(|from| {
            (0..NODES).map(|to| if from == to { 10 } else { distances[from][to] }).collect()
        })
        .collect();
    Topology::from_synthetic(&format!("numa:{NODES} core:{CPUS}"))
        .and_then(|machine| machine.with_distances(&rows))
        .expect("a machine")
}

/// How long the policy lets a stray stay away each time, if the stray was at home for these times before it had to leave; all in
/// milliseconds.
fn policys_stays(stay: u32, at_home: &[u64]) -> Vec<u64> {
    let machine = Topology::from_synthetic("numa:2 core:1").unwrap();
    let mut policy = Policy::new(&machine, machine.online()).unwrap();
    policy.weights_mut().stay = u64::from(stay) * MS;
    let mut stray = task(&mut policy, machine.online(), 0);
    let mut now = 10_000 * MS;
    let mut stays = Vec::new();
    policy.running(&mut stray, 0, now);
    for time in at_home {
        now += time * MS;
        policy.stopping(&mut stray, 0, now);
        policy.idle(0);
        policy.running(&mut stray, 1, now);
        let left = now;
        while !policy.tick(&mut stray, 1, now).yields {
            now += MS;
        }
        stays.push((now - left) / MS);
        policy.stopping(&mut stray, 1, now);
        policy.idle(1);
        policy.running(&mut stray, 0, now);
    }
    stays
}

/// The soft affinity of a machine of two nodes, with one task at home on the first one.
struct Kept {
    affinity: SoftAffinity,
    now: Duration,
}

impl Kept {
    fn new(nodes: [usize; 2], stay: u32) -> Self {
        let first = nodes[0];
        let places =
            [(0, CpuSet::from_range(0..first)), (1, CpuSet::from_range(first..first + nodes[1]))];
        let mut weights = nearq_home::Weights::default();
        weights.set("stay_ms", stay).unwrap();
        let mut affinity =
            SoftAffinity::new(Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]), weights);
        affinity.add(0, 0);
        affinity.step(Duration::ZERO, &[NodeLoad::default(); 2], &[]);
        Kept { affinity, now: Duration::ZERO }
    }

    /// Lets that many milliseconds pass, during which the nodes have these tasks. Our task always wants a CPU, and spends that many
    /// thousandths of the time waiting for one.
    fn passes(&mut self, millis: u64, tasks: [usize; 2], waits: u32) -> Vec<Action> {
        let period = Duration::from_millis(millis);
        self.now += period;
        let waited = period * waits / 1000;
        let node = usize::from(self.affinity.out(0).is_some());
        let seen = Seen { id: 0, ran: period.saturating_sub(waited), waited, node };
        let load = |node: usize| {
            let cpus = self.affinity.nodes().get(node).cpus.len();
            NodeLoad {
                runnable: 1000 * tasks[node] as u32,
                idle: 1000 * cpus.saturating_sub(tasks[node]) as u32,
            }
        };
        self.affinity.step(self.now, &[load(0), load(1)], &[seen])
    }

    /// Crowds its home so much that it is let out.
    fn leaves(&mut self, millis: u64) {
        let actions = self.passes(millis, [20, 0], 900);
        assert_eq!(actions, [Action::LetOut { id: 0, to: vec![1] }]);
    }
}

/// The same by `SoftAffinity`.
fn soft_affinitys_stays(stay: u32, at_home: &[u64]) -> Vec<u64> {
    let mut kept = Kept::new([1, 1], stay);
    let stays = at_home.iter().map(|time| {
        kept.leaves(*time);
        let mut stay = 1;
        while kept.passes(1, [0, 1], 0).is_empty() {
            stay += 1;
        }
        stay
    });
    stays.collect()
}

/// Whether a task on the second of two nodes, with these numbers of CPUs, goes home to the first one. The first node has `at_home`
/// tasks, all at home there; the second one has `here`, with the stray. The policy decides when the stray next waits.
fn policy_lets_go(cpus: [usize; 2], at_home: usize, here: usize) -> bool {
    let machine = Topology::from_synthetic(&format!("numa:2 core:{CPUS}")).unwrap();
    let online = CpuSet::from_range(0..cpus[0]).union(&CpuSet::from_range(CPUS..CPUS + cpus[1]));
    let mut policy = Policy::new(&machine, &online).unwrap();
    let mut now = 10_000 * MS;
    let add = |policy: &mut Policy, home: usize, number: usize, cpus: usize| {
        let mut other = task(policy, &online, home);
        if number < cpus {
            policy.running(&mut other, home * CPUS + number, now);
        } else {
            policy.enqueue(&mut other, home * CPUS, false, now);
        }
    };
    let mut stray = task(&mut policy, &online, 0);
    policy.running(&mut stray, CPUS, now);
    (0..at_home).for_each(|number| add(&mut policy, 0, number, cpus[0]));
    (1..here).for_each(|number| add(&mut policy, 1, number, cpus[1]));
    // Until the smoothed loads have settled.
    for _ in 0..100 {
        now += policy.state().weights.period;
        policy.tick(&mut stray, CPUS, now);
    }
    // Ticks may have woken CPUs for waiting tasks.
    (at_home..cpus[0]).for_each(|cpu| policy.idle(cpu));
    policy.leaves(&mut stray, CPUS)
}

/// The same by `SoftAffinity`.
fn soft_affinity_brings_home(cpus: [usize; 2], at_home: usize, here: usize) -> bool {
    let mut kept = Kept::new(cpus, 10);
    kept.leaves(100);
    let waits = 1000 * here.saturating_sub(cpus[1]) / here;
    !kept.passes(100, [at_home, here], waits as u32).is_empty()
}

/// Which of two tasks on the second of three nodes of one CPU goes to the third one, which is idle: whether that is the stray, whose home is
/// the first one. The other one is at home there. They have waited for these parts of 20 ms, in milliseconds.
fn policy_takes_the_stray(waited: [u64; 2], bonus: u64) -> bool {
    let machine = Topology::from_synthetic("numa:3 core:1").unwrap();
    let mut policy = Policy::new(&machine, machine.online()).unwrap();
    policy.weights_mut().own_bonus = bonus;
    let now = 10_000 * MS;
    let mut tasks = [0, 1].map(|home| task(&mut policy, machine.online(), home));
    for (task, waited) in tasks.iter_mut().zip(waited) {
        // They ran there, so that they wait there.
        policy.running(task, 1, now - 20 * MS);
        policy.stopping(task, 1, now - waited * MS);
    }
    // The first node is crowded.
    let mut others = [(); 3].map(|()| task(&mut policy, &CpuSet::single(0), 0));
    policy.running(&mut others[0], 0, now);
    policy.tick(&mut others[0], 0, now);
    for (task, waited) in tasks.iter_mut().zip(waited) {
        assert_eq!(policy.enqueue(task, 1, false, now - waited * MS), 1);
    }
    policy.begin(2);
    let mut taken = None;
    while let (None, Some(take)) = (taken, policy.next(2, false, now)) {
        let mut fits = |number: &usize| policy.fits(&mut tasks[*number], 2, take.which, now);
        taken = (0..2).find(&mut fits).filter(|_| take.llc == 1);
    }
    taken.expect("one of them may leave") == 0
}

/// The same by `SoftAffinity`.
fn soft_affinity_lets_the_stray_out(waited: [u64; 2]) -> bool {
    let places = [0, 1, 2].map(|node| (node, CpuSet::single(node)));
    let distances = [vec![10, 20, 20], vec![20, 10, 20], vec![20, 20, 10]];
    let weights = nearq_home::Weights::default();
    let mut affinity = SoftAffinity::new(Nodes::pretended(&places, &distances), weights);
    let (stray, native) = (0, 1);
    affinity.add(stray, 0);
    affinity.add(native, 1);
    let mut now = Duration::ZERO;
    let mut step = |tasks: [u32; 3], seen: &[Seen]| {
        now += Duration::from_millis(20);
        let load = |tasks: u32| NodeLoad {
            runnable: 1000 * tasks,
            idle: 1000_u32.saturating_sub(1000 * tasks),
        };
        affinity.step(now, &tasks.map(load), seen)
    };
    let seen = |id, node, waited| {
        let waited = Duration::from_millis(waited);
        Seen { id, ran: Duration::from_millis(20).saturating_sub(waited), waited, node }
    };
    step([3, 0, 1], &[]);
    assert_eq!(step([3, 0, 1], &[seen(stray, 0, 14)]), [Action::LetOut { id: stray, to: vec![1] }]);
    let actions = step([3, 2, 0], &[seen(stray, 1, waited[0]), seen(native, 1, waited[1])]);
    assert_eq!(actions.len(), 1, "one has room: {actions:?}");
    actions == [Action::LetOut { id: stray, to: vec![2] }]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8 * config().cases, ..config() })]

    #[test]
    fn strays_leave_a_crowded_node_before_those_at_home_there(
        waited in prop::array::uniform2(5..20_u64),
        bonus in prop::sample::select(vec![0_u64, 1_000]),
    ) {
        prop_assert!(policy_takes_the_stray(waited, bonus));
        prop_assert!(soft_affinity_lets_the_stray_out(waited));
    }

    #[test]
    fn the_same_home_is_picked(
        distances in any::<[[bool; NODES]; NODES]>(),
        step in 1..30_u32,
        online in 1..1_u32 << (NODES * CPUS),
        open in 1..1_u32 << NODES,
        idle in any::<u32>(),
        wanting in prop::array::uniform4(0..5_usize),
        stray in prop::option::of((0..NODES, 0..NODES * CPUS)),
        own in prop::option::of(0..NODES),
        from in 0..NODES,
    ) {
        let machine = machine(distances.map(|row| row.map(|far| if far { 10 + 2 * step } else { 10 + step })));
        let online = some(online);
        let open = (0..NODES).filter(|node| open >> node & 1 != 0);
        let allowed = open.fold(CpuSet::new(), |all, node| all.union(&node_cpus(node)));
        prop_assume!(!allowed.intersection(&online).is_empty());
        let stray = stray.filter(|(home, cpu)| online.contains(*cpu) && cpu / CPUS != *home);
        let idle: CpuSet = some(idle).intersection(&online).iter().filter(|cpu| stray.is_none_or(|(_, at)| at != *cpu)).collect();

        let mut policy = Policy::new(&machine, &online).unwrap();
        (&idle).into_iter().for_each(|cpu| policy.idle(cpu));
        let mut homes = wanting;
        for (home, tasks) in wanting.into_iter().enumerate() {
            for _ in 0..tasks {
                let mut other = task(&mut policy, machine.online(), home);
                policy.runnable(&mut other);
            }
        }
        if let Some((home, cpu)) = stray {
            let mut stray = task(&mut policy, machine.online(), home);
            policy.running(&mut stray, cpu, 0);
            homes[home] += 1;
        }
        let mut picks = task(&mut policy, &allowed, own.unwrap_or(0));
        if own.is_some() {
            // The task does not count for itself.
            policy.runnable(&mut picks);
        }
        let picked = policy.pick(&mut picks, Some(from));

        let nodes = Nodes::of(&machine.clone().with_online(&online), &allowed);
        let id = |index: usize| nodes.get(index).id;
        let begins = |node: usize| stray.is_some_and(|(_, cpu)| cpu / CPUS == node) || !idle.intersection(&node_cpus(node)).is_empty();
        // The load with one more task, and half as much again.
        let load = |index| (homes[id(index)] as u64 + 1) * if begins(id(index)) { 2000 } else { 3000 } - 1000;
        let expected = least_loaded(nodes.len(), load, |index| nodes.get(index).capacity, |index| machine.distance(from, id(index)));
        prop_assert_eq!(picked, id(expected));
    }

    #[test]
    fn the_same_imbalance_is_worth_the_way(
        there in 0..20_000_u32,
        distance in 10..60_u32,
        imbalance in 1..4_000_u32,
        step in 0..2_000_u32,
        percent in 0..100_u32,
    ) {
        let mut policy = Policy::new(&machine([[20; NODES]; NODES]), &some(1)).unwrap();
        let (ours, mut theirs) = (policy.weights_mut(), nearq_home::Weights::default());
        for (name, ours, value) in [
            ("imbalance", &mut ours.imbalance, imbalance),
            ("imbalance_step", &mut ours.imbalance_step, step),
            ("imbalance_percent", &mut ours.imbalance_percent, percent),
        ] {
            prop_assert_eq!(theirs.get(name).map(u64::from), Some(*ours), "{} as it is usually", name);
            theirs.set(name, value).unwrap();
            *ours = value.into();
        }
        let distance_of_ten = distance.next_multiple_of(10);
        let all: Vec<u32> = (there..there + 50_000).collect();
        let least = there + all.partition_point(|here| !theirs.is_worth_leaving(*here, there, distance_of_ten)) as u32;
        prop_assert!(policy.is_out_of_balance(least.into(), there.into(), distance));
        prop_assert!(!policy.is_out_of_balance(u64::from(least) - 1, there.into(), distance));
    }

    #[test]
    fn a_stray_that_leaves_again_soon_stays_away_as_much_longer(
        stay in 1..60_u32,
        // How long it is at home before it has to leave.
        soon in prop::collection::vec(prop_oneof![3 => 1..390_u64, 1 => 1_001..3_000_u64], 1..8),
    ) {
        prop_assert_eq!(policys_stays(stay, &soon), soft_affinitys_stays(stay, &soon));
    }

    #[test]
    fn a_stray_goes_home_in_the_same_crowds(
        cpus in prop::array::uniform2(1..=CPUS),
        at_home in 0..8_usize,
        here in 1..8_usize,
    ) {
        let (policy, affinity) = (policy_lets_go(cpus, at_home, here), soft_affinity_brings_home(cpus, at_home, here));
        let (crowd_at_home, crowd_here) = (at_home * cpus[1], here * cpus[0]);
        // Loads are smoothed: equal loads may differ a little.
        prop_assume!(at_home < cpus[0] || crowd_at_home != crowd_here);
        let is_between = at_home >= cpus[0] && crowd_at_home < crowd_here;
        prop_assert_eq!(policy, affinity || is_between);
    }
}
