//! A workqueue's attributes and limits, changed while items are queued and run.

use core::time::Duration;

use nearq_platform::Platform;
use nearq_topology::{AffinityScope, CpuSet};

use super::QueueView;
use crate::base::error::Error;
use crate::homes::{Home, MemoryPolicy};
use crate::layout::attributes::Attributes;

impl<P: Platform> QueueView<P> {
    /// Changes several attributes at once. The closure is given the current attributes and changes some of them; it may use the queue.
    ///
    /// The change is in effect for the next item that is queued after the call has returned. What is queued already runs where it was
    /// queued. A new `max_active` or `min_active` is in effect at once. If another thread changes the same attribute meanwhile, the later
    /// change counts; changes of different attributes do not undo each other.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{AffinityScope, Workqueue};
    ///
    /// let queue = Workqueue::builder("tuned").build()?;
    /// queue.change(|attributes| {
    ///     attributes.affinity_scope = Some(AffinityScope::Numa);
    ///     attributes.nice = 5;
    /// })?;
    ///
    /// // All or nothing: a value that is not allowed leaves the queue as it was.
    /// assert!(queue.change(|attributes| { attributes.nice = 6; attributes.max_active = 4; attributes.min_active = 5 }).is_err());
    /// assert_eq!(queue.attributes().nice, 5);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// One of the attributes cannot be applied, or cannot be set for this kind of queue; or the queue has ended ([`Error::Ended`]).
    /// Nothing is changed then.
    pub fn change(&self, change: impl FnOnce(&mut Attributes)) -> Result<(), Error> {
        self.queue.change(change)
    }

    /// Changes how CPUs are grouped into pods; `None` follows the runtime's default. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_affinity_scope(&self, scope: impl Into<Option<AffinityScope>>) -> Result<(), Error> {
        let scope = scope.into();
        self.change(|attributes| attributes.affinity_scope = scope)
    }

    /// Changes whether workers stay in their pod, even if CPUs elsewhere are idle. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_affinity_strict(&self, strict: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.affinity_strict = strict)
    }

    /// Changes whether an item runs on the very CPU that queued it, if a worker can run there. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_localize(&self, localize: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.localize = localize)
    }

    /// Changes whether idle workers of other pods take the queue's items. In effect for the next item; no effect while the queue is strict.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_helping(&self, helping: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.helping = helping)
    }

    /// Changes whether the scope is used; if not, one pod has all CPUs of the queue. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_affinity_enabled(&self, on: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.affinity_enabled = on)
    }

    /// Changes the CPUs that items may run on; `None` is all that the process may use. In effect for the next item.
    ///
    /// # Errors
    /// The mask is empty ([`Error::EmptyMask`]), names a CPU that the machine does not have, or has none that the process may use; or the
    /// queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_cpumask(&self, cpus: impl Into<Option<CpuSet>>) -> Result<(), Error> {
        let cpus = cpus.into();
        self.change(|attributes| attributes.cpumask = cpus)
    }

    /// Changes the nice value of the workers, from -20 (most favoured) to 19: items go to pools with that value. In effect for the next
    /// item. See [`WorkqueueBuilder::nice`](crate::WorkqueueBuilder::nice) for what happens without the privilege.
    ///
    /// # Errors
    /// The value is not between -20 and 19 ([`Error::NiceOutOfRange`]); or the queue has ended ([`Error::Ended`]).
    pub fn set_nice(&self, nice: i32) -> Result<(), Error> {
        self.change(|attributes| attributes.nice = nice)
    }

    /// Changes whether the workers run only when nothing else wants the CPU; see
    /// [`WorkqueueBuilder::sched_idle`](crate::WorkqueueBuilder::sched_idle). In effect for the next item.
    ///
    /// # Errors
    /// The queue has ended ([`Error::Ended`]).
    pub fn set_sched_idle(&self, sched_idle: bool) -> Result<(), Error> {
        self.change(|attributes| attributes.sched_idle = sched_idle)
    }

    /// Changes how long a worker runs without a break while other threads want its CPU, 0.1 to 100 ms; `None` is the system's own. In
    /// effect for the next item. See [`WorkqueueBuilder::time_slice`](crate::WorkqueueBuilder::time_slice).
    ///
    /// # Errors
    /// The slice is not between 0.1 and 100 ms ([`Error::TimeSliceOutOfRange`]); or the queue has ended ([`Error::Ended`]).
    pub fn set_time_slice(&self, slice: impl Into<Option<Duration>>) -> Result<(), Error> {
        let slice = slice.into();
        self.change(|attributes| attributes.time_slice = slice)
    }

    /// Changes how many items of the queue may be active at once, that is, wait for a worker or run. 0 sets 1024; more than 2048 sets 2048,
    /// with one warning. See [`WorkqueueBuilder::max_active`](crate::WorkqueueBuilder::max_active).
    ///
    /// In effect when the call returns: a higher limit admits items that were held back, a lower one admits nothing until enough items have
    /// ended. A lower limit lowers [`min_active`](Self::min_active) as well; a higher one does not restore it.
    ///
    /// # Errors
    /// The queue is an ordered one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_max_active(&self, items: usize) -> Result<(), Error> {
        self.queue.kind.check_max_active()?;
        self.change(|attributes| attributes.max_active = items)
    }

    /// Changes how many items may be active on each node even if its share of the limit is smaller. In effect when the call returns.
    ///
    /// # Errors
    /// The number is more than [`max_active`](Self::max_active) ([`Error::MinActive`]); or the queue is a per-CPU or an ordered one, which
    /// do not count by node ([`Error::Unsupported`]); or it has ended ([`Error::Ended`]).
    pub fn set_min_active(&self, items: usize) -> Result<(), Error> {
        self.queue.kind.check_min_active()?;
        self.change(|attributes| attributes.min_active = items)
    }

    /// Changes the home of items that have no home of their own; `None` removes it. In effect for the next item.
    ///
    /// # Errors
    /// `home` is not `None`, and the queue is a per-CPU one ([`Error::Unsupported`]); or it has ended ([`Error::Ended`]).
    pub fn set_home<'a>(&self, home: impl Into<Option<&'a Home<P>>>) -> Result<(), Error> {
        self.queue.set_home(home.into())
    }

    /// Changes which node the memory that items touch first comes from. In effect for the next item.
    ///
    /// # Errors
    /// The queue is a per-CPU one ([`Error::Unsupported`]), or has ended ([`Error::Ended`]).
    pub fn set_memory(&self, memory: MemoryPolicy) -> Result<(), Error> {
        self.change(|attributes| attributes.memory = memory)
    }
}
