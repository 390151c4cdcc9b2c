//! Queueings and executions: which execution belongs to which queueing, and what is promised for each.
//!
//! # Which call an execution belongs to
//! is known if only one call is open, or accepted and not run yet. If several threads queue an item at the same time it may
//! not be known; then only the counts are checked until the item is idle.

use nearq_platform::Instant;

use super::{Book, Call, Execution, Ledger, QueueBook, Unit, UnitBook, Waiting, Worker};
use crate::placement::Runner;
use crate::plan::Kind;

impl Ledger {
    // ---- queueing ------------------------------------------------------------------------------------------

    /// A thread is about to queue a unit; for `cpu`, if that is certain.
    pub(crate) fn begin_call(&self, unit: Unit, queue: usize, cpu: Option<usize>) -> Call {
        self.begin_delayed(unit, queue, cpu, None)
    }

    /// As [`begin_call`](Self::begin_call), for a unit that must not run before a time.
    pub(crate) fn begin_delayed(
        &self,
        unit: Unit,
        queue: usize,
        cpu: Option<usize>,
        not_before: Option<Instant>,
    ) -> Call {
        let mut book = self.book();
        let defaults = (book.defaults.known, None);
        let at = &mut book.queues[queue];
        let attributes = (at.attributes.known, None);
        let sequence = at.sequence;
        at.sequence += 1;
        at.outstanding.insert(sequence, (attributes.0, defaults.0));
        at.units.insert(sequence, unit);
        at.open.insert(sequence);
        let drains = at.drains;
        let item = &mut book.units[unit];
        let number = item.calls;
        item.calls += 1;
        item.due = item.due.max(item.started + 1);
        item.waiting.iter_mut().for_each(|other| other.may_be_refused = true);
        let may_be_disabled = item.changes.may_be_disabled();
        let may_be_refused = item.open + item.accepted + item.changes.perhaps_queued
            > item.started + item.changes.cancelled
            || may_be_disabled;
        item.changes.was_timed |= not_before.is_some();
        let not_before = not_before.filter(|_| item.changes.expedites == 0);
        item.open += 1;
        item.waiting.push(Waiting {
            number,
            accepted: false,
            queue,
            sequence,
            cpu,
            attributes,
            defaults,
            may_be_refused,
            not_before,
        });
        item.queues.insert(queue);
        let (disables, enables) = (item.changes.disables.0, item.changes.enables.0);
        let depth = item.changes.depth_for_certain();
        Call { unit, queue, number, sequence, drains, disables, enables, may_be_disabled, depth }
    }

    /// The call has returned; `accepted` says whether it queued the unit.
    pub(crate) fn end_call(&self, call: Call, accepted: bool) {
        let mut book = self.book();
        let Book { units, queues, defaults, .. } = &mut *book;
        let unit = &mut units[call.unit];
        unit.open -= 1;
        unit.accepted += u64::from(accepted);
        queues[call.queue].open.remove(&call.sequence);
        queues[call.queue].accepted += u64::from(accepted);
        let disabled = unit.changes.was_disabled(&call);
        let mut wrong = None;
        if accepted && disabled == Some(true) {
            wrong = Some(format!("{}: it was queued although it was disabled", unit.name));
        }
        if !accepted && disabled != Some(false) {
            unit.forget_due();
        }
        let at = unit.waiting.iter().position(|waiting| waiting.number == call.number);
        match at {
            Some(at) if accepted => {
                let waiting = &mut unit.waiting[at];
                waiting.accepted = true;
                if !unit.unclear && unit.changes.open == 0 && !unit.changes.was_timed {
                    let at = &mut queues[waiting.queue];
                    at.line.insert(waiting.sequence, (call.unit, at.sequence));
                }
                if waiting.not_before.is_none() && !unit.changes.was_timed {
                    // A unit that waits for a time is subject to what is in effect at that time.
                    waiting.attributes.1 = Some(queues[waiting.queue].attributes.last());
                    waiting.defaults.1 = Some(defaults.last());
                }
            }
            Some(at) => {
                let waiting = unit.waiting.remove(at);
                queues[waiting.queue].outstanding.remove(&waiting.sequence);
                if !waiting.may_be_refused && disabled == Some(false) {
                    wrong = Some(format!(
                        "{}: queueing it was refused as pending, but it was not: {} of {} accepted queueings had \
                         started, and nobody else was queueing it",
                        unit.name, unit.started, unit.accepted
                    ));
                }
            }
            // The unit already runs, or has run.
            None => {}
        }
        unit.settle(queues);
        if let Some(text) = wrong {
            book.violation(text);
        }
    }

    /// The call was refused because it is not possible: it counts as if it had not been made.
    pub(crate) fn call_failed(&self, call: Call) {
        let mut book = self.book();
        let Book { units, queues, .. } = &mut *book;
        let unit = &mut units[call.unit];
        unit.open -= 1;
        unit.forget_due();
        queues[call.queue].open.remove(&call.sequence);
        if let Some(at) = unit.waiting.iter().position(|waiting| waiting.number == call.number) {
            let waiting = unit.waiting.remove(at);
            queues[waiting.queue].outstanding.remove(&waiting.sequence);
        }
        unit.settle(queues);
    }

    /// The call was refused because the queue drains. Returns whether that is possible: whether a drain was in progress or began during the
    /// call.
    pub(crate) fn call_refused(&self, call: Call) -> bool {
        self.call_failed(call);
        let (begun, ended) = call.drains;
        begun != ended || self.book().queues[call.queue].drains.0 != begun
    }

    pub(crate) fn begin_drain(&self, queue: usize) {
        self.book().queues[queue].drains.0 += 1;
    }

    pub(crate) fn end_drain(&self, queue: usize) {
        self.book().queues[queue].drains.1 += 1;
    }

    // ---- running -------------------------------------------------------------------------------------------

    /// A unit begins to run in a thread, on a CPU.
    pub(crate) fn begin_execution(
        &self,
        unit: Unit,
        thread: u64,
        cpu: usize,
        now: Instant,
    ) -> Execution {
        let mut book = self.book();
        book.executions += 1;
        let mut wrong = Vec::new();
        let Book { ground, units, queues, workers, defaults, frozen, .. } = &mut *book;
        let item = &mut units[unit];
        let number = item.started;
        item.started += 1;
        if std::mem::replace(&mut item.running, true) {
            wrong.push(format!("{}: two executions of it run at once", item.name));
        }
        let queued = item.accepted + item.open + item.changes.perhaps_queued;
        if item.started + item.changes.cancelled > queued {
            wrong.push(format!(
                "{}: it runs for the {}. time, but was queued {queued} times, of which {} were cancelled",
                item.name, item.started, item.changes.cancelled
            ));
        }
        wrong.extend(item.is_early(now));
        let worker = workers.get(&thread);
        if worker.is_none() {
            wrong.push(format!("{}: runs in thread {thread}, which is no worker", item.name));
        }
        item.unclear |= item.waiting.len() > 1;
        if item.unclear {
            for waiting in &item.waiting {
                queues[waiting.queue].line.remove(&waiting.sequence);
            }
        }
        let mut on = None;
        let mut overtaken = None;
        let pod = worker.and_then(|worker| worker.pod.first().filter(|_| worker.pod.len() == 1));
        if !item.unclear
            && let Some(waiting) = item.waiting.pop()
        {
            let at = &mut queues[waiting.queue];
            on = Some((waiting.queue, waiting.sequence));
            at.enter(thread);
            at.running += 1;
            let (running, limit) = if at.kind == Kind::PerCpu {
                // A rescuer serves one CPU after the other, and its pod does not say which. It counts for all CPUs together.
                let share = at.highest();
                let on_pod = pod.map_or(0, |pod| {
                    let running = at.running_on.entry(pod).or_default();
                    *running += 1;
                    *running
                });
                if on_pod > share {
                    (on_pod, share)
                } else {
                    (at.running, share.saturating_mul(ground.topology.cpus().len()))
                }
            } else {
                (at.running, at.limit(ground, defaults))
            };
            if running > limit {
                wrong.push(format!(
                    "queue-{}: {running} items run at once, max_active was at most {limit} since the oldest of them was queued",
                    waiting.queue
                ));
            }
            at.line.remove(&waiting.sequence);
            if at.kind == Kind::Ordered {
                let before = at.line.values().find(|(_, returned)| *returned <= waiting.sequence);
                overtaken = before.map(|(other, _)| (*other, waiting.queue));
            }
            if *frozen && at.freezable {
                wrong.push(format!(
                    "queue-{}: {} starts although the runtime is frozen",
                    waiting.queue, item.name
                ));
            }
            if let Some(Worker { name, pod }) = worker {
                let window =
                    |(from, to): (usize, Option<usize>), last: usize| from..=to.unwrap_or(last);
                let attributes =
                    &at.attributes.all[window(waiting.attributes, at.attributes.last())];
                let defaults = &defaults.all[window(waiting.defaults, defaults.last())];
                let runner = Runner { name, pod, cpu };
                if let Err(text) = ground.check(&runner, at.kind, attributes, defaults, waiting.cpu)
                {
                    wrong.push(format!("{} of queue-{} {text}", item.name, waiting.queue));
                }
            }
        }
        if let Some((other, queue)) = overtaken {
            wrong.push(format!(
                "queue-{queue}: {} starts before {}, which was queued before it on the ordered queue",
                units[unit].name, units[other].name
            ));
        }
        for text in wrong {
            book.violation(text);
        }
        Execution { on, pod, thread, number }
    }

    /// The unit's function returns, or panics.
    pub(crate) fn end_execution(&self, unit: Unit, execution: Execution, panicked: bool) {
        let mut book = self.book();
        let Book { units, queues, unclear_panics, .. } = &mut *book;
        let item = &mut units[unit];
        item.running = false;
        item.ended += 1;
        if let Some((queue, sequence)) = execution.on {
            let at = &mut queues[queue];
            at.leave(execution.thread);
            at.running -= 1;
            if let Some(running) = execution.pod.and_then(|pod| at.running_on.get_mut(&pod))
                && at.kind == Kind::PerCpu
            {
                *running -= 1;
            }
            at.panicked += u64::from(panicked);
            at.outstanding.remove(&sequence);
        } else {
            *unclear_panics += u64::from(panicked);
        }
        item.settle(queues);
    }
}

impl UnitBook {
    /// Forgets which call is which once the unit is idle: from then on it is clear again.
    pub(super) fn settle(&mut self, queues: &mut [QueueBook]) {
        let over = self.ended + self.changes.cancelled;
        if self.open == 0
            && over == self.accepted
            && self.started == self.ended
            && self.changes.are_clear()
        {
            for waiting in self.waiting.drain(..) {
                queues[waiting.queue].outstanding.remove(&waiting.sequence);
                queues[waiting.queue].line.remove(&waiting.sequence);
            }
            self.unclear = false;
        }
    }
}
