//! The job as items of an unbound queue: each starts a process and waits for it.

use super::{HOMES, Job, Plan, SYSTEM};
use crate::Error;
use crate::harness::failed;
use nearq::{Home, Runtime, Scope};
use std::sync::Arc;

/// The scope of a row's queue.
pub(super) fn scope_of(row: &str) -> Scope {
    if row == SYSTEM { Scope::System } else { Scope::Numa }
}

/// Does the job on a runtime of its own.
pub(super) fn run(row: &str, job: &Arc<Job>, plan: &Plan) -> Result<(), Error> {
    let runtime = Runtime::builder().build().map_err(failed)?;
    let queue = runtime.workqueue("files").scope(scope_of(row)).max_active(plan.jobs);
    let queue = queue.build().map_err(failed)?;
    let mut items = Vec::with_capacity(plan.files);
    for file in 0..plan.files {
        let (job, inside) = (Arc::clone(job), runtime.clone());
        let item = move || inside.blocking(|| job.do_one(file));
        items.push(if row == HOMES {
            queue.spawn_at(&Home::pick_in(&runtime), item)
        } else {
            queue.spawn(item)
        });
    }
    items.into_iter().try_for_each(|item| item.join().map_err(failed)?)
}
