//! The threads of a pool whose builder sets something of them: a name, a stack size, handlers, or how they are started. Other pools use
//! the threads of the process-wide runtime.
//!
//! Each thread runs workers of the pool's runtime, one after the other: the runtime gives their main functions to the [`Feed`], and any
//! thread of the pool takes one. A thread ends when the feed is closed, that is when the pool is gone.
//!
//! In the child of a fork none of these threads is there, and the lock of the feed's queue may be held by one of them. So the child never
//! takes it: each worker gets a thread of its own, which has the name, the stack size and the handlers that the builder has set.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nearq_platform::{Linux, LockPlatform};

use crate::builder::PanicHandler;
use crate::registry::{Handlers, handle_panic};

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

type Main = Box<dyn FnOnce() + Send>;

/// Gives main functions of workers to the threads of a pool. It is closed when its last clone is dropped; the threads have none.
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    handlers: Handlers,
    panic_handler: Option<Arc<PanicHandler>>,
    stack_size: Option<usize>,
    /// The numbers and the names of the threads. Locked only while the pool is built, and in the child of a fork.
    threads: Mutex<Vec<(usize, Option<String>)>>,
    /// The process that has built the pool.
    epoch: u64,
    /// How many threads the child of a fork has begun to start.
    started_in_child: AtomicUsize,
}

#[derive(Default)]
struct Queue {
    mains: VecDeque<Main>,
    /// How many there are of the feed and its clones.
    feeds: usize,
}

impl Feed {
    pub(crate) fn new(
        handlers: Handlers,
        panic_handler: Option<Arc<PanicHandler>>,
        stack_size: Option<usize>,
    ) -> Self {
        let shared = Shared {
            queue: Mutex::new(Queue { mains: VecDeque::new(), feeds: 1 }),
            changed: Condvar::new(),
            handlers,
            panic_handler,
            stack_size,
            threads: Mutex::default(),
            epoch: Linux::fork_epoch(),
            started_in_child: AtomicUsize::new(0),
        };
        Feed { shared: Arc::new(shared) }
    }

    /// Adds a thread to those that the pool needs.
    pub(crate) fn add_thread(&self, index: usize, name: Option<String>) -> ThreadBuilder {
        lock(&self.shared.threads).push((index, name.clone()));
        ThreadBuilder { index, name, shared: Arc::clone(&self.shared) }
    }

    /// Has a thread run the main function of a worker.
    pub(crate) fn give(&self, main: Main) {
        if self.shared.is_in_child() {
            self.start_in_child(main);
        } else {
            lock(&self.shared.queue).mains.push_back(main);
            self.shared.changed.notify_one();
        }
    }

    fn start_in_child(&self, main: Main) {
        let shared = &self.shared;
        // Relaxed: only the number counts.
        let started = shared.started_in_child.fetch_add(1, Ordering::Relaxed);
        let threads = lock(&shared.threads);
        let (index, name) = threads[started % threads.len()].clone();
        drop(threads);
        let main = Arc::new(Mutex::new(Some(main)));
        loop {
            let thread = ThreadBuilder { index, name: name.clone(), shared: Arc::clone(shared) };
            let taken = Arc::clone(&main);
            let started = thread.start_with(move |_| {
                let main = lock(&taken).take();
                main.expect("one thread is started")();
            });
            match started {
                Ok(()) => return,
                // The runtime counts the worker as started, and waits for it.
                Err(error) => {
                    Linux::warn_once("rayon", &format!("a thread cannot be started: {error}"));
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }
}

impl Clone for Feed {
    fn clone(&self) -> Self {
        lock(&self.shared.queue).feeds += 1;
        Feed { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if self.shared.is_in_child() {
            return;
        }
        let mut queue = lock(&self.shared.queue);
        queue.feeds -= 1;
        if queue.feeds == 0 {
            self.shared.changed.notify_all();
        }
    }
}

impl Shared {
    fn is_in_child(&self) -> bool {
        Linux::fork_epoch() != self.epoch
    }

    /// Runs what is given until the feed is closed.
    fn serve(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let main = loop {
                if let Some(main) = queue.mains.pop_front() {
                    break main;
                }
                if queue.feeds == 0 {
                    return;
                }
                queue = self.changed.wait(queue).unwrap_or_else(PoisonError::into_inner);
            };
            drop(queue);
            main();
        }
    }

    fn catch(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            handle_panic(self.panic_handler.as_deref(), payload);
        }
    }
}

/// A thread that a pool needs; passed to the closure of
/// [`ThreadPoolBuilder::spawn_handler`](crate::ThreadPoolBuilder::spawn_handler), which starts a thread that calls [`run`](Self::run).
pub struct ThreadBuilder {
    index: usize,
    name: Option<String>,
    shared: Arc<Shared>,
}

impl ThreadBuilder {
    /// The number of the thread, below the pool's size. It is what the start and the exit handler are given.
    pub fn index(&self) -> usize {
        self.index
    }

    /// The name that the builder of the pool has set for it.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The stack size that the builder of the pool has set, in bytes.
    pub fn stack_size(&self) -> Option<usize> {
        self.shared.stack_size
    }

    /// Works for the pool; returns when the pool is gone.
    pub fn run(self) {
        self.run_with(Shared::serve);
    }

    /// Runs `f` between the handlers.
    fn run_with(self, f: impl FnOnce(&Shared)) {
        let (shared, index) = (&*self.shared, self.index);
        if let Some(start) = &shared.handlers.start {
            shared.catch(|| start(index));
        }
        f(shared);
        if let Some(exit) = &shared.handlers.exit {
            shared.catch(|| exit(index));
        }
    }

    /// Starts it as a thread of the standard library.
    pub(crate) fn start(self) -> io::Result<()> {
        self.start_with(Shared::serve)
    }

    fn start_with(self, f: impl FnOnce(&Shared) + Send + 'static) -> io::Result<()> {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = self.name() {
            builder = builder.name(name.to_owned());
        }
        if let Some(bytes) = self.stack_size() {
            builder = builder.stack_size(bytes);
        }
        builder.spawn(|| self.run_with(f)).map(drop)
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("name", &self.name)
            .field("stack_size", &self.stack_size())
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
