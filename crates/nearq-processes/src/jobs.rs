//! Jobs: one command for each of many inputs, a limited number at a time, each at home on a node. The engine of
//! `nearq run`.
//!
//! The engine starts jobs, waits for them and keeps accounts. It has nothing to do with terminals: code that shows something implements
//! [`Audience`].
//!
//! ```text
//! Source ─► Template ─► Placement ─► Spawner (in nearq-platform) ─► Running ─► Report ─► Audience
//! (Inputs: lists,  words     a home       placed before its          ├─► Printer: output, each job's together
//!  a pipe)                               first instruction          └─► Source: done, failed, still alive
//! ```
//!
//! | file | holds |
//! |---|---|
//! | `engine`, `engine/start`, `engine/ends` | the loop: starts, waits in one `poll`, handles ends |
//! | `source` | what the engine knows of the place where jobs come from |
//! | `input`, `argument_space` | inputs, and how many fit in a command |
//! | `template`, `text`, `shell`, `quote`, `find` | what is run: placeholders, lines for a shell, quoting, `PATH` |
//! | `placement`, `preview` | homes; what would run where |
//! | `running`, `report`, `tree` | one job: its process group, what it used, what it left behind |
//! | `output`, `output/writer` | outputs, kept together in bounded memory, and printed |
//! | `results` | the files in which each job's output is stored |
//! | `joblog` | what the job log of an earlier run says |
//! | `timeout` | how long a job may run |
//! | `halt` | failures, and what they end |
//! | `signals`, `orphan_reaper` | nothing outlives the engine |

mod argument_space;
mod engine;
mod find;
mod halt;
mod input;
mod joblog;
mod orphan_reaper;
mod output;
mod placement;
mod preview;
mod quote;
mod report;
mod results;
mod running;
mod shell;
mod signals;
mod source;
mod template;
mod text;
mod timeout;
mod tree;

pub use argument_space::{ArgumentSpace, longest};
pub use engine::{Audience, Error, Plan, run};
pub use find::{NoProgram, find};
pub use halt::{End, Halt, exit_status};
pub use input::{Each, Group, Inputs, Separator};
pub use joblog::{Again, BadLog, Earlier, lock};
pub use orphan_reaper::VARIABLE;
pub use output::{Around, Order};
pub use placement::{Homes, Slot};
pub use preview::preview;
pub use quote::{quote, quoted};
pub use report::{Counts, Outcome, Report, most};
pub use results::Results;
pub use signals::is_asked_to_end;
pub use source::{Job, Needs, Source};
pub use template::{BadCommand, Template, foreign_placeholder};
pub use text::Text;
pub use timeout::Timeout;

pub use crate::system::die_by;
