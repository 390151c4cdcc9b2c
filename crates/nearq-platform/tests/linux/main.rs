//! The platform on Linux, in one process. Forks concern the whole process, and are tested in a program beside this folder.

#[path = "../common/mod.rs"]
mod common;
#[cfg(not(miri))]
#[path = "../filter/mod.rs"]
mod filter;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

#[cfg(not(miri))]
mod costs;
#[cfg(not(miri))]
mod filtered;
#[cfg(not(miri))]
mod memory;
mod park;
#[cfg(not(miri))]
mod placement;
#[cfg(not(miri))]
mod scheduling;
#[cfg(not(miri))]
mod settings_and_warnings;
#[cfg(not(miri))]
mod threads;
#[cfg(not(miri))]
mod wait_and_wake;
