//! `SoftAffinity` with a model of a kernel that shares each node's CPUs evenly among the tasks that may run there.

use super::*;
use nearq_topology::Topology;
use proptest::prelude::*;

/// A task of the model.
#[derive(Clone, Debug)]
struct Model {
    id: u64,
    home: usize,
    /// How much CPU it wants, in thousandths.
    wants: u32,
    to: Vec<usize>,
    used: Duration,
    used_at_home: Duration,
}

/// A machine of nodes on which tasks of the model run, beside pinned tasks of other programs.
struct Kernel {
    affinity: SoftAffinity,
    now: Duration,
    tasks: Vec<Model>,
    /// Hogs of other programs, by node.
    hogs: Vec<u32>,
    actions: Vec<(Duration, Action)>,
    /// How long a CPU idled while a task that could have used it waited.
    idled_in_vain: Duration,
}

impl Kernel {
    fn new(machine: &str) -> Self {
        let machine = Topology::from_synthetic(machine).unwrap();
        let nodes = Nodes::of(&machine, machine.online());
        Kernel {
            hogs: vec![0; nodes.len()],
            affinity: SoftAffinity::new(nodes, Weights::default()),
            now: Duration::ZERO,
            tasks: Vec::new(),
            actions: Vec::new(),
            idled_in_vain: Duration::ZERO,
        }
    }

    fn start(&mut self, home: usize) -> u64 {
        self.start_wanting(home, 1000)
    }

    fn start_wanting(&mut self, home: usize, wants: u32) -> u64 {
        let id = self.tasks.iter().map(|task| task.id + 1).max().unwrap_or(1);
        let (used, used_at_home) = (Duration::ZERO, Duration::ZERO);
        self.tasks.push(Model { id, home, wants, to: vec![home], used, used_at_home });
        self.affinity.add(id, home);
        id
    }

    fn end(&mut self, id: u64) {
        self.tasks.retain(|task| task.id != id);
        self.affinity.remove(id);
    }

    /// Lets some time pass, period by period.
    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            let period = self.affinity.period();
            self.now += period;
            let capacity: Vec<u32> =
                self.affinity.nodes().iter().map(|node| node.capacity).collect();
            // Wide tasks take from each of their nodes in proportion to its CPUs.
            let mut demand: Vec<f64> =
                self.hogs.iter().map(|hogs| f64::from(*hogs) * 1000.0).collect();
            for task in &self.tasks {
                let all: u32 = task.to.iter().map(|node| capacity[*node]).sum();
                for node in &task.to {
                    demand[*node] +=
                        f64::from(task.wants) * f64::from(capacity[*node]) / f64::from(all);
                }
            }
            let share: Vec<f64> = demand
                .iter()
                .zip(&capacity)
                .map(|(demand, capacity)| (f64::from(*capacity) / demand.max(1.0)).min(1.0))
                .collect();
            let mut seen = Vec::new();
            for task in &mut self.tasks {
                let all: u32 = task.to.iter().map(|node| capacity[*node]).sum();
                let (mut ran, mut waited) = (0.0, 0.0);
                for node in &task.to {
                    let part = f64::from(task.wants) * f64::from(capacity[*node]) / f64::from(all);
                    ran += part * share[*node];
                    waited += part * (1.0 - share[*node]);
                    let used = period.mul_f64(part * share[*node] / 1000.0);
                    task.used += used;
                    task.used_at_home += if *node == task.home { used } else { Duration::ZERO };
                }
                seen.push(Seen {
                    id: task.id,
                    ran: period.mul_f64(ran / 1000.0),
                    waited: period.mul_f64(waited / 1000.0),
                    node: task.to[0],
                });
            }
            let loads: Vec<NodeLoad> = demand
                .iter()
                .zip(&capacity)
                .map(|(demand, capacity)| NodeLoad {
                    runnable: *demand as u32,
                    idle: capacity.saturating_sub(*demand as u32),
                })
                .collect();
            // A task waits a fifth of the time, and there is a CPU of which it could use half.
            let in_vain = self.tasks.iter().zip(&seen).any(|(task, seen)| {
                let could_use = |(load, capacity): (&NodeLoad, &u32)| {
                    load.idle >= task.wants.min(1000) / 2 && load.runnable + task.wants <= *capacity
                };
                seen.waited > period / 5 && loads.iter().zip(&capacity).any(could_use)
            });
            if in_vain {
                self.idled_in_vain += period;
            }
            for action in self.affinity.step(self.now, &loads, &seen) {
                match &action {
                    Action::LetOut { id, to } => self.task(*id).to = to.clone(),
                    Action::BringHome { id } => {
                        let task = self.task(*id);
                        task.to = vec![task.home];
                    }
                }
                self.actions.push((self.now, action));
            }
        }
    }

    fn task(&mut self, id: u64) -> &mut Model {
        self.tasks.iter_mut().find(|task| task.id == id).expect("it is alive")
    }

    /// The part of the CPU time of the next second that is used at home, in percent.
    fn home_percent(&mut self) -> f64 {
        let before: Vec<_> = self.tasks.iter().map(|task| (task.used, task.used_at_home)).collect();
        self.run(Duration::from_secs(1));
        let (mut used, mut at_home) = (Duration::ZERO, Duration::ZERO);
        for (task, before) in self.tasks.iter().zip(before) {
            used += task.used.saturating_sub(before.0);
            at_home += task.used_at_home.saturating_sub(before.1);
        }
        100.0 * at_home.as_secs_f64() / used.as_secs_f64()
    }

    fn used(&self) -> Duration {
        self.tasks.iter().map(|task| task.used).sum()
    }
}

const SECOND: Duration = Duration::from_secs(1);

#[test]
fn an_overloaded_home_lets_tasks_out_and_takes_them_back() {
    let mut kernel = Kernel::new("numa:2 core:2");
    let ids: Vec<u64> = (0..4).map(|_| kernel.start(0)).collect();
    kernel.run(10 * SECOND);
    // All four CPUs are used from the second period on.
    assert!(kernel.used() >= Duration::from_millis(39_600), "{:?}", kernel.used());
    assert_eq!(kernel.actions.len(), 2, "{:?}", kernel.actions);
    assert_eq!(kernel.affinity.count_out(), 2);
    for pair in [[0, 1], [2, 3]] {
        // It does not matter which of them leaves.
        let mut kernel2 = Kernel::new("numa:2 core:2");
        for _ in 0..4 {
            kernel2.start(0);
        }
        kernel2.run(2 * SECOND);
        for index in pair {
            kernel2.end(ids[index]);
        }
        kernel2.run(SECOND);
        assert_eq!(kernel2.affinity.count_out(), 0);
        assert!(kernel2.home_percent() > 99.0);
    }
}

#[test]
fn a_stray_moves_on_before_a_task_at_home_there_is_let_out() {
    let machine = Topology::from_synthetic("numa:3 core:1").unwrap();
    let nodes = Nodes::of(&machine, machine.online());
    let mut affinity = SoftAffinity::new(nodes, Weights::default());
    let (native, stray) = (1, 2);
    affinity.add(native, 1);
    affinity.add(stray, 0);
    let seen = |id, node, waited| {
        let waited = Duration::from_millis(waited);
        Seen { id, ran: Duration::from_millis(20).saturating_sub(waited), waited, node }
    };
    let mut now = Duration::ZERO;
    let mut step = |tasks: [u32; 3], seen: &[Seen]| {
        let load = |tasks: u32| NodeLoad {
            runnable: 1000 * tasks,
            idle: 1000_u32.saturating_sub(1000 * tasks),
        };
        now += Duration::from_millis(20);
        affinity.step(now, &tasks.map(load), seen)
    };
    step([3, 0, 1], &[]);
    let out = step([3, 0, 1], &[seen(stray, 0, 12)]);
    assert_eq!(out, [Action::LetOut { id: stray, to: vec![1] }]);
    // Both wait, and the one that is at home waits more.
    let out = step([3, 2, 0], &[seen(native, 1, 12), seen(stray, 1, 8)]);
    assert_eq!(out, [Action::LetOut { id: stray, to: vec![2] }]);
}

#[test]
fn strays_that_occupy_each_others_homes_return_together() {
    let machine = Topology::from_synthetic("numa:3 core:1").unwrap();
    let nodes = Nodes::of(&machine, machine.online());
    // The number of tasks per CPU: one, and each task is on the home of the next; and three, of which two are of each node.
    for each in [1, 3] {
        let mut affinity = SoftAffinity::new(nodes.clone(), Weights::default());
        let mut now = Duration::ZERO;
        let at = |node, runnable| {
            let mut loads = [NodeLoad { runnable: 1000 * each, idle: 0 }; 3];
            loads[node] = NodeLoad { runnable, idle: 1000_u32.saturating_sub(runnable) };
            loads
        };
        let seen = |id: u64, node, ran, waited| {
            let (ran, waited) = (Duration::from_millis(ran), Duration::from_millis(waited));
            Seen { id, ran, waited, node }
        };
        let mut step = |affinity: &mut SoftAffinity, period, loads: &[NodeLoad], seen: &[Seen]| {
            now += Duration::from_millis(period);
            affinity.step(now, loads, seen)
        };
        (0..3).for_each(|id| affinity.add(id, id as usize));
        // The load changes so quickly that no task has been away long enough to come back.
        step(&mut affinity, 10, &at(0, 0), &[]);
        for id in 0..3 {
            let (home, next) = (id as usize, (id as usize + 1) % 3);
            let mut loads = at(next, 0);
            loads[home].runnable = 2500;
            let actions = step(&mut affinity, 10, &loads, &[seen(id, home, 2, 8)]);
            assert!(actions.contains(&Action::LetOut { id, to: vec![next] }), "{id}: {actions:?}");
        }
        assert_eq!(affinity.count_out(), 3);
        let full = [NodeLoad { runnable: 1000 * each, idle: 0 }; 3];
        let where_they_are: Vec<Seen> =
            (0..3).map(|id| seen(id, (id as usize + 1) % 3, 100, 0)).collect();
        let actions = step(&mut affinity, 100, &full, &where_they_are);
        assert_eq!(actions.len(), 3, "{each}: {actions:?}");
        assert_eq!(affinity.count_out(), 0);
    }
    // A task whose home does not become free stays, and so does a task that waits for it; the others return.
    let weights = Weights::default();
    let mut view = View {
        nodes: &nodes,
        weights: &weights,
        runnable: vec![2000, 1000, 1000],
        idle: vec![0; 3],
    };
    let stray = |id, at, home| Stray { id, at, home, demand: 1000 };
    assert_eq!(view.exchange(vec![stray(1, 1, 0), stray(2, 2, 1)]), Vec::<u64>::new());
    assert_eq!(view.runnable, [2000, 1000, 1000]);
    assert_eq!(view.exchange(vec![stray(1, 1, 0), stray(2, 2, 1), stray(3, 1, 2)]), [2, 3]);
}

#[test]
fn hogs_that_come_and_go_leave_tasks_at_home() {
    for tasks in [4, 8] {
        let mut kernel = Kernel::new("numa:2 core:2");
        for task in 0..tasks {
            kernel.start(task % 2);
        }
        kernel.run(2 * SECOND);
        assert!(kernel.actions.is_empty(), "{:?}", kernel.actions);
        kernel.hogs[1] = 4;
        kernel.run(6 * SECOND);
        kernel.hogs[1] = 0;
        kernel.run(SECOND);
        assert!(kernel.home_percent() > 99.0, "{tasks}");
        assert!(kernel.actions.len() <= 2 * tasks, "{:?}", kernel.actions);
        assert!(kernel.idled_in_vain < Duration::from_millis(200), "{:?}", kernel.idled_in_vain);
    }
}

#[test]
fn the_nearest_idle_node_is_taken_first() {
    let rows = [vec![10, 32, 20], vec![32, 10, 20], vec![20, 20, 10]];
    let machine = Topology::from_synthetic("numa:3 core:1").unwrap().with_distances(&rows).unwrap();
    let mut kernel = Kernel::new("numa:3 core:1");
    kernel.affinity = SoftAffinity::new(Nodes::of(&machine, machine.online()), Weights::default());
    kernel.start(0);
    kernel.start(0);
    kernel.run(SECOND);
    assert_eq!(kernel.actions.len(), 1);
    assert!(matches!(&kernel.actions[0].1, Action::LetOut { to, .. } if *to == [2]));
    // That node gets work of its own: the stray would be no more crowded at home, and goes from home to the other node.
    kernel.start(2);
    kernel.start(2);
    kernel.run(SECOND);
    assert!(kernel.idled_in_vain < SECOND / 2, "{:?} {:?}", kernel.idled_in_vain, kernel.actions);
    assert_eq!(kernel.affinity.count_out(), 1, "{:?}", kernel.actions);
}

#[test]
fn a_task_that_has_outgrown_its_home_may_use_more_nodes() {
    let mut kernel = Kernel::new("numa:4 core:2");
    let id = kernel.start_wanting(1, 5000);
    kernel.run(SECOND);
    assert_eq!(kernel.affinity.out(id), Some(&[1, 0, 2][..]));
    kernel.task(id).wants = 1500;
    kernel.run(SECOND);
    assert_eq!(kernel.affinity.out(id), None);
}

#[test]
fn on_one_node_no_task_is_moved() {
    let mut kernel = Kernel::new("core:2");
    for _ in 0..8 {
        kernel.start(0);
    }
    kernel.run(SECOND);
    assert!(kernel.actions.is_empty());
    assert_eq!(kernel.affinity.period(), Duration::from_millis(100));
}

/// The events of a random sequence.
#[derive(Clone, Debug)]
enum Event {
    Start(usize, u32),
    End(usize),
    Hogs(usize, u32),
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        3 => (0_usize..3, 200_u32..1001).prop_map(|(home, wants)| Event::Start(home, wants)),
        2 => (0_usize..16).prop_map(Event::End),
        1 => (0_usize..3, 0_u32..6).prop_map(|(node, hogs)| Event::Hogs(node, hogs)),
    ];
    prop::collection::vec(event, 1..24)
}

proptest! {
    /// Whatever tasks come and go, CPUs idle needlessly only for some periods after each event, no task swings without end, and all tasks
    /// are at home within a second once the other tasks are gone and all homes have capacity.
    #[test]
    fn work_is_conserved_and_strays_return(events in events()) {
        let mut kernel = Kernel::new("numa:3 core:2");
        for event in events {
            match event {
                Event::Start(home, wants) if kernel.tasks.len() < 12 => {
                    kernel.start_wanting(home, wants);
                }
                Event::Start(..) => {}
                Event::End(index) => {
                    if let Some(task) = kernel.tasks.get(index) {
                        let id = task.id;
                        kernel.end(id);
                    }
                }
                Event::Hogs(node, hogs) => kernel.hogs[node] = hogs,
            }
            kernel.run(SECOND / 2);
            let before = kernel.idled_in_vain;
            let actions = kernel.actions.len();
            kernel.run(2 * SECOND);
            let vain = kernel.idled_in_vain.saturating_sub(before);
            prop_assert!(vain <= Duration::from_millis(200), "{vain:?} of 2 s in vain");
            prop_assert!(kernel.actions.len() - actions < 40, "swings: {:?}", &kernel.actions[actions..]);
        }
        kernel.hogs.fill(0);
        while kernel.tasks.len() > 3 {
            let id = kernel.tasks[0].id;
            kernel.end(id);
        }
        let mut crowd = [0; 3];
        for task in &kernel.tasks {
            crowd[task.home] += task.wants;
        }
        kernel.run(SECOND);
        if crowd.iter().all(|crowd| *crowd <= 2000) {
            prop_assert_eq!(kernel.affinity.count_out(), 0);
        }
    }
}
