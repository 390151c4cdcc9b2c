//! Machines and limits as they are read from files and descriptions.

mod auto_traits;
mod checked;
mod common;
mod descriptions;
#[path = "../skipped/mod.rs"]
mod skipped;

mod corpus;
mod degradations;
mod devices;
mod hostile;
mod limits;
mod machines;
mod properties;
mod sysfs;
mod unread;
