//! How pools are made.

use nearq_platform::{Linux, Machine, Placement};
use nearq_topology::AffinityScope;

use crate::plan::Plan;
use crate::process::ProcessPools;
use crate::{Error, Pools};

/// Makes [`Pools`]. [`Pools::builder`] returns one.
///
/// ```
/// use nearq_rayon::{AffinityScope, Pools};
///
/// let pools = Pools::builder().scope(AffinityScope::Numa).threads(2).name("decode").build()?;
/// assert!(pools.pods().all(|pod| pod.threads() == 2));
/// # Ok::<(), nearq_rayon::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "`build` makes the pools"]
pub struct Builder {
    scope: AffinityScope,
    threads: Option<usize>,
    name: String,
    stack_size: Option<usize>,
}

impl Builder {
    pub(crate) fn new() -> Self {
        Self {
            scope: AffinityScope::Cache,
            threads: None,
            name: "rayon".to_owned(),
            stack_size: None,
        }
    }

    /// The scope that groups the CPUs into pods. The default is [`AffinityScope::Cache`].
    pub fn scope(mut self, scope: AffinityScope) -> Self {
        self.scope = scope;
        self
    }

    /// The number of threads in the pool of each pod. The default is the number of CPUs of the pod that the process may use when the pools
    /// are made, or the CPU quota, rounded up, if that is less.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// How the names of the threads begin. By default, thread 3 of pod 1 is `rayon-1/3`, and the thread that follows the process's CPUs is
    /// `rayon-masks`. The system shows 15 bytes. NUL characters, which no name can have, are left out.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into().replace('\0', "");
        self
    }

    /// Bytes of stack for each thread. The default is that of Rust's threads: `RUST_MIN_STACK`, or 2 MiB.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// Makes the pools, and starts their threads.
    ///
    /// # Errors
    /// The machine cannot be read, the number of threads is 0 or too large, or the system refuses a thread.
    pub fn build(self) -> Result<Pools, Error> {
        self.build_for(Linux::machine().map_err(|reason| Error::Machine { reason })?)
    }

    /// As `build`, on a machine that the caller has read.
    pub(crate) fn build_for(self, machine: Machine) -> Result<Pools, Error> {
        let allowed = 1..=rayon_core::max_num_threads();
        if let Some(given) = self.threads.filter(|given| !allowed.contains(given)) {
            return Err(Error::Threads { given });
        }
        let plan = Plan::new(&machine, self.scope, self.threads, self.name, self.stack_size);
        let first = ProcessPools::start(&plan, machine)?;
        Ok(Pools { plan, first })
    }
}
