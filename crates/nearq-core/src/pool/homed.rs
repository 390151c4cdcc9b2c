//! How many items with homes wait at a pool, and whether any worker may take them (`pool/homes`).

use nearq_platform::{Atomic, Platform};

/// Items with homes at a pool.
pub(super) struct Homed<P: Platform> {
    /// How many wait.
    pub(super) count: P::AtomicU32,
    /// 1: some items have waited for long. Written by the monitor.
    pub(super) open: P::AtomicU32,
}

impl<P: Platform> Homed<P> {
    pub(super) fn new() -> Self {
        Homed { count: P::AtomicU32::new(0), open: P::AtomicU32::new(0) }
    }

    pub(super) fn after_fork_in_child(&self) {
        crate::base::forked::set(&self.count, 0);
        crate::base::forked::set(&self.open, 0);
    }
}
