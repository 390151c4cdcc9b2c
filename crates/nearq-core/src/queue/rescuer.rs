//! The rescuer of a queue, as the queue sees it: which pools call it, and its thread. For what rescuers are for, and what one does, see
//! `run/rescue`.

use std::collections::VecDeque;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Platform};

use crate::base::forked;
use crate::item::account::Account;
use crate::pool::Pool;
use crate::pool::worker::Worker;

/// The rescuer of one queue, shared by the queue and the thread.
pub(crate) struct Rescuer<P: Platform> {
    /// The pools that call, in the order in which they called. Taken by the monitor and the thread only.
    calls: Mutex<VecDeque<Arc<Pool<P>>>, P>,
    /// The thread's entry; null if there is no thread.
    pub(crate) worker: P::AtomicPtr<Worker<P>>,
    stopped: P::AtomicU32,
    /// Held by the thread that starts or ends the rescuer's thread.
    pub(crate) lifecycle: Mutex<(), P>,
}

impl<P: Platform> Rescuer<P> {
    pub(crate) fn new() -> Self {
        Rescuer {
            // Space for a few calls, so that a call needs no memory when there is none.
            calls: Mutex::new_in(VecDeque::with_capacity(8)),
            worker: P::AtomicPtr::new(core::ptr::null_mut()),
            stopped: P::AtomicU32::new(0),
            lifecycle: Mutex::new_in(()),
        }
    }

    pub(crate) fn entry(&self) -> Option<&Worker<P>> {
        // Acquire: pairs with the release in `start`.
        // SAFETY: null, or an entry, which lives as long as the runtime; the queue and the thread keep that.
        unsafe { self.worker.load(Ordering::Acquire).as_ref() }
    }

    /// Its thread, if it has one now.
    pub(crate) fn thread(&self) -> Option<P::Thread> {
        self.entry().and_then(|worker| *worker.thread.lock())
    }

    /// The pool needs help. False if it has called already.
    pub(crate) fn call(&self, pool: &Arc<Pool<P>>) -> bool {
        let mut calls = self.calls.lock();
        if calls.iter().any(|known| Arc::ptr_eq(known, pool)) {
            return false;
        }
        // CALL.
        calls.push_back(Arc::clone(pool));
        drop(calls);
        if let Some(worker) = self.entry() {
            // WAKE.
            worker.parker.unpark();
        }
        true
    }

    pub(crate) fn take_call(&self) -> Option<Arc<Pool<P>>> {
        self.calls.lock().pop_front()
    }

    pub(crate) fn has_calls(&self) -> bool {
        !self.calls.lock().is_empty()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        // Acquire: pairs with the release in `end`. The parker's permit ensures that it is seen at all.
        self.stopped.load(Ordering::Acquire) != 0
    }

    /// Whether its thread runs an item that is counted there.
    pub(crate) fn serves(&self, account: *const Account<P>) -> bool {
        self.entry()
            .is_some_and(|worker| worker.account() == account && worker.function().is_some())
    }

    /// Ends the thread, for good; waits for its end if the caller asks for that and is not that thread itself. The queue is empty, and no
    /// thread queues to it.
    pub(crate) fn end(&self, wait: bool) {
        let lifecycle = self.lifecycle.lock();
        let worker = self.entry();
        // The handle first: once the thread has ended, the entry belongs to another thread.
        let handle = worker.and_then(|worker| worker.handle.lock().take());
        let within =
            worker.is_some_and(|worker| *worker.thread.lock() == Some(P::current_thread()));
        self.stopped.store(1, Ordering::Release);
        self.worker.store(core::ptr::null_mut(), Ordering::Relaxed);
        drop(lifecycle);
        if let Some(worker) = worker {
            worker.parker.unpark();
        }
        if let Some((_, handle)) = handle.filter(|_| wait && !within) {
            crate::pool::context::blocking::<P, _>(|| P::join(handle));
        }
    }

    /// Resets it to having no thread: it is the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        forked::set(&self.worker, core::ptr::null_mut());
        // SAFETY: this is the only thread, and no user's code runs while it holds one of the two locks. The content of the list leaks.
        unsafe { self.calls.renew(VecDeque::new()) };
        // SAFETY: this is the only thread, and has no guard of `lifecycle`: no user's code, which could fork, runs under that lock.
        unsafe { self.lifecycle.renew(()) };
    }
}
