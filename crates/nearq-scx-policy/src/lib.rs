//! What the node affine scheduler decides, and what user space knows of its state.
//!
//! The decisions are in one C header, `policy/policy.h`: the BPF program of `nearq-scx` is compiled from it, and so, with the feature
//! `harness`, is a library that is tested here and that schedules the simulated machine. Without the feature there are no decisions
//! here and no C compiler is needed: only the header's structures ([`layout`]), for who fills and reads those of a kernel.

#![warn(missing_docs)]

pub mod layout;
mod machine;
#[cfg(feature = "harness")]
mod policy;
#[cfg(feature = "harness")]
mod sim;

pub use machine::{TooLarge, describe};
#[cfg(feature = "harness")]
pub use policy::{Event, Policy, Take, TakeWhich, Tick, Why};
#[cfg(feature = "harness")]
pub use sim::Home;
