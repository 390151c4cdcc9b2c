//! Every lock of the kernel excludes on simulated machines, in any schedule; locks with a mistake do not, and are found.

use super::cna::Cna;
use super::hq::Hq;
use super::osq::{Dynamic, KernelMutex, Osq, Tail2, Tail4};
use super::qspinlock::{LOCKED, Order, QSpinLock, Queue};
use super::roster::{ByL3, ByPackage, Roster, Site};
use super::trigger::{ByDepth, ByHandOvers, HandOver, Trigger};
use super::{DEPTH, Exclusive};
use crate::harness::Host;
use nearq_platform::{Atomic as _, AtomicInt as _, LockPlatform, Ordering, ThreadSpec, Threads};
use nearq_sim::{Outcome, Schedule, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Topology};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

/// What a lock protects, in two parts that are equal whenever no thread is inside.
struct Protected<L>(L, Cell<u32>, Cell<u32>);
// SAFETY: the cells are used under the lock, and simulated threads share one real thread.
unsafe impl<L: Sync> Sync for Protected<L> {}

/// Every thread takes the lock that many times. Returns how often two were inside at once, and how often threads were inside.
fn hammer<L: Exclusive>(topology: &Topology, threads: usize, rounds: u32) -> (u32, u32) {
    let cpus: Vec<usize> = topology.possible().iter().collect();
    let places: Vec<Site> = cpus.iter().map(|&cpu| Site::of(topology, cpu)).collect();
    let lock = L::free(&Roster::new(threads, &places, DEPTH));
    let shared = Arc::new(Protected(lock, Cell::new(0), Cell::new(0)));
    let broken = Arc::new(<Sim as LockPlatform>::AtomicU32::new(0));
    let started: Vec<_> = (0..threads)
        .map(|writer| {
            let (shared, broken) = (Arc::clone(&shared), Arc::clone(&broken));
            let affinity = Some(CpuSet::single(cpus[writer % cpus.len()]));
            let main = move || {
                for round in 0..rounds {
                    shared.0.with(writer, || {
                        let before = shared.1.get();
                        if before != shared.2.get() {
                            broken.fetch_add(1, Ordering::Relaxed);
                        }
                        shared.1.set(before + 1);
                        compute(Duration::from_nanos(u64::from(round % 7) * 50));
                        shared.2.set(before + 1);
                    });
                    compute(Duration::from_nanos(u64::from(round % 5) * 60));
                }
            };
            Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main).expect("a free slot")
        })
        .collect();
    started.into_iter().for_each(Sim::join);
    (broken.load(Ordering::Relaxed), shared.1.get())
}

/// The seed decides on the schedule, and on its choices.
fn run<L: Exclusive>(shape: &str, threads: usize, rounds: u32, seed: u64) -> Outcome<(u32, u32)> {
    let topology = Topology::from_synthetic(shape).expect("the description is well formed");
    let schedules = [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }];
    let of = topology.clone();
    Simulation::new(topology, seed)
        .schedule(schedules[seed as usize % 3])
        .time_limit(Duration::from_secs(20))
        .run(move || hammer::<L>(&of, threads, rounds))
}

/// As many threads as CPUs in four groups, and then more.
fn excludes<L: Exclusive>(name: &str) {
    for seed in 0..nearq_model::bound(24, 600) as u64 {
        let (threads, rounds) = if seed % 4 == 3 { (7, 9) } else { (16, 24) };
        let shape = if threads == 7 { "pack:2 l3:2 core:1" } else { "pack:2 l3:2 core:4" };
        let (broken, inside) = run::<L>(shape, threads, rounds, seed).expect();
        assert_eq!((broken, inside), (0, threads as u32 * rounds), "{name}, seed {seed}");
    }
}

#[test]
fn locks_of_the_kernel_exclude_in_any_schedule() {
    excludes::<QSpinLock<Sim>>("qspinlock");
    excludes::<QSpinLock<Sim, Cna>>("CNA");
    excludes::<Hq<Sim, ByPackage, ByHandOvers>>("HQ by socket");
    excludes::<Hq<Sim, ByL3, ByHandOvers>>("HQ by cache");
    excludes::<Hq<Sim, ByL3, ByDepth>>("HQ by depth");
    excludes::<Hq<Sim, ByL3, Always>>("HQ that always changes");
    excludes::<KernelMutex<Sim, Osq<Sim, Tail4<Sim>>>>("osq");
    excludes::<KernelMutex<Sim, Osq<Sim, Tail2<Sim>>>>("osq of two bytes");
    excludes::<KernelMutex<Sim, Dynamic<Sim>>>("dynamic osq");
}

/// Changes at every hand-over, and back whenever nobody waits.
struct Always;

impl Trigger for Always {
    const NUMBERS_THREADS: bool = false;
    const TURNS_BACK: bool = true;

    fn count<P: LockPlatform>(_: &HandOver<'_, P>) -> u32 {
        1
    }

    fn is_due(_: u32) -> bool {
        true
    }
}

/// The mistake: the last thread in the queue leaves without looking whether another one has come.
struct Hasty;

impl<P: Host> Order<P> for Hasty {
    fn take_last(queue: &Queue<P>, _: u32, _: u32) -> bool {
        queue.word.0.store(LOCKED, Ordering::Relaxed);
        true
    }
}

/// The mistake: the thread in front does not wait until the lock is given back.
struct Pushy;

impl<P: Host> Order<P> for Pushy {
    fn take_last(_: &Queue<P>, _: u32, _: u32) -> bool {
        false
    }

    fn while_busy(queue: &Queue<P>, _: u32) {
        queue.word.0.fetch_and(!LOCKED, Ordering::Relaxed);
    }
}

#[test]
fn planted_mistakes_are_found() {
    // A thread is never told that it is in front.
    let lost = |seed| run::<QSpinLock<Sim, Hasty>>("pack:2 l3:2 core:4", 16, 24, seed).result;
    assert!((0..24).any(|seed| lost(seed).is_none()), "a lost thread is not found");
    let both = |seed| run::<QSpinLock<Sim, Pushy>>("pack:2 l3:2 core:4", 16, 24, seed).result;
    let found = (0..24).any(|seed| both(seed).is_none_or(|(broken, _)| broken > 0));
    assert!(found, "two threads inside are not found");
}

#[test]
fn hand_overs_in_a_row_and_across_groups_change_the_lock() {
    let due = |general: u32, remote: u32| ByHandOvers::is_due(general | remote << 16);
    assert!(due(50, 2) && !due(49, 2) && !due(50, 1));
    assert!(ByDepth::is_due(33) && !ByDepth::is_due(32));
}

#[test]
fn groups_are_numbered_without_gaps() {
    let topology = Topology::from_synthetic("pack:2 numa:2 l3:2 core:4").expect("well formed");
    let places = [0, 9, 17, 31, 30].map(|cpu| Site::of(&topology, cpu));
    let roster = Roster::new(6, &places, DEPTH);
    assert_eq!(roster.groups::<ByPackage>(), [0, 0, 1, 1, 1, 0]);
    assert_eq!(roster.groups::<super::roster::ByNode>(), [0, 1, 2, 3, 3, 0]);
    assert_eq!(roster.groups::<ByL3>(), [0, 1, 2, 3, 3, 0]);
    // 32 CPUs, 4 nodes: clusters of 4, by number.
    assert_eq!(roster.groups::<super::roster::ByCluster>(), [0, 1, 2, 3, 3, 0]);
}
