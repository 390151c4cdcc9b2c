//! Whole experiments on simulated machines.

mod dispatch;
mod machines;
mod sensitivity;
mod soak;

/// As in the command: a simulated run is repeatable with it.
#[global_allocator]
static ALLOCATOR: nearq_experiments::Allocator = nearq_experiments::Allocator;
