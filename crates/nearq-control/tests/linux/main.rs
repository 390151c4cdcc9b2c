//! The server and its clients, in this process and in other processes, which run this program again. No server of this process listens in a
//! place in which other processes would find it.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "tests are Linux programs")]

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod conversation;
mod corpus;
mod impostors;
mod process;
mod refused;
mod servers;
mod varlink;
