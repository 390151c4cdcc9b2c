//! The threads of a runtime's workers: how one is started, which CPUs it may use, and how all of them end.

use core::num::NonZeroUsize;
use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform, ThreadSpec};
use nearq_topology::CpuSet;

use super::Inner;
use crate::config::{WorkerInfo, call_hook};
use crate::place::Place;
use crate::pool::Pool;
use crate::pool::hardship::Denied;
use crate::priority::{self, Priority};
use crate::worker::Worker;

impl<P: Platform> Inner<P> {
    /// Starts the thread of `worker`, an entry of `pool`.
    pub(crate) fn start_thread(&self, pool: &Pool<P>, worker: &Worker<P>) -> Result<(), Denied> {
        self.count_thread()?;
        let (mask, place) = self.place_of(pool);
        let info = WorkerInfo { name: worker.name(), pod: pool.key.pod.clone() };
        let spec = ThreadSpec {
            name: info.name.clone(),
            stack_size: self.config.stack_size.map(NonZeroUsize::get),
            affinity: Some(mask),
            scheduling: Some(self.priorities.scheduling(&pool.key.priority)),
            signals: Some(self.config.signals),
            refused: Some(|refused| {
                P::warn_once(&format!("start: {}", refused.cause()), &refused.to_string())
            }),
            ..ThreadSpec::default()
        };
        let (own, pool) = (self.shared(), pool.shared());
        let number = self.started.fetch_add(1, Ordering::Relaxed);
        let entry = Entry(core::ptr::from_ref(worker));
        let handle = P::spawn(spec, move || {
            let entry = entry;
            // SAFETY: the entry lives as long as the runtime, which `own` keeps alive.
            let worker = unsafe { &*entry.0 };
            P::set_employer(own.number);
            // Hooks and items may fork. In the child this thread is not a worker, and not counted.
            let epoch = P::fork_epoch();
            own.begin_worker(&pool, worker, &info);
            let mut place = place;
            if let Some(node) = pool.node.filter(|_| own.homes.has_several()) {
                // What it touches of its stack from here on lies on its node. The first page was touched by who started it.
                place.begin_on::<P>(node, &own.homes);
                // The system's scheduler has it go back there; it forgets that with the thread.
                P::tell_home(P::current_thread(), Some(node as usize));
            }
            let mut retired = false;
            if P::fork_epoch() == epoch {
                retired = crate::run::run(&own, &pool, worker, place);
            }
            if P::fork_epoch() == epoch {
                // The hook may wait for what another thread is to do that the limit allows only now. First this count: the thread that stops
                // the runtime waits for both.
                own.leaving.fetch_add(1, Ordering::SeqCst);
                own.thread_ended(retired);
                call_hook(own.config.on_stop.as_ref(), &info);
            }
            if P::fork_epoch() == epoch {
                let before = own.bow_out(worker, number);
                own.leaving.fetch_sub(1, Ordering::SeqCst);
                // It does not count any more, and has nothing left to do but to end.
                before.into_iter().for_each(P::join);
            }
        });
        match handle {
            Ok(handle) => {
                // If the entry's last thread ended before it could find its handle here, that goes now.
                *worker.handle.lock() = Some((number, handle));
                Ok(())
            }
            Err(_) => {
                self.threads.fetch_sub(1, Ordering::SeqCst);
                Err(Denied::Otherwise)
            }
        }
    }

    /// The thread of a worker, which is the caller, ends. A thread that nobody waits for keeps its stack, so each waits for the one that has
    /// ended before it, which is returned; the thread that stops the runtime waits for the last one.
    fn bow_out(&self, worker: &Worker<P>, number: u32) -> Option<P::JoinHandle> {
        // Its entry may be another thread's by now, with its handle.
        let own = worker.handle.lock().take_if(|(of, _)| *of == number);
        // Else the thread that stops the runtime has it, or the one that started this thread has not stored it yet.
        own.and_then(|(_, handle)| self.last_ended.lock().replace(handle))
    }

    /// What the worker, which is the caller, does before it looks for work. Foreign code, if there is any, may take long.
    fn begin_worker(&self, pool: &Pool<P>, worker: &Worker<P>, info: &WorkerInfo) {
        let (attendant, on_start) = (self.config.attendant, self.config.on_start.as_ref());
        let epoch = P::fork_epoch();
        let has_foreign = attendant.is_some() || on_start.is_some();
        if has_foreign {
            pool.enter_hook(worker);
        }
        if let Some(attendant) = attendant {
            attendant();
        }
        self.arrive(&pool.key.priority);
        call_hook(on_start, info);
        if has_foreign && P::fork_epoch() == epoch {
            pool.leave_hook(worker);
        }
    }

    /// Tells the system's scheduler where all workers are at home, if it is one that has not been told: they tell it when they begin, and
    /// it may have been loaded since. By whoever reads the machine again.
    pub(super) fn tell_homes(&self) {
        let hears = P::hears_homes();
        if self.heard.swap(hears, Ordering::Relaxed) == hears || hears == 0 {
            return;
        }
        // Rescuers tell wherever they go.
        for worker in self.table.iter().filter(|worker| !worker.rescues()) {
            let Some(node) = worker.pool().near_node() else { continue };
            // Locked until it is told: the thread takes itself out before it ends.
            let thread = worker.thread.lock();
            if let Some(thread) = *thread {
                P::tell_home(thread, Some(node as usize));
            }
        }
    }

    /// Counts a thread that is about to be started, if it may be started.
    fn count_thread(&self) -> Result<(), Denied> {
        if self.is_stopping() {
            return Err(Denied::Otherwise);
        }
        if !self.count_below_limit() {
            return Err(Denied::Limit);
        }
        P::model_fence();
        // Once more, after it was counted: the thread that stops the runtime waits for what is counted.
        if self.is_stopping() {
            self.threads.fetch_sub(1, Ordering::SeqCst);
            return Err(Denied::Otherwise);
        }
        Ok(())
    }

    /// Counts one more thread, if the limit allows. The count never exceeds the limit, not even for a moment: others would see it, and be
    /// refused.
    fn count_below_limit(&self) -> bool {
        let limit = self.thread_limit();
        let mut count = self.threads.load(Ordering::Relaxed);
        while count < limit {
            match self.threads.compare_exchange_weak(
                count,
                count + 1,
                Ordering::SeqCst, // before the look whether the runtime stops
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(found) => count = found,
            }
        }
        false
    }

    /// The mask of a pool's workers, and where they belong.
    pub(crate) fn place_of(&self, pool: &Pool<P>) -> (CpuSet, Place) {
        let (pod, mask) = (pool.key.pod.clone(), self.mask_of(pool));
        let place = if pool.key.bound { Place::bound(pod) } else { Place::new(pod, mask.clone()) };
        (mask, place)
    }

    /// The mask that a pool's workers have when nothing else is wanted. Where the pool may use all that the process may,
    /// that is the widest one.
    fn mask_of(&self, pool: &Pool<P>) -> CpuSet {
        let allowed = self.surroundings().limits.effective();
        // Where a CPU of a per-CPU queue is offline or not allowed, its workers go there when they can (`place`).
        let away = pool.key.bound && !pool.key.pod.intersects(&allowed);
        if away || pool.key.allowed == allowed && !pool.key.strict {
            self.widest_mask()
        } else {
            pool.key.allowed.clone()
        }
    }

    /// All that the process may use. Where nothing but the cpuset limits that, the mask is every CPU there could be: the
    /// system cuts it to the cpuset, and lets it grow with the cpuset.
    pub(crate) fn widest_mask(&self) -> CpuSet {
        let surroundings = self.surroundings();
        let limits = &surroundings.limits;
        let whole = limits.cpuset.as_ref().is_none_or(|cpuset| cpuset.is_subset(&limits.affinity))
            && limits.online.is_subset(&limits.affinity);
        if whole { surroundings.topology.possible().clone() } else { limits.effective() }
    }

    /// Ends every thread, and waits for them unless the caller is one.
    pub(super) fn stop(&self) {
        self.tell_to_stop();
        if self.is_within() {
            return;
        }
        self.join_threads();
        // A thread that was being started when the handles were taken ends by itself.
        while self.has_threads() || self.monitor.is_alive() || self.timer.is_alive() {
            P::sleep(Duration::from_micros(100));
        }
        self.join_last_ended();
    }

    /// Waits for the thread that has ended last, which waits for the one before, and so on.
    fn join_last_ended(&self) {
        let handle = self.last_ended.lock().take();
        handle.into_iter().for_each(P::join);
    }

    /// Whether the caller is a thread of the runtime, which cannot wait until these have ended.
    pub(crate) fn is_within(&self) -> bool {
        P::employer() == self.number
    }

    /// Whether a worker or a rescuer is left. In this order: a worker that ends counts among the leaving before it leaves the others.
    pub(crate) fn has_threads(&self) -> bool {
        self.threads.load(Ordering::SeqCst) != 0
            || self.leaving.load(Ordering::SeqCst) != 0
            || self.reserved.load(Ordering::SeqCst) != 0
    }

    /// Has every thread end as soon as it has nothing in its hands.
    pub(crate) fn tell_to_stop(&self) {
        self.stopping.store(1, Ordering::SeqCst);
        P::model_fence();
        self.monitor.stop();
        self.timer.stop();
        for worker in self.table.iter() {
            worker.parker.unpark();
        }
    }

    /// Waits until the threads have ended that were told to stop. Not by one of them.
    pub(crate) fn join_threads(&self) {
        for worker in self.table.iter() {
            let handle = worker.handle.lock().take();
            if let Some((_, handle)) = handle {
                P::join(handle);
            }
        }
        self.join_last_ended();
        self.monitor.join();
        self.timer.join();
    }
}

impl<P: Platform> Inner<P> {
    /// The caller, a new thread for `priority`, looks what came of that, and says so where it matters.
    pub(crate) fn arrive(&self, priority: &Priority) {
        let priorities = &self.priorities;
        let wanted = priorities.scheduling(priority);
        if let Some(nice) = priority::take::<P>(wanted) {
            priorities.note_reached(wanted.nice, nice);
        }
    }

    /// A pool of that priority was made: the threads that serve all queues follow.
    pub(crate) fn serve_priority(&self, priority: &Priority) {
        let priorities = &self.priorities;
        if priorities.favoured.add(&priorities.absolute(priority))
            && let Some(thread) = self.monitor.thread()
        {
            priorities.favoured.favour(thread);
        }
    }

    /// The caller, the monitor, is as favoured as the most favoured pool from now on. Before: it has said who it is.
    pub(crate) fn favour_monitor(&self) {
        self.priorities.favoured.favour(P::current_thread());
    }
}

/// A worker's entry on its way into the worker's thread.
pub(crate) struct Entry<P: Platform>(pub(crate) *const Worker<P>);

// SAFETY: the entry is shared between threads by design, and lives as long as the runtime.
unsafe impl<P: Platform> Send for Entry<P> {}

#[cfg(test)]
mod tests;
