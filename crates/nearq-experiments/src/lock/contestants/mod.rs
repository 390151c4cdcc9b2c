//! The locks that take part: ours, those of other libraries, and those of the kernel and of its mailing list.
//!
//! The kernel's locks are algorithms of their own here, written for this comparison after their public descriptions. They spin, as in the
//! kernel, where nothing preempts a thread that holds or waits for one. So a writer is what a CPU is there: each lock has a record of each
//! writer of the run ([`roster`]).
//!
//! ```text
//! list ─► qspinlock ─► roster      osq ─► cohort, trigger, roster
//!      ─► cna ─► qspinlock        hq ─► qspinlock, cohort, trigger
//! ```

mod cna;
mod cohort;
mod hq;
mod list;
mod osq;
mod qspinlock;
mod roster;
mod trigger;

pub use list::*;
pub(crate) use qspinlock::QSpinLock;
pub use roster::Roster;
pub(super) use roster::{DEPTH, Site};

#[cfg(test)]
mod tests;
