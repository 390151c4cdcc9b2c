//! The decisions about home nodes: where a task belongs, which CPU may take it elsewhere, when it comes back, and when its home should
//! move.
//!
//! The idea is Erich Focht's (the node affine scheduler for Linux 2.5 and 2.6.0-test1, 2002 and 2003): each task has a home node, chosen
//! by load when it starts; a CPU that would be idle takes tasks from elsewhere, first those whose home is its own node; and tasks that had
//! to leave their home are attracted back.
//!
//! Everything here is a function of its arguments: no threads, no clocks, no system calls, and whole numbers only. So the same
//! decisions are made for items of a queue, for processes that only the kernel schedules, and on the simulated machine; and
//! each can be tested by itself. Measuring and acting are done elsewhere.
//!
//! A scheduler in the kernel makes some of these decisions too, in C: `policy.h` of `nearq-scx-policy`. It sees each wake-up and each idle
//! CPU, while the code here decides once per period, so they differ in part: `tests/policy/agreement.rs` of `nearq-policy-harness` says how
//! and why, and checks that the rest is the same.
//!
//! | file | decides |
//! |---|---|
//! | `nodes` | which places can be a home, and how far apart they are |
//! | `pick`, `least_loaded` | where something new is at home |
//! | `weights` | how much imbalance makes a task leave its home; all numbers that can be set |
//! | `soft_affinity` | which tasks are let out of their home now, and which come back: soft affinity, made of masks of CPUs |
//! | `home_migration` | whether the home itself should move, because the memory is elsewhere |
//!
//! Loads are in thousandths ("milli") of a task or of a CPU. Nodes are named by their index in [`Nodes`], distances are the
//! firmware's: 10 within a node, more between nodes.

mod home_migration;
mod least_loaded;
mod nodes;
mod pick;
mod soft_affinity;
mod weights;

pub use home_migration::{Evidence, HomeMigration, Verdict, VerdictReason};
pub use least_loaded::least_loaded;
pub use nodes::{Node, NodeError, Nodes};
pub use pick::{Load, pick};
pub use soft_affinity::{Action, NodeLoad, Seen, SoftAffinity, milli};
pub use weights::{Belongs, WeightError, Weights};
