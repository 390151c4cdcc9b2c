//! What a queue admits: its limit on active items, and where that is counted. Imports `base`, `layout`, `item` and `pool`.
//!
//! | file | what it holds |
//! |---|---|
//! | `pool_workqueue` | a queue on a pool: what has entered there, and what has ended |
//! | `node_active` | the limit of a domain: admitting, holding back, activating |
//! | `credits` | items that a pwq may admit without reading the limit |
//! | `inactive_queue`, `activation_item` | what is held back, as the activating worker has it; the item that asks a worker to activate |
//! | `statistics` | what readers see of the counts |
//! | `serving` | the limit that applies to the calling worker's own item |
//!
//! All but `credits` and `statistics` form a circle: they are one protocol, and read the count of what is held back. README.md in the folder lists the
//! races. The folder owns the lock `inactive_queue`; the words `ceiling`, `admitted`, `inactive` and `attention` of a domain, credits,
//! `held` and `watched` of a pwq, and the counters of its stripes.

pub(crate) mod activation_item;
pub(crate) mod credits;
pub(crate) mod inactive_queue;
pub(crate) mod node_active;
pub(crate) mod pool_workqueue;
pub(crate) mod serving;
pub(crate) mod statistics;
