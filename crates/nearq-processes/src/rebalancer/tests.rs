//! Tests the rebalancer with real processes, on two CPUs that represent two nodes.

use super::*;
use nearq_platform::Placement;

use std::process::{Child, Command};

use crate::skipped::skipped;

/// Processes that spin, and end with the test.
struct Spinners(Vec<Child>);

impl Drop for Spinners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Spinners {
    fn start(count: usize, cpus: &CpuSet) -> Self {
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let spinners = Spinners((0..count).map(|_| spin()).collect());
        for child in &spinners.0 {
            Linux::set_affinity_of(child.id(), cpus).unwrap();
        }
        spinners
    }

    fn end(&mut self, process: u32) {
        let child = self.0.iter_mut().find(|child| child.id() == process).unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// Two of the CPUs that may be used, as nodes; `None` on a machine with one CPU.
fn two_nodes() -> Option<Nodes> {
    let allowed = Linux::affinity(Linux::current_thread()).unwrap();
    let cpus: Vec<usize> = allowed.iter().take(2).collect();
    let [first, second] = *cpus else {
        skipped("a second node", "there is one CPU", "allow two CPUs");
        return None;
    };
    let places = [(0, CpuSet::single(first)), (0, CpuSet::single(second))];
    Some(Nodes::pretended(&places, &[vec![10, 20], vec![20, 10]]))
}

/// Steps until a condition holds.
fn until(rebalancer: &mut Rebalancer, events: &mut Vec<Event>, is_so: impl Fn(&[Event]) -> bool) {
    let begin = Instant::now();
    while !is_so(events) {
        std::thread::sleep(rebalancer.period().unwrap());
        events.extend(rebalancer.step());
        assert!(
            begin.elapsed() < Duration::from_secs(100),
            "{events:?} {:?}",
            rebalancer.node_loads()
        );
    }
}

#[test]
fn a_crowded_home_releases_processes_and_takes_them_back() {
    let Some(nodes) = two_nodes() else { return };
    let home = nodes.get(0).cpus.clone();
    let mut spinners = Spinners::start(8, &home);
    let mut rebalancer = Rebalancer::new(nodes.clone(), Weights::default());
    let ids: Vec<u32> = spinners.0.iter().map(Child::id).collect();
    for process in &ids {
        rebalancer.add((*process).into(), *process, 0, true);
    }
    assert_eq!(rebalancer.loads()[0].homes, 8000);
    let mut events = Vec::new();
    until(&mut rebalancer, &mut events, |events| {
        events.iter().any(|event| matches!(event, Event::LetOut { .. }))
    });
    let Some(Event::LetOut { id, to }) =
        events.iter().find(|event| matches!(event, Event::LetOut { .. })).cloned()
    else {
        unreachable!()
    };
    // Other programs may use most of the other CPU: then the task may run on both.
    assert!(to.contains(&1), "{to:?}");
    let let_out_process = u32::try_from(id).unwrap();
    // The task may have come home by now; its threads may run on the CPUs that the rebalancer reports.
    let expected = rebalancer.out(id).map_or(home.clone(), |places| nodes.cpus_of(places));
    assert_eq!(Linux::affinity_of(let_out_process).unwrap(), expected);
    // All other tasks end, so there is free capacity at home.
    for process in ids.iter().filter(|process| **process != let_out_process) {
        spinners.end(*process);
        rebalancer.remove((*process).into());
    }
    let begin = Instant::now();
    // Other programs may use the CPU, whatever the test does: then there is no free capacity.
    let mut steps_with_space = 0;
    while rebalancer.out(id).is_some() {
        std::thread::sleep(rebalancer.period().unwrap());
        events.extend(rebalancer.step());
        steps_with_space += u32::from(rebalancer.node_loads()[0].runnable == 0);
        let state = (&events, rebalancer.node_loads());
        assert!(steps_with_space < 10, "the home had idle CPUs: {state:?}");
        if begin.elapsed() > Duration::from_secs(100) {
            let how = "run the tests on a machine that is not busy";
            return skipped("coming home", "others have the CPU", how);
        }
    }
    assert_eq!(Linux::affinity_of(let_out_process).unwrap(), home);
    let account = rebalancer.remove(id).unwrap();
    assert!(account.let_out >= 1 && account.let_out == account.brought_home, "{account:?}");
    assert!(
        account.out > Duration::ZERO && account.cpu_time.iter().sum::<Duration>() > Duration::ZERO
    );
}

#[test]
fn a_process_that_chose_its_cpus_is_left_alone() {
    let Some(nodes) = two_nodes() else { return };
    let both = nodes.cpus();
    let spinners = Spinners::start(2, &nodes.get(0).cpus);
    let mut rebalancer = Rebalancer::new(nodes.clone(), Weights::default());
    let [independent, managed] = [0, 1].map(|index: usize| spinners.0[index].id());
    for process in [independent, managed] {
        rebalancer.add(process.into(), process, 0, true);
    }
    Linux::set_affinity_of(independent, &both).unwrap();
    let let_out = |process: u32| Action::LetOut { id: process.into(), to: vec![1] };
    assert_eq!(
        rebalancer.act(let_out(independent)),
        Some(Event::LeftAlone { id: independent.into() })
    );
    assert_eq!(Linux::affinity_of(independent).unwrap(), both);
    let out = Event::LetOut { id: managed.into(), to: vec![1] };
    assert_eq!(rebalancer.act(let_out(managed)), Some(out));
    assert_eq!(Linux::affinity_of(managed).unwrap(), nodes.get(1).cpus);
    assert_eq!(
        (rebalancer.affinity.home(independent.into()), rebalancer.affinity.home(managed.into())),
        (None, Some(0))
    );
}

#[test]
fn nothing_is_observed_on_one_node() {
    let all = Linux::affinity(Linux::current_thread()).unwrap();
    let nodes = Nodes::pretended(&[(0, all)], &[vec![10]]);
    let mut rebalancer = Rebalancer::new(nodes, Weights::default());
    rebalancer.add(1, std::process::id(), 0, true);
    assert_eq!((rebalancer.period(), rebalancer.step()), (None, Vec::new()));
}

#[test]
fn an_ended_process_has_an_account() {
    let Some(nodes) = two_nodes() else { return };
    let mut rebalancer = Rebalancer::new(nodes, Weights::default());
    rebalancer.add(7, u32::MAX / 4, 1, true);
    rebalancer.step();
    assert_eq!(rebalancer.account(7).unwrap().home, 1);
    assert_eq!(rebalancer.tasks().count(), 1);
    assert_eq!(rebalancer.remove(7).unwrap().last, None);
    assert_eq!(rebalancer.remove(7), None);
}
