//! Pools of threads that take boxed closures: pools as people write them by hand, rayon's pool, and that of the `threadpool` crate. A
//! result that is waited for comes back through a channel for one value.

use super::{Peer, not_started};
use crate::Error;
use crate::dispatch::IN_FLIGHT;
use crossbeam_channel::{Receiver, Sender};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use tokio::sync::oneshot;

/// A pool whose closures return no result.
pub trait Detaches: Send + Sync + Sized + 'static {
    /// The pool's name in tables.
    const NAME: &'static str;
    /// The name for closures whose result is waited for.
    const JOINED: &'static str;

    /// Starts a pool of `threads` threads.
    fn start(threads: usize) -> Result<Self, Error>;

    /// Runs a closure.
    fn detach<F: FnOnce() + Send + 'static>(&self, function: F);
}

/// Such a pool, with a channel for each result that is waited for.
#[derive(Debug)]
pub struct Oneshot<P>(P);

impl<P: Detaches> Peer for Oneshot<P> {
    type Join<T: Send + 'static> = oneshot::Receiver<T>;
    const NAME: &'static str = P::NAME;
    const JOINED: &'static str = P::JOINED;

    fn start(threads: usize) -> Result<Self, Error> {
        P::start(threads).map(Self)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.0.detach(function);
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        let (sender, receiver) = oneshot::channel();
        self.0.detach(move || {
            // The receiver may be gone: the result is dropped then.
            let _ = sender.send(function());
        });
        receiver
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.blocking_recv().expect("the closure does not panic")
    }
}

/// rayon: a work-stealing pool; closures from outside go through one injector queue.
pub type Rayon = Oneshot<rayon::ThreadPool>;

impl Detaches for rayon::ThreadPool {
    const NAME: &'static str = "rayon";
    const JOINED: &'static str = "rayon, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
        pool.map_err(not_started::<Rayon>)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.spawn(function);
    }
}

/// threadpool: a standard channel behind a mutex, still widely used.
pub type ThreadPool = Oneshot<threadpool::ThreadPool>;

impl Detaches for threadpool::ThreadPool {
    const NAME: &'static str = "threadpool";
    const JOINED: &'static str = "threadpool, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        Ok(Self::new(threads))
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.execute(function);
    }
}

/// Threads that are waited for when this is dropped.
#[derive(Debug, Default)]
pub(super) struct Threads(Vec<JoinHandle<()>>);

impl Threads {
    /// Starts that many more threads.
    pub(super) fn start<P: Peer, F: FnOnce() + Send + 'static>(
        &mut self,
        threads: usize,
        body: impl Fn() -> F,
    ) -> Result<(), Error> {
        for _ in 0..threads {
            self.0.push(thread::Builder::new().spawn(body()).map_err(not_started::<P>)?);
        }
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// A crossbeam channel of boxed closures and threads that take from it. The threads end when the channel has no sender any more, so it
/// is dropped first.
#[derive(Debug)]
pub struct Channel<const BOUNDED: bool> {
    jobs: Sender<Job>,
    _threads: Threads,
}

/// A pool with a channel that has space for the items in flight.
pub type Bounded = Oneshot<Channel<true>>;
/// A pool with a channel that grows.
pub type Unbounded = Oneshot<Channel<false>>;

impl<const BOUNDED: bool> Detaches for Channel<BOUNDED> {
    const NAME: &'static str =
        if BOUNDED { "crossbeam-channel bounded" } else { "crossbeam-channel" };
    const JOINED: &'static str =
        if BOUNDED { "crossbeam-channel bounded, oneshot" } else { "crossbeam-channel, oneshot" };

    fn start(count: usize) -> Result<Self, Error> {
        let (jobs, receiver): (Sender<Job>, Receiver<Job>) = if BOUNDED {
            crossbeam_channel::bounded(IN_FLIGHT)
        } else {
            crossbeam_channel::unbounded()
        };
        let mut threads = Threads::default();
        let started = threads.start::<Oneshot<Self>, _>(count, || {
            let receiver = receiver.clone();
            move || receiver.into_iter().for_each(|job| job())
        });
        // If a thread could not be started, the others end with `jobs`, which is dropped before `threads`.
        let pool = Self { jobs, _threads: threads };
        started.map(|()| pool)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.jobs.send(Box::new(function)).expect("the threads live as long as the pool");
    }
}

/// The least that people write by hand: threads that sleep on a condition variable until they are given a closure.
pub type Plain = Oneshot<List>;

/// Threads that take closures from one list.
pub struct List {
    shared: Arc<Shared>,
    threads: Threads,
}

#[derive(Default)]
struct Shared {
    list: Mutex<Jobs>,
    changed: Condvar,
}

#[derive(Default)]
struct Jobs {
    jobs: VecDeque<Job>,
    over: bool,
}

impl Shared {
    fn list(&self) -> MutexGuard<'_, Jobs> {
        self.list.lock().expect("no thread panics while holding it")
    }

    /// The next closure; `None` at the end.
    fn next(&self) -> Option<Job> {
        let waits = |list: &mut Jobs| list.jobs.is_empty() && !list.over;
        let list = self.changed.wait_while(self.list(), waits);
        list.expect("no thread panics while holding it").jobs.pop_front()
    }
}

impl Detaches for List {
    const NAME: &'static str = "thread";
    const JOINED: &'static str = "thread, oneshot";

    fn start(threads: usize) -> Result<Self, Error> {
        let mut pool = Self { shared: Arc::default(), threads: Threads::default() };
        let shared = Arc::clone(&pool.shared);
        pool.threads.start::<Plain, _>(threads, || {
            let shared = Arc::clone(&shared);
            move || {
                while let Some(job) = shared.next() {
                    job();
                }
            }
        })?;
        Ok(pool)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        self.shared.list().jobs.push_back(Box::new(function));
        self.shared.changed.notify_one();
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.shared.list().over = true;
        self.shared.changed.notify_all();
    }
}
