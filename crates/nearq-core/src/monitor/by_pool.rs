//! What the monitor remembers of each pool in service.

use std::sync::Arc;

use nearq_platform::Platform;

use crate::base::ids::PoolId;
use crate::pool::Pool;

/// A value for each pool of a list, in the list's order. Pools enter and leave service: `align` makes the values follow.
pub(crate) struct ByPool<T> {
    ids: Vec<PoolId>,
    values: Vec<T>,
}

impl<T: Default> ByPool<T> {
    pub(crate) fn new() -> Self {
        ByPool { ids: Vec::new(), values: Vec::new() }
    }

    /// Gives each of these pools its value: its previous one, or a new one. The pools are in the order of their numbers.
    pub(crate) fn align<P: Platform>(&mut self, pools: &[Arc<Pool<P>>]) -> &mut [T] {
        let ids = pools.iter().map(|pool| pool.id);
        if !ids.clone().eq(self.ids.iter().copied()) {
            let known = core::mem::take(&mut self.ids);
            let mut known = known.into_iter().zip(core::mem::take(&mut self.values)).peekable();
            for id in ids {
                while known.next_if(|(old, _)| *old < id).is_some() {}
                let value = known.next_if(|(old, _)| *old == id).map(|(_, value)| value);
                self.ids.push(id);
                self.values.push(value.unwrap_or_default());
            }
        }
        &mut self.values
    }

    /// The values of the pools that were last given.
    pub(crate) fn values(&mut self) -> &mut [T] {
        &mut self.values
    }
}

/// The index of the pool among these pools, which are in the order of their numbers.
pub(crate) fn place_of<P: Platform>(pools: &[Arc<Pool<P>>], pool: &Pool<P>) -> Option<usize> {
    pools.binary_search_by_key(&pool.id, |other| other.id).ok()
}
