//! The machine that an experiment runs on: its CPUs, those that the process may use, and the pods of every scope.

use crate::Error;
use nearq_topology::{CpuSet, DEFAULT_SHARD_SIZE, Limits, Scope, Topology};
use std::io;
use std::path::Path;

/// The machine that an experiment runs on.
#[derive(Clone, Debug)]
pub struct Machine {
    topology: Topology,
    usable: CpuSet,
    parallelism: usize,
}

impl Machine {
    /// This machine, as far as the process may use it.
    pub fn here() -> Result<Self, Error> {
        let root = Path::new("/");
        let topology =
            Topology::from_sysfs(root).map_err(|error| Error::input(error.to_string()))?;
        let mask = affinity()
            .map_err(|error| Error::run(format!("the affinity mask cannot be read: {error}")))?;
        let limits = Limits::read(root, mask);
        let usable = limits.effective().intersection(topology.online());
        Ok(Self { topology, parallelism: limits.parallelism().min(usable.len()).max(1), usable })
    }

    /// Another machine, of which the CPUs `usable` may be used.
    pub fn of(topology: Topology, usable: CpuSet) -> Self {
        Self { parallelism: usable.len().max(1), topology, usable }
    }

    /// How many CPUs the process may keep busy: those it may run on, or less where a cgroup's quota says so.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The CPUs of each pod of `scope`, as far as they may be used.
    pub fn pods(&self, scope: Scope) -> Vec<CpuSet> {
        let pods = self.topology.pods_within(scope, DEFAULT_SHARD_SIZE, &self.usable);
        pods.pods.into_iter().map(|pod| pod.cpus).collect()
    }

    /// Why the pods of a scope are what they are, in a few words: `one L3`, `no SMT`, ...
    pub fn count(&self, scope: Scope) -> String {
        let pods = self.pods(scope);
        let thing = match scope {
            Scope::Cpu => "CPU",
            Scope::Smt => "core",
            Scope::CacheShard => "shard of a last-level cache",
            Scope::Cache => "last-level cache",
            Scope::Numa => "NUMA node",
            Scope::System => return "the whole machine".into(),
        };
        if pods.len() == 1 {
            format!("one {thing} here")
        } else {
            format!("{} {thing}s here", pods.len())
        }
    }
}

/// The CPUs that the kernel lets this thread run on, for any number of CPUs.
fn affinity() -> io::Result<CpuSet> {
    let mut words = vec![0_u64; 16];
    loop {
        let bytes = size_of_val(words.as_slice());
        // SAFETY: the kernel writes at most `bytes` bytes into the vector, which is that long.
        let result =
            unsafe { libc::syscall(libc::SYS_sched_getaffinity, 0, bytes, words.as_mut_ptr()) };
        if result >= 0 {
            return Ok(CpuSet::from_words(&words));
        }
        let error = io::Error::last_os_error();
        // The kernel has more CPUs than the mask has bits.
        if error.raw_os_error() != Some(libc::EINVAL) || words.len() > 1 << 16 {
            return Err(error);
        }
        words.resize(words.len() * 2, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_as_many_cpus_as_the_standard_library_sees() {
        let expected = std::thread::available_parallelism().unwrap().get();
        assert_eq!(Machine::here().unwrap().parallelism(), expected);
    }

    #[test]
    fn pods_hold_usable_cpus_only() {
        let topology = Topology::from_synthetic("l3:2 core:2 pu:2").unwrap();
        let machine = Machine::of(topology, CpuSet::parse_list("0-2").unwrap());
        let lists = |scope| machine.pods(scope).iter().map(CpuSet::to_list).collect::<Vec<_>>();
        assert_eq!(lists(Scope::Cache), ["0-2"]);
        assert_eq!(lists(Scope::Smt), ["0-1", "2"]);
        assert_eq!(machine.count(Scope::Cache), "one last-level cache here");
        assert_eq!(machine.parallelism(), 3);
    }
}
