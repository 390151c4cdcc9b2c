//! The policy of the scheduler, compiled for user space: single decisions, properties of many, the simulated machine under it, and what
//! `nearq-home` decides alike.

mod common;

mod agreement;
mod decisions;
mod homes;
mod properties;
mod simulated;
mod stealing;
