//! The pools of a runtime and their levels: made on first use, and told of each other.

use std::collections::BTreeSet;
use std::sync::Arc;

use nearq_platform::{AtomicInt, Ordering, Platform};
use nearq_topology::CpuSet;

use super::Inner;
use crate::attributes::PoolKey;
use crate::broken::Broken;
use crate::level::Level;
use crate::pool::Pool;
use crate::priority::Priority;

impl<P: Platform> Inner<P> {
    /// The pools with these keys; made where there is none. All at once: a queue may have one for each of many CPUs, and each list of those
    /// that help each other is made once.
    pub(crate) fn pools_of(&self, keys: &[PoolKey]) -> Vec<Arc<Pool<P>>> {
        let mut pools = self.pools.lock();
        let known = pools.len();
        let chosen = keys.iter().map(|key| {
            let found = pools.iter().find(|pool| pool.key == *key).map(Arc::clone);
            found.unwrap_or_else(|| self.add_pool(&mut pools, key))
        });
        let chosen = chosen.collect();
        self.name_siblings(&pools, known);
        chosen
    }

    #[cfg(test)]
    pub(crate) fn pool(&self, key: &PoolKey) -> Arc<Pool<P>> {
        self.pools_of(std::slice::from_ref(key)).remove(0)
    }

    fn add_pool(&self, pools: &mut Vec<Arc<Pool<P>>>, key: &PoolKey) -> Arc<Pool<P>> {
        let id = self.next_pool.fetch_add(1, Ordering::Relaxed);
        let cores: BTreeSet<_> = {
            let topology = &self.surroundings().topology;
            key.pod.iter().filter_map(|cpu| topology.core_of(cpu)).collect()
        };
        self.serve_priority(&key.priority);
        let level = self.level(&key.priority);
        let node = self.node_of_pod(&key.pod);
        let pool = Arc::new(Pool::new(id, key.clone(), cores.len(), node, level, self));
        pools.push(Arc::clone(&pool));
        pool
    }

    /// The number of the node that a pod lies in.
    fn node_of_pod(&self, pod: &CpuSet) -> Option<u32> {
        let node = self.homes.map.node_of(pod.first()?)?;
        pod.iter().all(|cpu| self.homes.map.node_of(cpu) == Some(node)).then_some(node)
    }

    /// Has the queues follow whether items may have homes.
    pub(crate) fn mark_links(&self) {
        for queue in self.live_queues() {
            queue.observe_links(&queue.lock_config());
        }
    }

    /// Tells every pool which pools it helps, nearest first, where that changes by the pools from `known` on.
    fn name_siblings(&self, pools: &[Arc<Pool<P>>], known: usize) {
        let new = &pools[known..];
        // One that does not help changes nothing for the others.
        if !new.iter().any(|pool| pool.key.helping || self.broken.is(Broken::StrictLeak)) {
            return;
        }
        let topology = &self.surroundings().topology;
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
            // Among the equally near, each pool begins with the next one, so that helpers spread.
            list.sort_by_key(|(index, other)| {
                let there = other.key.pod.first().unwrap_or(0);
                (topology.cpu_distance(here, there), (index + pools.len() - own) % pools.len())
            });
            pool.set_siblings(
                kept.add::<P>(list.into_iter().map(|(_, pool)| Arc::as_ptr(pool)).collect()),
            );
        }
    }

    fn level(&self, priority: &Priority) -> Arc<Level<P>> {
        let Priority { nice, idle, slice: _ } = *priority;
        let mut levels = self.levels.lock();
        if let Some(level) = levels.iter().find(|level| (level.nice, level.idle) == (nice, idle)) {
            return Arc::clone(level);
        }
        let level = Arc::new(Level::new(nice, idle, self.surroundings().parallelism()));
        levels.push(Arc::clone(&level));
        level
    }

    /// The pools, for the monitor.
    pub(crate) fn all_pools(&self) -> Vec<Arc<Pool<P>>> {
        self.pools.lock().clone()
    }
}
