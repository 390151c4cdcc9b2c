//! The model that a program is checked against: what was queued, what ran, and what the runtime promises.
//!
//! The ledger is plain memory that the simulated machine does not see: it costs no virtual time and no turn, so it does not
//! change what it watches. Its lock is never held across a call of the platform, so it is always free.
//!
//! # What is checked as it happens
//! - An item runs at most as often as queueing it has succeeded; a call that has begun and not returned counts as one that may have
//!   succeeded.
//! - An item has only one execution at a time.
//! - A queueing is refused only if the item was pending at some time during the call.
//! - No queue runs more items than the largest `max_active`, by node or CPU (`limits`), that was in effect since the oldest of them was
//!   queued.
//! - A flush, or a drain, waits for all queueings that had been accepted before; a queue that is not drained refuses nothing.
//! - Workers run what belongs to their pod and mask (`placement`).
//! - On an ordered queue nothing is overtaken: what was queued by a call that returned before another call began starts first.
//! - While the runtime is frozen, nothing on a freezable queue runs or starts.
//! - What a fork runs in another thread is subject to the same.
//!
//! Queueings and executions: `ledger/calls`; cancelling, disabling, delaying and waiting for items: `ledger/items`; futures:
//! `ledger/futures`; forks: `ledger/forks`.
//!
//! # What is checked at the end (`close`)
//! - Each accepted queueing was followed by its execution, or cancelled; each call, accepted or not, by an execution that began after
//!   it.
//! - At the end, everything that a closure or item captured has been dropped, and every worker that began has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nearq_platform::Instant;

use nearq::{Attributes, CpuSet, inspect::Domain};

use super::limits::Bounds;
use super::placement::{Defaults, Ground};
use super::plan::{Kind, QueuePlan};

mod calls;
mod forks;
mod futures;
mod items;

use futures::FutureBook;
use items::Changes;

/// How many violations are kept; one is enough to fail.
const MOST: usize = 20;

/// A unit of execution: an item or a closure, by number. Both kinds share the numbers.
pub(crate) type Unit = usize;

/// A queueing, as the index of the call among the unit's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Call {
    unit: Unit,
    queue: usize,
    number: u64,
    sequence: u64,
    /// The number of the queue's drains when the call began.
    drains: (u64, u64),
    /// How often the item had been disabled and enabled, whether it may have been disabled, and whether it certainly was.
    disables: u64,
    enables: u64,
    may_be_disabled: bool,
    depth: i64,
}

/// What a flush, or a drain, must wait for.
#[derive(Clone, Debug)]
pub(crate) struct Promised {
    queue: usize,
    /// Queueings that had been accepted and had not ended, with their units.
    queueings: BTreeMap<u64, Unit>,
    /// How many queueings of these units had been accepted.
    accepted: BTreeMap<Unit, u64>,
}

/// Where an execution runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Execution {
    /// The queue that it counts for, if that is known, and its number there.
    on: Option<(usize, u64)>,
    /// The CPU of the worker's pod, if the pod is one CPU.
    pod: Option<usize>,
    thread: u64,
    /// How many earlier executions of the unit there were.
    pub(crate) number: u64,
}

/// The ledger of one program.
#[derive(Debug)]
pub(crate) struct Ledger(Mutex<Book>);

/// A call that was not refused and has not run yet, as far as is known.
#[derive(Clone, Debug)]
struct Waiting {
    number: u64,
    accepted: bool,
    queue: usize,
    sequence: u64,
    cpu: Option<usize>,
    /// The versions of the attributes and of the runtime's settings that may have been in effect.
    attributes: (usize, Option<usize>),
    defaults: (usize, Option<usize>),
    /// Whether the unit may have been pending when the call began, or another call has begun since.
    may_be_refused: bool,
    /// It must not run before this time.
    not_before: Option<Instant>,
}

#[derive(Debug, Default)]
struct UnitBook {
    name: String,
    calls: u64,
    open: u64,
    accepted: u64,
    started: u64,
    ended: u64,
    /// The minimum number of executions that must start in total.
    due: u64,
    running: bool,
    unclear: bool,
    waiting: Vec<Waiting>,
    /// The queues on which it was ever queued.
    queues: BTreeSet<usize>,
    changes: Changes,
}

#[derive(Debug, Default)]
struct QueueBook {
    kind: Kind,
    freezable: bool,
    attributes: Versions<Attributes>,
    /// Limits with the number of the first queueing that they do not concern; `None` while they are in effect.
    limits: Vec<(Bounds, Option<u64>)>,
    sequence: u64,
    /// Queueings that have not ended, with the versions of the attributes and of the runtime's settings that were in effect for
    /// certain when they began.
    outstanding: BTreeMap<u64, (usize, usize)>,
    /// What was queued by each of them.
    units: BTreeMap<u64, Unit>,
    /// Queueings whose call has not returned.
    open: BTreeSet<u64>,
    /// Drains that have begun, and ended.
    drains: (u64, u64),
    /// Items that run, and threads that run leaves of forks and no item.
    running: usize,
    /// How many items and leaves each thread runs, one within the other.
    threads: BTreeMap<u64, usize>,
    /// The same, by the CPU of the worker's pod if the pod is one CPU.
    running_on: BTreeMap<usize, usize>,
    accepted: u64,
    cancelled: u64,
    panicked: u64,
    /// Polls of futures, which also count as executions; how many are going on, and whether there were futures at all.
    polls: u64,
    polling: usize,
    has_futures: bool,
    /// Items that the runtime has made for joins from outside of the queue.
    joins: u64,
    is_dropped: bool,
    /// What was queued and has not started, if it is clear which queueing that is: the unit, and the number of the first
    /// queueing that began after this one had returned.
    line: BTreeMap<u64, (Unit, u64)>,
}

/// A setting over time: `known` is certainly in effect, later ones may be.
#[derive(Debug)]
struct Versions<T> {
    all: Vec<T>,
    known: usize,
}

impl<T> Default for Versions<T> {
    fn default() -> Self {
        Versions { all: Vec::new(), known: 0 }
    }
}

impl<T> Versions<T> {
    fn last(&self) -> usize {
        self.all.len() - 1
    }
}

#[derive(Debug)]
struct Worker {
    name: String,
    pod: CpuSet,
}

/// The contents of the ledger.
#[derive(Debug)]
struct Book {
    ground: Ground,
    units: Vec<UnitBook>,
    queues: Vec<QueueBook>,
    defaults: Versions<Defaults>,
    workers: BTreeMap<u64, Worker>,
    frozen: bool,
    /// How many values that must be dropped exactly once exist, by what captured them.
    captured: BTreeMap<String, i64>,
    /// Wakers that were left with a closure and not called.
    wakers: i64,
    executions: u64,
    /// Panics of executions for which it is not known on which queue they count.
    unclear_panics: u64,
    /// Cancelled queueings for which it is not known on which queue they were, and queueings that may have been made.
    unclear_cancels: u64,
    perhaps_queued: u64,
    /// The time by which all items that may be refused when their time comes are done.
    loose_until: Instant,
    futures: Vec<FutureBook>,
    violations: Vec<String>,
}

impl Ledger {
    pub(crate) fn new(ground: Ground, defaults: Defaults) -> Self {
        Ledger(Mutex::new(Book {
            ground,
            units: Vec::new(),
            queues: Vec::new(),
            defaults: Versions { all: vec![defaults], known: 0 },
            workers: BTreeMap::new(),
            frozen: false,
            captured: BTreeMap::new(),
            wakers: 0,
            executions: 0,
            unclear_panics: 0,
            unclear_cancels: 0,
            perhaps_queued: 0,
            loose_until: Instant::from_nanos(0),
            futures: Vec::new(),
            violations: Vec::new(),
        }))
    }

    /// Locks the book. An item that panics on purpose does not hold the lock, so it is never poisoned by one.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports a promise that was not kept.
    pub(crate) fn violation(&self, text: String) {
        self.book().violation(text);
    }

    /// The violations so far, and how many executions there were.
    pub(crate) fn result(&self) -> (Vec<String>, u64) {
        let book = self.book();
        (book.violations.clone(), book.executions)
    }

    // ---- what there is -------------------------------------------------------------------------------------

    pub(crate) fn add_unit(&self, name: String) -> Unit {
        let mut book = self.book();
        book.units.push(UnitBook { name, ..UnitBook::default() });
        book.units.len() - 1
    }

    /// A closure, which is named by its number.
    pub(crate) fn add_closure(&self) -> Unit {
        let mut book = self.book();
        let unit = book.units.len();
        book.units.push(UnitBook { name: format!("closure {unit}"), ..UnitBook::default() });
        unit
    }

    /// A queue, which was made with these attributes.
    pub(crate) fn add_queue(&self, attributes: Attributes, plan: &QueuePlan) {
        self.book().queues.push(QueueBook {
            kind: plan.kind,
            freezable: plan.freezable,
            attributes: Versions { all: vec![attributes], known: 0 },
            limits: vec![(Bounds::new(plan.max_active), None)],
            ..QueueBook::default()
        });
    }

    /// A worker's thread has begun.
    pub(crate) fn worker_begins(&self, thread: u64, name: String, pod: CpuSet) {
        self.book().workers.insert(thread, Worker { name, pod });
    }

    /// A worker's thread is about to end.
    pub(crate) fn worker_ends(&self, thread: u64) {
        let mut book = self.book();
        if book.workers.remove(&thread).is_none() {
            book.violation(format!("thread {thread} ends as a worker but had not begun as one"));
        }
    }

    /// Something that must be dropped exactly once was made (1) or dropped (-1).
    pub(crate) fn captured(&self, by: &str, change: i64) {
        *self.book().captured.entry(by.to_owned()).or_default() += change;
    }

    /// A waker was left with a closure (1) or called (-1).
    pub(crate) fn wakers(&self, change: i64) {
        self.book().wakers += change;
    }

    // ---- changes -------------------------------------------------------------------------------------------

    /// The queue's owner is about to change the queue.
    pub(crate) fn begin_change(&self, queue: usize, change: impl FnOnce(&mut Attributes)) {
        let mut book = self.book();
        let versions = &mut book.queues[queue].attributes;
        let mut next = versions.all[versions.last()].clone();
        change(&mut next);
        versions.all.push(next);
    }

    /// The change has been made, or was refused.
    pub(crate) fn end_change(&self, queue: usize, made: bool) {
        let mut book = self.book();
        let versions = &mut book.queues[queue].attributes;
        if !made {
            // The refused version stays in the list, but the one before it counts again.
            let before = versions.all[versions.known].clone();
            versions.all.push(before);
        }
        versions.known = versions.last();
    }

    pub(crate) fn begin_defaults(&self, change: impl FnOnce(&mut Defaults)) {
        let mut book = self.book();
        let mut next = book.defaults.all[book.defaults.last()];
        change(&mut next);
        book.defaults.all.push(next);
    }

    pub(crate) fn end_defaults(&self) {
        let mut book = self.book();
        book.defaults.known = book.defaults.last();
    }

    /// The queue's owner is about to change its limit.
    pub(crate) fn begin_limit(&self, queue: usize, change: impl FnOnce(Bounds) -> Bounds) {
        let limits = &mut self.book().queues[queue].limits;
        let (last, _) = *limits.last().expect("there is always one");
        limits.push((change(last), None));
    }

    /// The limit has been changed.
    pub(crate) fn end_limit(&self, queue: usize) {
        let mut book = self.book();
        let queue = &mut book.queues[queue];
        let (sequence, last) = (queue.sequence, queue.limits.len() - 1);
        for (_, until) in &mut queue.limits[..last] {
            until.get_or_insert(sequence);
        }
    }

    /// The runtime has been frozen: nothing on a freezable queue runs, or starts until `end_frozen`.
    pub(crate) fn begin_frozen(&self) {
        let mut book = self.book();
        book.frozen = true;
        let running =
            |queue: &QueueBook| queue.freezable && (queue.running != 0 || queue.polling != 0);
        if let Some(queue) = book.queues.iter().position(running) {
            book.violation(format!("queue-{queue}: the runtime is frozen, and items of it run"));
        }
    }

    /// The runtime is about to be thawed.
    pub(crate) fn end_frozen(&self) {
        self.book().frozen = false;
    }

    // ---- waiting -------------------------------------------------------------------------------------------

    /// What has not ended on a queue, for a later call of [`still_waiting`](Self::still_waiting).
    pub(crate) fn outstanding(&self, queue: usize) -> u64 {
        self.book().queues[queue].sequence
    }

    /// Whether something that was queued before the mark has not ended. Returns which units, in words.
    pub(crate) fn still_waiting(&self, queue: usize, mark: u64) -> Option<String> {
        let book = self.book();
        let at = &book.queues[queue];
        let outstanding = at.outstanding.range(..mark);
        let is_known = |sequence: &u64| !book.units[at.units[sequence]].changes.are_vague();
        let left: Vec<u64> = outstanding.map(|(number, _)| *number).filter(is_known).collect();
        if left.is_empty() {
            return None;
        }
        let names: Vec<&str> = book
            .units
            .iter()
            .filter(|unit| unit.ended + unit.changes.cancelled < unit.accepted)
            .map(|unit| unit.name.as_str())
            .collect();
        Some(format!("{} queueings; have not ended: {}", left.len(), names.join(", ")))
    }

    /// What was accepted by a queue and has not ended.
    pub(crate) fn promised(&self, queue: usize) -> Promised {
        let book = self.book();
        let QueueBook { outstanding, open, units, .. } = &book.queues[queue];
        let returned = outstanding.keys().filter(|sequence| {
            !open.contains(sequence) && !book.units[units[sequence]].changes.was_timed
        });
        let queueings: BTreeMap<_, _> =
            returned.map(|sequence| (*sequence, units[sequence])).collect();
        let accepted = queueings.values().map(|unit| (*unit, book.units[*unit].accepted)).collect();
        Promised { queue, queueings, accepted }
    }

    /// Which of these have still not ended, in words. If it is not known which queueing an execution belongs to, executions are
    /// counted, provided the unit has been on no other queue.
    pub(crate) fn not_kept(&self, promised: &Promised) -> Option<String> {
        let book = self.book();
        let outstanding = &book.queues[promised.queue].outstanding;
        let left = |(sequence, unit): (&u64, &Unit)| {
            let item = &book.units[*unit];
            let left = if item.changes.open != 0 || item.changes.was_timed {
                // It may already be cancelled, or still wait for its time.
                false
            } else if item.unclear {
                item.queues.len() == 1 && item.over() < promised.accepted[unit]
            } else {
                outstanding.contains_key(sequence)
            };
            left.then_some(item.name.as_str())
        };
        let names: Vec<&str> = promised.queueings.iter().filter_map(left).collect();
        (!names.is_empty()).then(|| names.join(", "))
    }

    /// How many executions of a queue there were, and how many of them panicked.
    pub(crate) fn counts(&self, queue: usize) -> (RangeInclusive<u64>, RangeInclusive<u64>) {
        let book = self.book();
        let QueueBook { accepted, cancelled, panicked, polls, has_futures, joins, .. } =
            book.queues[queue];
        let executed = accepted - cancelled + joins;
        let least = executed.saturating_sub(book.unclear_cancels) + polls;
        // A future that has ended may be executed once more, for nothing.
        let most = if has_futures { u64::MAX } else { executed + book.perhaps_queued };
        (least..=most, panicked..=panicked + book.unclear_panics)
    }

    /// The limit of each domain of a queue that no longer changes, if the machine is known.
    pub(crate) fn limits(&self, queue: usize) -> Vec<(Domain, usize)> {
        let book = self.book();
        let QueueBook { kind, attributes, limits, .. } = &book.queues[queue];
        let (bounds, _) = *limits.last().expect("there is always one");
        if book.ground.allowed.is_none() {
            return Vec::new();
        }
        book.ground.limits_of(*kind, &attributes.all[attributes.known], bounds)
    }

    /// Everything has ended: checks what must then hold.
    pub(crate) fn close(&self) {
        let mut book = self.book();
        let mut wrong = Vec::new();
        for unit in &book.units {
            let UnitBook { name, accepted, started, ended, due, changes, .. } = unit;
            let Changes { cancelled, perhaps_cancelled, perhaps_queued, .. } = changes;
            let least = accepted.saturating_sub(cancelled + perhaps_cancelled);
            let most = (accepted + perhaps_queued).saturating_sub(*cancelled);
            if !(least..=most).contains(started) || ended != started {
                wrong.push(format!(
                    "{name}: {accepted} queueings were accepted, {cancelled} cancelled, {started} executions started, \
                     {ended} ended"
                ));
            }
            if due > started && *perhaps_queued == 0 {
                wrong.push(format!(
                    "{name}: it was queued after its last execution had started, and did not run again"
                ));
            }
        }
        wrong.extend(book.futures.iter().filter_map(FutureBook::is_left));
        for (by, count) in book.captured.iter().filter(|(_, count)| **count != 0) {
            wrong.push(format!(
                "{count} of the values that {by} captured were never dropped (negative: dropped twice)"
            ));
        }
        if book.wakers != 0 {
            wrong.push(format!(
                "{} wakers of polled closures were never called (negative: called twice)",
                book.wakers
            ));
        }
        for worker in book.workers.values() {
            wrong.push(format!(
                "worker {} was still there after the runtime had been dropped",
                worker.name
            ));
        }
        for text in wrong {
            book.violation(text);
        }
    }
}

impl Book {
    fn violation(&mut self, text: String) {
        if self.violations.len() < MOST {
            self.violations.push(text);
        }
    }
}

impl QueueBook {
    /// A thread begins to run an item or a leaf. True if it runs nothing else of the queue.
    fn enter(&mut self, thread: u64) -> bool {
        let depth = self.threads.entry(thread).or_default();
        *depth += 1;
        *depth == 1
    }

    /// The thread has run it.
    fn leave(&mut self, thread: u64) {
        let depth = self.threads.get_mut(&thread).expect("it has entered");
        *depth -= 1;
        if *depth == 0 {
            self.threads.remove(&thread);
        }
    }

    /// The limits under which the current items may have been admitted.
    fn bounds(&self) -> impl Iterator<Item = Bounds> {
        let oldest = self.outstanding.first_key_value().map_or(u64::MAX, |(oldest, _)| *oldest);
        let concerns = move |until: &Option<u64>| until.is_none_or(|until| oldest < until);
        self.limits.iter().filter(move |(_, until)| concerns(until)).map(|(limit, _)| *limit)
    }

    /// The largest `max_active` under which the current items may have been admitted.
    fn highest(&self) -> usize {
        self.bounds().map(|bounds| bounds.max_active).max().unwrap_or(usize::MAX)
    }

    /// How many may run at once, over all nodes.
    fn limit(&self, ground: &Ground, defaults: &Versions<Defaults>) -> usize {
        let highest = self.highest();
        // The sum of the nodes' shares is never less; usually it does not matter how much more it is.
        if self.running <= highest || self.kind == Kind::Ordered {
            return highest;
        }
        let (known, settings) = self.outstanding.values().next().copied().unwrap_or_default();
        let bounds: Vec<Bounds> = self.bounds().collect();
        ground.most_active(&self.attributes.all[known..], &defaults.all[settings..], &bounds)
    }
}

#[cfg(test)]
mod tests;
