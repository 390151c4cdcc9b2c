//! The split deque: the jobs of one thread that runs fork-join code, from which other threads steal.
//!
//! Jobs are pushed and popped at one end, by the thread that the deque belongs to (the owner). They are stolen at the other end, oldest
//! first. Jobs at the owner's end are *private*: the owner pushes and pops them with plain stores. Jobs at the other end are *public*:
//! they are taken by a compare-exchange, by thieves and by the owner alike. (T. van Dijk and J. van de Pol, "Lace: Non-blocking Split Deque
//! for Work-Stealing", 2014. There only the owner makes jobs public; here a thief can too.)
//!
//! # Words
//! | word | contents | written by |
//! |---|---|---|
//! | `head` | the number of jobs that the owner has pushed and not popped | the owner |
//! | `word` | `split`, `tail`, `claimed`, an epoch | anyone, by compare-exchange |
//! | `request` | what other threads ask of the owner ([`Requests`]); a hint | anyone |
//! | `sleeper` | the bell that [`Requests::RING`] asks the owner to ring; null if none | anyone |
//! | `slots` | the jobs by position, from 0 | the owner |
//! | `group` | what the jobs belong to: the address of a queue; null while the deque is not in use | the owner |
//! | `running` | the scope of the stolen job that the owner runs; null if it runs none, or one of a `join` | the owner |
//! | `attending` | whether the owner, which waits, runs a closure that its team has for it alone | the owner |
//!
//! Positions below `tail` have been stolen, `tail..split` are public, `split..head` are private. A deque whose jobs have all been stolen
//! has `tail` equal to `head`: the owner waits for the newest job, and pops the others later. The owner steals only while it has no job
//! that could be stolen. So the jobs that can be stolen from it while it runs a stolen job were pushed by that one; or by a closure of its
//! team, which it runs while it waits for a part of that job (`attending`).
//!
//! # How private jobs become public
//! * The owner moves `split` up when it sees a request at a push (`share`).
//! * A thief whose request stays unanswered moves `split` up itself (`claim`) and marks the jobs as `claimed`: the owner may be about to
//!   pop one of them, and does not know of the claim yet. The thief then calls the heavy fence and reads `head`. Now either `head` shows
//!   the pop, or the owner will see the new `split`. So the jobs below `head` are confirmed: the mark is removed, and if some of the
//!   claimed jobs are gone, `split` moves back. Any thief that finds the mark can do this, with a heavy fence of its own, so a thief that
//!   is preempted here stops no other one.
//!
//! # The owner's pop
//! It lowers `head`, calls the light fence, and reads `word`. If `split` is not above the job, the job is private, and that is all.
//! Otherwise (`take_back`) it takes the job by a compare-exchange that lowers `split`, or finds that it has been stolen.
//!
//! # Orderings
//! | access | ordering | partner |
//! |---|---|---|
//! | owner's store of `head` in a pop, load of `word` | light fence between them | a claim's exchange of `word`, load of `head`: heavy fence |
//! | owner's store of `head` in a push, load of `request` | light fence between them | `request`, then `has_jobs`: heavy fence by the caller |
//! | owner's store of `head` in a push | Release: slot and job | Acquire load of `head` in `confirm` and `claim` |
//! | every exchange of `word` | AcqRel: passes on slots and jobs that became public | every exchange of `word` |
//! | slots | Relaxed | as above: a slot that was read is used only if `word` has not changed since |
//!
//! # The epoch
//! It grows whenever `split` moves down. Otherwise `tail` and `split` only move up, so a value of `word` never comes back, and an exchange
//! that succeeds shows that nothing has happened since the load. (The epoch has 35 bits: at ten million moves a second it would come back
//! after an hour, and a thread would have to be stopped between its load and its exchange for exactly that many moves.)

use core::ptr::NonNull;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::bell::Bell;
use crate::base::pad::Padded;

pub(crate) mod job;

use job::Job;

/// How many jobs a deque holds. A job that does not fit is not offered to other threads.
pub(crate) const CAPACITY: usize = if cfg!(test) { 4 } else { POSITION as usize };

// The parts of `word`, from the highest: 14 bits of `split`, 14 of `tail`, `claimed`, 35 of the epoch.
const SPLIT_SHIFT: u32 = 50;
const TAIL_SHIFT: u32 = 36;
const POSITION: u64 = (1 << 14) - 1;
const CLAIMED: u64 = 1 << 35;
const EPOCH: u64 = CLAIMED - 1;
const ONE_STOLEN: u64 = 1 << TAIL_SHIFT;

/// A bit of a slot: the job is on the heap.
const ON_HEAP: usize = 1;

fn untagged<P: Platform>(slot: *mut Job<P>) -> *mut Job<P> {
    const { assert!(align_of::<Job<P>>() > ON_HEAP) };
    slot.map_addr(|address| address & !ON_HEAP)
}

/// What other threads ask of the owner; it notices at its next push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Requests(u32);

impl Requests {
    /// To make jobs public: a thief is searching.
    pub(crate) const SHARE: Requests = Requests(1);
    /// To call a thief: none is searching.
    pub(crate) const CALL: Requests = Requests(2);
    /// To make jobs public and ring the bell of a worker that waits for what the owner runs.
    const RING: Requests = Requests(4);

    pub(crate) fn contains(self, request: Requests) -> bool {
        self.0 & request.0 != 0
    }
}

/// See the head of the file.
pub(crate) struct Deque<P: Platform> {
    head: Padded<P::AtomicU32>,
    word: Padded<P::AtomicU64>,
    request: Padded<P::AtomicU32>,
    sleeper: P::AtomicPtr<Bell<P>>,
    group: P::AtomicPtr<()>,
    running: P::AtomicPtr<()>,
    attending: P::AtomicU32,
    /// Wakes the owner. Shared with threads that may be there longer than the deque.
    pub(crate) bell: Arc<Bell<P>>,
    slots: Box<[P::AtomicPtr<Job<P>>; CAPACITY]>,
}

/// The result of a pop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Popped {
    /// The job is the owner's again.
    Own,
    /// Another thread has it.
    Stolen,
}

/// The result of an attempt to steal.
#[derive(Debug)]
pub(crate) enum Steal<P: Platform> {
    /// The oldest job; the caller must run it.
    Job(NonNull<Job<P>>),
    /// There are jobs, and all are private.
    Private,
    /// There is no job for the caller, or it is another thread's now.
    Empty,
}

/// A value of `word`.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Word(u64);

impl Word {
    fn new(split: u32, tail: u32, epoch: u64) -> Self {
        Word(u64::from(split) << SPLIT_SHIFT | u64::from(tail) << TAIL_SHIFT | epoch & EPOCH)
    }

    fn split(self) -> u32 {
        (self.0 >> SPLIT_SHIFT) as u32
    }

    fn tail(self) -> u32 {
        (self.0 >> TAIL_SHIFT & POSITION) as u32
    }

    fn is_claimed(self) -> bool {
        self.0 & CLAIMED != 0
    }

    fn epoch(self) -> u64 {
        self.0 & EPOCH
    }

    /// With `split` lowered to that, and nothing claimed.
    fn lowered(self, split: u32) -> Self {
        Word::new(split, self.tail().min(split), self.epoch() + 1)
    }

    /// With nothing claimed.
    fn confirmed(self) -> Self {
        Word::new(self.split(), self.tail(), self.epoch())
    }

    /// With the older half of the private jobs public, if there are `head` jobs; nothing is claimed.
    fn shared(self, head: u32) -> Self {
        let more = (head - self.split()).div_ceil(2);
        Word::new(self.split() + more, self.tail(), self.epoch())
    }
}

impl<P: Platform> Deque<P> {
    pub(crate) fn new() -> Self {
        let slots = (0..CAPACITY).map(|_| P::AtomicPtr::new(core::ptr::null_mut()));
        let Ok(slots) = slots.collect::<Box<[_]>>().try_into() else {
            unreachable!("there are as many")
        };
        Deque {
            head: Padded(P::AtomicU32::new(0)),
            word: Padded(P::AtomicU64::new(0)),
            request: Padded(P::AtomicU32::new(0)),
            sleeper: P::AtomicPtr::new(core::ptr::null_mut()),
            group: P::AtomicPtr::new(core::ptr::null_mut()),
            running: P::AtomicPtr::new(core::ptr::null_mut()),
            attending: P::AtomicU32::new(0),
            bell: Arc::new(Bell::new()),
            slots,
        }
    }

    fn load(&self, ordering: Ordering) -> Word {
        Word(self.word.load(ordering))
    }

    fn change(&self, from: Word, to: Word) -> bool {
        self.word.compare_exchange(from.0, to.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The deque is about to be used for jobs of that group: a thief that has read anything about it before gets none of them. By the
    /// owner, while it is empty.
    pub(crate) fn begin(&self, group: *const ()) {
        debug_assert!(self.is_empty());
        self.request.store(0, Ordering::Relaxed);
        // Before the change of `word`, which releases it: a thief reads it after the word.
        self.group.store(group.cast_mut(), Ordering::Relaxed);
        loop {
            let word = self.load(Ordering::Relaxed);
            if self.change(word, word.lowered(0)) {
                return;
            }
        }
    }

    /// The deque is not in use any more. By the owner, while it is empty.
    pub(crate) fn end(&self) {
        debug_assert!(self.is_empty());
        // Relaxed: a thief that still reads the group finds no job.
        self.group.store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// What its jobs belong to; null if it is not in use.
    pub(crate) fn group(&self) -> *const () {
        self.group.load(Ordering::Relaxed)
    }

    /// The scope of the stolen job that the owner runs.
    pub(crate) fn running(&self) -> *const () {
        self.running.load(Ordering::Relaxed)
    }

    /// Whether the owner runs a closure that is no part of its stolen job.
    pub(crate) fn is_attending(&self) -> bool {
        self.attending.load(Ordering::Relaxed) != 0
    }

    // ---- the owner ---------------------------------------------------------------------------------------

    /// The owner begins to run a stolen job of that scope, or goes back to an earlier one. Returns the scope of the earlier one.
    pub(crate) fn set_running(&self, scope: *const ()) -> *const () {
        let before = self.running.load(Ordering::Relaxed);
        // Relaxed: a thief reads it after a word that makes later jobs public, and that word comes after their push, which releases this.
        self.running.store(scope.cast_mut(), Ordering::Relaxed);
        before
    }

    /// The owner begins to run a closure that is no part of its stolen job, or has ended it. Returns whether it was running one before.
    pub(crate) fn set_attending(&self, attends: bool) -> bool {
        let before = self.is_attending();
        // Relaxed: as for `running`. All jobs of such a closure have been popped when it ends.
        self.attending.store(u32::from(attends), Ordering::Relaxed);
        before
    }

    /// How many jobs have been pushed and not popped. By the owner.
    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.head.load(Ordering::Relaxed)
    }

    /// The newest job, if there is one: its position, itself, and whether it is on the heap. It may have been stolen. By the owner.
    pub(crate) fn newest(&self) -> Option<(u32, NonNull<Job<P>>, bool)> {
        let position = self.len().checked_sub(1)?;
        let slot = self.slots[position as usize].load(Ordering::Relaxed);
        NonNull::new(untagged(slot)).map(|job| (position, job, slot.addr() & ON_HEAP != 0))
    }

    /// As [`push`](Self::push), for a job on the heap.
    #[inline]
    pub(crate) fn push_heap(&self, job: *const Job<P>) -> Option<u32> {
        self.push(job.map_addr(|address| address | ON_HEAP))
    }

    /// Offers a job and returns its position; none if there is no room for it. By the owner, which pops it before the job ends.
    #[inline(always)]
    pub(crate) fn push(&self, job: *const Job<P>) -> Option<u32> {
        let head = self.head.load(Ordering::Relaxed);
        let slot = self.slots.get(head as usize)?;
        slot.store(job.cast_mut(), Ordering::Relaxed);
        self.head.store(head + 1, Ordering::Release);
        Some(head)
    }

    /// What thieves ask for. By the owner after a push.
    #[inline(always)]
    pub(crate) fn has_request(&self) -> bool {
        P::light_fence();
        self.request.load(Ordering::Relaxed) != 0
    }

    /// Takes the requests, if there are still some. The caller makes jobs public in any case.
    pub(crate) fn take_requests(&self) -> Requests {
        // AcqRel: see `request`.
        Requests(self.request.swap(0, Ordering::AcqRel))
    }

    /// Rings the bell that was left with `requests`, if one was. After the jobs have been made public.
    pub(crate) fn ring_for(&self, requests: Requests) {
        if requests.contains(Requests::RING) {
            // AcqRel: pairs with the release in `request_ring`.
            let sleeper = self.sleeper.swap(core::ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: null, or the bell of a worker of the same runtime, whose workers have theirs as long as the runtime exists.
            if let Some(bell) = unsafe { sleeper.as_ref() } {
                bell.ring();
            }
        }
    }

    /// Makes the older half of the private jobs public. By the owner.
    pub(crate) fn share(&self) {
        let head = self.head.load(Ordering::Relaxed);
        let mut word = self.load(Ordering::Acquire);
        // The owner knows that all jobs below `head` are there, so it also confirms what a thief has claimed of them.
        while word.split() != head || word.is_claimed() {
            let shared = if word.split() > head {
                // A claim that came too late for a pop.
                word.lowered(head)
            } else {
                word.shared(head)
            };
            if self.change(word, shared) {
                break;
            }
            word = self.load(Ordering::Acquire);
        }
    }

    /// Takes the newest job back, which is at that position. By the owner, which knows it: a load of `head` would wait for the store of
    /// the push just before.
    #[inline(always)]
    pub(crate) fn pop(&self, position: u32) -> Popped {
        // Relaxed: a thread that reads it needs the pushes of the jobs below. The light fence after each push, and the heavy one before
        // claimed jobs are stolen, see to that.
        self.head.store(position, Ordering::Relaxed);
        P::light_fence();
        if self.load(Ordering::Relaxed).split() <= position {
            return Popped::Own;
        }
        self.take_back(position)
    }

    /// The job at that position is public, or was.
    #[cold]
    #[inline(never)]
    fn take_back(&self, position: u32) -> Popped {
        loop {
            let word = self.load(Ordering::Acquire);
            if word.split() <= position {
                // A claim of it was withdrawn.
                return Popped::Own;
            }
            // Everything below is still there, so this confirms what is claimed there; or everything below has been stolen too.
            if self.change(word, word.lowered(position)) {
                return if word.tail() > position { Popped::Stolen } else { Popped::Own };
            }
        }
    }

    /// Whether it has no jobs. By the owner.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    // ---- thieves -----------------------------------------------------------------------------------------

    /// Whether the owner has jobs that have not been stolen.
    pub(crate) fn has_jobs(&self) -> bool {
        let tail = self.load(Ordering::Acquire).tail();
        self.head.load(Ordering::Acquire) > tail
    }

    /// Asks the owner for something, besides what it has been asked for.
    pub(crate) fn request(&self, request: Requests) {
        // Release: an owner that takes the request sees what the caller did before, such as that it stopped searching. Acquire: if the
        // owner has taken earlier requests, the caller sees the jobs that it had offered by then.
        self.request.fetch_or(request.0, Ordering::AcqRel);
    }

    /// Asks the owner to ring that bell, of a worker of the same runtime, when it has more jobs. Only the bell of the last caller is rung;
    /// earlier ones sleep until what they wait for is done.
    ///
    /// The caller then calls the heavy fence and checks `has_jobs`, as a thief does that leaves.
    pub(crate) fn request_ring(&self, bell: &Bell<P>) {
        // Released by the change of `request`.
        self.sleeper.store(core::ptr::from_ref(bell).cast_mut(), Ordering::Release);
        self.request(Requests::RING);
    }

    /// Steals the oldest job, if it is public. `may` is called before the job is taken; if it returns false, nothing is taken. If the job
    /// is taken, what `may` has read was true while the job was there: it is read between `word` and the exchange of `word`.
    pub(crate) fn steal(&self, may: impl Fn() -> bool) -> Steal<P> {
        loop {
            let word = self.load(Ordering::Acquire);
            if !may() {
                return Steal::Empty;
            }
            if word.is_claimed() {
                if !self.confirm(word) {
                    return Steal::Empty;
                }
                continue;
            }
            if word.tail() == word.split() {
                let more = self.head.load(Ordering::Acquire) > word.split();
                return if more { Steal::Private } else { Steal::Empty };
            }
            let job = untagged(self.slots[word.tail() as usize].load(Ordering::Relaxed));
            if self.change(word, Word(word.0 + ONE_STOLEN)) {
                // Not null: the position was public.
                return NonNull::new(job).map_or(Steal::Empty, Steal::Job);
            }
        }
    }

    /// Makes the older half of the private jobs public although the owner does not answer. For a caller that found all of them private.
    pub(crate) fn claim(&self, may: impl Fn() -> bool) {
        let word = self.load(Ordering::Acquire);
        if !may() || word.is_claimed() || word.tail() != word.split() {
            return;
        }
        let head = self.head.load(Ordering::Acquire);
        if head <= word.split() {
            return;
        }
        let claimed = Word(word.shared(head).0 | CLAIMED);
        if self.change(word, claimed) {
            self.confirm(claimed);
        }
    }

    /// Finds out which of the claimed jobs are there. False if the system refuses the heavy fence: the owner will do it when it gets to
    /// these jobs.
    fn confirm(&self, word: Word) -> bool {
        // Pairs with the light fence in `pop`.
        if !P::heavy_fence() {
            return false;
        }
        let head = self.head.load(Ordering::Acquire);
        let confirmed = if head >= word.split() {
            word.confirmed()
        } else {
            word.lowered(head.max(word.tail()))
        };
        // If this fails, another thread has done it, or the owner has taken something back.
        self.change(word, confirmed);
        true
    }
}

/// A deque that is allocated when it is first needed.
pub(crate) struct LazyDeque<P: Platform>(P::AtomicPtr<Deque<P>>);

impl<P: Platform> LazyDeque<P> {
    pub(crate) fn new() -> Self {
        LazyDeque(P::AtomicPtr::new(core::ptr::null_mut()))
    }

    /// The deque, if there is one.
    pub(crate) fn get(&self) -> Option<&Deque<P>> {
        // Acquire: pairs with the release in `get_or_make`.
        // SAFETY: null, or a deque that lives as long as this, or for ever if it was given up.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The deque. By the owner.
    pub(crate) fn get_or_make(&self) -> &Deque<P> {
        self.get().unwrap_or_else(|| {
            let deque = Box::into_raw(Box::new(Deque::new()));
            self.0.store(deque, Ordering::Release);
            // SAFETY: it lives as long as this.
            unsafe { &*deque }
        })
    }

    /// Gives up a deque that is in use: its owner may be the thread that forked, which goes on using it, or one that does not exist here.
    /// In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        if self.get().is_some_and(|deque| !deque.group().is_null()) {
            // The memory stays: the thread that forked has jobs in it.
            crate::base::forked::set(&self.0, core::ptr::null_mut());
        }
    }
}

impl<P: Platform> Drop for LazyDeque<P> {
    fn drop(&mut self) {
        let deque = self.0.load(Ordering::Relaxed);
        if !deque.is_null() {
            // SAFETY: made as a box by `get_or_make`, and no other thread has this any more.
            drop(unsafe { Box::from_raw(deque) });
        }
    }
}

#[cfg(test)]
mod tests;
