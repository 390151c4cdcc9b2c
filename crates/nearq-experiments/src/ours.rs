//! nearq as a contestant: the only file that knows how its library is called.

use crate::dispatch::{
    Closures, Contestant, DispatchOptions, Feed, Gauge, IN_FLIGHT, Load, PROBES, Plan, Sample,
    flood, idle,
};
use crate::dispatch::{distinct_scopes, targets};
use crate::executor::{Executor, Item, Placement, Queues};
use crate::peers::{Peer, alone};
use crate::report::Report;
use crate::scopes::ScopesOptions;
use crate::{Error, HERE, Machine, Progress};
use nearq::{JoinHandle, Runtime, Work, Workqueue};
use nearq_topology::Scope;
use std::marker::PhantomData;
use std::sync::Arc;
use std::thread;

/// Runs `nearq bench scopes`.
pub fn scopes(options: &ScopesOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = real(options.common.on()?)?;
    let result = crate::scopes::run_on(options, &machine, &Nearq, progress);
    progress.end();
    result
}

/// Runs `nearq bench dispatch`.
pub fn dispatch(options: &DispatchOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = real(options.common.on()?)?;
    let result = crate::dispatch::run(options, &machine, contestants(&machine), progress);
    progress.end();
    result
}

/// The machine, if it is not a simulated one.
fn real(machine: Machine) -> Result<Machine, Error> {
    if machine.model().is_none() {
        return Ok(machine);
    }
    let name = machine.name();
    Err(Error::input(format!(
        "--on {name}: this experiment does not run on simulated machines; give {HERE}"
    )))
}

/// A queue, or why there is none.
fn built<T, E: std::fmt::Display>(result: Result<T, E>) -> Result<T, Error> {
    result.map_err(|error| Error::run(error.to_string()))
}

/// The queues of `scopes`: each on a runtime of its own, so that no worker of one run is left for the next.
#[derive(Debug)]
struct Nearq;

impl Queues for Nearq {
    fn queue(&self, placement: Placement) -> Result<Box<dyn Executor>, Error> {
        let runtime = built(Runtime::builder().build())?;
        let queue = Workqueue::builder("scopes")
            .scope(placement.scope)
            .strict(placement.strict)
            .localize(placement.localize)
            .build_on(&runtime);
        Ok(Box::new(Queue(Arc::new(built(queue)?))))
    }

    fn name(&self) -> &'static str {
        "an unbound nearq workqueue"
    }
}

/// A queue, which keeps its runtime alive.
struct Queue(Arc<Workqueue>);

impl Executor for Queue {
    fn item(&self, mut function: Box<dyn FnMut() + Send>) -> Box<dyn Item> {
        let work = Work::new(move |_: &Work| function());
        Box::new(Queued { queue: Arc::clone(&self.0), work })
    }
}

struct Queued {
    queue: Arc<Workqueue>,
    work: Work,
}

impl Item for Queued {
    fn queue(&self) -> bool {
        self.queue.queue(&self.work)
    }
}

/// Closures on a workqueue of default attributes.
struct Spawn(Workqueue);

impl Peer for Spawn {
    type Join<T: Send + 'static> = JoinHandle<T>;

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

/// A workqueue that is default in all but its scope, on a runtime of its own.
fn default_queue(scope: Option<Scope>) -> Result<Workqueue, Error> {
    let runtime = built(Runtime::builder().build())?;
    let builder = Workqueue::builder("dispatch");
    let builder = if let Some(scope) = scope { builder.scope(scope) } else { builder };
    built(builder.build_on(&runtime))
}

/// Reused items, in rotation.
#[derive(Debug)]
struct Requeue {
    /// One that is measured for its scope, or the default.
    scope: Option<Scope>,
}

impl Contestant for Requeue {
    fn row(&self, load: Load) -> Option<&'static str> {
        match (load, self.scope) {
            (Load::Outside | Load::Idle, None) => Some(targets::REQUEUE),
            (Load::Scope, Some(scope)) => Some(scope.name()),
            _ => None,
        }
    }

    fn ours(&self) -> bool {
        true
    }

    fn measure(&self, load: Load, plan: &Plan, gauge: &'static Gauge) -> Result<Sample, Error> {
        alone(|| {
            let queue = default_queue(self.scope)?;
            let plain = |_| Work::new(move |_: &Work| gauge.done());
            let probe = |probe| {
                Work::new(move |_: &Work| {
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
struct Rotation {
    queue: Workqueue,
    works: Vec<Work>,
    probes: Vec<Work>,
    next: usize,
}

impl Feed for Rotation {
    #[inline]
    fn plain(&mut self) {
        let work = &self.works[self.next % IN_FLIGHT];
        self.next += 1;
        queue(&self.queue, work);
    }

    #[inline]
    fn probe(&mut self, probe: usize) {
        queue(&self.queue, &self.probes[probe]);
    }
}

/// Queues an item. One that is queued still, since others overtook it, is waited for.
#[inline]
fn queue(queue: &Workqueue, work: &Work) {
    while !queue.queue(work) {
        thread::yield_now();
    }
}

/// Ours, in the order of the tables.
fn contestants(machine: &Machine) -> Vec<Box<dyn Contestant>> {
    let spawn = Closures { inside: true, ours: true, pool: PhantomData::<Spawn> };
    let mut contestants: Vec<Box<dyn Contestant>> =
        vec![Box::new(Requeue { scope: None }), Box::new(spawn)];
    for scope in distinct_scopes(machine) {
        contestants.push(Box::new(Requeue { scope: Some(scope) }));
    }
    contestants
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Common;
    use crate::report::metric;
    use std::time::Duration;

    fn short() -> Common {
        Common { runs: Some(1), duration: Some(Duration::from_millis(20)), ..Common::default() }
    }

    #[test]
    fn scopes_runs_on_workqueues_and_everything_verifies() {
        let options =
            ScopesOptions { common: short(), in_flight: Some(5), ..ScopesOptions::default() };
        let report = scopes(&options, &Progress::hidden()).unwrap();
        let throughput = report.find("HIGH", "system", metric::THROUGHPUT).unwrap();
        assert!(throughput.summary.median > 0.0);
    }

    #[test]
    fn dispatch_measures_our_rows_and_judges_them() {
        let options = DispatchOptions { common: short(), idle_samples: Some(2) };
        let report = dispatch(&options, &Progress::hidden()).unwrap();
        for (scenario, row) in [
            ("outside", targets::REQUEUE),
            ("outside", targets::SPAWN),
            ("joined", targets::SPAWN),
            ("inside", targets::SPAWN),
            ("scope", "system"),
        ] {
            let found = report.find(scenario, row, metric::NS_PER_ITEM);
            assert!(found.is_some_and(|row| row.summary.median > 1.0), "{scenario}: {row}");
        }
        assert_eq!(report.parameters["targets"].as_array().map(Vec::len), Some(4));
    }
}
