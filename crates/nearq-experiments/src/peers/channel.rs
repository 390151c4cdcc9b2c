//! A crossbeam channel of boxed closures and threads that take from it: what people write by hand.

use super::{Peer, not_started};
use crate::Error;
use crate::dispatch::IN_FLIGHT;
use crossbeam_channel::{Receiver, Sender};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Threads at a channel.
#[derive(Debug)]
struct Workers {
    /// Taken when the pool is dropped: the threads end when the channel has no sender any more.
    jobs: Option<Sender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    fn start<P: Peer>(
        (sender, receiver): (Sender<Job>, Receiver<Job>),
        threads: usize,
    ) -> Result<Self, Error> {
        let mut pool = Self { jobs: Some(sender), threads: Vec::new() };
        for _ in 0..threads {
            let receiver = receiver.clone();
            let body = move || receiver.into_iter().for_each(|job| job());
            pool.threads.push(thread::Builder::new().spawn(body).map_err(not_started::<P>)?);
        }
        Ok(pool)
    }

    fn send(&self, job: Job) {
        let jobs = self.jobs.as_ref().expect("the pool lives");
        jobs.send(job).expect("the threads live as long as the pool");
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> oneshot::Receiver<T> {
        let (sender, receiver) = oneshot::channel();
        self.send(Box::new(move || {
            let _ = sender.send(function());
        }));
        receiver
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// Workers at a channel, which may be bounded.
#[derive(Debug)]
pub struct Channel<const BOUNDED: bool>(Workers);

/// With a channel that has room for what is in flight.
pub type Bounded = Channel<true>;

/// With a channel that grows.
pub type Unbounded = Channel<false>;

impl<const BOUNDED: bool> Peer for Channel<BOUNDED> {
    type Join<T: Send + 'static> = oneshot::Receiver<T>;

    const NAME: &'static str =
        if BOUNDED { "crossbeam-channel bounded" } else { "crossbeam-channel" };
    const JOINED: &'static str =
        if BOUNDED { "crossbeam-channel bounded, oneshot" } else { "crossbeam-channel, oneshot" };

    fn start(threads: usize) -> Result<Self, Error> {
        let channel = if BOUNDED {
            crossbeam_channel::bounded(IN_FLIGHT)
        } else {
            crossbeam_channel::unbounded()
        };
        Workers::start::<Self>(channel, threads).map(Self)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.0.send(Box::new(function));
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        self.0.spawn(function)
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.blocking_recv().expect("the closure does not panic")
    }
}

/// A queue for the `scopes` experiment that knows nothing of scopes, to test the experiment itself with.
#[cfg(test)]
pub(crate) fn queue_for_tests(threads: usize) -> Box<dyn crate::executor::Executor> {
    use crate::executor::{Executor, Item};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    struct Queue(Arc<Unbounded>);
    struct Reusable {
        pool: Arc<Unbounded>,
        function: Arc<Mutex<Box<dyn FnMut() + Send>>>,
        pending: Arc<AtomicBool>,
    }

    impl Executor for Queue {
        fn item(&self, function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
            let (function, pending) =
                (Arc::new(Mutex::new(function)), Arc::new(AtomicBool::new(false)));
            Box::new(Reusable { pool: Arc::clone(&self.0), function, pending })
        }
    }

    impl Item for Reusable {
        fn queue(&self) -> bool {
            if self.pending.swap(true, Ordering::Relaxed) {
                return false;
            }
            let (function, pending) = (Arc::clone(&self.function), Arc::clone(&self.pending));
            self.pool.detach(move || {
                pending.store(false, Ordering::Relaxed);
                function.lock().unwrap()();
            });
            true
        }
    }

    Box::new(Queue(Arc::new(Unbounded::start(threads).unwrap())))
}
