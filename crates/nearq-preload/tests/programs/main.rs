//! Programs in C under the preload.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the tests run programs")]
#![cfg(not(miri))]

mod common;

mod control;
mod preload;
