//! The pwqs of a domain: those in service, and those that need not be checked any more.
//!
//! A queue may have had thousands of pwqs to pools that it does not use any more. Each sum of what has ended would read all of them, and
//! issuers and workers need that sum all the time. So the queue retires the oldest ones (`queue/retired`): what has ended there is kept as
//! one number.
//!
//! # Protocol
//! The thread that has the queue's configuration sets where the retired pwqs begin (CUT), then adds what has ended on them to
//! `completed_before` (ADD). A thread that wants the sum reads `completed_before`, then CUT, then the pwqs. So none is counted twice. A
//! thread that comes between the two counts too few, for a moment: then the limit seems to be used by items that have ended. A thread that
//! has held something back for that reason, or waits for the last item to end, relies on the activation item, which is sent after ADD. All
//! are `SeqCst`: either that thread has read what ADD wrote, or the worker that runs the activation item finds what the thread has left.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::NodeActive;
use crate::layout::domain::Domain;
use crate::limit::pool_workqueue::PoolWorkqueue;

impl<P: Platform> NodeActive<P> {
    /// Adds a pwq, before its first item. By the thread that has the queue's configuration.
    pub(crate) fn add_pwq(&self, pwq: &PoolWorkqueue<P>) {
        pwq.next_of_domain.store(self.first_pwq.load(Ordering::Relaxed), Ordering::Relaxed);
        if self.domain == Domain::Whole && self.line.load(Ordering::Relaxed).is_null() {
            // Before anything is queued here: a thread that sees the pwq sees this as well.
            self.line.store(core::ptr::from_ref(pwq).cast_mut(), Ordering::Relaxed);
        }
        // SeqCst: pairs with the load in `pwqs`, by a thread that closes the limit.
        self.first_pwq.store(core::ptr::from_ref(pwq).cast_mut(), Ordering::SeqCst);
    }

    /// The domain's pwqs, without those that are retired.
    pub(crate) fn pwqs(&self) -> impl Iterator<Item = &PoolWorkqueue<P>> {
        let end = self.first_retired();
        // SeqCst: a thread that closes the limit sees every pwq whose issuer saw it open.
        let mut next = self.first_pwq.load(Ordering::SeqCst);
        core::iter::from_fn(move || {
            if core::ptr::eq(next, end) {
                return None;
            }
            // SAFETY: not null, because a null `end` stops the loop too; a pwq, which lives as long as the queue.
            let pwq = unsafe { &*next };
            next = pwq.next_of_domain.load(Ordering::Relaxed);
            Some(pwq)
        })
    }

    /// The first pwq that is retired, with all after it; null if there is none.
    pub(crate) fn first_retired(&self) -> *const PoolWorkqueue<P> {
        self.first_retired.load(Ordering::SeqCst)
    }

    /// The pwq on whose inbox everything is held back, if the queue is an ordered one: the first that it had, retired or not.
    pub(crate) fn line(&self) -> Option<&PoolWorkqueue<P>> {
        // Relaxed: written before the first item was queued.
        // SAFETY: null, or a pwq, which lives as long as the queue.
        unsafe { self.line.load(Ordering::Relaxed).as_ref() }
    }

    /// Executions that have ended, over all pwqs.
    pub(crate) fn completed(&self) -> u64 {
        // Before the pwqs are read, so that none is counted twice. SeqCst: pairs with ADD.
        let before = self.completed_before.load(Ordering::SeqCst);
        before + self.pwqs().map(PoolWorkqueue::completed).sum::<u64>()
    }

    /// How many items have been admitted, over all pwqs; a thread that compares the number must not miss four billion.
    pub(crate) fn entered(&self) -> u64 {
        // Before the pwqs are read. SeqCst: pairs with ADD. On the retired pwqs, as many items have entered as have ended.
        let before = self.completed_before.load(Ordering::SeqCst);
        before + self.pwqs().map(|pwq| u64::from(pwq.entered())).sum::<u64>()
    }

    /// Retires the oldest pwqs, as far as nothing is left on them and `is_used` does not name them. By the thread that has the queue's
    /// configuration.
    pub(crate) fn retire_pwqs(&self, is_used: impl Fn(&PoolWorkqueue<P>) -> bool) {
        let pwqs: Vec<&PoolWorkqueue<P>> = self.pwqs().collect();
        let oldest = pwqs.into_iter().rev();
        let mut completed = 0;
        let mut newest = None;
        for pwq in oldest.take_while(|pwq| !is_used(pwq) && pwq.retire()) {
            completed += pwq.completed();
            newest = Some(pwq);
        }
        let Some(newest) = newest else { return };
        // CUT.
        self.first_retired.store(core::ptr::from_ref(newest).cast_mut(), Ordering::SeqCst);
        // ADD.
        self.completed_before.fetch_add(completed, Ordering::SeqCst);
        self.kick();
    }
}
