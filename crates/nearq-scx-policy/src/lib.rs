//! What the node affine scheduler decides, and what user space knows of its state.
//!
//! The decisions are in one C header, `policy/policy.h`: the BPF program of `nearq-scx` is compiled from it, and so, with the feature
//! `harness`, is a library that is tested here and that schedules the simulated machine. The feature `layout` alone has the header's
//! structures (`layout`), for programs that share them with a kernel: it takes libclang to build, `harness` a C compiler as well.
//! Without a feature there is nothing here, so that the workspace is built with neither.

#![warn(missing_docs)]

#[cfg(feature = "layout")]
pub mod layout;
#[cfg(feature = "layout")]
mod machine;
#[cfg(feature = "harness")]
mod policy;
#[cfg(feature = "harness")]
mod sim;

#[cfg(feature = "layout")]
pub use machine::{TooLarge, describe};
#[cfg(feature = "harness")]
pub use policy::{Event, Policy, Take, Tick};
#[cfg(feature = "harness")]
pub use sim::Home;
