//! Where lines lie: on the simulated machine, and on this one if it has several nodes.

use nearq_platform::Ordering::Relaxed;
use nearq_platform::{Linux, Placement};

use super::*;
use crate::skipped::skipped;

/// The bytes of a line.
fn bytes<P: LockPlatform>(line: &Line<P>) -> &[u8] {
    let start = core::ptr::from_ref(line).cast();
    // SAFETY: validity: the line's own bytes, all written: it was zeroed before it was made, and its fields are numbers. Aliasing and
    // thread: no other thread knows of the line.
    unsafe { core::slice::from_raw_parts(start, size_of::<Line<P>>()) }
}

/// The node on which a line is, if the system says.
fn node_of<P: Placement>(line: &Line<P>) -> Option<usize> {
    P::residency(bytes(line), 1).ok()?.pages.iter().position(|pages| *pages > 0)
}

fn rows<P: LockPlatform>(slots: usize, nodes: &[Option<usize>]) -> Vec<Row<P>> {
    Row::sheet(slots, nodes).expect("there is memory").collect()
}

#[test]
fn lines_are_separate_and_lines_of_one_domain_are_adjacent() {
    for nodes in [vec![None], vec![Some(0); 3], vec![None, Some(0), None]] {
        for slots in [1, 2, 64, 100] {
            let rows = rows::<Linux>(slots, &nodes);
            assert_eq!(rows.len(), slots);
            let place = |line: &Line<Linux>| bytes(line).as_ptr().addr();
            for (slot, row) in rows.iter().enumerate() {
                for (domain, line) in row.iter().enumerate() {
                    line.front.store((slot * 10 + domain) as u32, Relaxed);
                    let first = place(&rows[0][domain]);
                    assert_eq!(place(line), first + slot * 64);
                    if nodes.contains(&None) && nodes.contains(&Some(0)) {
                        assert_eq!(first % Linux::page_size(), 0, "whole pages");
                    }
                }
            }
            for (slot, row) in rows.iter().enumerate() {
                let written: Vec<_> = row.iter().map(|line| line.front.load(Relaxed)).collect();
                let expected: Vec<_> =
                    (0..nodes.len()).map(|domain| (slot * 10 + domain) as u32).collect();
                assert_eq!(written, expected, "the line of no other domain");
            }
        }
    }
}

#[test]
#[should_panic(expected = "no such domain")]
fn a_nonexistent_domain_has_no_line() {
    let _ = rows::<Linux>(2, &[None, None])[1][2].front.load(Relaxed);
}

/// A node that no machine has, like one that a container forbids: the lines are still allocated somewhere.
#[test]
fn a_refused_node_is_no_error() {
    let rows = rows::<Linux>(64, &[Some(0), Some(1_000_000)]);
    rows[63][1].front.store(7, Relaxed);
    assert_eq!(rows[63][1].front.load(Relaxed), 7);
}

/// Asks the kernel (`move_pages`) where it put them.
#[test]
fn on_this_machine_each_domain_has_its_lines_on_its_node() {
    let map = Linux::cache_map();
    let nodes: Vec<_> = map.caches().iter().map(|cache| cache.memory).collect();
    if nodes.iter().all(|node| *node == nodes[0]) {
        let how = "run the tests on a machine with several";
        return skipped("lines on their nodes", "this machine has one node", how);
    }
    for slots in [1, 64, 1000] {
        let rows = rows::<Linux>(slots, &nodes);
        for slot in [0, slots / 2, slots - 1] {
            let found: Vec<_> = rows[slot].iter().map(node_of).collect();
            assert_eq!(found, nodes, "slot {slot} of {slots}");
        }
        println!("{slots} slots of {} domains: on nodes {nodes:?}", nodes.len());
    }
}

#[cfg(not(miri))]
mod simulated {
    use nearq_sim::{Sim, Simulation};
    use nearq_topology::Topology;

    use super::*;
    use crate::process_state::ProcessState;
    use crate::raw::RawMutex;
    use crate::settings::{Mode, Settings};
    use crate::word::slot;

    fn on_four_caches_of_two_nodes(body: impl FnOnce() + Send + 'static) {
        let machine = Topology::from_synthetic("numa:2 l3:2 core:2 pu:1").expect("well formed");
        Simulation::new(machine, 1).run(body).expect();
    }

    fn in_numa_mode() {
        Settings { mode: Mode::Numa, ..Settings::default() }.set_for_process_in::<Sim>();
    }

    #[test]
    fn each_domain_has_its_lines_on_its_node() {
        on_four_caches_of_two_nodes(|| {
            in_numa_mode();
            let mutexes: Vec<_> = (0..70).map(|_| RawMutex::<Sim>::new_in()).collect();
            let process = ProcessState::<Sim>::get();
            for mutex in &mutexes {
                assert!(mutex.bind_for_test());
                let found = process.slots.get(slot(mutex.word_now())).lines().map(|line| {
                    // The simulated machine is notified that plain memory is touched, and then chooses a node for it by policy.
                    Sim::read(bytes(line));
                    node_of(line)
                });
                assert_eq!(found.collect::<Vec<_>>(), [0, 0, 1, 1].map(Some));
            }
        });
    }

    /// All slots that there may be are bound: a mutex that comes late stays plain, and works, until a slot is free again.
    #[test]
    fn without_a_slot_a_mutex_stays_plain() {
        on_four_caches_of_two_nodes(|| {
            in_numa_mode();
            let mut mutexes: Vec<_> = (0..4096).map(|_| RawMutex::<Sim>::new_in()).collect();
            let late = mutexes.pop().expect("many");
            assert!(mutexes.iter().all(RawMutex::bind_for_test));
            assert!(!late.bind_for_test());
            assert!(late.try_lock());
            // SAFETY: taken above.
            unsafe { late.unlock() };
            assert_eq!(late.word_now(), 0);
            mutexes.pop();
            assert!(late.bind_for_test());
        });
    }
}
