//! The policy of the scheduler, compiled for user space: single decisions, properties of many, and the simulated machine under it.

mod common;

mod decisions;
mod properties;
mod simulated;
