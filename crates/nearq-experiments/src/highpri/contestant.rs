//! The contestants: what the document replaced, a queue of ours by its priority, other pools, and a thread that only sleeps.

use super::issuer::{Plan, Samples, Start, Target, as_issuer, measure};
use super::one_list::{OneList, Priority};
use super::privilege::{self, MOST_FAVOURED};
use crate::Error;
use crate::harness::{Host, failed, on_thread};
use crate::peers::{Peer, Plain, Rayon, Tokio, alone};
use nearq::{Runtime, Work, Workqueue, WorkqueueBuilder};
use nearq_platform::{Instant, Linux, LockPlatform as _, ThreadSpec, Threads as _};
use nearq_topology::{AffinityScope, CpuSet};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

// The rows: what runs the item, and how favoured its thread is.

/// One run of a row.
type Measure = Rc<dyn Fn(&Plan) -> Result<Samples, Error>>;

/// One row of the table.
#[derive(Clone)]
pub(crate) struct Contestant {
    /// The row's name.
    pub(crate) row: &'static str,
    /// What the row is, in a few words.
    pub(crate) about: &'static str,
    /// The privilege that the caller needs for that; without it the row is left out.
    pub(crate) needs: Privilege,
    pub(crate) measure: Measure,
}

/// The privilege that a row needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Privilege {
    /// No privilege is needed.
    None,
    /// A nice value of -20.
    Favoured,
    /// A real-time thread.
    RealTime,
}

/// Names of rows that conclusions are drawn from, or that have published figures.
pub(crate) mod row {
    /// Head insertion, the document's "before".
    pub(crate) const HEAD: &str = "head of one list";
    /// Our queue of ordinary priority.
    pub(crate) const NORMAL: &str = "normal";
    /// Our high-priority queue.
    pub(crate) const HIGH: &str = "high";
    /// Our high-priority queue with the short slice.
    pub(crate) const HIGH_SLICE: &str = "high+slice";
    /// The high-priority queue, from the expiry of a timer.
    pub(crate) const HIGH_DELAYED: &str = "high delayed";
    /// A high-priority queue without the privilege to be favoured.
    pub(crate) const REFUSED: &str = "high refused";
    /// A real-time thread that only sleeps.
    pub(crate) const HICCUP: &str = "hiccup";
}

// nearq as a contestant.

/// The short slice.
pub(crate) const SLICE: Duration = Duration::from_micros(100);

/// How long the issuer waits for an item that is not off the queue yet.
const NOT_YET: Duration = Duration::from_micros(100);

/// The settings of a row's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct QueueVariant {
    row: &'static str,
    about: &'static str,
    high: bool,
    slice: bool,
    delayed: bool,
}

const NORMAL: QueueVariant = QueueVariant {
    row: row::NORMAL,
    about: "a queue of ordinary priority",
    high: false,
    slice: false,
    delayed: false,
};
const HIGH: QueueVariant =
    QueueVariant { row: row::HIGH, about: "a high-priority queue: nice -20", high: true, ..NORMAL };
const HIGH_SLICE: QueueVariant = QueueVariant {
    row: row::HIGH_SLICE,
    about: "the same with a slice of 100 us",
    slice: true,
    ..HIGH
};
const HIGH_DELAYED: QueueVariant = QueueVariant {
    row: row::HIGH_DELAYED,
    about: "the high-priority queue, queued by a timer: from its expiry",
    delayed: true,
    ..HIGH
};
const REFUSED: QueueVariant = QueueVariant {
    row: row::REFUSED,
    about: "the high-priority queue without the privilege: nice 0 and the short slice",
    ..HIGH
};

/// A queue whose workers are confined to the crowd's CPU, measured on the platform that the row is for.
fn queue(
    variant: QueueVariant,
    measure: fn(QueueVariant, &Plan) -> Result<Samples, Error>,
) -> Contestant {
    let QueueVariant { row, about, .. } = variant;
    let measure = Rc::new(move |plan: &Plan| measure(variant, plan));
    Contestant { row, about, needs: Privilege::None, measure }
}

/// The rows that any platform has: what the document replaced, and ours.
pub(crate) fn everywhere<P: Host>() -> Vec<Contestant> {
    let ours = [NORMAL, HIGH, HIGH_SLICE, HIGH_DELAYED];
    let ours = ours.map(|variant| queue(variant, as_it_is::<P>));
    [before::<P>()].into_iter().chain(ours).collect()
}

/// The document's "before".
fn before<P: Host>() -> Contestant {
    let measure = |plan: &Plan| {
        let plan_copy = plan.clone();
        as_issuer::<P, _>(plan.issuer_cpu, move || {
            let mut target =
                Head { list: OneList::<P>::start(plan_copy.cpu)?, start: Start::new() };
            let start = Arc::clone(&target.start);
            measure(&mut target, &start, &plan_copy)
        })
    };
    Contestant {
        row: row::HEAD,
        about: "the kernel's high-priority queue before the document: the head of the list of an ordinary worker",
        needs: Privilege::None,
        measure: Rc::new(measure),
    }
}

struct Head<P: Host> {
    list: OneList<P>,
    start: Arc<Start<P>>,
}

impl<P: Host> Target<P> for Head<P> {
    fn send(&mut self, _interval: Duration) -> Instant {
        let start = Arc::clone(&self.start);
        let now = P::now();
        self.list.queue(Priority::High, move || start.mark());
        now
    }
}

/// The row that gives up a privilege.
pub(crate) fn refused() -> Contestant {
    queue(REFUSED, without_privilege)
}

fn as_it_is<P: Host>(variant: QueueVariant, plan: &Plan) -> Result<Samples, Error> {
    let plan_copy = plan.clone();
    as_issuer::<P, _>(plan.issuer_cpu, move || issue::<P>(variant, &plan_copy))
}

/// On Linux, by a thread that was favoured, and has given up the privilege since.
fn without_privilege(variant: QueueVariant, plan: &Plan) -> Result<Samples, Error> {
    let plan_copy = plan.clone();
    as_issuer::<Linux, _>(plan.issuer_cpu, move || {
        Linux::favour_issuer();
        let limit = privilege::give_up().map_err(|error| {
            Error::run(format!("the privilege to be favoured cannot be given up: {error}"))
        })?;
        let samples = issue::<Linux>(variant, &plan_copy);
        drop(limit);
        samples
    })
}

/// Builds the queue on a runtime of its own, measures, and ends both. Called by the issuer, from which the workers inherit their
/// privileges.
fn issue<P: Host>(variant: QueueVariant, plan: &Plan) -> Result<Samples, Error> {
    let runtime = Runtime::<P>::builder_in().build().map_err(failed)?;
    let builder = runtime
        .workqueue_builder("highpri")
        .affinity_scope(AffinityScope::System)
        .cpumask(CpuSet::single(plan.cpu))
        .helping(false);
    let queue = prioritised(builder, variant).build().map_err(failed)?;
    let start = Start::<P>::new();
    let mark = Arc::clone(&start);
    let work = Work::new_in(move |_: &Work<P>| mark.mark());
    let mut target = Queued { queue, work, delayed: variant.delayed };
    measure(&mut target, &start, plan)
}

fn prioritised<P: Host>(
    builder: WorkqueueBuilder<P>,
    variant: QueueVariant,
) -> WorkqueueBuilder<P> {
    match (variant.high, variant.slice) {
        (false, _) => builder,
        (true, false) => builder.highpri(),
        (true, true) => builder.highpri().time_slice(SLICE),
    }
}

struct Queued<P: Host> {
    queue: Workqueue<P>,
    work: Work<P>,
    delayed: bool,
}

impl<P: Host> Target<P> for Queued<P> {
    fn send(&mut self, interval: Duration) -> Instant {
        let queue = &self.queue;
        loop {
            let now = P::now();
            // The item has reported its start, and may not be off the queue yet: then it is queued again when it ends.
            let (expected, queued) = if self.delayed {
                (now + interval, queue.queue_delayed(&self.work, interval))
            } else {
                (now, queue.queue(&self.work))
            };
            if queued {
                return expected;
            }
            // Not a yield: the thread that queues may be favoured over the worker that it waits for.
            P::sleep(NOT_YET);
        }
    }
}

// The contestants to compare with: a plain thread, rayon and tokio, ordinary and favoured, and a real-time thread that only
// sleeps. All of them are Linux programs.

/// All of them.
pub(crate) fn others() -> Vec<Contestant> {
    fn pool<Q: Peer>(row: &'static str, about: &'static str, nice: i32) -> Contestant {
        let needs = if nice < 0 { Privilege::Favoured } else { Privilege::None };
        Contestant { row, about, needs, measure: Rc::new(move |plan| of_pool::<Q>(nice, plan)) }
    }
    vec![
        pool::<Plain>("thread", "a thread that is woken", 0),
        pool::<Plain>("thread nice -20", "the same, favoured", MOST_FAVOURED),
        pool::<Tokio>("tokio", "a worker of tokio", 0),
        pool::<Tokio>("tokio nice -20", "the same, favoured", MOST_FAVOURED),
        pool::<Rayon>("rayon", "a worker of rayon", 0),
        pool::<Rayon>("rayon nice -20", "the same, favoured", MOST_FAVOURED),
        Contestant {
            row: row::HICCUP,
            about: "a real-time thread that sleeps: what the machine adds",
            needs: Privilege::RealTime,
            measure: Rc::new(hiccup),
        },
    ]
}

/// A pool with one thread on the crowd's CPU.
fn of_pool<Q: Peer>(nice: i32, plan: &Plan) -> Result<Samples, Error> {
    alone(|| {
        // None of the pools has a way to set where its threads run and how favoured they are: they inherit it.
        let cpu = CpuSet::single(plan.cpu);
        let spec = ThreadSpec { affinity: Some(cpu), ..ThreadSpec::default() };
        let pool = on_thread::<Linux, Q>(spec, move || {
            if nice != 0 {
                privilege::favour(nice)
                    .map_err(|error| Error::run(format!("nice {nice}: {error}")))?;
            }
            Q::start(1)
        })?;
        let plan = plan.clone();
        as_issuer::<Linux, _>(plan.issuer_cpu, move || {
            let start = Start::new();
            let mut target = Sent { pool, start: Arc::clone(&start) };
            measure(&mut target, &start, &plan)
        })
    })
}

struct Sent<Q> {
    pool: Q,
    start: Arc<Start<Linux>>,
}

impl<Q: Peer> Target<Linux> for Sent<Q> {
    fn send(&mut self, _interval: Duration) -> Instant {
        let start = Arc::clone(&self.start);
        let now = Linux::now();
        self.pool.detach(move || start.mark());
        now
    }
}

/// A real-time thread that sleeps.
fn hiccup(plan: &Plan) -> Result<Samples, Error> {
    let plan = plan.clone();
    let cpu = CpuSet::single(plan.cpu);
    let spec = ThreadSpec { affinity: Some(cpu), ..ThreadSpec::default() };
    on_thread::<Linux, _>(spec, move || {
        privilege::real_time()
            .map_err(|error| Error::run(format!("a real-time thread: {error}")))?;
        Linux::wake_exactly();
        let mut clock = Linux::steal(plan.cpu);
        let mut samples = Samples::default();
        let end = Linux::now() + plan.duration;
        let mut stolen = Linux::stolen(&mut clock);
        loop {
            let expected = Linux::now() + plan.interval;
            if expected >= end {
                return Ok(samples);
            }
            Linux::sleep(plan.interval);
            let now = Linux::now();
            let before = std::mem::replace(&mut stolen, Linux::stolen(&mut clock));
            samples.add(now.saturating_since(expected), stolen != before);
        }
    })
}
