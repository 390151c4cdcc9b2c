//! A program of the soak as data: the machine, what goes wrong on it, the queues, the items and who does what; and
//! the same in words.
//!
//! # What keeps a program from waiting for itself
//! Everything that waits inside an item (a join, a scope, the drop of a queue) goes to a queue with a higher number than the
//! queue the item runs on, so no circle of waiting can close. A queue that is dropped early is used by items of its own and of
//! lower queues alone. Only issuers wait for items. What wakes a future is on no lower queue than the future. Only one thread,
//! its *owner*, changes a queue's attributes: so it is known at any time which of them may be in effect. The first issuer owns
//! the runtime's settings and the machine's limits. It also freezes, and thaws before it does anything else. Only the last
//! queue may be freezable: what runs on it waits for nothing, so freezing comes to its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use nearq::{Attributes, CpuSet, Scope};
use nearq_sim::{Faults, Schedule};
use nearq_topology::{Limits, Quota, Topology};

/// Where a queueing goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum To {
    Here,
    Cpu(usize),
    Node(usize),
}

/// What becomes of the handle of a closure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handle {
    /// Joined at once.
    Join,
    /// Polled once as a future, then joined.
    Poll,
    /// Joined when the thread comes to its end.
    Keep,
    /// Dropped at once: the closure goes on by itself.
    Drop,
    /// Cancelled at once, then joined.
    Cancel,
}

/// How a future waits between two polls.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pause {
    /// It wakes itself, so many times.
    Own(usize),
    /// A closure on the queue wakes it, or its end if it does not run.
    Closure { queue: usize },
    /// A thread that knows nothing of the runtime wakes it, and maybe once more when it may have ended.
    Outside { twice: bool },
}

/// A future of the program: what it does at each poll but the last, and what it waits for then.
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

/// What becomes of a set after so many members have been joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SetEnd {
    /// All are joined.
    Join,
    /// All are cancelled, then joined.
    Cancel,
    /// The set is dropped.
    Drop,
}

/// What an item or a closure does when it runs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Body {
    pub(crate) steps: Vec<Step>,
    /// It panics at the end, on purpose.
    pub(crate) panics: bool,
}

/// A step of a body.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Compute(Duration),
    Sleep(Duration),
    /// The same, and says so.
    Block(Duration),
    Yield,
    /// Queues an item, maybe its own; not any more once that item's budget is spent.
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
    DropQueue {
        queue: usize,
    },
    /// Lets the runtime flush a queue, as a call or as a future.
    Flush {
        queue: usize,
        polled: bool,
    },
    /// Lets the runtime drain a queue, as a call or as a future.
    Drain {
        queue: usize,
        polled: bool,
    },
    /// Queues an item for later, or anew in place of what is queued.
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
    /// Waits for an item, maybe without waiting for its time.
    FlushItem {
        item: usize,
        polled: bool,
        early: bool,
    },
    /// Disables an item for a time, tries to queue it meanwhile, and enables it, maybe queueing it.
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
    /// Drops the program's handle of an item, maybe of the one that runs.
    DropItem {
        item: usize,
    },
}

/// A change of a queue.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    Scope(Option<Scope>),
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
    /// Waits until everything that was queued on the queue before has ended, without any help of the runtime.
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
    DefaultScope(Scope),
    RuntimeAffinity(bool),
    Spin(u32),
    Refresh,
    /// Freezes, waits for so long, and thaws.
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
    /// Somebody drops it while others may still use it.
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
    /// It panics at every so many-th execution; never if 0.
    pub(crate) panics_every: u64,
    /// How often bodies may queue it.
    pub(crate) budget: u64,
}

/// A thread of the program.
#[derive(Clone, Debug)]
pub(crate) struct IssuerPlan {
    /// The one CPU it runs on.
    pub(crate) pinned: Option<usize>,
    pub(crate) ops: Vec<Op>,
}

/// What makes a program's life harder, besides the faults of the machine. Drawn apart from the rest, so that a seed gives the same program
/// with and without hardships.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hardships {
    /// How long each worker stays in its start hook and in its stop hook.
    pub(crate) hooks: Option<Duration>,
    /// The most threads that the runtime may have.
    pub(crate) threads: Option<u32>,
    /// After the first time, every new thread is refused, for the second time.
    pub(crate) refused: Option<(Duration, Duration)>,
    /// What closures captured panics when it is dropped, unless the closure ran.
    pub(crate) drops_panic: bool,
    /// A queue, a number of changes and a number of steps: after these steps, the queue's owner changes its slice that many times.
    pub(crate) restless: Option<(usize, usize, usize)>,
}

/// The runtime's settings.
#[derive(Clone, Debug)]
pub(crate) struct RuntimePlan {
    pub(crate) default_scope: Scope,
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

    /// Whether somebody drains the queue: then it may refuse items.
    pub(crate) fn is_drained(&self, queue: usize) -> bool {
        let bodies = self.items.iter().map(|item| &item.body);
        let ops = self.issuers.iter().flat_map(|issuer| &issuer.ops);
        let steps = ops.filter_map(|op| match op {
            Op::Step(step) => Some(step),
            _ => None,
        });
        steps.chain(bodies.flat_map(|body| &body.steps)).any(|step| step.drains(queue))
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

impl Step {
    /// Whether the step drains the queue, or something that it queues does.
    fn drains(&self, queue: usize) -> bool {
        let within = |body: &Arc<Body>| body.steps.iter().any(|step| step.drains(queue));
        match self {
            Step::Drain { queue: drained, .. } => *drained == queue,
            Step::Spawn { body, .. } => within(body),
            Step::Scope { bodies, .. } => bodies.iter().any(within),
            Step::Set { members, .. } => {
                members.iter().any(|member| matches!(member, Member::Closure(body) if within(body)))
            }
            _ => false,
        }
    }
}

impl Allowance {
    /// The same as the platform says it.
    pub(crate) fn limits(&self, possible: &CpuSet) -> Limits {
        let mut limits = Limits::unlimited(possible.clone());
        limits.cpuset.clone_from(&self.cpus);
        limits.quota =
            self.quota.map(|tenths| Quota { cpus: tenths as f64 / 10.0, source: "cpu.max".into() });
        limits
    }
}

// ---- in words --------------------------------------------------------------------------------------------

/// In which form something is waited for.
fn as_future(polled: bool) -> &'static str {
    if polled { ", first as a future" } else { "" }
}

/// The name under which the program, its trace and its verdict know a queue.
pub(crate) fn queue_name(queue: usize) -> String {
    format!("queue-{queue}")
}

impl fmt::Display for To {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            To::Here => Ok(()),
            To::Cpu(cpu) => write!(f, " for CPU {cpu}"),
            To::Node(node) => write!(f, " for node {node}"),
        }
    }
}

impl fmt::Display for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Handle::Join => " and join it",
            Handle::Poll => ", poll it once, then join it",
            Handle::Keep => ", join it at the end",
            Handle::Drop => ", drop the handle",
            Handle::Cancel => ", cancel it, then join it",
        })
    }
}

impl fmt::Display for FuturePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("<")?;
        for (time, pause) in &self.pauses {
            write!(f, "{time:?}, {pause:?}; ")?;
        }
        f.write_str(if self.panics { "panic>" } else { ">" })
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{ ")?;
        for (at, step) in self.steps.iter().enumerate() {
            write!(f, "{}{step}", if at == 0 { "" } else { "; " })?;
        }
        f.write_str(if self.panics { "; panic }" } else { " }" })
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Compute(time) => write!(f, "compute {time:?}"),
            Step::Sleep(time) => write!(f, "sleep {time:?}"),
            Step::Block(time) => write!(f, "block for {time:?}"),
            Step::Yield => f.write_str("yield"),
            Step::Queue { item, queue, to } => write!(f, "queue item {item} on queue-{queue}{to}"),
            Step::Spawn { queue, body, handle } => {
                write!(f, "spawn {body} on queue-{queue}{handle}")
            }
            Step::Scope { queue, bodies } => {
                write!(f, "scope of {} closures on queue-{queue}:", bodies.len())?;
                bodies.iter().try_for_each(|body| write!(f, " {body}"))
            }
            Step::Flush { queue, polled } => write!(f, "flush queue-{queue}{}", as_future(*polled)),
            Step::Drain { queue, polled } => write!(f, "drain queue-{queue}{}", as_future(*polled)),
            Step::Delay { item, queue, cpu, time, modify } => {
                let (how, to) =
                    (if *modify { "move" } else { "queue" }, cpu.map_or(To::Here, To::Cpu));
                write!(f, "{how} item {item} to queue-{queue}{to} in {time:?}")
            }
            Step::Cancel { item, sync } => {
                write!(f, "cancel item {item}{}", if *sync { " and wait" } else { "" })
            }
            Step::FlushItem { item, polled, early } => {
                let early = if *early { " before its time" } else { "" };
                write!(f, "flush item {item}{early}{}", as_future(*polled))
            }
            Step::Disable { item, sync, queue, time, queue_after } => write!(
                f,
                "disable item {item}{}, try queue-{queue}, wait {time:?}, enable it{}",
                if *sync { " and wait" } else { "" },
                if *queue_after { " and queue it" } else { "" }
            ),
            Step::Future { queue, plan, handle } => {
                write!(f, "spawn future {plan} on queue-{queue}{handle}")
            }
            Step::Set { queue, members, joined, end } => {
                write!(f, "set on queue-{queue}:")?;
                for member in members {
                    match member {
                        Member::Closure(body) => write!(f, " {body}")?,
                        Member::Future(plan) => write!(f, " {plan}")?,
                    }
                }
                write!(f, "; join {joined}, then {end:?}")
            }
            Step::DropQueue { queue } => write!(f, "drop queue-{queue}"),
            Step::DropItem { item } => write!(f, "drop the handle of item {item}"),
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Scope(Some(scope)) => write!(f, "scope {scope}"),
            Change::Scope(None) => f.write_str("scope default"),
            Change::Strict(on) => write!(f, "strict {on}"),
            Change::Localize(on) => write!(f, "localize {on}"),
            Change::Helping(on) => write!(f, "helping {on}"),
            Change::Affinity(on) => write!(f, "affinity {on}"),
            Change::Mask(Some(mask)) => write!(f, "cpumask {mask}"),
            Change::Mask(None) => f.write_str("cpumask all"),
            Change::Nice(nice) => write!(f, "nice {nice}"),
            Change::Idle(on) => write!(f, "idle {on}"),
            Change::Slice(Some(slice)) => write!(f, "slice {slice:?}"),
            Change::Slice(None) => f.write_str("slice default"),
            Change::MaxActive(items) => write!(f, "max_active {items}"),
            Change::MinActive(items) => write!(f, "min_active {items}"),
        }
    }
}

impl fmt::Display for Allowance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cpus {
            Some(cpus) => write!(f, "CPUs {cpus}")?,
            None => f.write_str("all CPUs")?,
        }
        match self.quota {
            Some(tenths) => write!(f, ", a quota of {}.{} CPUs", tenths / 10, tenths % 10),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Step(step) => write!(f, "{step}"),
            Op::Await { queue } => write!(f, "await queue-{queue}"),
            Op::Change { queue, change } => write!(f, "set queue-{queue} {change}"),
            Op::Restless { queue, times } => {
                write!(f, "set the slice of queue-{queue} {times} times")
            }
            Op::DefaultScope(scope) => write!(f, "set the default scope {scope}"),
            Op::RuntimeAffinity(on) => write!(f, "set the runtime's affinity {on}"),
            Op::Spin(looks) => write!(f, "set spin {looks}"),
            Op::Freeze(time) => write!(f, "freeze for {time:?}"),
            Op::Refresh => f.write_str("refresh the runtime"),
            Op::Limits(allowance) => write!(f, "limit the process to {allowance}"),
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "seed {}", self.seed)?;
        writeln!(f, "machine: {}; the process has {}", self.machine, self.allowance)?;
        writeln!(f, "schedule: {:?}", self.schedule)?;
        writeln!(f, "faults: {}", faults_in_words(&self.faults))?;
        writeln!(f, "hardships: {}", self.hardships)?;
        let RuntimePlan { default_scope, affinity, shard_size, spin, idle_timeout } = &self.runtime;
        writeln!(
            f,
            "runtime: default scope {default_scope}, affinity {affinity}, {shard_size} cores a shard, {spin} looks, \
             workers end after {idle_timeout:?}"
        )?;
        for (number, queue) in self.queues.iter().enumerate() {
            let attributes = &queue.attributes;
            write!(f, "queue-{number}:")?;
            for change in [
                Change::Scope(attributes.scope),
                Change::Strict(attributes.strict),
                Change::Localize(attributes.localize),
                Change::Helping(attributes.helping),
                Change::Affinity(attributes.affinity),
                Change::Mask(attributes.cpumask.clone()),
                Change::Nice(attributes.nice),
                Change::Idle(attributes.idle),
                Change::Slice(attributes.slice),
                Change::MaxActive(queue.max_active),
            ] {
                write!(f, " {change},")?;
            }
            let kept = if queue.dropped_early { "may be dropped early" } else { "kept" };
            let freezable = if queue.freezable { ", freezable" } else { "" };
            let rescuer = if queue.rescuer { ", with a rescuer" } else { "" };
            let intensive = if queue.cpu_intensive { ", CPU intensive" } else { "" };
            writeln!(f, " {kept}, {:?}{freezable}{rescuer}{intensive}", queue.kind)?;
        }
        for (number, item) in self.items.iter().enumerate() {
            write!(f, "item {number}: on queues {:?}, {}", item.queues, item.body)?;
            if item.panics_every != 0 {
                write!(f, ", panics at every {}. execution", item.panics_every)?;
            }
            writeln!(f, ", bodies queue it at most {} times", item.budget)?;
        }
        for (number, issuer) in self.issuers.iter().enumerate() {
            match issuer.pinned {
                Some(cpu) => writeln!(f, "issuer-{number} on CPU {cpu}:")?,
                None => writeln!(f, "issuer-{number}:")?,
            }
            for (at, op) in issuer.ops.iter().enumerate() {
                writeln!(f, "  {at:>3}. {op}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Hardships {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Hardships { hooks, threads, refused, drops_panic, restless } = self;
        let mut words = Vec::new();
        words.extend(hooks.map(|time| format!("hooks that take {time:?}")));
        words.extend(threads.map(|threads| format!("{threads} threads at most")));
        words.extend(
            refused.map(|(after, time)| format!("threads refused for {time:?} after {after:?}")),
        );
        words.extend(drops_panic.then(|| "drops that panic".to_owned()));
        words.extend(restless.map(|(queue, times, _)| format!("{times} changes of queue-{queue}")));
        if words.is_empty() { f.write_str("none") } else { f.write_str(&words.join(", ")) }
    }
}

/// The faults that are on.
fn faults_in_words(faults: &Faults) -> String {
    let mut words = Vec::new();
    let mut chance = |one_in: u64, what: String| {
        if one_in != 0 {
            words.push(format!("{what} one in {one_in}"));
        }
    };
    chance(faults.spawn_refused_one_in, "threads refused".into());
    chance(faults.spurious_wake_one_in, "waits that end for no reason".into());
    chance(faults.late_timer_one_in, format!("timers late by up to {:?}", faults.late_timer));
    chance(faults.preempted_one_in, format!("threads preempted for up to {:?}", faults.preemption));
    let mut every = |time: Duration, what: &str| {
        if !time.is_zero() {
            words.push(format!("{what} every {time:?}"));
        }
    };
    every(faults.offline_every, "a CPU offline");
    every(faults.limits_every, "other limits");
    if faults.states_hidden {
        words.push("what threads do is not told".into());
    }
    if words.is_empty() { "none".into() } else { words.join(", ") }
}
