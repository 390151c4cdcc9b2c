//! nearq as a contestant: the only file of the experiment that knows how its library is called.

use super::contestant::{Contestant, row};
use super::issuer::{Plan, Start, Target, as_issuer, measure};
use super::privilege;
use super::samples::Samples;
use crate::Error;
use crate::harness::Host;
use nearq::{Runtime, Work, Workqueue, WorkqueueBuilder};
use nearq_platform::{Instant, Linux};
use nearq_topology::{CpuSet, Scope};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The short slice.
pub(crate) const SLICE: Duration = Duration::from_micros(100);

/// How long the issuer waits for an item that is not off the queue yet.
const NOT_YET: Duration = Duration::from_micros(100);

/// What a row asks of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    row: &'static str,
    about: &'static str,
    high: bool,
    slice: bool,
    delayed: bool,
}

const NORMAL: Asked = Asked {
    row: row::NORMAL,
    about: "a queue of ordinary priority",
    high: false,
    slice: false,
    delayed: false,
};
const HIGH: Asked =
    Asked { row: row::HIGH, about: "a high-priority queue: nice -20", high: true, ..NORMAL };
const HIGH_SLICE: Asked =
    Asked { row: row::HIGH_SLICE, about: "the same with a slice of 100 us", slice: true, ..HIGH };
const HIGH_DELAYED: Asked = Asked {
    row: row::HIGH_DELAYED,
    about: "the high-priority queue, queued by a timer: from its expiry",
    delayed: true,
    ..HIGH
};
const REFUSED: Asked = Asked {
    row: row::REFUSED,
    about: "the high-priority queue without the privilege: nice 0 and the short slice",
    ..HIGH
};

/// A queue whose workers are confined to the crowd's CPU.
struct Ours {
    asked: Asked,
    /// One run, on the platform that the row is for.
    measure: fn(Asked, &Plan) -> Result<Samples, Error>,
}

/// The rows of ours that any platform has.
pub(crate) fn contestants<P: Host>() -> Vec<Rc<dyn Contestant>> {
    let ours = |asked| Rc::new(Ours { asked, measure: as_it_is::<P> }) as Rc<dyn Contestant>;
    [NORMAL, HIGH, HIGH_SLICE, HIGH_DELAYED].into_iter().map(ours).collect()
}

/// Those that have a privilege to lose.
pub(crate) fn refused() -> Vec<Rc<dyn Contestant>> {
    vec![Rc::new(Ours { asked: REFUSED, measure: without_privilege })]
}

impl Contestant for Ours {
    fn row(&self) -> &'static str {
        self.asked.row
    }

    fn about(&self) -> &'static str {
        self.asked.about
    }

    fn measure(&self, plan: &Plan) -> Result<Samples, Error> {
        (self.measure)(self.asked, plan)
    }
}

fn as_it_is<P: Host>(asked: Asked, plan: &Plan) -> Result<Samples, Error> {
    let own = plan.clone();
    as_issuer::<P, _>(plan.issuer_cpu, move || issue::<P>(asked, &own))
}

/// On Linux, by a thread that has given up the privilege to be favoured.
fn without_privilege(asked: Asked, plan: &Plan) -> Result<Samples, Error> {
    let own = plan.clone();
    as_issuer::<Linux, _>(plan.issuer_cpu, move || {
        let limit = privilege::give_up().map_err(|error| {
            Error::run(format!("the privilege to be favoured cannot be given up: {error}"))
        })?;
        let samples = issue::<Linux>(asked, &own);
        drop(limit);
        samples
    })
}

/// Builds the queue on a runtime of its own, measures, and ends both. By the issuer, from whom the workers inherit what they may.
fn issue<P: Host>(asked: Asked, plan: &Plan) -> Result<Samples, Error> {
    let failed = |error: nearq::Error| Error::run(error.to_string());
    let runtime = Runtime::<P>::builder_in().build().map_err(failed)?;
    let builder = runtime
        .workqueue("highpri")
        .scope(Scope::System)
        .cpumask(CpuSet::single(plan.cpu))
        .helping(false);
    let queue = prioritised(builder, asked).build_in().map_err(failed)?;
    let start = Start::<P>::new();
    let mark = Arc::clone(&start);
    let work = Work::new_in(move |_: &Work<P>| mark.mark());
    let mut target = Queued { queue, work, delayed: asked.delayed };
    measure(&mut target, &start, plan)
}

fn prioritised<P: Host>(builder: WorkqueueBuilder<P>, asked: Asked) -> WorkqueueBuilder<P> {
    match (asked.high, asked.slice) {
        (false, _) => builder,
        (true, false) => builder.highpri(),
        (true, true) => builder.highpri().slice(SLICE),
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
            // It has told that it started, and may not be off the queue yet: then it is queued when it ends.
            let (expected, queued) = if self.delayed {
                (now + interval, queue.queue_delayed(&self.work, interval))
            } else {
                (now, queue.queue(&self.work))
            };
            if queued {
                return expected;
            }
            // Not a yield: who queues may be favoured over the worker that it waits for.
            P::sleep(NOT_YET);
        }
    }
}
