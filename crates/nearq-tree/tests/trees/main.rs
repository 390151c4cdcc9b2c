//! Trees of real processes on two pretended homes.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
#![cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]

mod common;

mod kills;
mod terminal;
mod tree;
