//! The pools that fork and join: ours, the others, and the sequential program.
//!
//! A program is written once, for any [`Pool`]. A pool's closures get a scope, through which they fork: chili passes one to each closure;
//! nearq and rayon find their worker in the thread, so their scope is empty.
//!
//! forte does not take part: its versions for Rust 1.95 never return from stopping their threads, and the later ones need Rust 1.96.

use crate::Error;
use crate::harness::failed;
use nearq::Workqueue;
use nearq_topology::CpuSet;
use std::num::NonZero;

/// A pool of threads that can fork and join.
pub(super) trait Pool: Sized {
    /// That through which a closure forks.
    type Scope<'s>;

    /// That through which a thread outside of the pool calls it.
    type Caller<'p>;

    /// The name in tables.
    const NAME: &'static str;

    /// Starts a pool that keeps as many threads busy as there are `cpus`, the caller included if it takes part.
    fn start(cpus: &CpuSet) -> Result<Self, Error>;

    /// Runs `body`, in which the calling thread may call the pool.
    fn called<R>(&self, body: impl FnOnce(&mut Self::Caller<'_>) -> R) -> R;

    /// Runs `root` in the pool, from outside, and returns its result.
    fn run<R: Send>(
        caller: &mut Self::Caller<'_>,
        root: impl FnOnce(&mut Self::Scope<'_>) -> R + Send,
    ) -> R;

    /// Runs both closures, possibly at the same time.
    fn join<A, B, RA, RB>(scope: &mut Self::Scope<'_>, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut Self::Scope<'_>) -> RA + Send,
        B: FnOnce(&mut Self::Scope<'_>) -> RB + Send,
        RA: Send,
        RB: Send;
}

/// A queue with the usual scope, on a runtime of its own.
pub(super) struct Nearq(Workqueue);

impl Pool for Nearq {
    type Scope<'s> = ();
    type Caller<'p> = &'p Workqueue;
    const NAME: &'static str = "nearq";

    fn start(cpus: &CpuSet) -> Result<Self, Error> {
        let runtime = nearq::Runtime::builder().build().map_err(failed)?;
        let queue = runtime.workqueue_builder("join").cpumask(cpus.clone()).build();
        queue.map(Self).map_err(failed)
    }

    fn called<R>(&self, body: impl FnOnce(&mut &Workqueue) -> R) -> R {
        body(&mut &self.0)
    }

    fn run<R: Send>(caller: &mut &Workqueue, root: impl FnOnce(&mut ()) -> R + Send) -> R {
        caller.install(|| root(&mut ()))
    }

    #[inline]
    fn join<A, B, RA, RB>((): &mut (), a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        nearq::join(|| a(&mut ()), || b(&mut ()))
    }
}

/// rayon: every job is visible to thieves at once.
pub(super) struct Rayon(rayon::ThreadPool);

impl Pool for Rayon {
    type Scope<'s> = ();
    type Caller<'p> = &'p rayon::ThreadPool;
    const NAME: &'static str = "rayon";

    fn start(cpus: &CpuSet) -> Result<Self, Error> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(cpus.len()).build();
        pool.map(Self).map_err(failed)
    }

    fn called<R>(&self, body: impl FnOnce(&mut &rayon::ThreadPool) -> R) -> R {
        body(&mut &self.0)
    }

    fn run<R: Send>(caller: &mut &rayon::ThreadPool, root: impl FnOnce(&mut ()) -> R + Send) -> R {
        caller.install(|| root(&mut ()))
    }

    #[inline]
    fn join<A, B, RA, RB>((): &mut (), a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        rayon::join(|| a(&mut ()), || b(&mut ()))
    }
}

/// chili: a job becomes visible at a heartbeat of 100 us. The calling thread is one of the pool's.
pub(super) struct Chili(chili::ThreadPool);

impl Pool for Chili {
    type Scope<'s> = chili::Scope<'s>;
    type Caller<'p> = chili::Scope<'p>;
    const NAME: &'static str = "chili";

    fn start(cpus: &CpuSet) -> Result<Self, Error> {
        let thread_count = NonZero::new(cpus.len());
        let config = chili::Config { thread_count, ..chili::Config::default() };
        Ok(Self(chili::ThreadPool::with_config(config)))
    }

    fn called<R>(&self, body: impl FnOnce(&mut chili::Scope<'_>) -> R) -> R {
        body(&mut self.0.scope())
    }

    fn run<R: Send>(
        caller: &mut chili::Scope<'_>,
        root: impl FnOnce(&mut chili::Scope<'_>) -> R + Send,
    ) -> R {
        root(caller)
    }

    #[inline]
    fn join<A, B, RA, RB>(scope: &mut chili::Scope<'_>, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut chili::Scope<'_>) -> RA + Send,
        B: FnOnce(&mut chili::Scope<'_>) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        scope.join(a, b)
    }
}

/// Both closures in turn, on the calling thread.
pub(super) struct Sequential;

impl Pool for Sequential {
    type Scope<'s> = ();
    type Caller<'p> = ();
    const NAME: &'static str = "sequential";

    fn start(_cpus: &CpuSet) -> Result<Self, Error> {
        Ok(Self)
    }

    fn called<R>(&self, body: impl FnOnce(&mut ()) -> R) -> R {
        body(&mut ())
    }

    fn run<R: Send>((): &mut (), root: impl FnOnce(&mut ()) -> R + Send) -> R {
        root(&mut ())
    }

    #[inline]
    fn join<A, B, RA, RB>((): &mut (), a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut ()) -> RA + Send,
        B: FnOnce(&mut ()) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        (a(&mut ()), b(&mut ()))
    }
}

/// The sequential program, which counts its joins in its scope.
pub(super) struct Counted;

impl Pool for Counted {
    type Scope<'s> = u64;
    type Caller<'p> = u64;
    const NAME: &'static str = "counted";

    fn start(_cpus: &CpuSet) -> Result<Self, Error> {
        Ok(Self)
    }

    fn called<R>(&self, body: impl FnOnce(&mut u64) -> R) -> R {
        body(&mut 0)
    }

    fn run<R: Send>(caller: &mut u64, root: impl FnOnce(&mut u64) -> R + Send) -> R {
        root(caller)
    }

    fn join<A, B, RA, RB>(joins: &mut u64, a: A, b: B) -> (RA, RB)
    where
        A: FnOnce(&mut u64) -> RA + Send,
        B: FnOnce(&mut u64) -> RB + Send,
        RA: Send,
        RB: Send,
    {
        *joins += 1;
        (a(joins), b(joins))
    }
}
