//! The thread that sleeps until something is due: `nq/timer`, one for a runtime, started on first use.
//!
//! A caller that needs to be notified at a deadline embeds a [`TimerNode`] (`node`) and arms it. Only the thread touches the timing wheel
//! (`wheel`). Owners write what they want into the node's word, and push the node onto an inbox (`inbox`) if the thread would not read the
//! node early enough by itself. No thread takes a lock, allocates, or waits for another. Starting the thread is a step of its own
//! (`see_to_the_thread`), which may wait; owners take it after they have given their locks back.
//!
//! # Steps
//! * An **owner** writes what it wants into the node. If the thread will read the node in time, that is all. Otherwise the owner pushes a
//!   request, and wakes the thread if that sleeps until after the deadline.
//! * The **thread** takes all requests, puts the nodes where they belong, calls the owners of those that are due, and sleeps until the next
//!   one. It never ticks: with nothing armed it sleeps until it is woken.
//! * A node that is **disarmed** stays with the timer until the thread reads it. The request for that does not wake the thread, nor does
//!   one for a later deadline, until [`CROWD`] of them wait: so a time-out that is armed and disarmed for each request costs a fraction of
//!   a wake-up, and holds the memory of some hundred nodes at most.
//!
//! # Whether to wake
//! `sleep` says until when the thread sleeps; it is `AWAKE` while the thread will still read the inbox before it sleeps again. Thread:
//! write `sleep` (SETTLE), read the inbox (CHECK). Owner: push, or write the word of a node that is in the inbox (PUSH), read `sleep`
//! (LOOK). All are `SeqCst`. Either SETTLE comes before LOOK: then the owner sees how long the thread sleeps, and wakes it if that is too
//! long. Or PUSH comes before CHECK: then the thread finds the request. An owner that wakes the thread sets `sleep` to `AWAKE` by
//! compare-exchange: one wake-up for any number of requests. If that fails, either another owner woke the thread, or the thread has written
//! `sleep` again after PUSH, and its CHECK comes after that.
//!
//! # Holds
//! The timer holds a node from an `arm` that returns [`Hold::Taken`] until it calls `release`, and touches it at no other time. While held,
//! the node is alive and stays where it is. Each hold is released exactly once.
//!
//! # Foreign code
//! What an owner has to run for an expired node may be code that is not the runtime's own (a destructor, if the item's queue is gone), and
//! would delay every other deadline. So the owner returns that code from `expire`, and a separate thread, `nq/drop`, runs it; the timer's
//! thread runs it only if no such thread can be started. The same applies to futures that a wake ends there, because their queue is gone.
//! Such a thread has no handle of the runtime, and no thread waits for it. Other wakers are called by the timer's thread: they should do
//! little.
//!
//! # The end
//! The thread closes the inbox, then releases every node it knows of, without `expire`. A push that comes later fails. If the hold is new,
//! no other thread knows of it, and `arm` takes it back; if not, the node is on the wheel, or was in the inbox when that was closed, so the
//! thread has released it or will. If no thread could ever be started, either the thread that ends the runtime does this, or the thread
//! whose attempt to start it fails after that: `base/service_thread` says which.
//!
//! # The folder
//! Imports `base` and `layout` (priorities of its thread); calls the runtime through a trait ([`Host`]). Nothing here knows items.
//!
//! | file | what it holds |
//! |---|---|
//! | `node` | what an owner embeds: the word into which it writes what it wants |
//! | `inbox` | requests: nodes that the thread would not read early enough |
//! | `slack` | deadlines that may be late, so that they share wake-ups |
//! | `thread_state`, `wheel` | what only the thread uses; when each node is due |
//! | `leavings` | foreign code that expired nodes have left, for a separate thread |
//!
//! The folder owns the word `sleep`, a node's word and `wheel_deadline`, and the inbox.

mod inbox;
mod leavings;
mod node;
pub(crate) mod slack;
mod thread_state;
pub(crate) mod wheel;

use core::ptr::NonNull;
use std::sync::{Arc, Weak};

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, OsError, PAUSE, Platform, ThreadSpec};

use crate::base::forked;
use crate::base::pad::Padded;
use crate::base::service_thread::{ServiceThread, Start};
use crate::layout::priority::{Favoured, Priority};
use inbox::Inbox;
use leavings::Leavings;
pub(crate) use node::{Foreign, TimerNode, TimerTable};
use node::{NONE, deadline_of};
use thread_state::ThreadState;

/// This many requests that are not urgent wake the thread: few enough that it handles them in some 10 µs, enough that each pays for little
/// of a wake-up.
const CROWD: u32 = 256;

/// After going through all nodes, the thread does not do so again for this many times as long as it took: if many queues end, it spends a
/// tenth of its time on that at most.
const SWEEP_SHARE: u64 = 9;

/// `sleep` of a thread that will read the inbox before it sleeps again, or that has not begun.
const AWAKE: u64 = 0;
/// `sleep` of a thread that sleeps until it is woken; later than any deadline.
const FOREVER: u64 = u64::MAX;

/// Whether `arm` has added a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// It has taken a hold on the node. It may have released it by now.
    Taken,
    /// It held the node already: one `release` is still to come, or has just come.
    Kept,
    /// The runtime ends: no hold was taken, and `expire` will not be called.
    Refused,
}

/// The result of arming a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Armed {
    /// A deadline was wanted before, and `expire` will not be called for it. Also false if it has been called, or is about to be.
    pub(crate) prevented: bool,
    pub(crate) hold: Hold,
}

/// A runtime, as its timer knows it.
pub(crate) trait Host<P: Platform>: Send + Sync {
    /// The runtime's number, which tells which runtime a thread belongs to.
    fn number(&self) -> u64;

    /// A thread with the CPUs, the priority and the signals of the runtime. Foreign code may run there.
    fn thread_spec(&self) -> ThreadSpec;

    /// The system has refused the thread: the start must be retried later.
    fn retry_later(&self);
}

/// The timer of one runtime.
pub(crate) struct Timer<P: Platform> {
    shared: Arc<Shared<P>>,
}

struct Shared<P: Platform> {
    requests: Padded<Incoming<P>>,
    /// The time until which the thread sleeps; see the head of the file.
    sleep: Padded<P::AtomicU64>,
    thread: ServiceThread<P>,
    /// Whether the thread must look for nodes that wait for something that is gone.
    sweeps: P::AtomicU32,
    /// The priority of the most favoured queue that uses the timer.
    favoured: Favoured<P>,
    /// The runtime; none in tests.
    host: Option<Weak<dyn Host<P>>>,
    leavings: Leavings<P>,
}

/// What owners write.
struct Incoming<P: Platform> {
    inbox: Inbox<P>,
    /// Requests that did not wake the thread, since it last read the inbox. A little too high at times, never too low.
    waiting: P::AtomicU32,
}

impl<P: Platform> Timer<P> {
    /// A timer whose thread keeps that runtime alive, if there is one.
    pub(crate) fn new(host: Option<Weak<dyn Host<P>>>) -> Self {
        let requests = Incoming { inbox: Inbox::new(), waiting: P::AtomicU32::new(0) };
        let shared = Shared {
            requests: Padded(requests),
            sleep: Padded(P::AtomicU64::new(AWAKE)),
            thread: ServiceThread::new(),
            sweeps: P::AtomicU32::new(0),
            favoured: Favoured::new(),
            host,
            leavings: Leavings::new(),
        };
        Timer { shared: Arc::new(shared) }
    }

    /// Makes the node expire at `deadline`, or as soon after as the thread gets to it; never before. Replaces the deadline that was wanted
    /// before.
    ///
    /// What the caller wrote before is visible to `expire`. If the hold is [`Hold::Taken`], `release` may be called before this returns:
    /// what keeps the node alive for the timer must exist before the call.
    ///
    /// # Safety
    /// * The node is alive during the call, and until `release` is called if the hold is taken; it stays where it is.
    /// * The pointer may be used for all that the callbacks touch (it comes from a pointer to the whole object).
    /// * The node is armed and disarmed by one thread at a time, on this timer only.
    pub(crate) unsafe fn arm(&self, node: NonNull<TimerNode<P>>, deadline: Instant) -> Armed {
        let shared = &*self.shared;
        let deadline = deadline_of(deadline);
        // SAFETY: alive during the call.
        let wanted = unsafe { node.as_ref() }.want(deadline);
        let prevented = wanted.prevented;
        if wanted.push && !shared.requests.inbox.push(node) {
            if wanted.new_hold {
                // SAFETY: alive during the call.
                unsafe { node.as_ref() }.forget_hold();
            }
            return Armed { prevented, hold: Hold::Refused };
        }
        if wanted.queued {
            shared.notify(deadline, wanted.push);
        }
        Armed { prevented, hold: if wanted.new_hold { Hold::Taken } else { Hold::Kept } }
    }

    /// Makes the node not expire. True: a deadline was wanted, and `expire` will not be called for it. False: none was, or `expire` has
    /// been called, or is about to be.
    ///
    /// If the timer held the node, it still holds it, and releases it after a while.
    ///
    /// # Safety
    /// As for [`arm`](Self::arm).
    pub(crate) unsafe fn disarm(&self, node: NonNull<TimerNode<P>>) -> bool {
        // SAFETY: alive during the call.
        let wanted = unsafe { node.as_ref() }.want_nothing();
        // If the inbox is closed, the thread releases the node on its own.
        if wanted.push && self.shared.requests.inbox.push(node) {
            self.shared.notify(NONE, true);
        }
        wanted.prevented
    }

    /// Starts the thread if there is none. Called after [`arm`](Self::arm), by a thread that has no lock which a node's owner needs: it
    /// waits if threads are refused, and if the runtime ends meanwhile, it releases all nodes itself.
    #[inline]
    pub(crate) fn see_to_the_thread(&self) {
        self.shared.see_to_the_thread();
    }

    /// A queue of this priority uses the timer: the timer's thread is favoured at least as much from now on.
    pub(crate) fn serve(&self, priority: &Priority) {
        if self.shared.favoured.add(priority) {
            // The permit reaches a thread that sleeps.
            self.shared.thread.wake();
        }
    }

    /// Makes the thread look for nodes that wait for something that is gone by now, at once or, if it has just done so, after a while. Each
    /// node costs it some 100 ns, for which other deadlines wait.
    pub(crate) fn sweep(&self) {
        // Release: what is gone. The permit reaches a thread that sleeps; a thread that has been told and has not looked yet will look.
        if self.shared.sweeps.swap(1, Ordering::Release) == 0 {
            self.shared.thread.wake();
        }
    }

    /// Starts the thread now, for a caller that will need it at a time when none can be started.
    pub(crate) fn reserve(&self) -> Result<(), OsError> {
        let shared = &self.shared;
        shared.settle(shared.thread.reserve(|| shared.spawn()))
    }

    /// Tries again to start the thread, if it is needed and was refused. By a thread that is awake anyway.
    pub(crate) fn retry(&self) {
        let shared = &self.shared;
        if shared.thread.is_missing()
            && (shared.thread.is_refused() || !shared.requests.inbox.is_empty())
        {
            // The caller must not sleep for that.
            shared.thread.try_once();
            shared.see_to_the_thread();
        }
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        let shared = &self.shared;
        if let Start::Ended = shared.thread.stop() {
            ThreadState::new(0).end(shared);
        }
    }

    /// Whether the thread exists, or is about to be started.
    pub(crate) fn is_alive(&self) -> bool {
        self.shared.thread.is_alive()
    }

    /// Waits for the thread's end.
    pub(crate) fn join(&self) {
        self.shared.thread.join();
    }

    /// The timer never gets a thread: a test does by hand what it would do.
    #[cfg(test)]
    pub(crate) fn do_without_thread(&self) {
        self.shared.thread.do_without();
    }

    /// Releases all nodes, as the thread does at its end.
    #[cfg(test)]
    pub(crate) fn end_by_hand(&self) {
        ThreadState::new(0).end(&self.shared);
    }

    /// Resets it to not started, with nothing on the wheel or requested: thread and nodes are the parent's. If it was stopped, it stays so.
    /// In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        let shared = &*self.shared;
        // Its thread would have released what it held; nothing is released here, because it is the parent's.
        let stopped = shared.thread.after_fork_in_child();
        shared.requests.inbox.after_fork_in_child(stopped);
        forked::set(&shared.requests.waiting, 0);
        forked::set(&*shared.sleep, AWAKE);
        forked::set(&shared.sweeps, 0);
        shared.leavings.after_fork_in_child();
    }

    /// Whether the caller is the timer's thread.
    #[cfg(test)]
    pub(crate) fn is_current(&self) -> bool {
        self.shared.thread.thread() == Some(P::current_thread())
    }
}

impl<P: Platform> Shared<P> {
    /// A request is in the inbox that must be read before `deadline`; `new` if it was not there before.
    fn notify(&self, deadline: u64, new: bool) {
        P::model_fence();
        // LOOK.
        let until = self.sleep.load(Ordering::SeqCst);
        if until == AWAKE {
            return;
        }
        // Relaxed: a count.
        let wake = (deadline < NONE && deadline < until)
            || (new && self.requests.waiting.fetch_add(1, Ordering::Relaxed) + 1 >= CROWD);
        if wake
            && self
                .sleep
                .compare_exchange(until, AWAKE, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
        {
            self.thread.wake();
        }
    }

    #[inline]
    fn see_to_the_thread(self: &Arc<Self>) {
        if self.thread.is_missing() && self.start().is_err() && self.thread.is_refused_anew() {
            P::warn(
                "no thread can be started to wait for deadlines; a limit on threads or memory may be reached. Delayed work waits until a thread \
                     can be started: threads that wait for work try again. Raise the limit, or build a queue with rescuer(), \
                     which starts this thread in advance",
            );
        }
    }

    #[cold]
    fn start(self: &Arc<Self>) -> Result<(), OsError> {
        self.settle(self.thread.start(|| self.spawn()))
    }

    /// Does what remains to be done after a start.
    fn settle(&self, start: Start) -> Result<(), OsError> {
        match start {
            Start::Done => Ok(()),
            Start::Ended => {
                ThreadState::new(0).end(self);
                Ok(())
            }
            Start::Refused(refusal) => {
                if let Some(host) = self.host.as_ref().and_then(Weak::upgrade) {
                    host.retry_later();
                }
                Err(refusal)
            }
        }
    }

    fn spawn(self: &Arc<Self>) -> Result<P::JoinHandle, OsError> {
        // The thread keeps the runtime alive, because callbacks use it. It exists: the thread that uses the timer keeps it alive.
        let keep = self.host.as_ref().and_then(Weak::upgrade);
        let (spec, shared) = (spec_of("nq/timer", keep.as_deref()), Arc::clone(self));
        P::spawn(spec, move || {
            P::set_employer(keep.as_ref().map_or(0, |host| host.number()));
            watch(&shared);
            shared.thread.ended();
            drop(keep);
        })
    }
}

/// A thread as the runtime specifies it, if there is one: not like the thread that happens to start it.
fn spec_of<P: Platform>(name: &str, host: Option<&dyn Host<P>>) -> ThreadSpec {
    let spec = host.map_or_else(ThreadSpec::default, Host::thread_spec);
    ThreadSpec { name: name.into(), ..spec }
}

fn watch<P: Platform>(shared: &Arc<Shared<P>>) {
    shared.thread.begun();
    P::wake_exactly();
    let mut state = ThreadState::new(P::now().as_nanos());
    let mut followed = 0;
    // Whether foreign code is left for which no thread could be started.
    let mut is_left = false;
    // When the thread may go through all nodes again.
    let mut next_sweep = 0;
    while !shared.thread.is_stopped() {
        let favoured = shared.favoured.word();
        if favoured != followed {
            followed = favoured;
            shared.favoured.favour(P::current_thread());
        }
        let begin = P::now().as_nanos();
        // Acquire: what is gone. Before the requests are taken, so that those of nodes that wait for it are among them.
        let sweeps = begin >= next_sweep && shared.sweeps.swap(0, Ordering::Acquire) != 0;
        state.attend(shared, begin);
        if sweeps {
            state.sweep(shared, begin);
            let end = P::now().as_nanos();
            next_sweep = end.saturating_add(SWEEP_SHARE * (end - begin));
        }
        state.expire(P::now().as_nanos());
        if is_left || !state.foreign.is_empty() {
            is_left = !state.give_away(shared);
        }
        let next = state.next();
        // Another deadline has passed meanwhile, or a batch did not include all.
        if next.is_some_and(|next| next <= P::now().as_nanos()) {
            continue;
        }
        // What has expired may have found no worker, and there may be no other thread that would try again to start one.
        let retry = (is_left || P::has_retries()).then(|| (P::now() + PAUSE).as_nanos());
        // Postponed. A sweep that is requested from now on brings its permit.
        let sweep = (shared.sweeps.load(Ordering::Relaxed) != 0).then_some(next_sweep);
        let next = [next, retry, sweep].into_iter().flatten().min();
        // SETTLE.
        shared.sleep.store(next.unwrap_or(FOREVER), Ordering::SeqCst);
        P::model_fence();
        // CHECK.
        if shared.requests.inbox.is_empty() {
            shared.thread.sleep(next.map(Instant::from_nanos));
        }
        shared.sleep.store(AWAKE, Ordering::SeqCst);
        P::retry_now();
    }
    state.end(shared);
}

#[cfg(test)]
mod tests;
