//! The limit of one domain of a queue: how many of its items may be on pools or running at once.
//!
//! A queue has one domain for each node or CPU, or a single one (`domain`); nothing here depends on the other domains. Each pwq belongs to
//! one domain for good, and neither is freed before the queue.
//!
//! # The counters
//! * `admitted`: items ever admitted, and those that may be: the credits of the pwqs (`credits`). Written by the activator, and by issuers
//!   once for each handful of credits that a pwq gets.
//! * completions: counted by workers, on the pwqs' stripes. `admitted - completed` is what is active.
//! * `ceiling`: `admitted` may rise up to here without reading the completions. It is `completed + limit` at the time it was computed, and
//!   completions only grow, so it is always a safe bound. It saves the issuer from reading, and the workers from writing, one shared
//!   counter per item. Unused credits make `admitted` too high, which is safe too. An issuer that finds the ceiling reached takes back what
//!   other pwqs have in advance before it gives up.
//! * A ceiling of zero is `CLOSED`: items are held back, or a thread waits for the queue to drain. Every issuer takes the slow path, and
//!   every completion checks what waits.
//! * The low byte of the ceiling's word is a version, which each change of the limit increments. Otherwise, a thread that has computed a
//!   ceiling from the old limit, and finds the word unchanged (closed, or as high as before), would restore that ceiling.
//! * *A lower limit counts at once*: a thread that has admitted something by a limit that it read before reads the limit once more
//!   afterwards, and takes the admission back if the limit was lowered. The one admits, then reads the limit; the other writes the limit,
//!   then reads `admitted`. All are `SeqCst`. So a thread that has set a limit and reads `admitted` knows everything that will ever be
//!   admitted by the old one.
//! * A thread that closes the ceiling revokes all credits afterwards, so nothing is admitted past what waits. Credits that come back later
//!   (from an issuer that was on its way) lower `admitted`; the thread that returns them checks whether the ceiling is closed, and sends
//!   the activation item if it is. With a thread that closes and reads `admitted`, that is Dekker's pattern again.
//!
//! # Holding back
//! An item beyond the limit goes onto its pwq's `inactive` inbox, without a lock. Only workers activate, under `inactive_queue`. An item
//! that comes after inactive ones goes behind them, because `CLOSED` sends it the same way. Cancelled items stay there until a worker or,
//! if none comes, the monitor throws them away under `inactive_queue` (`tidy`, `tidy_up`).
//!
//! # A limit of zero
//! A frozen queue's domains have this limit (`freeze`): nothing is admitted, and the ceiling stays closed, so that every completion checks
//! whether a thread waits for the last one (`wait_until_still`).
//!
//! # The race
//! An issuer holds its item back while the last completion passes. Issuer: increment `inactive`, push, close the ceiling (CLOSE), read the
//! completions (SUM). Worker: count the completion (COUNT), read the ceiling (LOOK). All are `SeqCst`. Either the worker sees the ceiling
//! closed and activates, or the issuer sees the completion. Then the issuer sends the queue's `activation_item` (an item whose function
//! activates) to a worker, because an issuer that is preempted while it holds `inactive_queue` would delay workers.
//! A place that an activator has taken, and gives back because what it found was cancelled, may be the one that an issuer has missed: so
//! the activator checks the inboxes once more after that. It gives the place back, then checks; the issuer pushes, then reads `admitted`.
//! Both are `SeqCst`.
//! One worker at a time activates; a worker that comes meanwhile asks it to check again (`attention`: UNATTENDED, ATTENDED, AGAIN) and goes
//! on with its own items. That worker counted its completion before it asked or saw that another worker had asked, and the activator takes
//! the request (ATTENDED) before it reads the completions: so it sees that completion. All are `SeqCst`. The items of an ordered queue
//! stand in one line, whichever pwqs they are for: all go onto the inbox of the domain's oldest pwq (`line`). They are admitted from there
//! one by one, so none is overtaken, whatever happens to the queue's attributes. If the limit is high and half of it is free, issuers go
//! past what is held back (`admit_past`), so that the activator gets ahead of them and can open the ceiling. Opening: the activator marks
//! the closed ceiling as `OPENING`, sees `inactive` at zero, opens the ceiling by compare-exchange from what it marked, and reads
//! `inactive` again; if an issuer came in between, it closes the ceiling again and goes on. A thread that closes the ceiling removes the
//! mark. So an item that was held back before the ceiling opened keeps it closed, and nothing that is queued after it gets past it.

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
use crate::limit::inactive_queue::InactiveQueue;
use crate::limit::pool_workqueue::PoolWorkqueue;

const CLOSED: u64 = 0;
/// No worker activates; one does; one does and must check once more.
const UNATTENDED: u32 = 0;
const ATTENDED: u32 = 1;
const AGAIN: u32 = 2;
/// The version in the ceiling's word.
const VERSION: u64 = 0xff;
/// An activator is about to open the ceiling, and no thread has closed it since.
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
    ceiling << SHIFT | word & VERSION
}

/// With such a limit, the order in which a queue's items start does not matter.
const HIGH_LIMIT: u64 = 64;
/// The most credits that a pwq gets at once.
const MOST_CREDITS: u64 = 32;
/// How many cancelled items may be on the lists of held-back items.
const MANY_STALE: u64 = 64;

/// The result of queueing an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// The item may run.
    LetIn,
    /// The item waits because of the limit, or behind others that do.
    HeldBack,
    /// The queue drains.
    Refused,
    /// The pwq is retired: try again with the one that is in use now.
    Elsewhere,
}

/// Whether the runtime is shut down, and the caller is not one of its workers.
fn is_shut<P: Platform>(pwq: &PoolWorkqueue<P>) -> bool {
    let services = pwq.pool.services();
    P::model_fence();
    services.host().is_shut() && !crate::pool::context::works_for(services)
}

/// The limit of one domain.
pub(crate) struct NodeActive<P: Platform> {
    pub(crate) domain: Domain,
    admitted: Padded<P::AtomicU64>,
    ceiling: Padded<P::AtomicU64>,
    limit: P::AtomicU64,
    /// The limit that applies while the queue is not frozen.
    thawed: P::AtomicU64,
    /// Items on the pwqs' inactive inboxes, and in `inactive_queue`.
    inactive: P::AtomicU64,
    /// Cancelled items that are still on those lists.
    stale: P::AtomicU64,
    attention: Padded<P::AtomicU32>,
    inactive_queue: Mutex<InactiveQueue<P>, P>,
    /// How many threads drain the queue; while it is not zero, the ceiling stays closed.
    drainers: P::AtomicU32,
    /// Threads that wait for the last active item to end, while the limit is zero.
    freezers: P::AtomicU32,
    /// Counts how often the domain was found still while a thread waited for that; the waiters sleep on it.
    stilled: P::AtomicU32,
    /// Items that have a place, and wait for an item that is held back here (`waiting`).
    waiting: P::AtomicU32,
    /// The number of CPUs whose items are counted here: that many issuers may request credits at once.
    askers: P::AtomicU32,
    /// The pwqs, newest first; never shortened.
    first_pwq: P::AtomicPtr<PoolWorkqueue<P>>,
    /// The pwqs from here on are retired (`retired`).
    first_retired: P::AtomicPtr<PoolWorkqueue<P>>,
    completed_before: P::AtomicU64,
    /// The pwq of the layout in effect to whose pool the activation item goes; null until there is one.
    main_pwq: P::AtomicPtr<PoolWorkqueue<P>>,
    /// For an ordered queue, the pwq on whose inbox everything is held back; null for others.
    line: P::AtomicPtr<PoolWorkqueue<P>>,
    pub(crate) activation_item: ActivationItem<P>,
    /// The queue's next domain; see `Queue::domains`.
    pub(crate) next: P::AtomicPtr<NodeActive<P>>,
}

// SAFETY: the raw pointers point to pwqs and domains of the same queue, which live as long as this.
unsafe impl<P: Platform> Send for NodeActive<P> {}
// SAFETY: several threads may follow the pointers at once: pwqs and domains are shared by design; all else is `Sync` by itself.
unsafe impl<P: Platform> Sync for NodeActive<P> {}

impl<P: Platform> NodeActive<P> {
    /// A domain without pwqs. Once it is in its final place, its activation item must be given its address
    /// (`ActivationItem::set_node_active`).
    pub(crate) fn new(domain: Domain, limit: usize) -> Self {
        NodeActive {
            domain,
            admitted: Padded(P::AtomicU64::new(0)),
            ceiling: Padded(P::AtomicU64::new(with_ceiling(0, limit as u64))),
            limit: P::AtomicU64::new(limit as u64),
            thawed: P::AtomicU64::new(limit as u64),
            inactive: P::AtomicU64::new(0),
            stale: P::AtomicU64::new(0),
            attention: Padded(P::AtomicU32::new(UNATTENDED)),
            inactive_queue: Mutex::new_in(InactiveQueue::new()),
            drainers: P::AtomicU32::new(0),
            freezers: P::AtomicU32::new(0),
            stilled: P::AtomicU32::new(0),
            waiting: P::AtomicU32::new(0),
            askers: P::AtomicU32::new(1),
            first_pwq: P::AtomicPtr::new(core::ptr::null_mut()),
            first_retired: P::AtomicPtr::new(core::ptr::null_mut()),
            completed_before: P::AtomicU64::new(0),
            main_pwq: P::AtomicPtr::new(core::ptr::null_mut()),
            line: P::AtomicPtr::new(core::ptr::null_mut()),
            activation_item: ActivationItem::new(),
            next: P::AtomicPtr::new(core::ptr::null_mut()),
        }
    }

    // ---- pwqs -----------------------------------------------------------------------------------------------

    /// Sets how many CPUs' items come here by the layout in effect, and one of the pwqs on which they come. By the thread that holds the
    /// queue's configuration.
    pub(crate) fn set_use(&self, cpus: usize, pwq: *const PoolWorkqueue<P>) {
        // Apart from that, this only determines how many credits a pwq gets: any value is safe.
        self.askers.store(cpus.max(1) as u32, Ordering::Relaxed);
        // Release: pairs with the acquire in `kick`.
        self.main_pwq.store(pwq.cast_mut(), Ordering::Release);
    }

    /// Records what is held back; see `snapshot`.
    pub(crate) fn see_inactive(&self, snapshot: &mut WaitSnapshot<P>) {
        if self.inactive.load(Ordering::Relaxed) == 0 {
            return;
        }
        let inactive_queue = self.inactive_queue.lock();
        // SAFETY: the list keeps its items alive; a thread that takes some off has `inactive_queue`, which is ours.
        unsafe { snapshot.note(inactive_queue.nodes()) };
        for pwq in self.pwqs().chain(self.line().filter(|line| line.is_gone())) {
            // SAFETY: the pwq's inbox keeps its items alive; a thread that takes some off has `inactive_queue`, which is ours.
            unsafe { snapshot.note(pwq.inactive.nodes()) };
        }
    }

    /// Asks a worker to check the limit.
    pub(crate) fn kick(&self) {
        let pwq = self.main_pwq.load(Ordering::Acquire);
        // SAFETY: null, or a pwq, which lives as long as the queue.
        let Some(main) = (unsafe { pwq.as_ref() }) else { return };
        // If as many workers are awake as may be, all of them may be in long items.
        let free = || self.pwqs().find(|pwq| !pwq.pool.is_full());
        let pwq = if main.pool.is_full() { free().unwrap_or(main) } else { main };
        self.activation_item.send(&pwq.pool);
    }

    // ---- admitting ------------------------------------------------------------------------------------------

    /// Admits an item by the domain's own counter, and gets the pwq credits for the next ones, if it has none. For a caller that finds the
    /// pwq without a credit, or loses the race for one.
    pub(crate) fn refill(&self, pwq: &PoolWorkqueue<P>) -> Entry {
        // Before the ceiling is read: see `credits`.
        let version = pwq.credits.version();
        let most = if pwq.credits.count() == 0 { MOST_CREDITS } else { 1 };
        // After the version: no credits come to a pwq that is retired.
        if pwq.is_retired() {
            return Entry::Elsewhere;
        }
        // The number of issuers that may ask at once: what they add before they see that it is too much must not exceed the limit.
        let askers = u64::from(self.askers.load(Ordering::Relaxed)).max(self.pwqs().count() as u64);
        let mut withdrawn = false;
        loop {
            let admitted = self.admitted.load(Ordering::Relaxed);
            let word = self.ceiling.load(Ordering::SeqCst);
            let mut top = ceiling(word);
            if admitted >= top {
                top = self.raise(word);
                if admitted >= top {
                    if top == CLOSED {
                        return self.enter_closed(pwq);
                    }
                    if withdrawn || self.withdraw() == 0 {
                        return Entry::HeldBack;
                    }
                    withdrawn = true;
                    continue;
                }
            }
            // One pwq never gets so many that the others find nothing: with a low limit there are no credits.
            let more = ((top - admitted) / (2 * askers)).clamp(1, most);
            // Added, not compared: on a large machine nearly all issuers would lose the race. The excess goes back; until then it only
            // makes `admitted` too high. SeqCst: `is_empty` reads it after the completions.
            let admitted = self.admitted.fetch_add(more, Ordering::SeqCst);
            let got = top.saturating_sub(admitted).min(more);
            self.give_back(more - got);
            if got > 0 {
                if let Some(frozen) = self.overruled(word) {
                    self.give_back(got);
                    if frozen {
                        return self.enter_closed(pwq);
                    }
                    continue;
                }
                if got == 1 {
                    pwq.credits.enter();
                } else if !pwq.credits.enter_with(got as u32 - 1, version) {
                    self.give_back(got - 1);
                }
                return self.has_entered(pwq);
            }
        }
    }

    /// When the ceiling is closed.
    #[cold]
    fn enter_closed(&self, pwq: &PoolWorkqueue<P>) -> Entry {
        if self.refuses(pwq) {
            return Entry::Refused;
        }
        if self.admit_past(pwq) { self.has_entered(pwq) } else { Entry::HeldBack }
    }

    /// The result for an item that has been counted as admitted on the pwq.
    fn has_entered(&self, pwq: &PoolWorkqueue<P>) -> Entry {
        if !pwq.is_retired() {
            return Entry::LetIn;
        }
        pwq.leave();
        self.give_back(1);
        Entry::Elsewhere
    }

    /// Whether the caller may queue nothing here: the queue drains, and the caller is not one of its items; or the runtime is shut down,
    /// and the caller is not one of its workers.
    fn refuses(&self, pwq: &PoolWorkqueue<P>) -> bool {
        P::model_fence();
        // SeqCst: a thread that drains writes this before it checks whether the queue is empty.
        let drainers = self.drainers.load(Ordering::SeqCst);
        if drainers == 0 || crate::limit::serving::serves_owner::<P>(pwq.owner_address()) {
            return false;
        }
        // The only drainer may be the shutdown.
        drainers > 1 || !pwq.pool.services().host().is_shut() || is_shut(pwq)
    }

    /// Whether the limit has been changed since the ceiling's word was read; true inside if nothing may be admitted now.
    fn overruled(&self, word: u64) -> Option<bool> {
        P::model_fence();
        let changed = (self.ceiling.load(Ordering::SeqCst) ^ word) & VERSION != 0;
        // The limit comes before the ceiling: a thread that freezes may be between the two, and no thread must spin until it goes on. The
        // version, too, may have wrapped around while the caller slept.
        let frozen = self.limit() == 0;
        (changed || frozen).then_some(frozen)
    }

    /// Admits an item past those that are held back, if the limit is a high one and less than half of it is used.
    ///
    /// The activator can activate only one item after the other. While items are queued faster than that, some are always held back, and
    /// the ceiling would stay closed for ever although the limit has room for all.
    fn admit_past(&self, pwq: &PoolWorkqueue<P>) -> bool {
        let limit = self.limit();
        if limit < HIGH_LIMIT {
            return false;
        }
        let completed = self.completed();
        if self.admitted.load(Ordering::SeqCst) >= completed + limit / 2 {
            return false;
        }
        let past = self.admitted.fetch_add(1, Ordering::SeqCst) < completed + limit;
        // Checked once more now that the item is counted: see `shutdown`.
        if past && !self.is_below(limit) && !self.refuses(pwq) {
            pwq.credits.enter();
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

    /// Takes back the credits of all pwqs; returns how many there were.
    fn withdraw(&self) -> u64 {
        let credits = self.pwqs().map(|pwq| u64::from(pwq.credits.withdraw())).sum();
        self.give_back(credits);
        credits
    }

    /// Counts unused credits as not admitted.
    pub(crate) fn give_back(&self, credits: u64) {
        if credits == 0 {
            return;
        }
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        // A thread that closed the ceiling may have read `admitted` before.
        if self.needs_attention() {
            self.kick();
        }
    }

    /// Items that may be active.
    pub(crate) fn limit(&self) -> u64 {
        self.limit.load(Ordering::SeqCst)
    }

    /// How many items the limit admits, all in all, by what has been completed so far.
    fn allowed(&self) -> u64 {
        self.completed() + self.limit()
    }

    /// Raises the ceiling, which was `word`, to what the completions allow; returns where it is then.
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

    /// Holds an item back. If it is not held back after all, nothing has happened, and the item is returned to the caller: it is refused,
    /// or must be sent elsewhere. An item that is already the queue's `own` is refused by a shutdown only.
    #[cold]
    pub(crate) fn hold_back(
        &self,
        pwq: &PoolWorkqueue<P>,
        item: Pending<P>,
        origin: Origin,
        own: bool,
    ) -> Result<(), (Pending<P>, Entry)> {
        item.set_inactive();
        pwq.hold();
        self.inactive.fetch_add(1, Ordering::SeqCst);
        // Checked once more now that the item is counted: see `shutdown`.
        let refused = if own { is_shut(pwq) } else { self.refuses(pwq) };
        if refused || pwq.is_retired() {
            self.inactive.fetch_sub(1, Ordering::SeqCst);
            pwq.let_go();
            item.unset_inactive();
            return Err((item, if refused { Entry::Refused } else { Entry::Elsewhere }));
        }
        // Accounted from here on: it may be cancelled.
        item.set_target(pwq.account(), origin);
        self.line().unwrap_or(pwq).inactive.push(item);
        self.close();
        if self.admitted.load(Ordering::SeqCst) < self.allowed() {
            self.kick();
        }
        Ok(())
    }

    /// Makes every completion check what waits, and admits nothing.
    fn close(&self) {
        self.ceiling.fetch_and(VERSION, Ordering::SeqCst);
        P::model_fence();
        self.revoke();
    }

    /// Takes back all credits, including those on their way to a pwq. The ceiling is closed, and the caller reads `admitted` afterwards or
    /// makes another thread do so.
    fn revoke(&self) {
        let credits = self.pwqs().map(|pwq| u64::from(pwq.credits.revoke())).sum::<u64>();
        self.admitted.fetch_sub(credits, Ordering::SeqCst);
        P::model_fence();
    }

    /// After a completion was counted: whether a worker must check what waits.
    #[inline]
    pub(crate) fn needs_attention(&self) -> bool {
        P::model_fence();
        ceiling(self.ceiling.load(Ordering::SeqCst)) == CLOSED
    }

    /// Whether nothing is on a pool or running; items may be held back. Completions are read first: they never exceed what was admitted, so
    /// equality means that everything was completed at that moment.
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

    /// Keeps the ceiling closed from now on: callers that are not items of the queue are refused.
    pub(crate) fn begin_drain(&self) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
        self.close();
    }

    /// Allows a worker to open the ceiling, unless another thread drains.
    pub(crate) fn end_drain(&self) {
        self.drainers.fetch_sub(1, Ordering::SeqCst);
        self.kick();
    }

    /// The caller's item has a place and waits for one that is held back. False if all items that have a place do so: then nothing would
    /// ever start, so the caller must not wait. A frozen queue is judged by the limit that it will have: another thread may thaw it.
    pub(crate) fn begin_waiting(&self) -> bool {
        // SeqCst: of several that come at once, the last one sees the others.
        let others = self.waiting.fetch_add(1, Ordering::SeqCst);
        // Relaxed: the caller uses the limit that was set before it began to wait, as far as it has seen that.
        let may = u64::from(others) + 1 < self.thawed.load(Ordering::Relaxed);
        if !may {
            self.end_waiting();
        }
        may
    }

    /// The wait is over.
    pub(crate) fn end_waiting(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    /// Resets it so that nothing is held back, on a pool or running, and no thread drains, freezes or waits: all that is the parent's. By
    /// the thread that has the queue's configuration, in the child of a fork, after the pwqs.
    pub(crate) fn after_fork_in_child(&self, limit: usize, shut: bool) {
        let limit = limit as u64;
        let completed = self.completed();
        forked::set(&*self.admitted, completed);
        forked::set(&self.inactive, 0);
        forked::set(&self.stale, 0);
        // The limit may be that of a change which had not reached this domain.
        forked::set(&self.limit, limit);
        let version = self.ceiling.load(Ordering::Relaxed) & VERSION;
        let ceiling = if shut || limit == 0 { CLOSED } else { completed + limit };
        forked::set(&*self.ceiling, with_ceiling(version, ceiling));
        forked::set(&*self.attention, UNATTENDED);
        forked::set(&self.drainers, u32::from(shut));
        forked::set(&self.freezers, 0);
        forked::set(&self.waiting, 0);
        // SAFETY: this is the only thread, and it is not in the middle of activating: no user's code runs there.
        unsafe { self.inactive_queue.renew(InactiveQueue::new()) };
        self.activation_item.after_fork_in_child();
    }

    /// As [`begin_drain`](Self::begin_drain), for ever; a thread that admitted an item because of what it saw before finds out, and takes
    /// the admission back.
    pub(crate) fn shut(&self) {
        self.drainers.fetch_add(1, Ordering::SeqCst);
        self.close_anew();
    }

    /// Closes the ceiling, with a new version.
    fn close_anew(&self) {
        let mut word = self.ceiling.load(Ordering::SeqCst);
        while let Err(found) = self.ceiling.compare_exchange_weak(
            word,
            (word + 1) & VERSION,
            Ordering::SeqCst,
            Ordering::SeqCst,
        ) {
            word = found;
        }
        P::model_fence();
        self.revoke();
    }

    /// Sets the limit that applies while the queue is not frozen; before [`set_limit`](Self::set_limit). By the thread that has the queue's
    /// configuration.
    pub(crate) fn set_thawed_limit(&self, limit: usize) {
        // Relaxed: a thread in `begin_waiting` may use the previous limit if it has not seen this one.
        self.thawed.store(limit as u64, Ordering::Relaxed);
    }

    /// Changes the limit; takes effect for the next item, in both directions. By the thread that holds the queue's configuration.
    pub(crate) fn set_limit(&self, limit: usize) {
        let limit = limit as u64;
        if self.limit() == limit {
            return;
        }
        self.limit.store(limit, Ordering::SeqCst);
        // Closed, so that no issuer uses the old ceiling, and with a new version; the activation item opens it again.
        self.close_anew();
        self.kick();
        if self.freezers.load(Ordering::SeqCst) != 0 {
            // The freezers stop waiting.
            self.wake_freezers();
        }
    }

    /// Items that are on pools or running, as far as that can be seen without stopping any thread, and items held back.
    pub(crate) fn in_use(&self) -> (usize, usize) {
        let completed = self.completed();
        let credits: u64 = self.pwqs().map(|pwq| u64::from(pwq.credits.count())).sum();
        let (admitted, inactive) = self.counts();
        (admitted.saturating_sub(completed + credits) as usize, inactive as usize)
    }

    /// Items admitted (and credits), all in all, and items held back.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.admitted.load(Ordering::SeqCst), self.inactive.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
pub(crate) mod tests;
