//! What is set once, when a runtime is built, and what its hooks are given.

use core::num::NonZeroUsize;
use core::time::Duration;
use std::sync::Arc;

use nearq_home::Weights;
use nearq_platform::SignalMask;
use nearq_topology::CpuSet;

use crate::base::outcome::contain;
use crate::homes::HomeChoice;
use crate::runtime::report::OnStall;

/// What a [hook](crate::RuntimeBuilder::on_worker_start) is given about its worker.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The thread's name.
    pub name: String,
    /// The CPUs of its pod.
    pub pod: CpuSet,
}

pub(crate) type Hook = Arc<dyn Fn(&WorkerInfo) + Send + Sync>;

/// Runs the main function of a worker on a thread that is not the runtime's own. The thread may run another one when it has returned.
pub(crate) type ThreadSource = Arc<dyn Fn(Box<dyn FnOnce() + Send>) + Send + Sync>;

/// What is set once, when the runtime is built.
#[derive(Clone, Default)]
pub(crate) struct Config {
    pub(crate) stack_size: Option<NonZeroUsize>,
    /// The signals that the thread that builds the runtime has blocked, and so the workers.
    pub(crate) signals: SignalMask,
    pub(crate) on_start: Option<Hook>,
    pub(crate) on_stop: Option<Hook>,
    /// Where the workers' threads come from, if the runtime does not start them.
    pub(crate) threads: Option<ThreadSource>,
    pub(crate) on_stall: Option<OnStall>,
    /// Called by each worker before all else.
    pub(crate) attendant: Option<fn()>,
}

/// What a runtime begins with.
#[derive(Default)]
pub(crate) struct Beginning {
    pub(crate) config: Config,
    pub(crate) thread_limit: u32,
    /// How often a worker checks its inbox before it sleeps.
    pub(crate) spin: u32,
    pub(crate) idle_timeout: Duration,
    /// Zero is never.
    pub(crate) cpu_intensive_after: Duration,
    /// Zero is never.
    pub(crate) stall_after: Duration,
    /// Zero is never.
    pub(crate) abort_on_stall: u32,
    pub(crate) weights: Weights,
    pub(crate) home_choice: HomeChoice,
    pub(crate) inherits_homes: bool,
}

/// Calls a hook. It is foreign code; its panic must not end a worker.
pub(crate) fn call_hook(hook: Option<&Hook>, info: &WorkerInfo) {
    if let Some(hook) = hook {
        contain(|| hook(info));
    }
}
