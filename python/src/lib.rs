//! The compiled part of the Python package `nearq`. The package's Python files are in `python/nearq`; they are the interface, and call what
//! is here.
//!
//! | file | holds |
//! |---|---|
//! | `runtime` | the process-wide runtime, and how its workers enter the interpreter |
//! | `queue` | the queue of an executor |
//! | `names` | the names under which calls are shown |
//! | `topology` | what the machine consists of |
//! | `at_home` | a home for the calling thread |
//! | `homes` | homes for the processes of a pool |
//! | `errors` | nearq's errors as exceptions |
//!
//! # The rules
//! * A thread that waits for the interpreter holds no lock of nearq or of this crate. So a thread that holds the interpreter may take any
//!   of them.
//! * A lock of this crate is held for a few instructions, by threads that hold the interpreter; no Python code runs meanwhile, not even
//!   a destructor. So no other thread holds one when a process forks: a fork waits for the interpreter, or, without a global lock, for
//!   all threads to leave it.
//! * A call that may wait releases the interpreter first, and holds no lock of this crate then.
//! * After the interpreter has begun to end, no worker enters it: see `runtime`.

// This crate is for Linux programs, and its locks are as described above.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]

mod at_home;
mod errors;
mod homes;
mod names;
mod queue;
mod runtime;
mod topology;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks; a panic under the lock has left nothing half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The compiled part of the package `nearq`; import `nearq` instead.
#[pyo3::pymodule(gil_used = false)]
mod _nearq {
    #[pymodule_export]
    use crate::at_home::{enter_home, leave_home};
    #[pymodule_export]
    use crate::homes::HomeTable;
    #[pymodule_export]
    use crate::queue::Queue;
    #[pymodule_export]
    use crate::runtime::{after_fork_in_child, close};
    #[pymodule_export]
    use crate::topology::{cpus, nodes, nodes_near, pods, scopes};
}
