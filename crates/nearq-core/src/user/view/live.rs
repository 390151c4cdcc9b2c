//! A workqueue's attributes and limits, changed while items are queued and run.

use core::time::Duration;

use nearq_platform::Platform;
use nearq_topology::{AffinityScope, CpuSet};

use super::QueueView;
use crate::base::error::Error;
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;

impl<P: Platform> QueueView<P> {
    /// Changes several attributes at once: those that the closure changes, which is given the current ones. It may use the queue. If
    /// another thread changes one of them meanwhile, the later change counts. In effect for the next item when it returns; the limit at
    /// once.
    ///
    /// # Errors
    /// One of them cannot be applied, or cannot be chosen for this kind of queue; or the queue has ended. Nothing is changed then.
    pub fn change(&self, change: impl FnOnce(&mut Attributes)) -> Result<(), Error> {
        self.queue.change(change)
    }

    /// Changes the scope; `None` follows the runtime's default.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_affinity_scope(&self, scope: impl Into<Option<AffinityScope>>) -> Result<(), Error> {
        let scope = scope.into();
        self.change(|attributes| attributes.affinity_scope = scope)
    }

    /// Changes whether workers may leave their pod.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_affinity_strict(&self, strict: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.affinity_strict = strict)
    }

    /// Changes whether items run on the CPU that queued them.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_localize(&self, localize: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.localize = localize)
    }

    /// Changes whether other pods' workers help.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_helping(&self, helping: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.helping = helping)
    }

    /// Changes whether the scope is used.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_affinity_enabled(&self, on: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.affinity_enabled = on)
    }

    /// Changes the CPUs that items may run on; `None` is all that the process may use.
    ///
    /// # Errors
    /// The mask is empty, names a CPU that the machine does not have, or has none that the process may use; or the queue is a per-CPU one.
    pub fn set_cpumask(&self, cpus: impl Into<Option<CpuSet>>) -> Result<(), Error> {
        let cpus = cpus.into();
        self.change(|attributes| attributes.cpumask = cpus)
    }

    /// Changes the workers' nice value.
    ///
    /// # Errors
    /// It is not between -20 and 19.
    pub fn set_nice(&self, nice: i32) -> Result<(), Error> {
        self.change(|attributes| attributes.nice = nice)
    }

    /// Changes whether the workers run only when nothing else wants the CPU; see
    /// [`WorkqueueBuilder::sched_idle`](crate::WorkqueueBuilder::sched_idle).
    ///
    /// # Errors
    /// None; it returns a `Result` like the other attributes' functions.
    pub fn set_sched_idle(&self, sched_idle: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.sched_idle = sched_idle)
    }

    /// Changes how long a worker runs in one go; `None` is the system's own. See
    /// [`WorkqueueBuilder::time_slice`](crate::WorkqueueBuilder::time_slice).
    ///
    /// # Errors
    /// It is not between 0.1 and 100 ms.
    pub fn set_time_slice(&self, slice: impl Into<Option<Duration>>) -> Result<(), Error> {
        let slice = slice.into();
        self.change(|attributes| attributes.time_slice = slice)
    }

    /// Changes how many items may be on pools or running at once; 0 is 1024, more than 2048 is 2048 with one warning. In effect when it
    /// returns: a higher limit admits what waits, a lower one admits nothing until enough has ended.
    ///
    /// A lower limit lowers [`min_active`](Self::min_active) as well; a higher one does not restore it.
    ///
    /// # Errors
    /// The queue is an ordered one.
    pub fn set_max_active(&self, items: usize) -> Result<(), Error> {
        self.queue.kind.check_max_active()?;
        self.change(|attributes| attributes.max_active = items)
    }

    /// Changes how many items may be active on each node, whatever its share of the limit is.
    ///
    /// # Errors
    /// It is more than [`max_active`](Self::max_active), or the queue is a per-CPU or an ordered one: those do not count by node.
    pub fn set_min_active(&self, items: usize) -> Result<(), Error> {
        self.queue.kind.check_min_active()?;
        self.change(|attributes| attributes.min_active = items)
    }

    /// Changes the home of items that have no home of their own; `None` is none. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_home<'a>(&self, home: impl Into<Option<&'a Home<P>>>) -> Result<(), Error> {
        self.queue.set_home(home.into())
    }

    /// Changes where the memory that items touch first comes from; in effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one.
    pub fn set_memory(&self, memory: MemoryPolicy) -> Result<(), Error> {
        self.change(|attributes| attributes.memory = memory)
    }
}
