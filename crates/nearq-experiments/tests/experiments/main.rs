//! Whole experiments on simulated machines.

mod dispatch;
mod machines;
mod sensitivity;

/// As in the command: it makes a simulated run repeatable.
#[global_allocator]
static ALLOCATOR: nearq_sim::Switched = nearq_sim::Switched;
