//! What the homes of one runtime have in common: the nodes, how many homes were given out on each, and the settings.
//!
//! It lives as long as the runtime and every home. A home does not keep the runtime alive: it has a weak reference to it, for code that
//! needs the queues.
//!
//! # What is on an item's path
//! Only `used`, and behind it the single words of `map`. Until the first home is made on a machine of several nodes, no item, issuer or
//! worker reads more than `used`, and issuers not even that: their pwqs tell them (`HOMED` in `pool_workqueue`).
//!
//! # Locks
//! Each is taken for a few instructions by users' threads and the monitor, seldom by a worker, and none inside another, except `nodes` and
//! `weights` inside a home's `change`.

use core::time::Duration;
use std::sync::{Arc, Weak};

use nearq_home::{Load, Nodes, Weights};
use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, MemoryPolicy, Ordering, Platform};
use nearq_topology::{CpuSet, Topology};

use super::choice::HomeChoice;
use super::inside::Inside;
use super::map::Map;
use crate::base::forked;

/// The memory policy of the program before there were homes.
#[derive(Debug, PartialEq, Eq)]
enum OwnPolicy {
    Unknown,
    Known(MemoryPolicy),
    /// The system does not report it, or it could not be restored: no policy is changed.
    Untouchable,
}

/// A runtime, as its homes know it.
pub(crate) trait Host: Send + Sync {
    /// Makes the queues follow whether items may have homes.
    fn mark_pwqs(&self);

    /// Workers that run something which is not at home there, in thousandths, by the node's number. `nodes` is one more than the highest.
    fn strangers(&self, nodes: usize) -> Vec<u32>;
}

/// The homes of one runtime.
pub(crate) struct Homes<P: Platform> {
    pub(crate) map: Map<P>,
    nodes: Mutex<Arc<Nodes>, P>,
    weights: Mutex<Weights, P>,
    /// Homes that were given out, by the node's number.
    given: Box<[P::AtomicU32]>,
    /// 1 from the first home on, if there are several nodes.
    used: P::AtomicU32,
    /// 1 if several nodes may be used.
    several: P::AtomicU32,
    choice: P::AtomicU32,
    /// 1 if what an item with a home spawns is at home there, too.
    inherits: P::AtomicU32,
    /// The memory policy of the program before there were homes.
    own: Mutex<OwnPolicy, P>,
    /// For threads that have entered: the affinity that they got, and what they had. If the system reports the affinity of one of them as
    /// that of the process, the process may still use as much as before.
    entered: Mutex<Vec<(CpuSet, CpuSet)>, P>,
    /// When dynamic homes were last judged.
    judged: P::AtomicU64,
    /// Every home, for the monitor; those that are gone are removed now and then.
    list: Mutex<Vec<Weak<Inside<P>>>, P>,
    /// The runtime; none in tests.
    host: Option<Weak<dyn Host>>,
}

impl<P: Platform> Homes<P> {
    pub(crate) fn new(
        topology: &Topology,
        allowed: &CpuSet,
        weights: Weights,
        host: Option<Weak<dyn Host>>,
    ) -> Self {
        let map = Map::new(topology, &weights);
        let nodes = Nodes::of(topology, allowed);
        Homes {
            given: (0..map.nodes()).map(|_| P::AtomicU32::new(0)).collect(),
            map,
            used: P::AtomicU32::new(0),
            several: P::AtomicU32::new(u32::from(!nodes.is_single())),
            nodes: Mutex::new_in(Arc::new(nodes)),
            weights: Mutex::new_in(weights),
            choice: P::AtomicU32::new(HomeChoice::Now as u32),
            inherits: P::AtomicU32::new(1),
            own: Mutex::new_in(OwnPolicy::Unknown),
            entered: Mutex::new_in(Vec::new()),
            judged: P::AtomicU64::new(0),
            list: Mutex::new_in(Vec::new()),
            host,
        }
    }

    /// The runtime, if it still exists.
    fn host(&self) -> Option<Arc<dyn Host>> {
        self.host.as_ref()?.upgrade()
    }

    /// The nodes that can be a home.
    pub(crate) fn nodes(&self) -> Arc<Nodes> {
        Arc::clone(&self.nodes.lock())
    }

    /// Follows a change of the machine, or of the part of it that may be used.
    pub(crate) fn set_machine(&self, topology: &Topology, allowed: &CpuSet) {
        let nodes = Nodes::of(topology, allowed);
        // The map was made when the runtime began. If the machine appeared to have one node then, because it could not be read, there are
        // no homes later either.
        let nodes =
            if self.map.nodes() == 1 && !nodes.is_single() { nodes.joined() } else { nodes };
        self.several.store(u32::from(!nodes.is_single()), Ordering::SeqCst);
        *self.nodes.lock() = Arc::new(nodes);
    }

    /// Whether there are several nodes to be at home on.
    pub(crate) fn has_several(&self) -> bool {
        self.several.load(Ordering::SeqCst) != 0
    }

    /// Whether items may have homes: there is a home, and there are several nodes.
    #[inline]
    pub(crate) fn are_used(&self) -> bool {
        // SeqCst: a thread that makes a queue reads this after it has put the queue on the runtime's list; `begin_use` does it the other
        // way round.
        self.used.load(Ordering::SeqCst) != 0 && self.has_several()
    }

    /// Whether `begin_use` has been called.
    #[cfg(test)]
    pub(crate) fn have_begun(&self) -> bool {
        self.used.load(Ordering::SeqCst) != 0
    }

    /// There is a home: from now on, if there are several nodes, the queues' pwqs make issuers look up the homes of items.
    pub(crate) fn begin_use(&self) {
        if self.used.load(Ordering::Relaxed) == 0 && self.has_several() {
            self.own_policy();
        }
        if self.used.swap(1, Ordering::SeqCst) == 0 && self.has_several() {
            if let Some(host) = self.host() {
                host.mark_pwqs();
            }
        }
    }

    /// The memory policy that workers have when nothing else is wanted: that of the first caller, which made the first home. None if it
    /// cannot be restored: then no policy is touched.
    pub(super) fn own_policy(&self) -> Option<MemoryPolicy> {
        let mut own = self.own.lock();
        if *own == OwnPolicy::Unknown {
            *own = match P::memory_policy() {
                Ok(policy) => OwnPolicy::Known(policy),
                Err(refused) => {
                    warn_of_memory::<P>(&refused);
                    OwnPolicy::Untouchable
                }
            };
        }
        match &*own {
            OwnPolicy::Known(policy) => Some(policy.clone()),
            _ => None,
        }
    }

    /// A thread enters: it gets these CPUs in place of those that it had.
    pub(crate) fn note_entered(&self, now: &CpuSet, before: &CpuSet) {
        self.entered.lock().push((now.clone(), before.clone()));
    }

    /// Undoes [`note_entered`](Self::note_entered).
    pub(crate) fn forget_entered(&self, before: &CpuSet) {
        let mut entered = self.entered.lock();
        if let Some(index) = entered.iter().rposition(|(_, other)| other == before) {
            entered.remove(index);
        }
    }

    /// What the process may use if the system says that it is `affinity`.
    pub(crate) fn unentered(&self, affinity: CpuSet) -> CpuSet {
        let entered = self.entered.lock();
        let before = entered.iter().rev().find(|(now, _)| *now == affinity);
        before.map_or(affinity, |(_, before)| before.clone())
    }

    // ---- counting ----------------------------------------------------------------------------------------

    /// Counts a home on a node.
    pub(super) fn count(&self, node: u32) {
        if let Some(given) = self.given.get(node as usize) {
            given.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Takes a home off the count of a node.
    pub(super) fn uncount(&self, node: u32) {
        if let Some(given) = self.given.get(node as usize) {
            given.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Homes that were given out on a node, by its number.
    pub(crate) fn given(&self, node: usize) -> u32 {
        self.given.get(node).map_or(0, |given| given.load(Ordering::Relaxed))
    }

    /// What is on each of the nodes, by index of `nodes`.
    pub(crate) fn loads(&self, nodes: &Nodes) -> Vec<Load> {
        let others = self.host().map(|host| host.strangers(self.map.nodes()));
        let others = others.unwrap_or_default();
        let load = |id: usize| Load {
            homes: self.given(id).saturating_mul(1000),
            others: others.get(id).copied().unwrap_or(0),
        };
        nodes.iter().map(|node| load(node.id)).collect()
    }

    // ---- settings ----------------------------------------------------------------------------------------

    pub(crate) fn weights(&self) -> Weights {
        self.weights.lock().clone()
    }

    pub(crate) fn set_weights(&self, weights: Weights) {
        self.map.set_weights(&weights);
        *self.weights.lock() = weights;
    }

    pub(crate) fn choice(&self) -> HomeChoice {
        HomeChoice::from_number(self.choice.load(Ordering::Relaxed))
    }

    pub(crate) fn set_choice(&self, choice: HomeChoice) {
        self.choice.store(choice as u32, Ordering::Relaxed);
    }

    pub(crate) fn inherits(&self) -> bool {
        self.inherits.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn set_inherits(&self, inherits: bool) {
        self.inherits.store(u32::from(inherits), Ordering::Relaxed);
    }

    // ---- all of them -------------------------------------------------------------------------------------

    /// Puts a new home on the list.
    pub(super) fn add(&self, home: &Arc<Inside<P>>) {
        let mut list = self.list.lock();
        if list.len() == list.capacity() {
            list.retain(|home| home.strong_count() != 0);
        }
        list.push(Arc::downgrade(home));
    }

    /// Every home that has a handle.
    pub(super) fn all(&self) -> Vec<Arc<Inside<P>>> {
        self.list.lock().iter().filter_map(Weak::upgrade).filter(|home| home.is_held()).collect()
    }

    /// Whether to judge the dynamic homes now; true for one caller in each interval.
    pub(super) fn begin_judging(&self, now: nearq_platform::Instant) -> bool {
        let last = self.judged.load(Ordering::Relaxed);
        let interval = self.weights.lock().move_interval_ms();
        let interval = Duration::from_millis(interval.into()).as_nanos() as u64;
        now.as_nanos().saturating_sub(last) >= interval
            && self
                .judged
                .compare_exchange(last, now.as_nanos(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    // ---- forks -------------------------------------------------------------------------------------------

    pub(crate) fn hold_for_fork(&self) {
        forked::hold(&self.nodes);
        forked::hold(&self.weights);
        forked::hold(&self.list);
        forked::hold(&self.own);
        forked::hold(&self.entered);
    }

    /// # Safety
    /// After `hold_for_fork`, once.
    pub(crate) unsafe fn release_after_fork(&self) {
        // SAFETY: `hold_for_fork` has taken all of them, as the caller promises, and each is given back this once.
        unsafe {
            forked::give_back(&self.entered);
            forked::give_back(&self.own);
            forked::give_back(&self.list);
            forked::give_back(&self.weights);
            forked::give_back(&self.nodes);
        }
    }

    /// In the child of a fork, after the locks are free: forgets what another thread was changing of a home.
    pub(crate) fn after_fork_in_child(&self) {
        for home in self.list.lock().iter().filter_map(Weak::upgrade) {
            home.after_fork_in_child();
        }
    }
}

/// The system refuses to place memory: warns of it once for each cause.
pub(crate) fn warn_of_memory<P: Platform>(refused: &nearq_platform::OsError) {
    let line = format!(
        "memory cannot be placed on its home node: {refused}. It stays where it is; items still run at their homes"
    );
    P::warn_once(&format!("memory: {}", refused.cause()), &line);
}
