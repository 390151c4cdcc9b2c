//! This machine, and what stands in for it where it cannot be read.
//!
//! If `/sys` cannot be read (not mounted, no file descriptors, a filter on system calls), the kernel still tells a process on which CPUs it
//! may run. These CPUs, under one cache on one node, then stand in for the machine: so no work is kept from any of them. The stand-in is
//! marked as not whole ([`Topology::is_whole`]), one warning tells of it, and each later look tries to read the machine again.

use core::sync::atomic::{AtomicBool, Ordering};
use std::path::Path;

use nearq_topology::{CpuSet, Limits, Topology, TopologyError};

use super::platform::Linux;
use super::thread::{self, Thread};
use crate::{Look, Machine, Platform as _, Refused};

/// Whether the warning that the machine cannot be read whole was given since the machine was last whole.
static SAID: AtomicBool = AtomicBool::new(false);

/// The machine of this process, read anew.
pub(super) fn read() -> Result<Machine, String> {
    let machine = read_below(Path::new("/"), affinity())?;
    say(&machine.topology);
    Ok(machine)
}

/// What has changed since it was read.
pub(super) fn look_again(topology: &Topology, limits: &Limits) -> Result<Look, String> {
    let affinity = affinity().map_err(|refused| refused.to_string())?;
    let look = look_below(Path::new("/"), topology, limits, affinity)?;
    if let Some(topology) = &look.topology {
        say(topology);
    }
    Ok(look)
}

/// The CPUs of the process, not of the caller, which may be a worker that was restricted.
fn affinity() -> Result<CpuSet, Refused> {
    thread::affinity(Thread::first()).or_else(|_| thread::affinity(Thread::current()))
}

fn read_below(root: &Path, affinity: Result<CpuSet, Refused>) -> Result<Machine, String> {
    let (topology, affinity) = match (Topology::from_sysfs(root), affinity) {
        (Ok(topology), Ok(affinity)) => (topology, affinity),
        (Err(error), Ok(affinity)) => (stand_in(&affinity, &error)?, affinity),
        (Ok(_), Err(refused)) => return Err(refused.to_string()),
        (Err(error), Err(refused)) => return Err(format!("{error}; {refused}")),
    };
    Ok(Machine { topology, limits: Limits::read(root, affinity) })
}

/// What stands in for a machine that cannot be read because of `error`. A machine that can be read but is too large is an error.
fn stand_in(cpus: &CpuSet, error: &TopologyError) -> Result<Topology, String> {
    match error {
        TopologyError::TooManyCpus { .. } => Err(error.to_string()),
        _ => Topology::of_cpus(cpus, error).map_err(|without| format!("{error}; {without}")),
    }
}

fn look_below(
    root: &Path,
    topology: &Topology,
    limits: &Limits,
    affinity: CpuSet,
) -> Result<Look, String> {
    let limits = limits.reread(root, affinity);
    let topology = match topology.reread(root, &limits.online) {
        Ok(topology) => topology,
        // What was known stays. But a stand-in grows with the CPUs that the process may use.
        Err(error) if !topology.is_whole() && !limits.affinity.is_subset(topology.possible()) => {
            Some(stand_in(&topology.possible().union(&limits.affinity), &error)?)
        }
        Err(_) => None,
    };
    Ok(Look { topology, limits })
}

/// Warns of what could not be read, in one line; again only if the machine was whole in between.
fn say(topology: &Topology) {
    // Relaxed: it only decides which of several threads gives the warning.
    match topology.warning() {
        None => SAID.store(false, Ordering::Relaxed),
        Some(line) if !SAID.swap(true, Ordering::Relaxed) => {
            Linux::warn(&format!("the machine cannot be read whole: {line}"));
        }
        Some(_) => {}
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
        let said = topology.warning().expect("it is said");
        assert!(said.starts_with("/nonexistent: No such file or directory"), "{said}");
        // It stays so, and follows the affinity.
        let look = |affinity| look_below(nowhere, topology, limits, affinity).unwrap();
        let same = look(cpus("2-4"));
        assert_eq!((same.topology, &same.limits), (None, limits));
        let less = look(cpus("3"));
        assert_eq!((less.topology, less.limits.effective()), (None, cpus("3")));
        let more = look(cpus("4-7"));
        assert_eq!(more.topology.as_ref().map(Topology::possible), Some(&cpus("2-7")));
        assert!(more.topology.is_some_and(|topology| !topology.is_whole()));
    }

    #[test]
    fn where_nothing_tells_of_cpus_that_is_said_with_both_reasons() {
        let refused = || Err(Refused::new("read the CPUs of thread 7", libc::EPERM, ""));
        let error = read_below(Path::new("/nonexistent"), refused()).unwrap_err();
        assert!(error.contains("/nonexistent") && error.contains("thread 7"), "{error}");
        let error = read_below(Path::new("/nonexistent"), Ok(CpuSet::new())).unwrap_err();
        assert!(error.contains("/nonexistent") && error.contains("no CPU found"), "{error}");
        let large = TopologyError::TooManyCpus { count: 5000 };
        assert!(stand_in(&cpus("0"), &large).unwrap_err().contains("5000 CPUs"));
    }

    #[test]
    #[cfg_attr(miri, ignore = "it reads the machine")]
    fn this_machine_is_as_it_was_at_the_next_look() {
        let Machine { topology, limits } = read().expect("readable");
        assert_eq!(topology.warning(), None, "where tests run it is whole");
        let look = look_again(&topology, &limits).expect("readable");
        assert_eq!(look.topology, None);
    }
}
