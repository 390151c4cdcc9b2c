//! Whole experiments on simulated machines.

mod dispatch;
mod machines;
mod sensitivity;

/// As in the command: a simulated run is repeatable with it.
#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;
