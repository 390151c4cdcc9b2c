//! The limit of one domain of a queue: how many of its items may be on pools or running at once.
//!
//! A queue has a domain for each node, CPU, or one at all (`domain`); nothing here knows of the others. Each link belongs to
//! one domain for good, and neither is freed before the queue.
//!
//! # The counters
//! * `admitted`: items ever let in, and those that may be: the credits of the links (`credits`). Written by who
//!   activates, and by issuers once for each handful of credits that a link gets.
//! * completions: counted by workers, on the links' stripes. `admitted - completed` is what is active.
//! * `ceiling`: `admitted` may rise up to here without a look at the completions. It is `completed + limit` at the
//!   time it was computed, and completions only grow, so it is always a safe bound. It saves the issuer from
//!   reading, and the workers from writing, one shared counter per item.
//!   Credits that are not used make `admitted` too high, which is safe too. An issuer that finds the ceiling reached takes
//!   back what other links have in advance before it gives up.
//! * A ceiling of zero is `CLOSED`: items are held back, or somebody waits for the queue to drain. Every issuer goes the
//!   slow way, and every completion looks after what waits.
//! * The low byte of the ceiling's word is an epoch, which each change of the limit moves on. Else who has computed a
//!   ceiling by the old limit, and finds the word as it was (closed, or as high as before), would bring it back.
//! * *A lower limit counts at once*: who has let something in by a limit that it read before looks at the limit once more
//!   afterwards, and takes it back if that was lowered. Let in, then read the limit; write the limit, then read `admitted`:
//!   all `SeqCst`. So whoever has set a limit and reads `admitted` knows all that will ever get in by the old one.
//! * Whoever closes the ceiling revokes all credits afterwards, so nothing is let in past what waits. Credits that come back
//!   later (from an issuer that was on its way) lower `admitted`; who brings them looks whether the ceiling is closed and
//!   sends the activation item then. Against who closes and reads `admitted` that is Dekker's pattern again.
//!
//! # Holding back
//! An item beyond the limit goes onto its link's `inactive` inbox; nobody takes a lock for it. Only workers
//! activate, under `turn`. Who comes after inactive items goes behind them: `CLOSED` sends it the same way.
//! Cancelled ones stay there until a worker, or in its absence the monitor, throws them away under `turn` (`tidy`, `tidy_up`).
//!
//! # A limit of zero
//! A frozen queue's domains have it (`freeze`): nothing gets in, and the ceiling stays closed, so that every completion looks who
//! waits for the last one (`wait_until_still`).
//!
//! # The race
//! An issuer holds its item back while the last completion passes. Issuer: `inactive` + 1, push, close the ceiling
//! (CLOSE), read the completions (SUM). Worker: count the completion (COUNT), read the ceiling (LOOK). All `SeqCst`:
//! either the worker sees the ceiling closed and activates, or the issuer sees the completion; then it sends
//! the queue's `activation_item` (an item whose function activates) to a worker, because an issuer that is
//! preempted with `turn` in its hand would hold up workers.
//! A place that an activator has taken, and gives back because what it found was cancelled, may be the one that an issuer has
//! missed: so the activator looks at the inboxes once more after that. Give back, look; push, read `admitted`: `SeqCst`.
//! One worker at a time activates; who comes meanwhile asks it to look again (`attention`: NOBODY, LOOKING, AGAIN) and goes
//! on with its own items. It counted its completion before it asked or saw that somebody had asked, and the activator takes the
//! question (LOOKING) before it reads the completions: so it sees that one. All `SeqCst`.
//! The items of an ordered queue stand in one line, whichever links they are for: all go onto the inbox of the domain's oldest
//! link (`line`). They are let in from there one by one, so none is overtaken, whatever happens to the queue's attributes.
//! Where the limit is high and half of it is free, issuers go past what is held back (`admit_past`), so that the activator gets
//! ahead of them and can open.
//! Opening: the activator marks the closed ceiling as `OPENING`, sees `inactive` at zero, opens the ceiling by
//! compare-exchange from what it marked, and looks at `inactive` again; if an issuer came in between, it closes again and
//! goes on. Who closes takes the mark away: an item that was held back before the ceiling opened keeps it closed, so nothing
//! that is queued after it gets past it.

mod activation;
mod retired;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use crate::base::forked;
use crate::base::pad::Padded;
use crate::item::Origin;
use crate::item::owned::Pending;
use crate::item::wait_snapshot::WaitSnapshot;
use crate::layout::domain::Domain;
use crate::limit::activation_item::ActivationItem;
use crate::limit::link::Link;
use crate::limit::turn::Turn;

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

/// What becomes of an item that is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// It may run.
    LetIn,
    /// It waits because of the limit, or behind others that do.
    HeldBack,
    /// The queue drains.
    Refused,
    /// The link is retired: to be tried again with the one that is in use now.
    Elsewhere,
}

/// Whether the runtime is shut down, and the caller is not one of its workers.
fn is_shut<P: Platform>(link: &Link<P>) -> bool {
    let services = link.pool.services();
    P::model_fence();
    services.host().is_shut() && !crate::pool::context::works_for(services)
}

/// The limit of one domain.
pub(crate) struct Admission<P: Platform> {
    pub(crate) domain: Domain,
    admitted: Padded<P::AtomicU64>,
    ceiling: Padded<P::AtomicU64>,
    limit: P::AtomicU64,
    /// What the limit is while the queue is not frozen.
    thawed: P::AtomicU64,
    /// Items on the links' inactive inboxes, and in `turn`.
    inactive: P::AtomicU64,
    /// Cancelled items that are still on those lists.
    stale: P::AtomicU64,
    attention: Padded<P::AtomicU32>,
    turn: Mutex<Turn<P>, P>,
    /// Who drains the queue; then the ceiling stays closed.
    drainers: P::AtomicU32,
    /// Threads that wait for the last active item to end, while the limit is zero.
    freezers: P::AtomicU32,
    /// Counts the times that the domain was found still while somebody waited for that; they sleep on it.
    stilled: P::AtomicU32,
    /// Items that have a place and wait for one that is held back here (`waiting`).
    waiting: P::AtomicU32,
    /// The CPUs whose items come here: so many may ask at once.
    askers: P::AtomicU32,
    /// The links, newest first; never shortened.
    first_link: P::AtomicPtr<Link<P>>,
    /// Those from here on are retired, and how many executions have ended on them (`retired`).
    first_retired: P::AtomicPtr<Link<P>>,
    completed_before: P::AtomicU64,
    /// The link of the layout in effect to whose pool the activation item goes; null as long as there was none.
    main_link: P::AtomicPtr<Link<P>>,
    /// The link on whose inbox everything is held back, of an ordered queue; null of others.
    line: P::AtomicPtr<Link<P>>,
    pub(crate) activation_item: ActivationItem<P>,
    /// The queue's next domain; see `Queue::domains`.
    pub(crate) next: P::AtomicPtr<Admission<P>>,
}

// SAFETY: the raw pointers lead to links and domains of the same queue, which live as long as this.
unsafe impl<P: Platform> Send for Admission<P> {}
// SAFETY: several threads may follow the pointers at once: links and domains are shared by design; all else is `Sync` by itself.
unsafe impl<P: Platform> Sync for Admission<P> {}

impl<P: Platform> Admission<P> {
    /// A domain without links. Once it has its final place, its activation item is to be told (`ActivationItem::set_admission`).
    pub(crate) fn new(domain: Domain, limit: usize) -> Self {
        Admission {
            domain,
            admitted: Padded(P::AtomicU64::new(0)),
            ceiling: Padded(P::AtomicU64::new(with_ceiling(0, limit as u64))),
            limit: P::AtomicU64::new(limit as u64),
            thawed: P::AtomicU64::new(limit as u64),
            inactive: P::AtomicU64::new(0),
            stale: P::AtomicU64::new(0),
            attention: Padded(P::AtomicU32::new(NOBODY)),
            turn: Mutex::new_in(Turn::new()),
            drainers: P::AtomicU32::new(0),
            freezers: P::AtomicU32::new(0),
            stilled: P::AtomicU32::new(0),
            waiting: P::AtomicU32::new(0),
            askers: P::AtomicU32::new(1),
            first_link: P::AtomicPtr::new(core::ptr::null_mut()),
            first_retired: P::AtomicPtr::new(core::ptr::null_mut()),
            completed_before: P::AtomicU64::new(0),
            main_link: P::AtomicPtr::new(core::ptr::null_mut()),
            line: P::AtomicPtr::new(core::ptr::null_mut()),
            activation_item: ActivationItem::new(),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    // ---- links -----------------------------------------------------------------------------------------------

    /// Says how many CPUs' items come here by the layout in effect, and one of the links on which they come. By who holds the
    /// queue's configuration.
    pub(crate) fn set_use(&self, cpus: usize, link: *const Link<P>) {
        // What else is counted by this is how many credits a link gets: any value is safe.
        self.askers.store(cpus.max(1) as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `kick`.
        self.main_link.store(link.cast_mut(), Ordering::Release);
    }

    /// Notes what is held back; see `look`.
    pub(crate) fn see_inactive(&self, snapshot: &mut WaitSnapshot<P>) {
        if self.inactive.load(Ordering::Relaxed) == 0 {
            return;
        }
        let turn = self.turn.lock();
        // SAFETY: the list keeps its items alive; a thread that takes some off has `turn`, which is ours.
        unsafe { snapshot.note(turn.nodes()) };
        for link in self.links().chain(self.line().filter(|line| line.is_gone())) {
            // SAFETY: the link's inbox keeps its items alive; a thread that takes some off has `turn`, which is ours.
            unsafe { snapshot.note(link.inactive.nodes()) };
        }
    }

    /// Asks a worker to look after the limit.
    pub(crate) fn kick(&self) {
        let link = self.main_link.load(Ordering::Acquire);
        // SAFETY: null, or a link, which lives as long as the queue.
        let Some(main) = (unsafe { link.as_ref() }) else { return };
        // Where as many are awake as may be, all may be in long items.
        let free = || self.links().find(|link| !link.pool.is_full());
        let link = if main.pool.is_full() { free().unwrap_or(main) } else { main };
        self.activation_item.send(&link.pool);
    }

    // ---- letting in ------------------------------------------------------------------------------------------

    /// Lets an item in by the domain's own counter, and gets the link credits for the next ones. For who finds the link
    /// without a credit.
    pub(crate) fn refill(&self, link: &Link<P>) -> Entry {
        // Before the ceiling is read: see `credits`.
        let epoch = link.credits.epoch();
        // After the epoch: no credits come to a link that is retired.
        if link.is_retired() {
            return Entry::Elsewhere;
        }
        // As many as may ask at once: what they add before they see that it is too much must not make it too much.
        let askers =
            u64::from(self.askers.load(Ordering::Relaxed)).max(self.links().count() as u64);
        let mut withdrawn = false;
        loop {
            let admitted = self.admitted.load(Ordering::Relaxed);
            let word = self.ceiling.load(Ordering::SeqCst);
            let mut top = ceiling(word);
            if admitted >= top {
                top = self.raise(word);
                if admitted >= top {
                    if top == CLOSED {
                        return self.enter_closed(link);
                    }
                    if withdrawn || self.withdraw() == 0 {
                        return Entry::HeldBack;
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
            self.give_back(more - got);
            if got > 0 {
                if let Some(frozen) = self.overruled(word) {
                    self.give_back(got);
                    if frozen {
                        return self.enter_closed(link);
                    }
                    continue;
                }
                if got == 1 {
                    link.credits.enter();
                } else if !link.credits.enter_with(got as u32 - 1, epoch) {
                    self.give_back(got - 1);
                }
                return self.has_entered(link);
            }
        }
    }

    /// Where the ceiling is closed.
    #[cold]
    fn enter_closed(&self, link: &Link<P>) -> Entry {
        if self.refuses(link) {
            return Entry::Refused;
        }
        if self.admit_past(link) { self.has_entered(link) } else { Entry::HeldBack }
    }

    /// What becomes of an item that has been counted as let in on the link.
    fn has_entered(&self, link: &Link<P>) -> Entry {
        if !link.is_retired() {
            return Entry::LetIn;
        }
        link.leave();
        self.give_back(1);
        Entry::Elsewhere
    }

    /// Whether the caller may queue nothing here: the queue drains, and the caller is not one of its items; or the runtime is
    /// shut down, and the caller is not one of its workers.
    fn refuses(&self, link: &Link<P>) -> bool {
        P::model_fence();
        // SeqCst: who drains says so before it looks whether the queue is empty.
        let drainers = self.drainers.load(Ordering::SeqCst);
        if drainers == 0 || crate::limit::serving::serves_owner::<P>(link.owner_address()) {
            return false;
        }
        // The only one who drains may be who shuts down.
        drainers > 1 || !link.pool.services().host().is_shut() || is_shut(link)
    }

    /// Whether the limit has been changed since the ceiling's word was read; true inside if nothing may get in now.
    fn overruled(&self, word: u64) -> Option<bool> {
        P::model_fence();
        let changed = (self.ceiling.load(Ordering::SeqCst) ^ word) & EPOCH != 0;
        // The limit comes before the ceiling: who freezes may be between the two, and nobody shall spin until it goes on. The
        // epoch, too, may have come round while the caller slept.
        let frozen = self.limit() == 0;
        (changed || frozen).then_some(frozen)
    }

    /// Lets an item past those that are held back, if the limit is a high one and less than half of it is used.
    ///
    /// Who activates can do so for one item after the other only. While items come faster than that, some are always
    /// held back, and the ceiling would stay closed for ever although there is room for all.
    fn admit_past(&self, link: &Link<P>) -> bool {
        let limit = self.limit();
        if limit < HIGH_LIMIT {
            return false;
        }
        let completed = self.completed();
        if self.admitted.load(Ordering::SeqCst) >= completed + limit / 2 {
            return false;
        }
        let past = self.admitted.fetch_add(1, Ordering::SeqCst) < completed + limit;
        // Looked at once more now that the item is counted: see `shutdown`.
        if past && !self.is_below(limit) && !self.refuses(link) {
            link.credits.enter();
            return true;
        }
        self.give_back(1);
        false
    }

    /// Whether the limit has been lowered since it was read.
    fn is_below(&self, limit: u64) -> bool {
        P::model_fence();
        self.limit() < limit
    }

    /// Takes back the credits of all links. How many there were.
    fn withdraw(&self) -> u64 {
        let credits = self.links().map(|link| u64::from(link.credits.withdraw())).sum();
        self.give_back(credits);
        credits
    }

    /// Counts credits that nobody uses as not let in.
    pub(crate) fn give_back(&self, credits: u64) {
        if credits == 0 {
            return;
        }
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        // Who closed the ceiling may have read `admitted` before.
        if self.needs_attention() {
            self.kick();
        }
    }

    /// Items that may be active.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::SeqCst)
    }

    /// How many items the limit lets in, all in all, by what has been completed so far.
    fn allowed(&self) -> u64 {
        self.completed() + self.limit()
    }

    /// Raises the ceiling, which was `word`, to what the completions allow. Where it is then.
    #[cold]
    fn raise(&self, word: u64) -> u64 {
        if ceiling(word) == CLOSED {
            return CLOSED;
        }
        let possible = self.allowed();
        let raised = with_ceiling(word, possible);
        let outcome =
            self.ceiling.compare_exchange(word, raised, Ordering::SeqCst, Ordering::SeqCst);
        outcome.map_or_else(ceiling, |_| possible)
    }

    /// Holds an item back. If it is not held back after all, nothing has happened, and the caller gets it back: it is refused, or to be sent
    /// elsewhere. An item that is the queue's `own` already is refused by a shutdown only.
    #[cold]
    pub(crate) fn hold_back(
        &self,
        link: &Link<P>,
        item: Pending<P>,
        origin: Origin,
        own: bool,
    ) -> Result<(), (Pending<P>, Entry)> {
        item.set_inactive();
        link.hold();
        self.inactive.fetch_add(1, Ordering::SeqCst);
        // Looked at once more now that the item is counted: see `shutdown`.
        let refused = if own { is_shut(link) } else { self.refuses(link) };
        if refused || link.is_retired() {
            self.inactive.fetch_sub(1, Ordering::SeqCst);
            link.let_go();
            item.unset_inactive();
            return Err((item, if refused { Entry::Refused } else { Entry::Elsewhere }));
        }
        // Accounted from here on: it may be cancelled.
        item.set_target(link.account(), origin);
        self.line().unwrap_or(link).inactive.push(item);
        self.close();
        if self.admitted.load(Ordering::SeqCst) < self.allowed() {
            self.kick();
        }
        Ok(())
    }

    /// Makes every completion look after what waits, and lets nobody in.
    fn close(&self) {
        self.ceiling.fetch_and(EPOCH, Ordering::SeqCst);
        P::model_fence();
        self.revoke();
    }

    /// Takes back all credits, also those on their way to a link. The ceiling is closed, and the caller looks at
    /// `admitted` afterwards or has somebody look.
    fn revoke(&self) {
        let credits = self.links().map(|link| u64::from(link.credits.revoke())).sum::<u64>();
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        P::model_fence();
    }

    /// After a completion was counted: whether somebody must look after what waits.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        P::model_fence();
        ceiling(self.ceiling.load(Ordering::SeqCst)) == CLOSED
    }

    /// Whether nothing is on a pool or running; items may be held back. Completions are read first: they never exceed what
    /// was admitted, so equality means that all was completed at that moment.
    fn is_still(&self) -> bool {
        self.withdraw();
        let completed = self.completed();
        P::model_fence();
        self.admitted.load(Ordering::SeqCst) == completed
    }

    /// Sleeps until nothing is on a pool or running, or the limit is not zero any more.
    pub(crate) fn wait_until_still(&self) {
        self.freezers.fetch_add(1, Ordering::SeqCst);
        P::model_fence();
        loop {
            let stilled = self.stilled.load(Ordering::SeqCst);
            if self.limit() != 0 || self.is_still() {
                break;
            }
            P::wait_for_work(&self.stilled, stilled, None);
        }
        self.freezers.fetch_sub(1, Ordering::SeqCst);
    }

    /// Keeps the ceiling closed from now on: who is not an item of the queue is refused.
    pub(crate) fn begin_drain(&self) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
        self.close();
    }

    /// Lets a worker open the ceiling, unless somebody else drains.
    pub(crate) fn end_drain(&self) {
        self.drainers.fetch_sub(1, Ordering::SeqCst);
        self.kick();
    }

    /// The caller's item has a place and waits for one that is held back. False if so do all that have a place: nobody would
    /// ever start then, so it must not. A frozen queue is judged by the limit that it will have: another thread may thaw it.
    pub(crate) fn begin_waiting(&self) -> bool {
        // SeqCst: of several that come at once, the last one sees the others.
        let others = self.waiting.fetch_add(1, Ordering::SeqCst);
        // Relaxed: the caller goes by the limit that was set before it began to wait, as far as it has seen that.
        let may = u64::from(others) + 1 < self.thawed.load(Ordering::Relaxed);
        if !may {
            self.end_waiting();
        }
        may
    }

    /// It waits no longer.
    pub(crate) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Nothing is held back, on a pool or running, and no thread drains, freezes or waits: all that is the parent's. By the thread that has
    /// the queue's configuration, in the child of a fork, after the links.
    pub(crate) fn after_fork_in_child(&self, limit: usize, shut: bool) {
        let limit = limit as u64;
        let completed = self.completed();
        forked::set(&*self.admitted, completed);
        forked::set(&self.inactive, 0);
        forked::set(&self.stale, 0);
        // The limit may be that of a change which had not come to this domain.
        forked::set(&self.limit, limit);
        let epoch = self.ceiling.load(Ordering::Relaxed) & EPOCH;
        let ceiling = if shut || limit == 0 { CLOSED } else { completed + limit };
        forked::set(&*self.ceiling, with_ceiling(epoch, ceiling));
        forked::set(&*self.attention, NOBODY);
        forked::set(&self.drainers, u32::from(shut));
        forked::set(&self.freezers, 0);
        forked::set(&self.waiting, 0);
        // SAFETY: this is the only thread, and it is not in the middle of activating: no user's code runs there.
        unsafe { self.turn.renew(Turn::new()) };
        self.activation_item.after_fork_in_child();
    }

    /// As [`begin_drain`](Self::begin_drain), for ever; and who has been let in by what it saw before finds that overruled.
    pub(crate) fn shut(&self) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
        self.close_anew();
    }

    /// Closes the ceiling, with a new epoch.
    fn close_anew(&self) {
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
        self.revoke();
    }

    /// Says what the limit is while the queue is not frozen; before [`set_limit`](Self::set_limit). By the thread that has the queue's
    /// configuration.
    pub(crate) fn set_thawed_limit(&self, limit: usize) {
        // Relaxed: a thread in `begin_waiting` may go by the limit before, as far as it has not seen this one.
        self.thawed.store(limit as u64, Ordering::Relaxed);
    }

    /// Changes the limit; takes effect for the next item, in both directions. By who holds the queue's configuration.
    pub(crate) fn set_limit(&self, limit: usize) {
        let limit = limit as u64;
        if self.limit() == limit {
            return;
        }
        self.limit.store(limit, Ordering::SeqCst);
        // Closed, so that no issuer goes by the old ceiling, and of a new epoch; the activation item opens it anew.
        self.close_anew();
        self.kick();
        if self.freezers.load(Ordering::SeqCst) != 0 {
            // They wait no longer.
            self.wake_freezers();
        }
    }

    /// Items that are on pools or running, as far as that can be seen without stopping anybody, and items held back.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let completed = self.completed();
        let credits: u64 = self.links().map(|link| u64::from(link.credits.count())).sum();
        let (admitted, inactive) = self.counts();
        (admitted.saturating_sub(completed + credits) as usize, inactive as usize)
    }

    /// Items let in (and credits), all in all, and items held back.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::SeqCst), self.inactive.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
pub(crate) mod tests;
