//! A value under the kernel's queued spinlock, which is held with preemption off.
//!
//! The lock costs what it costs on the machine: its line moves to each thread that takes it, threads queue up and spin. Waiting threads have
//! a record for each CPU, as in the kernel: with preemption off, a CPU waits for one lock at a time, and each lock has records of its own.
//! The value itself is no part of the machine: reaching it costs nothing.

use crate::lock::{Exclusive as _, QSpinLock, Roster};
use nearq_platform::LockPlatform as _;
use nearq_sim::Sim;
use std::sync::{Mutex, MutexGuard};

/// A value under a lock.
pub(super) struct SpinLock<T> {
    lock: QSpinLock<Sim>,
    value: Mutex<T>,
}

/// The value of a lock that the caller holds.
pub(super) struct Held<'l, T>(&'l Mutex<T>);

impl<T> SpinLock<T> {
    /// A lock that is not held, for CPUs with numbers below `cpus`.
    pub(super) fn new(value: T, cpus: usize) -> Self {
        Self { lock: QSpinLock::free(&Roster::of_cpus(cpus)), value: Mutex::new(value) }
    }

    /// Does something under the lock; `what` may call the platform, but must not wait.
    pub(super) fn hold<R>(&self, what: impl FnOnce(&Held<'_, T>) -> R) -> R {
        Sim::without_preemption(|| self.lock.with(Sim::current_cpu(), || what(&Held(&self.value))))
    }

    /// Changes the value under the lock; `what` must not call the platform.
    pub(super) fn with<R>(&self, what: impl FnOnce(&mut T) -> R) -> R {
        self.hold(|held| what(&mut held.get()))
    }
}

impl<T> Held<'_, T> {
    /// The value. The caller must not call the platform until it has dropped this.
    pub(super) fn get(&self) -> MutexGuard<'_, T> {
        host(self.0)
    }
}

/// A lock of the host, never contended: a simulated machine is one thread, and no thread calls the platform while holding it.
pub(super) fn host<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.try_lock().expect("no thread calls the platform while holding it")
}
