//! Tests that run on simulated machines only. A run is a function of its seed, wherever the test runs: each object has its own cache lines,
//! and each thread has its own simulation.

mod common;
mod concurrency;
mod each_cpu;
mod fork_join;
mod freezing;
mod hooks;
mod isolated;
mod late;
mod limits;
mod near_device;
mod ordered;
mod per_cpu;
mod promises;
mod refused;
mod simulated;
mod simulated_crowd;
mod simulated_futures;
mod simulated_homes;
mod simulated_priorities;
mod simulated_rescue;
mod simulated_stalls;
mod thread_limit;
mod unused_pools;
mod wake_hints;

#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;
