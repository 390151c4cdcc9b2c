//! How many files a check of a large machine reads.

use crate::files::ACCESSES;
use crate::{CpuSet, Limits, Topology};
use std::fs;
use std::path::{Path, PathBuf};

const CPUS: &str = "sys/devices/system/cpu";
const NODES: &str = "sys/devices/system/node";

/// The folder of a made-up machine, removed at the end.
struct Folder(PathBuf);

impl Folder {
    /// A machine of 2 nodes, with caches shared by 16 CPUs and cores of 2 CPUs, as Linux describes it.
    fn machine(name: &str, count: usize) -> Self {
        let path = format!("nearq-topology-{}-{name}", std::process::id());
        let folder = Folder(std::env::temp_dir().join(path));
        for list in ["possible", "present", "online"] {
            folder.file(&format!("{CPUS}/{list}"), &format!("0-{}", count - 1));
        }
        let block = |cpu: usize, size: usize| {
            let first = cpu / size * size;
            CpuSet::from_range(first..first + size)
        };
        for cpu in 0..count {
            let (core, cache, node) = (block(cpu, 2), block(cpu, 16), block(cpu, count / 2));
            let path = format!("{CPUS}/cpu{cpu}");
            folder.file(&format!("{path}/topology/core_cpus_list"), &core.to_list());
            folder.file(&format!("{path}/topology/package_cpus_list"), &node.to_list());
            for (index, level, kind, cpus) in [
                (0, 1, "Data", &core),
                (1, 1, "Instruction", &core),
                (2, 2, "Unified", &core),
                (3, 3, "Unified", &cache),
            ] {
                let path = format!("{path}/cache/index{index}");
                folder.file(&format!("{path}/level"), &level.to_string());
                folder.file(&format!("{path}/type"), kind);
                folder.file(&format!("{path}/shared_cpu_list"), &cpus.to_list());
            }
        }
        folder.file(&format!("{NODES}/online"), "0-1");
        for node in 0..2 {
            let cpus = block(node * count / 2, count / 2);
            folder.file(&format!("{NODES}/node{node}/cpulist"), &cpus.to_list());
            folder.file(&format!("{NODES}/node{node}/distance"), ["10 20", "20 10"][node]);
        }
        folder.file("proc/self/cgroup", "0::/app");
        let mounts = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw";
        folder.file("proc/self/mountinfo", mounts);
        folder.file("sys/fs/cgroup/app/cpu.max", "max 100000");
        folder.file("sys/fs/cgroup/app/cpuset.cpus.effective", &format!("0-{}", count - 1));
        folder
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text.to_owned() + "\n").unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// How many files and folders are accessed while the function runs.
fn accesses<T>(act: impl FnOnce() -> T) -> (usize, T) {
    let before = ACCESSES.get();
    let result = act();
    (ACCESSES.get() - before, result)
}

/// What the runtime does once a second.
fn recheck(
    root: &Path,
    topology: &Topology,
    limits: &Limits,
    affinity: &CpuSet,
) -> (Limits, Option<Topology>) {
    let limits = limits.reread(root, affinity.clone());
    let topology = topology.reread(root, &limits.online).unwrap();
    (limits, topology)
}

#[test]
#[cfg_attr(miri, ignore = "ten thousand files")]
fn rechecking_an_unchanged_machine_reads_few_files_at_any_size() {
    let mut few = Vec::new();
    for count in [32, 512] {
        let folder = Folder::machine("few-files", count);
        let (root, all) = (folder.0.as_path(), CpuSet::all(count));
        let limits = Limits::read(root, all.clone());
        let (whole, machine) = accesses(|| Topology::from_sysfs(root).unwrap());
        assert_eq!((machine.llcs().len(), machine.is_whole()), (count / 16, true));
        assert!(whole > 20 * count, "{whole} files were read of {count} CPUs");
        let (read_count, now) = accesses(|| recheck(root, &machine, &limits, &all));
        assert_eq!(now, (limits.clone(), None));
        few.push(read_count);
        // A check with another affinity costs the same.
        let fewer = CpuSet::from_range(0..8);
        let (read_count, now) = accesses(|| recheck(root, &machine, &limits, &fewer));
        assert_eq!((now.0.effective(), now.1), (fewer, None));
        few.push(read_count);
        // With one CPU less the machine is another one; the kernel removes the CPU from all affinities.
        folder.file(&format!("{CPUS}/online"), &format!("0-{}", count - 2));
        let (read_count, now) =
            accesses(|| recheck(root, &machine, &limits, &CpuSet::all(count - 1)));
        assert!(read_count > whole / 2, "{read_count} files were read of {count} CPUs");
        assert_eq!(now.1.map(|machine| machine.online().len()), Some(count - 1));
    }
    assert!(few.iter().all(|read_count| *read_count == few[0] && *read_count <= 20), "{few:?}");
}

#[test]
#[cfg_attr(miri, ignore = "many files")]
fn a_new_node_is_noticed_even_if_the_same_cpus_are_online() {
    let folder = Folder::machine("node-comes", 32);
    let root = folder.0.as_path();
    let machine = Topology::from_sysfs(root).unwrap();
    assert_eq!(machine.reread(root, machine.online()).unwrap(), None);
    folder.file(&format!("{NODES}/node2/cpulist"), "");
    for node in 0..3 {
        let row = ["10 20 40", "20 10 40", "40 40 10"][node];
        folder.file(&format!("{NODES}/node{node}/distance"), row);
    }
    assert_eq!(machine.reread(root, machine.online()).unwrap(), None, "it is not online yet");
    folder.file(&format!("{NODES}/online"), "0-2");
    let more = machine.reread(root, machine.online()).unwrap().expect("a node more");
    assert_eq!((more.nodes().len(), more.distance(0, 2)), (3, 40));
    assert_eq!(more.reread(root, more.online()).unwrap(), None);
    // If it cannot be determined which nodes or CPUs are online, what is known stays valid.
    fs::remove_file(root.join(NODES).join("online")).unwrap();
    assert_eq!(more.reread(root, more.online()).unwrap(), None);
    assert_eq!(more.reread(root, &CpuSet::new()).unwrap(), None);
}

#[test]
#[cfg_attr(miri, ignore = "many files")]
fn a_stand_in_machine_is_replaced_when_the_folder_appears() {
    let name = "comes-later";
    let nowhere =
        std::env::temp_dir().join(format!("nearq-topology-{}-{name}", std::process::id()));
    let error = Topology::from_sysfs(&nowhere).unwrap_err();
    let machine = Topology::of_cpus(&CpuSet::all(32), &error).unwrap();
    assert!(!machine.is_whole());
    machine.reread(&nowhere, machine.online()).unwrap_err();
    let folder = Folder::machine(name, 32);
    assert_eq!(folder.0, nowhere);
    let now = machine.reread(&folder.0, machine.online()).unwrap().expect("it can be read now");
    assert!(now.is_whole());
    assert_eq!(now.nodes().len(), 2);
}
