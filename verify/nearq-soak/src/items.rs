//! What a program does with items besides queueing them: delays, cancels, disables and waits for them; and cancels closures.

use std::time::Duration;

use nearq::{Error, JoinError, JoinHandle};
use nearq_platform::LockPlatform;
use nearq_sim::Sim;

use super::ledger::Unit;
use super::program::{Actor, Answer, Item, ProgramState, note};
use super::steps::poll_once;

/// Within this period after its time, an item has been queued or refused.
const LATEST: Duration = Duration::from_millis(200);

impl ProgramState {
    /// A handle of an item, unless the program has dropped the last one.
    fn work(&self, item: usize) -> Option<Item> {
        let slot = self.works.lock().expect("not held by a panic")[item].clone();
        slot.map(|work| Item::clone(&work))
    }

    pub(super) fn delay(
        &self,
        item: usize,
        number: usize,
        cpu: Option<usize>,
        time: Duration,
        modify: bool,
        actor: Actor<'_>,
    ) {
        let Some(queue) = self.queue(number) else { return };
        if let Some(work) = self.work(item)
            && (actor.issuer.is_some() || self.may_queue(item))
        {
            let may_go = self.plan.may_go(number);
            // Without a timer, the draining queue would refuse it at once.
            let time = if may_go { time.max(Duration::from_micros(1)) } else { time };
            let due = Sim::now() + time;
            let cancel = modify.then(|| self.ledger.begin_cancel(item));
            let certain = cpu.or(actor.cpu);
            let timed = (!time.is_zero()).then_some(due);
            let call = self.ledger.begin_delayed(item, number, certain, timed);
            let loose = may_go.then(|| due + LATEST);
            if let Some(cancel) = cancel {
                let was_pending = queue.modify_delayed(&work, time);
                note(format_args!(
                    "item {item} moved on queue-{number}, was pending: {was_pending}"
                ));
                self.ledger.end_modify(
                    call,
                    cancel,
                    was_pending,
                    loose.map(|_| Sim::now() + time + LATEST),
                );
            } else {
                let queued = match cpu {
                    Some(cpu) => match queue.queue_delayed_on(cpu, &work, time) {
                        Err(Error::Disabled) => false,
                        queued => queued.expect("there is such a CPU"),
                    },
                    None => queue.queue_delayed(&work, time),
                };
                note(format_args!("item {item} for queue-{number} in {time:?}: {queued}"));
                match loose {
                    Some(_) if queued => self.ledger.end_loosely(call, Sim::now() + time + LATEST),
                    _ => self.ledger.end_call(call, queued),
                }
            }
        }
        self.let_go(number, queue, actor);
    }

    pub(super) fn cancel_item(&self, item: usize, sync: bool, actor: Actor<'_>) {
        let Some(work) = self.work(item) else { return };
        if !sync {
            let cancel = self.ledger.begin_cancel(item);
            let cancelled = work.cancel();
            note(format_args!("item {item} cancelled: {cancelled}"));
            self.ledger.end_cancel(cancel, cancelled);
            return;
        }
        if actor.item.is_some_and(|(own, _)| own == item) {
            if !matches!(work.cancel_sync(), Err(Error::Deadlock(_))) {
                self.ledger.violation(format!("item {item} may wait for itself"));
            }
            return;
        }
        self.ledger.begin_disable(item);
        let cancel = self.ledger.begin_cancel(item);
        let result = work.cancel_sync();
        let busy = work.is_pending() || work.is_running();
        note(format_args!("item {item} cancelled for good: {result:?}"));
        self.ledger.end_cancel_sync(cancel, result == Ok(true), busy);
        self.ledger.end_disable(item);
        let enable = self.ledger.begin_enable(item);
        self.ledger.end_enable(enable, None);
        self.never_refused(item, result);
    }

    fn never_refused(&self, item: usize, result: Result<bool, Error>) {
        if let Err(error) = result {
            self.ledger.violation(format!("waiting for item {item} was refused: {error}"));
        }
    }

    pub(super) fn flush_item(&self, item: usize, polled: bool, early: bool) {
        let Some(work) = self.work(item) else { return };
        if early {
            self.ledger.begin_expedite(item);
        }
        let wait = self.ledger.begin_wait(item);
        let done = polled && poll_once(&mut work.flushed()).is_some();
        if early {
            self.never_refused(item, work.flush_delayed());
            self.ledger.end_expedite(item);
        } else if !done {
            self.never_refused(item, work.flush());
        }
        note(format_args!("has flushed item {item}"));
        self.ledger.end_wait(wait);
    }

    pub(super) fn disable(
        &self,
        item: usize,
        sync: bool,
        number: usize,
        time: Duration,
        queue_after: bool,
        actor: Actor<'_>,
    ) {
        let Some(work) = self.work(item) else { return };
        let Some(queue) = self.queue(number) else { return };
        self.ledger.begin_disable(item);
        let cancel = self.ledger.begin_cancel(item);
        if sync {
            let result = work.disable_sync();
            let busy = work.is_pending() || work.is_running();
            self.ledger.end_cancel_sync(cancel, result == Ok(true), busy);
            self.never_refused(item, result);
        } else {
            self.ledger.end_cancel(cancel, work.disable());
        }
        self.ledger.end_disable(item);
        note(format_args!("has disabled item {item}"));
        let call = self.ledger.begin_call(item, number, actor.cpu);
        match queue.try_queue(&work) {
            Ok(queued) => self.ledger.end_call(call, queued),
            Err(Error::Disabled) => self.ledger.end_call(call, false),
            Err(_) => {
                self.ledger.call_failed(call);
                self.ledger.violation(format!("item {item} is disabled, and its queue was asked"));
            }
        }
        Sim::sleep(time);
        // A draining queue would print a warning that does not give the reason.
        let queue_after = queue_after && !self.plan.is_drained(number) && actor.issuer.is_some();
        let enable = self.ledger.begin_enable(item);
        if queue_after {
            let call = self.ledger.begin_call(item, number, actor.cpu);
            let queued = queue.enable_and_queue(&work);
            note(format_args!("has enabled item {item}, and queued it: {queued}"));
            self.ledger.end_enable(enable, None);
            self.ledger.end_call(call, queued);
        } else {
            let last = work.enable();
            note(format_args!("has enabled item {item}: {last}"));
            self.ledger.end_enable(enable, Some(last));
        }
        self.let_go(number, queue, actor);
    }

    /// Cancels a closure, and joins it.
    pub(super) fn cancel_closure(&self, unit: Unit, panics: bool, handle: JoinHandle<Answer, Sim>) {
        let cancel = self.ledger.begin_cancel(unit);
        let cancelled = handle.cancel();
        note(format_args!("closure {unit} cancelled: {cancelled}"));
        self.ledger.end_cancel(cancel, cancelled);
        if !cancelled {
            return self.joined(unit, panics, handle.join());
        }
        if !handle.cancel() || !handle.is_finished() {
            self.ledger.violation(format!("closure {unit} was cancelled, and has not ended"));
        }
        match handle.join() {
            Err(JoinError::Cancelled) => {}
            other => self
                .ledger
                .violation(format!("closure {unit} was cancelled, joining gave {other:?}")),
        }
    }
}
