//! Tests that fork. Each test takes [`common::alone`] first: some tests wait for any child of the process, so no other test may start a
//! command meanwhile.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]
#![cfg(not(any(miri, tsan)))]

#[path = "../common/mod.rs"]
mod common;

mod forks;
mod forks_from_within;
mod forks_of_items;
