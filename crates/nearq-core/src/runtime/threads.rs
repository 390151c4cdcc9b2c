//! The threads of a runtime's workers: how one is started, which CPUs it may use, and how all of them end.

use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};
use nearq_topology::CpuSet;

use super::{Core, KnownQueue};
use crate::layout::priority::{self, Priority};
use crate::pool::Pool;
use crate::pool::affinity::Affinity;
use crate::pool::spawn_failure::Denied;

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// Sends the homes of all workers to the system's scheduler, if that scheduler has not received them: workers send theirs when they
    /// begin, but the scheduler may have been loaded since. Called by the thread that reads the machine again.
    pub(super) fn send_home_hints(&self) {
        let receiver = P::hint_receiver();
        if self.hint_receiver.swap(receiver, Ordering::Relaxed) == receiver || receiver == 0 {
            return;
        }
        // Rescuers send their home to the scheduler wherever they go.
        for worker in self.services.workers.iter().filter(|worker| !worker.rescues()) {
            let Some(node) = worker.pool().near_node() else { continue };
            // Locked until the hint is sent: the thread takes itself out before it ends.
            let thread = worker.thread.lock();
            if let Some(thread) = *thread {
                P::set_home_hint(thread, Some(node as usize));
            }
        }
    }

    /// Counts a thread that is about to be started, if it may be started.
    pub(crate) fn count_thread(&self) -> Result<(), Denied> {
        if self.is_stopping() {
            return Err(Denied::Otherwise);
        }
        if !self.count_below_limit() {
            return Err(Denied::Limit);
        }
        P::model_fence();
        // Checked once more after it was counted: the thread that stops the runtime waits for what is counted.
        if self.is_stopping() {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            return Err(Denied::Otherwise);
        }
        Ok(())
    }

    /// Counts a rescuer's thread that is about to be started. False if the runtime is stopping.
    pub(crate) fn count_rescuer(&self) -> bool {
        // SeqCst: first it counts, then it checks whether the runtime is stopping; see "Its end" in `run/rescue`. The thread that stops the
        // runtime waits for what is counted (`ask_to_stop`).
        self.reserved.fetch_add(1, Ordering::SeqCst);
        P::model_fence();
        let ends = self.is_stopping();
        if ends {
            self.reserved.fetch_sub(1, Ordering::SeqCst);
        }
        !ends
    }

    /// Counts one more thread, if the limit allows. The count never exceeds the limit, not even for a moment: other threads would see it,
    /// and be refused.
    fn count_below_limit(&self) -> bool {
        let limit = self.thread_limit();
        let mut count = self.threads.load(Ordering::Relaxed);
        while count < limit {
            match self.threads.compare_exchange_weak(
                count,
                count + 1,
                Ordering::SeqCst, // before the check whether the runtime stops
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => count = found,
            }
        }
        false
    }

    /// The mask of a pool's workers, and where they belong.
    pub(crate) fn affinity_in(&self, pool: &Pool<P>) -> (CpuSet, Affinity) {
        let (pod, mask) = (pool.key.pod.clone(), self.mask_of(pool));
        let affinity =
            if pool.key.bound { Affinity::bound(pod) } else { Affinity::new(pod, mask.clone()) };
        (mask, affinity)
    }

    /// The mask that a pool's workers have when nothing else is wanted. If the pool may use all that the process may, that is the widest
    /// one.
    fn mask_of(&self, pool: &Pool<P>) -> CpuSet {
        let allowed = self.machine_config().limits.effective();
        // If a CPU of a per-CPU queue is offline or not allowed, its workers go there when they can (`affinity`).
        let away = pool.key.bound && !pool.key.pod.intersects(&allowed);
        if away {
            self.resting_mask()
        } else if pool.key.allowed == allowed && !pool.key.strict {
            self.widest_mask()
        } else {
            pool.key.allowed.clone()
        }
    }

    /// The mask of a thread of the runtime that belongs to no pool: all that the process may use, except isolated CPUs.
    pub(crate) fn resting_mask(&self) -> CpuSet {
        self.housekeeping_mask().unwrap_or_else(|| self.widest_mask())
    }

    /// The CPUs that are not isolated, if some that the process may use are.
    pub(crate) fn housekeeping_mask(&self) -> Option<CpuSet> {
        let limits = &self.machine_config().limits;
        let housekeeping = limits.housekeeping();
        (housekeeping != limits.effective()).then_some(housekeeping)
    }

    /// All that the process may use. If nothing but the cpuset limits that, the mask is every CPU that could exist: the system cuts it to
    /// the cpuset, and lets it grow with the cpuset.
    fn widest_mask(&self) -> CpuSet {
        let machine_config = self.machine_config();
        let limits = &machine_config.limits;
        let whole = limits.cpuset.as_ref().is_none_or(|cpuset| cpuset.is_subset(&limits.affinity))
            && limits.online.is_subset(&limits.affinity);
        if whole { machine_config.topology.possible().clone() } else { limits.effective() }
    }

    /// Ends every thread, and waits for them unless the caller is one.
    pub(crate) fn stop(&self) {
        self.ask_to_stop();
        if self.is_within() {
            return;
        }
        self.join_threads();
        // A thread that was being started when the handles were taken ends by itself.
        while self.has_threads() || self.services.alarm.thread.is_alive() || self.timer.is_alive() {
            P::sleep(Duration::from_micros(100));
        }
        self.join_last_ended();
    }

    /// Waits for the thread that ended last, which waits for the one before, and so on.
    fn join_last_ended(&self) {
        let handle = self.last_ended.lock().take();
        handle.into_iter().for_each(P::join);
    }

    /// Whether the caller is a thread of the runtime, which cannot wait until these have ended.
    pub(crate) fn is_within(&self) -> bool {
        P::employer() == self.number
    }

    /// Whether a worker or a rescuer is left. In this order: a worker that ends is counted as leaving before it leaves the others.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::SeqCst) != 0
            || self.leaving.load(Ordering::SeqCst) != 0
            || self.reserved.load(Ordering::SeqCst) != 0
    }

    /// Makes every thread end as soon as it has nothing left to finish.
    pub(crate) fn ask_to_stop(&self) {
        self.stopping.store(1, Ordering::SeqCst);
        P::model_fence();
        self.services.alarm.stop();
        self.timer.stop();
        for worker in self.services.workers.iter() {
            worker.parker.unpark();
        }
    }

    /// Waits until the threads that were told to stop have ended. Not called by one of them.
    pub(crate) fn join_threads(&self) {
        for worker in self.services.workers.iter() {
            let handle = worker.handle.lock().take();
            if let Some((_, handle)) = handle {
                P::join(handle);
            }
        }
        self.join_last_ended();
        self.services.alarm.thread.join();
        self.timer.join();
    }
}

impl<P: Platform, Q: KnownQueue> Core<P, Q> {
    /// Ensures that the caller, a new thread for `priority`, has that priority or the nearest that is allowed, and notes its nice value.
    pub(crate) fn arrive(&self, priority: &Priority) {
        let priorities = &self.priorities;
        let wanted = priorities.scheduling(priority);
        if let Some(nice) = priority::take::<P>(wanted) {
            priorities.note_reached(wanted.nice, nice);
        }
    }

    /// A pool of that priority was made: the threads that serve all queues adapt.
    pub(crate) fn serve_priority(&self, priority: &Priority) {
        let priorities = &self.priorities;
        if priorities.favoured.add(&priorities.absolute(priority)) {
            if let Some(thread) = self.services.alarm.thread.thread() {
                priorities.favoured.favour(thread);
            }
        }
    }

    /// Makes the caller, the monitor, as favoured as the most favoured pool. Called after it has announced itself.
    pub(crate) fn favour_monitor(&self) {
        self.priorities.favoured.favour(P::current_thread());
    }
}

#[cfg(test)]
mod tests;
