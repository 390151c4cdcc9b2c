//! Reading a `/sys` in which something is missing, broken or contradictory.

use crate::common::{Folder, cases};
use nearq_topology::{AffinityScope, CpuSet, DEFAULT_SHARD_SIZE, Topology};
use proptest::prelude::*;
use std::path::{Path, PathBuf};

const CPUS: &str = "sys/devices/system/cpu";

fn read(folder: &Folder) -> Topology {
    Topology::from_sysfs(&folder.path).expect("a machine")
}

fn lists<'a>(sets: impl Iterator<Item = &'a CpuSet>) -> Vec<String> {
    sets.map(CpuSet::to_list).collect()
}

fn llcs(machine: &Topology) -> Vec<String> {
    lists(machine.llcs().iter().map(|llc| &llc.cpus))
}

fn cores(machine: &Topology) -> Vec<String> {
    lists(machine.cores().iter().map(|core| &core.cpus))
}

fn noted(machine: &Topology, part: &str) {
    assert!(
        machine.notes().iter().any(|note| note.contains(part)),
        "{part}: {:?}",
        machine.notes()
    );
}

#[test]
fn without_caches_the_package_is_the_last_level_cache() {
    let folder = Folder::machine("no-cache");
    for cpu in 0..8 {
        folder.remove(&format!("{CPUS}/cpu{cpu}/cache"));
    }
    let machine = read(&folder);
    assert_eq!(llcs(&machine), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!((machine.llcs()[0].cache_index, machine.caches().len()), (None, 0));
    noted(
        &machine,
        "does not describe the caches: each package is assumed to have one last-level cache",
    );
}

#[test]
fn without_caches_on_some_cpus_the_rest_of_their_package_stands_in() {
    let folder = Folder::machine("some-cache");
    for cpu in [1, 5] {
        folder.remove(&format!("{CPUS}/cpu{cpu}/cache"));
    }
    for cpu in [0, 4] {
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), "11\n");
    }
    let machine = read(&folder);
    assert_eq!(llcs(&machine), ["0,4", "1,5", "2-3,6-7"]);
    noted(&machine, "the caches of CPUs 1,5");
}

#[test]
fn an_instruction_cache_is_no_last_level_cache() {
    let folder = Folder::machine("instructions");
    for cpu in 0..8 {
        let caches = format!("{CPUS}/cpu{cpu}/cache");
        folder.remove(&format!("{caches}/index2"));
        folder.file(
            &format!("{caches}/index1/shared_cpu_map"),
            if cpu % 4 < 2 { "33\n" } else { "cc\n" },
        );
        folder.file(&format!("{caches}/index1/level"), "2\n");
    }
    let machine = read(&folder);
    assert_eq!(llcs(&machine), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(machine.caches().len(), 2 + 4);
}

#[test]
fn without_nodes_one_is_assumed() {
    let folder = Folder::machine("no-node");
    folder.remove("sys/devices/system/node");
    let machine = read(&folder);
    assert_eq!(
        (machine.nodes().len(), machine.nodes()[0].id, machine.nodes()[0].cpus.to_list().as_str()),
        (1, 0, "0-7")
    );
    noted(&machine, "does not describe its NUMA nodes");
}

#[test]
fn without_topology_every_cpu_is_a_core() {
    let folder = Folder::machine("no-topology");
    for cpu in 0..8 {
        folder.remove(&format!("{CPUS}/cpu{cpu}/topology"));
    }
    let machine = read(&folder);
    assert_eq!((machine.cores().len(), machine.packages().len(), machine.llcs().len()), (8, 1, 2));
    noted(&machine, "the cores of CPUs 0-7 are not known");
    noted(&machine, "does not describe its packages");
}

#[test]
fn a_machine_with_only_cpu_folders_has_one_of_everything_else() {
    let folder = Folder::new("bare");
    for cpu in [0, 1, 3] {
        folder.file(&format!("{CPUS}/cpu{cpu}/uevent"), "");
    }
    folder.file(&format!("{CPUS}/cpufreq/boost"), "1").file(&format!("{CPUS}/cpu3/online"), "0\n");
    let machine = read(&folder);
    assert_eq!(
        (machine.possible().to_list().as_str(), machine.online().to_list().as_str()),
        ("0-1,3", "0-1")
    );
    assert_eq!((machine.cores().len(), llcs(&machine)), (3, vec!["0-1,3".to_owned()]));
    assert_eq!((machine.packages().len(), machine.nodes().len()), (1, 1));
    for part in [
        "its present CPUs: the 3 that have a folder are used",
        "online CPUs",
        "NUMA nodes",
        "packages",
        "caches",
        "cores of CPUs 0-1",
        "CPUs 3 are offline",
    ] {
        noted(&machine, part);
    }
}

#[test]
fn empty_cpu_slots_are_not_counted() {
    let folder = Folder::machine("slots");
    folder.file(&format!("{CPUS}/possible"), "0-127\n");
    let machine = read(&folder);
    assert_eq!(machine.notes(), [""; 0]);
    assert_eq!((machine.cpus().len(), machine.cores().len(), machine.llcs().len()), (8, 4, 2));
    assert_eq!(
        (machine.possible().to_list(), machine.slots().to_list()),
        ("0-7".into(), "8-127".into())
    );
    assert!(machine.cpu(8).is_none());
    for &scope in AffinityScope::ALL {
        let pods = machine.pods(scope, DEFAULT_SHARD_SIZE);
        assert!(pods.pods.iter().all(|pod| pod.cpus.is_subset(machine.possible())), "{scope}");
    }
    // Offline CPUs are plugged in, and count.
    folder.file(&format!("{CPUS}/present"), "0-8\n");
    assert_eq!((read(&folder).cpus().len(), read(&folder).slots().len()), (9, 119));
    // More slots than supported CPUs do not matter.
    folder.file(&format!("{CPUS}/possible"), "0-8191\n");
    assert_eq!(read(&folder).cpus().len(), 9);
}

#[test]
fn offline_cpus_keep_their_node_and_join_its_only_cache() {
    let folder = Folder::machine("offline");
    folder.file(&format!("{CPUS}/online"), "0-5,7\n");
    for (node, map) in [(0, "33\n"), (1, "8c\n")] {
        folder.file(&format!("sys/devices/system/node/node{node}/cpumap"), map);
    }
    // As in the kernel: no topology and no caches while offline, but the link to the node stays.
    folder.file(&format!("{CPUS}/present"), "0-9\n");
    folder.remove(&format!("{CPUS}/cpu6/topology")).remove(&format!("{CPUS}/cpu6/cache"));
    folder.file(&format!("{CPUS}/cpu6/node1/uevent"), "");
    for (cpu, map) in [(2, "04\n"), (3, "88\n"), (7, "88\n")] {
        folder.file(&format!("{CPUS}/cpu{cpu}/topology/core_cpus"), map);
    }
    for cpu in [2, 3, 7] {
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), "8c\n");
    }
    for index in [0, 1] {
        folder.file(&format!("{CPUS}/cpu2/cache/index{index}/shared_cpu_map"), "04\n");
    }
    let machine = read(&folder);
    assert_eq!(machine.node_index(6), Some(1));
    assert_eq!(machine.node_index(9), None);
    assert_eq!(cores(&machine), ["0,4", "1,5", "2", "3,7", "6", "8", "9"]);
    assert_eq!(llcs(&machine), ["0-1,4-5", "2-3,6-7", "8-9"]);
    assert!(
        !machine.cpu(6).expect("a possible CPU").online
            && machine.cpu(7).expect("a possible CPU").online
    );
    noted(&machine, "the node of CPUs 8-9 is not known");
    noted(&machine, "CPUs 6,8-9 are offline");
}

#[test]
fn contradictory_distances_are_not_used() {
    for (name, row, part) in [
        ("short", "10\n", "has 1 distances for 2 nodes"),
        ("long", "10 21 21\n", "has 3 distances for 2 nodes"),
        ("self", "11 21\n", "11 from node 0 to itself is not 10"),
        ("near", "10 3\n", "less than 10"),
        ("far", "10 65536\n", "more than 65535"),
        ("words", "ten 21\n", "\"ten\" is not a number"),
    ] {
        let folder = Folder::machine(&format!("distances-{name}"));
        folder.file("sys/devices/system/node/node0/distance", row);
        let machine = read(&folder);
        assert_eq!((machine.distance(0, 1), machine.distance(0, 0)), (20, 10), "{name}");
        noted(&machine, part);
        noted(&machine, "the distances between nodes are not known");
    }
}

#[test]
fn garbage_is_ignored_and_reported() {
    let folder = Folder::machine("garbage");
    folder
        .file(&format!("{CPUS}/online"), "0-99999999999\n")
        .file(&format!("{CPUS}/cpu0/topology/core_cpus"), "zebra\n")
        .file(&format!("{CPUS}/cpu0/cache/index2/size"), "16 elephants\n")
        .file(&format!("{CPUS}/cpu2/cache/index0/type"), "Quantum\n")
        .file(&format!("{CPUS}/cpu3/cache/index2/level"), "\u{0}\u{1}\n")
        .file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: lots kB\n");
    let machine = read(&folder);
    assert_eq!(machine.cpus().len(), 8);
    // Their siblings claim the same about them.
    assert_eq!((cores(&machine).len(), llcs(&machine).len()), (4, 2));
    assert_eq!(machine.nodes()[1].memory, None);
    for part in [
        "online is ignored",
        "must be below 65536",
        "core_cpus is ignored",
        "\"Quantum\" is not Data",
        "elephants",
    ] {
        noted(&machine, part);
    }
}

#[test]
fn impossible_numbers_are_left_out() {
    let folder = Folder::machine("nonsense");
    folder
        .file(&format!("{CPUS}/cpu0/cache/index2/size"), "17179869183G\n")
        .file(&format!("{CPUS}/cpu0/cpu_capacity"), "19\n")
        .file(&format!("{CPUS}/cpu1/cpu_capacity"), "4294967295\n")
        .file(&format!("{CPUS}/cpu2/cpu_capacity"), "1024\n")
        .file("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 18014398509481983 kB\n");
    let machine = read(&folder);
    assert_eq!((machine.caches()[0].size, machine.caches()[1].size), (None, Some(16 << 20)));
    assert_eq!(machine.nodes().iter().filter_map(|node| node.memory).sum::<u64>(), 4096 * 1024);
    let capacities: Vec<_> = machine.cpus().iter().filter_map(|cpu| cpu.capacity).collect();
    assert_eq!(capacities, [1024]);
    noted(&machine, "4 sizes and capacities are impossible");
}

#[test]
fn a_thousand_broken_files_do_not_make_a_thousand_notes() {
    let folder = Folder::machine("flood");
    for cpu in 0..8 {
        for name in ["core_cpus", "package_cpus", "physical_package_id"] {
            folder.file(&format!("{CPUS}/cpu{cpu}/topology/{name}"), "?\n");
        }
    }
    let machine = read(&folder);
    noted(&machine, "16 more files could not be used");
    assert!(machine.notes().len() < 16, "{:?}", machine.notes());
}

#[test]
fn unreadable_files_are_named() {
    let folder = Folder::machine("unreadable");
    // A folder where a file should be cannot be read by anyone, root included.
    folder.remove(&format!("{CPUS}/cpu0/topology/core_cpus"));
    folder.file(&format!("{CPUS}/cpu0/topology/core_cpus/x"), "");
    let machine = read(&folder);
    noted(&machine, "cpu0/topology/core_cpus cannot be read");
    assert_eq!(cores(&machine)[0], "0,4");
}

#[test]
fn sets_without_their_own_cpu_are_ignored() {
    let folder = Folder::machine("foreign");
    folder
        .file(&format!("{CPUS}/cpu1/topology/core_cpus"), "11\n")
        .file(&format!("{CPUS}/cpu5/topology/core_cpus"), "11\n")
        .file(&format!("{CPUS}/cpu1/cache/index0/shared_cpu_map"), "00\n");
    let machine = read(&folder);
    assert_eq!(cores(&machine), ["0,4", "1", "2,6", "3,7", "5"]);
    // CPU 5 makes such a claim about its cache.
    assert_eq!(machine.caches().len(), 2 + 4 + 4);
    folder.file(&format!("{CPUS}/cpu5/cache/index0/shared_cpu_map"), "00\n");
    noted(&read(&folder), "some caches of CPUs 1,5 do not say which CPUs share them");
}

#[test]
fn a_cache_that_does_not_say_which_cpus_share_it_is_at_least_that_of_a_core() {
    let folder = Folder::machine("empty-map");
    for cpu in 0..8 {
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), "00\n");
    }
    let machine = read(&folder);
    assert_eq!(cores(&machine), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(llcs(&machine), ["0,4", "1,5", "2,6", "3,7"]);
    noted(&machine, "some caches of CPUs 0-7 do not say which CPUs share them");
    // The cache is shared by at least the CPUs that share a lower cache.
    for cpu in 0..8 {
        let map = if cpu % 4 < 2 { "33\n" } else { "cc\n" };
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index0/shared_cpu_map"), map);
    }
    assert_eq!(llcs(&read(&folder)), ["0-1,4-5", "2-3,6-7"]);
    // A CPU that does not say where it is belongs where the others say; the list counts if the mask is empty.
    let folder = Folder::machine("one-empty-map");
    folder.file(&format!("{CPUS}/cpu0/cache/index2/shared_cpu_map"), "00\n");
    assert_eq!((llcs(&read(&folder)).len(), read(&folder).notes().len()), (2, 0));
    for cpu in 0..8 {
        let list = if cpu % 4 < 2 { "0-1,4-5\n" } else { "2-3,6-7\n" };
        folder
            .file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), "00\n")
            .file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_list"), list);
    }
    assert_eq!((llcs(&read(&folder)).len(), read(&folder).notes().len()), (2, 0));
}

#[test]
fn siblings_of_a_core_share_its_caches_whatever_the_files_say() {
    let folder = Folder::machine("cut-core");
    for (cpu, map) in [(1, "02\n"), (5, "20\n")] {
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), map);
    }
    for (cpu, map) in [(0, "11\n"), (4, "11\n")] {
        folder.file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), map);
    }
    let machine = read(&folder);
    assert_eq!(cores(&machine), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(llcs(&machine), ["0,4", "1,5", "2-3,6-7"]);
    noted(&machine, "CPUs 5 share cores but not caches");
}

#[test]
fn one_cpu_that_contradicts_all_others_is_outvoted() {
    for (name, file, map) in [
        ("core", "topology/core_cpus", "ff\n"),
        ("core-alone", "topology/core_cpus", "01\n"),
        ("package", "topology/package_cpus", "ff\n"),
        ("package-alone", "topology/package_cpus", "01\n"),
        ("cache", "cache/index2/shared_cpu_map", "ff\n"),
        ("cache-alone", "cache/index2/shared_cpu_map", "01\n"),
        ("level", "cache/index2/level", "9\n"),
    ] {
        let folder = Folder::machine(&format!("outvoted-{name}"));
        folder.file(&format!("{CPUS}/cpu0/{file}"), map);
        let machine = read(&folder);
        assert_eq!(llcs(&machine), ["0-1,4-5", "2-3,6-7"], "{name}");
        assert_eq!(
            lists(machine.packages().iter().map(|group| &group.cpus)),
            ["0-1,4-5", "2-3,6-7"],
            "{name}"
        );
        // If one of two siblings says that they are not siblings, either may be right.
        if name != "core-alone" {
            assert_eq!(cores(&machine), ["0,4", "1,5", "2,6", "3,7"], "{name}");
            let is_noted = machine.notes().iter().any(|note| note.contains("CPUs 0 say"));
            assert!(is_noted, "{name}: {:?}", machine.notes());
        }
    }
}

#[test]
fn a_cpu_on_several_nodes_is_on_the_linked_or_else_the_smallest_one() {
    let nodes = |folder: &Folder| lists(read(folder).nodes().iter().map(|node| &node.cpus));
    for (node, wrong) in [(0, "ff\n"), (1, "dd\n")] {
        let folder = Folder::machine(&format!("overlap-{node}"));
        folder.file(&format!("sys/devices/system/node/node{node}/cpumap"), wrong);
        assert_eq!(nodes(&folder), ["0-1,4-5", "2-3,6-7"], "{node}");
        noted(&read(&folder), "are on several nodes");
    }
    let folder = Folder::machine("overlap-link");
    folder.file("sys/devices/system/node/node0/cpumap", "3b\n");
    folder.file(&format!("{CPUS}/cpu3/node0/uevent"), "");
    assert_eq!(nodes(&folder), ["0-1,3-5", "2,6-7"]);
    noted(
        &read(&folder),
        "several nodes list CPUs 3: each is put on the node that its own folder names",
    );
    // If all nodes list the same CPUs, the first node has them all: the CPUs' own links would cut caches.
    let folder = Folder::machine("overlap-same");
    for node in [0, 1] {
        folder.file(&format!("sys/devices/system/node/node{node}/cpumap"), "ff\n");
    }
    for cpu in 0..8 {
        folder.file(&format!("{CPUS}/cpu{cpu}/node{}/uevent", cpu % 2), "");
    }
    assert_eq!(
        (nodes(&folder), llcs(&read(&folder)).len()),
        (vec!["0-7".into(), String::new()], 2)
    );
}

#[test]
fn if_no_cpu_is_online_all_are_taken_as_online() {
    let folder = Folder::machine("none-online");
    folder.file(&format!("{CPUS}/online"), "64-65\n");
    assert_eq!(read(&folder).online().to_list(), "0-7");
    noted(&read(&folder), "says that none of its CPUs is online");
}

#[test]
fn every_cpu_that_is_online_has_a_node() {
    let node = "sys/devices/system/node/node";
    let nodes = |folder: &Folder| {
        let machine = read(folder);
        assert!(machine.cpus().iter().all(|cpu| cpu.node_index.is_some()), "{:?}", machine.notes());
        lists(machine.nodes().iter().map(|node| &node.cpus))
    };
    // No node says which CPUs it has.
    let folder = Folder::machine("no-lists");
    folder.remove(&format!("{node}0/cpumap")).remove(&format!("{node}1/cpumap"));
    assert_eq!(nodes(&folder), ["0-7", ""]);
    noted(&read(&folder), "the node of CPUs 0-7 is not known: they are put on node 0");
    for node in [0, 1] {
        folder.file(&format!("sys/devices/system/node/node{node}/cpulist"), "\n");
    }
    assert_eq!(nodes(&folder).concat(), "0-7");
    // One node does not say so: it has the CPUs of the packages that no other node has.
    let folder = Folder::machine("one-list");
    folder.remove(&format!("{node}0/cpumap"));
    assert_eq!(nodes(&folder), ["0-1,4-5", "2-3,6-7"]);
    // One node leaves out a CPU whose core is on it.
    let folder = Folder::machine("one-missing");
    folder.file(&format!("{node}1/cpumap"), "8c\n");
    assert_eq!(nodes(&folder), ["0-1,4-5", "2-3,6-7"]);
    noted(&read(&folder), "no node lists CPUs 6");
}

#[test]
fn groups_that_overlap_or_cross_are_made_to_nest() {
    let folder = Folder::machine("crossing");
    // A core is in two packages; both nodes list CPU 3, and its folder says on which of them it is.
    for cpu in [0, 2] {
        folder.file(&format!("{CPUS}/cpu{cpu}/topology/core_cpus"), "05\n");
    }
    folder
        .file("sys/devices/system/node/node0/cpumap", "3b\n")
        .file(&format!("{CPUS}/cpu3/node0/uevent"), "");
    let machine = read(&folder);
    assert_eq!(lists(machine.nodes().iter().map(|node| &node.cpus)), ["0-1,3-5", "2,6-7"]);
    assert_eq!(llcs(&machine), ["0-1,4-5", "2,6-7", "3"]);
    assert_eq!(cores(&machine), ["0", "1,5", "2", "3", "4", "6", "7"]);
    noted(&machine, "the L3 cache of CPUs 2-3,6-7 spans 2 nodes");
    noted(&machine, "are in several cores");
    noted(&machine, "such cores are split");
}

/// Every file of the folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> =
        entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect();
    paths.sort();
    paths
}

proptest! {
    #![proptest_config(cases(16, 48))]

    #[test]
    fn whatever_the_files_hold_the_machine_is_consistent(
        damage in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of("[-0-9a-f, ]{0,12}")), 1..40)
    ) {
        let folder = Folder::machine("damaged");
        let all = files(&folder.path);
        for (index, text) in damage {
            let path = &all[index.index(all.len())];
            match text {
                Some(text) => std::fs::write(path, text).expect("a file that exists"),
                None => drop(std::fs::remove_file(path)),
            }
        }
        let machine = match Topology::from_sysfs(&folder.path) {
            Ok(machine) => machine,
            Err(error) => {
                prop_assert!(error.to_string().contains("CPU"), "{}", error);
                return Ok(());
            }
        };
        let within = |inner: &CpuSet, outer: &CpuSet| inner.is_subset(outer);
        for core in machine.cores() {
            prop_assert!(within(&core.cpus, &machine.llcs()[core.llc_index].cpus));
        }
        for llc in machine.llcs() {
            prop_assert!(llc.node_index.is_none_or(|node| within(&llc.cpus, &machine.nodes()[node].cpus)));
        }
        for &scope in AffinityScope::ALL {
            let pods = machine.pods(scope, DEFAULT_SHARD_SIZE);
            prop_assert_eq!(pods.pods.iter().map(|pod| pod.cpus.len()).sum::<usize>(), machine.possible().len());
            prop_assert!(machine.possible().iter().all(|cpu| pods.pod_index(cpu).is_some()));
        }
    }
}
