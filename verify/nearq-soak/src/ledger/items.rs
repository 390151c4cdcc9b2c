//! What is promised for items that are cancelled, disabled, delayed and waited for.
//!
//! A cancel that returns true has taken back exactly one queueing, and each queueing was executed once or cancelled once: so `started` is
//! `accepted - cancelled` at the end, and never more before that, if calls that have not returned are counted. If calls overlap, their
//! order is not known, and two numbers say how far the sum may be off: `perhaps_cancelled` and `perhaps_queued`. A `cancel_sync` that no
//! other call overlaps makes everything certain again.

use nearq_platform::Instant;

use super::{Book, Call, Ledger, QueueBook, Unit, UnitBook};

/// How an item was changed.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Queueings that were certainly taken back, and how many more may have been.
    pub(super) cancelled: u64,
    pub(super) perhaps_cancelled: u64,
    /// Calls for which it is not known whether they queued it.
    pub(super) perhaps_queued: u64,
    /// Calls that may cancel and have not returned, and how many there were.
    pub(super) open: u64,
    begun: u64,
    /// How many calls that disable or enable it have begun, and how many have returned.
    pub(super) disables: (u64, u64),
    pub(super) enables: (u64, u64),
    /// Calls that may queue it before its time and have not returned.
    pub(super) expedites: u64,
    /// Whether it ever waited for a time.
    pub(super) was_timed: bool,
}

impl Changes {
    pub(super) fn may_be_disabled(&self) -> bool {
        self.disables.0 > self.enables.1
    }

    /// The minimum number of times that it is disabled.
    pub(super) fn depth_for_certain(&self) -> i64 {
        self.disables.1 as i64 - self.enables.0 as i64
    }

    /// Whether it was disabled during all of a call that returns now; none if that is not known.
    pub(super) fn was_disabled(&self, call: &Call) -> Option<bool> {
        // The depth that was certain at the beginning, less what may have been undone since.
        if call.depth > (self.enables.0 - call.enables) as i64 {
            return Some(true);
        }
        if call.may_be_disabled || self.disables.0 != call.disables { None } else { Some(false) }
    }

    /// Whether the number of executions to come stays unknown unless a `cancel_sync` makes it certain.
    pub(super) fn are_vague(&self) -> bool {
        self.perhaps_cancelled != 0 || self.perhaps_queued != 0
    }

    /// Whether it is known what was queued and cancelled.
    pub(super) fn are_clear(&self) -> bool {
        self.open == 0 && !self.are_vague()
    }
}

/// A call that may cancel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cancel {
    unit: Unit,
    /// Calls that queue the unit, and the calls among them that had not returned.
    calls: u64,
    open: u64,
}

/// A thread waits for an item.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait {
    unit: Unit,
    /// What must have ended, even if it is cancelled meanwhile, and what else must have ended if no thread cancels.
    ended: u64,
    over: Option<u64>,
    cancels: u64,
}

/// A call that enables.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Enable {
    unit: Unit,
    disabled_by_others: i64,
    enabled: u64,
}

impl UnitBook {
    /// A call without effect makes nothing due.
    pub(super) fn forget_due(&mut self) {
        let Changes { cancelled, perhaps_cancelled, .. } = self.changes;
        let stands = self.accepted.saturating_sub(cancelled + perhaps_cancelled);
        self.due = self.due.min(self.started.max(stands));
    }

    /// The maximum number of queueings that are over.
    pub(super) fn over(&self) -> u64 {
        self.ended + self.changes.cancelled + self.changes.perhaps_cancelled
    }

    /// Whether it must not run yet, whichever of its queueings this is.
    pub(super) fn is_early(&self, now: Instant) -> Option<String> {
        if self.waiting.is_empty() || self.changes.perhaps_queued != 0 {
            return None;
        }
        let first = self.waiting.iter().map(|waiting| waiting.not_before).min()??;
        (now < first).then(|| {
            format!(
                "{}: it runs at {} ns, before its time, which is {} ns",
                self.name,
                now.as_nanos(),
                first.as_nanos()
            )
        })
    }

    /// What may be cancelled implies nothing about the order on ordered queues.
    fn leave_lines(&mut self, queues: &mut [QueueBook]) {
        for waiting in &self.waiting {
            queues[waiting.queue].line.remove(&waiting.sequence);
        }
    }

    /// One queueing other than `but` was cancelled. False if it is not known which one.
    fn take_cancelled(&mut self, queues: &mut [QueueBook], but: Option<u64>) -> bool {
        self.changes.cancelled += 1;
        // That settles what was asked for before.
        self.due = self.due.min(self.started);
        let others =
            || self.waiting.iter().enumerate().filter(|(_, waiting)| Some(waiting.number) != but);
        let first = others().next().map(|(at, waiting)| (at, waiting.accepted));
        if let Some((at, true)) = first
            && others().count() == 1
            && !self.unclear
            && self.changes.open == 0
        {
            let waiting = self.waiting.remove(at);
            let queue = &mut queues[waiting.queue];
            queue.outstanding.remove(&waiting.sequence);
            queue.cancelled += 1;
            return true;
        }
        self.unclear = true;
        self.leave_lines(queues);
        false
    }
}

impl Ledger {
    // ---- cancelling ----------------------------------------------------------------------------------------

    /// A thread is about to cancel a unit.
    pub(crate) fn begin_cancel(&self, unit: Unit) -> Cancel {
        let mut book = self.book();
        let Book { units, queues, .. } = &mut *book;
        let item = &mut units[unit];
        item.changes.open += 1;
        item.changes.begun += 1;
        item.leave_lines(queues);
        Cancel { unit, calls: item.calls, open: item.open }
    }

    /// The call has returned; the argument says whether it has taken a queueing back.
    pub(crate) fn end_cancel(&self, cancel: Cancel, cancelled: bool) {
        let mut book = self.book();
        let Book { units, queues, unclear_cancels, .. } = &mut *book;
        let item = &mut units[cancel.unit];
        item.changes.open -= 1;
        if cancelled && !item.take_cancelled(queues, None) {
            *unclear_cancels += 1;
        }
        item.settle(queues);
        let stands = item.accepted + item.open + item.changes.perhaps_queued;
        if item.changes.cancelled + item.started > stands {
            let text = format!(
                "{}: {} queueings were cancelled and {} executed, of {stands}",
                item.name, item.changes.cancelled, item.started
            );
            book.violation(text);
        }
    }

    /// The call, which also waits for the running execution, has returned. The arguments say whether it has taken a queueing back, and
    /// whether the item is busy at that time.
    pub(crate) fn end_cancel_sync(&self, cancel: Cancel, cancelled: bool, busy: bool) {
        self.end_cancel(cancel, cancelled);
        let mut book = self.book();
        let Book { units, queues, .. } = &mut *book;
        let item = &mut units[cancel.unit];
        if item.calls != cancel.calls || cancel.open != 0 || item.changes.open != 0 {
            return;
        }
        let (started, ended) = (item.started, item.ended);
        let least =
            item.accepted.saturating_sub(item.changes.cancelled + item.changes.perhaps_cancelled);
        let idle = started == ended && started >= least && !busy;
        if idle {
            // Now it is known.
            item.changes.cancelled =
                item.changes.cancelled.max(item.accepted.saturating_sub(started));
            item.accepted = started + item.changes.cancelled;
            item.changes.perhaps_cancelled = 0;
            item.changes.perhaps_queued = 0;
            item.due = item.due.min(started);
            item.settle(queues);
        } else {
            let text = format!(
                "{}: it was cancelled for good, nobody queued it since, and it is not idle (busy: {busy}, {started} executions \
                 started, {ended} ended, {least} were to come at least)",
                item.name
            );
            book.violation(text);
        }
    }

    // ---- disabling -----------------------------------------------------------------------------------------

    /// A thread is about to disable an item.
    pub(crate) fn begin_disable(&self, unit: Unit) {
        let item = &mut self.book().units[unit];
        item.changes.disables.0 += 1;
        item.waiting.iter_mut().for_each(|waiting| waiting.may_be_refused = true);
    }

    /// It is disabled.
    pub(crate) fn end_disable(&self, unit: Unit) {
        self.book().units[unit].changes.disables.1 += 1;
    }

    /// A thread is about to undo that.
    pub(crate) fn begin_enable(&self, unit: Unit) -> Enable {
        let changes = &mut self.book().units[unit].changes;
        changes.enables.0 += 1;
        // Our disabling is being undone, so it is no longer certain.
        Enable { unit, disabled_by_others: changes.depth_for_certain(), enabled: changes.enables.0 }
    }

    /// One disabling is undone; `last` says whether it was the last one.
    pub(crate) fn end_enable(&self, enable: Enable, last: Option<bool>) {
        let mut book = self.book();
        let item = &mut book.units[enable.unit];
        item.changes.enables.1 += 1;
        let others = enable.enabled != item.changes.enables.0;
        if last == Some(true) && !others && enable.disabled_by_others > 0 {
            let text =
                format!("{}: it is said to be enabled, but others have disabled it", item.name);
            book.violation(text);
        }
    }

    // ---- later ---------------------------------------------------------------------------------------------

    /// An item was put on a timer, and its queue may refuse it or be gone when its time comes: the item may or may not run.
    pub(crate) fn end_loosely(&self, call: Call, until: Instant) {
        self.call_failed(call);
        let mut book = self.book();
        book.perhaps_queued += 1;
        book.loose_until = book.loose_until.max(until);
        let Book { units, queues, .. } = &mut *book;
        let item = &mut units[call.unit];
        item.changes.perhaps_queued += 1;
        item.unclear = true;
        item.leave_lines(queues);
    }

    /// When all items that will run have run; none if it is known how many executions are to come.
    pub(crate) fn loose_until(&self) -> Option<Instant> {
        let book = self.book();
        book.units.iter().any(|unit| unit.changes.are_vague()).then_some(book.loose_until)
    }

    /// What was queued and executed so far: two answers that are the same mean that nothing happened.
    pub(crate) fn doings(&self) -> (u64, u64) {
        let book = self.book();
        (book.queues.iter().map(|queue| queue.sequence).sum(), book.executions)
    }

    /// Whether something runs: it may queue more.
    pub(crate) fn anything_runs(&self) -> bool {
        self.book().units.iter().any(|unit| unit.running)
    }

    /// An item's queueing has been replaced; `was_pending` says whether there was one before. `loose` as in
    /// [`end_loosely`](Self::end_loosely).
    pub(crate) fn end_modify(
        &self,
        call: Call,
        cancel: Cancel,
        was_pending: bool,
        loose: Option<Instant>,
    ) {
        let disabled = self.book().units[call.unit].changes.was_disabled(&call);
        let mut book = self.book();
        let Book { units, queues, unclear_cancels, .. } = &mut *book;
        let item = &mut units[call.unit];
        item.changes.open -= 1;
        if was_pending {
            if !item.take_cancelled(queues, Some(call.number)) {
                *unclear_cancels += 1;
            }
            // Calls in between were taken back as well.
            let between = item.calls - cancel.calls - 1 + cancel.open;
            item.changes.perhaps_cancelled += between;
            item.unclear |= between != 0;
            *unclear_cancels += between;
        }
        drop(book);
        match (disabled, loose) {
            (Some(true), _) => self.call_failed(call),
            (Some(false), None) => self.end_call(call, true),
            (_, until) => self.end_loosely(call, until.unwrap_or(Instant::from_nanos(0))),
        }
    }

    /// From now on, whatever waits for a time may run at once.
    pub(crate) fn begin_expedite(&self, unit: Unit) {
        let item = &mut self.book().units[unit];
        item.changes.expedites += 1;
        item.waiting.iter_mut().for_each(|waiting| waiting.not_before = None);
    }

    pub(crate) fn end_expedite(&self, unit: Unit) {
        self.book().units[unit].changes.expedites -= 1;
    }

    // ---- waiting -------------------------------------------------------------------------------------------

    /// A thread is about to wait for an item.
    pub(crate) fn begin_wait(&self, unit: Unit) -> Wait {
        let book = self.book();
        let item = &book.units[unit];
        let only_runs = item.open == 0
            && item.changes.are_clear()
            && item.started + item.changes.cancelled == item.accepted;
        let ended = if only_runs { item.started } else { 0 };
        let known = item.changes.open == 0 && !item.changes.was_timed;
        let over = known.then_some(item.accepted);
        Wait { unit, ended, over, cancels: item.changes.begun }
    }

    /// The waiting is over.
    pub(crate) fn end_wait(&self, wait: Wait) {
        let mut book = self.book();
        let item = &book.units[wait.unit];
        let left = item.ended < wait.ended
            || item.changes.begun == wait.cancels
                && wait.over.is_some_and(|over| item.over() < over);
        if left {
            let text = format!(
                "{}: it was waited for, and has not ended what was on its way then: {} executions of {} ended",
                item.name, item.ended, item.started
            );
            book.violation(text);
        }
    }

    /// Whether something that a drop of the queue must wait for has not ended. Returns which units, in words.
    pub(crate) fn left_by_drop(&self, queue: usize, mark: u64) -> Option<String> {
        let book = self.book();
        let at = &book.queues[queue];
        let left =
            at.outstanding.range(..mark).map(|(sequence, _)| &book.units[at.units[sequence]]);
        let left = left.filter(|unit| unit.changes.are_clear() && !unit.changes.was_timed);
        let names: Vec<&str> = left.map(|unit| unit.name.as_str()).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// Whether a closure has begun.
    pub(crate) fn has_started(&self, unit: Unit) -> bool {
        self.book().units[unit].started != 0
    }
}

impl Cancel {
    /// The unit that is cancelled.
    pub(crate) fn unit(&self) -> Unit {
        self.unit
    }
}
