//! Everything that is tested on simulated machines, in one process. A run is a function of its seed down to the addresses of its atomics,
//! so several runs may go on at the same time; the allocator gives each object cache lines of its own.

mod common;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;

mod bulk;
mod condvar;
mod cpus;
mod determinism;
mod faults;
mod lines;
mod lock;
mod lock_limits;
mod machine;
mod machines;
mod memory;
#[cfg(debug_assertions)]
mod misuse;
mod noise;
mod numa_lock;
mod o1;
mod osq;
mod preemption;
mod process;
mod rwlock;
mod scheduler;
mod schedules;
mod soak;
mod speed;

#[global_allocator]
static ALLOCATOR: nearq_sim::LineAligned = nearq_sim::LineAligned;
