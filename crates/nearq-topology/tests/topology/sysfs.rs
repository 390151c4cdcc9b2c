//! Reading `/sys`: machines as they should be, old and new, and folders that are no machine at all.

use crate::common::Folder;
use nearq_topology::{AffinityScope, CacheKind, CpuSet, DEFAULT_SHARD_SIZE, Distance, Topology};
use std::path::Path;

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

#[test]
fn a_whole_machine_is_read_without_notes() {
    let folder = Folder::machine("whole");
    let machine = read(&folder);
    assert_eq!(machine.notes(), [""; 0]);
    assert_eq!(machine.model_name(), Some("Example CPU @ 2GHz"));
    assert_eq!(cores(&machine), ["0,4", "1,5", "2,6", "3,7"]);
    assert_eq!(llcs(&machine), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(lists(machine.packages().iter().map(|group| &group.cpus)), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!((machine.dies().len(), machine.clusters().len()), (0, 0));
    assert_eq!(
        (machine.node_index(6), machine.llc_index(6), machine.core_index(6)),
        (Some(1), Some(1), Some(2))
    );
    assert_eq!(
        (machine.node_index(8), machine.llc_index(8), machine.core_index(8)),
        (None, None, None)
    );
    assert_eq!((machine.distance(0, 1), machine.nodes()[1].memory), (21, Some(4096 * 1024)));
    let caches: Vec<_> =
        machine.caches().iter().map(|c| (c.level, c.kind, c.size, c.line)).collect();
    assert_eq!(caches.len(), 2 + 4 + 4);
    assert_eq!(caches[0], (3, CacheKind::Unified, Some(16 << 20), Some(64)));
    assert_eq!(caches[9], (1, CacheKind::Instruction, Some(32 << 10), Some(64)));
    assert_eq!(machine.cpu_distance(0, 4), Distance::SameCore);
    assert_eq!(machine.cpu_distance(0, 5), Distance::SameLlc);
    assert_eq!(machine.cpu_distance(0, 7), Distance::OtherNode(21));
}

#[test]
fn the_sys_folder_itself_is_accepted_too() {
    let folder = Folder::machine("sys-itself");
    let machine = Topology::from_sysfs(&folder.path.join("sys")).expect("a machine");
    assert_eq!((machine.cpus().len(), machine.model_name()), (8, Some("Example CPU @ 2GHz")));
}

#[test]
fn isolated_cpus_are_those_that_two_files_name() {
    let folder = Folder::machine("isolated");
    assert!(read(&folder).isolated().is_empty());
    // CPU 9 does not exist.
    folder.file(&format!("{CPUS}/isolated"), "2,9\n").file(&format!("{CPUS}/nohz_full"), "6\n");
    let machine = read(&folder);
    assert_eq!((machine.isolated().to_list().as_str(), machine.online().len()), ("2,6", 8));
    folder.file(&format!("{CPUS}/nohz_full"), " (null)\n");
    let machine = read(&folder);
    assert_eq!((machine.isolated().to_list().as_str(), machine.notes()), ("2", &[][..]));
}

#[test]
fn nodes_may_have_memory_alone_or_nothing() {
    let folder = Folder::machine("memory-only");
    let node = "sys/devices/system/node/node";
    folder
        .file(&format!("{node}4/cpumap"), "00\n")
        .file(&format!("{node}4/meminfo"), "Node 4 MemTotal: 1048576 kB\n")
        .file(&format!("{node}4/distance"), "17 28 10\n")
        .file(&format!("{node}0/distance"), "10 21 17\n")
        .file(&format!("{node}1/distance"), "21 10 28\n");
    let machine = read(&folder);
    assert_eq!(machine.notes(), [""; 0]);
    assert_eq!(machine.nodes().iter().map(|node| node.id).collect::<Vec<_>>(), [0, 1, 4]);
    assert_eq!((machine.nodes()[2].memory, machine.nodes()[2].cpus.len()), (Some(1 << 30), 0));
    assert_eq!(
        (machine.node_index_by_id(4), machine.node_index_by_id(2), machine.distance(2, 1)),
        (Some(2), None, 28)
    );
    assert_eq!(machine.pods(AffinityScope::Numa, DEFAULT_SHARD_SIZE).pods.len(), 2);
}

#[test]
fn hybrid_cores_have_a_kind_and_a_capacity() {
    let folder = Folder::machine("hybrid");
    folder
        .file("sys/devices/cpu_core/cpus", "0-1,4-5\n")
        .file("sys/devices/cpu_atom/cpus", "2-3,6-7\n")
        .file(&format!("{CPUS}/cpu0/cpu_capacity"), "1024\n")
        .file(&format!("{CPUS}/cpu2/cpu_capacity"), "446\n");
    let machine = read(&folder);
    let of = |cpu| machine.cpu(cpu).map(|cpu| (cpu.kind.as_deref().unwrap_or(""), cpu.capacity));
    assert_eq!(
        (of(0), of(2), of(3)),
        (Some(("core", Some(1024))), Some(("atom", Some(446))), Some(("atom", None)))
    );
    assert_eq!(machine.cores()[2].kind.as_deref(), Some("atom"));
    assert!(machine.is_hybrid());
    assert!(!read(&Folder::machine("not-hybrid")).is_hybrid());
}

#[test]
fn clusters_and_dies_are_read_if_the_firmware_has_them() {
    let folder = Folder::machine("clusters");
    for cpu in 0..8 {
        let topology = format!("{CPUS}/cpu{cpu}/topology");
        // All four cores of a made-up package, in two dies and two clusters of two cores each.
        folder
            .file(&format!("{topology}/package_cpus"), "ff\n")
            .file(&format!("{CPUS}/cpu{cpu}/cache/index2/shared_cpu_map"), "ff\n")
            .file(&format!("{topology}/die_cpus"), if cpu % 4 < 2 { "33\n" } else { "cc\n" })
            .file(&format!("{topology}/die_id"), if cpu % 4 < 2 { "0\n" } else { "1\n" })
            .file(&format!("{topology}/cluster_cpus"), if cpu % 4 < 2 { "33\n" } else { "cc\n" })
            .file(&format!("{topology}/cluster_id"), if cpu % 4 < 2 { "65535\n" } else { "7\n" });
    }
    folder.remove("sys/devices/system/node");
    let machine = read(&folder);
    assert_eq!(lists(machine.dies().iter().map(|group| &group.cpus)), ["0-1,4-5", "2-3,6-7"]);
    assert_eq!(lists(machine.clusters().iter().map(|group| &group.cpus)), ["2-3,6-7"]);
    assert_eq!(machine.cpu_distance(2, 3), Distance::SameCluster);
    assert_eq!(machine.cpu_distance(0, 1), Distance::SameLlc);
}

#[test]
fn old_kernels_write_other_names() {
    let folder = Folder::machine("old");
    for cpu in 0..8 {
        let topology = format!("{CPUS}/cpu{cpu}/topology");
        let core = format!("00000000,{:08x}\n", 0x11 << (cpu % 4));
        folder.remove(&topology).file(&format!("{topology}/thread_siblings"), &core);
        folder.file(
            &format!("{topology}/core_siblings_list"),
            if cpu % 4 < 2 { "0-1,4-5\0\0" } else { "2-3,6-7\n\0" },
        );
    }
    let machine = read(&folder);
    assert_eq!(
        (cores(&machine).len(), machine.packages().len(), machine.packages()[1].id),
        (4, 2, None)
    );
    assert_eq!(machine.notes(), [""; 0]);
}

#[test]
fn too_many_and_too_few_cpus_are_clear_errors() {
    let folder = Folder::new("too-many");
    folder
        .file(&format!("{CPUS}/possible"), "0-4096\n")
        .file(&format!("{CPUS}/present"), "0-4096\n");
    let error = Topology::from_sysfs(&folder.path).expect_err("too many").to_string();
    assert!(error.starts_with("4097 CPUs: more than the 4096"), "{error}");
    folder.file(&format!("{CPUS}/present"), "0-1\n");
    let machine = read(&folder);
    assert_eq!((machine.cpus().len(), machine.slots().len()), (2, 4095));

    let folder = Folder::new("too-few");
    folder.file(&format!("{CPUS}/kernel_max"), "7\n");
    let error = Topology::from_sysfs(&folder.path).expect_err("no CPU").to_string();
    assert!(error.starts_with("no CPU found in ") && error.contains("too-few"), "{error}");
}

#[test]
fn folders_without_a_machine_are_clear_errors() {
    let folder = Folder::new("no-machine");
    let error = |path: &Path| Topology::from_sysfs(path).expect_err("not a machine").to_string();
    assert!(
        error(&folder.path).contains("holds neither sys/devices/system/cpu nor"),
        "{}",
        error(&folder.path)
    );
    assert!(
        error(&folder.path.join("none")).starts_with("cannot read "),
        "{}",
        error(&folder.path.join("none"))
    );
}

#[test]
fn descriptions_name_folders_files_and_machines() {
    let folder = Folder::machine("described");
    let path = folder.path.display();
    for text in [format!("sysfs:{path}"), path.to_string(), format!("sysfs:{path}/sys")] {
        assert_eq!(Topology::from_description(&text).expect("a machine").cpus().len(), 8, "{text}");
    }
    folder.file("m.xml", r#"<topology version="2.0"><object type="PU" os_index="5"/></topology>"#);
    let machine = Topology::from_description(&format!("{path}/m.xml")).expect("a machine");
    assert_eq!(machine.possible().to_list(), "5");
    for (text, part) in [
        (format!("{path}/none.xml"), "cannot read "),
        ("sysfs:/nonexistent".into(), "cannot read /nonexistent"),
        ("none.xml".into(), "no such file, and not a description"),
        ("folder/none".into(), "no such file"),
        (String::new(), "no such file"),
        ("pack:2 cor:2".into(), "\"cor:2\" in \"pack:2 cor:2\""),
        (format!("{path}/proc/cpuinfo"), "not a machine in hwloc's XML format"),
    ] {
        let error = Topology::from_description(&text).expect_err("no machine").to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}
