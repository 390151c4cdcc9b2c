//! nearq as the queue of `scopes`: the only file of it that knows how its library is called.

use crate::executor::{Executor, Item, Placement, Queues};
use crate::report::Report;
use crate::scopes::ScopesOptions;
use crate::{Error, HERE, Machine, Progress};
use nearq::{Runtime, Work, Workqueue};
use std::sync::Arc;

/// Runs `nearq bench scopes`.
pub fn scopes(options: &ScopesOptions, progress: &Progress) -> Result<Report, Error> {
    let machine = real(options.common.on()?)?;
    let result = crate::scopes::run_on(options, &machine, &Nearq, progress);
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
}
