//! The job as items of an unbound queue: each starts a process and waits for it.

use super::{HOMES, Job, Plan, SYSTEM};
use crate::Error;
use nearq::{Home, Runtime, Scope};
use std::sync::Arc;

/// One configuration of the queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contestant {
    pub(super) row: &'static str,
}

/// The scope of a row's queue.
pub(super) fn scope_of(row: &str) -> Scope {
    if row == SYSTEM { Scope::System } else { Scope::Numa }
}

impl Contestant {
    pub(super) fn new(row: &'static str) -> Self {
        Contestant { row }
    }

    /// Does the job on a runtime of its own.
    pub(super) fn run(self, job: &Arc<Job>, plan: &Plan) -> Result<(), Error> {
        let failed = |error: nearq::Error| Error::run(error.to_string());
        let runtime = Runtime::builder().build().map_err(failed)?;
        let queue = runtime.workqueue("files").scope(scope_of(self.row)).max_active(plan.jobs);
        let queue = queue.build().map_err(failed)?;
        let mut items = Vec::with_capacity(plan.files);
        for file in 0..plan.files {
            let (job, inside) = (Arc::clone(job), runtime.clone());
            let item = move || inside.blocking(|| job.do_one(file));
            items.push(if self.row == HOMES {
                queue.spawn_at(&Home::pick_in(&runtime), item)
            } else {
                queue.spawn(item)
            });
        }
        let lost = |error: nearq::JoinError| Error::run(error.to_string());
        items.into_iter().try_for_each(|item| item.join().map_err(lost)?)
    }
}
