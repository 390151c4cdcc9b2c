//! What a layer above may add to a queue whose items fork: numbers for its workers, and work of its own beside the jobs in their deques.
//!
//! A queue with a team is given no items: all that it runs, its thieves run (`thieves`, `fork_join`). A thief enters the team when it
//! begins, and leaves it when it ends. In between it is a *member*. What the team adds comes in three kinds:
//!
//! | work | taken by |
//! |---|---|
//! | own | the member that it is for, or that has added it, between two jobs |
//! | shared | any member, between two jobs, when there are no jobs |
//! | urgent | the member that it is for, also while that member waits |
//!
//! # No work is forgotten
//! As for jobs: the team makes shared work visible, then calls a thief. A thief that leaves stops searching, then asks whether there is
//! shared work.
//!
//! If all numbers are held when a thief begins, it ends at once, whatever work there is, and calls no other one: that one would end at once
//! too, and so on. Instead, the next member that leaves looks for work. The thief stops searching (STOP), then asks whether there is a
//! number now (ROOM). The member gives its number back (LEAVE), then looks for work and, if it finds some, reads whether a thief searches
//! (LOOK). A fence stands between the two steps on both sides, so either ROOM finds the number, or LOOK finds that no thief searches.
//!
//! # After a shutdown
//! The queue refuses the thief of a thread that is no worker of the runtime. Then that thread takes its closure back (`retract`), and what
//! waits for it is told; a closure that is gone is a member's. If another thread's thief is called or searches, the thread asks after that
//! whether the runtime was shut down. (If the shutdown begins later, and before the other thread's thief is refused, the closure stays.)

use std::sync::Arc;

use nearq_platform::{Linux, Platform};

use super::Queue;
use crate::base::bell::Bell;
use crate::pool::Pool;
use crate::queue::thieves::Thieves;

/// Something to run. If it panics, the panic is counted, and goes no further.
pub type Closure = Box<dyn FnOnce() + Send>;

/// What a member waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A part of its own queue's work, which other members run.
    Within,
    /// Closures on another queue.
    Elsewhere,
}

/// Wakes a member that sleeps in a join or a scope.
pub struct TeamBell<P: Platform = Linux>(Arc<Bell<P>>);

impl<P: Platform> Clone for TeamBell<P> {
    fn clone(&self) -> Self {
        TeamBell(Arc::clone(&self.0))
    }
}

impl<P: Platform> core::fmt::Debug for TeamBell<P> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("TeamBell")
    }
}

impl<P: Platform> TeamBell<P> {
    pub(crate) fn of(bell: &Arc<Bell<P>>) -> Self {
        TeamBell(Arc::clone(bell))
    }

    /// Wakes the member, which then asks for urgent work. Call it after that work is visible.
    pub fn ring(&self) {
        self.0.ring();
    }
}

/// See the head of the file. A thief calls [`enter`](Self::enter). The members themselves call [`leave`](Self::leave),
/// [`must_leave`](Self::must_leave), the functions that take work, [`has_urgent`](Self::has_urgent) and [`sleeps`](Self::sleeps). Any
/// thread may call the others. None may unwind.
pub trait Team<P: Platform = Linux>: Send + Sync {
    /// How many members there may be at once.
    fn size(&self) -> usize;

    /// Whether there are fewer members than there should be, if there is work. Then a worker is added for a thief that waits for one.
    fn is_short(&self) -> bool;

    /// The calling thief becomes a member, if there is a number left.
    fn enter(&self, bell: TeamBell<P>) -> bool;

    /// The calling thief is no longer a member. Returns whether there was no number left for another thief.
    fn leave(&self) -> bool;

    /// Whether a thief that came now would become a member.
    fn has_room(&self) -> bool;

    /// Whether the caller must give its number back before it begins anything else.
    fn must_leave(&self) -> bool;

    /// Takes own work of the caller.
    fn take_own(&self) -> Option<Closure>;

    /// Takes shared work, for the caller.
    fn take_shared(&self) -> Option<Closure>;

    /// Whether a thief that came now would become a member, and find own or shared work.
    fn has_shared(&self) -> bool;

    /// Takes urgent work of the caller, which waits.
    fn take_urgent(&self, wait: Wait) -> Option<Closure>;

    /// Whether there is urgent work of the caller, which waits.
    fn has_urgent(&self, wait: Wait) -> bool;

    /// The caller is about to sleep while it waits (`begins`), or has been woken. Between the two, its bell is rung if urgent work comes.
    fn sleeps(&self, wait: Wait, begins: bool);

    /// Adds shared work: a closure that was given to the queue by a thread that is no member. Returns its number. The caller calls a thief.
    fn inject(&self, closure: Closure) -> u64;

    /// Takes an injected closure back, unless a member has taken it: the queue has refused the thief.
    fn retract(&self, number: u64) -> Option<Closure>;

    /// Forgets all members and all work. In the child of a fork.
    fn after_fork_in_child(&self);
}

impl<P: Platform> Queue<P> {
    /// Sets the team. Before anything is queued, and once.
    pub(crate) fn form_team(&self, team: Arc<dyn Team<P>>) {
        assert!(self.team.get().is_none(), "a queue has one team");
        self.team.get_or_make(|| team);
    }

    pub(crate) fn team(&self) -> Option<&dyn Team<P>> {
        self.team.get().map(|team| &**team)
    }

    /// Calls a thief that runs that function, from any thread. The caller has made work visible, and then called a `SeqCst` fence. False if
    /// the queue refuses the thief: then only members that are there may find the work.
    pub(crate) fn call_thief(&self, run: fn(&Queue<P>, &Thieves<P>)) -> bool {
        let pool: &Pool<P> = self.pool_here();
        self.thieves(pool, run).call(self)
    }
}
