//! The trait [`Placement`], implemented for [`Sim`].

use core::ops::Range;
use core::time::Duration;

use nearq_platform::{Machine, MemoryPolicy, OsError, Placement, Residency};
use nearq_topology::CpuSet;

use super::{Sim, ask, change, no_cpu, system_call};
use crate::context;
use crate::memory::Placing;
use crate::thread::Thread;
use crate::trace::Kind;

impl Placement for Sim {
    fn machine() -> Result<Machine, String> {
        let shared = context::expect("Placement::machine");
        let cost = shared.world.borrow().costs.read_machine;
        Sim::charge(Duration::from_nanos(cost));
        shared.sync();
        let world = shared.world.borrow();
        let topology = world.hardware.topology().clone().with_online(&world.online);
        Ok(Machine { topology, limits: world.visible_limits() })
    }

    fn affinity(thread: Thread) -> Result<CpuSet, OsError> {
        ask(thread, |_, entry| entry.allowed.clone())
    }

    fn set_affinity(thread: Thread, cpus: &CpuSet) -> Result<(), OsError> {
        let limits = context::expect("Placement::set_affinity").world.borrow().usable.clone();
        if !cpus.intersects(&limits) {
            return Err(no_cpu(cpus, &limits));
        }
        change(thread, |entry| entry.affinity = cpus.clone())?;
        let shared = context::expect("Placement::set_affinity");
        {
            let mut world = shared.world.borrow_mut();
            world.record(Kind::Affinity, cpus.len() as u64);
            let now = world.now();
            world.restrict(thread.slot, now);
        }
        // If the caller itself must leave its CPU, it is on another CPU when this returns.
        shared.sync();
        Ok(())
    }

    /// Costs nothing beyond the wake-up: on Linux it is one store to a line that the waker's CPU owns.
    fn set_wake_hint(thread: Thread, cpu: usize) {
        if Self::receives_wake_hints() {
            // As on Linux, a hint for a thread that has ended, or to a CPU that there is not, is lost.
            let _ = Sim::set_wake_cpu(thread, cpu);
        }
    }

    fn receives_wake_hints() -> bool {
        context::expect("Placement::receives_wake_hints").world.borrow().wake_hints
    }

    /// The policy applies to pages that [`Sim::read`] and [`Sim::write`] touch first. The threads that the caller starts inherit it.
    ///
    /// As on Linux, nodes that do not exist are skipped unless none is left.
    fn set_memory_policy(policy: &MemoryPolicy) -> Result<(), OsError> {
        let shared = system_call("Placement::set_memory_policy");
        let mut world = shared.world.borrow_mut();
        let policy = world.memory.bytes.resolve(policy, "the thread's memory")?;
        world.me_mut().placing = Placing { policy, turn: 0 };
        Ok(())
    }

    fn memory_policy() -> Result<MemoryPolicy, OsError> {
        let shared = system_call("Placement::memory_policy");
        let world = shared.world.borrow();
        Ok(world.memory.bytes.describe(&world.me().placing.policy))
    }

    /// Pages that were not touched through [`Sim::read`] or [`Sim::write`] are absent.
    fn residency_at(range: Range<usize>, samples: usize) -> Result<Residency, OsError> {
        let shared = system_call("Placement::residency");
        let residency = shared.world.borrow().memory.bytes.residency(range, samples);
        Ok(residency)
    }
}
