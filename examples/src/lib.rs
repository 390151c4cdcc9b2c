//! What each program and its counterpart share: what they work on, not how they run it.

pub mod delivery;
mod digest;
mod files;
#[cfg(doctest)]
mod pages;
pub mod service;

pub use files::{Tree, hash};
