//! How pools are built: [`ThreadPoolBuilder`], its deprecated form, and its errors.

use std::any::Any;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;

use crate::registry::Registry;
use crate::settings;
use crate::thread_pool::ThreadPool;
use crate::threads::ThreadBuilder;

pub(crate) type PanicHandler = dyn Fn(Box<dyn Any + Send>) + Send + Sync;
pub(crate) type StartHandler = dyn Fn(usize) + Send + Sync;
pub(crate) type ExitHandler = dyn Fn(usize) + Send + Sync;

/// Why a pool cannot be built.
#[derive(Debug)]
pub struct ThreadPoolBuildError {
    kind: ErrorKind,
}

#[derive(Debug)]
enum ErrorKind {
    GlobalPoolAlreadyInitialized,
    CurrentThreadAlreadyInPool,
    IOError(io::Error),
}

impl ThreadPoolBuildError {
    pub(crate) fn in_pool() -> Self {
        ThreadPoolBuildError { kind: ErrorKind::CurrentThreadAlreadyInPool }
    }

    pub(crate) fn is_initialized() -> Self {
        ThreadPoolBuildError { kind: ErrorKind::GlobalPoolAlreadyInitialized }
    }

    pub(crate) fn io(error: io::Error) -> Self {
        ThreadPoolBuildError { kind: ErrorKind::IOError(error) }
    }
}

impl fmt::Display for ThreadPoolBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The texts are a part of rayon's interface: programs compare them.
        match &self.kind {
            ErrorKind::GlobalPoolAlreadyInitialized => {
                f.write_str("The global thread pool has already been initialized.")
            }
            ErrorKind::CurrentThreadAlreadyInPool => {
                f.write_str("The current thread is already part of another thread pool.")
            }
            ErrorKind::IOError(error) => error.fmt(f),
        }
    }
}

impl Error for ThreadPoolBuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match &self.kind {
            ErrorKind::IOError(error) => Some(error),
            _ => None,
        }
    }
}

/// How the threads of a pool are started.
pub trait ThreadSpawn: private::Sealed {
    /// Starts one.
    ///
    /// # Errors
    /// The thread was refused.
    #[doc(hidden)]
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()>;

    /// Whether the program starts them.
    #[doc(hidden)]
    fn is_custom(&self) -> bool;
}

mod private {
    pub trait Sealed {}
}

/// Threads of the standard library, or of the process-wide runtime.
#[derive(Debug, Default)]
pub struct DefaultSpawn;

impl private::Sealed for DefaultSpawn {}

impl ThreadSpawn for DefaultSpawn {
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        thread.start()
    }

    fn is_custom(&self) -> bool {
        false
    }
}

/// Threads that the program starts.
#[derive(Debug)]
pub struct CustomSpawn<F>(F);

impl<F> private::Sealed for CustomSpawn<F> where F: FnMut(ThreadBuilder) -> io::Result<()> {}

impl<F> ThreadSpawn for CustomSpawn<F>
where
    F: FnMut(ThreadBuilder) -> io::Result<()>,
{
    fn spawn(&mut self, thread: ThreadBuilder) -> io::Result<()> {
        (self.0)(thread)
    }

    fn is_custom(&self) -> bool {
        true
    }
}

/// Settings of a pool that is about to be built.
///
/// A pool whose builder says nothing about its threads uses those of the process-wide runtime: they come when there is work, and are
/// replaced while they block. If the builder sets a name, a stack size, a start or exit handler, or
/// [`spawn_handler`](Self::spawn_handler), the pool has threads of its own, as many as its size.
///
/// ```
/// let pool = rayon_core::ThreadPoolBuilder::new().num_threads(3).build()?;
/// assert_eq!(pool.current_num_threads(), 3);
/// let (a, b) = pool.join(|| 6 * 7, || 2 + 3);
/// assert_eq!((a, b), (42, 5));
/// # Ok::<(), rayon_core::ThreadPoolBuildError>(())
/// ```
pub struct ThreadPoolBuilder<S = DefaultSpawn> {
    num_threads: usize,
    pub(crate) use_current_thread: bool,
    pub(crate) panic_handler: Option<Arc<PanicHandler>>,
    thread_name: Option<Box<dyn FnMut(usize) -> String>>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) start_handler: Option<Box<StartHandler>>,
    pub(crate) exit_handler: Option<Box<ExitHandler>>,
    pub(crate) spawn_handler: S,
    breadth_first: bool,
}

impl Default for ThreadPoolBuilder {
    fn default() -> Self {
        ThreadPoolBuilder {
            num_threads: 0,
            use_current_thread: false,
            panic_handler: None,
            thread_name: None,
            stack_size: None,
            start_handler: None,
            exit_handler: None,
            spawn_handler: DefaultSpawn,
            breadth_first: false,
        }
    }
}

impl ThreadPoolBuilder {
    /// No settings: the defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a pool whose threads may borrow: each of them calls `wrapper`, which must call [`ThreadBuilder::run`]. Then calls `with_pool`
    /// with the pool, and returns its result when all these threads have ended.
    ///
    /// # Errors
    /// As [`build`](Self::build).
    pub fn build_scoped<W, F, R>(self, wrapper: W, with_pool: F) -> Result<R, ThreadPoolBuildError>
    where
        W: Fn(ThreadBuilder) + Sync,
        F: FnOnce(&ThreadPool) -> R,
    {
        std::thread::scope(|scope| {
            let wrapper = &wrapper;
            let spawn = |thread: ThreadBuilder| {
                let mut builder = std::thread::Builder::new();
                if let Some(name) = thread.name() {
                    builder = builder.name(name.to_owned());
                }
                if let Some(bytes) = thread.stack_size() {
                    builder = builder.stack_size(bytes);
                }
                builder.spawn_scoped(scope, move || wrapper(thread)).map(drop)
            };
            let pool = self.spawn_handler(spawn).build()?;
            Ok(with_pool(&pool))
        })
    }
}

impl<S: ThreadSpawn> ThreadPoolBuilder<S> {
    /// Builds a pool.
    ///
    /// # Errors
    /// A thread was refused; the runtime could not be made; or the current thread was to be used, and is in a pool.
    pub fn build(self) -> Result<ThreadPool, ThreadPoolBuildError> {
        ThreadPool::build(self)
    }

    /// Builds the pool that is used outside of pools. Without this, it is built with no settings when it is first used.
    ///
    /// # Errors
    /// As [`build`](Self::build); or there is such a pool.
    pub fn build_global(self) -> Result<(), ThreadPoolBuildError> {
        Registry::init_global(self)
    }

    /// Whether the pool cannot use the threads of the process-wide runtime.
    pub(crate) fn needs_own_threads(&self) -> bool {
        self.thread_name.is_some()
            || self.stack_size.is_some()
            || self.start_handler.is_some()
            || self.exit_handler.is_some()
            || self.spawn_handler.is_custom()
    }
}

impl<S> ThreadPoolBuilder<S> {
    /// Sets how threads are started: a closure that starts a thread which calls [`ThreadBuilder::run`]. It is called for each thread of the
    /// pool while the pool is built, except for the [current one](Self::use_current_thread).
    pub fn spawn_handler<F>(self, spawn: F) -> ThreadPoolBuilder<CustomSpawn<F>>
    where
        F: FnMut(ThreadBuilder) -> io::Result<()>,
    {
        ThreadPoolBuilder {
            spawn_handler: CustomSpawn(spawn),
            num_threads: self.num_threads,
            use_current_thread: self.use_current_thread,
            panic_handler: self.panic_handler,
            thread_name: self.thread_name,
            stack_size: self.stack_size,
            start_handler: self.start_handler,
            exit_handler: self.exit_handler,
            breadth_first: self.breadth_first,
        }
    }

    /// How many members the pool can have.
    pub(crate) fn size(&self) -> usize {
        self.parallelism_set().unwrap_or_else(|| 2 * settings::cpus())
    }

    /// How many of them should run at once, if there is work.
    pub(crate) fn parallelism(&self) -> usize {
        self.parallelism_set().unwrap_or_else(settings::cpus)
    }

    fn parallelism_set(&self) -> Option<usize> {
        if self.num_threads > 0 { Some(self.num_threads) } else { settings::size_set() }
    }

    pub(crate) fn name_of(&mut self, index: usize) -> Option<String> {
        self.thread_name.as_mut().map(|name| name(index))
    }

    /// Sets the names of the threads: a function of a thread's number.
    pub fn thread_name<F>(mut self, closure: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.thread_name = Some(Box::new(closure));
        self
    }

    /// Sets the size of the pool: how many closures may run, wait or block in it at once, and what
    /// [`current_num_threads`](crate::current_num_threads) returns. At most [`max_num_threads`](crate::max_num_threads); a larger number
    /// counts as that.
    ///
    /// If not set, or 0: `RAYON_NUM_THREADS`, or else twice the number of CPUs. In the latter case, no more closures run at once than there
    /// are CPUs; the other half is for closures that wait or block.
    pub fn num_threads(mut self, num_threads: usize) -> Self {
        self.num_threads = num_threads;
        self
    }

    /// Makes the current thread a member of the pool, with the number 0, for as long as the thread exists. It runs closures of the pool
    /// only in [`yield_now`](crate::yield_now) and [`yield_local`](crate::yield_local); [`install`](ThreadPool::install) calls its closure
    /// directly there. While the thread waits for this or another pool, and so runs no closure, others may use its number.
    pub fn use_current_thread(mut self) -> Self {
        self.use_current_thread = true;
        self
    }

    /// Sets what is done with a panic of a closure of [`spawn`](crate::spawn) or [`spawn_broadcast`](crate::spawn_broadcast), or of a
    /// start or exit handler. If not set, such a panic ends the process. A panic of this handler always does.
    pub fn panic_handler<H>(mut self, panic_handler: H) -> Self
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.panic_handler = Some(Arc::new(panic_handler));
        self
    }

    /// Sets the stack size of the threads, in bytes.
    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    /// Asks that closures which a worker has spawned run oldest first. It has no effect.
    #[deprecated(note = "use `scope_fifo` and `spawn_fifo` for similar effect")]
    pub fn breadth_first(mut self) -> Self {
        self.breadth_first = true;
        self
    }

    /// Sets a closure that each thread calls when it starts, with its number.
    pub fn start_handler<H>(mut self, start_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.start_handler = Some(Box::new(start_handler));
        self
    }

    /// Sets a closure that each thread calls before it ends, with its number.
    pub fn exit_handler<H>(mut self, exit_handler: H) -> Self
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.exit_handler = Some(Box::new(exit_handler));
        self
    }
}

impl<S> fmt::Debug for ThreadPoolBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        struct Set;
        impl fmt::Debug for Set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("<closure>")
            }
        }
        f.debug_struct("ThreadPoolBuilder")
            .field("num_threads", &self.num_threads)
            .field("use_current_thread", &self.use_current_thread)
            .field("thread_name", &self.thread_name.as_ref().map(|_| Set))
            .field("panic_handler", &self.panic_handler.as_ref().map(|_| Set))
            .field("stack_size", &self.stack_size)
            .field("start_handler", &self.start_handler.as_ref().map(|_| Set))
            .field("exit_handler", &self.exit_handler.as_ref().map(|_| Set))
            .field("breadth_first", &self.breadth_first)
            .finish()
    }
}

/// The former name of [`ThreadPoolBuilder`].
#[deprecated(note = "Use `ThreadPoolBuilder`")]
#[derive(Default)]
pub struct Configuration {
    builder: ThreadPoolBuilder,
}

#[allow(deprecated, reason = "it is the deprecated interface")]
impl Configuration {
    /// As [`ThreadPoolBuilder::new`].
    pub fn new() -> Configuration {
        Configuration { builder: ThreadPoolBuilder::new() }
    }

    fn map(self, f: impl FnOnce(ThreadPoolBuilder) -> ThreadPoolBuilder) -> Self {
        Configuration { builder: f(self.builder) }
    }

    /// As [`ThreadPoolBuilder::build`].
    ///
    /// # Errors
    /// As there.
    pub fn build(self) -> Result<ThreadPool, Box<dyn Error + 'static>> {
        self.builder.build().map_err(Box::from)
    }

    /// As [`ThreadPoolBuilder::thread_name`].
    pub fn thread_name<F>(self, closure: F) -> Self
    where
        F: FnMut(usize) -> String + 'static,
    {
        self.map(|builder| builder.thread_name(closure))
    }

    /// As [`ThreadPoolBuilder::num_threads`].
    pub fn num_threads(self, num_threads: usize) -> Configuration {
        self.map(|builder| builder.num_threads(num_threads))
    }

    /// As [`ThreadPoolBuilder::panic_handler`].
    pub fn panic_handler<H>(self, panic_handler: H) -> Configuration
    where
        H: Fn(Box<dyn Any + Send>) + Send + Sync + 'static,
    {
        self.map(|builder| builder.panic_handler(panic_handler))
    }

    /// As [`ThreadPoolBuilder::stack_size`].
    pub fn stack_size(self, stack_size: usize) -> Self {
        self.map(|builder| builder.stack_size(stack_size))
    }

    /// As [`ThreadPoolBuilder::breadth_first`].
    pub fn breadth_first(self) -> Self {
        self.map(ThreadPoolBuilder::breadth_first)
    }

    /// As [`ThreadPoolBuilder::start_handler`].
    pub fn start_handler<H>(self, start_handler: H) -> Configuration
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.map(|builder| builder.start_handler(start_handler))
    }

    /// As [`ThreadPoolBuilder::exit_handler`].
    pub fn exit_handler<H>(self, exit_handler: H) -> Configuration
    where
        H: Fn(usize) + Send + Sync + 'static,
    {
        self.map(|builder| builder.exit_handler(exit_handler))
    }

    pub(crate) fn into_builder(self) -> ThreadPoolBuilder {
        self.builder
    }
}

#[allow(deprecated, reason = "it is the deprecated interface")]
impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.builder.fmt(f)
    }
}

/// As [`ThreadPoolBuilder::build_global`].
///
/// # Errors
/// As there.
#[deprecated(note = "use `ThreadPoolBuilder::build_global`")]
#[allow(deprecated, reason = "it is the deprecated interface")]
pub fn initialize(config: Configuration) -> Result<(), Box<dyn Error>> {
    config.into_builder().build_global().map_err(Box::from)
}
