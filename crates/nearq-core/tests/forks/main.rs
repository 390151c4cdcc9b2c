//! Tests that fork. Each takes [`common::alone`] first: some wait for any child of the process, so none may start a command
//! beside them.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]
#![cfg(not(any(miri, tsan)))]

#[path = "../common/mod.rs"]
mod common;

mod forks;
mod forks_from_within;
mod forks_of_items;
