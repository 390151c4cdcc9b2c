//! The mutex and the condition variable on real threads, in one process. Programs that fork, fill the memory or count allocations are next
//! to this directory.

mod auto_traits;
#[cfg(not(miri))]
mod condvar_notify_all;
#[cfg(not(miri))]
mod condvar_without_records;
#[cfg(not(miri))]
mod limits;
#[cfg(debug_assertions)]
mod misuse;
#[cfg(not(any(miri, tsan)))]
mod real_time;
mod rwlock;
#[path = "../../../nearq-topology/tests/skipped/mod.rs"]
mod skipped;
mod snapshot;
mod stress_linux;

/// One test at a time: the settings, the statistics and the waiters' records belong to the process.
///
/// Not one of our mutexes: a thread that waits for one may take one of the records that some tests count.
#[allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "see above")]
fn alone() -> std::sync::MutexGuard<'static, ()> {
    static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    // A failed test does not make the others fail.
    ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
