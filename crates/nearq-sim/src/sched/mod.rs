//! The simulated kernel's scheduler as a trait: which thread runs where, and for how long.
//!
//! The engine keeps the clocks, the events, the accounting of CPU time, the coroutines, the CPU quota and which CPUs
//! are online. A [`Scheduler`] keeps the runnable threads that have no CPU, and decides. Its hooks are those of a
//! loadable scheduler of Linux (`sched_ext`), so that a scheduler can be tried here before it is written for Linux; the
//! table at the trait maps one to the other. [`Fair`] is the default, modelled on Linux's own;
//! [`O1`] is that of Linux 2.6.0-test1.

mod disordered;
mod fair;
mod kernel;
mod o1;

use std::fmt::Debug;

pub(crate) use disordered::Disordered;
pub use fair::Fair;
pub use kernel::Kernel;
pub(crate) use kernel::Orders;
pub use o1::O1;

use crate::thread::Thread;

/// Why a thread needs a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// It slept and was woken, or the time of its sleep is over.
    Woken,
    /// It is new.
    New,
    /// It has replaced its program.
    Exec,
    /// It had to leave its CPU, which it may no longer use, or which went offline.
    Moved,
    /// It lost its CPU to another thread or at the end of its slice, and can still run. `select_cpu` is not called then: the thread waits
    /// for the CPU that it was on.
    Preempted,
}

/// A scheduler of the simulated kernel.
///
/// The hooks are called for a thread in this order: [`select_cpu`](Self::select_cpu), [`enqueue`](Self::enqueue),
/// [`dispatch`](Self::dispatch), which gives it to a CPU, [`running`](Self::running), [`stopping`](Self::stopping); then it sleeps, or is
/// enqueued again.
///
/// | here | `sched_ext` |
/// |---|---|
/// | `select_cpu`, `enqueue`, `dequeue`, `dispatch` | `ops.select_cpu`, `ops.enqueue`, `ops.dequeue`, `ops.dispatch` |
/// | `preempts` | `SCX_ENQ_PREEMPT`, or a kick with `SCX_KICK_PREEMPT` |
/// | `running`, `stopping`, `tick` | `ops.running`, `ops.stopping`, `ops.tick` |
/// | `slice_over` | a slice of 0 at the tick; here it ends to the nanosecond |
/// | `yield_now` | `ops.yield` |
/// | `balance` | the part of `ops.dispatch` that reads other queues |
/// | `update_idle` | `ops.update_idle` |
/// | `set_weight`, `set_cpumask` | `ops.set_weight`, `ops.set_cpumask` |
/// | `cpu_online`, `cpu_offline` | `ops.cpu_online`, `ops.cpu_offline` |
/// | `init_thread`, `exit_thread` | `ops.init_task`, `ops.exit_task` |
/// | [`Kernel::kick`], [`Kernel::preempt`] | `scx_bpf_kick_cpu` |
///
/// Each hook sees the machine through a [`Kernel`]. A run must stay a function of machine, program and seed: a scheduler must decide only
/// by what the hooks tell it. Its work costs no virtual time unless it calls [`Kernel::spend`].
pub trait Scheduler: Debug {
    /// Its name, for reports.
    fn name(&self) -> &str;

    /// The CPU for a thread that can run from now on: a CPU that is online and that the thread may use.
    fn select_cpu(&mut self, kernel: &mut Kernel<'_>, thread: Thread, reason: Reason) -> usize;

    /// A thread can run and waits from now on. `cpu` is what `select_cpu` returned, or the CPU that it lost. If that CPU is
    /// idle, it asks for a thread right after this; other idle CPUs do so only when they are kicked.
    fn enqueue(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, reason: Reason);

    /// A waiting thread stops waiting: it may now run elsewhere and will be enqueued again.
    fn dequeue(&mut self, kernel: &mut Kernel<'_>, thread: Thread);

    /// The next thread for a CPU that has none; from now on the thread no longer waits. It must be allowed to run on that CPU.
    fn dispatch(&mut self, kernel: &mut Kernel<'_>, cpu: usize) -> Option<Thread>;

    /// Whether a thread that was just enqueued for a busy CPU must interrupt the thread that runs on it.
    fn preempts(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool;

    /// A thread gets a CPU. Returns the nanoseconds until [`slice_over`](Self::slice_over), at least 1.
    fn running(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> u64;

    /// A thread loses its CPU. If it can still run, it is enqueued next.
    fn stopping(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize, runnable: bool);

    /// The slice of the thread on a CPU is over. Returns the next slice if the thread goes on, `None` if it must leave.
    fn slice_over(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> Option<u64> {
        let _ = (kernel, thread, cpu);
        None
    }

    /// The thread on a CPU offers the CPU to other threads. Returns whether another thread takes it.
    fn yield_now(&mut self, kernel: &mut Kernel<'_>, thread: Thread, cpu: usize) -> bool {
        let _ = (kernel, thread, cpu);
        true
    }

    /// Called every 4 ms while any CPU has a thread.
    fn tick(&mut self, kernel: &mut Kernel<'_>) {
        let _ = kernel;
    }

    /// A CPU has no thread, and `dispatch` returned none: the scheduler may search for a thread elsewhere, which takes time. `dispatch` is
    /// called again afterwards.
    fn balance(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        let _ = (kernel, cpu);
    }

    /// A CPU becomes idle, or stops being idle.
    fn update_idle(&mut self, kernel: &mut Kernel<'_>, cpu: usize, idle: bool) {
        let _ = (kernel, cpu, idle);
    }

    /// A thread's weight or slice has changed: see [`Kernel::weight`], [`Kernel::slice`].
    fn set_weight(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let _ = (kernel, thread);
    }

    /// A thread may run on other CPUs from now on: see [`Kernel::allowed`]. A waiting thread is dequeued and enqueued
    /// again right after this; a thread on a CPU that it may no longer use leaves it.
    fn set_cpumask(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let _ = (kernel, thread);
    }

    /// A CPU came online. It is idle, which is reported next, unless it still has the thread that it had when it went
    /// offline.
    fn cpu_online(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        let _ = (kernel, cpu);
    }

    /// A CPU went offline. The threads that wait for it are moved right after this.
    fn cpu_offline(&mut self, kernel: &mut Kernel<'_>, cpu: usize) {
        let _ = (kernel, cpu);
    }

    /// There is a new thread; it cannot run yet.
    fn init_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let _ = (kernel, thread);
    }

    /// A thread has ended; it is on no CPU and waits for none.
    fn exit_thread(&mut self, kernel: &mut Kernel<'_>, thread: Thread) {
        let _ = (kernel, thread);
    }
}
