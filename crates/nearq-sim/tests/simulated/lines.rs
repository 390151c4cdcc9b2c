//! The cost of atomics that many CPUs want. Jitter is off: all times are exact to the nanosecond.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Atomic, AtomicInt, LockPlatform, MemoryPolicy, Ordering, Placement, Threads};
use nearq_sim::{AtomicU32, AtomicU64, Costs, Sim};

use crate::common::{go_to, nanoseconds, run, spawn_on, took};

/// An atomic on a line of its own.
#[repr(align(64))]
struct OnLine(AtomicU64);

/// Reading the clock costs nothing.
fn costs() -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    costs
}

#[test]
fn increments_of_one_line_take_a_bounce_each_however_many_cpus_do_them() {
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
        let bounce = c.same_llc + c.read_modify_write;
        assert!((bounce..bounce + 6).contains(&each), "{cpus} CPUs: {each} ns each");
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

/// Costs by which the way to each kind of home can be told.
fn with_homes() -> Costs {
    let mut costs = costs();
    (costs.home_same_package, costs.home_other_package) = (40, 1000);
    costs
}

/// Four nodes in two packages; CPUs 0 and 1 are of node 0 and have a last-level cache each.
const NODES: &str = "pack:2 numa:2 l3:2 core:1";

/// How much longer CPU 1 waits for a line that CPU 0 has because of the line's home.
fn longer(word: &AtomicU64) -> u64 {
    go_to(0);
    word.store(1, Ordering::Relaxed);
    go_to(1);
    took(|| assert_eq!(word.load(Ordering::Relaxed), 1)) - costs().other_llc
}

/// A word in a line of its own.
#[repr(align(64))]
struct Line(AtomicU64);

#[test]
fn the_first_thread_that_touches_a_line_gives_it_its_home() {
    run(NODES, &with_homes(), || {
        // They stay until the end: a word that is dropped gives its line to the next one.
        let words = [0, 2, 4, 6].map(|cpu| (cpu, Line(AtomicU64::new(0))));
        let homes = words.each_ref().map(|(cpu, word)| {
            go_to(*cpu);
            let c = costs();
            assert_eq!(took(|| word.0.store(9, Ordering::Relaxed)), c.memory, "near memory");
            longer(&word.0)
        });
        assert_eq!(homes, [0, 80, 2000, 2000]);
        // The policy of the thread decides, and a far memory takes longer.
        go_to(0);
        Sim::set_memory_policy(&MemoryPolicy::Preferred(1)).expect("there is such a node");
        let word = Box::new(AtomicU64::new(0));
        assert_eq!(
            took(|| word.store(9, Ordering::Relaxed)),
            costs().memory_same_package,
            "the line comes from its home"
        );
        assert_eq!(longer(&word), 80);
    });
}

#[test]
fn a_thread_that_allocates_what_another_one_frees_gets_lines_out_of_its_cache() {
    run("core:2", &costs(), || {
        let new = |cpu: usize| {
            go_to(cpu);
            let word = Box::new(Line(AtomicU64::new(0)));
            let took = took(|| word.0.store(1, Ordering::Relaxed));
            (word, took)
        };
        let c = costs();
        let (first, from_memory) = new(0);
        assert_eq!(from_memory, c.memory);
        go_to(1);
        assert_eq!(first.0.load(Ordering::Relaxed), 1);
        drop(first);
        // The other CPU has read it, and its copy must go.
        let (second, from_the_other) = new(0);
        assert_eq!(from_the_other, c.same_llc);
        drop(second);
        assert_eq!(new(0).1, c.own_line, "this CPU freed it itself");
    });
}

#[test]
fn a_cpu_with_a_store_buffer_does_not_wait_for_lines_that_it_only_stores_to() {
    let mut c = costs();
    c.store_buffer = 2;
    run("l3:2 core:2", &c, move || {
        let words: [_; 4] = std::array::from_fn(|_| OnLine(AtomicU64::new(0)));
        let store = |word: usize, order| took(|| words[word].0.store(1, order));
        let add = |word: usize| took(|| _ = words[word].0.fetch_add(1, Ordering::Relaxed));
        let other_cpu_has_all = || {
            go_to(2);
            (0..4).for_each(|word| _ = add(word));
            go_to(0);
        };
        other_cpu_has_all();
        assert_eq!(store(0, Ordering::Release), c.own_line);
        assert_eq!(store(1, Ordering::Release), c.own_line, "the lines come side by side");
        let left = c.other_llc - 2 * c.own_line;
        assert_eq!(store(2, Ordering::Release), left + c.own_line, "there were two entries");
        assert_eq!(took(|| _ = words[2].0.load(Ordering::Acquire)), c.own_line, "its own store");
        let own = c.own_line + c.read_modify_write;
        assert_eq!(add(2), c.other_llc - 2 * c.own_line + own, "after all stores");
        other_cpu_has_all();
        store(0, Ordering::Release);
        assert_eq!(store(1, Ordering::SeqCst), 2 * c.other_llc - c.own_line, "after all stores");
        other_cpu_has_all();
        store(0, Ordering::Release);
        assert_eq!(took(|| Sim::fence(Ordering::SeqCst)), c.other_llc - c.own_line + c.fence);
        other_cpu_has_all();
        store(0, Ordering::Release);
        assert_eq!(took(|| Sim::fence(Ordering::Release)), c.fence, "stores stay in order anyway");
    });
}

#[test]
fn lines_that_are_fetched_ahead_come_side_by_side() {
    let mut c = costs();
    c.store_buffer = 8;
    run("l3:2 core:2", &c, move || {
        let words: [_; 2] = std::array::from_fn(|_| OnLine(AtomicU64::new(0)));
        let read = |word: usize| took(|| _ = words[word].0.load(Ordering::Acquire));
        let other_cpu_has_both = || {
            go_to(2);
            for word in &words {
                word.0.store(1, Ordering::SeqCst);
            }
            go_to(0);
        };
        other_cpu_has_both();
        assert_eq!((read(0), read(1)), (c.other_llc, c.other_llc), "one after the other");
        other_cpu_has_both();
        assert_eq!(took(|| nearq_sim::fetch_ahead(&words[1].0)), 0);
        assert_eq!((read(0), read(1)), (c.other_llc, c.own_line));
        other_cpu_has_both();
        nearq_sim::fetch_ahead(&words[1].0);
        Sim::charge(Duration::from_nanos(c.other_llc / 2));
        assert_eq!(read(1), c.other_llc - c.other_llc / 2 + c.own_line, "the rest of the way");
        assert_eq!(read(1), c.own_line);
    });
}

/// The line of the second store is the CPU's own, and its value may be seen only after that of the first.
#[test]
fn other_cpus_see_buffered_stores_in_order() {
    let mut c = costs();
    c.store_buffer = 8;
    run("l3:2 core:2", &c, move || {
        let [far, own] = [(); 2].map(|()| Arc::new(OnLine(AtomicU64::new(0))));
        go_to(2);
        far.0.fetch_add(1, Ordering::Relaxed);
        go_to(0);
        own.0.fetch_add(1, Ordering::Relaxed);
        let start = Sim::now() + Duration::from_millis(1);
        let seen = Arc::new(OnLine(AtomicU64::new(0)));
        let reader = {
            let (far, own, seen) = (Arc::clone(&far), Arc::clone(&own), Arc::clone(&seen));
            spawn_on(1, move || {
                Sim::sleep(start + Duration::from_micros(100) - Sim::now());
                while own.0.load(Ordering::Acquire) < 2 {}
                seen.0.store(nanoseconds(Sim::now() - start), Ordering::Relaxed);
                assert_eq!(far.0.load(Ordering::Acquire), 2);
            })
        };
        Sim::sleep(start + Duration::from_micros(200) - Sim::now());
        let began = nanoseconds(Sim::now() - start);
        far.0.store(2, Ordering::Release);
        own.0.store(2, Ordering::Release);
        let stored = nanoseconds(Sim::now() - start);
        Sim::join(reader);
        let seen = seen.0.load(Ordering::Relaxed);
        assert!(stored - began <= 2 * c.same_llc, "the CPU waited: {} ns", stored - began);
        assert!(seen - began >= c.other_llc + c.same_llc, "seen after {} ns", seen - began);
    });
}

#[test]
fn a_part_of_a_word_is_stored_without_the_rest_and_exchanged_at_the_price_of_an_update() {
    let c = costs();
    run("core:2", &c, move || {
        let word = AtomicU32::new(0);
        word.store(0x1234_5601, Ordering::Relaxed);
        assert_eq!(took(|| word.store_part(0xff, 0)), c.own_line);
        assert_eq!(word.load(Ordering::Relaxed), 0x1234_5600);
        let exchanged = took(|| assert_eq!(word.exchange_part(!0 << 16, 0xabcd_ffff), 0x1234_5600));
        assert_eq!(exchanged, c.own_line + c.read_modify_write);
        assert_eq!(word.load(Ordering::Relaxed), 0xabcd_5600);
    });
}

#[test]
fn a_captured_line_stays_for_the_retry_of_a_compare_exchange() {
    // Eight CPUs add to one word. With capture, an exchange that fails is repeated while the CPU has the line.
    let failed = |capture: u64| {
        let mut costs = costs();
        (costs.capture, costs.spawn) = (capture, 0);
        run("core:9", &costs, || {
            let [word, failed] = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
            let threads: Vec<_> = (1..9_usize)
                .map(|cpu| {
                    let (word, failed) = (Arc::clone(&word), Arc::clone(&failed));
                    spawn_on(cpu, move || {
                        let mut failures = 0;
                        for _ in 0..200 {
                            let mut found = word.load(Ordering::Relaxed);
                            let (order, next) = (Ordering::Relaxed, |found: u64| found + 1);
                            while let Err(now) =
                                word.compare_exchange(found, next(found), order, order)
                            {
                                found = now;
                                failures += 1;
                            }
                        }
                        failed.fetch_add(failures, Ordering::Relaxed);
                    })
                })
                .collect();
            let took = took(|| threads.into_iter().for_each(Sim::join));
            assert_eq!(word.load(Ordering::Relaxed), 8 * 200);
            (failed.load(Ordering::Relaxed), took)
        })
    };
    let ((often, long), (rarely, short)) = (failed(0), failed(20));
    assert!(often > 3 * 1_600 && rarely <= 1_600, "{often} and {rarely} exchanges failed");
    assert!(2 * short < long, "{short} ns instead of {long}");
}
