//! What the simulated kernel counts for CPUs and threads: which threads ran, for how long, and which waited.
//!
//! Linux has the same numbers in `/proc/schedstat` and `/proc/PID/schedstat`, and counts them in the same way: time that a thread waits for
//! a CPU is recorded when the wait ends, for the CPU that it was enqueued for.

use std::time::Duration;

use nearq_platform::OsError;

use crate::context;
use crate::platform::{Sim, gone};
use crate::thread::{State, Thread};
use crate::world::World;

/// Opening, reading and closing a file of `/proc`.
const FILE: u64 = 3;

/// What the simulated kernel has counted for a CPU, since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CpuStatistics {
    /// How long threads have run on it.
    pub ran: Duration,
    /// How long threads have waited for it, counting waits that have ended.
    pub waited: Duration,
}

/// What the simulated kernel has counted for a thread, since it was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThreadStatistics {
    /// How long it has run.
    pub ran: Duration,
    /// How much of that it has spent in the kernel: in system calls, in page faults, and on waking other threads. Switches between threads
    /// and ticks are no thread's time.
    pub in_kernel: Duration,
    /// How long it has waited for CPUs, up to when it last got one.
    pub waited: Duration,
    /// The CPU that it is on or was on last.
    pub cpu: usize,
}

impl World {
    /// How long the thread on a CPU has run beyond the counted time, at the time of the calling thread.
    fn not_counted(&self, cpu: usize) -> u64 {
        let at = &self.cpus[cpu];
        let counted = at.current.map(|slot| self.threads.at(slot).counted_to);
        counted.map_or(0, |counted| at.clock.min(self.now()).saturating_sub(counted))
    }
}

impl Sim {
    /// What was counted for each CPU, by its number. It costs as much as reading a file: three system calls.
    pub fn cpu_statistics() -> Vec<CpuStatistics> {
        let shared = context::expect("Sim::cpu_statistics");
        shared.step_in_kernel(|world| FILE * world.costs.system_call);
        let world = shared.world.borrow();
        let of = |cpu: usize| CpuStatistics {
            ran: Duration::from_nanos(world.cpus[cpu].ran + world.not_counted(cpu)),
            waited: Duration::from_nanos(world.cpus[cpu].waited),
        };
        (0..world.cpus.len()).map(of).collect()
    }

    /// What was counted for a thread. It costs as much as reading a file: three system calls.
    ///
    /// # Errors
    /// If the thread has ended.
    pub fn thread_statistics(thread: Thread) -> Result<ThreadStatistics, OsError> {
        let shared = context::expect("Sim::thread_statistics");
        shared.step_in_kernel(|world| FILE * world.costs.system_call);
        let world = shared.world.borrow();
        let entry = world.threads.find(thread).ok_or_else(|| gone(thread))?;
        let running = match entry.state {
            State::Running => world.not_counted(entry.cpu),
            _ => 0,
        };
        Ok(ThreadStatistics {
            ran: Duration::from_nanos(entry.cpu_time + running),
            in_kernel: Duration::from_nanos(entry.kernel_time),
            waited: Duration::from_nanos(entry.waited),
            cpu: entry.cpu,
        })
    }
}
