//! A simulated machine: a [`Platform`](nearq_platform::Platform) with virtual time and as many CPUs as wanted.
//!
//! Code that is written against the platform runs here unchanged: its threads are coroutines on one real thread, its clock is virtual, its
//! atomics cost the time of moving the cache line between the CPUs that touch it, and a simulated kernel decides where each thread runs. A
//! run is a function of the machine, the program and the seed: the same three give the same trace, line by line. [`Simulation`] sets a
//! machine up and runs a program; [`Outcome`] describes the result, deadlocks and panics included.
//!
//! # Rules for the program
//! - It blocks and spins only through the platform. A loop without any platform call stops the machine, because virtual time stands still
//!   during the loop. Work is declared: [`compute`].
//! - It is switched only inside platform calls, so plain memory needs no care beyond what real threads need.
//! - A destructor that runs while a panic unwinds must not wait: the process is aborted if it does.
//! - `std::thread_local!` is shared by all simulated threads; the platform has a slot for each.
//! - Hash maps with random keys, addresses and the real clock must not decide anything. For traces that agree
//!   between processes, set [`LineAligned`] as the global allocator.
//!
//! # Memory
//! Atomics cost the transfer of their line between the CPUs that touch it. Other memory costs nothing by itself: a
//! program declares what it reads and writes, [`Sim::read`] and [`Sim::write`]. Such accesses are followed through caches
//! of limited size to the node where each page lives, over paths with shared bandwidth. Where a page lives is decided by
//! the thread that touches it first, by memory policies and by moving it, as on Linux; `residency` returns it. Many
//! accesses are declared as a whole: at random places ([`Sim::scatter`]), or in order again and again ([`Sim::sweep`]).
//! Nodes do not fill up, and huge pages, prefetching across pages and the replacement of single lines are not simulated.
//!
//! # Processes
//! [`Sim::fork`] starts a process and [`Sim::exec`] gives it another program; [`Sim::process`] reports its threads and where its pages
//! live. Processes share all memory: they exist for the scheduler, and are no protection boundary. [`Sim::cpu_statistics`] and
//! [`Sim::thread_statistics`] say which threads ran and which waited, for code that supervises others.
//!
//! # CPUs and the kernel
//! Declared work takes longer on a slow CPU, and while another CPU of the core is busy. [`Fair`] distributes CPU time as Linux does, so
//! that work waits and finds idle CPUs as it does on Linux; another [`Scheduler`] can be tried in its place. CPU quotas are enforced, CPUs
//! go offline and come back ([`Sim::set_online`], [`Sim::set_limits`]).
//!
//! # Looking for bugs
//! [`Faults`] make the machine misbehave, and a [`Schedule`] can search for interleavings instead of being fair. A seed
//! that fails is a replay.
//!
//! # What is left out
//! [`Fair`] lists what Linux's scheduler has and the simulated one does not. The single costs of platform calls are the
//! same on fast and slow CPUs, and whether the other CPUs of a core are busy or not.
//!
//! This crate contains nothing about queues and locks.

mod alloc;
mod atomic;
mod context;
mod costs;
mod cpu;
mod disturb;
mod events;
mod faults;
mod hardware;
mod hotplug;
mod injection;
mod kept;
mod machine;
mod machines;
mod memory;
mod noise;
mod outcome;
mod platform;
mod priorities;
mod process;
mod quota;
mod rng;
mod running;
mod sched;
mod simulation;
mod source;
mod statistics;
pub mod switched;
mod thread;
mod trace;
mod world;

pub use alloc::LineAligned;
pub use atomic::{AtomicPtr, AtomicU32, AtomicU64, fetch_ahead};
pub use costs::Costs;
pub use faults::{FaultCounts, Faults};
pub use machine::{MOST_CPUS, Machine, MachineError};
pub use machines::calibration::{Calibration, Measurement, Noise};
pub use outcome::{Activity, Ending, Outcome, Panicked, Progressed, Unfinished};
pub use platform::{Sim, compute};
pub use process::{Process, ProcessInfo};
pub use sched::{Fair, Kernel, O1, Reason, Scheduler};
pub use simulation::{Schedule, Simulation};
pub use source::{Origin, Source};
pub use statistics::{CpuStatistics, ThreadStatistics};
pub use switched::Switched;
pub use thread::{JoinHandle, Thread};
pub use trace::TraceLevel;
