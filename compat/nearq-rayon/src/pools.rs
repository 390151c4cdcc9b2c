//! The pools, one for each pod, and what runs in them.

use std::fmt;
use std::sync::OnceLock;

use nearq_platform::{Linux, LockPlatform, read_setting};
use nearq_topology::{AffinityScope, CpuSet};

use crate::plan::{Plan, PlannedPod};
use crate::process::ProcessPools;
use crate::{Builder, Error};

/// One rayon pool for each pod of a scope.
///
/// The pods are those in which the process may use a CPU when the pools are made. They keep their indices. When the pools are dropped,
/// their threads run what was spawned there, and end; the drop does not wait for that.
///
/// The child of a fork makes pools of its own at its first call, with the same pods and as many threads. That call panics if the machine
/// cannot be read or the system refuses a thread.
pub struct Pools {
    pub(crate) plan: Plan,
    /// Those of the process that called the builder.
    pub(crate) first: ProcessPools,
}

impl Pools {
    /// Makes a pool for each pod of a scope, with a thread for each CPU of the pod that the process may use, or as many as its CPU quota
    /// allows if that is less.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new(scope: AffinityScope) -> Result<Self, Error> {
        Self::builder().scope(scope).build()
    }

    /// Returns a builder, which makes pools with other names, stacks or numbers of threads.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// The pools that the whole program shares, made by the first call. Their scope is that of the variable `NEARQ_RAYON_SCOPE`, or
    /// [`AffinityScope::Cache`]. Make the first call before any thread forks.
    ///
    /// # Panics
    /// If the pools cannot be made; the text is that of the [`Error`].
    pub fn global() -> &'static Self {
        static GLOBAL: OnceLock<Pools> = OnceLock::new();
        GLOBAL.get_or_init(|| {
            let parse = |text: &str| {
                let unknown = |_| format!("one of {}", AffinityScope::names());
                text.parse::<AffinityScope>().map_err(unknown)
            };
            let scope = read_setting::<Linux, _>("NEARQ_RAYON_SCOPE", "It is cache now.", parse);
            let scope = scope.ok().flatten().unwrap_or(AffinityScope::Cache);
            Self::new(scope).unwrap_or_else(|error| panic!("{error}"))
        })
    }

    /// Returns the number of pods, which is at least 1.
    #[allow(clippy::len_without_is_empty, reason = "there is always a pod")]
    pub fn len(&self) -> usize {
        self.plan.pods.len()
    }

    /// Returns the scope that made the pods.
    pub fn scope(&self) -> AffinityScope {
        self.plan.scope
    }

    /// Returns the pods, in the order of their first CPUs.
    pub fn pods(&self) -> impl ExactSizeIterator<Item = Pod<'_>> {
        (0..self.len()).map(|index| Pod { pools: self, index })
    }

    /// Returns the pod with this index; `None` if there is none.
    pub fn get(&self, index: usize) -> Option<Pod<'_>> {
        (index < self.len()).then_some(Pod { pools: self, index })
    }

    /// Returns the pods of the NUMA node that has this number. No pod belongs to a node if the scope is [`AffinityScope::System`].
    pub fn of_node(&self, node: usize) -> impl Iterator<Item = Pod<'_>> {
        self.pods().filter(move |pod| pod.node() == Some(node))
    }

    /// Runs a closure in the pool of the pod with this index, waits for it, and returns its result. What it does with rayon, such as
    /// parallel iterators, runs in that pool.
    ///
    /// # Panics
    /// If there is no such pod, or if the closure panics.
    #[track_caller]
    pub fn in_pod<R: Send>(&self, index: usize, f: impl FnOnce() -> R + Send) -> R {
        let Some(pod) = self.get(index) else {
            let (scope, last) = (self.plan.scope, self.len() - 1);
            panic!(
                "there is no pod {index}: the pods of scope {scope} have the indices 0 to {last}"
            )
        };
        pod.run(f)
    }

    /// Runs a closure in the pool of the pod that the caller runs in, waits for it, and returns its result.
    ///
    /// If the caller's CPU is in none of the pods, because the process could not run there when the pools were made, the closure runs in a
    /// pod of the same node, or else in the first one.
    ///
    /// # Panics
    /// If the closure panics.
    pub fn here<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        Pod { pools: self, index: self.plan.pod_of(Linux::current_cpu()) }.run(f)
    }

    /// Runs a closure in the pools of all pods at once, waits for all of them, and returns their results in the order of the pods. The call
    /// takes about 250 bytes of the caller's stack for each pod, and without optimisation 1,700.
    ///
    /// # Panics
    /// If one of the closures panics, after all have ended.
    pub fn each<R: Send>(&self, f: impl Fn(Pod<'_>) -> R + Sync) -> Vec<R> {
        let process = self.first.current(&self.plan);
        let _call = process.masks.call();
        let mut results: Vec<Option<R>> = self.pods().map(|_| None).collect();
        self.each_from(0, process, &f, &mut results);
        results.into_iter().map(|result| result.expect("its closure has ended")).collect()
    }

    /// Runs a closure in the pools from this index on. It calls itself once for each pool, so that all scopes are open at once.
    fn each_from<R: Send>(
        &self,
        index: usize,
        process: &ProcessPools,
        f: &(impl Fn(Pod<'_>) -> R + Sync),
        results: &mut [Option<R>],
    ) {
        let Some((result, rest)) = results.split_first_mut() else { return };
        process.pools[index].in_place_scope(|scope| {
            scope.spawn(move |_| *result = Some(f(Pod { pools: self, index })));
            self.each_from(index + 1, process, f, rest);
        });
    }
}

impl fmt::Debug for Pools {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.pods()).finish()
    }
}

/// One pod of [`Pools`].
#[derive(Clone, Copy)]
pub struct Pod<'a> {
    pools: &'a Pools,
    index: usize,
}

impl<'a> Pod<'a> {
    fn planned(self) -> &'a PlannedPod {
        &self.pools.plan.pods[self.index]
    }

    /// Returns its index in the pools, from 0.
    pub fn index(self) -> usize {
        self.index
    }

    /// Returns its CPUs, whether the process may use them or not.
    pub fn cpus(self) -> &'a CpuSet {
        &self.planned().cpus
    }

    /// Returns the CPUs on which the threads of its pool may run now: those of the pod that the process may use, or if there are none, all
    /// that the process may use.
    pub fn mask(self) -> CpuSet {
        self.pools.first.current(&self.pools.plan).masks.mask(self.index)
    }

    /// Returns the number of its NUMA node; `None` if that is not known, or if the scope is [`AffinityScope::System`].
    pub fn node(self) -> Option<usize> {
        self.planned().node
    }

    /// Returns the number of threads of its pool.
    pub fn threads(self) -> usize {
        self.planned().threads
    }

    /// Runs a closure in its pool, as [`Pools::in_pod`] does.
    ///
    /// # Panics
    /// If the closure panics.
    pub fn run<R: Send>(self, f: impl FnOnce() -> R + Send) -> R {
        let process = self.pools.first.current(&self.pools.plan);
        let _call = process.masks.call();
        process.pools[self.index].install(f)
    }
}

impl fmt::Debug for Pod<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} (CPUs {}, {} threads)", self.index, self.cpus(), self.threads())
    }
}

/// Runs a closure in a pod of [`Pools::global`]; see [`Pools::in_pod`].
///
/// # Panics
/// If there is no such pod, if the closure panics, or if the pools cannot be made.
#[track_caller]
pub fn in_pod<R: Send>(index: usize, f: impl FnOnce() -> R + Send) -> R {
    Pools::global().in_pod(index, f)
}

/// Runs a closure in the pod of [`Pools::global`] that the caller runs in; see [`Pools::here`].
///
/// # Panics
/// If the closure panics, or if the pools cannot be made.
pub fn here<R: Send>(f: impl FnOnce() -> R + Send) -> R {
    Pools::global().here(f)
}
