//! What a queue lets in: its limit on active items, and where that is counted. Imports `base`, `layout`, `item` and `pool`.
//!
//! | file | what it holds |
//! |---|---|
//! | `link` | a queue on a pool: what has come there, and what has ended |
//! | `admission` | the limit of a domain: letting in, holding back, activating |
//! | `credits` | items that a link may let in without a look at the limit |
//! | `turn`, `activation_item` | what is held back, with the worker that activates; the item that asks a worker for that |
//! | `serving` | the limit under which the calling worker's own item is |
//!
//! All but `credits` are a circle: they are one protocol, and read the count of what is held back. README.md in the folder lists the races. Its own: the lock `turn`; the words `ceiling`, `admitted`, `inactive` and `attention` of a domain, credits, `held` and `watched`
//! of a link, and the counters of its stripes.

pub(crate) mod activation_item;
pub(crate) mod admission;
pub(crate) mod credits;
pub(crate) mod link;
pub(crate) mod serving;
pub(crate) mod turn;
