//! Pools that run futures: a closure is a future that is ready at its first poll, and so is the future of its result.

use super::threads::Threads;
use super::{Peer, not_started};
use crate::Error;
use async_executor::{Executor, Task};
use futures_lite::future::block_on;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// tokio's multi-threaded runtime, without timers or input and output.
#[derive(Debug)]
pub struct Tokio(Runtime);

impl Peer for Tokio {
    type Join<T: Send + 'static> = JoinHandle<T>;
    const NAME: &'static str = "tokio";
    const JOINED: &'static str = "tokio";

    fn start(threads: usize) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(threads).build();
        runtime.map(Self).map_err(not_started::<Self>)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        drop(self.spawn(function));
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        self.0.spawn(async move { function() })
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        block_on(handle).expect("the closure does not panic")
    }
}

/// async-executor (smol's): it has no threads of its own, so each of ours runs it until it is stopped.
#[derive(Debug)]
pub struct AsyncExecutor {
    executor: Arc<Executor<'static>>,
    /// A semaphore that never has permits; closing it ends the threads.
    stop: Arc<Semaphore>,
    threads: Threads,
}

impl Peer for AsyncExecutor {
    type Join<T: Send + 'static> = Task<T>;
    const NAME: &'static str = "async-executor";
    const JOINED: &'static str = "async-executor";

    fn start(threads: usize) -> Result<Self, Error> {
        let (executor, stop) = (Arc::new(Executor::new()), Arc::new(Semaphore::new(0)));
        let mut pool = Self { executor, stop, threads: Threads::default() };
        let (executor, stop) = (Arc::clone(&pool.executor), Arc::clone(&pool.stop));
        pool.threads.start::<Self, _>(threads, || {
            let (executor, stop) = (Arc::clone(&executor), Arc::clone(&stop));
            move || drop(block_on(executor.run(stop.acquire())))
        })?;
        Ok(pool)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.spawn(function).detach();
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        self.executor.spawn(async move { function() })
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        block_on(handle)
    }
}

impl Drop for AsyncExecutor {
    fn drop(&mut self) {
        self.stop.close();
    }
}
