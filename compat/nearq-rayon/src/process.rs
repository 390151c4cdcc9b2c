//! The pools of one process. The child of a fork has none of its parent's threads, so it makes pools of its own at its first call.

use std::io;
use std::mem;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use nearq_platform::{ForkHooks, Linux, LockPlatform, Machine, Placement, ThreadSpec, Threads};
use rayon_core::{ThreadPool, ThreadPoolBuilder};

use crate::Error;
use crate::masks::Masks;
use crate::plan::Plan;

/// How many forks lie between the program's start and this process, counted from the first call on. So no process has the number of one
/// that it descends from. Process ids could be equal, if the two are in different namespaces.
fn process_number() -> u64 {
    static COUNTS: AtomicBool = AtomicBool::new(false);
    fn nothing(_: *const ()) {}
    static HOOKS: ForkHooks = ForkHooks { prepare: nothing, parent: nothing, child: nothing };
    // Relaxed: only the first call counts, and a fork inherits the flag with what it stands for.
    if !COUNTS.load(Ordering::Relaxed) && !COUNTS.swap(true, Ordering::Relaxed) {
        // SAFETY: the hooks do nothing with the address.
        #[allow(unsafe_code, reason = "the platform counts forks only for those who follow them")]
        unsafe {
            Linux::follow_forks((&raw const COUNTS).cast(), &HOOKS);
        }
    }
    Linux::fork_epoch()
}

/// The pools of one process.
pub(crate) struct ProcessPools {
    /// See [`process_number`].
    process: u64,
    pub(crate) masks: Arc<Masks>,
    /// By the index of the pod.
    pub(crate) pools: Vec<ThreadPool>,
    /// Those of a child, in the child.
    child: OnceLock<Box<ProcessPools>>,
}

impl ProcessPools {
    pub(crate) fn start(plan: &Plan, machine: Machine) -> Result<Self, Error> {
        let masks = Arc::new(Masks::new(plan, &machine.limits));
        let pools = (0..plan.pods.len()).map(|pod| pool(plan, pod, &masks));
        let pools = pools.collect::<Result<_, _>>()?;
        let started = Self { process: process_number(), masks, pools, child: OnceLock::new() };
        started.masks.follow(format!("{}-masks", plan.name), machine)?;
        Ok(started)
    }

    /// The pools of the caller's process: these, or those that it makes after a fork.
    pub(crate) fn current(&self, plan: &Plan) -> &Self {
        let process = process_number();
        let mut pools = self;
        // Each has the pools of a child of its process; the last ones are made by this process.
        while pools.process != process {
            pools = pools.child.get_or_init(|| {
                let machine = Linux::machine().map_err(|reason| Error::Machine { reason });
                let pools = machine.and_then(|machine| Self::start(plan, machine));
                Box::new(pools.unwrap_or_else(|error| panic!("after a fork: {error}")))
            });
        }
        pools
    }
}

impl Drop for ProcessPools {
    fn drop(&mut self) {
        if self.process == process_number() {
            self.masks.stop();
        } else {
            // Their threads are the parent's, and one of them may have held a lock of its pool during the fork.
            mem::forget(mem::take(&mut self.pools));
        }
    }
}

/// Starts the pool of a pod. Its threads have the pod's mask before they run anything.
fn pool(plan: &Plan, pod: usize, masks: &Arc<Masks>) -> Result<ThreadPool, Error> {
    let signals = Linux::signal_mask();
    let builder =
        ThreadPoolBuilder::new().num_threads(plan.pods[pod].threads).spawn_handler(|thread| {
            let spec = ThreadSpec {
                name: format!("{}-{pod}/{}", plan.name, thread.index()),
                stack_size: plan.stack_size,
                signals: Some(signals),
                ..ThreadSpec::default()
            };
            let masks = Arc::clone(masks);
            let main = move || {
                masks.enter(pod);
                thread.run();
            };
            Linux::spawn(spec, main).map(drop).map_err(io::Error::other)
        });
    builder.build().map_err(|error| Error::Refused { reason: error.to_string() })
}
