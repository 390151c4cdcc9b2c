//! Those who take part in the `dispatch` experiment, and what they take part in.

use super::gauge::Gauge;
use super::load::{self, Detached, Sample, flood, idle};
use crate::Error;
use crate::harness::Host;
use crate::peers::{AsyncExecutor, Bounded, Peer, Rayon, ThreadPool, Tokio, Unbounded};
use nearq_platform::Linux;
use nearq_topology::CpuSet;
use std::marker::PhantomData;
use std::rc::Rc;
use std::time::Duration;

/// A load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Load {
    /// Items from one thread outside of the pool, whose end nobody waits for.
    Outside,
    /// The same, and the issuer waits for every result.
    Joined,
    /// Items queued by a worker.
    Inside,
    /// Single items with a gap between them.
    Idle,
    /// As outside, requeueing, for every scope.
    Scope,
    /// An issuer on each CPU, which waits for its item before it queues the next: the kernel's test_workqueue.
    Issuers,
}

impl Load {
    /// All loads, in the order of the tables.
    pub const ALL: [Self; 6] =
        [Self::Outside, Self::Joined, Self::Inside, Self::Idle, Self::Scope, Self::Issuers];

    /// The scenario's name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Outside => "outside",
            Self::Joined => "joined",
            Self::Inside => "inside",
            Self::Idle => "idle",
            Self::Scope => "scope",
            Self::Issuers => "issuers",
        }
    }
}

/// How long and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Threads of every pool.
    pub threads: usize,
    /// The CPUs that may be used.
    pub cpus: CpuSet,
    /// Items of each issuer that are counted, where there is one on each CPU.
    pub items: usize,
    /// How long a flood lasts.
    pub duration: Duration,
    /// Not counted, before each flood.
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

    /// Whether it is ours, or somebody to compare with.
    fn ours(&self) -> bool;

    /// One round, with a pool that is started for it and is gone afterwards.
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
            Load::Outside | Load::Idle => Some(Q::NAME),
            Load::Joined => Some(Q::JOINED),
            Load::Inside => self.inside.then_some(Q::NAME),
            Load::Scope | Load::Issuers => None,
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
                Load::Outside | Load::Scope | Load::Issuers => {
                    flood(&mut feed, gauge, plan.duration)
                }
                Load::Joined => Ok(load::joined(&pool, gauge, plan.duration)),
                Load::Inside => load::inside(pool, gauge, plan.duration),
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
