//! Measurements of a machine, real or simulated: the choice of the machine, the progress of the measurement, and its result, a [`Report`],
//! with numbers in one JSON shape, tables in plain text, and a picture.
//!
//! | file | has |
//! |---|---|
//! | `machine` | the machine that `--on` names, real or simulated |
//! | `report`, `metric` | the result: rows of metrics, each over several runs |
//! | `summary` | several runs of a number in five |
//! | `environment` | the conditions of a run: kernel, CPU, load, steal |
//! | `usage` | the CPU time of this process |
//! | `table` | tables in plain text |
//! | `drawing` | a machine as text and as a picture |
//! | `output` | the files that a report is written to |
//! | `progress` | the progress bar |
//! | `error` | why there is no result, and the exit status |

// This crate reads /proc and writes files: it is for Linux programs, not for the runtime.
#![allow(clippy::disallowed_types, clippy::disallowed_methods)]
// An `Error` says in one line what was wrong; a section for each function would repeat that it can be returned.
#![allow(clippy::missing_errors_doc)]

pub mod drawing;
mod environment;
mod error;
mod machine;
pub mod metric;
mod output;
mod progress;
mod report;
mod summary;
mod table;
pub mod usage;

pub use environment::{Environment, Watch};
pub use error::Error;
pub use machine::{HERE, Machine};
pub use output::{Outputs, Target};
pub use progress::Progress;
pub use report::{Collector, Report, Row, find};
pub use summary::{Summary, quantile};
pub use table::{Table, plus_minus, rounded};
