//! `max_active`: how many items of a queue may be on pools or running at once.
//!
//! # The counters
//! * `admitted`: items ever let in, and those that may be: the credits of the links (`credits`). Written by who
//!   activates, and by issuers once for each handful of credits that a link gets.
//! * completions: counted by workers, on the links' stripes. `admitted - completed` is what is active.
//! * `ceiling`: `admitted` may rise up to here without a look at the completions. It is `completed + max_active` at the
//!   time it was computed, and completions only grow, so it is always a safe bound. It saves the issuer from
//!   reading, and the workers from writing, one shared counter per item.
//!   Credits that are not used make `admitted` too high, which is safe too. An issuer that finds the ceiling reached takes
//!   back what other links have in advance before it gives up.
//! * A ceiling of zero is `CLOSED`: items are held back, or somebody waits for the queue to drain. Every issuer goes the
//!   slow way, and every completion looks after what waits.
//! * The low byte of the ceiling's word is an epoch, which each change of `max_active` moves on. Else who has computed a
//!   ceiling by the old limit, and finds the word as it was (closed, or as high as before), would bring it back.
//! * Whoever closes the ceiling revokes all credits afterwards, so nothing is let in past what waits. Credits that come back
//!   later (from an issuer that was on its way) lower `admitted`; who brings them looks whether the ceiling is closed and
//!   sends the kicker then. Against who closes and reads `admitted` that is Dekker's pattern again.
//!
//! # Holding back
//! An item beyond the limit goes onto its link's `inactive` inbox; nobody takes a lock for it. Only workers
//! activate, under `turn`. Who comes after inactive items goes behind them: `CLOSED` sends it the same way.
//!
//! # The race
//! An issuer holds its item back while the last completion passes. Issuer: `inactive` + 1, push, close the ceiling
//! (CLOSE), read the completions (SUM). Worker: count the completion (COUNT), read the ceiling (LOOK). All `SeqCst`:
//! either the worker sees the ceiling closed and activates, or the issuer sees the completion; then it sends
//! the queue's `kicker` (an item whose function activates) to a worker, because an issuer that is
//! preempted with `turn` in its hand would hold up workers.
//! One worker at a time activates; who comes meanwhile asks it to look again (`attention`: NOBODY, LOOKING, AGAIN) and goes
//! on with its own items. It counted its completion before it asked or saw that somebody had asked, and the activator takes the
//! question (LOOKING) before it reads the completions: so it sees that one. All `SeqCst`.
//! Where the limit is high and half of it is free, issuers go past what is held back (`admit_past`), so that the activator gets
//! ahead of them and can open.
//! Opening: the activator marks the closed ceiling as `OPENING`, sees `inactive` at zero, opens the ceiling by
//! compare-exchange from what it marked, and looks at `inactive` again; if an issuer came in between, it closes again and
//! goes on. Who closes takes the mark away: an item that was held back before the ceiling opened keeps it closed, so nothing
//! that is queued after it gets past it.

use core::ptr::NonNull;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::broken::Broken;
use crate::item::{Activated, Item};
use crate::link::Link;
use crate::list::List;
use crate::pad::Padded;
use crate::queue::Queue;

const CLOSED: u64 = 0;
/// Nobody activates; somebody does; somebody does and shall look once more.
const NOBODY: u32 = 0;
const LOOKING: u32 = 1;
const AGAIN: u32 = 2;
/// The epoch in the ceiling's word.
const EPOCH: u64 = 0xff;
/// An activator is about to open the ceiling, and nobody has closed it since.
const OPENING: u64 = 0x100;
/// Where the ceiling begins in its word.
const SHIFT: u32 = 9;

/// The ceiling in its word. 55 bits: at 100 million items a second, 11 years.
#[inline]
fn ceiling(word: u64) -> u64 {
    word >> SHIFT
}

/// `word` with another ceiling.
fn with_ceiling(word: u64, ceiling: u64) -> u64 {
    ceiling << SHIFT | word & EPOCH
}

/// Items that a queue may have active if nothing else is said, as in the kernel.
pub(crate) const DEFAULT_MAX_ACTIVE: usize = 1024;
/// Items of a queue with such a limit do not care who of them starts first.
const HIGH_LIMIT: u64 = 64;
/// Credits that a link gets at once at most.
const MOST_CREDITS: u64 = 32;
/// Cancelled items that may be on the lists of those that are held back.
const MANY_STALE: u64 = 64;
/// The most that can be asked for, as in the kernel.
pub(crate) const HIGHEST_MAX_ACTIVE: usize = 2048;

/// The limit of one queue.
pub(crate) struct Admission<P: Platform> {
    admitted: Padded<P::AtomicU64>,
    ceiling: Padded<P::AtomicU64>,
    max_active: P::AtomicU64,
    /// Items on the links' inactive inboxes, and in `turn`.
    inactive: P::AtomicU64,
    /// Cancelled items that are still on those lists.
    stale: P::AtomicU64,
    attention: Padded<P::AtomicU32>,
    turn: Mutex<Turn<P>, P>,
    /// Threads that wait for the queue to become empty; then the ceiling stays closed.
    drainers: P::AtomicU32,
    /// Counts the times that the queue was found empty; drainers sleep on it.
    emptied: P::AtomicU32,
}

/// What was taken off the inactive inboxes, a list per link, and whose turn it is.
struct Turn<P: Platform> {
    lists: Vec<(*const Link<P>, List<P>)>,
    next: usize,
}

// SAFETY: the links live as long as the queue that owns this; the lists own their items.
unsafe impl<P: Platform> Send for Turn<P> {}

impl<P: Platform> Admission<P> {
    pub(crate) fn new(max_active: usize) -> Self {
        Admission {
            admitted: Padded(P::AtomicU64::new(0)),
            ceiling: Padded(P::AtomicU64::new(with_ceiling(0, max_active as u64))),
            max_active: P::AtomicU64::new(max_active as u64),
            inactive: P::AtomicU64::new(0),
            stale: P::AtomicU64::new(0),
            attention: Padded(P::AtomicU32::new(NOBODY)),
            turn: Mutex::new_in(Turn { lists: Vec::new(), next: 0 }),
            drainers: P::AtomicU32::new(0),
            emptied: P::AtomicU32::new(0),
        }
    }

    /// Lets an item for `link` in, if the limit allows it and nothing waits before it.
    #[inline]
    pub(crate) fn admit(&self, queue: &Queue<P>, link: &Link<P>) -> bool {
        link.credits.take() || self.refill(queue, link)
    }

    /// Lets an item in by the queue's own counter, and gets the link credits for the next ones.
    #[inline(never)]
    fn refill(&self, queue: &Queue<P>, link: &Link<P>) -> bool {
        // Before the ceiling is read: see `credits`.
        let epoch = link.credits.epoch();
        // As many as may ask at once: what they add before they see that it is too much must not make it too much.
        let askers = queue.cpus().max(queue.links().count()) as u64;
        let mut withdrawn = false;
        loop {
            let admitted = self.admitted.load(Ordering::Relaxed);
            let mut top = ceiling(self.ceiling.load(Ordering::SeqCst));
            if admitted >= top {
                top = self.raise(queue);
                if admitted >= top {
                    if top == CLOSED {
                        return self.admit_past(queue);
                    }
                    if withdrawn || self.withdraw(queue) == 0 {
                        return false;
                    }
                    withdrawn = true;
                    continue;
                }
            }
            // Never so many for one link that the others find nothing: with a low limit there are no credits.
            let more = ((top - admitted) / (2 * askers)).clamp(1, MOST_CREDITS);
            // Added, not compared: on a large machine nearly all issuers would lose the race. What is too much goes back;
            // until then it only makes `admitted` too high. SeqCst: `is_empty` reads it after the completions.
            let admitted = self.admitted.fetch_add(more, Ordering::SeqCst);
            let got = top.saturating_sub(admitted).min(more);
            self.give_back(queue, more - got);
            if got > 0 {
                if got > 1 && !link.credits.add(got as u32 - 1, epoch) {
                    self.give_back(queue, got - 1);
                }
                return true;
            }
        }
    }

    /// Lets an item past those that are held back, if the limit is a high one and less than half of it is used.
    ///
    /// Who activates can do so for one item after the other only. While items come faster than that, some are always
    /// held back, and the ceiling would stay closed for ever although there is room for all.
    #[cold]
    fn admit_past(&self, queue: &Queue<P>) -> bool {
        let limit = self.max_active.load(Ordering::SeqCst);
        if limit < HIGH_LIMIT {
            return false;
        }
        let completed = queue.completed();
        if self.admitted.load(Ordering::SeqCst) >= completed + limit / 2 {
            return false;
        }
        if self.admitted.fetch_add(1, Ordering::SeqCst) < completed + limit {
            return true;
        }
        self.give_back(queue, 1);
        false
    }

    /// Takes back the credits of all links. How many there were.
    fn withdraw(&self, queue: &Queue<P>) -> u64 {
        let credits = queue.links().map(|link| u64::from(link.credits.withdraw())).sum();
        self.give_back(queue, credits);
        credits
    }

    /// Counts credits that nobody uses as not let in.
    fn give_back(&self, queue: &Queue<P>, credits: u64) {
        if credits == 0 {
            return;
        }
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        // Who closed the ceiling may have read `admitted` before.
        if self.needs_attention() {
            queue.kick();
        }
    }

    /// How many items the limit lets in, all in all, by what has been completed so far.
    fn allowed(&self, queue: &Queue<P>) -> u64 {
        queue.completed() + self.max_active.load(Ordering::SeqCst)
    }

    /// Raises the ceiling to what the completions allow. Where it is then.
    #[cold]
    fn raise(&self, queue: &Queue<P>) -> u64 {
        let word = self.ceiling.load(Ordering::SeqCst);
        if ceiling(word) == CLOSED {
            return CLOSED;
        }
        let possible = self.allowed(queue);
        let raised = with_ceiling(word, possible);
        let outcome =
            self.ceiling.compare_exchange(word, raised, Ordering::SeqCst, Ordering::SeqCst);
        outcome.map_or_else(ceiling, |_| possible)
    }

    /// Holds an item back that `cpu` queued. The caller has its `PENDING`.
    #[cold]
    pub(crate) fn hold_back(
        &self,
        queue: &Queue<P>,
        link: &Link<P>,
        item: NonNull<Item<P>>,
        cpu: u32,
    ) {
        // SAFETY: the caller has the item's PENDING, which keeps it alive.
        let header = unsafe { item.as_ref() };
        header.set_inactive();
        self.inactive.fetch_add(1, Ordering::SeqCst);
        // Accounted from here on: it may be cancelled.
        header.set_target(link, cpu);
        link.inactive.push(item);
        self.close(queue);
        if queue.runtime().inner().broken.is(Broken::AdmissionLeak) {
            return;
        }
        if self.admitted.load(Ordering::SeqCst) < self.allowed(queue) {
            queue.kick();
        }
    }

    /// Makes every completion look after what waits, and lets nobody in.
    fn close(&self, queue: &Queue<P>) {
        self.ceiling.fetch_and(EPOCH, Ordering::SeqCst);
        P::model_fence();
        self.revoke(queue);
    }

    /// Takes back all credits, also those on their way to a link. The ceiling is closed, and the caller looks at
    /// `admitted` afterwards or has somebody look.
    fn revoke(&self, queue: &Queue<P>) {
        let credits = queue.links().map(|link| u64::from(link.credits.revoke())).sum::<u64>();
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        P::model_fence();
    }

    /// After a completion was counted: whether somebody must look after what waits.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        P::model_fence();
        ceiling(self.ceiling.load(Ordering::SeqCst)) == CLOSED
    }

    /// Activates what the limit allows, opens the ceiling if nothing is left, and wakes who waits for the queue to be
    /// empty. Workers only.
    #[cold]
    pub(crate) fn attend(&self, queue: &Queue<P>) {
        loop {
            P::model_fence();
            match self.attention.load(Ordering::SeqCst) {
                AGAIN => return,
                NOBODY if self.change_attention(NOBODY, LOOKING) => break,
                LOOKING if self.change_attention(LOOKING, AGAIN) => return,
                _ => {}
            }
        }
        loop {
            self.look(queue);
            if self.change_attention(LOOKING, NOBODY) {
                return;
            }
            self.attention.swap(LOOKING, Ordering::SeqCst);
            P::model_fence();
        }
    }

    fn change_attention(&self, from: u32, to: u32) -> bool {
        self.attention.compare_exchange(from, to, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// What [`attend`](Self::attend) does, once.
    fn look(&self, queue: &Queue<P>) {
        let mut turn = self.turn.lock();
        loop {
            self.activate(queue, &mut turn);
            if !self.may_open() {
                break;
            }
            // The mark comes before the look. Only we, who have `turn`, set it.
            let word = self.ceiling.load(Ordering::SeqCst);
            let word = match ceiling(word) {
                CLOSED => self.ceiling.fetch_or(OPENING, Ordering::SeqCst) | OPENING,
                _ => word,
            };
            P::model_fence();
            if !self.may_open() {
                continue;
            }
            let possible = self.allowed(queue);
            if ceiling(word) == CLOSED {
                // It fails where the limit was changed meanwhile, then the kicker opens the ceiling; and where an item was
                // held back, which is seen below.
                let open = with_ceiling(word, possible);
                let _ =
                    self.ceiling.compare_exchange(word, open, Ordering::SeqCst, Ordering::SeqCst);
            }
            P::model_fence();
            if self.may_open() {
                break;
            }
            self.close(queue);
        }
        drop(turn);
        if self.drainers.load(Ordering::SeqCst) != 0 && self.is_empty(queue) {
            self.emptied.fetch_add(1, Ordering::SeqCst);
            P::wake(&raw const self.emptied, usize::MAX);
        }
    }

    /// Whether nobody wants the ceiling closed: nothing is held back, and nobody waits for an empty queue.
    fn may_open(&self) -> bool {
        self.drainers.load(Ordering::SeqCst) == 0 && self.inactive.load(Ordering::SeqCst) == 0
    }

    fn activate(&self, queue: &Queue<P>, turn: &mut Turn<P>) {
        if self.inactive.load(Ordering::SeqCst) == 0
            && self.stale.load(Ordering::Relaxed) < MANY_STALE
        {
            return;
        }
        for link in queue.links() {
            let mut fresh = link.inactive.take_all();
            if fresh.is_empty() {
                continue;
            }
            let link = core::ptr::from_ref(link);
            match turn.lists.iter_mut().find(|(known, _)| *known == link) {
                Some((_, list)) => list.append(&mut fresh),
                None => turn.lists.push((link, fresh)),
            }
        }
        self.tidy(turn);
        while turn.lists.iter().any(|(_, list)| !list.is_empty()) {
            let admitted = self.admitted.load(Ordering::SeqCst);
            if admitted >= self.allowed(queue) {
                return;
            }
            if self
                .admitted
                .compare_exchange(admitted, admitted + 1, Ordering::SeqCst, Ordering::SeqCst)
                .is_err()
            {
                continue;
            }
            if !self.activate_next(turn) {
                // Nothing was activated with the place that was taken.
                self.admitted.fetch_sub(1, Ordering::SeqCst);
                return;
            }
        }
    }

    /// Activates the next item that was not cancelled; false if there is none, or the next one is locked: then the lock's
    /// holder sends the kicker, so that no other item gets past it.
    fn activate_next(&self, turn: &mut Turn<P>) -> bool {
        while let Some((list, link, item)) = turn.pop() {
            // SAFETY: it came off the list, which keeps the item alive: by PENDING, or by STALE.
            let header = unsafe { item.as_ref() };
            if header.is_stale() {
                self.throw(item);
                continue;
            }
            match header.activate() {
                Activated::Yes => {
                    self.inactive.fetch_sub(1, Ordering::SeqCst);
                    if header.publish() {
                        // SAFETY: the link belongs to the queue, which the caller keeps alive.
                        unsafe { &*link }.push(item);
                    }
                    return true;
                }
                Activated::Locked => {
                    turn.put_back(list, item);
                    return false;
                }
                // Cancelled this very moment.
                Activated::Cancelled => drop(self.stale.fetch_sub(1, Ordering::Relaxed)),
                Activated::Free => {
                    self.stale.fetch_sub(1, Ordering::Relaxed);
                    // SAFETY: nobody has the item any more.
                    unsafe { crate::run::free(item) };
                }
            }
        }
        false
    }

    /// A cancelled item was on a list of those that are held back. It stays there until somebody comes by.
    pub(crate) fn forget_inactive(&self) {
        // Relaxed: a number of what could be thrown away.
        self.stale.fetch_add(1, Ordering::Relaxed);
        self.inactive.fetch_sub(1, Ordering::SeqCst);
    }

    /// Throws away cancelled items, once there are more of them than of others.
    fn tidy(&self, turn: &mut Turn<P>) {
        let stale = self.stale.load(Ordering::Relaxed);
        if stale < MANY_STALE.max(self.inactive.load(Ordering::Relaxed)) {
            return;
        }
        for (_, list) in &mut turn.lists {
            for _ in 0..list.len() {
                let item = list.pop_front().expect("as many as it has");
                // SAFETY: it is on the list, which keeps it alive.
                match unsafe { item.as_ref() }.is_stale().then(|| self.throw(item)) {
                    Some(()) => {}
                    None => list.push_back(item),
                }
            }
        }
    }

    /// A cancelled item has come off its list.
    fn throw(&self, item: NonNull<Item<P>>) {
        self.stale.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: STALE keeps it alive.
        match unsafe { item.as_ref() }.activate() {
            // SAFETY: nobody has the item any more.
            Activated::Free => unsafe { crate::run::free(item) },
            outcome => {
                debug_assert_eq!(outcome, Activated::Cancelled, "nobody makes it fresh again")
            }
        }
    }

    /// Throws away what is left of cancelled items; when nobody touches the queue any more.
    pub(crate) fn throw_away(&self, queue: &Queue<P>) {
        let mut turn = self.turn.lock();
        for link in queue.links() {
            let mut left = link.inactive.take_all();
            turn.lists.push((link, List::new()));
            turn.lists.last_mut().expect("just pushed").1.append(&mut left);
        }
        while let Some((_, _, item)) = turn.pop() {
            self.throw(item);
        }
    }

    /// Whether nothing is held back, on a pool or running. Completions are read first: they never exceed what was
    /// admitted, so equality means that all was completed at that moment.
    pub(crate) fn is_empty(&self, queue: &Queue<P>) -> bool {
        self.withdraw(queue);
        let completed = queue.completed();
        P::model_fence();
        self.inactive.load(Ordering::SeqCst) == 0
            && self.admitted.load(Ordering::SeqCst) == completed
    }

    /// Sleeps until the queue is empty.
    pub(crate) fn wait_until_empty(&self, queue: &Queue<P>) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
        self.close(queue);
        loop {
            let emptied = self.emptied.load(Ordering::SeqCst);
            if self.is_empty(queue) {
                break;
            }
            P::wait(&self.emptied, emptied, None);
        }
        self.drainers.fetch_sub(1, Ordering::SeqCst);
        // The ceiling is closed; let a worker open it.
        queue.kick();
    }

    /// Whether the caller is a worker that executes an item of this queue, and the limit allows no other.
    pub(crate) fn is_full_of_caller(&self, link: &Link<P>) -> bool {
        self.max_active.load(Ordering::Relaxed) == 1 && crate::run::serves::<P>(link.queue)
    }

    pub(crate) fn max_active(&self) -> usize {
        self.max_active.load(Ordering::Relaxed) as usize
    }

    /// Changes the limit; takes effect for the next item, in both directions.
    pub(crate) fn set_max_active(&self, queue: &Queue<P>, max_active: usize) {
        self.max_active.store(max_active as u64, Ordering::SeqCst);
        // Closed, so that no issuer goes by the old ceiling, and of a new epoch; the kicker opens it anew.
        let mut word = self.ceiling.load(Ordering::SeqCst);
        while let Err(found) = self.ceiling.compare_exchange_weak(
            word,
            (word + 1) & EPOCH,
            Ordering::SeqCst,
            Ordering::SeqCst,
        ) {
            word = found;
        }
        P::model_fence();
        self.revoke(queue);
        queue.kick();
    }

    /// Items let in (and credits), and items held back.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::SeqCst), self.inactive.load(Ordering::SeqCst))
    }
}

impl<P: Platform> Turn<P> {
    /// The first item of the next link that has one, and the number of its list: links take turns, each in its own order.
    fn pop(&mut self) -> Option<(usize, *const Link<P>, NonNull<Item<P>>)> {
        for _ in 0..self.lists.len() {
            self.next = (self.next + 1) % self.lists.len();
            let (link, list) = &mut self.lists[self.next];
            if let Some(item) = list.pop_front() {
                return Some((self.next, *link, item));
            }
        }
        None
    }

    /// Undoes a `pop`.
    fn put_back(&mut self, list: usize, item: NonNull<Item<P>>) {
        self.lists[list].1.push_front(item);
        self.next = (list + self.lists.len() - 1) % self.lists.len();
    }
}

#[cfg(test)]
mod tests;
