//! A worker as the rest of the runtime sees it: its state, its batch, and what it is doing.
//!
//! # Status
//!
//! | status | meaning | changed by |
//! |---|---|---|
//! | `FREE` | no thread; the entry can be used again | the thread that starts a worker: to `AWAKE` |
//! | `AWAKE` | its thread runs, or has been woken | the worker, before it settles: to `IDLE` |
//! | `GRANTED` | as `AWAKE`, and was given a place of its concurrency limit when it was woken | the worker, when it notes that: to `AWAKE` |
//! | `IDLE` | asleep, or about to be; on the idle stack | the thread that pops it: to `AWAKE`; the worker itself when it slept too long: to `DEAD`; |
//! | | | the thread that retires it (`runtime/limit`): to `LEAVING` |
//! | `LEAVING` | retired, but its thread does not know yet; still on the idle stack | the worker: to `DEAD`; the thread that pops it: to `OFF` |
//! | `OFF` | as `LEAVING`, off the idle stack | the worker: to `FREE` |
//! | `DEAD` | its thread ends; still on the idle stack | the thread that pops it: to `FREE` |
//!
//! From `IDLE`, the compare-exchanges to `AWAKE`, to `DEAD` and to `LEAVING` decide between the thread that wakes it, the worker that ends
//! by itself, and the thread that retires it. From `LEAVING`, those to `DEAD` and to `OFF` decide which thread frees the entry: it is not
//! free while its thread may sleep in it. The loop that a worker runs is in `run`.

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Parker, Platform};
use nearq_topology::safe_text;

use crate::base::forked;
use crate::deque::LazyDeque;
use crate::item::ItemVtable;
use crate::item::account::Account;
use crate::item::batch::Batch;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::pool::Pool;

pub(crate) use crate::pool::worker_slab::WorkerSlab;

const FREE: u32 = 0;
const AWAKE: u32 = 1;
const IDLE: u32 = 2;
const DEAD: u32 = 3;
const GRANTED: u32 = 4;
const LEAVING: u32 = 5;
const OFF: u32 = 6;

/// Bytes of a worker's description, as in the kernel (which keeps one for the terminating zero).
pub(crate) const DESCRIPTION: usize = 31;

/// What the monitor counts of a worker, for the pwq that the worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Another worker was called because this one slept inside its item.
    Replaced,
    /// Its item used the CPU of a per-CPU pool for too long.
    Hogged,
}

/// One worker, or a rescuer (`run/rescue`), as other threads see it. A rescuer's entry is on no stack: its status says whether it sleeps,
/// and only the rescuer writes it.
#[repr(align(128))]
pub(crate) struct Worker<P: Platform> {
    /// Its number in the runtime's slab.
    pub(crate) index: u32,
    status: P::AtomicU32,
    /// The worker below on the idle stack.
    pub(crate) next_idle: P::AtomicU32,
    pub(crate) parker: Parker<P>,
    /// The pool that it belongs to, or last belonged to; for a rescuer, the pool where it last was. Never null. Written by the thread that
    /// has claimed the entry, or by the rescuer.
    pool: P::AtomicPtr<Pool<P>>,
    /// The items that it has taken and not yet started.
    pub(crate) batch: Batch<P>,
    /// The jobs of its item, if that forks.
    pub(crate) deque: LazyDeque<P>,
    /// Whether it counts as loaded in its pool. The worker's own.
    loaded: P::AtomicU32,
    /// The account of the item that runs; keeps the account's owner from being freed.
    account: P::AtomicPtr<Account<P>>,
    /// Whether it has a place of its concurrency limit: it runs items or searches for some.
    placed: P::AtomicU32,
    /// What the monitor has counted for the worker, and the worker has not yet passed on to its pwq: see [`Counted`].
    counted: [P::AtomicU32; 2],
    /// The table of the item that runs, or ran last in this batch; null between batches.
    running: P::AtomicPtr<ItemVtable<P>>,
    /// One more than the number of the node where the item that runs is at home; 0 if it has no home.
    home: P::AtomicU32,
    /// When it took its batch or entered its start hook.
    began: P::AtomicU64,
    /// One more than the CPU on which it went to sleep; 0 if that is not known. Relaxed: a hint (`wake`).
    slept_on: P::AtomicU32,
    /// Whether it is in its start hook. Relaxed: only displayed.
    hooked: P::AtomicU32,
    /// The worker's thread, as the system knows it.
    pub(crate) thread: Mutex<Option<P::Thread>, P>,
    /// The right to wait for the thread's end, and the thread's number among all that were started. The thread takes it when it ends
    /// (`run/threads`).
    pub(crate) handle: Mutex<Option<(u32, P::JoinHandle)>, P>,
    description: Mutex<String, P>,
    /// Whether the entry is for rescuers (`run/rescue`) and belongs to no pool.
    rescues: bool,
    /// The thread's name, if it is not derived from the pool's number.
    title: Mutex<String, P>,
}

impl<P: Platform> Worker<P> {
    /// A worker of `pool`, about to be started.
    pub(crate) fn new(index: u32, pool: *const Pool<P>) -> Self {
        Worker {
            index,
            status: P::AtomicU32::new(AWAKE),
            next_idle: P::AtomicU32::new(0),
            parker: Parker::new(),
            pool: P::AtomicPtr::new(pool.cast_mut()),
            batch: Batch::new(),
            deque: LazyDeque::new(),
            loaded: P::AtomicU32::new(0),
            account: P::AtomicPtr::new(core::ptr::null_mut()),
            placed: P::AtomicU32::new(0),
            counted: core::array::from_fn(|_| P::AtomicU32::new(0)),
            running: P::AtomicPtr::new(core::ptr::null_mut()),
            home: P::AtomicU32::new(0),
            began: P::AtomicU64::new(0),
            slept_on: P::AtomicU32::new(0),
            hooked: P::AtomicU32::new(0),
            thread: Mutex::new_in(None),
            handle: Mutex::new_in(None),
            description: Mutex::new_in(String::new()),
            rescues: false,
            title: Mutex::new_in(String::new()),
        }
    }

    /// An entry for rescuers, the first of which is about to be started.
    pub(crate) fn rescuer(index: u32, pool: *const Pool<P>) -> Self {
        Worker { rescues: true, ..Worker::new(index, pool) }
    }

    /// Whether it is an entry for rescuers.
    pub(crate) fn rescues(&self) -> bool {
        self.rescues
    }

    /// The pool it belongs to; for a rescuer, the pool where it last was.
    pub(crate) fn pool(&self) -> &Pool<P> {
        // Acquire: pairs with the release in `set_pool`.
        // SAFETY: pools live as long as the runtime, and so does the slab that holds the worker.
        unsafe { &*self.pool.load(Ordering::Acquire) }
    }

    /// A rescuer goes to that pool, or the entry is used by it from now on.
    pub(crate) fn set_pool(&self, pool: *const Pool<P>) {
        self.pool.store(pool.cast_mut(), Ordering::Release);
    }

    /// Names the thread of a rescuer, which is about to be started.
    pub(crate) fn set_title(&self, title: &str) {
        title.clone_into(&mut self.title.lock());
    }

    /// Moves up to `count` items from the front of `list` into the batch, which is empty; returns how many. Only for the worker itself.
    pub(crate) fn fill(&self, list: &mut List<P>, count: usize) -> usize {
        // Before the items move, so that helpers never overlook items that are on no list any more. A single item starts at once.
        if count.min(list.len()) > 1 && self.loaded.load(Ordering::Relaxed) == 0 {
            self.loaded.store(1, Ordering::Relaxed);
            self.pool().change_loaded(true);
        }
        self.batch.fill(list, count)
    }

    /// Takes the younger half of the batch, if the worker is one of that pool; returns how many.
    pub(crate) fn steal(&self, pool: &Pool<P>, into: &mut List<P>) -> usize {
        self.batch.steal(into, || core::ptr::eq(self.pool(), pool))
    }

    /// The next item of the batch. Only for the worker itself.
    #[inline]
    pub(crate) fn next(&self) -> Option<Pending<P>> {
        let item = self.batch.pop();
        if item.is_none() && self.loaded.load(Ordering::Relaxed) != 0 {
            self.loaded.store(0, Ordering::Relaxed);
            self.pool().change_loaded(false);
        }
        item
    }

    fn change(&self, from: u32, to: u32) -> bool {
        // AcqRel: what the worker wrote before it settled is visible to the thread that wakes it, and the other way round.
        self.status.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Takes a free entry for a new thread.
    pub(crate) fn claim_free(&self) -> bool {
        self.change(FREE, AWAKE)
    }

    /// The thread to be started has a place of its concurrency limit.
    pub(crate) fn grant(&self) {
        self.status.store(GRANTED, Ordering::Release);
    }

    /// The thread could not be started.
    pub(crate) fn not_started(&self) {
        self.status.store(FREE, Ordering::Release);
    }

    /// A rescuer goes to work.
    pub(crate) fn set_awake(&self) {
        self.status.store(AWAKE, Ordering::Release);
    }

    /// The worker is about to settle, or a rescuer to sleep.
    pub(crate) fn set_sched_idle(&self) {
        self.status.store(IDLE, Ordering::Release);
    }

    /// The thread that popped it wakes it, possibly with a place of its concurrency limit; false if it is dead.
    pub(crate) fn claim_idle(&self, with_place: bool) -> bool {
        self.change(IDLE, if with_place { GRANTED } else { AWAKE })
    }

    /// The worker has slept too long and ends; false if a thread is waking it.
    pub(crate) fn die(&self) -> bool {
        self.change(IDLE, DEAD)
    }

    /// Makes the sleeping worker end; false if it does not sleep any more. If true, the caller unparks it.
    pub(crate) fn retire(&self) -> bool {
        self.change(IDLE, LEAVING)
    }

    /// Whether it was retired, so that it must end; notes that it knows. By the worker itself, after it was woken.
    pub(crate) fn leave(&self) -> bool {
        if !matches!(self.status.load(Ordering::Acquire), LEAVING | OFF) {
            return false;
        }
        if !self.change(LEAVING, DEAD) {
            self.status.store(FREE, Ordering::Release);
        }
        true
    }

    /// The thread that popped it found it dead or retired: the entry is free now, or will be once its thread has woken.
    pub(crate) fn bury(&self) {
        if !self.change(LEAVING, OFF) {
            self.status.store(FREE, Ordering::Release);
        }
    }

    /// Frees the entry: its thread is the parent's. Its handle is forgotten: there is no thread to join or detach. The parker stays as it
    /// is: whatever is left there is consumed by the first `park` of the entry's next thread, which checks its status again.
    ///
    /// In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.status, FREE);
        forked::set(&self.loaded, 0);
        forked::set(&self.placed, 0);
        forked::set(&self.account, core::ptr::null_mut());
        forked::set(&self.running, core::ptr::null_mut());
        forked::set(&self.home, 0);
        forked::set(&self.hooked, 0);
        self.batch.after_fork_in_child();
        self.deque.after_fork_in_child();
        // SAFETY: this is the only thread, and has no guard of any of them: no user's code, which could fork, runs under these locks.
        unsafe {
            self.thread.renew(None);
            self.handle.renew(None);
            self.description.renew(String::new());
            self.title.renew(String::new());
        }
    }

    /// Whether the entry has a thread.
    pub(crate) fn is_alive(&self) -> bool {
        matches!(self.status.load(Ordering::Acquire), AWAKE | GRANTED | IDLE)
    }

    /// Whether it sleeps.
    pub(crate) fn is_idle(&self) -> bool {
        self.status.load(Ordering::Acquire) == IDLE
    }

    /// Whether it was given a place when it was woken. By the worker, awake.
    pub(crate) fn take_grant(&self) -> bool {
        self.change(GRANTED, AWAKE)
    }

    /// It has got a place of its concurrency limit, or has lost it. Only for the worker itself.
    pub(crate) fn set_placed(&self, placed: bool) {
        self.placed.store(u32::from(placed), Ordering::Relaxed);
    }

    /// Whether it has a place of its concurrency limit, as far as other threads can tell.
    pub(crate) fn is_placed(&self) -> bool {
        self.placed.load(Ordering::Relaxed) != 0
    }

    /// Counts something that its item did. By the monitor, which may not touch the pwq, because that may be gone.
    pub(crate) fn count(&self, what: Counted) {
        self.counted[what as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What was counted since the last time. By the worker itself.
    pub(crate) fn take_counted(&self, what: Counted) -> u32 {
        let counted = &self.counted[what as usize];
        if counted.load(Ordering::Relaxed) == 0 { 0 } else { counted.swap(0, Ordering::Relaxed) }
    }

    /// The node where the item that it runs is at home.
    pub(crate) fn home(&self) -> Option<u32> {
        self.home.load(Ordering::Relaxed).checked_sub(1)
    }

    /// As [`home`](Self::home), by the worker itself.
    pub(crate) fn set_home(&self, node: Option<u32>) {
        self.home.store(node.map_or(0, |node| node + 1), Ordering::Relaxed);
    }

    /// The CPU on which it went to sleep, if a scheduler received wake hints then.
    pub(crate) fn slept_on(&self) -> Option<usize> {
        self.slept_on.load(Ordering::Relaxed).checked_sub(1).map(|cpu| cpu as usize)
    }

    /// The worker itself is about to sleep.
    pub(crate) fn note_sleep(&self) {
        if P::receives_wake_hints() {
            self.slept_on.store(P::current_cpu() as u32 + 1, Ordering::Relaxed);
        }
    }

    /// The account whose items it serves now; null between batches.
    pub(crate) fn account(&self) -> *const Account<P> {
        // Acquire: pairs with `set_account`; null means that the worker has finished with the pwq that it served. SeqCst: Dekker's pattern
        // with a thread that waits for the departure (`Services::departures`).
        self.account.load(Ordering::SeqCst)
    }

    /// Sets the account whose items it serves.
    #[inline]
    pub(crate) fn set_account(&self, account: *const Account<P>) {
        // Release: everything done for the last account comes before. What is done for the new one ends with a read-modify-write of its
        // counter, which orders this store before it. SeqCst: Dekker's pattern with a thread that waits for the departure
        // (`Services::departures`).
        self.account.store(account.cast_mut(), Ordering::SeqCst);
    }

    /// Sets what it runs; null for nothing.
    #[inline]
    pub(crate) fn set_running(&self, table: *const ItemVtable<P>) {
        self.running.store(table.cast_mut(), Ordering::Relaxed);
    }

    /// Its thread, which is the caller, enters its start hook.
    pub(crate) fn enter_hook(&self) {
        *self.thread.lock() = Some(P::current_thread());
        self.set_began(P::now());
        self.hooked.store(1, Ordering::Relaxed);
    }

    /// The hook has returned.
    pub(crate) fn leave_hook(&self) {
        self.hooked.store(0, Ordering::Relaxed);
    }

    /// Whether it is in its start hook.
    pub(crate) fn is_in_hook(&self) -> bool {
        self.hooked.load(Ordering::Relaxed) != 0
    }

    /// Sets when it took the batch that it runs now.
    #[inline]
    pub(crate) fn set_began(&self, now: Instant) {
        self.began.store(now.as_nanos(), Ordering::Relaxed);
    }

    /// When it took the batch that it runs now or ran last; while it is in its start hook, when it entered the hook.
    pub(crate) fn began(&self) -> Instant {
        Instant::from_nanos(self.began.load(Ordering::Relaxed))
    }

    /// Whether it runs an item, as far as other threads can tell; false between batches, possibly true between items.
    pub(crate) fn is_in_item(&self) -> bool {
        !self.running.load(Ordering::Relaxed).is_null()
    }

    /// The name of the function that it runs.
    pub(crate) fn function(&self) -> Option<&'static str> {
        let table = self.running.load(Ordering::Relaxed);
        // SAFETY: tables are statics.
        let table: &'static ItemVtable<P> = unsafe { table.as_ref() }?;
        Some(table.name.text())
    }

    /// The name of its thread.
    pub(crate) fn name(&self) -> String {
        if self.rescues {
            return self.title.lock().clone();
        }
        let pool = self.pool();
        match pool.key.pod.first().filter(|_| pool.key.bound) {
            Some(cpu) => {
                let favoured = if pool.key.priority.nice < 0 { "H" } else { "" };
                format!("nq/{cpu}:{}{favoured}", self.index)
            }
            None => format!("nq/u{}:{}", pool.id, self.index),
        }
    }

    /// The description that its current item has set.
    pub(crate) fn description(&self) -> String {
        self.description.lock().clone()
    }

    /// Sets the current item's description, cut to 31 bytes.
    pub(crate) fn set_description(&self, text: &str) {
        let mut description = self.description.lock();
        description.clear();
        description.push_str(safe_text::beginning(text, DESCRIPTION));
    }
}
