//! Where a worker's thread runs: bringing it back into its pod, or to the CPU that queued an item.
//!
//! The kernel gives its scheduler a preferred CPU with the wake-up and leaves the rest to it. From user space the same takes two calls:
//! narrow the affinity to the wanted CPUs (the thread migrates at once), and widen it again (the scheduler may take it elsewhere from now
//! on). That costs microseconds, so it is done at most once a millisecond.
//!
//! * **A mask that was changed from outside is respected.** Before it writes, the worker reads its mask. If that is neither what it left
//!   there nor what the machine made of it (CPUs off, another cpuset), an outsider (`taskset`) restricted the thread: the new mask becomes
//!   the widest that the worker gives itself, and if it has no CPU of the pod, the worker stays outside.
//! * **A worker of one CPU** (of a per-CPU queue) comes back to it whenever it may: the system moves it away when the CPU goes offline, and
//!   would leave it there. As with the kernel's own workers, nothing else decides where it belongs.
//! * **After two refusals** (a sandbox) the worker stops trying. A warning says so, once in a process for each cause. It is no refusal if
//!   no CPU of the pod is allowed at the moment.

use core::time::Duration;

use nearq_platform::{Instant, OsError, Platform};
use nearq_topology::CpuSet;

use crate::homes::Homes;

/// A worker is brought back at most this often. A migration costs some 5 to 50 microseconds, most of it cold caches; at one a millisecond
/// it stays below 5 % of the worker's time even if the scheduler keeps moving it away.
const INTERVAL: Duration = Duration::from_millis(1);
/// Refusals after which a worker stops trying.
const REFUSALS: u32 = 2;

/// Where one worker belongs and where it may go. Private to its thread.
pub(crate) struct Affinity {
    pod: CpuSet,
    /// The mask that it has when nothing else is wanted.
    wide: CpuSet,
    /// What the system made of `wide` when it was last written; `None` before the first check.
    left: Option<CpuSet>,
    /// Whether the thread can be outside its pod at all.
    strays: bool,
    /// Whether it belongs to its pod, which is one CPU, whatever the system or another program sets.
    bound: bool,
    last: Option<Instant>,
    refusals: u32,
}

impl Affinity {
    pub(crate) fn new(pod: CpuSet, wide: CpuSet) -> Self {
        let strays = !wide.is_subset(&pod);
        Affinity { pod, wide, left: None, strays, bound: false, last: None, refusals: 0 }
    }

    /// The affinity of a worker of one CPU.
    pub(crate) fn bound(pod: CpuSet) -> Self {
        Affinity { strays: true, bound: true, ..Affinity::new(pod.clone(), pod) }
    }

    /// Remembers the mask that the system gave the thread. By the thread itself, when it starts.
    pub(crate) fn begin<P: Platform>(&mut self) {
        self.left = P::affinity(P::current_thread()).ok();
    }

    /// The thread is restricted to that mask from the beginning.
    pub(crate) fn stay_within(&mut self, mask: &CpuSet) {
        self.strays = self.pod.intersects(mask) && !mask.is_subset(&self.pod);
        self.wide = mask.clone();
    }

    /// Brings the thread back if it is outside its pod. True if it was brought.
    #[inline]
    pub(crate) fn repatriate<P: Platform>(&mut self) -> bool {
        self.strays && !self.pod.contains(P::current_cpu()) && self.repatriate_slow::<P>()
    }

    #[cold]
    fn repatriate_slow<P: Platform>(&mut self) -> bool {
        let now = P::now();
        if self.last.is_some_and(|last| now - last < INTERVAL) {
            return false;
        }
        self.last = Some(now);
        let pod = self.pod.clone();
        self.go_to::<P>(&pod)
    }

    /// Brings the thread to the CPU that queued the item, if it may run there.
    pub(crate) fn localize<P: Platform>(&mut self, cpu: usize) {
        if P::current_cpu() != cpu && self.wide.contains(cpu) && self.refusals < REFUSALS {
            self.go_to::<P>(&CpuSet::single(cpu));
        }
    }

    /// Brings the thread to its pod's node when it starts, whatever comes after: this does not count towards the limit on how often it is
    /// moved.
    pub(crate) fn begin_on<P: Platform>(&mut self, node: u32, homes: &Homes<P>) {
        self.go_home(node, homes);
        self.last = None;
    }

    /// Brings the thread to the home of the item that it is about to run, in a pod that does not lie in one node.
    pub(crate) fn go_home<P: Platform>(&mut self, node: u32, homes: &Homes<P>) {
        if homes.map.node_of(P::current_cpu()) == Some(node) || self.refusals >= REFUSALS {
            return;
        }
        let now = P::now();
        if self.last.is_some_and(|last| now - last < INTERVAL) {
            return;
        }
        self.last = Some(now);
        let nodes = homes.nodes();
        let cpus = nodes.iter().find(|known| known.id == node as usize).map(|node| &node.cpus);
        let cpus = cpus.map(|cpus| cpus.intersection(&self.wide));
        if let Some(cpus) = cpus.filter(|cpus| !cpus.is_empty()) {
            self.go_to::<P>(&cpus);
        }
    }

    fn go_to<P: Platform>(&mut self, cpus: &CpuSet) -> bool {
        let me = P::current_thread();
        let Ok(mask) = P::affinity(me) else { return false };
        if self.left.as_ref().is_some_and(|left| *left != mask) {
            self.note_change::<P>(&mask);
        }
        // Only within what is allowed now. If none of it is left, that is no refusal: the CPUs may come back.
        let cpus = cpus.intersection(&mask);
        if cpus.is_empty() {
            return false;
        }
        if let Err(refused) = P::set_affinity(me, &cpus) {
            self.count_refusal::<P>(&cpus, &refused);
            return false;
        }
        // A mask that could be narrowed can be widened again; if not, the next attempt to bring the thread back finds out.
        if cpus != self.wide {
            let _ = P::set_affinity(me, &self.wide);
        }
        self.left = P::affinity(me).ok();
        true
    }

    /// The mask is not what the worker left. A CPU that went away, or a cpuset that changed, is the machine's doing: the system cuts the
    /// wide mask, and restores CPUs that come back. Any other mask was set by another program.
    #[cold]
    fn note_change<P: Platform>(&mut self, mask: &CpuSet) {
        self.left = Some(mask.clone());
        if self.bound {
            return;
        }
        if let Ok(machine) = P::machine() {
            let online = self.wide.intersection(&machine.limits.online);
            let machine = match &machine.limits.cpuset {
                Some(cpuset) => online.intersection(cpuset),
                None => online,
            };
            if *mask == machine {
                return;
            }
        }
        self.stay_within(mask);
    }

    #[cold]
    fn count_refusal<P: Platform>(&mut self, cpus: &CpuSet, refused: &OsError) {
        self.refusals += 1;
        if self.refusals == REFUSALS {
            self.strays = false;
            let line = format!(
                "a worker could not be moved back to CPUs {cpus}: {refused}; it runs wherever the system puts it"
            );
            P::warn_once(&format!("affinity: {}", refused.cause()), &line);
        }
    }
}

#[cfg(test)]
mod tests;
