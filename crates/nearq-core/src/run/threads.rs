//! The threads of workers: how one is started, what it does before it looks for work, and what after.

use core::num::NonZeroUsize;

use nearq_platform::{AtomicInt, Ordering, Platform, ThreadSpec};
use nearq_topology::CpuSet;

use crate::pool::Pool;
use crate::pool::services;
use crate::pool::spawn_failure::Denied;
use crate::pool::worker::Worker;
use crate::queue::runtime::Inner;
use crate::runtime::config::{WorkerInfo, call_hook};

impl<P: Platform> services::Host<P> for Inner<P> {
    /// Starts the thread of `worker`, an entry of `pool`.
    fn start_thread(&self, pool: &Pool<P>, worker: &Worker<P>) -> Result<(), Denied> {
        self.count_thread()?;
        let (mask, affinity) = self.affinity_in(pool);
        let info = WorkerInfo { name: worker.name(), pod: pool.key.pod.clone() };
        let spec = ThreadSpec {
            name: info.name.clone(),
            stack_size: self.config.stack_size.map(NonZeroUsize::get),
            affinity: Some(mask.clone()),
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
        let source = self.config.threads.clone();
        let borrows = source.is_some();
        let main = move || {
            let entry = entry;
            let lent =
                borrows.then(|| Lent::<P>::begin(&own.machine_config().limits.effective(), &mask));
            // SAFETY: the entry lives as long as the runtime, which `own` keeps alive.
            let worker = unsafe { &*entry.0 };
            P::set_employer(own.number);
            // Hooks and items may fork. In the child this thread is not a worker, and not counted.
            let epoch = P::fork_epoch();
            own.begin_worker(&pool, worker, &info);
            let mut affinity = affinity;
            if let Some(mask) = lent.as_ref().and_then(Lent::restricted) {
                affinity.stay_within(mask);
            }
            if let Some(node) = pool.node.filter(|_| own.services.homes.has_several()) {
                // The part of its stack that it touches from here on lies on its node. The first page was touched by the thread that
                // started it.
                affinity.begin_on::<P>(node, &own.services.homes);
                // The system's scheduler makes it go back there; it forgets that with the thread.
                P::set_home_hint(P::current_thread(), Some(node as usize));
            }
            let mut retired = false;
            if P::fork_epoch() == epoch {
                retired = crate::run::run(&own, &pool, worker, affinity);
            }
            if P::fork_epoch() == epoch {
                // The hook may wait for work of another thread that the limit allows only now. This count first: the thread that stops the
                // runtime waits for both.
                own.leaving.fetch_add(1, Ordering::SeqCst);
                own.thread_ended(retired);
                call_hook(own.config.on_stop.as_ref(), &info);
            }
            if P::fork_epoch() == epoch {
                let before = own.bow_out(worker, number);
                own.leaving.fetch_sub(1, Ordering::SeqCst);
                // The thread is not counted any more, and only has to end.
                before.into_iter().for_each(P::join);
            }
        };
        if let Some(source) = source {
            source(Box::new(main));
            return Ok(());
        }
        match P::spawn(spec, main) {
            Ok(handle) => {
                // If the entry's last thread ended before it could find its handle here, that handle is dropped now.
                *worker.handle.lock() = Some((number, handle));
                Ok(())
            }
            Err(_) => {
                self.threads.fetch_sub(1, Ordering::SeqCst);
                Err(Denied::Otherwise)
            }
        }
    }

    fn want_thread(&self, pool: &Pool<P>) {
        Self::want_thread(self, pool);
    }

    fn want_thread_badly(&self, pool: &Pool<P>) {
        Self::want_thread_badly(self, pool);
    }

    fn put_into_service(&self, pool: &Pool<P>) {
        Self::put_into_service(self, pool);
    }

    fn is_shut(&self) -> bool {
        Self::is_shut(self)
    }
}

impl<P: Platform> Inner<P> {
    /// Ends the thread of a worker, which is the caller. A thread that is never joined keeps its stack, so each waits for the one that has
    /// ended before it, which is returned; the thread that stops the runtime waits for the last one.
    fn bow_out(&self, worker: &Worker<P>, number: u32) -> Option<P::JoinHandle> {
        // Its entry may belong to another thread by now, with that thread's handle.
        let own = worker.handle.lock().take_if(|(of, _)| *of == number);
        // Otherwise the thread that stops the runtime has the handle, or the thread that started this one has not stored it yet.
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
}

/// The mask of a thread that another layer lends for a worker. If the thread may use only a part of what the process may use, because that
/// layer or the thread that started it has restricted it, the mask stays. Otherwise the thread has the worker's mask while this value lives,
/// as a thread of the runtime's own has from the beginning.
struct Lent<P: Platform> {
    own: Option<CpuSet>,
    /// The mask that it has as a worker; `None` if its own stays.
    given: Option<CpuSet>,
    _platform: core::marker::PhantomData<P>,
}

impl<P: Platform> Lent<P> {
    /// By the thread itself. `allowed` is what the process may use.
    fn begin(allowed: &CpuSet, mask: &CpuSet) -> Self {
        let read = || P::affinity(P::current_thread()).ok();
        let own = read();
        let is_restricted = own.as_ref().is_some_and(|own| !allowed.is_subset(own));
        // A refusal leaves the thread where it is.
        let changes = !is_restricted && P::set_affinity(P::current_thread(), mask).is_ok();
        let given = if changes { read() } else { None };
        Lent { own, given, _platform: core::marker::PhantomData }
    }

    /// The mask of its own, if that stays.
    fn restricted(&self) -> Option<&CpuSet> {
        self.own.as_ref().filter(|_| self.given.is_none())
    }
}

impl<P: Platform> Drop for Lent<P> {
    fn drop(&mut self) {
        // Any other mask was set from outside meanwhile.
        if let (Some(own), Some(given)) = (&self.own, &self.given) {
            if P::affinity(P::current_thread()).is_ok_and(|mask| mask == *given) {
                let _ = P::set_affinity(P::current_thread(), own);
            }
        }
    }
}

/// A worker's entry on its way into the worker's thread.
pub(crate) struct Entry<P: Platform>(pub(crate) *const Worker<P>);

// SAFETY: the entry is shared between threads by design, and lives as long as the runtime.
unsafe impl<P: Platform> Send for Entry<P> {}
