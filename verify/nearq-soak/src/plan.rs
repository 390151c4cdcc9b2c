//! A program of the soak as data: the machine, the faults on it, the queues, the items and what each thread does. `words` prints it.
//!
//! # What keeps a program from waiting for itself
//! Everything that waits inside an item (a join, a scope, the drop of a queue) goes to a queue with a higher number than the queue the item
//! runs on, so no circle of waiting can close. A queue that is dropped early is used only by its own items and those of lower queues. Only
//! issuers wait for items. What wakes a future is on the same queue as the future or on a higher one. Only one thread, the queue's *owner*,
//! changes its attributes: so it is always known which of them may be in effect. The first issuer owns the runtime's settings and the
//! machine's limits. It also freezes, and thaws before it does anything else. Only the last queue may be freezable: what runs on it waits
//! for nothing, so freezing always ends.
//!
//! A fork on the queue that a body certainly runs on waits only for parts of it that run already. An item that has several queues forks on
//! none of them: it may have queued itself there, and the fork could wait behind that.

use std::sync::Arc;
use std::time::Duration;

use nearq::{AffinityScope, Attributes, CpuSet};
use nearq_sim::{Faults, Schedule};
use nearq_topology::{Limits, Quota, Topology};

/// Where an item is queued.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Here,
    Cpu(usize),
    Node(usize),
}

/// What happens to the handle of a closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// Joined at once.
    Join,
    /// Polled once as a future, then joined.
    Poll,
    /// Joined when the thread ends.
    Keep,
    /// Dropped at once: the closure runs on without it.
    Drop,
    /// Cancelled at once, then joined.
    Cancel,
}

/// How a future waits between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// The future wakes itself that many times.
    Own(usize),
    /// A closure on the queue wakes it; if the closure does not run, its drop does.
    Closure { queue: usize },
    /// A thread outside of the runtime wakes it, and perhaps once more when it may have ended.
    Outside { twice: bool },
}

/// A future of the program: what it does at each poll except the last, and what it then waits for.
#[derive(Clone, Debug, Default)]
pub(crate) struct FuturePlan {
    pub(crate) pauses: Vec<(Duration, Pause)>,
    pub(crate) panics: bool,
}

/// A member of a set.
#[derive(Clone, Debug)]
pub(crate) enum Member {
    Closure(Arc<Body>),
    Future(Arc<FuturePlan>),
}

/// What happens to a set after that many members have been joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetEnd {
    /// All are joined.
    Join,
    /// All are cancelled, then joined.
    Cancel,
    /// The set is dropped.
    Drop,
}

/// What a fork runs: a leaf, or two parts that are joined.
#[derive(Clone, Debug)]
pub(crate) enum Tree {
    Leaf(Body),
    Fork(Box<Tree>, Box<Tree>),
}

/// What an item or a closure does when it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) steps: Vec<Step>,
    /// Whether it panics at the end, on purpose.
    pub(crate) panics: bool,
}

/// A step of a body.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Compute(Duration),
    Sleep(Duration),
    /// The same, but tells the runtime that it blocks.
    Block(Duration),
    Yield,
    /// Queues an item, perhaps its own; does nothing once that item's budget is spent.
    Queue {
        item: usize,
        queue: usize,
        to: To,
    },
    Spawn {
        queue: usize,
        body: Arc<Body>,
        handle: Handle,
    },
    Scope {
        queue: usize,
        bodies: Vec<Arc<Body>>,
    },
    /// Runs a tree of joins on the queue, without an `install` if it is bare.
    Fork {
        queue: usize,
        tree: Arc<Tree>,
        bare: bool,
    },
    DropQueue {
        queue: usize,
    },
    /// Flushes a queue, by a call or by a future.
    Flush {
        queue: usize,
        polled: bool,
    },
    /// Drains a queue, by a call or by a future.
    Drain {
        queue: usize,
        polled: bool,
    },
    /// Queues an item for later, or again in place of what is queued.
    Delay {
        item: usize,
        queue: usize,
        cpu: Option<usize>,
        time: Duration,
        modify: bool,
    },
    /// Cancels an item; `sync` waits for the execution that runs, except in the item's own body, where that is refused.
    Cancel {
        item: usize,
        sync: bool,
    },
    /// Waits for an item, perhaps without waiting for its time.
    FlushItem {
        item: usize,
        polled: bool,
        early: bool,
    },
    /// Disables an item for a time, tries to queue it meanwhile, and enables it, perhaps queueing it.
    Disable {
        item: usize,
        sync: bool,
        queue: usize,
        time: Duration,
        queue_after: bool,
    },
    Future {
        queue: usize,
        plan: Arc<FuturePlan>,
        handle: Handle,
    },
    /// Joins `joined` members at most, then ends.
    Set {
        queue: usize,
        members: Vec<Member>,
        joined: usize,
        end: SetEnd,
    },
    /// Drops the program's handle of an item, perhaps of the one that runs.
    DropItem {
        item: usize,
    },
}

/// A change of a queue.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    AffinityScope(Option<AffinityScope>),
    Strict(bool),
    Localize(bool),
    Helping(bool),
    Affinity(bool),
    Mask(Option<CpuSet>),
    Nice(i32),
    Idle(bool),
    Slice(Option<Duration>),
    MaxActive(usize),
    MinActive(usize),
}

/// What an issuer does.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Step(Step),
    /// Waits until everything that was queued on the queue before has ended, without help from the runtime.
    Await {
        queue: usize,
    },
    Change {
        queue: usize,
        change: Change,
    },
    /// Changes the slice that many times, to another value each time.
    Restless {
        queue: usize,
        times: usize,
    },
    DefaultScope(AffinityScope),
    RuntimeAffinity(bool),
    Spin(u32),
    Refresh,
    /// Freezes, waits for that long, and thaws.
    Freeze(Duration),
    /// The administrator changes what the process may use.
    Limits(Allowance),
}

/// What the process may use of the machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Allowance {
    pub(crate) cpus: Option<CpuSet>,
    /// In tenths of a CPU.
    pub(crate) quota: Option<usize>,
}

/// What kind of queue it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Unbound,
    PerCpu,
    Ordered,
}

/// A queue of the program.
#[derive(Clone, Debug)]
pub(crate) struct QueuePlan {
    pub(crate) attributes: Attributes,
    pub(crate) max_active: usize,
    /// Whether a thread drops it while other threads may still use it.
    pub(crate) dropped_early: bool,
    pub(crate) kind: Kind,
    pub(crate) freezable: bool,
    pub(crate) rescuer: bool,
    pub(crate) cpu_intensive: bool,
}

/// An item of the program.
#[derive(Clone, Debug)]
pub(crate) struct ItemPlan {
    /// The queues on which it is queued.
    pub(crate) queues: Vec<usize>,
    pub(crate) body: Body,
    /// It panics in one of this many executions; never if 0.
    pub(crate) panics_every: u64,
    /// How often bodies may queue it.
    pub(crate) budget: u64,
}

/// A thread of the program.
#[derive(Clone, Debug)]
pub(crate) struct IssuerPlan {
    /// The only CPU that it runs on.
    pub(crate) pinned: Option<usize>,
    pub(crate) ops: Vec<Op>,
}

/// Further difficulties for a program, besides the faults of the machine. They are drawn separately from the rest, so that a seed gives the
/// same program with and without them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hardships {
    /// How long each worker stays in its start hook and in its stop hook.
    pub(crate) hooks: Option<Duration>,
    /// Whether each hook panics at its end.
    pub(crate) hooks_panic: bool,
    /// The maximum number of threads that the runtime may have.
    pub(crate) threads: Option<u32>,
    /// After the first duration, every new thread is refused, for the second duration.
    pub(crate) refused: Option<(Duration, Duration)>,
    /// Whether the values that items and the closures of scopes captured panic when they are dropped; the values of other closures also do,
    /// unless the closure ran.
    pub(crate) drops_panic: bool,
    /// A queue, a number of changes and a number of steps: after these steps, the queue's owner changes its slice that many times.
    pub(crate) restless: Option<(usize, usize, usize)>,
}

/// The runtime's settings.
#[derive(Clone, Debug)]
pub(crate) struct RuntimePlan {
    pub(crate) default_affinity_scope: AffinityScope,
    pub(crate) affinity: bool,
    pub(crate) shard_size: usize,
    pub(crate) spin: u32,
    pub(crate) idle_timeout: Duration,
}

/// A program, and the machine that it runs on.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(crate) seed: u64,
    /// The machine, as hwloc's synthetic description.
    pub(crate) machine: String,
    pub(crate) allowance: Allowance,
    pub(crate) schedule: Schedule,
    pub(crate) faults: Faults,
    pub(crate) hardships: Hardships,
    pub(crate) runtime: RuntimePlan,
    pub(crate) queues: Vec<QueuePlan>,
    pub(crate) items: Vec<ItemPlan>,
    pub(crate) issuers: Vec<IssuerPlan>,
}

impl Plan {
    /// Whether what the process may use stays as it was at the start.
    pub(crate) fn limits_are_fixed(&self) -> bool {
        let changed = |op: &Op| matches!(op, Op::Limits(_));
        self.faults.offline_every.is_zero()
            && self.faults.limits_every.is_zero()
            && !self.issuers.iter().flat_map(|issuer| &issuer.ops).any(changed)
    }

    /// Whether the queue may refuse an item when its time comes, or be gone.
    pub(crate) fn may_go(&self, queue: usize) -> bool {
        self.queues[queue].dropped_early || self.is_drained(queue)
    }

    /// Whether no item that workers run waits for another item that they must run: then one worker is enough.
    pub(crate) fn needs_one_worker(&self) -> bool {
        self.items.iter().all(|item| item.body.waits_for_nothing())
            && self.issuer_steps().all(Step::starts_what_waits_for_nothing)
    }

    /// Whether a leaf of a fork waits: then any number of threads may wait at once.
    pub(crate) fn has_leaves_that_wait(&self) -> bool {
        self.steps().any(|step| match step {
            Step::Fork { tree, .. } => !tree.waits_for_nothing(),
            _ => false,
        })
    }

    /// Whether the program drains the queue: then it may refuse items.
    pub(crate) fn is_drained(&self, queue: usize) -> bool {
        self.steps().any(|step| step.drains(queue))
    }

    /// The steps of issuers and of items' bodies.
    fn steps(&self) -> impl Iterator<Item = &Step> {
        self.issuer_steps().chain(self.items.iter().flat_map(|item| &item.body.steps))
    }

    fn issuer_steps(&self) -> impl Iterator<Item = &Step> {
        self.issuers.iter().flat_map(|issuer| &issuer.ops).filter_map(|op| match op {
            Op::Step(step) => Some(step),
            _ => None,
        })
    }

    /// The machine.
    pub(crate) fn topology(&self) -> Topology {
        Topology::from_synthetic(&self.machine).expect("taken from a list that is well formed")
    }

    /// The machine's CPUs.
    pub(crate) fn possible(&self) -> CpuSet {
        self.topology().possible().clone()
    }
}

impl Body {
    fn waits_for_nothing(&self) -> bool {
        self.steps.iter().all(|step| {
            let goes_on = match step {
                Step::Spawn { handle, .. } | Step::Future { handle, .. } => {
                    matches!(handle, Handle::Drop)
                }
                Step::Cancel { sync, .. } => !sync,
                Step::Compute(_)
                | Step::Sleep(_)
                | Step::Block(_)
                | Step::Yield
                | Step::Queue { .. }
                | Step::Delay { .. } => true,
                _ => false,
            };
            goes_on && step.starts_what_waits_for_nothing()
        })
    }
}

impl Tree {
    /// The leaves, from the first to the last.
    pub(crate) fn leaves(&self) -> Vec<&Body> {
        match self {
            Tree::Leaf(body) => vec![body],
            Tree::Fork(a, b) => [a.leaves(), b.leaves()].concat(),
        }
    }

    /// The number of leaves.
    pub(crate) fn count(&self) -> usize {
        self.leaves().len()
    }

    fn waits_for_nothing(&self) -> bool {
        self.leaves().into_iter().all(Body::waits_for_nothing)
    }
}

impl Step {
    /// Whether what the step makes workers run waits for nothing.
    fn starts_what_waits_for_nothing(&self) -> bool {
        let within = |body: &Arc<Body>| body.waits_for_nothing();
        match self {
            Step::Spawn { body, .. } => within(body),
            Step::Scope { bodies, .. } => bodies.iter().all(within),
            Step::Fork { tree, .. } => tree.waits_for_nothing(),
            Step::Set { members, .. } => {
                let closure = |member: &Member| match member {
                    Member::Closure(body) => within(body),
                    Member::Future(_) => true,
                };
                members.iter().all(closure)
            }
            _ => true,
        }
    }

    /// Whether the step drains the queue, or something that it queues does.
    fn drains(&self, queue: usize) -> bool {
        let within = |body: &Arc<Body>| body.steps.iter().any(|step| step.drains(queue));
        match self {
            Step::Drain { queue: drained, .. } => *drained == queue,
            Step::Spawn { body, .. } => within(body),
            Step::Scope { bodies, .. } => bodies.iter().any(within),
            Step::Fork { tree, .. } => {
                tree.leaves().iter().any(|leaf| leaf.steps.iter().any(|step| step.drains(queue)))
            }
            Step::Set { members, .. } => {
                members.iter().any(|member| matches!(member, Member::Closure(body) if within(body)))
            }
            _ => false,
        }
    }
}

impl Allowance {
    /// The same, in the form that the platform uses.
    pub(crate) fn limits(&self, possible: &CpuSet) -> Limits {
        let mut limits = Limits::unlimited(possible.clone());
        limits.cpuset.clone_from(&self.cpus);
        limits.quota = self.quota.map(|tenths| Quota::new(tenths as f64 / 10.0, "cpu.max"));
        limits
    }
}

/// The name of a queue in the program, its trace and its verdict.
pub(crate) fn queue_name(queue: usize) -> String {
    format!("queue-{queue}")
}

/// The default attributes, changed.
#[cfg(test)]
pub(crate) fn attributes_with(change: impl FnOnce(&mut Attributes)) -> Attributes {
    let mut attributes = Attributes::new();
    change(&mut attributes);
    attributes
}
