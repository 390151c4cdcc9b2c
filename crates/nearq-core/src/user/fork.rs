//! Forks: what becomes of a runtime in the child.
//!
//! A fork copies the memory and the one thread that forks. In the child's copy of a runtime, every worker, the monitor and every other
//! thread have vanished, wherever they were. These are the promises:
//!
//! * Handles that the child inherits (`Runtime`, `Workqueue`, `Work`, `JoinHandle`) work; the first use starts fresh threads.
//! * What was pending or running in the parent stays the parent's: it runs there, once, and not in the child. The child's
//!   queues are empty.
//! * No lock that was held at the fork blocks the child.
//! * The parent does not notice.
//!
//! # Steps
//! The platform calls three hooks for each runtime (`LockPlatform::follow_forks`), in the thread that forks:
//!
//! * **prepare** ([`Inner::hold_for_fork`]) takes every lock under which something of more than a word is changed, in this order:
//!   `orphans`, `queues`, each queue's `config`, `pools`, `siblings`, `concurrency_limits`, `machine_config`, those of the homes. So the
//!   child's vectors, tables and lists protected by them are whole. No queue can be freed meanwhile: its end takes `queues` first.
//! * **parent** ([`Inner::release_after_fork`]) gives them back.
//! * **child** ([`Inner::after_fork_in_child`]) gives them back too, lets the forking thread's item go on, and brings each structure into
//!   the state that it has when nothing is queued and no thread was started.
//!
//! Locks that workers take on an item's path (a pool's `ready`, a concurrency limit's `queue`, a domain's `inactive_queue`, those of a
//! worker's entry, the monitor's, the one of the thread that ended last) are not taken before the fork: that would hold up workers, and
//! what they protect is thrown away in the child anyway. They are made again there, with an empty value, unlocked; the old value may be
//! half changed and is not read. All else is single words, which are whole at any time.
//!
//! Things that the runtime has no list of (items, tasks, sets, scopes, futures that wait) store the epoch, and compare it when they are
//! first used: an item of the parent's is made idle (`Item::current`), a task of the parent's counts as cancelled (`task`), and a wait for
//! an item or a queue of the parent's counts as over (`waiting`). A waker of the parent's is never called, so a future that waited must be
//! polled once more in the child. What was on a timer is on none (`timer`, `queue/delay`). A frozen runtime stays frozen.
//!
//! # How a structure takes part
//! Each has a function `after_fork_in_child` beside its other ones, which knows its invariants. It runs with no other thread alive: it may
//! write anything, in any order; `Relaxed` is enough, because threads that are started later see what their starter saw. It must not
//! allocate more than it has to, must not drop what another thread may have been changing, and must not join or detach a thread. It uses
//! [`set`](crate::base::forked::set), which leaves a word alone that already has the value: a page that is only read need not be copied. A
//! structure calls the functions of its parts; `Inner::after_fork_in_child` is the root. A new structure with threads or lists adds a line
//! there; one that is changed under a lock by users' threads adds its lock to `hold_for_fork` and to `give_back`, or is written in single
//! words.
//!
//! # The thread that forks
//! It may be a worker, in the middle of an item. In the child it is an ordinary thread from then on: its slot is cleared, its entry is
//! free. The item's function goes on in the child as well, on the child's copy of what it captured. So the child's copy of the item stays
//! running, gets the child's epoch, and ends like any other ([`Item::after_fork_in_child`]); what was queued for it meanwhile is the
//! parent's. When the function returns, the worker's loop finds a mark that costs it nothing (`Context::clean_up`, which it reads after
//! each item anyway), sees that the epoch has changed, and ends its thread without touching pool, concurrency limit, pwq or entry. The
//! thread was the child's first: if no other thread is alive, its end ends the process; otherwise the process lives on until it exits in
//! another way. A program that forks in an item should `exec` or `exit` there.
//!
//! If a closure of a `scope` forks in a thread other than the scope's, it borrows from a thread that the child does not have: in the child
//! it must not return before the memory of that thread's stack is used for another thread. It may `exec` or `exit`. The same holds for the
//! second closure of a `join`, if another worker than the caller's runs it.
//!
//! # What leaks in the child
//! The memory of items that were pending, running or on a timer in the parent, with what their functions captured; a queue or
//! runtime that another thread was dropping or had the last handle of, or whose rescuer was running its items; a few small
//! vectors of the leaf locks. If a child would live long and inherit many pending items, make it before they are queued.
//!
//! # What is not followed
//! `vfork`, `posix_spawn` and `clone` called by hand (see `LockPlatform::follow_forks`); nothing of nearq may be used in such a child
//! before it has called `exec`. Nor may a program fork inside a waker, which runs in the middle of a step; nor in the destructor of what a
//! cancelled item captured, unless the child calls `exec` or `exit` there: the runtime runs it between two items, on whatever thread it
//! has.

use nearq_platform::{ForkHooks, Platform};

use crate::base::forked::{give_back, hold, set};
use crate::item::Item;
use crate::pool::context;
use crate::pool::worker::Worker;
use crate::queue::Queue;
use crate::queue::runtime::Inner;

struct Hooks<P: Platform>(core::marker::PhantomData<P>);

impl<P: Platform> Hooks<P> {
    const HOOKS: ForkHooks = ForkHooks {
        // SAFETY: the subject is an `Inner<P>`, which takes itself off the platform's list before anything of it is dropped.
        prepare: |inner| unsafe { &*inner.cast::<Inner<P>>() }.hold_for_fork(),
        // SAFETY: a live `Inner<P>`, as it is still on the platform's list; the platform calls this once, after `prepare`.
        parent: |inner| unsafe { (*inner.cast::<Inner<P>>()).release_after_fork() },
        // SAFETY: a live `Inner<P>`, as it is still on the platform's list; the platform calls this once, after `prepare`, before
        // anything else runs in the child.
        child: |inner| unsafe { (*inner.cast::<Inner<P>>()).after_fork_in_child() },
    };
}

/// From now on `inner` is notified of forks, until it is dropped: its drop tells the platform.
pub(crate) fn follow<P: Platform>(inner: &Inner<P>) {
    // SAFETY: `Inner`'s drop ends that before anything of it is dropped; it is shared between threads by design.
    unsafe { P::follow_forks(core::ptr::from_ref(inner).cast(), &Hooks::<P>::HOOKS) };
}

impl<P: Platform> Inner<P> {
    /// Every queue that has not ended. The caller has the lock of `queues`, as forks do.
    fn held_queues(&self) -> impl Iterator<Item = &Queue<P>> {
        // SAFETY: the lock is ours since `hold_for_fork`, so no other thread changes the vector, and it lives as long as `self`.
        let queues = unsafe { &*self.queues.data_ptr() };
        // SAFETY: a queue takes itself off the list, under the lock, before anything of it is dropped. Shared references only.
        queues.iter().map(|queue| unsafe { &*queue.as_ptr() })
    }

    /// Before a fork: takes what must not be half changed in the child's copy.
    fn hold_for_fork(&self) {
        hold(&self.orphans);
        hold(&self.queues);
        for queue in self.held_queues() {
            queue.hold_for_fork();
        }
        hold(&self.pools);
        hold(&self.siblings);
        hold(&self.concurrency_limits);
        hold(&self.machine_config);
        self.services.homes.hold_for_fork();
    }

    /// After a fork, in the process that forked.
    ///
    /// # Safety
    /// After `hold_for_fork`, once.
    unsafe fn release_after_fork(&self) {
        // SAFETY: `hold_for_fork` has taken all of them, as the caller says, and each is given back this once.
        unsafe {
            self.services.homes.release_after_fork();
            give_back(&self.machine_config);
            give_back(&self.concurrency_limits);
            give_back(&self.siblings);
            give_back(&self.pools);
        }
        for queue in self.held_queues() {
            // SAFETY: `hold_for_fork` has called the queue's, and the list is the same since: we have its lock.
            unsafe { queue.release_after_fork() };
        }
        // SAFETY: `hold_for_fork` has taken both, as the caller says, and each is given back this once. After the loop, as
        // `held_queues` reads the first.
        unsafe {
            give_back(&self.queues);
            give_back(&self.orphans);
        }
    }

    /// After a fork, in the child: resets the runtime so that nothing is queued, and no thread was started.
    ///
    /// # Safety
    /// After `hold_for_fork`, once, in the child of the fork, before anything else uses the runtime there.
    unsafe fn after_fork_in_child(&self) {
        // SAFETY: as the caller promises. There is no other thread, so the locks are free from here on.
        unsafe { self.release_after_fork() };
        self.leave_worker();
        self.services.workers.iter().for_each(Worker::after_fork_in_child);
        self.pools.lock().iter().for_each(|pool| pool.after_fork_in_child());
        self.concurrency_limits
            .lock()
            .iter()
            .for_each(|concurrency| concurrency.after_fork_in_child());
        let mut has_rescuers = false;
        for queue in self.queues.lock().iter() {
            // SAFETY: a queue takes itself off the list, under the lock, before anything of it is dropped; we have the lock for the whole
            // loop.
            let queue = unsafe { &*queue.as_ptr() };
            queue.after_fork_in_child();
            has_rescuers |= queue.rescuer().is_some();
        }
        set(&self.services.rescuers_missing, u32::from(has_rescuers));
        self.services.alarm.after_fork_in_child();
        self.hogs.after_fork_in_child();
        self.timer.after_fork_in_child();
        self.services.departures.after_fork_in_child();
        self.observation.after_fork_in_child();
        self.services.homes.after_fork_in_child();
        set(&self.threads, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds the lock. The handle is of a thread of the parent.
        unsafe { self.last_ended.renew(None) };
        self.line.after_fork_in_child();
        set(&self.reserved, 0);
        set(&self.leaving, 0);
        set(&self.rescuers_tried, 0);
        // An attempt that another thread of the parent had taken off the list is not made in the child.
        set(&self.left, 0);
        // A thread that adopted a queue may not have got as far as setting this.
        set(&self.has_orphans, u32::from(!self.orphans.lock().is_empty()));
        // A change of the machine or of a default may have reached only some concurrency limits and queues.
        set(&self.stale, 1);
    }

    /// In the child: if the thread that forked is one of this runtime's workers, it stops being one.
    fn leave_worker(&self) {
        let left = context::with_current::<P, _>(|context| {
            let ours = core::ptr::eq(context.services, &raw const self.services);
            if ours {
                context.clean_up.set(true);
                let item = context.executing.item.get().cast::<Item<P>>();
                // SAFETY: null if the worker frees something between two items, or has nothing to do. Otherwise users' code runs in it only
                // inside this item, or while the item's memory is being freed; it forked, so it is in users' code.
                if let Some(item) = unsafe { item.as_ref() } {
                    item.after_fork_in_child();
                }
            }
            ours
        });
        if left == Some(true) {
            P::set_slot(core::ptr::null());
        }
        if P::employer() == self.number {
            P::set_employer(0);
        }
    }
}
