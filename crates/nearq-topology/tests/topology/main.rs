//! Machines and limits as they are read from files and descriptions, and how they are shown.

mod common;

mod degradations;
mod limits;
mod machines;
mod properties;
mod render;
mod sysfs;
mod unread;
