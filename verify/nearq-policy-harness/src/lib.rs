//! The node affine scheduler's policy in user space: the header of `nearq-scx-policy`, compiled unchanged. It is tested here, also against
//! the decisions of `nearq-home`, and it schedules the simulated machine in `nearq bench home --scheduler home`.
//!
//! All of it is behind the feature `policy`, which needs a C compiler and libclang to build.

#![warn(missing_docs)]

#[cfg(feature = "policy")]
mod policy;
#[cfg(feature = "policy")]
mod sim;

#[cfg(feature = "policy")]
pub use policy::{Event, Policy, Take, Tick};
#[cfg(feature = "policy")]
pub use sim::Home;
