//! Machines and limits as they are read from files and descriptions, and how they are shown.

mod checked;
mod common;
#[path = "../skipped/mod.rs"]
mod skipped;

mod corpus;
mod degradations;
mod hostile;
mod limits;
mod machines;
mod properties;
mod render;
mod sysfs;
mod unread;
