//! What atomics cost when many CPUs want them. Jitter is off: everything is exact to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, ThreadSpec};
use nearq_sim::{AtomicU64, Costs, Sim, Simulation};
use nearq_topology::Topology;

#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;

/// Reading the clock costs nothing.
fn costs() -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    costs
}

fn run<R: 'static>(machine: &str, costs: &Costs, main: impl FnOnce() -> R + 'static) -> R {
    let machine = Topology::from_synthetic(machine).expect("well formed");
    Simulation::new(machine, 1).costs(*costs).jitter(false).run(main).expect()
}

fn go_to(cpu: usize) {
    let cpus = cpu.to_string().parse().expect("a CPU list");
    Sim::set_affinity(Sim::current_thread(), &cpus).expect("it exists");
}

fn spawn_on(cpu: usize, main: impl FnOnce() + Send + 'static) -> <Sim as Platform>::JoinHandle {
    let affinity = Some(cpu.to_string().parse().expect("a CPU list"));
    Sim::spawn(ThreadSpec { affinity, ..ThreadSpec::default() }, main).expect("room")
}

fn took(what: impl FnOnce()) -> u64 {
    let start = Sim::now();
    what();
    nanoseconds(Sim::now() - start)
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).expect("short")
}

#[test]
fn writers_of_one_line_get_one_transfer_after_the_other() {
    for cpus in [2_u64, 8, 32] {
        let c = costs();
        let took = run("core:32", &c, move || {
            let count = Arc::new(AtomicU64::new(0));
            let start = Sim::now() + Duration::from_millis(1);
            let threads: Vec<_> = (0..cpus as usize)
                .map(|cpu| {
                    let count = Arc::clone(&count);
                    spawn_on(cpu, move || {
                        Sim::sleep(start - Sim::now());
                        for _ in 0..1000 {
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            Sim::now() - start
        });
        let each = nanoseconds(took) / (cpus * 1000);
        assert!((c.same_llc..c.same_llc + 6).contains(&each), "{cpus} CPUs: {each} ns each");
    }
}

#[test]
fn a_line_that_is_written_steadily_costs_its_readers_a_transfer_each() {
    run("l3:2 core:2", &costs(), || {
        let c = costs();
        let word = AtomicU64::new(0);
        let (mut reads, mut writes) = (0, 0);
        for round in 0..10 {
            go_to(0);
            writes += took(|| word.store(round, Ordering::Relaxed));
            go_to(2);
            reads += took(|| assert_eq!(word.load(Ordering::Relaxed), round));
            assert_eq!(took(|| assert_eq!(word.load(Ordering::Relaxed), round)), c.own_line);
        }
        assert_eq!(reads, 10 * c.other_llc);
        assert_eq!(writes, c.memory + 9 * c.other_llc, "the copies must go");
        // A failed exchange takes the line as well.
        go_to(2);
        let failed = took(|| {
            let _ = word.compare_exchange(77, 78, Ordering::Relaxed, Ordering::Relaxed);
        });
        assert_eq!(failed, c.other_llc + c.read_modify_write);
        go_to(0);
        assert_eq!(took(|| assert_eq!(word.load(Ordering::Relaxed), 9)), c.other_llc);
        // The second reader under a cache has its copy from the first.
        go_to(1);
        assert_eq!(took(|| assert_eq!(word.load(Ordering::Relaxed), 9)), c.same_llc);
    });
}
