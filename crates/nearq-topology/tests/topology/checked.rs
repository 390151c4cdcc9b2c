//! What must hold for every machine that is read from untrusted files, for the fuzzer and for the tests beside it.

use std::fs;
use std::path::{Component, Path};

use nearq_topology::{AffinityScope, CpuSet, Topology, TopologyError};

/// The most CPUs that are checked pair by pair: more would take seconds.
const FEW: usize = 300;

/// Reads an export of hwloc. Returns the machine, if it is one.
pub(crate) fn xml(bytes: &[u8]) -> Option<Topology> {
    check(Topology::from_hwloc_xml(&String::from_utf8_lossy(bytes)))
}

/// Makes a folder of the files that the text describes, and reads the folder. A line `= PATH` begins a file, and the lines after it are its
/// contents. A path that would lead out of the folder is left out. Returns the machine, if it is one.
pub(crate) fn sysfs(bytes: &[u8], folder: &Path) -> Option<Topology> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder.join("sys/devices/system/cpu")).expect("a temporary folder");
    let text = String::from_utf8_lossy(bytes);
    for file in text.split("\n= ").take(200) {
        let (path, inside) = file.split_once('\n').unwrap_or((file, ""));
        let path = Path::new(path.strip_prefix("= ").unwrap_or(path));
        let stays = path.components().all(|part| matches!(part, Component::Normal(_)));
        if !stays || path.as_os_str().is_empty() {
            continue;
        }
        let path = folder.join(path);
        // A file may already be at the path where this file's folder must be.
        let made = fs::create_dir_all(path.parent().expect("it is in the folder"));
        let _ = made.and_then(|()| fs::write(&path, inside.trim_end_matches('\n')));
    }
    check(Topology::from_sysfs(folder))
}

fn check(machine: Result<Topology, TopologyError>) -> Option<Topology> {
    let machine = match machine {
        Ok(machine) => machine,
        Err(error) => {
            let text = error.to_string();
            assert!(!text.is_empty() && text.len() < 10_000 && !text.contains('\n'), "{text}");
            return None;
        }
    };
    assert!(!machine.cpus().is_empty());
    assert!(machine.cpus().iter().all(|cpu| machine.possible().contains(cpu.id)));
    for note in machine.notes().iter().cloned().chain(machine.warning()) {
        assert!(!note.is_empty() && !note.contains('\n'), "{note}");
    }
    if machine.possible().len() > FEW {
        return Some(machine);
    }
    for size in [1, 8] {
        scopes(&machine, size);
    }
    let cpus = machine.cpus();
    for (one, other) in cpus.iter().zip(cpus.iter().rev()) {
        distance(&machine, one.id, other.id);
    }
    Some(machine)
}

/// The pods of a scope contain each CPU once, are numbered in the order in which the CPUs are scanned, and list the other pods by distance;
/// each pod of a finer scope is a part of one of them.
pub(crate) fn scopes(machine: &Topology, size: usize) {
    let all: Vec<_> = AffinityScope::ALL.iter().map(|&scope| machine.pods(scope, size)).collect();
    for pods in &all {
        let mut seen = CpuSet::new();
        for (index, pod) in pods.pods.iter().enumerate() {
            assert!(!pod.cpus.is_empty() && !pod.cpus.intersects(&seen), "{}", pods.scope);
            assert!(pod.cpus.iter().all(|cpu| pods.pod_index(cpu) == Some(index)));
            assert!(pod.cpus.first() == (machine.possible() - &seen).first(), "{}", pods.scope);
            seen = &seen | &pod.cpus;
            let mut others = pods.nearest(index).to_vec();
            assert!(others.is_sorted_by_key(|other| pods.distance(index, *other)));
            others.push(index);
            others.sort_unstable();
            assert!(others.into_iter().eq(0..pods.pods.len()), "{}", pods.scope);
        }
        assert_eq!(&seen, machine.possible(), "{}", pods.scope);
    }
    for (finer, coarser) in all.iter().zip(&all[1..]) {
        for pod in &finer.pods {
            let around = coarser.pod_index(pod.cpus.first().expect("it has some"));
            let around = &coarser.pods[around.expect("each CPU has one")];
            assert!(pod.cpus.is_subset(&around.cpus), "{} {}", finer.scope, coarser.scope);
        }
    }
}

/// CPUs of one core are nearer than CPUs of one cache, and those are nearer than CPUs of another node. Between nodes the firmware's table
/// may have another number for each direction.
pub(crate) fn distance(machine: &Topology, a: usize, b: usize) {
    let weight = machine.cpu_distance(a, b).weight();
    assert_eq!(weight == 0, a == b, "{a} {b}");
    assert_eq!(weight <= 1, machine.core_index(a) == machine.core_index(b), "{a} {b}");
    assert_eq!(weight <= 3, machine.llc_index(a) == machine.llc_index(b), "{a} {b}");
    assert_eq!(weight < 10, machine.node_index(a) == machine.node_index(b), "{a} {b}");
}
