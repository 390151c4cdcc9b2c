//! What only the timer's thread uses: the wheel, and the foreign code that expired nodes have left.

use core::ptr::NonNull;
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, Ordering, Platform};

use super::node::{Decision, Foreign, NONE, TimerNode};
use super::{FOREVER, Shared, spec_of};
use crate::timer::wheel::Wheel;

/// This many nodes expire before the thread reads its requests again: some 100 µs of work.
const BATCH: u32 = 512;

/// What only the thread uses.
pub(super) struct ThreadState<P: Platform> {
    wheel: Wheel<TimerNode<P>>,
    /// Left by nodes that have expired since this was last handed over.
    pub(super) foreign: Vec<Foreign>,
}

impl<P: Platform> ThreadState<P> {
    pub(super) fn new(now: u64) -> Self {
        ThreadState { wheel: Wheel::new(now), foreign: Vec::new() }
    }

    /// Gets foreign code run by separate threads. False if this must be retried.
    #[cold]
    pub(super) fn give_away(&mut self, shared: &Arc<Shared<P>>) -> bool {
        // It exists: this thread keeps it alive.
        let host = shared.host.as_ref().and_then(Weak::upgrade);
        let (number, own) = (host.as_ref().map_or(0, |host| host.number()), Arc::clone(shared));
        shared.leavings.add(&mut self.foreign, || {
            let main = move || {
                P::set_employer(number);
                own.leavings.run();
            };
            P::spawn(spec_of("nq/drop", host.as_deref()), main).is_ok()
        })
    }

    /// Handles the requests.
    pub(super) fn attend(&mut self, shared: &Shared<P>, now: u64) {
        // The count first: what is counted from now on may be read twice, and is not forgotten.
        shared.requests.waiting.store(0, Ordering::Relaxed);
        for node in shared.requests.inbox.take_all() {
            // SAFETY: held, hence alive; this thread touches only one wheel.
            unsafe { self.wheel.remove(node) };
            // SAFETY: held, hence alive.
            unsafe { node.as_ref() }.take_request();
            self.settle(node, now);
        }
    }

    /// Expires nodes that are due: [`BATCH`] at most, so that new requests do not wait for long.
    pub(super) fn expire(&mut self, now: u64) {
        for _ in 0..BATCH {
            let Some(node) = self.wheel.take_due(now) else { return };
            self.settle(node, now);
        }
    }

    /// Ends every node that waits for something that is gone.
    #[cold]
    pub(super) fn sweep(&mut self, shared: &Shared<P>, now: u64) {
        let nodes: Vec<_> = core::iter::from_fn(|| self.wheel.take_any()).collect();
        for node in nodes {
            let mut disarm = || {
                // SAFETY: held, hence alive.
                if unsafe { node.as_ref() }.want_nothing().push {
                    shared.requests.inbox.push(node);
                }
            };
            // SAFETY: held, hence alive.
            let table = unsafe { node.as_ref() }.table();
            // SAFETY: the timer holds the node.
            self.run_foreign(|| unsafe { (table.end_if_over)(node, &mut disarm) });
            self.settle(node, now);
        }
    }

    /// Runs a step of a node's owner, and keeps the foreign code that it leaves. The waiter for an item may be a future whose queue is
    /// gone: a wake ends it.
    fn run_foreign(&mut self, step: impl FnOnce() -> Option<Foreign>) {
        let add = |end: crate::base::ending::End| self.foreign.push(Box::new(|| end.run()));
        let foreign = crate::base::ending::put_off::<P, _>(step, add);
        self.foreign.extend(foreign);
    }

    /// A node that we hold, and that is neither on the wheel nor among the requests that we took: does what its word requires.
    fn settle(&mut self, node: NonNull<TimerNode<P>>, now: u64) {
        loop {
            // SAFETY: held, hence alive; until the decision that ends the hold.
            let (decision, table) = unsafe { (node.as_ref().decide(now), node.as_ref().table()) };
            let deadline = match decision {
                Decision::Expire => {
                    // SAFETY: we have taken the deadline out of the node's word.
                    self.run_foreign(|| unsafe { (table.expire)(node) });
                    continue;
                }
                Decision::Release => {
                    // SAFETY: we have ended our hold, and leave the node alone from here on.
                    return unsafe { (table.release)(node, false) };
                }
                Decision::Arm(deadline) => deadline,
                // On the wheel, so that the end finds it; the request takes it off.
                Decision::Await => FOREVER,
            };
            // SAFETY: it is off the wheel; held, hence alive and in place; its entry is this thread's.
            return unsafe { self.wheel.insert(node, deadline) };
        }
    }

    /// The earliest deadline, or a time before it.
    pub(super) fn next(&self) -> Option<u64> {
        self.wheel.next_expiry().filter(|deadline| *deadline < NONE)
    }

    /// Releases everything.
    pub(super) fn end(&mut self, shared: &Shared<P>) {
        let release = |node: NonNull<TimerNode<P>>| {
            // SAFETY: held, hence alive; until the hold is dropped.
            let (dropped, table) = unsafe { (node.as_ref().drop_hold(), node.as_ref().table()) };
            // SAFETY: we have ended our hold, and leave the node alone from here on.
            unsafe { (table.release)(node, dropped) };
        };
        for node in shared.requests.inbox.close() {
            // SAFETY: held, hence alive; it is on this wheel or on none.
            unsafe { self.wheel.remove(node) };
            release(node);
        }
        while let Some(node) = self.wheel.take_any() {
            release(node);
        }
        // Runs the code for which no thread could be started. No deadline can be late any more.
        shared.leavings.run_all();
    }
}
