//! The pools of a runtime and their concurrency limits: made on first use, and linked to each other.
//!
//! A runtime may have made thousands of pools, because each combination of attributes has its own. So nothing here iterates over all of
//! them: a pool is found by its key, and the lists of those that help each other are made within a family, outside of which no pool helps.
//! If there are many, the monitor checks only those that have users, threads or work (`pool/service`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use nearq_platform::{AtomicInt, Ordering, Platform};
use nearq_topology::CpuSet;

use super::{Core, KnownQueue};
use crate::base::ids::PoolId;
use crate::layout::attributes::PoolKey;
use crate::layout::priority::Priority;
use crate::pool::Pool;
use crate::pool::concurrency_limit::ConcurrencyLimit;

/// What all pools that help each other have in common: the priority, and the CPUs where their workers may go, if they help at all.
type Family = (Priority, Option<CpuSet>);

/// Every pool that was made, in that order. The maps hold indices into the list: a map that owned pools would free them in its own order,
/// which differs between processes.
pub(crate) struct Pools<P: Platform> {
    all: Vec<Arc<Pool<P>>>,
    by_key: HashMap<PoolKey, usize>,
    families: HashMap<Family, Vec<usize>>,
    /// The pools that the monitor checks, by their numbers.
    in_service: Vec<Arc<Pool<P>>>,
    /// Once there are this many of these, those without users are removed.
    many: usize,
}

/// Checking this many pools costs little.
const FEW: usize = if cfg!(test) { 4 } else { 128 };

impl<P: Platform> Pools<P> {
    pub(super) fn new() -> Self {
        Pools {
            all: Vec::new(),
            by_key: HashMap::new(),
            families: HashMap::new(),
            in_service: Vec::new(),
            many: FEW,
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Pool<P>>> {
        self.all.iter()
    }

    /// The pools that may have users or threads, by their numbers.
    pub(crate) fn in_service(&self) -> impl Iterator<Item = &Arc<Pool<P>>> {
        self.in_service.iter()
    }

    fn find(&self, key: &PoolKey) -> Option<&Arc<Pool<P>>> {
        self.by_key.get(key).map(|index| &self.all[*index])
    }

    fn of_family(&self, family: &Family) -> Vec<&Arc<Pool<P>>> {
        let indices = self.families.get(family).into_iter().flatten();
        indices.map(|index| &self.all[*index]).collect()
    }

    fn add(&mut self, pool: Arc<Pool<P>>) {
        let index = self.all.len();
        self.by_key.insert(pool.key.clone(), index);
        self.families.entry(family_of(&pool.key)).or_default().push(index);
        // Its number is the highest so far.
        self.in_service.push(Arc::clone(&pool));
        self.all.push(pool);
    }

    /// Takes unused ones out of service, if there are many.
    fn tidy(&mut self) {
        if self.in_service.len() >= self.many {
            self.in_service.retain(|pool| !pool.leave_service());
            self.many = FEW.max(2 * self.in_service.len());
        }
    }

    fn put_into_service(&mut self, pool: &Pool<P>) {
        if pool.enter_service() {
            let place = self.in_service.partition_point(|other| other.id < pool.id);
            self.in_service.insert(place, pool.shared());
        }
    }
}

fn family_of(key: &PoolKey) -> Family {
    (key.priority, key.helping.then(|| key.allowed.clone()))
}

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// The pools with these keys; missing ones are made. All at once: a queue may have one for each of many CPUs, and each list of those
    /// that help each other is made once.
    pub(crate) fn pools_of(&self, keys: &[PoolKey]) -> Vec<Arc<Pool<P>>> {
        let mut pools = self.pools.lock();
        pools.tidy();
        // The families that grow, and how many pools each had before.
        let mut grown: Vec<(Family, usize)> = Vec::new();
        let chosen = keys.iter().map(|key| {
            if let Some(pool) = pools.find(key) {
                return Arc::clone(pool);
            }
            let family = family_of(key);
            // A pool that does not help changes nothing for the others, of which there may be thousands.
            if key.helping && !grown.iter().any(|(grown, _)| *grown == family) {
                let known = pools.families.get(&family).map_or(0, Vec::len);
                grown.push((family, known));
            }
            let pool = self.make_pool(key);
            pools.add(Arc::clone(&pool));
            pool
        });
        let chosen = chosen.collect();
        for (family, known) in grown {
            self.name_siblings(&pools.of_family(&family), known);
        }
        chosen
    }

    /// As when there are many; returns whether it has left.
    #[cfg(test)]
    pub(crate) fn take_out_of_service(&self, pool: &Pool<P>) -> bool {
        let mut pools = self.pools.lock();
        let before = pools.in_service.len();
        pools.in_service.retain(|other| other.id != pool.id || !other.leave_service());
        pools.in_service.len() != before
    }

    #[cfg(test)]
    pub(crate) fn pool(&self, key: &PoolKey) -> Arc<Pool<P>> {
        self.pools_of(std::slice::from_ref(key)).remove(0)
    }

    fn make_pool(&self, key: &PoolKey) -> Arc<Pool<P>> {
        let id = PoolId(self.next_pool.fetch_add(1, Ordering::Relaxed));
        let cores: BTreeSet<_> = {
            let topology = &self.machine_config().topology;
            key.pod.iter().filter_map(|cpu| topology.core_index(cpu)).collect()
        };
        self.serve_priority(&key.priority);
        let concurrency = self.concurrency(&key.priority);
        let node = self.node_of_pod(&key.pod);
        crate::base::shared::exposed(Pool::new(
            id,
            key.clone(),
            cores.len(),
            node,
            concurrency,
            &raw const self.services,
        ))
    }

    /// The number of the node that a pod lies in.
    fn node_of_pod(&self, pod: &CpuSet) -> Option<u32> {
        let node = self.services.homes.map.node_of(pod.first()?)?;
        pod.iter().all(|cpu| self.services.homes.map.node_of(cpu) == Some(node)).then_some(node)
    }

    /// Gives every pool of a family the list of pools it helps, nearest first, if the pools from `known` on change that.
    fn name_siblings(&self, pools: &[&Arc<Pool<P>>], known: usize) {
        let new = &pools[known..];
        let topology = &self.machine_config().topology;
        let mut kept = self.siblings.lock();
        for (own, pool) in pools.iter().enumerate() {
            if own < known && !new.iter().any(|new| new.may_be_helped_by(&pool.key)) {
                continue;
            }
            let here = pool.key.pod.first().unwrap_or(0);
            let mut list: Vec<_> = pools
                .iter()
                .enumerate()
                .filter(|(_, other)| other.may_be_helped_by(&pool.key))
                .collect();
            // Among equally near pools, each pool begins with the next one, so that helpers spread.
            list.sort_by_key(|(index, other)| {
                let there = other.key.pod.first().unwrap_or(0);
                (topology.cpu_distance(here, there), (index + pools.len() - own) % pools.len())
            });
            pool.set_siblings(
                kept.add::<P>(list.into_iter().map(|(_, pool)| Arc::as_ptr(pool)).collect()),
            );
        }
    }

    fn concurrency(&self, priority: &Priority) -> Arc<ConcurrencyLimit<P>> {
        let Priority { nice, idle, slice: _ } = *priority;
        let mut concurrency_limits = self.concurrency_limits.lock();
        if let Some(concurrency) = concurrency_limits
            .iter()
            .find(|concurrency| (concurrency.nice, concurrency.idle) == (nice, idle))
        {
            return Arc::clone(concurrency);
        }
        let concurrency =
            Arc::new(ConcurrencyLimit::new(nice, idle, self.machine_config().parallelism()));
        concurrency_limits.push(Arc::clone(&concurrency));
        concurrency
    }

    /// The pools in service, by their numbers.
    pub(crate) fn pools_in_service(&self) -> Vec<Arc<Pool<P>>> {
        self.pools.lock().in_service.clone()
    }

    /// Work has come to the pool, or a user.
    #[cold]
    pub(crate) fn put_into_service(&self, pool: &Pool<P>) {
        self.pools.lock().put_into_service(pool);
    }
}
