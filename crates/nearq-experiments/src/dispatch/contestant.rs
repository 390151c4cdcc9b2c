//! The contestants: the other pools and ours, and the operations that each provides.

use super::gauge::{Gauge, PROBES};
use super::load::{self, Detached, Feed, IN_FLIGHT, Sample, flood, idle, in_turn, insist, issuers};
use super::{distinct_scopes, targets};
use crate::harness::{Host, failed};
use crate::peers::{AsyncExecutor, Bounded, Peer, Rayon, ThreadPool, Tokio, Unbounded};
use crate::{Error, Machine};
use nearq::{JoinHandle, Runtime, Work, Workqueue};
use nearq_platform::{Linux, Platform};
use nearq_topology::{AffinityScope, CpuSet};
use std::array;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

// The contestants of the `dispatch` experiment, and the loads that they take part in.

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Items from one thread outside the pool, which does not wait for their end.
    Outside,
    /// As before, but the issuer waits for every result.
    Joined,
    /// Items queued by a worker.
    Inside,
    /// Closures from many threads outside the pool at once, which do not wait for their end.
    ManyOutside,
    /// Single items with a gap between them.
    Idle,
    /// As the load from outside, with requeued items, for every scope.
    Scope,
    /// An issuer on each CPU, which waits for its item before it queues the next one, as in the kernel's test_workqueue.
    Issuers,
    /// The same with the kernel's own workqueues, on simulated machines.
    Kernel,
}

impl Load {
    /// All loads, in the order of the tables.
    pub const ALL: [Self; 8] = [
        Self::Outside,
        Self::Joined,
        Self::Inside,
        Self::ManyOutside,
        Self::Idle,
        Self::Scope,
        Self::Issuers,
        Self::Kernel,
    ];

    /// Whether an issuer on each CPU waits for its items: then the rows are scopes, and the times of the calls are reported in full.
    pub(super) fn has_issuers(self) -> bool {
        matches!(self, Self::Issuers | Self::Kernel)
    }

    /// The scenario's name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Joined => "joined",
            Self::Inside => "inside",
            Self::ManyOutside => "many outside",
            Self::Idle => "idle",
            Self::Scope => "scope",
            Self::Issuers => "issuers",
            Self::Kernel => "issuers, kernel",
        }
    }
}

/// How long and how often is measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Threads of every pool.
    pub threads: usize,
    /// The CPUs that may be used.
    pub cpus: CpuSet,
    /// Counted items of each issuer, if there is an issuer on each CPU.
    pub items: usize,
    /// Counted closures of each of many outside threads.
    pub closures: usize,
    /// How long a flood lasts.
    pub duration: Duration,
    /// The time before each flood that is not counted.
    pub warm_up: Duration,
    /// Single items of an idle round.
    pub idle_samples: usize,
    /// The gap between them.
    pub gap: Duration,
}

/// One row of a table.
pub trait Contestant<P: Host> {
    /// The row's name under a load; `None` if it does not take part.
    fn row(&self, load: Load) -> Option<&'static str>;

    /// Whether it is ours, or a pool to compare with.
    fn ours(&self) -> bool;

    /// One round, with a pool that is started for it and stopped afterwards.
    fn measure(&self, load: Load, plan: &Plan, gauge: &'static Gauge<P>) -> Result<Sample, Error>;
}

/// A pool of closures as a contestant.
#[derive(Debug)]
pub struct Closures<Q> {
    /// Whether items queued by workers are measured.
    pub inside: bool,
    /// Whether it is ours.
    pub ours: bool,
    /// The pool.
    pub pool: PhantomData<Q>,
}

impl<Q: Peer, P: Host> Contestant<P> for Closures<Q> {
    fn row(&self, load: Load) -> Option<&'static str> {
        match load {
            Load::Outside | Load::ManyOutside | Load::Idle => Some(Q::NAME),
            Load::Joined => Some(Q::JOINED),
            Load::Inside => self.inside.then_some(Q::NAME),
            Load::Scope | Load::Issuers | Load::Kernel => None,
        }
    }

    fn ours(&self) -> bool {
        self.ours
    }

    fn measure(&self, load: Load, plan: &Plan, gauge: &'static Gauge<P>) -> Result<Sample, Error> {
        P::alone(|| {
            let pool = Q::start(plan.threads)?;
            let mut feed = Detached { pool: &pool, gauge };
            if load != Load::Idle {
                flood(&mut feed, gauge, plan.warm_up)?;
            }
            match load {
                Load::Outside | Load::Scope | Load::Issuers | Load::Kernel => {
                    flood(&mut feed, gauge, plan.duration)
                }
                Load::Joined => Ok(load::joined(&pool, gauge, plan.duration)),
                Load::Inside => load::inside(pool, gauge, plan.duration),
                Load::ManyOutside => load::many_outside(pool, gauge, plan.closures),
                Load::Idle => idle(&mut feed, gauge, plan.idle_samples, plan.gap),
            }
        })
    }
}

fn peer<Q: Peer>(inside: bool) -> Rc<dyn Contestant<Linux>> {
    Rc::new(Closures { inside, ours: false, pool: PhantomData::<Q> })
}

/// The other pools; they are Linux programs.
pub fn peers() -> Vec<Rc<dyn Contestant<Linux>>> {
    vec![
        peer::<Rayon>(true),
        peer::<Tokio>(true),
        peer::<AsyncExecutor>(false),
        peer::<ThreadPool>(false),
        peer::<Bounded>(false),
        peer::<Unbounded>(false),
    ]
}

// nearq as a contestant of `dispatch`: this is the only file here that uses nearq's API.

/// Ours, in the order of the tables.
pub(crate) fn contestants<P: Host>(machine: &Machine) -> Vec<Rc<dyn Contestant<P>>> {
    let spawn = Closures { inside: true, ours: true, pool: PhantomData::<Spawn<P>> };
    let mut contestants: Vec<Rc<dyn Contestant<P>>> =
        vec![Rc::new(Requeue { scope: None }), Rc::new(spawn)];
    for scope in distinct_scopes(machine) {
        contestants.push(Rc::new(Requeue { scope: Some(scope) }));
    }
    contestants
}

/// A workqueue with default attributes except its scope, on a runtime of its own.
fn default_queue<P: Platform>(scope: Option<AffinityScope>) -> Result<Workqueue<P>, Error> {
    let runtime = Runtime::<P>::builder_in().build().map_err(failed)?;
    runtime.workqueue_builder("dispatch").affinity_scope(scope).build().map_err(failed)
}

/// Closures on a workqueue of default attributes.
#[derive(Debug)]
struct Spawn<P: Platform>(Workqueue<P>);

impl<P: Platform> Peer for Spawn<P> {
    type Join<T: Send + 'static> = JoinHandle<T, P>;

    const NAME: &'static str = targets::SPAWN;
    const JOINED: &'static str = targets::SPAWN;

    fn start(_threads: usize) -> Result<Self, Error> {
        default_queue(None).map(Self)
    }

    fn detach<F: FnOnce() + Send + 'static>(&self, function: F) {
        drop(self.0.spawn(function));
    }

    fn spawn<T: Send + 'static, F: FnOnce() -> T + Send + 'static>(
        &self,
        function: F,
    ) -> Self::Join<T> {
        self.0.spawn(function)
    }

    fn join<T: Send + 'static>(handle: Self::Join<T>) -> T {
        handle.join().expect("the closure does not panic")
    }
}

/// Reused items, in rotation.
#[derive(Debug)]
pub(crate) struct Requeue {
    /// A contestant that is measured for its scope, or the default.
    pub(crate) scope: Option<AffinityScope>,
}

impl<P: Host> Contestant<P> for Requeue {
    fn row(&self, load: Load) -> Option<&'static str> {
        match (load, self.scope) {
            (Load::Outside | Load::Idle, None) => Some(targets::REQUEUE),
            (Load::Scope | Load::Issuers, Some(scope)) => Some(scope.name()),
            _ => None,
        }
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&self, load: Load, plan: &Plan, gauge: &'static Gauge<P>) -> Result<Sample, Error> {
        P::alone(|| {
            let queue = default_queue(self.scope)?;
            if load == Load::Issuers {
                let queue = Arc::new(queue);
                return issuers(plan, gauge, |done| {
                    let queue = Arc::clone(&queue);
                    let work = |_| {
                        let done = Arc::clone(&done);
                        Work::new_in(move |_: &Work<P>| {
                            gauge.done();
                            done.unpark();
                        })
                    };
                    in_turn::<P, _>(array::from_fn(work), move |work| queue.queue(work))
                });
            }
            let plain = |_| Work::new_in(move |_: &Work<P>| gauge.done());
            let probe = |probe| {
                Work::new_in(move |_: &Work<P>| {
                    gauge.started(probe);
                    gauge.done();
                })
            };
            let works = (0..IN_FLIGHT).map(plain).collect();
            let probes = (0..PROBES).map(probe).collect();
            let mut rotation = Rotation { queue, works, probes, next: 0 };
            match load {
                Load::Idle => idle(&mut rotation, gauge, plan.idle_samples, plan.gap),
                _ => {
                    flood(&mut rotation, gauge, plan.warm_up)?;
                    flood(&mut rotation, gauge, plan.duration)
                }
            }
        })
    }
}

/// As many items as are in flight, queued one after the other.
struct Rotation<P: Platform> {
    queue: Workqueue<P>,
    works: Vec<Work<P>>,
    probes: Vec<Work<P>>,
    next: usize,
}

impl<P: Platform> Feed for Rotation<P> {
    #[inline]
    fn plain(&mut self) {
        let work = &self.works[self.next % IN_FLIGHT];
        self.next += 1;
        insist::<P>(|| self.queue.queue(work));
    }

    #[inline]
    fn probe(&mut self, probe: usize) {
        insist::<P>(|| self.queue.queue(&self.probes[probe]));
    }
}
