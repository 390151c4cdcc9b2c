//! What a thief does: steals jobs of its queue and runs them, until there are none.

use nearq_platform::{Ordering, Platform};

use super::in_use::InUse;
use super::stealing::{Stolen, has_claimed, steal_any, victims};
use super::waiting::run_closure;
use super::{PAUSES, SEARCH};
use crate::deque::{Deque, Requests};
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::context::{Context, with_current};
use crate::queue::Queue;
use crate::queue::team::{Closure, Team, TeamBell};
use crate::queue::thieves::Thieves;

/// What a thief runs as an item of the queue.
pub(crate) fn steal_for<P: Platform>(queue: &Queue<P>, thieves: &Thieves<P>) {
    thieves.begin();
    with_current::<P, _>(|context| {
        let in_use = InUse::begin(context, queue);
        let team = queue.team();
        let thief = ThiefAtWork { context, queue, thieves, team, deque: in_use.deque() };
        let Some(team) = team else {
            thief.work();
            return;
        };
        if !team.enter(TeamBell::of(&thief.deque.bell)) {
            thief.give_up(team);
        } else if thief.work() {
            thief.leave(team);
        }
    });
}

/// A thief that runs.
pub(super) struct ThiefAtWork<'a, P: Platform> {
    pub(super) context: &'a Context<'a, P>,
    pub(super) queue: &'a Queue<P>,
    pub(super) thieves: &'a Thieves<P>,
    pub(super) team: Option<&'a dyn Team<P>>,
    pub(super) deque: &'a Deque<P>,
}

/// What a thief has found.
enum Found<'a, P: Platform> {
    Job(Stolen<'a, P>),
    Closure(Closure),
}

impl<P: Platform> ThiefAtWork<'_, P> {
    /// Searches and runs what it finds, until there is nothing. The thief is counted as searching when this begins, and not any more when
    /// it ends. False in the child of a fork that a job made.
    fn work(&self) -> bool {
        while let Some(found) = self.find() {
            self.end_search();
            // So the first fork of the job calls another thief, if none searches.
            self.deque.request(Requests::CALL);
            let is_here = match found {
                Found::Job(stolen) => stolen.run(self.context, self.deque),
                Found::Closure(closure) => run_closure(self.deque, 0, closure),
            };
            if !is_here {
                return false;
            }
            self.thieves.begin_search();
            if self.is_in_the_way() {
                break;
            }
        }
        self.end_search();
        true
    }

    /// Whether others wait for its worker, its number, its place under a limit, or its end. They come first: the thief must give way.
    fn is_in_the_way(&self) -> bool {
        let pool = self.context.pool;
        // SAFETY: null, or the pwq of the item that this worker runs, which is the thief; it stays until the thief has ended.
        let served = unsafe { PoolWorkqueue::of(self.context.account.get()).as_ref() };
        // Other thieves are no reason: they would do the same.
        (pool.has_work() && !pool.waits_for_optional_only())
            || pool.concurrency.has_waiting()
            || pool.is_over()
            || self.team.is_some_and(Team::must_leave)
            || served
                .is_none_or(|pwq| self.queue.held_back_beside(pwq) || !self.queue.leads_to(pwq))
    }

    /// Stops searching. If no other thief searches or is called, it calls one for what is there; if nothing is there, owners must call one
    /// from now on.
    pub(super) fn end_search(&self) {
        if self.thieves.end_search() {
            self.call_if_left();
        }
    }

    /// Stops searching because all numbers are held (`queue/team`).
    pub(super) fn give_up(&self, team: &dyn Team<P>) {
        // STOP.
        self.thieves.end_search();
        P::fence(Ordering::SeqCst);
        // ROOM.
        if team.has_room() {
            self.call_if_left();
        }
    }

    /// Gives its number back. If no number was left until now, thieves may have given up. Otherwise, own work may have come for the number
    /// after the last search: a thread that wanted to call a thief for it still found this one searching.
    pub(super) fn leave(&self, team: &dyn Team<P>) {
        // LEAVE.
        if team.leave() {
            P::fence(Ordering::SeqCst);
            self.call_if_left();
        } else if team.has_shared() {
            self.thieves.call(self.queue);
        }
    }

    /// Calls a thief for what is there; if there is nothing, owners must call one from now on.
    fn call_if_left(&self) {
        let is_left =
            || self.victims().any(Deque::has_jobs) || self.team.is_some_and(Team::has_shared);
        let found = is_left() || {
            self.victims().for_each(|victim| victim.request(Requests::CALL));
            // Pairs with the light fence between an owner's push and its read of the request; and with the fence of a thread that adds work
            // to the team, between that and its read of the thieves' word.
            P::heavy_fence() && is_left()
        };
        if found {
            // LOOK.
            self.thieves.call(self.queue);
        }
    }

    /// Searches until there is a job or a closure, or for long enough.
    ///
    /// The first round may take longer than that: over hundreds of deques, or if the thread is preempted. If it has asked owners, the search
    /// goes on until a round has claimed what they did not make public. Otherwise thieves would call each other for ever and steal nothing.
    fn find(&self) -> Option<Found<'_, P>> {
        let since = P::now();
        let mut round = since;
        let mut asked = None;
        let mut asked_first = None;
        loop {
            if let Some(closure) = self.team.and_then(Team::take_own) {
                return Some(Found::Closure(closure));
            }
            if let Some(stolen) = steal_any(self.context, self.queue, self.deque, &mut asked) {
                return Some(Found::Job(stolen));
            }
            if let Some(closure) = self.team.and_then(Team::take_shared) {
                return Some(Found::Closure(closure));
            }
            let now = P::now();
            let asked_first = *asked_first.get_or_insert(asked);
            if now - since >= SEARCH && has_claimed(asked_first, round) {
                return None;
            }
            round = now;
            P::pause(PAUSES);
        }
    }

    /// The deques that it may steal from.
    fn victims(&self) -> impl Iterator<Item = &Deque<P>> {
        victims(self.context, self.queue, self.deque)
    }
}
