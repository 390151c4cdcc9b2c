//! The fault soak: random programs over the real runtime, on simulated machines on which things go wrong, by seed.
//!
//! A seed stands for a machine, a program (`plan`, drawn by `draw`, printed by `words`), faults and a schedule. `program`, `steps`, `items`,
//! `futures` and `forks` carry it out; `ledger`, `limits` and `placement` are the model that it is checked against; `verdict` runs and
//! judges one seed, `many` many of them. A seed fails the same way each time: `nearq sim soak --seed N --trace` shows how.

// The soak itself is a Linux program; what it runs is simulated.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod dice;
mod draw;
mod forks;
mod futures;
mod items;
mod ledger;
mod limits;
mod many;
mod placement;
mod plan;
mod program;
mod steps;
mod verdict;
mod words;

pub use many::{ManyOptions, QUICK_SEEDS, Summary, run_many};
pub use plan::Plan;
pub use verdict::{SeedOptions, Verdict, run_seed};
