//! On which CPUs the threads of each pool may run, and the thread that keeps them there while the process's CPUs change.
//!
//! A pool's mask is its pod's CPUs that the process may use, except isolated ones; if there is none, all such CPUs. If the process may use
//! isolated CPUs only, they count as any others ([`Limits::housekeeping`]). A thread of the pool gets the mask when it starts. While calls
//! run closures in the pools, the *follower* looks once a second at what the process may use: its mask, its cpuset, and which CPUs are
//! online. If that changes a pool's mask, the pool's threads get the new one. While there is no such call, the follower sleeps.
//!
//! A mask that was set on one thread from outside is left alone as long as it lies within the pool's mask. Any other is replaced:
//! `taskset -a` writes the masks of the process's other threads after that of its main thread, and so perhaps after the follower has.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nearq_platform::{
    Linux, LockPlatform, Machine, OsError, Parker, Placement, ThreadSpec, Threads,
};
use nearq_topology::{CpuSet, Limits, Topology};

use crate::Error;
use crate::plan::Plan;

/// How often the follower looks while there are calls. One look costs about a millisecond of CPU time.
const INTERVAL: Duration = Duration::from_secs(1);

/// The masks of all pools of a process.
pub(crate) struct Masks {
    pods: Vec<PodMask>,
    /// How many calls run closures in the pools.
    calls: AtomicUsize,
    /// Whether the follower is to end.
    stopped: AtomicBool,
    /// Where the follower sleeps until a call begins.
    parker: Parker<Linux>,
}

/// The mask of one pool.
struct PodMask {
    cpus: CpuSet,
    /// Locked by the follower, by a thread that starts, and by a caller that reads the mask.
    state: Mutex<State>,
}

struct State {
    mask: CpuSet,
    threads: Vec<<Linux as Threads>::Thread>,
}

/// A call that runs a closure in a pool, until it is dropped.
pub(crate) struct Call<'a>(&'a Masks);

impl Masks {
    pub(crate) fn new(plan: &Plan, limits: &Limits) -> Self {
        let allowed = limits.housekeeping();
        let pods = plan.pods.iter().map(|pod| {
            let mask = mask_of(&pod.cpus, &allowed);
            PodMask { cpus: pod.cpus.clone(), state: Mutex::new(State { mask, threads: vec![] }) }
        });
        Self {
            pods: pods.collect(),
            calls: AtomicUsize::new(0),
            stopped: AtomicBool::new(false),
            parker: Parker::new(),
        }
    }

    /// The CPUs on which the threads of a pool may run now.
    pub(crate) fn mask(&self, pod: usize) -> CpuSet {
        self.pods[pod].lock().mask.clone()
    }

    /// Gives the caller, a new thread of a pool, the pool's mask.
    pub(crate) fn enter(&self, pod: usize) {
        let mut state = self.pods[pod].lock();
        let thread = Linux::current_thread();
        state.threads.push(thread);
        restrict(thread, &state.mask);
    }

    /// Counts a call, and wakes the follower if it may sleep.
    pub(crate) fn call(&self) -> Call<'_> {
        // Relaxed: the permit of the parker, which comes after it, lets the follower see the count (release; `park` acquires).
        if self.calls.fetch_add(1, Ordering::Relaxed) == 0 {
            self.parker.unpark();
        }
        Call(self)
    }

    /// Starts the follower. `known` is the machine as it was when the masks were made.
    pub(crate) fn follow(self: &Arc<Self>, name: String, known: Machine) -> Result<(), Error> {
        let masks = Arc::clone(self);
        let spec = ThreadSpec { name, ..ThreadSpec::default() };
        let started = Linux::spawn(spec, move || masks.run(Arc::new(Known(known))));
        started.map(drop).map_err(|error| Error::Refused { reason: error.to_string() })
    }

    /// Lets the follower end, within a second.
    pub(crate) fn stop(&self) {
        // Relaxed: ordered by the permit, as in `call`.
        self.stopped.store(true, Ordering::Relaxed);
        self.parker.unpark();
    }

    /// The follower.
    fn run(&self, mut known: Arc<Known>) {
        loop {
            self.parker.park(None);
            // Relaxed, here and below: what was written before the permit is seen. A call that comes after the last look at the count
            // leaves a permit.
            if self.stopped.load(Ordering::Relaxed) {
                return;
            }
            loop {
                self.look(&mut known);
                Linux::sleep(INTERVAL);
                if self.calls.load(Ordering::Relaxed) == 0 {
                    break;
                }
            }
        }
    }

    /// Adapts the masks to what the process may use now.
    fn look(&self, known: &mut Arc<Known>) {
        // What cannot be read now may be readable in a second; until then the last result stays valid.
        let Ok(found) = Linux::reread_machine(|| Arc::clone(known)) else { return };
        let topology = found.topology.unwrap_or_else(|| known.0.topology.clone());
        *known = Arc::new(Known(Machine { topology, limits: found.limits }));
        let allowed = known.0.limits.housekeeping();
        self.pods.iter().for_each(|pod| pod.adapt(&allowed));
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        // Relaxed: nothing is published with the count. If the follower sees it late, it looks once more.
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PodMask {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn adapt(&self, allowed: &CpuSet) {
        let mut state = self.lock();
        let mask = mask_of(&self.cpus, allowed);
        let is_new = mask != state.mask;
        state.mask = mask;
        for thread in &state.threads {
            let is_inside = || Linux::affinity(*thread).is_ok_and(|it| it.is_subset(&state.mask));
            if is_new || !is_inside() {
                restrict(*thread, &state.mask);
            }
        }
    }
}

/// The mask of the pool of a pod with these CPUs.
fn mask_of(cpus: &CpuSet, allowed: &CpuSet) -> CpuSet {
    let mask = cpus.intersection(allowed);
    if mask.is_empty() { allowed.clone() } else { mask }
}

/// Gives a thread a mask. A warning says, once, that the system forbids it. Other refusals need no warning: the thread is ending, or the
/// process's CPUs have changed since they were read, and the follower looks again.
fn restrict(thread: <Linux as Threads>::Thread, mask: &CpuSet) {
    let Err(refused) = Linux::set_affinity(thread, mask) else { return };
    let is_forbidden = |error: &OsError| {
        let kind = io::Error::from_raw_os_error(error.errno()).kind();
        matches!(kind, io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported)
    };
    if is_forbidden(&refused) {
        let line = format!("{refused}. Threads of rayon pools leave their pods");
        Linux::warn_once(&refused.cause(), &line);
    }
}

/// The machine as it was last read.
struct Known(Machine);

impl AsRef<Topology> for Known {
    fn as_ref(&self) -> &Topology {
        &self.0.topology
    }
}

impl AsRef<Limits> for Known {
    fn as_ref(&self) -> &Limits {
        &self.0.limits
    }
}
