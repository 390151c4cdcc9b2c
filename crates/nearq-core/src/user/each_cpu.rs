//! A closure on each CPU, which the caller waits for: the kernel's `schedule_on_each_cpu`.

use std::sync::Arc;

use nearq_platform::Platform;

use crate::base::outcome::JoinError;
use crate::user::task_builder::TaskBuilder;
use crate::user::workqueue::Workqueue;

impl<P: Platform> Workqueue<P> {
    /// Runs `f` once on each CPU that the process may use, with the CPU's number, on all of them at the same time. Waits until all calls have
    /// ended, and returns the results in the order of the CPUs. For data that belong to CPUs: to sum counters, to empty caches.
    ///
    /// The CPUs are those that are online and allowed when the runtime last read them ([`Runtime::refresh`](crate::Runtime::refresh)),
    /// [isolated](nearq_topology::Limits::isolated) ones included, whatever the runtime's mask is. If a CPU goes offline meanwhile, its call
    /// runs on another one.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let queue = nearq::Workqueue::builder("counters").per_cpu().build()?;
    /// let counted = queue.on_each_cpu(|cpu| cpu)?;
    /// assert!(!counted.is_empty() && counted.iter().all(|(cpu, result)| cpu == result));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`JoinHandle::join`](crate::JoinHandle::join) of the call on the lowest CPU that fails; all others have been joined too.
    ///
    /// # Panics
    /// If the queue is not a [per-CPU queue](crate::WorkqueueBuilder::per_cpu): items of others belong to pods.
    pub fn on_each_cpu<T: Send + 'static>(
        &self,
        f: impl Fn(usize) -> T + Send + Sync + 'static,
    ) -> Result<Vec<(usize, T)>, JoinError> {
        assert!(self.is_per_cpu(), "on_each_cpu needs a per-CPU queue; {} is not one", self.name());
        let f = Arc::new(f);
        let cpus = self.effective_cpumask();
        // A CPU that the machine does not have is one that was not known when the machine was read.
        let tasks = cpus.iter().filter_map(|cpu| Some((cpu, self.task().on_cpu(cpu).ok()?)));
        let call = |(cpu, task): (usize, TaskBuilder<'_, P>)| {
            let f = Arc::clone(&f);
            (cpu, task.spawn(move || f(cpu)))
        };
        let calls: Vec<_> = tasks.map(call).collect();
        // All are joined before the first error is returned.
        let results: Vec<_> = calls.into_iter().map(|(cpu, call)| (cpu, call.join())).collect();
        results.into_iter().map(|(cpu, result)| result.map(|result| (cpu, result))).collect()
    }
}
