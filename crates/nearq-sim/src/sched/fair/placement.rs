//! Where threads go in [`Fair`].
//!
//! - **A woken thread** goes to its previous CPU if that is idle; otherwise to an idle CPU that shares its last-level cache, preferably of
//!   an idle core; otherwise to an idle CPU of its node, with the same preference; otherwise to a CPU under that cache that has only
//!   threads of the idle class, unless the woken thread is of that class itself; otherwise it waits at its previous CPU, however idle the
//!   rest of the machine may be: the rest is left to balancing. The search starts with the CPU after the previous one.
//! - **A new thread**, and a thread that replaces its program, goes where the load is lowest: to the node with the fewest runnable threads
//!   per CPU, then by the same rule to a last-level cache, a core and a CPU in it. Among equals, its creator's comes first, then the one
//!   with the lower number.

use nearq_topology::CpuSet;

use super::Fair;
use crate::sched::Kernel;
use crate::thread::Thread;

impl Fair {
    /// The CPU for a thread that wakes up.
    pub(super) fn wake_cpu(&self, kernel: &Kernel<'_>, thread: Thread) -> usize {
        let (allowed, previous) = (kernel.allowed(thread), kernel.previous_cpu(thread));
        let usable = allowed.contains(previous);
        if usable && kernel.idle().contains(previous) {
            return previous;
        }
        let near = |group| idle_in(kernel, group, allowed, previous);
        near(kernel.llc_cpus(previous))
            .or_else(|| near(kernel.node_cpus(previous)).filter(|_| !self.wakes_within_cache))
            .or_else(|| self.as_good_as_idle(kernel, thread, previous))
            .or(usable.then_some(previous))
            // The thread may not go back to its CPU: it goes to any CPU, preferably an idle one.
            .or_else(|| near(allowed))
            .or_else(|| behind(allowed, previous))
            .expect("a thread may run somewhere")
    }

    /// A CPU under the previous one's last-level cache that has only threads of the idle class, the previous one first.
    fn as_good_as_idle(
        &self,
        kernel: &Kernel<'_>,
        thread: Thread,
        previous: usize,
    ) -> Option<usize> {
        if !self.knows_idle_class || self.entities[thread.slot].is_idle_class() {
            return None;
        }
        let near = kernel.llc_cpus(previous);
        core::iter::once(previous)
            .chain(near.iter().filter(|cpu| *cpu > previous))
            .chain(near.iter().filter(|cpu| *cpu < previous))
            .filter(|cpu| kernel.allowed(thread).contains(*cpu))
            .find(|cpu| {
                let queue = self.queues.get(*cpu);
                queue.is_some_and(|queue| queue.is_as_good_as_idle(&self.entities))
            })
    }

    /// The CPU for a thread that is new or counts as new.
    pub(super) fn idlest(&self, kernel: &Kernel<'_>, thread: Thread) -> usize {
        let (allowed, here) = (kernel.allowed(thread), kernel.previous_cpu(thread));
        let topology = kernel.topology();
        let hardware = kernel.hardware;
        let nodes = topology.nodes().iter().map(|node| &node.cpus);
        let node = self.least(nodes.enumerate(), allowed, hardware.node(here));
        let llcs = topology.llcs().iter().map(|llc| &llc.cpus).enumerate();
        // A CPU whose node is unknown counts as a CPU of the first node, but is in no node's set: then all caches are searched.
        let llcs = llcs.filter(|(_, cpus)| {
            node.is_none_or(|node| cpus.first().is_some_and(|cpu| hardware.node(cpu) == node))
        });
        let llc = self.least(llcs, allowed, hardware.llc(here));
        let llc = &topology.llcs()[llc.expect("every CPU has a last-level cache")];
        let cores = llc.core_indices.iter().map(|core| (*core, &topology.cores()[*core].cpus));
        let core = self.least(cores, allowed, hardware.core(here));
        let core = &topology.cores()[core.expect("every CPU has a core")].cpus;
        core.iter()
            .filter(|cpu| allowed.contains(*cpu))
            .min_by_key(|cpu| (self.runnable(*cpu), *cpu != here, *cpu))
            .expect("the core has an allowed CPU")
    }

    fn runnable(&self, cpu: usize) -> usize {
        self.queues.get(cpu).map_or(0, super::Queue::runnable)
    }

    /// The group with the fewest threads that can run for each allowed CPU.
    fn least<'a>(
        &self,
        groups: impl Iterator<Item = (usize, &'a CpuSet)>,
        allowed: &CpuSet,
        own_group: usize,
    ) -> Option<usize> {
        let mut best: Option<(u64, bool, usize)> = None;
        for (group, all) in groups {
            let (mut cpus, mut runnable) = (0_u64, 0_u64);
            for cpu in all.iter().filter(|cpu| allowed.contains(*cpu)) {
                cpus += 1;
                runnable += self.runnable(cpu) as u64;
            }
            if let Some(each) = (runnable * 1024).checked_div(cpus) {
                let key = (each, group != own_group, group);
                best = Some(best.map_or(key, |best| best.min(key)));
            }
        }
        best.map(|(_, _, group)| group)
    }
}

/// The first member after a CPU, or else the first.
fn behind(cpus: &CpuSet, previous: usize) -> Option<usize> {
    cpus.iter().find(|cpu| *cpu > previous).or_else(|| cpus.first())
}

/// An allowed idle CPU of a group: preferably of an idle core, and preferably after `from`.
fn idle_in(kernel: &Kernel<'_>, group: &CpuSet, allowed: &CpuSet, from: usize) -> Option<usize> {
    let words = kernel.idle().as_words().iter().zip(group.as_words()).zip(allowed.as_words());
    let mut best: Option<(bool, bool, usize)> = None;
    for (at, ((idle, group), allowed)) in words.enumerate() {
        let mut rest = idle & group & allowed;
        while rest != 0 {
            let cpu = at * 64 + rest.trailing_zeros() as usize;
            rest &= rest - 1;
            let siblings = kernel.hardware.siblings(cpu);
            let shares = siblings.iter().any(|other| !kernel.idle().contains(*other as usize));
            let key = (shares, cpu < from, cpu);
            if key < (false, true, 0) {
                return Some(cpu);
            }
            best = Some(best.map_or(key, |best| best.min(key)));
        }
    }
    best.map(|(_, _, cpu)| cpu)
}
