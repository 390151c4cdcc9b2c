//! The cost of many accesses to a range, and the kernel's counts for waiting threads. Jitter is off.

use std::time::Duration;

use nearq_platform::{LockPlatform, MemoryPolicy, Placement, Threads};
use nearq_sim::{Costs, Sim};
use nearq_topology::CpuSet;

use crate::common::{go_to, run, spawn_on, took};

const MIB: usize = 1024 * 1024;
/// Two nodes of two CPUs, each node with an L3 cache of 4 MiB.
const MACHINE: &str = "pack:2 numa:1 l3:1(size=4MiB) l2:2(size=64KiB) core:1";

fn costs() -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    (costs.memory, costs.memory_other_package, costs.other_package) = (100, 160, 240);
    costs
}

fn buffer(bytes: usize) -> Box<[u8]> {
    vec![0; bytes].into()
}

/// Nanoseconds for each of that many accesses.
fn each(range: &mut [u8], accesses: usize) -> f64 {
    took(|| Sim::scatter(range, accesses)) as f64 / accesses as f64
}

/// The average cost of an access if this share of accesses hits the last-level cache.
fn expected(cached: f64, latency: u64) -> f64 {
    let c = costs();
    let near = c.memory as f64 * c.memory_stream as f64 / c.l3_stream as f64;
    cached * near + (1.0 - cached) * latency as f64
}

fn close(measured: f64, expected: f64) {
    assert!((measured / expected - 1.0).abs() < 0.02, "{measured} ns, not {expected}");
}

#[test]
fn a_random_access_takes_the_latency_of_the_place_of_its_line() {
    run(MACHINE, &costs(), || {
        let c = costs();
        let mut block = buffer(64 * MIB);
        go_to(0);
        let first = took(|| Sim::scatter(&mut block, 1));
        assert!(first >= 64 * 256 * c.page_fault, "all pages are touched first: {first}");
        each(&mut block, 200_000);
        // A sixteenth of the range is in the cache, as much as fits.
        let local = each(&mut block, 1_000_000);
        close(local, expected(1.0 / 16.0, c.memory));
        go_to(2);
        each(&mut block, 200_000);
        close(each(&mut block, 1_000_000), expected(1.0 / 16.0, c.memory_other_package));
        let residency = Sim::residency(&block, 100).expect("it is memory");
        assert_eq!(residency.pages, [100, 0], "it has stayed where it was touched first");
    });
}

#[test]
fn data_that_fits_into_the_cache_stays_there() {
    run(MACHINE, &costs(), || {
        let c = costs();
        let mut block = buffer(MIB);
        go_to(0);
        each(&mut block, 1_000_000);
        let warm = each(&mut block, 100_000);
        assert!(warm < expected(0.99, c.memory), "{warm} ns");
        // Content that is newer in the other cache than in memory comes from that cache.
        go_to(2);
        let cold = each(&mut block, 1_000);
        close(cold, 240.0);
        each(&mut block, 1_000_000);
        assert!((each(&mut block, 100_000) / warm - 1.0).abs() < 0.02);
        // Content of other accesses takes its place.
        let mut other = buffer(64 * MIB);
        Sim::write(&mut other);
        close(each(&mut block, 1_000), f64::from(160));
    });
}

#[test]
fn sweeping_costs_the_same_as_reading() {
    run(MACHINE, &costs(), || {
        let size = 32 * MIB;
        for cpu in [0, 2] {
            let (by_page, whole) = (buffer(size), buffer(size));
            go_to(0);
            took(|| Sim::sweep(&whole, size));
            Sim::read(&by_page);
            go_to(cpu);
            let read = took(|| Sim::read(&by_page)) as f64;
            close(took(|| Sim::sweep(&whole, size)) as f64, read);
        }
        let mut small = buffer(2 * MIB);
        go_to(0);
        Sim::sweep_mut(&mut small, 20 * MIB);
        let c = costs();
        close(
            took(|| Sim::sweep(&small, 20 * MIB)) as f64,
            20.0 * MIB as f64 * 1e3 / c.l3_stream as f64,
        );
    });
}

#[test]
fn pages_are_placed_by_the_policy_of_the_touching_thread() {
    run(MACHINE, &costs(), || {
        Sim::set_memory_policy(&MemoryPolicy::Preferred(1)).expect("it exists");
        go_to(0);
        let mut block = buffer(64 * MIB);
        each(&mut block, 200_000);
        close(each(&mut block, 1_000_000), expected(1.0 / 16.0, costs().memory_other_package));
        // A move has an effect at once.
        Sim::bind_memory(&block, &MemoryPolicy::Preferred(0), true).expect("it exists");
        each(&mut block, 200_000);
        close(each(&mut block, 1_000_000), expected(1.0 / 16.0, costs().memory));
    });
}

#[test]
fn many_cpus_share_the_memory_of_a_node() {
    let alone = |cpus: usize| {
        run("numa:1 l3:1(size=1MiB) core:16", &costs(), move || {
            let work = move || {
                let mut block = buffer(32 * MIB);
                Sim::sweep_mut(&mut block, 64 * MIB);
            };
            took(move || {
                (0..cpus)
                    .map(|cpu| spawn_on(cpu, work))
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(Sim::join);
            })
        })
    };
    let (one, all) = (alone(1), alone(16));
    // One port of 50 GB/s for sixteen times 15 GB/s, and for the bytes that go back.
    assert!(all > 4 * one, "{all} and {one} ns");
}

#[test]
fn two_threads_that_share_a_cpu_wait_as_long_as_they_run() {
    run("core:2", &costs(), || {
        go_to(0);
        let second = Duration::from_secs(1);
        let threads = [(); 2].map(|()| spawn_on(1, move || Sim::charge(second)));
        Sim::sleep(second);
        let [a, b] = [0, 1].map(|at: usize| {
            Sim::thread_statistics(threads[at].thread()).expect("the thread is running")
        });
        assert_eq!((a.cpu, b.cpu), (1, 1));
        for one in [a, b] {
            let (ran, waited) = (one.ran.as_secs_f64(), one.waited.as_secs_f64());
            assert!((0.49..0.51).contains(&ran) && (0.48..0.51).contains(&waited), "{one:?}");
        }
        let cpus = Sim::cpu_statistics();
        assert_eq!(cpus.len(), 2);
        // Between the reads the thread went on for as long as they take.
        let readings = 2 * 3 * Duration::from_nanos(costs().system_call);
        assert!((a.ran + b.ran..=a.ran + b.ran + readings).contains(&cpus[1].ran), "{cpus:?}");
        assert_eq!(cpus[1].waited, a.waited + b.waited);
        assert!(cpus[0].ran < Duration::from_millis(1), "{:?}", cpus[0]);
        // A wait counts for the CPU on which it began, wherever it ends.
        let here = CpuSet::single(0);
        Sim::set_affinity(threads[0].thread(), &here).expect("the thread is running");
        threads.into_iter().for_each(Sim::join);
        let waited: Duration = Sim::cpu_statistics().iter().map(|cpu| cpu.waited).sum();
        assert!((0.48..0.56).contains(&(waited.as_secs_f64() / 2.0)), "{waited:?}");
    });
}
