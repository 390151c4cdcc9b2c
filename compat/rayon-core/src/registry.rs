//! A pool: its queue, the team of the queue, and what its builder has set.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use nearq::team::{Closure, Team};
use nearq::{Runtime, Workqueue};

use crate::builder::{
    ExitHandler, PanicHandler, StartHandler, ThreadPoolBuildError, ThreadPoolBuilder, ThreadSpawn,
};
use crate::members::{Lent, Member, Members};
use crate::settings;
use crate::threads::Feed;

/// See the head of the file. It exists as long as there is a handle of the pool, or a closure that was given to the pool and has not ended.
pub(crate) struct Registry {
    id: usize,
    /// Declared before the runtime that it is on, so that it is dropped first.
    queue: Workqueue,
    members: Arc<Members>,
    panic_handler: Option<Arc<PanicHandler>>,
    /// If the pool has threads of its own.
    _runtime: Option<(Runtime, Feed)>,
}

/// What the threads of a pool call, if its builder has set it.
#[derive(Default)]
pub(crate) struct Handlers {
    pub(crate) start: Option<Box<StartHandler>>,
    pub(crate) exit: Option<Box<ExitHandler>>,
}

/// The pool that is used outside of pools.
static GLOBAL: OnceLock<Arc<Registry>> = OnceLock::new();
static NEXT_ID: AtomicUsize = AtomicUsize::new(0);

impl Registry {
    pub(crate) fn new<S: ThreadSpawn>(
        mut builder: ThreadPoolBuilder<S>,
        is_global: bool,
    ) -> Result<Arc<Registry>, ThreadPoolBuildError> {
        let (size, parallelism) = (builder.size().min(LARGEST), builder.parallelism().min(LARGEST));
        if builder.use_current_thread && Member::current().is_some() {
            return Err(ThreadPoolBuildError::in_pool());
        }
        let attached = usize::from(builder.use_current_thread);
        let id = NEXT_ID.fetch_add(1, Ordering::Relaxed);
        let mut name = if is_global { "rayon".to_owned() } else { format!("rayon-{id}") };
        let own = if builder.needs_own_threads() {
            let (threads, first) = Self::start_threads(&mut builder, attached, size)?;
            if let Some(named) = first {
                name = settings::queue_name(&named).unwrap_or(name);
            }
            Some(threads)
        } else {
            None
        };
        let builder_of_queue = match &own {
            Some((runtime, _)) => runtime.workqueue_builder(name),
            None => Workqueue::builder(name),
        };
        // More than the members, for thieves that find no number. All of it on each node: the numbers are what limits the members, and all
        // of them may be on one node.
        let limit = size + SPARE;
        let queue = settings::apply(builder_of_queue.max_active(limit).min_active(limit)).build();
        let queue =
            queue.map_err(|error| ThreadPoolBuildError::io(std::io::Error::other(error)))?;
        let registry = Arc::new_cyclic(|registry| Registry {
            id,
            queue,
            members: Arc::new(Members::new(size, parallelism, registry.clone())),
            panic_handler: builder.panic_handler.take(),
            _runtime: own,
        });
        registry.queue.form_team(Arc::clone(&registry.members) as _);
        if builder.use_current_thread {
            registry.members.attach();
        }
        Ok(registry)
    }

    /// Starts the threads of a pool that has its own, and the runtime that uses them. Returns these, and the name of the first thread.
    fn start_threads<S: ThreadSpawn>(
        builder: &mut ThreadPoolBuilder<S>,
        attached: usize,
        size: usize,
    ) -> Result<((Runtime, Feed), Option<String>), ThreadPoolBuildError> {
        let handlers =
            Handlers { start: builder.start_handler.take(), exit: builder.exit_handler.take() };
        let panic_handler = builder.panic_handler.clone();
        let feed = Feed::new(handlers, panic_handler, builder.stack_size);
        // A pool that consists of the current thread alone still has one worker, which uses that thread's number while it waits.
        let is_alone = attached == size;
        let numbers = if is_alone { 0..1 } else { attached..size };
        let count = u32::try_from(numbers.len()).expect("a pool has fewer threads");
        let mut first = None;
        for number in 0..size {
            // As in rayon, it is asked for all names, in their order.
            let name = builder.name_of(number);
            if !numbers.contains(&number) {
                continue;
            }
            first = first.or_else(|| name.clone());
            let thread = feed.add_thread(number, name);
            let started =
                if is_alone { thread.start() } else { builder.spawn_handler.spawn(thread) };
            started.map_err(ThreadPoolBuildError::io)?;
        }
        let threads = feed.clone();
        let runtime = Runtime::builder()
            .thread_limit(count)
            .threads_from(move |main| threads.give(main))
            .build()
            .map_err(|error| ThreadPoolBuildError::io(std::io::Error::other(error)))?;
        Ok(((runtime, feed), first))
    }

    /// The pool that is used outside of pools; it is made if there is none.
    ///
    /// # Panics
    /// If it cannot be made.
    pub(crate) fn global() -> &'static Arc<Registry> {
        GLOBAL.get_or_init(|| {
            Registry::new(ThreadPoolBuilder::new(), true)
                .unwrap_or_else(|error| panic!("the global pool cannot be made: {error}"))
        })
    }

    /// Makes the pool that is used outside of pools.
    pub(crate) fn init_global<S: ThreadSpawn>(
        builder: ThreadPoolBuilder<S>,
    ) -> Result<(), ThreadPoolBuildError> {
        // Only one thread makes it; another one that comes meanwhile finds it made.
        static MAKING: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let _making = MAKING.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if GLOBAL.get().is_some() {
            return Err(ThreadPoolBuildError::is_initialized());
        }
        GLOBAL
            .set(Registry::new(builder, true)?)
            .map_err(|_| ThreadPoolBuildError::is_initialized())
    }

    /// The pool of the current thread; otherwise the global one.
    pub(crate) fn current() -> Arc<Registry> {
        Member::current()
            .and_then(|member| member.registry())
            .unwrap_or_else(|| Arc::clone(Registry::global()))
    }

    pub(crate) fn id(&self) -> usize {
        self.id
    }

    pub(crate) fn num_threads(&self) -> usize {
        self.members.size()
    }

    pub(crate) fn queue(&self) -> &Workqueue {
        &self.queue
    }

    /// The member of this pool that the current thread is, if it is one.
    pub(crate) fn member(&self) -> Option<Member> {
        Member::current().filter(|member| member.is_of(&self.members))
    }

    /// Whether the current thread is a worker that runs a closure of this pool.
    pub(crate) fn is_served_here(&self) -> bool {
        self.member().is_some_and(|member| !member.is_attached())
    }

    /// Waits in `f` for closures of a pool. If the caller is attached to a pool, to that or another one, workers use its number meanwhile:
    /// the closures may need it. `f` runs no closure in the current thread.
    pub(crate) fn wait<R>(f: impl FnOnce() -> R) -> R {
        let attached = Member::attached();
        let _lent = attached.as_ref().and_then(Self::lend);
        f()
    }

    /// Has workers use the number of an attached thread, which is the caller, until what is returned is dropped.
    pub(crate) fn lend(attached: &Member) -> Option<Lent<'_>> {
        // If the pool is gone, no closure of it is left.
        let registry = attached.registry()?;
        let lent = attached.lend();
        registry.queue.call_thief();
        lent
    }

    /// Runs `f` in a worker of the pool, and waits for it.
    pub(crate) fn run_in_worker<R: Send>(&self, f: impl FnOnce() -> R + Send) -> R {
        if self.is_served_here() { f() } else { Self::wait(|| self.queue.install(f)) }
    }

    /// Has a closure run in the pool, which exists until then. If the runtime was shut down, and the caller is none of its workers, the
    /// closure is dropped; nearq warns.
    pub(crate) fn spawn(self: &Arc<Self>, f: impl FnOnce() + Send + 'static, fifo: bool) {
        let registry = Arc::clone(self);
        let closure: Closure = Box::new(move || {
            registry.catch(f);
            drop(registry);
        });
        match self.member() {
            Some(member) if !member.is_attached() => {
                if fifo {
                    member.spawn_fifo(closure);
                } else {
                    member.spawn(closure);
                }
                self.members.wake_waiting();
                self.queue.call_thief();
            }
            _ => {
                let number = self.members.inject(closure);
                if !self.queue.call_thief() {
                    drop(self.members.retract(number));
                }
            }
        }
    }

    /// Sends a closure to the member that has that number. If the runtime was shut down, and the caller is none of its workers, the closure
    /// is given back.
    pub(crate) fn post(&self, number: usize, closure: Closure) -> Result<(), Closure> {
        let posted = self.members.post(number, closure);
        if self.queue.call_thief() {
            return Ok(());
        }
        // If it is gone, a member runs it.
        self.members.take_back(number, posted).map_or(Ok(()), Err)
    }

    /// Runs `f`. A panic goes to the panic handler; without one, it ends the process.
    pub(crate) fn catch(&self, f: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(f)) {
            handle_panic(self.panic_handler.as_deref(), payload);
        }
    }

    /// Blocks until the pool has no worker left.
    #[cfg(all(test, rayon_core_tests))]
    pub(crate) fn wait_until_stopped(&self) {
        self.queue.flush().expect("the caller is not in the pool");
    }
}

/// How many more thieves than members may be active: those that find no number left, and end.
const SPARE: usize = 64;

/// The largest size of a pool. A queue has at most 2048 active items.
pub(crate) const LARGEST: usize = 2048 - SPARE;

/// Gives a panic to the handler. It ends the process if there is no handler, or if the handler panics too.
pub(crate) fn handle_panic(handler: Option<&PanicHandler>, payload: Box<dyn Any + Send>) {
    struct Abort;
    impl Drop for Abort {
        fn drop(&mut self) {
            eprintln!(
                "rayon: a closure of `spawn` panicked, and no panic handler took that; aborting"
            );
            std::process::abort();
        }
    }
    let abort = Abort;
    if let Some(handler) = handler {
        handler(payload);
        std::mem::forget(abort);
    }
}

/// As in rayon's own crate, for its tests.
#[cfg(all(test, rayon_core_tests))]
pub(crate) fn in_worker<R: Send>(f: impl FnOnce(&(), bool) -> R + Send) -> R {
    Registry::current().run_in_worker(|| f(&(), false))
}
