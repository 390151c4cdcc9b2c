//! Everything that a program and its administrator can do, at random, under every schedule, with and without faults:
//! the program always ends with the right result, CPU time adds up, and a seed is a replay.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::Mutex;
use nearq_model::bound;
use nearq_platform::{
    Atomic, AtomicInt, LockPlatform, Ordering, Parker, Placement, SchedPolicy, ThreadSpec, Threads,
};
use nearq_sim::{AtomicU32, Faults, Schedule, Sim, Simulation, compute};
use nearq_topology::{CpuSet, Limits, Quota, Topology};

const THREADS: usize = 24;
const ROUNDS: u64 = 60;

/// Random numbers of the program's own (xorshift).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }

    fn micros(&mut self, limit: usize) -> Duration {
        Duration::from_micros(self.below(limit) as u64)
    }
}

/// What the threads share.
struct Common {
    cpus: usize,
    rounds: Mutex<u64, Sim>,
    cpu_time: Mutex<Duration, Sim>,
    word: AtomicU32,
    parkers: Vec<Parker<Sim>>,
}

/// One thing that a thread can do. Refusals are fine: faults cause them on purpose.
fn random_step(me: usize, random: &mut Random, common: &Common) {
    let (cpus, word, thread) = (common.cpus, &common.word, Sim::current_thread());
    match random.below(14) {
        0 => Sim::sleep(random.micros(300)),
        1 => compute(random.micros(2_000)),
        2 => {
            let some = CpuSet::from_range(random.below(cpus)..cpus);
            let _ = Sim::set_affinity(thread, &some);
        }
        3 => {
            let nice = random.below(40) as i32 - 20;
            Sim::set_scheduling(thread, SchedPolicy::Normal, nice, None).expect("it is alive");
        }
        4 => {
            let policy = [SchedPolicy::Idle, SchedPolicy::Normal][random.below(2)];
            let slice = Some(random.micros(5_000));
            Sim::set_scheduling(thread, policy, 0, slice).expect("it is alive");
        }
        5 => {
            let _ = Sim::set_online(random.below(cpus), random.below(2) == 0);
        }
        6 => {
            let mut limits = Limits::unlimited(CpuSet::all(cpus));
            if random.below(2) == 0 {
                let share = 0.5 + random.below(8) as f64 / 2.0;
                limits.quota = Some(Quota::new(share, "cpu.max"));
            }
            if random.below(2) == 0 {
                limits.cpuset = Some(CpuSet::from_range(random.below(cpus)..cpus));
            }
            Sim::set_limits(limits);
        }
        7 => Sim::yield_now(),
        8 => common.parkers[random.below(THREADS)].unpark(),
        9 => {
            let deadline = Sim::now() + random.micros(500);
            common.parkers[me].park(Some(deadline));
        }
        10 => {
            let seen = word.load(Ordering::Relaxed);
            Sim::wait_until_changed(word, seen, random.below(2_000) as u32);
        }
        11 => {
            word.fetch_add(1, Ordering::Relaxed);
        }
        12 => {
            let seen = word.load(Ordering::Relaxed);
            let deadline = Sim::now() + random.micros(500);
            Sim::wait(word, seen, Some(deadline));
            Sim::wake(&raw const *word, 1);
        }
        _ => {
            let spec = ThreadSpec { nice: Some(3), ..ThreadSpec::default() };
            if let Ok(child) = Sim::spawn(spec, || compute(Duration::from_micros(100))) {
                Sim::join(child);
            }
        }
    }
}

/// Returns how many rounds were done, and whether no more CPU time was used than was available.
fn program(seed: u64) -> (u64, bool) {
    let common = Arc::new(Common {
        cpus: Sim::machine().expect("readable").topology.possible().len(),
        rounds: Mutex::new_in(0),
        cpu_time: Mutex::new_in(Duration::ZERO),
        word: AtomicU32::new(0),
        parkers: (0..THREADS).map(|_| Parker::new()).collect(),
    });
    let start = Sim::now();
    let mut threads = Vec::new();
    while threads.len() < THREADS {
        let (me, common) = (threads.len(), Arc::clone(&common));
        let main = move || {
            let mut random = Random(seed * 1_000 + me as u64 + 1);
            for _ in 0..ROUNDS {
                random_step(me, &mut random, &common);
                let mut rounds = common.rounds.lock();
                let _ = Sim::now();
                *rounds += 1;
            }
            let used = Sim::cpu_time(Sim::current_thread()).expect("it is alive");
            *common.cpu_time.lock() += used;
        };
        // Retried if a fault refuses it.
        threads.extend(Sim::spawn(ThreadSpec::default(), main));
    }
    threads.into_iter().for_each(Sim::join);
    Sim::stop_faults();
    let there_was = (Sim::now() - start) * common.cpus as u32;
    let used = *common.cpu_time.lock();
    (*common.rounds.lock(), used > Duration::ZERO && used <= there_was)
}

#[test]
fn the_program_gives_the_right_result_under_all_faults() {
    let machines =
        ["l3:2 core:2 pu:2", "pack:2 l3:2 core:2", "core:2", "numa:4 l3:2 core:3 pu:2", "core:1"];
    let schedules = [Schedule::Fair, Schedule::Random, Schedule::Pct { depth: 3 }];
    // Thirty seeds cover each machine under each schedule, with and without faults.
    for seed in 0..bound(30, 150) {
        let machine = Topology::from_synthetic(machines[seed as usize / 3 % machines.len()]);
        let machine = machine.expect("well formed");
        let schedule = schedules[seed as usize % schedules.len()];
        let faults = if seed % 2 == 0 { Faults::ALL } else { Faults::NONE };
        let run = || {
            Simulation::new(machine.clone(), seed)
                .schedule(schedule)
                .faults(faults)
                .run(move || program(seed))
        };
        let outcome = run();
        let expected = Some((THREADS as u64 * ROUNDS, true));
        let report = outcome.report();
        assert_eq!(outcome.result, expected, "seed {seed}, {schedule:?}: {report}");
        assert!(outcome.panics.is_empty(), "seed {seed}: {report}");
        if seed % 10 == 0 {
            assert_eq!(run().trace_hash, outcome.trace_hash, "seed {seed}");
        }
    }
}
