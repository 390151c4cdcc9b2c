//! What each program and its counterpart share: what they work on, not how they run it.

pub mod delivery;
mod digest;
mod files;
pub mod service;

pub use files::{Tree, hash};

/// The examples of the page for users of tokio are compiled and run with those of the documentation.
#[cfg(doctest)]
#[doc = include_str!("../../docs/tokio.md")]
struct Tokio;
