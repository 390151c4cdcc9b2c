//! rayon: a work-stealing pool; closures from outside go through one injector queue.

use super::{Peer, not_started};
use crate::Error;
use tokio::sync::oneshot;

/// rayon's pool.
#[derive(Debug)]
pub struct Rayon(rayon::ThreadPool);

impl Peer for Rayon {
    type Join<T: Send + 'static> = oneshot::Receiver<T>;

    const NAME: &'static str = "rayon";
    const JOINED: &'static str = "rayon, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map(Self).map_err(not_started::<Self>)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.0.spawn(function);
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.spawn(move || {
            let _ = sender.send(function());
        });
        receiver
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.blocking_recv().expect("the closure does not panic")
    }
}
