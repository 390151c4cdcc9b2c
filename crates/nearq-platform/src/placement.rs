//! Where threads and memory are, and where they should be: the trait [`Placement`], and the plain data that goes through it.
//!
//! The trait is for code that places work near its data: the layout of queues, workers, homes, the experiments. The data: the machine and
//! what this process may use of it ([`Machine`]), what a later check of it found ([`MachineChange`]), and on which nodes memory is
//! ([`Residency`]).

use core::ops::Range;
use std::sync::Arc;

use nearq_topology::{CpuSet, Limits, Topology};

use crate::{MemoryPolicy, OsError, Threads};

/// What a machine says about its CPUs and memory, and where it puts threads and pages.
///
/// **What is relied on.** Memory safety depends on none of this: a wrong answer here only puts work and memory in the wrong place.
pub trait Placement: Threads {
    // ---- the machine ------------------------------------------------------------------------------------

    /// Reads the machine, and what this process may use of it, again. Takes a tenth of a second on a large machine.
    ///
    /// If not all of it can be read, the answer has what is known, and is [not whole](Topology::is_whole).
    ///
    /// # Errors
    /// Not even the CPUs of the machine are known; the text says why.
    fn machine() -> Result<Machine, String>;

    /// Looks at the machine again, as far as it may have changed. `known` returns what was read before: a platform may compare with that
    /// before it reads everything, so that a check is cheap on a machine that has not changed. A platform that always reads everything does
    /// not call it.
    ///
    /// # Errors
    /// What may have changed cannot be read; what was known before stays valid.
    fn reread_machine<K: AsRef<Topology> + AsRef<Limits>>(
        known: impl FnOnce() -> Arc<K>,
    ) -> Result<MachineChange, String> {
        drop(known);
        Self::machine().map(|machine| MachineChange {
            topology: Some(machine.topology),
            limits: machine.limits,
        })
    }

    // ---- threads ----------------------------------------------------------------------------------------

    /// The CPUs on which the thread may run now.
    ///
    /// # Errors
    /// The thread is gone.
    fn affinity(thread: Self::Thread) -> Result<CpuSet, OsError>;

    /// Restricts the thread to `cpus`. When it returns, the caller itself runs inside `cpus`.
    ///
    /// # Errors
    /// No CPU of `cpus` is allowed, or the thread is gone, or not ours.
    fn set_affinity(thread: Self::Thread, cpus: &CpuSet) -> Result<(), OsError>;

    /// Reports to the machine's scheduler that a thread is at home on a node, as the system numbers nodes, or no longer on any: the thread
    /// should run on that node if it has an idle CPU. This is a hint: it does not change where the thread may run, and has no effect if no
    /// scheduler receives it ([`hint_receiver`](Self::hint_receiver)). It is meant for changes, not for each item: if a scheduler receives
    /// it, it takes some microseconds. The thread must be the caller, or must not end meanwhile.
    fn set_home_hint(_thread: Self::Thread, _node: Option<usize>) {}

    /// Identifies the scheduler that receives home hints ([`set_home_hint`](Self::set_home_hint)). A new number means a new scheduler,
    /// which has received none yet; 0 means that there is none. Not for frequent use: it takes a microsecond or two.
    fn hint_receiver() -> u64 {
        0
    }

    /// Asks the machine's scheduler to treat `cpu` as the CPU on which a thread, which sleeps, ran last: at its next wake-up it runs there
    /// or near there, if it may and a CPU is idle. This is a hint: it moves no thread by itself and does not change where the thread may
    /// run. It has no effect unless a scheduler [receives](Self::receives_wake_hints) it. Takes no lock and makes no system call.
    fn set_wake_hint(_thread: Self::Thread, _cpu: usize) {}

    /// Whether a scheduler receives wake hints ([`set_wake_hint`](Self::set_wake_hint)). One load.
    fn receives_wake_hints() -> bool {
        false
    }

    // ---- memory -----------------------------------------------------------------------------------------

    /// Sets where the pages that the caller touches first come from.
    ///
    /// # Errors
    /// A container refuses it, or a node does not exist.
    fn set_memory_policy(policy: &MemoryPolicy) -> Result<(), OsError>;

    /// Where the pages that the caller touches first come from now: what was [set](Self::set_memory_policy), or what it has from
    /// the thread that started it.
    ///
    /// # Errors
    /// A container refuses it, or [`MemoryPolicy`] cannot express the policy.
    fn memory_policy() -> Result<MemoryPolicy, OsError>;

    /// On which node each sampled page of a range is; at most `samples` pages, spread evenly.
    ///
    /// # Errors
    /// A container refuses it.
    fn residency(range: &[u8], samples: usize) -> Result<Residency, OsError> {
        let start = range.as_ptr().addr();
        Self::residency_at(start..start + range.len(), samples)
    }

    /// As [`residency`](Self::residency), of addresses, which are looked up and not followed: pages without memory are absent.
    ///
    /// # Errors
    /// As [`residency`](Self::residency).
    fn residency_at(range: Range<usize>, samples: usize) -> Result<Residency, OsError>;
}

/// The machine and what this process may use of it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// CPUs, caches, nodes.
    pub topology: Topology,
    /// The CPUs and the quota that this process has.
    pub limits: Limits,
}

/// What a [later check](Placement::reread_machine) of the machine has found.
#[derive(Clone, Debug)]
pub struct MachineChange {
    /// The machine; `None` if it is known not to have changed.
    pub topology: Option<Topology>,
    /// The CPUs and the quota that this process has now.
    pub limits: Limits,
}

/// How many pages of a range are where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Residency {
    /// Pages per node, by node number.
    pub pages: Vec<usize>,
    /// Pages that have not been touched yet, or that are swapped out.
    pub absent: usize,
    /// Bytes a page.
    pub page_size: usize,
}

/// The number of pages of a range that are looked up to find out where it is; this takes about 0.1 ms on Linux.
const SAMPLES: usize = 256;

impl Residency {
    /// For a platform that has counted the pages.
    #[doc(hidden)]
    pub fn counted(pages: Vec<usize>, absent: usize, page_size: usize) -> Self {
        Residency { pages, absent, page_size }
    }

    /// Where a range is, by 256 pages of it at most, spread evenly.
    ///
    /// ```
    /// # mod nearq { pub use nearq_platform as home; }
    /// # #[cfg(target_os = "linux")] {
    /// let memory = vec![1_u8; 1 << 20];
    /// match nearq::home::Residency::of(&memory) {
    ///     Ok(residency) => println!("pages by node: {:?}", residency.pages),
    ///     Err(refused) => println!("{refused}"),
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// A container refuses it.
    #[cfg(target_os = "linux")]
    pub fn of(range: &[u8]) -> Result<Self, OsError> {
        Self::of_in::<crate::Linux>(range)
    }

    /// As `of`, on the platform that the type says.
    ///
    /// # Errors
    /// A container refuses it.
    pub fn of_in<P: crate::Platform>(range: &[u8]) -> Result<Self, OsError> {
        P::residency(range, SAMPLES)
    }

    /// The node with most of the pages, the first of several; `None` if no page is there.
    pub fn most(&self) -> Option<usize> {
        let pages = self.pages.iter().enumerate().filter(|(_, pages)| **pages > 0);
        pages.max_by_key(|(node, pages)| (**pages, core::cmp::Reverse(*node))).map(|(node, _)| node)
    }
}
