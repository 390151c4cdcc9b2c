//! A node of the timer: when its owner wants it to expire, and whether the timer holds it.
//!
//! # The word
//! `wanted:62 | QUEUED:1 | HELD:1`. `wanted` is a deadline in nanoseconds, or all ones: none.
//!
//! | bit | meaning | set by | cleared by |
//! |---|---|---|---|
//! | `HELD` | the timer may touch the node | the owner, in `arm` | the timer, when it ends its hold |
//! | `QUEUED` | a request for the node is in the inbox, or its author is about to push it | the owner, which pushes it | the timer, which took it from there |
//!
//! `wanted` is set by the owner, and taken back by the owner (`disarm`) or the timer (the node expires). **The thread that takes a deadline
//! out of the word by compare-exchange decides what becomes of it**: it is delivered, or it never will be.
//!
//! | `wanted` | `QUEUED` | `HELD` | |
//! |---|---|---|---|
//! | none | 0 | 0 | idle: the timer does not know of the node |
//! | any | 1 | 1 | the inbox has it, and perhaps the wheel |
//! | a time | 0 | 1 | the wheel has it, or the timer's thread is putting it there |
//! | none | 0 | 1 | the timer's thread is handling it, calls `expire`, or is about to end its hold |
//!
//! # When the timer will read the node
//! `wheel_deadline` is the deadline under which the node is on the wheel; only the timer's thread writes it. A deadline that is not earlier
//! than that needs no request: at that time the thread takes the node off the wheel, sees the later deadline, and puts it back.
//!
//! The race is Dekker's pattern. The owner: write the word (WANT), read `wheel_deadline` (LOOK). The thread, which puts the node on the
//! wheel: write `wheel_deadline` (FILE), read the word (CHECK). All are `SeqCst`. Either FILE comes before LOOK: then the owner sees that
//! the node will be read too late, and queues a request. Or WANT comes before CHECK: then the thread sees the earlier deadline, and places
//! the node again. All other steps of the thread (expiring, ending the hold, taking the request) are read-modify-writes of the word, which
//! either see what the owner wants or are seen by it.
//!
//! # Which thread may touch what
//! The word and `wheel_deadline`: as above. `next`: the thread that set `QUEUED`, until it is pushed; then the timer's thread, until it
//! clears `QUEUED`. `entry`: the timer's thread. The owner's calls for one node come one after the other.

use core::ptr::NonNull;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform, PlatformCell};

use crate::timer::wheel::{Entry, Node};

const HELD: u64 = 1;
const QUEUED: u64 = 1 << 1;
const SHIFT: u32 = 2;
/// No deadline is wanted. Also later than any deadline.
pub(super) const NONE: u64 = u64::MAX >> SHIFT;
const IDLE: u64 = NONE << SHIFT;

/// Foreign code, which may take long.
pub(crate) type Foreign = Box<dyn FnOnce() + Send>;

/// See [`TimerTable::end_if_over`].
type EndIfOver<P> = unsafe fn(NonNull<TimerNode<P>>, &mut dyn FnMut()) -> Option<Foreign>;

/// What a node's owner does when the timer calls; one static table per type of owner.
///
/// The functions are called on the timer's thread or, at the runtime's end, by the thread that ends the runtime if the timer's thread could
/// never be started. **They must not block**: every other deadline waits meanwhile. They may arm and disarm nodes.
pub(crate) struct TimerTable<P: Platform> {
    /// The deadline has come. Called once for each deadline that is neither replaced, nor taken back, nor dropped at the end; never before
    /// the deadline. The timer still holds the node. What was written before `arm` is visible. What is returned is run on another thread,
    /// without a hold on the node.
    pub(crate) expire: unsafe fn(NonNull<TimerNode<P>>) -> Option<Foreign>,
    /// What the node waits for may be gone: if so, this calls the closure, which disarms the node, at a point where the node may be armed
    /// or disarmed.
    pub(crate) end_if_over: EndIfOver<P>,
    /// The timer does not hold the node any more, and does not touch it again. Called once for each hold that was taken. The second
    /// argument: a deadline was wanted, and is dropped because the runtime ends.
    pub(crate) release: unsafe fn(NonNull<TimerNode<P>>, bool),
}

/// The node that is embedded in an object which must be notified at a deadline. 64 bytes.
#[repr(C)]
pub(crate) struct TimerNode<P: Platform> {
    word: P::AtomicU64,
    wheel_deadline: P::AtomicU64,
    /// The next request of the inbox.
    pub(super) next: P::AtomicPtr<TimerNode<P>>,
    table: &'static TimerTable<P>,
    entry: P::Cell<Entry<TimerNode<P>>>,
}

// SAFETY: a node's entry is its field.
unsafe impl<P: Platform> Node for TimerNode<P> {
    unsafe fn with_entry<R>(node: NonNull<Self>, f: impl FnOnce(&mut Entry<Self>) -> R) -> R {
        // SAFETY: alive by the caller's promise; a shared reference, since owners use the atomics meanwhile.
        let node = unsafe { node.as_ref() };
        // SAFETY: only the caller touches the entry.
        node.entry.with_mut(|entry| f(unsafe { &mut *entry }))
    }
}

// SAFETY: any thread may free it: a node that is freed is off the wheel, so the timer's thread does not have its entry.
unsafe impl<P: Platform> Send for TimerNode<P> {}
// SAFETY: the entry is touched by the timer's thread alone; all else is `Sync` by itself.
unsafe impl<P: Platform> Sync for TimerNode<P> {}

/// What the owner must do after it changed what it wants.
pub(super) struct Wanted {
    /// There was a deadline, and it will not be delivered.
    pub(super) prevented: bool,
    /// A request must be pushed.
    pub(super) push: bool,
    /// A request is in the inbox, or must be pushed: the thread must come in time.
    pub(super) queued: bool,
    /// The timer did not hold the node before.
    pub(super) new_hold: bool,
}

fn wanted(word: u64) -> u64 {
    word >> SHIFT
}

impl<P: Platform> TimerNode<P> {
    /// An idle node.
    pub(crate) fn new(table: &'static TimerTable<P>) -> Self {
        TimerNode {
            word: P::AtomicU64::new(IDLE),
            wheel_deadline: P::AtomicU64::new(0),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
            table,
            entry: P::Cell::new(Entry::new()),
        }
    }

    pub(super) fn table(&self) -> &'static TimerTable<P> {
        self.table
    }

    /// Whether a deadline is wanted that has been neither delivered nor taken back. May be out of date at once.
    #[cfg(test)]
    pub(crate) fn is_armed(&self) -> bool {
        wanted(self.word.load(Ordering::Acquire)) != NONE
    }

    // ---- the owner's steps ---------------------------------------------------------------------------------

    /// Wants the node to expire at `deadline`, instead of what was wanted before.
    pub(super) fn want(&self, deadline: u64) -> Wanted {
        debug_assert!(deadline < NONE);
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let known = word & (HELD | QUEUED);
            // The node is on the wheel, and apparently will be read early enough.
            let early = known == HELD && self.wheel_deadline.load(Ordering::Relaxed) <= deadline;
            let new = deadline << SHIFT | HELD | if early { 0 } else { QUEUED };
            // WANT. Release: `expire` sees what the caller wrote. Acquire: the caller sees what `expire` did.
            match self.word.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Relaxed) {
                Err(now) => word = now,
                Ok(_) => {
                    let push = if early {
                        P::model_fence();
                        // LOOK. If the word has changed, the deadline has come.
                        self.wheel_deadline.load(Ordering::SeqCst) > deadline
                            && self
                                .word
                                .compare_exchange(
                                    new,
                                    new | QUEUED,
                                    Ordering::SeqCst,
                                    Ordering::Relaxed,
                                )
                                .is_ok()
                    } else {
                        known & QUEUED == 0
                    };
                    return Wanted {
                        prevented: wanted(word) != NONE,
                        push,
                        queued: push || known & QUEUED != 0,
                        new_hold: known & HELD == 0,
                    };
                }
            }
        }
    }

    /// Wants nothing any more.
    pub(super) fn want_nothing(&self) -> Wanted {
        // Acquire: if the answer is that the deadline has come, pairs with the step that took it.
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            if wanted(word) == NONE {
                return Wanted { prevented: false, push: false, queued: false, new_hold: false };
            }
            // A node that wants something is held. The request makes the timer end its hold before the time has come.
            let new = IDLE | HELD | QUEUED;
            match self.word.compare_exchange_weak(word, new, Ordering::SeqCst, Ordering::Acquire) {
                Err(now) => word = now,
                Ok(_) => {
                    let push = word & QUEUED == 0;
                    return Wanted { prevented: true, push, queued: true, new_hold: false };
                }
            }
        }
    }

    /// Takes back a hold that was just taken, for which the inbox was closed: no other thread knows of it.
    pub(super) fn forget_hold(&self) {
        self.word.store(IDLE, Ordering::Relaxed);
    }

    // ---- the thread's steps --------------------------------------------------------------------------------

    /// Notes that the request was taken from the inbox: from now on a change is a new request.
    pub(super) fn take_request(&self) {
        // Acquire: sees what the request wants, and what was written before.
        self.word.fetch_and(!QUEUED, Ordering::SeqCst);
    }

    /// Decides what to do with a node that is neither on the wheel nor in the inbox, and makes the changes to the word.
    pub(super) fn decide(&self, now: u64) -> Decision {
        let mut word = self.word.load(Ordering::SeqCst);
        loop {
            let deadline = wanted(word);
            if word & QUEUED != 0 {
                return Decision::Await;
            }
            if deadline == NONE || deadline <= now {
                let (new, decision) = if deadline == NONE {
                    (IDLE, Decision::Release)
                } else {
                    (IDLE | HELD, Decision::Expire)
                };
                // Release: the thread that arms it next sees the timer's last steps. Acquire: sees what the owner wrote before it
                // wanted this.
                match self.word.compare_exchange(word, new, Ordering::SeqCst, Ordering::SeqCst) {
                    Ok(_) => return decision,
                    Err(now) => word = now,
                }
                continue;
            }
            // FILE and CHECK.
            self.wheel_deadline.store(deadline, Ordering::SeqCst);
            P::model_fence();
            word = self.word.load(Ordering::SeqCst);
            if wanted(word) >= deadline {
                return Decision::Arm(deadline);
            }
        }
    }

    /// Ends the timer's hold whatever is wanted: for the end. True if a deadline is dropped.
    pub(super) fn drop_hold(&self) -> bool {
        wanted(self.word.swap(IDLE, Ordering::SeqCst)) != NONE
    }
}

/// What the timer's thread does with a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// Call `expire`; then decide again.
    Expire,
    /// Call `release`; the hold is over.
    Release,
    /// Put it on the wheel, under this deadline.
    Arm(u64),
    /// A request is on its way into the inbox: keep it until then.
    Await,
}

/// A deadline as the word stores it: those more than 146 years after the clock's origin are cut to that.
pub(super) fn deadline_of(instant: Instant) -> u64 {
    instant.as_nanos().min(NONE - 1)
}
