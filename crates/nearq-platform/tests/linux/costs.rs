//! Measures what the calls cost on this machine. It only prints, and asserts nothing; run it with `cargo test --release -p nearq-platform
//! --test linux -- --ignored --nocapture costs`.

use std::hint::black_box;
use std::sync::Arc;

use crate::common::Sleeper;
use nearq_platform::{Linux, LockPlatform, Parker, Placement, ThreadSpec, Threads};
use nearq_topology::CpuSet;

/// Nanoseconds for one call: the best of several runs, to leave out the effect of other work on the machine.
fn cost<R>(calls: u32, mut call: impl FnMut() -> R) -> f64 {
    (0..7)
        .map(|_| {
            let start = Linux::now();
            for _ in 0..calls {
                black_box(call());
            }
            (Linux::now() - start).as_nanos() as f64 / f64::from(calls)
        })
        .fold(f64::INFINITY, f64::min)
}

#[test]
#[ignore = "prints measurements"]
fn cost_of_the_calls() {
    let me = Linux::current_thread();
    let word = <Linux as LockPlatform>::AtomicU32::new(0);
    let sleeper = Sleeper::start(ThreadSpec::default());
    let show = |name: &str, nanos: f64| println!("{name:<44}{nanos:>12.2} ns");
    show("an empty call", cost(10_000_000, || ()));
    show("current_cpu", cost(10_000_000, Linux::current_cpu));
    // SAFETY: validity: no arguments. Aliasing: none. Thread: answers for the caller.
    show("  sched_getcpu of the C library", cost(1_000_000, || unsafe { libc::sched_getcpu() }));
    show("slot", cost(10_000_000, Linux::slot));
    show("now", cost(1_000_000, Linux::now));
    show("current_thread", cost(200_000, Linux::current_thread));
    show("wake without a waiter", cost(200_000, || Linux::wake(&raw const word, 1)));
    show("wait that finds another value", cost(200_000, || Linux::wait(&word, 1, None)));
    show("cpu_time of another thread", cost(200_000, || Linux::cpu_time(sleeper.thread)));
    show("run_state of another thread", cost(20_000, || Linux::run_state(sleeper.thread)));
    let mut watch = Linux::watch(sleeper.thread);
    show("watched_state of another thread", cost(20_000, || Linux::watched_state(&mut watch)));
    show("affinity", cost(50_000, || Linux::affinity(me)));
    show(
        "set_affinity, unchanged",
        cost(20_000, {
            let allowed = Linux::affinity(me).unwrap();
            move || Linux::set_affinity(me, &allowed)
        }),
    );
    show(
        "spawn and join",
        cost(500, || Linux::spawn(ThreadSpec::default(), || ()).map(Linux::join)),
    );
}

#[test]
#[ignore = "prints measurements"]
fn cost_of_a_round_trip_between_two_threads() {
    const ROUNDS: u32 = 20_000;
    let cpus: Vec<usize> = Linux::affinity(Linux::current_thread()).unwrap().iter().collect();
    let on =
        |cpu: usize| ThreadSpec { affinity: Some(CpuSet::single(cpu)), ..ThreadSpec::default() };
    for (name, cpus) in [("one CPU", [cpus[0]; 2]), ("two CPUs", [cpus[0], *cpus.last().unwrap()])]
    {
        let best = (0..5)
            .map(|_| {
                let turns = Arc::new([Parker::<Linux>::new(), Parker::new()]);
                let players = [0, 1].map(|me| {
                    let turns = Arc::clone(&turns);
                    Linux::spawn(on(cpus[me]), move || {
                        for _ in 0..ROUNDS {
                            turns[me].park(None);
                            turns[1 - me].unpark();
                        }
                    })
                    .unwrap()
                });
                let start = Linux::now();
                turns[0].unpark();
                players.into_iter().for_each(Linux::join);
                (Linux::now() - start).as_nanos() as f64 / f64::from(ROUNDS) / 1000.0
            })
            .fold(f64::INFINITY, f64::min);
        println!("park and unpark, there and back, on {name:<8}{best:>12.2} µs");
    }
}
