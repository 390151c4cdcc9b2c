//! Homes of the processes of a tree (`nearq run --tree`): the table that they share, what a member of the tree does with it, and
//! `libnearq_tree.so`, the library with which each program that is executed chooses its home node. It has no stability of its own: it is
//! part of the command `nearq`.
//!
//! The crate is compiled twice: as a usual crate, for the process that keeps the table (`nearq_processes::tree` has the protocol), and by the
//! build script as the library (`cfg(preloaded)`), whose bytes are [`LIBRARY`].
//!
//! | file | holds |
//! |---|---|
//! | `layout` | the table's layout, and how an entry is packed into a word |
//! | `view` | the table as a slice of words, for nearq and members alike |
//! | `member` | what a member does: takes a home, gives it back |
//! | `variable` | the variable `NEARQ_TREE`: what a member knows and passes on |
//! | `least_loaded` | which home is chosen: the same file as in `nearq-home` |
//! | `arrive` | the start and the end of a program: what the library does |
//! | `environment` | the program's variables, before the C library may be called |
//! | `home_hint` | the home, told to the scheduler of the machine |
//! | `system`, `kernel` | system calls, and their numbers |
//!
//! # The library
//! The loader calls `begin` before the program's `main`, when its memory is not yet touched. `begin` finds the table that the tree shares,
//! takes the least loaded home, and makes the program run on its CPUs and get memory from its node. When the program exits, the home is
//! given back. The library relies on the following:
//! - **Nothing is allocated, nothing panics; no thread, no thread-local value.** `errno` is preserved. Mappings are never removed: the
//!   pages of the table that were used. (Choosing at fork allocates once: the C library keeps a list of fork handlers.)
//! - **The loader is that of glibc**, which gives constructors the arguments and the environment of the program.
//! - Programs that run with more rights than their caller are left alone: the loader does not load us there, and if the program
//!   itself names us we do nothing.
//! - In containers and other namespaces of processes, where `/proc` does not show the process that keeps the table, nothing
//!   happens.

#![cfg_attr(preloaded, no_std)]
#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a library for Linux programs, between them and the C library"
)]
// What each of the two forms of this crate uses is not all that the other uses.
#![cfg_attr(preloaded, allow(dead_code))]

pub mod layout;
pub mod member;
pub mod variable;
pub mod view;

#[allow(unreachable_pub, reason = "it is public in nearq-home, whose file this is")]
mod least_loaded;
#[cfg(any(preloaded, has_library))]
#[cfg_attr(not(preloaded), allow(dead_code, reason = "the loader calls it, in the library"))]
mod library;

/// The bytes of `libnearq_tree.so`, which programs of glibc can be loaded with. `None` if it could not be built for this processor.
#[cfg(all(not(preloaded), has_library))]
pub static LIBRARY: Option<&[u8]> =
    Some(include_bytes!(concat!(env!("OUT_DIR"), "/libnearq_tree.so")));
/// The bytes of `libnearq_tree.so`, which programs of glibc can be loaded with. `None` if it could not be built for this processor.
#[cfg(all(not(preloaded), not(has_library)))]
pub static LIBRARY: Option<&[u8]> = None;
