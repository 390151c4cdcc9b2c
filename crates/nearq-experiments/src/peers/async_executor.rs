//! async-executor (smol's): it has no threads of its own, so each of ours runs it until told to stop.

use super::{Peer, block_on, not_started};
use crate::Error;
use async_executor::{Executor, Task};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use tokio::sync::Semaphore;

/// smol's executor on threads of ours.
#[derive(Debug)]
pub struct AsyncExecutor {
    executor: Arc<Executor<'static>>,
    /// Has no permits; closing it ends the threads.
    stop: Arc<Semaphore>,
    threads: Vec<JoinHandle<()>>,
}

impl Peer for AsyncExecutor {
    type Join<T: Send + 'static> = Task<T>;

    const NAME: &'static str = "async-executor";
    const JOINED: &'static str = "async-executor";

    fn start(threads: usize) -> Result<Self, Error> {
        let (executor, stop) = (Arc::new(Executor::new()), Arc::new(Semaphore::new(0)));
        let mut pool = Self { executor, stop, threads: Vec::new() };
        for _ in 0..threads {
            let (executor, stop) = (Arc::clone(&pool.executor), Arc::clone(&pool.stop));
            let body = move || drop(block_on(executor.run(stop.acquire())));
            pool.threads.push(thread::Builder::new().spawn(body).map_err(not_started::<Self>)?);
        }
        Ok(pool)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.executor.spawn(async move { function() }).detach();
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
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
