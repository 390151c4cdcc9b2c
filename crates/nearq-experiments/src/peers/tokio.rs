//! tokio: its multi-threaded runtime, without timers or input and output.

use super::{Peer, block_on, not_started};
use crate::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinHandle;

/// tokio's multi-threaded runtime.
#[derive(Debug)]
pub struct Tokio(Runtime);

impl Peer for Tokio {
    type Join<T: Send + 'static> = JoinHandle<T>;

    const NAME: &'static str = "tokio";
    const JOINED: &'static str = "tokio";

    fn start(threads: usize) -> Result<Self, Error> {
        Builder::new_multi_thread()
            .worker_threads(threads)
            .build()
            .map(Self)
            .map_err(not_started::<Self>)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        drop(self.0.spawn(async move { function() }));
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
