//! The threads of a pool whose builder sets something of them: a name, a stack size, handlers, or how they are started. Other pools use
//! the threads of the process-wide runtime.
//!
//! Each thread runs workers of the pool's runtime, one after the other: the runtime gives their main functions to the [`Feed`], and any
//! thread of the pool takes one. A thread ends when the feed is closed, that is when the pool is gone.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::builder::PanicHandler;
use crate::registry::{Handlers, handle_panic};

type Main = Box<dyn FnOnce() + Send>;

/// Gives main functions of workers to the threads of a pool. The last clone that is dropped, other than those of the threads, closes it.
pub(crate) struct Feed {
    shared: Arc<Shared>,
}

struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
    handlers: Handlers,
    panic_handler: Option<Arc<PanicHandler>>,
}

#[derive(Default)]
struct Queue {
    mains: VecDeque<Main>,
    /// How many clones of the feed there are.
    feeds: usize,
}

impl Feed {
    pub(crate) fn new(handlers: Handlers, panic_handler: Option<Arc<PanicHandler>>) -> Self {
        let queue = Mutex::new(Queue { mains: VecDeque::new(), feeds: 1 });
        let changed = Condvar::new();
        Feed { shared: Arc::new(Shared { queue, changed, handlers, panic_handler }) }
    }

    pub(crate) fn give(&self, main: Main) {
        self.shared.lock().mains.push_back(main);
        self.shared.changed.notify_one();
    }
}

impl Clone for Feed {
    fn clone(&self) -> Self {
        self.shared.lock().feeds += 1;
        Feed { shared: Arc::clone(&self.shared) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.feeds -= 1;
        if queue.feeds == 0 {
            self.shared.changed.notify_all();
        }
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs what is given until the feed is closed.
    fn serve(&self) {
        loop {
            let mut queue = self.lock();
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
    name: Option<String>,
    stack_size: Option<usize>,
    index: usize,
    shared: Arc<Shared>,
}

impl ThreadBuilder {
    pub(crate) fn new(
        name: Option<String>,
        stack_size: Option<usize>,
        index: usize,
        feed: &Feed,
    ) -> Self {
        ThreadBuilder { name, stack_size, index, shared: Arc::clone(&feed.shared) }
    }

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
        self.stack_size
    }

    /// Works for the pool; returns when the pool is gone.
    pub fn run(self) {
        let shared = &self.shared;
        if let Some(start) = &shared.handlers.start {
            shared.catch(|| start(self.index));
        }
        shared.serve();
        if let Some(exit) = &shared.handlers.exit {
            shared.catch(|| exit(self.index));
        }
    }

    /// Starts it as a thread of the standard library.
    pub(crate) fn start(self) -> io::Result<()> {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = &self.name {
            builder = builder.name(name.clone());
        }
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        builder.spawn(|| self.run()).map(drop)
    }
}

impl fmt::Debug for ThreadBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadBuilder")
            .field("name", &self.name)
            .field("stack_size", &self.stack_size)
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}
