//! Handles CPUs that come online and go offline while the scheduler is loaded.
//!
//! The part in the kernel follows CPUs that it knows, because the kernel calls it when one comes or goes. But the cache and the node of an
//! offline CPU cannot be read, so a CPU that was offline at the beginning may be assigned to the wrong ones. This cannot be changed later:
//! the part in the kernel reads a CPU's cache all the time, and would subtract from the new cache what it has counted for the old one. So
//! if an online CPU turns out to have another cache or node, the scheduler is loaded again with the machine as it is; each task is then at
//! home where it runs, unless its home was told.

use nearq_scx_policy::layout::{Nq, WORDS};
use nearq_topology::{CpuSet, Topology};

use crate::state::is_set;

/// How many times in a row the CPUs must differ before the difference counts. The kernel lists a CPU before it notifies schedulers, which
/// takes seconds on an overloaded machine. Loading again in the meantime would wait for the notification and delay every task.
const LASTING_CHECKS: u32 = 15;

/// Checks, now and then, whether the scheduler knows the machine as it is.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// The CPUs for which the scheduler's description of the machine was found right.
    known: CpuSet,
    different: u32,
}

impl Watch {
    /// A check for a scheduler that has just begun with these CPUs.
    pub(crate) fn new(online: &CpuSet) -> Self {
        Watch { known: online.clone(), different: 0 }
    }

    /// Why the scheduler should be loaded again, if it should. `describe` reads the machine and is called only if CPUs have come.
    pub(crate) fn check(
        &mut self,
        nq: &Nq,
        online: &CpuSet,
        describe: impl FnOnce() -> Option<(Topology, Box<Nq>)>,
    ) -> Option<String> {
        if *online != cpus(&nq.online) {
            self.different += 1;
            if self.different < LASTING_CHECKS {
                return None;
            }
            self.different = 0;
            let known = cpus(&nq.online);
            return Some(format!("CPUs {online} are online, but it knows {known}"));
        }
        self.different = 0;
        if online.is_subset(&self.known) {
            return None;
        }
        let (machine, fresh) = describe()?;
        // Some CPUs may have gone in the meantime; then the next check will be right.
        if machine.online() != online {
            return None;
        }
        let come = online.difference(&self.known);
        self.known = self.known.union(online);
        let misplaced =
            |cpu: &usize| neighbours(nq, *cpu, online) != neighbours(&fresh, *cpu, online);
        come.iter().find(misplaced).map(|cpu| {
            format!("CPU {cpu} was offline when it started, and belongs to a different cache or node than assumed")
        })
    }
}

/// The node's number, and the CPUs that are online under the same cache and in the same core.
fn neighbours(nq: &Nq, cpu: usize, online: &CpuSet) -> Option<(u32, CpuSet, CpuSet)> {
    let entry = nq.cpu.get(cpu).filter(|_| cpu < nq.cpus as usize)?;
    let id = nq.node.get(entry.node as usize)?.id;
    let cache = cpus(&nq.llc.get(entry.llc as usize)?.cpus).intersection(online);
    let mut core = CpuSet::single(cpu);
    let mut next = entry.sibling as usize;
    while let Some(sibling) = nq.cpu.get(next).filter(|_| !core.contains(next)) {
        core.insert(next);
        next = sibling.sibling as usize;
    }
    Some((id, cache, core.intersection(online)))
}

/// The CPUs in a mask of the policy.
fn cpus(mask: &[u64; WORDS]) -> CpuSet {
    (0..WORDS * 64).filter(|cpu| is_set(mask, *cpu)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_scx_policy::describe;

    fn machine(text: &str, online: &str) -> (Topology, Box<Nq>) {
        let online: CpuSet = online.parse().unwrap();
        let machine = Topology::from_synthetic(text).unwrap().with_online(&online);
        let nq = describe(&machine, &online).unwrap();
        (machine, nq)
    }

    fn set(nq: &mut Nq, online: &str) -> CpuSet {
        let online: CpuSet = online.parse().unwrap();
        nq.online = [0; WORDS];
        for cpu in &online {
            nq.online[cpu / 64] |= 1 << (cpu % 64);
        }
        online
    }

    const SHAPE: &str = "numa:2 l3:2 core:2";

    #[test]
    fn cpus_that_go_offline_and_come_back_change_nothing() {
        let (_, mut nq) = machine(SHAPE, "0-7");
        let mut watch = Watch::new(&"0-7".parse().unwrap());
        let describe = || -> Option<(Topology, Box<Nq>)> { panic!("nothing new is there") };
        let online = set(&mut nq, "0-2,4-7");
        assert_eq!(watch.check(&nq, &online, describe), None);
        let online = set(&mut nq, "0-7");
        assert_eq!(watch.check(&nq, &online, describe), None);
    }

    #[test]
    fn a_cpu_that_was_offline_at_the_start_is_checked_once() {
        let (_, mut nq) = machine(SHAPE, "0-6");
        let mut watch = Watch::new(&"0-6".parse().unwrap());
        let online = set(&mut nq, "0-7");
        // The place of the CPU was known although it was offline.
        assert_eq!(watch.check(&nq, &online, || Some(machine(SHAPE, "0-7"))), None);
        assert_eq!(watch.check(&nq, &online, || panic!("it is known now")), None);
    }

    #[test]
    fn a_misplaced_cpu_requires_a_restart() {
        let (_, mut nq) = machine(SHAPE, "0-6");
        // As if the CPU's cache could not be read while it was offline: it is assigned to the first one.
        (nq.cpu[7].llc, nq.cpu[7].node) = (0, 0);
        nq.llc[0].cpus[0] |= 1 << 7;
        nq.llc[3].cpus[0] &= !(1 << 7);
        let mut watch = Watch::new(&"0-6".parse().unwrap());
        let online = set(&mut nq, "0-7");
        let why = watch.check(&nq, &online, || Some(machine(SHAPE, "0-7"))).unwrap();
        assert!(why.starts_with("CPU 7 was offline"), "{why}");
    }

    #[test]
    fn only_a_lasting_difference_counts() {
        let (_, mut nq) = machine(SHAPE, "0-7");
        let online: CpuSet = "0-6".parse().unwrap();
        let mut watch = Watch::new(&"0-7".parse().unwrap());
        let mut check = |nq: &Nq| watch.check(nq, &online, || None);
        for _ in 1..LASTING_CHECKS {
            assert_eq!(check(&nq), None);
        }
        let why = check(&nq).unwrap();
        assert_eq!(why, "CPUs 0-6 are online, but it knows 0-7");
        assert_eq!(check(&nq), None);
        set(&mut nq, "0-6");
        assert_eq!(check(&nq), None);
    }
}
