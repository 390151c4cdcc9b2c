//! The pools that experiments compare with, each behind one trait, in its usual way of use.
//!
//! A pool allocates a closure for each item (and what it
//! needs to join one); a reused `Work` allocates nothing.

mod futures;
mod threads;

pub use self::futures::{AsyncExecutor, Tokio};
pub use self::threads::{
    Bounded, Channel, Detaches, List, Oneshot, Plain, Rayon, ThreadPool, Unbounded,
};

use crate::Error;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

/// A pool of threads that runs closures.
pub trait Peer: Send + Sync + Sized + 'static {
    /// The handle that waits for a closure's result.
    type Join<T: Send + 'static>: Send;

    /// The pool's name in tables.
    const NAME: &'static str;

    /// What tables call a closure whose result is waited for; the pool's own way, or a channel for one value
    /// if it has none.
    const JOINED: &'static str;

    /// Starts a pool of `threads` threads.
    fn start(threads: usize) -> Result<Self, Error>;

    /// Runs a closure without waiting for its end.
    fn detach<F: FnOnce() + Send + 'static>(&self, function: F);

    /// Runs a closure whose result will be waited for.
    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T>;

    /// Waits for a closure's result, outside of the pool.
    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T;
}

/// Runs `body`, then waits until as many threads are left as were before. Some pools, when they are dropped, only tell their threads to
/// end.
pub fn alone<T>(body: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    let before = thread_count();
    let result = body();
    let patience = Instant::now() + Duration::from_secs(2);
    while thread_count() > before && Instant::now() < patience {
        thread::sleep(Duration::from_micros(200));
    }
    result
}

/// Threads of this process.
fn thread_count() -> usize {
    fs::read_dir("/proc/self/task").map_or(0, Iterator::count)
}

/// The error of a pool that cannot be started.
fn not_started<P: Peer>(error: impl std::fmt::Display) -> Error {
    Error::run(format!("{} cannot start its threads: {error}", P::NAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    fn works<P: Peer>() {
        let pool = P::start(2).unwrap();
        // Joined results come back to the caller.
        let handles: Vec<_> =
            (0..100_u64).map(|number| pool.spawn(move || number * number)).collect();
        let sum: u64 = handles.into_iter().map(P::join).sum();
        assert_eq!(sum, 328_350, "{}", P::NAME);
        // Detached closures all run, each once, on at most two threads, none of them ours.
        let (sender, receiver) = mpsc::channel();
        let total = Arc::new(AtomicU64::new(0));
        for number in 0..1000 {
            let (sender, total) = (sender.clone(), Arc::clone(&total));
            pool.detach(move || {
                total.fetch_add(number, Ordering::Relaxed);
                sender.send(thread::current().id()).unwrap();
            });
        }
        drop(sender);
        let threads: Vec<_> = receiver.into_iter().collect();
        assert_eq!((threads.len(), total.load(Ordering::Relaxed)), (1000, 499_500), "{}", P::NAME);
        let threads: HashSet<_> = threads.into_iter().collect();
        assert!(threads.len() <= 2 && !threads.contains(&thread::current().id()), "{}", P::NAME);
    }

    #[test]
    fn every_pool_runs_every_item_once_on_its_own_threads() {
        works::<Rayon>();
        works::<Tokio>();
        works::<AsyncExecutor>();
        works::<ThreadPool>();
        works::<Plain>();
        works::<Bounded>();
        works::<Unbounded>();
    }
}
