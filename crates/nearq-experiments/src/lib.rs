//! The experiments of nearq: the questions of the documents that it grew out of, asked again on any machine, and
//! comparisons with other pools.
//!
//! Each experiment is a function that takes options and a [`Progress`] and returns a [`Report`](nearq_report::Report):
//! numbers in one JSON shape, tables beside the published figures, and a picture.

// The experiments and the pools they compare with are Linux programs: they measure real threads and real time.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
// An `Error` says in one line what was wrong; a section for each function would repeat that it can be returned.
#![allow(clippy::missing_errors_doc)]

pub mod blocking;
pub mod calibrate;
mod declared_memory;
pub mod dispatch;
pub mod harness;
pub mod highpri;
pub mod home;
pub mod join;
mod kernel_queue;
pub mod lines;
pub mod lock;
pub mod mailbox;
pub mod numa;
pub mod payload;
pub mod peers;
pub mod plots;
mod redraw;
pub mod rwlock;
pub mod scopes;
pub mod sensitivity;
pub mod store;
pub mod validation;

pub use blocking::{BlockingOptions, blocking};
pub use calibrate::{CalibrateOptions, Calibrated, calibrate};
pub use declared_memory::DeclaredMemory;
pub use dispatch::DispatchOptions;
pub use harness::{Common, Experiment, run};
pub use highpri::HighpriOptions;
pub use home::HomeOptions;
pub use join::JoinOptions;
pub use lines::{LinesOptions, lines};
pub use lock::{LockOptions, lock};
pub use numa::NumaOptions;
pub use redraw::redraw;
pub use rwlock::RwlockOptions;
pub use scopes::ScopesOptions;
pub use sensitivity::{SensitivityOptions, sensitivity};
pub use validation::{Comparison, beside};

use nearq_report::{Error, HERE, Machine, Progress};

#[cfg(test)]
mod tests;
#[cfg(test)]
#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;
