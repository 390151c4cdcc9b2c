//! The cost of atomics that many CPUs want. Jitter is off: all times are exact to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Threads};
use nearq_sim::{AtomicU64, Costs, Sim};

use crate::common::{go_to, nanoseconds, run, spawn_on, took};

/// Reading the clock costs nothing.
fn costs() -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    costs
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
        assert_eq!(writes, c.memory + 9 * c.other_llc, "the copies are invalidated");
        // A failed exchange takes the line as well.
        go_to(2);
        let failed = took(|| {
            let _ = word.compare_exchange(77, 78, Ordering::Relaxed, Ordering::Relaxed);
        });
        assert_eq!(failed, c.other_llc + c.read_modify_write);
        go_to(0);
        assert_eq!(took(|| assert_eq!(word.load(Ordering::Relaxed), 9)), c.other_llc);
        // The second reader under a cache gets its copy from the first.
        go_to(1);
        assert_eq!(took(|| assert_eq!(word.load(Ordering::Relaxed), 9)), c.same_llc);
    });
}
