//! The cost of declared bytes by where they are, and the node on which they are placed. Jitter is off: all times are exact to the
//! nanosecond.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{
    Atomic, Instant, LockPlatform, MemoryPolicy, Ordering, Placement, Residency, ThreadSpec,
    Threads,
};
use nearq_sim::{AtomicU64, Costs, Machine, Sim, Simulation, compute};
use nearq_topology::Topology;

use crate::common::{go_to, nanoseconds, run, spawn_on, took};

const PAGE: usize = 4096;
const KIB: usize = 1024;
const MIB: usize = 1024 * 1024;

/// Four nodes in two packages: CPUs 0 to 3, 4 to 7, 8 to 11, 12 to 15, two to a last-level cache.
const FOUR_NODES: &str = "pack:2 numa:2 l3:2 core:2 pu:1";

/// Costs that all differ; reading the clock costs nothing.
fn costs() -> Costs {
    let mut costs = Costs::DEFAULT;
    costs.clock = 0;
    (costs.other_llc, costs.same_package, costs.other_package) = (110, 160, 230);
    (costs.memory, costs.memory_same_package, costs.memory_other_package) = (100, 140, 200);
    costs
}

fn buffer(bytes: usize) -> Box<[u8]> {
    vec![0; bytes].into()
}

/// Nanoseconds that bytes take at a rate, in one run.
fn at_rate(bytes: usize, rate: u64) -> u64 {
    (bytes as u64 * 1_000_000 / rate).div_ceil(1000)
}

/// Nanoseconds that bytes take from something at a latency, in one run.
fn from_latency(bytes: usize, latency: u64) -> u64 {
    let costs = costs();
    (bytes as u64 * 1_000_000 / costs.memory_stream * latency / costs.memory).div_ceil(1000)
}

#[test]
fn every_distance_has_its_price() {
    run(FOUR_NODES, &costs(), || {
        let c = costs();
        let size = 64 * KIB;
        let mut block = buffer(size);
        go_to(0);
        let first = took(|| Sim::write(&mut block));
        assert_eq!(first, 16 * c.page_fault + from_latency(size, c.memory));
        assert_eq!(
            took(|| Sim::write(&mut block)),
            at_rate(size, c.l2_stream),
            "the data is in the local cache"
        );
        let from = |cpu| {
            go_to(cpu);
            (took(|| Sim::read(&block)), took(|| Sim::read(&block)))
        };
        let own_cache_time = at_rate(size, c.l2_stream);
        assert_eq!(from(1), (at_rate(size, c.l3_stream), own_cache_time));
        assert_eq!(from(12), (from_latency(size, c.other_package), own_cache_time));
        assert_eq!(from(4), (from_latency(size, c.same_package), own_cache_time));
        assert_eq!(from(2), (from_latency(size, c.other_llc), own_cache_time));
        assert_eq!(
            from(8),
            (from_latency(size, c.same_package), own_cache_time),
            "the copy of 12 is nearest"
        );
        assert_eq!(from(0), (own_cache_time, own_cache_time));
    });
}

#[test]
fn memory_has_its_price_by_node() {
    run(FOUR_NODES, &costs(), || {
        let c = costs();
        let size = 64 * KIB;
        go_to(0);
        for (node, latency) in [
            (0, c.memory),
            (1, c.memory_same_package),
            (2, c.memory_other_package),
            (3, c.memory_other_package),
        ] {
            let block = buffer(size);
            Sim::bind_memory(&block, &MemoryPolicy::Preferred(node), false).expect("exists");
            let faults = 16 * c.page_fault;
            assert_eq!(took(|| Sim::read(&block)), faults + from_latency(size, latency), "{node}");
        }
        // Clean data of the own node comes from memory, which is nearer than the cache that has a copy.
        let block = buffer(size);
        go_to(2);
        Sim::read(&block);
        go_to(0);
        assert_eq!(took(|| Sim::read(&block)), from_latency(size, c.memory));
    });
}

#[test]
fn another_cache_is_never_faster_than_the_local_one() {
    let mut c = costs();
    c.other_llc = 1;
    run("l3:2 core:1", &c, move || {
        let mut block = buffer(PAGE);
        go_to(0);
        Sim::write(&mut block);
        go_to(1);
        assert_eq!(took(|| Sim::read(&block)), at_rate(PAGE, c.l3_stream));
    });
}

#[test]
fn writing_invalidates_all_copies_and_waits_for_the_farthest() {
    run(FOUR_NODES, &costs(), || {
        let c = costs();
        let mut block = buffer(PAGE);
        for cpu in [12, 4, 1, 0] {
            go_to(cpu);
            Sim::read(&block);
        }
        let own_cache_time = at_rate(PAGE, c.l2_stream);
        assert_eq!(took(|| Sim::read(&block)), own_cache_time);
        assert_eq!(took(|| Sim::write(&mut block)), from_latency(PAGE, c.other_package));
        assert_eq!(took(|| Sim::write(&mut block)), own_cache_time);
        for (cpu, price) in [
            (12, from_latency(PAGE, c.other_package)),
            (1, at_rate(PAGE, c.l3_stream)),
            (4, from_latency(PAGE, c.same_package)),
        ] {
            go_to(cpu);
            assert_eq!(took(|| Sim::read(&block)), price, "CPU {cpu} has lost it");
        }
        // Only the neighbour has it as well: the transfer is through the cache that they share.
        go_to(0);
        Sim::write(&mut block);
        go_to(1);
        Sim::read(&block);
        go_to(0);
        assert_eq!(took(|| Sim::write(&mut block)), at_rate(PAGE, c.l3_stream));
    });
}

#[test]
fn caches_evict_data_beyond_their_size() {
    let mut c = costs();
    (c.l2_size, c.llc_size) = (64 * KIB as u64, 256 * KIB as u64);
    run("l3:2 core:2", &c, move || {
        go_to(0);
        for (size, price) in [
            (64 * KIB, at_rate(64 * KIB, c.l2_stream)),
            (128 * KIB, 2 * at_rate(64 * KIB, c.l3_stream)),
            (256 * KIB, 4 * at_rate(64 * KIB, c.l3_stream)),
            (512 * KIB, 8 * from_latency(64 * KIB, c.memory)),
        ] {
            let block = buffer(size);
            Sim::read(&block);
            for round in 0..3 {
                assert_eq!(took(|| Sim::read(&block)), price, "{size} bytes, round {round}");
            }
        }
    });
}

#[test]
fn parts_of_pages_count_by_cache_line() {
    run("core:1", &costs(), || {
        let c = costs();
        let block = buffer(PAGE);
        Sim::read(&block[..64]);
        let line = |rate| at_rate(64, rate);
        assert_eq!(took(|| Sim::read(&block[..64])), line(c.l2_stream));
        assert_eq!(
            took(|| Sim::read(&block[64..65])),
            line(c.memory_stream),
            "a line is the least"
        );
        assert_eq!(took(|| Sim::read(&block[60..70])), line(c.l2_stream / 2), "two lines");
        let mixed = (30 * 64 * 1_000_000 / c.l2_stream) + (32 * 64 * 1_000_000 / c.memory_stream);
        Sim::read(&block[..30 * 64]);
        assert_eq!(took(|| Sim::read(&block[..62 * 64])), mixed.div_ceil(1000));
        assert_eq!(took(|| Sim::read(&block[..0])), 0);
    });
}

/// How long CPUs take to read `size` bytes each at the same time, all from node 0, where the bytes were touched before.
fn together(machine: &'static str, c: &Costs, cpus: &'static [usize], size: usize) -> Vec<u64> {
    run(machine, c, move || {
        let blocks: Vec<_> = cpus.iter().map(|_| buffer(size)).collect();
        for block in &blocks {
            Sim::bind_memory(block, &MemoryPolicy::Preferred(0), false).expect("exists");
            Sim::read(block);
        }
        // Removes the bytes from the caches again.
        Sim::read(&buffer(4 * MIB));
        let start = Sim::now() + Duration::from_millis(1);
        let times: Vec<_> = cpus.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
        let threads: Vec<_> = cpus
            .iter()
            .zip(blocks)
            .zip(&times)
            .map(|((cpu, block), time)| {
                let time = Arc::clone(time);
                spawn_on(*cpu, move || {
                    Sim::sleep(start - Sim::now());
                    let took = took(|| Sim::read(&block));
                    time.store(took, Ordering::Relaxed);
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        times.iter().map(|time| time.load(Ordering::Relaxed)).collect()
    })
}

fn assert_close(times: &[u64], expected: u64) {
    for time in times {
        let off = time.abs_diff(expected);
        assert!(off * 100 <= expected * 3, "{times:?}: {expected} expected");
    }
}

#[test]
fn cpus_share_the_memory_of_a_node() {
    let mut c = costs();
    (c.l2_size, c.llc_size) = (64 * KIB as u64, MIB as u64);
    (c.memory_stream, c.node_bandwidth) = (15_000, 24_000);
    let size = 2 * MIB;
    let machine = "numa:2 l3:4 core:1";
    assert_close(&together(machine, &c, &[0], size), at_rate(size, 15_000));
    assert_close(&together(machine, &c, &[0, 1], size), at_rate(size, 12_000));
    assert_close(&together(machine, &c, &[0, 1, 2], size), at_rate(size, 8_000));
    // The link to the other node, which all CPUs of that node share, is slower still.
    c.link_bandwidth = 6_000;
    assert_close(&together(machine, &c, &[4, 5, 6], size), at_rate(size, 2_000));
    // The port of the cache that two cores share limits them as well.
    c.llc_bandwidth = 10_000;
    assert_close(&together("l3:2 core:2", &c, &[0, 1], size), at_rate(size, 5_000));
}

#[test]
fn writing_back_uses_memory_bandwidth() {
    let mut c = costs();
    (c.l2_size, c.llc_size) = (64 * KIB as u64, MIB as u64);
    (c.memory_stream, c.node_bandwidth) = (15_000, 20_000);
    run("l3:1 core:2", &c, move || {
        let size = 4 * MIB;
        let mut block = buffer(size);
        Sim::read(&block);
        let reading = took(|| Sim::read(&block));
        assert_close(&[reading], at_rate(size, 15_000));
        Sim::write(&mut block);
        let writing = took(|| Sim::write(&mut block));
        assert_close(&[writing], at_rate(size, 10_000));
        // Freed bytes need not go back.
        drop(block);
        let mut small = buffer(MIB / 2);
        Sim::write(&mut small);
        drop(small);
        let block = buffer(size);
        let reading = took(|| Sim::read(&block)) - 1024 * c.page_fault;
        assert_close(&[reading], at_rate(size, 15_000));
    });
}

#[test]
fn handing_data_over_is_cheap_within_a_cache() {
    let hand_over = |producer, consumer| {
        run("numa:2 l3:2 core:2", &costs(), move || {
            let mut block = buffer(32 * KIB);
            go_to(producer);
            Sim::write(&mut block);
            let mut sum = 0;
            for _ in 0..10 {
                go_to(producer);
                sum += took(|| Sim::write(&mut block));
                go_to(consumer);
                sum += took(|| Sim::read(&block));
            }
            sum
        })
    };
    let c = costs();
    let size = 32 * KIB;
    // The first write finds no other copy; each later one takes the block back.
    let own_cache_time = at_rate(size, c.l2_stream);
    assert_eq!(hand_over(0, 0), 20 * own_cache_time);
    assert_eq!(hand_over(0, 1), own_cache_time + 19 * at_rate(size, c.l3_stream));
    assert_eq!(hand_over(0, 2), own_cache_time + 19 * from_latency(size, c.other_llc));
    assert_eq!(hand_over(0, 4), own_cache_time + 19 * from_latency(size, c.same_package));
}

#[test]
fn a_long_read_lets_other_threads_run() {
    run("core:1", &costs(), || {
        let block = buffer(64 * MIB);
        let wanted = Sim::now() + Duration::from_millis(5);
        let late = Arc::new(AtomicU64::new(0));
        let place = Arc::clone(&late);
        let spec = ThreadSpec { nice: Some(-20), ..ThreadSpec::default() };
        let urgent = Sim::spawn(spec, move || {
            Sim::sleep(wanted - Sim::now());
            place.store(nanoseconds(Sim::now() - wanted), Ordering::Relaxed);
        });
        Sim::read(&block);
        assert!(Sim::now() > wanted + Duration::from_millis(1), "the read lasts longer than that");
        Sim::join(urgent.expect("a free slot"));
        let late = late.load(Ordering::Relaxed);
        assert!(late < 3_000, "{late} ns late");
    });
}

fn residency(range: &[u8]) -> Vec<usize> {
    let Residency { mut pages, absent, page_size, .. } =
        Sim::residency(range, usize::MAX).expect("the call succeeds");
    assert_eq!(page_size, PAGE);
    pages.push(absent);
    pages
}

#[test]
fn pages_are_placed_by_first_touch_or_by_policy() {
    run(FOUR_NODES, &costs(), || {
        let block = buffer(8 * PAGE);
        assert_eq!(residency(&block), [0, 0, 0, 0, 8]);
        go_to(6);
        Sim::read(&block[PAGE..3 * PAGE]);
        go_to(15);
        Sim::read(&block[..4 * PAGE]);
        assert_eq!(residency(&block), [0, 2, 0, 2, 4], "the first touch counts");
        assert_eq!(
            Sim::residency(&block, 2).map(|r| (r.pages, r.absent)),
            Ok((vec![0, 0, 0, 1], 1))
        );

        let touch = |policy: MemoryPolicy| {
            Sim::set_memory_policy(&policy).expect("nodes exist");
            let block = buffer(6 * PAGE);
            Sim::read(&block);
            residency(&block)
        };
        assert_eq!(touch(MemoryPolicy::Preferred(1)), [0, 6, 0, 0, 0]);
        assert_eq!(touch(MemoryPolicy::Bind(vec![0, 2])), [0, 0, 6, 0, 0], "2 is nearer to 3");
        assert_eq!(touch(MemoryPolicy::Interleave(vec![0, 1, 3])), [2, 2, 0, 2, 0]);
        assert_eq!(
            touch(MemoryPolicy::Bind(vec![1, 77])),
            [0, 6, 0, 0, 0],
            "only existing nodes count"
        );
        for none in [MemoryPolicy::Preferred(4), MemoryPolicy::Interleave(vec![])] {
            let refused = Sim::set_memory_policy(&none).expect_err("no such node");
            assert_eq!(refused.errno(), 22);
            assert_eq!(Sim::bind_memory(&block, &none, true).map_err(|r| r.errno()), Err(22));
        }
        // The policy is inherited, and the child's change of it does not affect the parent.
        Sim::set_memory_policy(&MemoryPolicy::Preferred(2)).expect("exists");
        Sim::join(spawn_on(0, || {
            let touch = || {
                let block = buffer(PAGE);
                Sim::read(&block);
                residency(&block)
            };
            assert_eq!(touch(), [0, 0, 1, 0, 0]);
            Sim::set_memory_policy(&MemoryPolicy::Local).expect("always");
            assert_eq!(touch(), [1, 0, 0, 0, 0]);
        }));
        let block = buffer(PAGE);
        Sim::read(&block);
        assert_eq!(residency(&block), [0, 0, 1, 0, 0]);
    });
}

#[test]
fn ranges_have_policies_and_can_be_moved() {
    run(FOUR_NODES, &costs(), || {
        let c = costs();
        go_to(0);
        let block = buffer(16 * PAGE);
        Sim::read(&block[..8 * PAGE]);
        // From the middle of page 1 to the middle of page 14: pages 2 to 13.
        let range = &block[2 * PAGE - 100..14 * PAGE + 100];
        let call =
            took(|| Sim::bind_memory(range, &MemoryPolicy::Preferred(3), false).expect("exists"));
        assert_eq!(call, c.system_call);
        assert_eq!(residency(&block), [8, 0, 0, 0, 8], "nothing is moved unless asked");
        Sim::read(&block);
        assert_eq!(
            residency(&block),
            [10, 0, 0, 6, 0],
            "but pages touched later follow the policy"
        );
        let moved =
            took(|| Sim::bind_memory(range, &MemoryPolicy::Preferred(3), true).expect("exists"));
        assert_eq!(moved, c.system_call + 6 * c.page_move);
        assert_eq!(residency(&block), [4, 0, 0, 12, 0]);
        assert_eq!(residency(&block[2 * PAGE..14 * PAGE]), [0, 0, 0, 12, 0]);
        // Moved pages come from their new place.
        let page = &block[2 * PAGE..3 * PAGE];
        assert_eq!(took(|| Sim::read(page)), from_latency(PAGE, c.memory_other_package));

        Sim::bind_memory(range, &MemoryPolicy::Interleave(vec![1, 2]), true)
            .expect("the nodes exist");
        assert_eq!(residency(&block), [4, 6, 6, 0, 0]);
        let again = took(|| {
            Sim::bind_memory(range, &MemoryPolicy::Bind(vec![1, 2]), true)
                .expect("the nodes exist");
        });
        assert_eq!(again, c.system_call, "all are where they may be");
        Sim::bind_memory(&block, &MemoryPolicy::Local, true).expect("always");
        assert_eq!(residency(&block), [16, 0, 0, 0, 0]);
        // Less than a page: nothing to do.
        Sim::bind_memory(&block[1..PAGE], &MemoryPolicy::Preferred(1), true).expect("exists");
        assert_eq!(residency(&block), [16, 0, 0, 0, 0]);
    });
}

#[test]
fn memory_returned_to_the_system_is_forgotten() {
    run("numa:2 core:2", &costs(), || {
        let c = costs();
        let pages = || {
            let process = Sim::process(Sim::current_thread()).expect("the calling thread is alive");
            process.resident.iter().sum::<usize>()
        };
        assert_eq!(pages(), 0);
        let first = 16 * c.page_fault + from_latency(64 * KIB, c.memory);
        for _ in 0..3 {
            go_to(0);
            let mut block = buffer(64 * KIB);
            assert_eq!(took(|| Sim::write(&mut block)), first, "as if it were new");
            Sim::bind_memory(&block, &MemoryPolicy::Preferred(1), false).expect("exists");
            assert_eq!(pages(), 16);
        }
        assert_eq!(pages(), 0);
        // A vector that grows is another object each time, wherever the allocator finds room.
        let mut grows = vec![0_u8; 2 * PAGE];
        Sim::write(&mut grows);
        assert_eq!(pages(), 2);
        grows.reserve_exact(6 * PAGE);
        assert_eq!(pages(), 0);
        Sim::write(&mut grows);
        drop(grows);
        // Stacks are memory too.
        Sim::join(spawn_on(1, move || {
            let mut block = [0_u8; 3 * PAGE];
            Sim::write(&mut block);
            assert!(pages() >= 3);
        }));
        assert_eq!(pages(), 0);
    });
}

/// Threads that hand blocks around, some of which are freed and made again.
fn blocks(fragments: bool) -> (u64, Instant) {
    let machine = Topology::from_synthetic(FOUR_NODES).expect("well formed");
    let outcome = Simulation::new(machine, 7).run(move || {
        let threads: Vec<_> = (0..12_usize)
            .map(|at| {
                Sim::spawn(ThreadSpec::default(), move || {
                    let mut kept: Vec<Box<[u8]>> = Vec::new();
                    for round in 0..40 {
                        let mut block = buffer(PAGE * (1 + (at * 7 + round * 5) % 60) + round);
                        Sim::write(&mut block);
                        if fragments && round % 3 == 0 {
                            std::mem::forget(buffer(PAGE * (1 + round % 7)));
                        }
                        compute(Duration::from_micros(at as u64));
                        if round % 2 == 0 {
                            kept.push(block);
                        }
                        if let Some(old) = kept.get(round / 3) {
                            Sim::read(&old[..old.len() / 2]);
                        }
                    }
                })
                .expect("a free slot")
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
    });
    (outcome.trace_hash, outcome.end)
}

#[test]
fn the_addresses_of_large_blocks_do_not_matter() {
    let first = blocks(false);
    let fragments: Vec<Box<[u8]>> = (1..100).map(|pages| buffer(pages * 3000)).collect();
    drop(fragments.into_iter().step_by(2).collect::<Vec<_>>());
    assert_eq!(first, blocks(false));
    assert_eq!(first, blocks(true));
}

#[test]
fn nearer_memory_is_never_slower_on_any_machine() {
    for name in Machine::NAMES {
        let machine = Machine::named(name).expect("listed");
        let topology = machine.topology().clone();
        let prices = Simulation::on(&machine, 1).jitter(false).run(move || {
            let first = topology.cpus().first().expect("there are CPUs").id;
            let location =
                |cpu| (topology.node_index(cpu), topology.llc_index(cpu), topology.core_index(cpu));
            let (node, llc, core) = location(first);
            // The CPU's own core, and the first CPU of another core, cache and node, if there is one.
            let find = |wanted: &dyn Fn(usize) -> bool| {
                topology.cpus().iter().map(|cpu| cpu.id).find(|cpu| wanted(*cpu))
            };
            let readers = [
                Some(first),
                find(&|cpu| location(cpu).2 != core && location(cpu).1 == llc),
                find(&|cpu| location(cpu).1 != llc && location(cpu).0 == node),
                find(&|cpu| location(cpu).0 != node),
            ];
            let mut prices = Vec::new();
            for reader in readers.into_iter().flatten() {
                let mut block = buffer(16 * KIB);
                go_to(first);
                Sim::write(&mut block);
                go_to(reader);
                let start = Sim::now();
                Sim::read(&block);
                prices.push(nanoseconds(Sim::now() - start));
            }
            prices
        });
        let prices = prices.expect();
        assert!(prices.len() > 1 && prices.is_sorted(), "{name}: {prices:?}");
    }
}

/// This is not a test of its own: the child process of the test below runs it.
#[test]
#[ignore = "run by another test"]
fn print_the_hash() {
    println!("hash {:x}.", blocks(true).0);
}

#[test]
fn another_process_with_another_environment_gets_the_same_hash() {
    let here = format!("hash {:x}.", blocks(false).0);
    for length in [0, 7777] {
        let child =
            std::process::Command::new(std::env::current_exe().expect("this test program exists"))
                .args(["--ignored", "--exact", "memory::print_the_hash", "--nocapture"])
                .env("NEARQ_TEST_PADDING", "x".repeat(length))
                .output()
                .expect("the test binary runs");
        let output = String::from_utf8_lossy(&child.stdout);
        assert!(output.contains(&here), "{here} is not in {output}");
    }
}

/// `cargo test --release -p nearq-sim --test simulated -- --ignored --nocapture real_time_per_block`
#[test]
#[ignore = "measures; run it in release mode"]
#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "measures real time")]
fn real_time_per_block() {
    const ROUNDS: usize = 20_000;
    for (what, blocks, cpus) in [
        ("32 KiB in the private cache", 1, 1),
        ("32 KiB in the last-level cache", 256, 1),
        ("32 KiB from memory", 4096, 1),
        ("32 KiB that other CPUs wrote", 256, 16),
    ] {
        let real = run(FOUR_NODES, &costs(), move || {
            let mut all: Vec<_> = (0..blocks).map(|_| buffer(32 * KIB)).collect();
            for block in &mut all {
                Sim::write(block);
            }
            let start = std::time::Instant::now();
            for round in 0..ROUNDS {
                if cpus > 1 && round % blocks == 0 {
                    go_to(round / blocks % cpus);
                }
                Sim::write(&mut all[round % blocks]);
            }
            start.elapsed()
        });
        println!("{what:<32} {:>6} ns", real.as_nanos() / ROUNDS as u128);
    }
}
