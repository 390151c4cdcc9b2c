//! A thread that a queue keeps for the case that no worker can be started: `nq/R-QUEUE`.
//!
//! Workers are started when they are needed. If a limit on threads or on memory forbids that, and all existing workers sleep inside their
//! items, nothing would ever start; and the sleeping items may be waiting for an item that does not start. A queue built with `rescuer()`
//! has a thread that was started with it, which runs its items then.
//!
//! # Which thread calls
//! * A thread that fails to start a worker for a pool notes that in the pool's [`SpawnFailure`](crate::pool::spawn_failure::SpawnFailure). The note
//!   stays until a worker can be started.
//! * On each check, the monitor (`monitor/rescue`) goes through the pools that cannot start workers. If work waits and nothing has been
//!   started for [`FIRST`](crate::pool::spawn_failure::FIRST) since a worker was refused, it calls the rescuers of the queues that have
//!   something there, and again after each [`INTERVAL`](crate::pool::spawn_failure::INTERVAL). What rescuers start does not count as
//!   started: otherwise one of them could keep the others from being called.
//! * The monitor's own thread is started with the first rescuer, because it could not be started later; so is the timer's, without which no
//!   delayed item would ever be queued.
//!
//! # What a rescuer does
//! It takes the calls one after the other. For each it goes to the pool (takes the affinity of its workers), and runs items of its own
//! queue there, one at a time, while the pool cannot start workers, has no sleeping worker, and has such items; then it comes back. It
//! takes one at a time because what it has not started must stay where workers can find it, if there are any again. After [`BATCH`] items,
//! another pool that has called comes first.
//!
//! Items see no difference from a worker: a rescuer has an entry in the runtime's slab and a `Context`, and runs items by `Runner`. But it
//! is not counted as a worker: it takes no place of a concurrency limit, and belongs to no pool, so no thread wakes it for work, steals
//! from it, or waits for its place. So it needs nothing that a worker asleep in an item may have taken.
//!
//! # Which items are its own
//! Those on a pwq of its queue, wherever they are: helpers carry items of one pool in batches of another. Also the activation items of its
//! queue's domains, without which what is held back would stay so. Nodes of other queues may be cancelled ones, whose pwq is gone; so
//! pwqs are compared as addresses and never followed. If an address was reused, the rescuer may take a cancelled node of another queue: it
//! throws it away, as any worker does.
//!
//! What workers have in their batches is put back onto the front of the pool's list, because it came before what is there. Then the
//! rescuer's own items are moved to the front, in their order, so that taking the next ones does not walk past all others again. (The order
//! is promised within a queue's pool only.)
//!
//! # A call while the rescuer goes back to sleep
//! A call is put on the list (CALL), then the parker gets a permit (WAKE). The rescuer takes the list (TAKE), and parks if it was empty
//! (SLEEP). The list is under a lock, so TAKE either sees CALL or comes before it; in the latter case WAKE comes after TAKE, and SLEEP
//! finds the permit. A rescuer that finds nothing to do, because what waited has been started meanwhile, has lost some microseconds.
//! An item that is queued after the rescuer has checked, and before it leaves, waits for the next call: a rescue restarts the failure's
//! time, so that call comes after [`FIRST`](crate::pool::spawn_failure::FIRST).
//!
//! # Its end
//! The thread has no handle of its queue, and upgrades a weak one for each call. So the queue may end at any time. If the rescuer has the
//! last reference, the queue ends in the rescuer. A thread that drops the queue's handle drains the queue, then ends the rescuer's thread
//! and waits for it ([`Rescuer::end`]). A queue that ends elsewhere (it was dropped by an item of its own) tells the thread to end and does
//! not wait: the thread that frees it may be a worker, or the rescuer itself. Nor does the rescuer wait if it drops the last handle in a
//! hook of its own. The thread that ends the runtime waits until no such thread is left (`Core::reserved`: incremented before the thread is
//! started, then `stopping` is read; the thread that stops writes `stopping`, then reads the count; all `SeqCst`).
//!
//! Handles of threads are in the entries of the slab. An entry is used again after its thread has ended; so the thread that ends another
//! takes the handle first, and then tells that thread. `lifecycle` makes starting and ending come one after the other.
//!
//! # Forks
//! In the child there is no rescuer at first: most children `exec`. `Services::rescuers_missing` is set, and the first thread that is
//! started there, for any queue, makes the monitor start the rescuers too (`monitor/rescue`). If that fails, there is one warning, and
//! further attempts while work waits.

use core::num::NonZeroUsize;
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, AtomicInt, Ordering, OsError, Platform, ThreadSpec};

use super::threads::Entry;
use super::{Ran, Runner};
use crate::base::error::Error;
use crate::item::Item;
use crate::layout::priority::{Favoured, MOST_FAVOURED, Priority};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;
use crate::pool::context::Context;
use crate::pool::worker::Worker;
use crate::queue::Queue;
use crate::queue::rescuer::Rescuer;
use crate::queue::runtime::Inner;
use crate::runtime::config::{WorkerInfo, call_hook};

/// The most items in one place while others call.
const BATCH: u32 = 16;
/// The priority that a rescuer asks for, as in the kernel: what it runs has waited for long enough.
const PRIORITY: Priority = Priority { nice: MOST_FAVOURED, idle: false, slice: None };

impl<P: Platform> Rescuer<P> {
    /// Starts the thread of the queue's rescuer, and those without which it would not be called. Does nothing if they exist.
    ///
    /// # Errors
    /// One of them could not be started; the runtime was shut down.
    pub(crate) fn start(self: &Arc<Self>, queue: &Arc<Queue<P>>) -> Result<(), Error> {
        let failed = |refused| Error::NoRescuer { queue: queue.name.clone(), refused };
        let inner = queue.inner();
        let _lifecycle = self.lifecycle.lock();
        if self.is_stopped() || self.entry().is_some() {
            return Ok(());
        }
        inner.services.alarm.reserve().map_err(failed)?;
        inner.timer.reserve().map_err(failed)?;
        if !inner.count_rescuer() {
            return Err(Error::ShutDown);
        }
        let started = self.start_thread(inner, queue);
        if started.is_err() {
            inner.reserved.fetch_sub(1, Ordering::SeqCst);
        }
        started.map_err(failed)
    }

    fn start_thread(
        self: &Arc<Self>,
        inner: &Inner<P>,
        queue: &Arc<Queue<P>>,
    ) -> Result<(), OsError> {
        let first = queue.pwqs().next().expect("a queue has a pwq");
        let worker =
            inner.services.workers.iter().find(|worker| worker.rescues() && worker.claim_free());
        let new = |index| Worker::rescuer(index, Arc::as_ptr(&first.pool));
        let Some(worker) = worker.or_else(|| inner.services.workers.add(new)) else {
            let remedy =
                "the runtime has used up its thread numbers; build fewer queues with a rescuer";
            return Err(OsError::new("find a number for another rescuer", 0, remedy));
        };
        worker.set_title(&format!("nq/R-{}", queue.name));
        let info = WorkerInfo { name: worker.name(), pod: queue.layout().effective };
        let spec = ThreadSpec {
            name: info.name.clone(),
            stack_size: inner.config.stack_size.map(NonZeroUsize::get),
            affinity: Some(inner.resting_mask()),
            scheduling: Some(inner.priorities.scheduling(&PRIORITY)),
            signals: Some(inner.config.signals),
            ..ThreadSpec::default()
        };
        let own = inner.shared();
        let entry = Entry(core::ptr::from_ref(worker));
        let (rescuer, queue) = (Arc::clone(self), Arc::downgrade(queue));
        self.worker.store(core::ptr::from_ref(worker).cast_mut(), Ordering::Release);
        let main = move || {
            let entry = entry;
            // SAFETY: the entry lives as long as the runtime, which `own` keeps alive.
            let worker = unsafe { &*entry.0 };
            // Hooks and items may fork. In the child this thread is not a rescuer, and not counted.
            let epoch = P::fork_epoch();
            P::set_employer(own.number);
            // Before any foreign code: see "Its end".
            worker.enter_hook();
            favour::<P>();
            call_hook(own.config.on_start.as_ref(), &info);
            if P::fork_epoch() == epoch {
                worker.leave_hook();
                live(&own, &rescuer, &queue, worker);
            }
            if P::fork_epoch() == epoch {
                call_hook(own.config.on_stop.as_ref(), &info);
            }
            if P::fork_epoch() == epoch {
                *worker.thread.lock() = None;
                worker.not_started();
                own.reserved.fetch_sub(1, Ordering::SeqCst);
            }
        };
        match P::spawn(spec, main) {
            Ok(handle) => {
                // A rescuer's handle is taken by the thread that ends it, so it needs no number.
                *worker.handle.lock() = Some((0, handle));
                Ok(())
            }
            Err(refused) => {
                self.worker.store(core::ptr::null_mut(), Ordering::Relaxed);
                worker.not_started();
                Err(refused)
            }
        }
    }
}

/// Favours the caller as much as allowed. A refusal is not reported: without the privilege, the thread gets what it can.
fn favour<P: Platform>() {
    let most = Favoured::<P>::new();
    most.add(&PRIORITY);
    most.favour(P::current_thread());
}

/// The life of a rescuer's thread.
fn live<P: Platform>(
    inner: &Inner<P>,
    rescuer: &Rescuer<P>,
    queue: &Weak<Queue<P>>,
    worker: &Worker<P>,
) -> Ran {
    worker.set_sched_idle();
    while !rescuer.is_stopped() && !inner.is_stopping() {
        // TAKE.
        let Some(pool) = rescuer.take_call() else {
            // SLEEP.
            worker.parker.park(None);
            continue;
        };
        let Some(queue) = queue.upgrade() else { break };
        worker.set_awake();
        let ran = visit(inner, rescuer, queue, &pool, worker);
        if ran == Ran::Forked {
            return ran;
        }
        worker.set_sched_idle();
    }
    Ran::Here
}

/// Goes to the pool, runs the queue's items there as long as necessary, and comes back.
fn visit<P: Platform>(
    inner: &Inner<P>,
    rescuer: &Rescuer<P>,
    queue: Arc<Queue<P>>,
    pool: &Arc<Pool<P>>,
    worker: &Worker<P>,
) -> Ran {
    let me = P::current_thread();
    let (mask, affinity) = inner.affinity_in(pool);
    // If the system does not allow that, the rescuer runs the items where it is.
    let _ = P::set_affinity(me, &mask);
    let node = pool.near_node();
    if node.is_some() {
        P::set_home_hint(me, node.map(|node| node as usize));
    }
    worker.set_pool(Arc::as_ptr(pool));
    let context = Context::new(pool, worker);
    let entered = context.enter();
    let mut runner = Runner::new(&context, inner, pool, worker, affinity);
    if rescue(rescuer, &queue, pool, &mut runner) == Ran::Forked {
        // In the child it is an ordinary thread, whose reference to the queue is the child's own.
        return Ran::Forked;
    }
    runner.let_go();
    inner.reap_orphans();
    if pool.has_work() {
        // What was put back from batches may have come when every worker was about to sleep.
        pool.call_worker();
    }
    // The rescuer may have the last reference to the queue, and the queue the last one to the runtime: then this still runs in one of the
    // runtime's threads.
    drop(queue);
    drop(entered);
    if node.is_some() {
        P::set_home_hint(me, None);
    }
    let _ = P::set_affinity(me, &inner.resting_mask());
    Ran::Here
}

fn rescue<P: Platform>(
    rescuer: &Rescuer<P>,
    queue: &Queue<P>,
    pool: &Arc<Pool<P>>,
    runner: &mut Runner<'_, P>,
) -> Ran {
    let mut own = Own { queue, newest: core::ptr::null(), pwqs: Vec::new() };
    let mut items = 0;
    // A worker that sleeps there will be woken for what waits.
    while pool.spawn_failure.lasts() && !pool.idle().has_idle() {
        own.refresh();
        let Some(item) = pool.take_one(|item| own.has(item)) else { break };
        if runner.run_one(item) == Ran::Forked {
            return Ran::Forked;
        }
        pool.spawn_failure.begin_anew();
        items += 1;
        if items >= BATCH && rescuer.has_calls() {
            rescuer.call(pool);
            break;
        }
    }
    Ran::Here
}

/// The pwqs and activation items that belong to a queue.
struct Own<'a, P: Platform> {
    queue: &'a Queue<P>,
    newest: *const PoolWorkqueue<P>,
    /// The addresses of its pwqs, sorted.
    pwqs: Vec<*const PoolWorkqueue<P>>,
}

impl<P: Platform> Own<'_, P> {
    /// Adds pwqs that are new.
    fn refresh(&mut self) {
        let newest = self.queue.newest_pwq();
        if newest != self.newest {
            self.newest = newest;
            self.pwqs = self.queue.pwqs().map(core::ptr::from_ref).collect();
            self.pwqs.sort_unstable();
        }
    }

    /// Whether the node, which is on a list of the caller's, belongs to the queue. See "Which items are its own".
    fn has(&self, item: &Item<P>) -> bool {
        let pwq = PoolWorkqueue::of(item.account());
        if pwq.is_null() {
            return self.queue.domains().any(|domain| domain.activation_item.is(item));
        }
        self.pwqs.binary_search(&pwq).is_ok()
    }
}

#[cfg(test)]
mod tests;
