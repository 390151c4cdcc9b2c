//! threadpool: a standard channel behind a mutex, still widely used.

use super::Peer;
use crate::Error;
use tokio::sync::oneshot;

/// The `threadpool` crate's pool.
#[derive(Debug)]
pub struct ThreadPool(threadpool::ThreadPool);

impl Peer for ThreadPool {
    type Join<T: Send + 'static> = oneshot::Receiver<T>;

    const NAME: &'static str = "threadpool";
    const JOINED: &'static str = "threadpool, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        Ok(Self(threadpool::ThreadPool::new(threads)))
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.0.execute(function);
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.execute(move || {
            let _ = sender.send(function());
        });
        receiver
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.blocking_recv().expect("the closure does not panic")
    }
}
