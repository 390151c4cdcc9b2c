//! `libnearq_tree.so`: each program that is executed under `nearq run --tree` chooses its home node.
//!
//! The loader calls `begin` before the program's `main`, when its memory is not yet touched. `begin` finds the table that the tree shares
//! (`nearq_processes::tree` has its protocol), takes the least loaded home, and makes the program run on its CPUs and get memory from its
//! node. When the program exits, the home is given back.
//!
//! The library relies on the following:
//! - **Nothing is allocated, nothing panics; no thread, no thread-local value.** `errno` is preserved. Mappings are never removed: the
//!   pages of the table that were used. (Choosing at fork allocates once: the C library keeps a list of fork handlers.)
//! - **The loader is that of glibc**, which gives constructors the arguments and the environment of the program.
//! - Programs that run with more rights than their caller are left alone: the loader does not load us there, and if the program
//!   itself names us we do nothing.
//! - In containers and other namespaces of processes, where `/proc` does not show the process that keeps the table, nothing
//!   happens.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a library for Linux programs, between them and the C library"
)]
#![cfg_attr(test, allow(dead_code, reason = "the loader calls it, and no test is to have a home"))]
#![cfg(all(target_os = "linux", target_env = "gnu", target_pointer_width = "64"))]

mod arrive;
mod environment;
#[cfg(not(test))]
mod no_allocator;
mod system;

use core::ffi::{c_char, c_int};

use nearq_platform::{Linux, SavedErrno};

/// Nothing is allocated, and nothing of the standard library's allocator is linked for it.
#[cfg(not(test))]
#[global_allocator]
static NO_ALLOCATOR: no_allocator::NoAllocator = no_allocator::NoAllocator;

type Begin = extern "C" fn(c_int, *mut *mut c_char, *mut *mut c_char);

#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static BEGIN: Begin = begin;

#[cfg_attr(not(test), used)]
#[cfg_attr(not(test), unsafe(link_section = ".fini_array"))]
static END: extern "C" fn() = end;

/// Called before the program's `main`.
extern "C" fn begin(_count: c_int, _arguments: *mut *mut c_char, variables: *mut *mut c_char) {
    if variables.is_null() || Linux::has_more_rights() {
        return;
    }
    let _saved = SavedErrno::new();
    // SAFETY: the loader's list, which ends in a null pointer; no other thread runs yet that could change it.
    let environment = unsafe { environment::Environment::of(variables) };
    arrive::arrive(environment);
}

/// Called when the program exits.
extern "C" fn end() {
    let _saved = SavedErrno::new();
    arrive::leave();
}
