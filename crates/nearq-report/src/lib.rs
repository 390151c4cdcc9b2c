//! Measurements of a machine: which machine, real or simulated, how far the measurement is, and its result, a [`Report`]:
//! numbers in one JSON shape, tables in plain text, and a picture.
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

// It reads /proc and writes files: code for Linux programs, not for the runtime.
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
pub use summary::Summary;
pub use table::{Table, plus_minus, rounded};
