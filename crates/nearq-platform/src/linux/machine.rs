//! This machine, and what stands in for it if it cannot be read.
//!
//! If `/sys` cannot be read (not mounted, no file descriptors, a filter on system calls), the kernel still reports to a process on which
//! CPUs it may run. These CPUs, under one cache on one node, then stand in for the machine, so that any work can run on any of them. The
//! stand-in is marked as not whole ([`Topology::is_whole`]), one warning reports it, and each later check tries to read the machine again.
//!
//! If the kernel does not answer either (a filter on system calls), `/proc/self/status` is read. Without that, the process counts as one
//! that may use all CPUs that are online and in its cpuset; and without `/sys` as well, as one with as many CPUs as the C library finds.
//! The warning says that too.

use core::sync::atomic::{AtomicBool, Ordering};
use std::path::Path;

use nearq_topology::{CpuSet, Limits, MAX_CPU_COUNT, Topology, TopologyError};

use super::platform::Linux;
use super::thread::{self, Thread};
use crate::{LockPlatform as _, Machine, MachineChange, OsError};

/// Whether the warning that the machine cannot be read whole was given since the machine was last whole.
static WARNED: AtomicBool = AtomicBool::new(false);

/// Reads the machine of this process again.
pub(super) fn read() -> Result<Machine, String> {
    let affinity = affinity();
    let refused = affinity.as_ref().err().map(without_affinity);
    let machine = read_below(Path::new("/"), affinity)?;
    warn_once(refused, &machine.topology, true);
    Ok(machine)
}

/// What has changed since the machine was last read.
pub(super) fn reread_machine(
    topology: &Topology,
    limits: &Limits,
) -> Result<MachineChange, String> {
    let root = Path::new("/");
    let affinity = affinity();
    let refused = affinity.as_ref().err().map(without_affinity);
    let found =
        check_below(root, topology, limits, affinity.unwrap_or_else(|_| affinity_from_proc(root)))?;
    warn_once(refused, found.topology.as_ref().unwrap_or(topology), found.topology.is_some());
    Ok(found)
}

/// The CPUs of the process, not of the caller, which may be a worker that was restricted.
fn affinity() -> Result<CpuSet, OsError> {
    thread::affinity(Thread::first()).or_else(|_| thread::affinity(Thread::current()))
}

/// The CPUs that the process may run on, as far as they are online, by `/proc/self/status`; empty if that does not say.
fn affinity_from_proc(root: &Path) -> CpuSet {
    let status = std::fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let allowed = list.and_then(|list| CpuSet::parse_list(list).ok()).unwrap_or_default();
    // The system call leaves out CPUs that are offline, this list does not.
    match Limits::read(root, CpuSet::new()).online {
        online if allowed.intersects(&online) => allowed.intersection(&online),
        _ => allowed,
    }
}

fn without_affinity(refused: &OsError) -> String {
    format!(
        "{refused}: /proc/self/status, the online CPUs and the cpuset say which this process uses"
    )
}

fn read_below(root: &Path, affinity: Result<CpuSet, OsError>) -> Result<Machine, String> {
    let refused = affinity.as_ref().err().map(ToString::to_string);
    let affinity = affinity.unwrap_or_else(|_| affinity_from_proc(root));
    let topology = match Topology::from_sysfs_of(root, &affinity) {
        Ok(topology) => topology,
        Err(error) if affinity.is_empty() && refused.is_some() => stand_in(&counted(), &error)?,
        Err(error) => stand_in(&affinity, &error)?,
    };
    let limits = or_all(Limits::read(root, affinity), &topology);
    Ok(Machine { topology, limits })
}

/// If nothing says what the process may use, it may use the whole machine.
fn or_all(mut limits: Limits, topology: &Topology) -> Limits {
    if limits.effective().is_empty() {
        limits.affinity = topology.online().clone();
    }
    limits
}

/// As many CPUs as the C library finds; it tries several ways.
fn counted() -> CpuSet {
    CpuSet::all(std::thread::available_parallelism().map_or(1, usize::from).min(MAX_CPU_COUNT))
}

/// What stands in for a machine that cannot be read because of `error`. A machine that can be read but is too large is an error.
fn stand_in(cpus: &CpuSet, error: &TopologyError) -> Result<Topology, String> {
    match error {
        TopologyError::TooManyCpus { .. } => Err(error.to_string()),
        _ => Topology::of_cpus(cpus, error).map_err(|without| format!("{error}; {without}")),
    }
}

fn check_below(
    root: &Path,
    topology: &Topology,
    limits: &Limits,
    affinity: CpuSet,
) -> Result<MachineChange, String> {
    let limits = or_all(limits.reread(root, affinity), topology);
    let topology = match topology.reread(root, &limits.online) {
        Ok(topology) => topology,
        // What was known before stays valid, but a stand-in grows with the CPUs that the process may use.
        Err(error) if !topology.is_whole() && !limits.affinity.is_subset(topology.possible()) => {
            Some(stand_in(&topology.possible().union(&limits.affinity), &error)?)
        }
        Err(_) => None,
    };
    Ok(MachineChange { topology, limits })
}

/// Warns of what could not be read, in one line. Warns again only if everything could be read in between: a topology that was read
/// before (`is_new` is false) stays whole even if nothing can be read any more, and says nothing about that.
fn warn_once(refused: Option<String>, topology: &Topology, is_new: bool) {
    let reasons: Vec<String> = refused.into_iter().chain(topology.warning()).collect();
    // Relaxed: it only decides which of several threads gives the warning.
    if reasons.is_empty() {
        if is_new {
            WARNED.store(false, Ordering::Relaxed);
        }
    } else if !WARNED.swap(true, Ordering::Relaxed) {
        Linux::warn(&format!("the machine could be read only in part: {}", reasons.join("; ")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(list: &str) -> CpuSet {
        list.parse().unwrap()
    }

    #[test]
    fn without_sys_the_affinity_is_the_machine_on_one_node() {
        let nowhere = Path::new("/nonexistent");
        let machine = read_below(nowhere, Ok(cpus("2-4"))).expect("its CPUs are known");
        let Machine { topology, limits } = &machine;
        assert_eq!((topology.possible(), limits.effective()), (&cpus("2-4"), cpus("2-4")));
        assert_eq!((topology.nodes().len(), topology.llcs().len()), (1, 1));
        assert!(!topology.is_whole());
        let warning = topology.warning().expect("there is a warning");
        assert!(warning.starts_with("/nonexistent: No such file or directory"), "{warning}");
        // It remains a stand-in, and follows the affinity.
        let check = |affinity| check_below(nowhere, topology, limits, affinity).unwrap();
        let same = check(cpus("2-4"));
        assert_eq!((same.topology, &same.limits), (None, limits));
        let less = check(cpus("3"));
        assert_eq!((less.topology, less.limits.effective()), (None, cpus("3")));
        let more = check(cpus("4-7"));
        assert_eq!(more.topology.as_ref().map(Topology::possible), Some(&cpus("2-7")));
        assert!(more.topology.is_some_and(|topology| !topology.is_whole()));
    }

    fn refused() -> Result<CpuSet, OsError> {
        Err(OsError::new("read the CPUs of thread 7", libc::EPERM, ""))
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn without_the_system_call_cpus_come_from_files_or_the_c_library() {
        let root = std::env::temp_dir().join(format!("nearq-no-affinity-{}", std::process::id()));
        let file = |name: &str, text: &str| {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let allowed = || {
            let machine = read_below(&root, refused()).expect("the machine is readable");
            assert!(machine.limits.effective().is_subset(machine.topology.online()));
            machine.limits.effective().to_list()
        };
        // Neither /sys nor /proc.
        std::fs::create_dir_all(&root).unwrap();
        assert_eq!(allowed(), counted().to_list());
        // Only /sys.
        file("sys/devices/system/cpu/present", "0-7");
        file("sys/devices/system/cpu/online", "0-5");
        assert_eq!(allowed(), "0-5");
        // /proc says what the kernel would, and includes CPUs that are offline.
        file("proc/self/status", "Name:\tx\nCpus_allowed_list:\t2-3,7\n");
        assert_eq!(allowed(), "2-3");
        // Only /proc.
        std::fs::remove_dir_all(root.join("sys")).unwrap();
        assert_eq!(allowed(), "2-3,7");
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "files")]
    fn a_containers_list_of_online_cpus_does_not_exclude_allowed_cpus() {
        let root = std::env::temp_dir().join(format!("nearq-own-list-{}", std::process::id()));
        let cpu_root = root.join("sys/devices/system/cpu");
        for cpu in 0..4 {
            let folder = cpu_root.join(format!("cpu{cpu}/topology"));
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(folder.join("core_cpus_list"), if cpu < 2 { "0-1" } else { "2-3" })
                .unwrap();
        }
        std::fs::write(cpu_root.join("present"), "0-3").unwrap();
        std::fs::write(cpu_root.join("online"), "0-1").unwrap();
        let machine = read_below(&root, Ok(cpus("2-3"))).expect("the machine is readable");
        let Machine { topology, limits } = &machine;
        assert_eq!((limits.effective(), limits.parallelism()), (cpus("2-3"), 2));
        assert_eq!(
            (topology.online(), topology.core_index(2)),
            (&cpus("0-3"), topology.core_index(3))
        );
        let notes = [topology.notes(), limits.notes()].concat();
        let noted = notes.iter().filter(|note| note.contains("leaves out CPUs 2-3")).count();
        assert_eq!(noted, 2, "{notes:?}");
        let found = check_below(&root, topology, limits, cpus("2-3")).unwrap();
        assert_eq!((found.topology, &found.limits), (None, limits));
        std::fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_machine_without_cpus_or_with_too_many_is_an_error() {
        let error = read_below(Path::new("/nonexistent"), Ok(CpuSet::new())).unwrap_err();
        assert!(error.contains("/nonexistent") && error.contains("no CPU found"), "{error}");
        let large = TopologyError::TooManyCpus { count: 5000 };
        assert!(stand_in(&cpus("0"), &large).unwrap_err().contains("5000 CPUs"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads the machine")]
    fn checking_this_machine_again_finds_no_change() {
        let Machine { topology, limits } = read().expect("readable");
        assert_eq!(topology.warning(), None, "the machine of the tests is readable");
        let found = reread_machine(&topology, &limits).expect("readable");
        assert_eq!(found.topology, None);
    }
}
