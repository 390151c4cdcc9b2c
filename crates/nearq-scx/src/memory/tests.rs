//! Decisions about made-up processes, without a kernel.

use std::cell::RefCell;

use super::*;
use nearq_topology::CpuSet;

/// What the kernel would be told.
#[derive(Default)]
struct Fake {
    processes: Vec<(u32, Process)>,
    task: Task,
    told: RefCell<Vec<(u32, Option<Told>)>>,
}

impl Kernel for Fake {
    fn processes(&self) -> Vec<(u32, Process)> {
        self.processes.clone()
    }

    fn task(&self, _: u32) -> Option<Task> {
        Some(self.task)
    }

    fn tell(&self, pid: u32, told: Told) {
        self.told.borrow_mut().push((pid, Some(told)));
    }

    fn forget(&self, pid: u32) {
        self.told.borrow_mut().push((pid, None));
    }
}

/// Two nodes of four CPUs, numbered 0 and 2 by the system.
fn machine() -> (Memory, Box<Nq>) {
    let mut memory = Memory::new();
    let cpus = |text: &str| text.parse::<CpuSet>().unwrap();
    memory.nodes =
        Nodes::pretended(&[(0, cpus("0-3")), (2, cpus("4-7"))], &[vec![10, 20], vec![20, 10]]);
    let machine = Topology::from_synthetic("numa:2 l3:2 core:2").unwrap();
    let mut nq = nearq_scx_policy::describe(&machine, machine.online()).unwrap();
    // As `pretended` numbers them.
    nq.node[1].id = 1;
    (memory, nq)
}

fn process(home: u32, ran: u64) -> Process {
    let mut process = Process { home, threads: 1, ..Process::default() };
    process.at_home[home as usize] = 1;
    process.ran[home as usize] = ran;
    process
}

fn everywhere() -> Task {
    Task { allowed: [u64::MAX; 16], ..Task::default() }
}

fn there() -> Residency {
    Residency { nodes: vec![(1, 200)], bytes: 64 << 20 }
}

/// Looks at a process of one CPU with all its memory on node 1, so many times.
fn considered(memory: &mut Memory, nq: &Nq, kernel: &mut Fake, times: u64) -> Vec<Decision> {
    let mut said = Vec::new();
    let second = Duration::from_secs(1);
    let start = Instant::now();
    memory.began = start;
    for time in 1..=times {
        let now = start + second * time as u32;
        for (_, process) in &mut kernel.processes {
            process.ran[process.home as usize] += 1_000_000_000;
        }
        let (busy, mut places) = memory.follow(nq, kernel, now, second);
        for one in busy {
            let found =
                memory.consider(nq, kernel, now, &one, &there(), 1_000_000_000, &mut places);
            said.extend(found);
        }
    }
    said
}

#[test]
fn a_process_goes_to_its_memory_within_three_looks_and_is_told_so() {
    let (mut memory, nq) = machine();
    let mut kernel =
        Fake { processes: vec![(7, process(0, 0))], task: everywhere(), ..Fake::default() };
    let said = considered(&mut memory, &nq, &mut kernel, 3);
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].what.contains("moved from node 0 to node 1: 0 % of its memory"), "{said:?}");
    assert!(said[0].what.contains("there is room for it on node 1"), "{said:?}");
    assert_eq!(*kernel.told.borrow(), [(7, Some(Told { node: 1, why: WHY_MEMORY }))]);
    // What was told is forgotten once it has been heard.
    kernel.processes[0].1 = process(1, 9);
    let later = Instant::now() + Duration::from_secs(20);
    memory.follow(&nq, &kernel, later, Duration::from_secs(1));
    assert_eq!(kernel.told.borrow().last(), Some(&(7, None)));
}

#[test]
fn one_whose_home_was_told_and_one_that_outgrew_its_node_stay() {
    let (mut memory, nq) = machine();
    let task = Task { why: WHY_TOLD, ..everywhere() };
    let mut kernel = Fake { processes: vec![(7, process(0, 0))], task, ..Fake::default() };
    assert!(considered(&mut memory, &nq, &mut kernel, 5).is_empty());
    let (mut memory, nq) = machine();
    let mut spread = process(0, 0);
    (spread.threads, spread.at_home[0], spread.at_home[1]) = (8, 4, 4);
    let mut kernel = Fake { processes: vec![(7, spread)], task: everywhere(), ..Fake::default() };
    assert!(considered(&mut memory, &nq, &mut kernel, 5).is_empty());
    assert!(kernel.told.borrow().is_empty());
}

#[test]
fn who_rests_is_not_looked_at() {
    let (mut memory, nq) = machine();
    let kernel =
        Fake { processes: vec![(7, process(0, 5)), (8, process(1, 5))], ..Fake::default() };
    let now = Instant::now();
    let second = Duration::from_secs(1);
    memory.follow(&nq, &kernel, now, second);
    let (busy, places) = memory.follow(&nq, &kernel, now + second, second);
    assert!(busy.is_empty());
    assert_eq!((places.len(), places[0].used, places[0].capacity), (2, 0, 4000));
    // Who is gone is forgotten, and a new one of the same number does not count from below zero.
    let fresh = Fake { processes: vec![(7, process(0, 1))], ..Fake::default() };
    let (busy, _) = memory.follow(&nq, &fresh, now + second * 2, second);
    assert!(busy.is_empty() && memory.followed.len() == 1);
}

#[test]
fn where_it_may_not_go_its_memory_is_brought_and_nothing_is_told() {
    let (mut memory, mut nq) = machine();
    nq.node[1].cpus = [0; 16];
    // Pages are on the move: of somebody else.
    let (sender, _orders) = mpsc::sync_channel(1);
    let (_done, receiver) = mpsc::sync_channel(1);
    memory.mover = Some(Pages { sender, receiver, is_busy: true });
    let mut kernel =
        Fake { processes: vec![(7, process(0, 0))], task: everywhere(), ..Fake::default() };
    let said = considered(&mut memory, &nq, &mut kernel, 6);
    assert_eq!(said.len(), 1, "it is said once: {said:?}");
    assert!(
        said[0].what.starts_with(
            "stays on node 0, with 100 % of its memory away: it may not run on node 1"
        ),
        "{said:?}"
    );
    memory.mover.as_mut().unwrap().is_busy = false;
    memory.followed.clear();
    let said = considered(&mut memory, &nq, &mut kernel, 3);
    assert!(said[0].what.starts_with("its memory is brought to its home, node 0"), "{said:?}");
    assert!(kernel.told.borrow().is_empty() && !memory.is_free());
    let order = _orders.try_recv().unwrap();
    assert_eq!((order.pid, order.from, order.to), (7, vec![0, 1], 0));
}

#[test]
fn looking_is_paid_for() {
    let (mut memory, nq) = machine();
    let kernel = Fake::default();
    memory.look(&nq, &kernel);
    assert!(memory.saved <= MOST_SAVED.as_nanos() as i64);
    assert!(memory.log.cpu_ns > 0 && memory.log.looks == 0);
}
