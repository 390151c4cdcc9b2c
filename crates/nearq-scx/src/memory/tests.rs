//! Decisions about made-up processes, without a kernel.

use std::cell::RefCell;

use super::*;
use nearq_topology::CpuSet;

/// The hints that the kernel would get.
#[derive(Default)]
struct Fake {
    processes: Vec<(u32, Process)>,
    /// The processes that ran, if they are not too many to list.
    ran: Option<Vec<u32>>,
    task: Task,
    hints: RefCell<Vec<(u32, Option<HomeHint>)>>,
}

impl Kernel for Fake {
    fn processes(&self) -> Vec<(u32, Process)> {
        self.processes.clone()
    }

    fn ran(&self) -> Option<Vec<(u32, Process)>> {
        let ran = self.ran.as_ref()?;
        Some(self.processes.iter().filter(|(pid, _)| ran.contains(pid)).copied().collect())
    }

    fn process(&self, pid: u32) -> Option<Process> {
        Some(self.processes.iter().find(|(other, _)| *other == pid)?.1)
    }

    fn task(&self, _: u32) -> Option<Task> {
        Some(self.task)
    }

    fn set_home_hint(&self, pid: u32, hint: HomeHint) {
        self.hints.borrow_mut().push((pid, Some(hint)));
    }

    fn forget(&self, pid: u32) {
        self.hints.borrow_mut().push((pid, None));
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
    // As `Nodes::pretended` numbers them.
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

fn round<'a>(nq: &'a Nq, kernel: &'a Fake, now: Instant) -> Round<'a, Fake> {
    Round { nq, kernel, now, elapsed: Duration::from_secs(1) }
}

/// Considers a process of one CPU with all its memory on node 1, this many times.
fn considered(memory: &mut Memory, nq: &Nq, kernel: &mut Fake, times: u64) -> Vec<Decision> {
    let mut decisions = Vec::new();
    let start = Instant::now();
    memory.began = start;
    for time in 1..=times {
        let now = start + Duration::from_secs(time);
        for (_, process) in &mut kernel.processes {
            process.ran[process.home as usize] += 1_000_000_000;
        }
        let round = round(nq, kernel, now);
        let (busy, mut nodes_use) = memory.follow(&round);
        for one in busy {
            if !memory.is_due(&round, &one) {
                continue;
            }
            match memory.consider(&round, &one, &there(), &mut nodes_use) {
                Some(Considered::Decided(decision)) => decisions.push(decision),
                Some(Considered::Crowded(other)) => panic!("{other}"),
                None => {}
            }
        }
    }
    decisions
}

#[test]
fn a_process_gets_the_home_of_its_memory_within_three_samples() {
    let (mut memory, nq) = machine();
    let mut kernel =
        Fake { processes: vec![(7, process(0, 0))], task: everywhere(), ..Fake::default() };
    let decisions = considered(&mut memory, &nq, &mut kernel, 3);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    assert!(
        decisions[0].what.contains("moved from node 0 to node 1: 0 % of its memory"),
        "{decisions:?}"
    );
    assert!(decisions[0].what.contains("there is room for it on node 1"), "{decisions:?}");
    assert_eq!(
        *kernel.hints.borrow(),
        [(7, Some(HomeHint { node: 1, why: HomeReason::Memory as u32 }))]
    );
    // A hint is removed once it has taken effect.
    kernel.processes[0].1.home = 1;
    let later = Instant::now() + Duration::from_secs(20);
    memory.follow(&round(&nq, &kernel, later));
    assert_eq!(kernel.hints.borrow().last(), Some(&(7, None)));
}

#[test]
fn processes_with_a_given_home_and_oversized_ones_stay() {
    let (mut memory, nq) = machine();
    let task = Task { why: HomeReason::Told as u8, ..everywhere() };
    let mut kernel = Fake { processes: vec![(7, process(0, 0))], task, ..Fake::default() };
    assert!(considered(&mut memory, &nq, &mut kernel, 5).is_empty());
    let (mut memory, nq) = machine();
    let mut spread = process(0, 0);
    (spread.threads, spread.at_home[0], spread.at_home[1]) = (8, 4, 4);
    let mut kernel = Fake { processes: vec![(7, spread)], task: everywhere(), ..Fake::default() };
    assert!(considered(&mut memory, &nq, &mut kernel, 5).is_empty());
    assert!(kernel.hints.borrow().is_empty());
}

#[test]
fn resting_processes_are_not_examined() {
    let (mut memory, nq) = machine();
    let kernel =
        Fake { processes: vec![(7, process(0, 5)), (8, process(1, 5))], ..Fake::default() };
    let now = Instant::now();
    let second = Duration::from_secs(1);
    memory.follow(&round(&nq, &kernel, now));
    let (busy, nodes_use) = memory.follow(&round(&nq, &kernel, now + second));
    assert!(busy.is_empty());
    assert_eq!((nodes_use.len(), nodes_use[0].used, nodes_use[0].capacity), (2, 0, 4000));
    // A process that is gone is forgotten, and the time of a new process with the same number does not become negative.
    let fresh = Fake { processes: vec![(7, process(0, 1))], ..Fake::default() };
    let (busy, _) = memory.follow(&round(&nq, &fresh, now + second * 2));
    assert!(busy.is_empty() && memory.followed.len() == 1);
}

#[test]
fn running_processes_are_examined_and_ended_ones_are_forgotten() {
    let (mut memory, nq) = machine();
    let mut kernel = Fake {
        processes: vec![(7, process(0, 5)), (8, process(1, 5))],
        ran: Some(vec![7, 8]),
        ..Fake::default()
    };
    let start = Instant::now();
    let at = |second: u64| start + Duration::from_secs(second);
    memory.follow(&round(&nq, &kernel, at(0)));
    memory.followed.get_mut(&8).unwrap().hinted = Some(at(0));
    memory.followed.get_mut(&8).unwrap().stays = true;
    // One process goes on; the other rests, and then it ends.
    kernel.processes[0].1.ran[0] += 1_000_000_000;
    kernel.ran = Some(vec![7]);
    let (busy, _) = memory.follow(&round(&nq, &kernel, at(1)));
    assert_eq!(
        busy.iter().map(|one| (one.pid, one.nanos())).collect::<Vec<_>>(),
        [(7, 1_000_000_000)]
    );
    assert!(!memory.followed[&8].stays && kernel.hints.borrow().is_empty());
    memory.follow(&round(&nq, &kernel, at(4)));
    assert_eq!(*kernel.hints.borrow(), [(8, None)], "hints for resting processes are removed too");
    kernel.processes.pop();
    memory.follow(&round(&nq, &kernel, at(9)));
    assert_eq!(memory.followed.len(), 2, "it is not time yet");
    memory.follow(&round(&nq, &kernel, at(10)));
    assert_eq!(memory.followed.len(), 1);
    // More processes than can be listed.
    kernel.ran = None;
    kernel.processes.push((9, process(0, 5)));
    memory.follow(&round(&nq, &kernel, at(11)));
    assert_eq!(memory.followed.len(), 2);
    // Another process of the same number begins from zero.
    kernel.processes[0].1 = process(1, 1_000_000);
    memory.follow(&round(&nq, &kernel, at(12)));
    assert_eq!((memory.followed[&7].ran[1], memory.followed[&7].migration.home()), (1_000_000, 1));
}

#[test]
fn memory_found_at_home_is_rarely_examined() {
    let (mut memory, nq) = machine();
    let mut kernel =
        Fake { processes: vec![(7, process(0, 0))], task: everywhere(), ..Fake::default() };
    let start = memory.began;
    let due = |memory: &mut Memory, kernel: &mut Fake, second: u64, at_home: u64| {
        kernel.processes[0].1.ran[0] += 1_000_000_000;
        let round = round(&nq, kernel, start + Duration::from_secs(second));
        let (busy, mut nodes_use) = memory.follow(&round);
        let is_due = memory.is_due(&round, &busy[0]);
        if is_due {
            let nodes = vec![(0, at_home), (1, 200 - at_home)];
            memory.followed.get_mut(&7).unwrap().sampled = Some(round.now);
            memory.consider(
                &round,
                &busy[0],
                &Residency { nodes, bytes: 64 << 20 },
                &mut nodes_use,
            );
        }
        is_due
    };
    kernel.processes[0].1.touched = 64 << 20;
    assert!(due(&mut memory, &mut kernel, 1, 150), "a quarter of the memory is away");
    assert!(due(&mut memory, &mut kernel, 2, 190));
    assert!((3..12).all(|second| !due(&mut memory, &mut kernel, second, 190)));
    assert!(due(&mut memory, &mut kernel, 12, 190), "the last sample is old");
    kernel.processes[0].1.touched = 71 << 20;
    assert!(!due(&mut memory, &mut kernel, 13, 190));
    kernel.processes[0].1.touched = 73 << 20;
    assert!(due(&mut memory, &mut kernel, 14, 190), "it has grown");
    assert!(!due(&mut memory, &mut kernel, 15, 190));
    kernel.processes[0].1.touched = u64::MAX;
    assert!(due(&mut memory, &mut kernel, 16, 190), "the amount of memory is unknown");
    kernel.processes[0].1.touched = 73 << 20;
    due(&mut memory, &mut kernel, 17, 190);
    assert!(!due(&mut memory, &mut kernel, 18, 190));
    // The process has another home.
    kernel.processes[0].1 = Process { touched: 73 << 20, ..process(1, 0) };
    kernel.processes[0].1.ran[0] = 20_000_000_000;
    assert!(due(&mut memory, &mut kernel, 19, 190));
}

#[test]
fn a_process_bound_to_its_node_gets_its_memory_moved_and_no_hint() {
    let (mut memory, mut nq) = machine();
    nq.node[1].cpus = [0; 16];
    // Pages of another process are being moved.
    let (pages, orders, done) = Pages::fake();
    memory.pages = pages;
    memory.bring(3, 0, 0);
    let first = orders.try_recv().unwrap();
    let mut kernel =
        Fake { processes: vec![(7, process(0, 0))], task: everywhere(), ..Fake::default() };
    let decisions = considered(&mut memory, &nq, &mut kernel, 6);
    assert_eq!(decisions.len(), 1, "it is logged once: {decisions:?}");
    assert!(
        decisions[0].what.starts_with(
            "stays on node 0, with 100 % of its memory away: it may not run on node 1"
        ),
        "{decisions:?}"
    );
    done.send(Moved { order: first, took: Duration::ZERO, stayed: Ok(9) }).unwrap();
    assert!(memory.moved().unwrap().what.ends_with("except 9 pages"));
    memory.followed.clear();
    let decisions = considered(&mut memory, &nq, &mut kernel, 3);
    assert!(
        decisions[0].what.starts_with("its memory is being moved to its home, node 0"),
        "{decisions:?}"
    );
    assert!(kernel.hints.borrow().is_empty() && memory.pages.moves() == Some(7));
    let order = orders.try_recv().unwrap();
    assert_eq!((order.pid, order.from, order.to), (7, vec![0, 1], 0));
}

/// Three processes that are at home on node 0, each of which was away for a third of the last second, and the decisions about those of them
/// that are sampled.
fn crowd(
    memory: &mut Memory,
    nq: &Nq,
    kernel: &mut Fake,
    now: Instant,
    megabytes: [u64; 3],
) -> Vec<Relocation> {
    for (_, process) in &mut kernel.processes {
        process.ran[0] += 666_000_000;
        process.ran[1] += 334_000_000;
    }
    let round = round(nq, kernel, now);
    let (busy, mut nodes_use) = memory.follow(&round);
    let mut relocations = Vec::new();
    for one in busy {
        let bytes = megabytes[one.pid as usize - 7] << 20;
        let found = Residency { nodes: vec![(0, 190), (1, 10)], bytes };
        match memory.consider(&round, &one, &found, &mut nodes_use) {
            Some(Considered::Crowded(relocation)) => relocations.push(relocation),
            Some(Considered::Decided(other)) => panic!("{other:?}"),
            None => {}
        }
    }
    relocations.sort_by_key(|relocation| relocation.pid);
    relocations
}

const LASTS: u64 = crate::crowd::LASTING_SAMPLES as u64;

/// These processes on two nodes of two CPUs; node 1 has a task of its own.
fn crowded() -> (Memory, Box<Nq>, Fake) {
    let (memory, mut nq) = machine();
    for (on, demand) in nq.on_node.iter_mut().zip([3000, 1000]) {
        (on.capacity, on.demand) = (2 * 1024, demand);
    }
    let processes = (7..10).map(|pid| (pid, process(0, 0))).collect();
    (memory, nq, Fake { processes, task: everywhere(), ..Fake::default() })
}

#[test]
fn a_process_of_a_crowd_gets_another_home_and_its_memory_follows() {
    let (mut memory, nq, mut kernel) = crowded();
    let (pages, orders, done) = Pages::fake();
    memory.pages = pages;
    let start = memory.began;
    let at = |second: u64| start + Duration::from_secs(second);
    for second in 1..LASTS {
        assert!(crowd(&mut memory, &nq, &mut kernel, at(second), [8, 4, 8]).is_empty());
    }
    let relocations = crowd(&mut memory, &nq, &mut kernel, at(LASTS), [8, 4, 8]);
    assert_eq!(relocations.iter().map(|relocation| relocation.pid).collect::<Vec<_>>(), [7, 8, 9]);
    let best = relocations.iter().max_by_key(|relocation| relocation.gain()).unwrap();
    assert_eq!((best.pid, best.away, best.bytes >> 10), (8, 334, 3890));
    let decisions = memory.relocate(&round(&nq, &kernel, at(LASTS)), best).unwrap();
    assert!(decisions.what.starts_with("now has its home on node 1, and its memory moves with it"));
    assert_eq!(
        *kernel.hints.borrow(),
        [(8, Some(HomeHint { node: 1, why: HomeReason::Room as u32 }))]
    );
    let order = orders.try_recv().unwrap();
    assert_eq!((order.pid, order.to), (8, 1));
    // No other process moves while these pages are being moved, and none moves afterwards: the room is taken.
    assert!(crowd(&mut memory, &nq, &mut kernel, at(LASTS + 1), [8, 4, 8]).is_empty());
    assert!(memory.relocate(&round(&nq, &kernel, at(LASTS + 1)), &relocations[0]).is_none());
    done.send(Moved { order, took: Duration::ZERO, stayed: Ok(0) }).unwrap();
    assert!(memory.moved().is_some());
    kernel.processes[1].1.home = 1;
    kernel.processes[1].1.at_home = process(1, 0).at_home;
    memory.crowds.goes(0, 1, 1000);
    assert!(crowd(&mut memory, &nq, &mut kernel, at(LASTS + 2), [8, 4, 8]).is_empty());
}

#[test]
fn a_moved_process_rests_and_one_with_unmovable_memory_stays() {
    for fails in [false, true] {
        let (mut memory, nq, mut kernel) = crowded();
        kernel.processes.truncate(1);
        let (pages, orders, done) = Pages::fake();
        memory.pages = pages;
        let start = memory.began;
        let mut relocations = |second: u64, memory: &mut Memory| {
            let at = start + Duration::from_secs(second);
            crowd(memory, &nq, &mut kernel, at, [8, 8, 8]).pop().inspect(|relocation| {
                memory.relocate(&round(&nq, &kernel, at), relocation);
            })
        };
        let first = (1..=LASTS).filter_map(|second| relocations(second, &mut memory)).count();
        assert_eq!(first, 1);
        let stayed = if fails { Err(std::io::Error::from_raw_os_error(1)) } else { Ok(0) };
        let order = orders.try_recv().unwrap();
        done.send(Moved { order, took: Duration::ZERO, stayed }).unwrap();
        memory.moved().unwrap();
        // Its home is the old one again: it was reset from outside.
        assert!((LASTS + 1..LASTS + 30).all(|second| relocations(second, &mut memory).is_none()));
        assert_eq!(relocations(LASTS + 30, &mut memory).is_some(), !fails);
    }
}

#[test]
fn a_process_stays_if_moving_costs_more_and_this_is_logged_once() {
    let (mut memory, nq, mut kernel) = crowded();
    let start = memory.began;
    let mut decisions = Vec::new();
    for second in 1..LASTS + 8 {
        let at = start + Duration::from_secs(second);
        for relocation in crowd(&mut memory, &nq, &mut kernel, at, [8 << 20; 3]) {
            decisions.extend(memory.relocate(&round(&nq, &kernel, at), &relocation));
        }
    }
    assert_eq!(decisions.len(), 3, "{decisions:?}");
    assert!(decisions[0].what.starts_with("stays on node 0, which is crowded"), "{decisions:?}");
    assert!(kernel.hints.borrow().is_empty());
    // A process whose home was told does not go either.
    kernel.task.why = HomeReason::Told as u8;
    let at = start + Duration::from_secs(LASTS + 8);
    assert!(crowd(&mut memory, &nq, &mut kernel, at, [8; 3]).is_empty());
}

#[test]
fn sampling_is_charged_to_its_budget() {
    let (mut memory, nq) = machine();
    let kernel = Fake::default();
    memory.run_round(&nq, &kernel);
    assert!(memory.saved <= MOST_SAVED.as_nanos() as i64);
    assert!(memory.log.cpu_ns > 0 && memory.log.samples == 0);
}

#[test]
fn the_first_samples_need_no_saved_budget() {
    let (mut memory, nq) = machine();
    let pid = std::process::id();
    let mut kernel = Fake { processes: vec![(pid, process(1, 0))], ..Fake::default() };
    let start = Instant::now();
    for second in 1..=2 {
        let (_, process) = &mut kernel.processes[0];
        process.ran[1] += 1_000_000_000;
        process.touched += 1 << (30 + second);
        let round = round(&nq, &kernel, start + Duration::from_secs(second));
        // Moving takes as long as on a slow machine.
        memory.consider_all(&round, cpu_time().saturating_sub(Duration::from_millis(30)));
        assert_eq!(memory.log.samples, second);
    }
}
