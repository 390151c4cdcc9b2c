//! The least that people write by hand: a thread that sleeps on a condition variable until it is given a closure.

use super::{Peer, not_started};
use crate::Error;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

type Job = Box<dyn FnOnce() + Send>;

/// Threads that take closures from one list.
pub struct Plain {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    list: Mutex<List>,
    changed: Condvar,
}

#[derive(Default)]
struct List {
    jobs: VecDeque<Job>,
    over: bool,
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, List> {
        self.list.lock().expect("nobody panics while holding it")
    }

    /// The next closure; none at the end.
    fn next(&self) -> Option<Job> {
        let mut list = self.list();
        loop {
            if let Some(job) = list.jobs.pop_front() {
                return Some(job);
            }
            if list.over {
                return None;
            }
            list = self.changed.wait(list).expect("nobody panics while holding it");
        }
    }
}

impl Peer for Plain {
    type Join<T: Send + 'static> = oneshot::Receiver<T>;

    const NAME: &'static str = "thread";
    const JOINED: &'static str = "thread, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        let mut pool = Self { shared: Arc::default(), threads: Vec::new() };
        for _ in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let body = move || {
                while let Some(job) = shared.next() {
                    job();
                }
            };
            pool.threads.push(thread::Builder::new().spawn(body).map_err(not_started::<Self>)?);
        }
        Ok(pool)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.shared.list().jobs.push_back(Box::new(function));
        self.shared.changed.notify_one();
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        let (sender, receiver) = oneshot::channel();
        self.detach(move || {
            let _ = sender.send(function());
        });
        receiver
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.blocking_recv().expect("the closure does not panic")
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.shared.list().over = true;
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}
