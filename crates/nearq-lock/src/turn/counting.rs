//! Counting hand-overs of the plain queue, and the change to queues by domain.
//!
//! What is counted is passed on with the turn (`passed`), and used only by the thread that has it. The change is made by the thread that
//! holds the mutex and has the turn (`slot.rs`).
//!
//! With a *depth* ([`Settings::depth`](crate::Settings::depth)), the published lock's rule decides instead: whether more threads wait than
//! that, each time after so many hand-overs. Without one:
//!
//! The change pays if threads of a domain wait together: then the mutex is handed on within the domain for a while. So the rule has two
//! parts: many hand-overs go to another domain, and the threads that wait would make batches. Whether it paid is seen afterwards, by how the
//! batches end (`Turns::end_batch`).

use nearq_platform::{Atomic, LockPlatform, Ordering};

use super::{Turn, Turns};
use crate::queue::LAST;
use crate::settings::Mode;
use crate::statistics::Event;
use crate::word::{NUMA, SLOT_SHIFT};

/// In `passed` of the plain queue: below this bit, hand-overs; from this bit on, hand-overs to another domain; from the next one on, the
/// domain that the turn comes from, plus one, or zero if nothing is counted; from the last one on, how often in a row the waiters were found
/// to be too few for queues by domain, or the mutex has returned from those for a trial.
pub(super) const ACROSS: u32 = 16;
pub(super) const FROM: u32 = 32;
pub(super) const REFUSED: u32 = 40;
const COUNT: u32 = 0xffff;
/// The bits of the domain that the turn comes from.
pub(super) const DOMAIN: u64 = 0xff;
/// After that many refusals, the number of hand-overs until the waiters are examined again no longer doubles: to examine them makes all of
/// them wait.
pub(super) const MOST_REFUSED: u64 = 3;

/// So many waiters are enough to see how they are spread over domains.
const A_FEW: u32 = 8;

impl<P: LockPlatform> Turns<'_, P> {
    /// What is passed on with the turn of the plain queue. Also decides whether to change to queues by domain: if hand-overs often go to
    /// another domain. The caller holds the mutex, and a thread is behind it.
    pub(super) fn count(&self, turn: Turn, word: u32) -> u64 {
        let wanted = self.process.may_bind(self.settings.mode);
        let from_here = (self.domain as u64 + 1) << FROM;
        if !wanted || word & NUMA != 0 {
            return if self.settings.count { from_here } else { 0 };
        }
        if self.settings.mode == Mode::Numa {
            self.bind(0);
            return 0;
        }
        let all = turn.passed as u32 & COUNT;
        let across = (turn.passed >> ACROSS) as u32 & COUNT;
        let refused = turn.passed >> REFUSED;
        if all < (self.settings.hand_overs << refused).min(COUNT) {
            return turn.passed & !(u64::MAX << FROM) | from_here | refused << REFUSED;
        }
        let next = || self.process.waiters.behind(turn.number);
        if self.settings.depth > 0 {
            let deep = |next| self.wait_from(next).nth(self.settings.depth as usize).is_some();
            if next().is_some_and(deep) {
                self.bind(refused);
                return 0;
            }
            return from_here | refused << REFUSED;
        }
        if across * 100 < all * self.settings.remote_percent {
            return from_here;
        }
        if next().is_some_and(|next| self.make_batches(next)) {
            self.bind(refused);
            return 0;
        }
        from_here | (refused + 1).min(MOST_REFUSED) << REFUSED
    }

    /// Whether the threads in the plain queue would make batches: whether there are three of them for two domains that they are of. With
    /// fewer, most turns would go to another domain all the same, which takes longer by queues by domain. Starts at a record that is linked,
    /// and examines as few as it can. The caller has the turn, so no message is sent in the queue. A record whose
    /// thread gives up may be taken out, and then the search may continue in another queue. It is a hint.
    fn make_batches(&self, first: u32) -> bool {
        let (mut seen, mut threads): (u32, u32) = (0, 0);
        for number in self.wait_from(first) {
            // Relaxed: set before the record was linked.
            seen |= 1 << self.process.waiters.record(number).place.load(Ordering::Relaxed);
            threads += 1;
            let (many, domains) = (threads >= A_FEW, seen.count_ones());
            if many && threads >= 2 * domains || 2 * threads >= 3 * self.process.used_domains as u32
            {
                return true;
            }
        }
        2 * threads >= 3 * seen.count_ones()
    }

    /// The records from that one on, which is linked, as far as they are. As in [`make_batches`](Self::make_batches), the caller has the turn,
    /// and it is a hint.
    fn wait_from(&self, first: u32) -> impl Iterator<Item = u32> + '_ {
        let behind =
            |number: &u32| self.process.waiters.behind(*number).filter(|next| *next <= LAST);
        core::iter::successors(Some(first), behind)
    }

    /// Binds a slot, if there is one; there were that many trials of one queue before. The caller holds the mutex and has the plain queue's turn, which is the slot's from now on.
    #[cold]
    pub(super) fn bind(&self, trials: u64) {
        let mut word = self.load();
        let Some(number) = self.process.take_slot() else { return };
        self.note(Event::Bound);
        self.process.slots.get(number).set_trials(trials as u32);
        while let Err(found) = self.step(word, word | NUMA | number << SLOT_SHIFT) {
            word = found;
        }
    }
}
