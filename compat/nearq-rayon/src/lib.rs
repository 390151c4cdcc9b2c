#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]
#![warn(missing_docs)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it runs on Linux only: rayon's pools have threads of the standard library"
)]

mod builder;
mod error;
mod masks;
mod plan;
mod pools;
mod process;

#[cfg(test)]
mod tests;

pub use builder::Builder;
pub use error::Error;
pub use nearq_topology::{AffinityScope, CpuSet};
pub use pools::{Pod, Pools, here, in_pod};
