//! What the threads and bodies of a program do, step by step: queue, spawn, join, wait, drop, change.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use nearq::{Error, JoinError, JoinHandle, Workqueue};
use nearq_platform::LockPlatform;
use nearq_sim::{Sim, compute};

use super::futures::{Kept, Luggage};
use super::ledger::{Call, Ledger, Promised, Unit};
use super::plan::{Body, Change, Handle, Kind, Op, Step, To};
use super::program::{
    Actor, Answer, Captured, Item, PATIENCE, ProgramState, drop_quietly, note, panic_text,
};

/// The shortest and the longest slice that may be asked for.
pub(super) const SLICES: [Duration; 2] = [Duration::from_micros(100), Duration::from_millis(100)];

/// A waker that reports to the ledger.
struct Bell(Arc<Ledger>);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.wakers(-1);
    }
}

/// Polls a future once, with a waker that does nothing.
pub(super) fn poll_once<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
    match Pin::new(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

impl ProgramState {
    // ---- steps -----------------------------------------------------------------------------------------------

    pub(super) fn step(self: &Arc<Self>, step: &Step, actor: Actor<'_>, kept: &mut Vec<Kept>) {
        match step {
            Step::Compute(time) => compute(*time),
            Step::Sleep(time) => Sim::sleep(*time),
            Step::Block(time) => {
                let runtime = self.runtime.lock().expect("not held by a panic").clone();
                let sleep = || Sim::sleep(*time);
                runtime.map_or_else(sleep, |runtime| runtime.block_in_place(sleep));
            }
            Step::Yield => Sim::yield_now(),
            Step::Queue { item, queue, to } => self.queue_item(*item, *queue, *to, actor),
            Step::Spawn { queue, body, handle } => {
                let Some((unit, joining)) = self.spawn(*queue, body, actor, None) else { return };
                match handle {
                    Handle::Drop => drop_quietly(joining),
                    Handle::Keep => kept.push(Kept::Closure(unit, body.panics, joining)),
                    Handle::Cancel => self.cancel_closure(unit, body.panics, joining),
                    Handle::Join => self.joined(unit, body.panics, joining.join()),
                    Handle::Poll => self.poll(unit, body.panics, joining),
                }
            }
            Step::Scope { queue, bodies } => self.scope(*queue, bodies, actor),
            Step::Flush { queue, polled } => self.flush(*queue, *polled, actor),
            Step::Drain { queue, polled } => self.drain(*queue, *polled, actor),
            Step::Delay { item, queue, cpu, time, modify } => {
                self.delay(*item, *queue, *cpu, *time, *modify, actor);
            }
            Step::Cancel { item, sync } => self.cancel_item(*item, *sync, actor),
            Step::FlushItem { item, polled, early } => self.flush_item(*item, *polled, *early),
            Step::Disable { item, sync, queue, time, queue_after } => {
                self.disable(*item, *sync, *queue, *time, *queue_after, actor);
            }
            Step::Future { queue, plan, handle } => self.future(*queue, plan, *handle, kept),
            Step::Set { queue, members, joined, end } => {
                self.set_of(*queue, members, *joined, *end, actor);
            }
            Step::Fork { queue, tree, bare } => self.fork(*queue, tree, *bare, actor),
            Step::DropQueue { queue } => self.drop_queue(*queue, actor),
            Step::DropItem { item } => {
                let work = self.works.lock().expect("not held by a panic")[*item].take();
                note(step);
                drop(work);
            }
        }
    }

    /// A handle of a queue that still exists.
    pub(super) fn queue(&self, queue: usize) -> Option<Arc<Workqueue<Sim>>> {
        self.queues.lock().expect("not held by a panic")[queue].clone()
    }

    /// Gives a handle back. If it is the last one, the queue is drained.
    pub(super) fn let_go(&self, number: usize, queue: Arc<Workqueue<Sim>>, actor: Actor<'_>) {
        let Some(queue) = Arc::into_inner(queue) else { return };
        let mark = self.ledger.outstanding(number);
        self.ledger.drops(number);
        note(format_args!("drops the last handle of queue-{number}"));
        drop(queue);
        note(format_args!("has dropped queue-{number}"));
        if actor.within == Some(number) {
            // One of the queue's own items cannot wait for itself: the queue lives on until it is empty.
            return;
        }
        if let Some(left) = self.ledger.left_by_drop(number, mark) {
            self.ledger.violation(format!(
                "queue-{number} was dropped, which must wait for all that is queued; there were {left}"
            ));
        }
    }

    pub(super) fn drop_queue(&self, number: usize, actor: Actor<'_>) {
        let queue = self.queues.lock().expect("not held by a panic")[number].take();
        if let Some(queue) = queue {
            self.let_go(number, queue, actor);
        }
    }

    fn queue_item(&self, item: usize, number: usize, to: To, actor: Actor<'_>) {
        let Some(queue) = self.queue(number) else { return };
        let slot = self.works.lock().expect("not held by a panic")[item].clone();
        let slot = slot.map(|work| Item::clone(&work));
        let own = actor.item.filter(|(own, _)| *own == item).map(|(_, work)| work);
        // The last handle may be gone; the function's own is valid while it runs.
        if let Some(work) = own.or(slot.as_deref())
            && (actor.issuer.is_some() || self.may_queue(item))
        {
            if let (To::Node(node), Kind::PerCpu) = (to, self.plan.queues[number].kind) {
                if let Ok(queued) = queue.queue_on_node(node, work) {
                    self.ledger.violation(format!(
                        "queueing item {item}{to} on the per-CPU queue-{number} gave {queued}"
                    ));
                }
                drop(slot);
                return self.let_go(number, queue, actor);
            }
            let cpu = match to {
                To::Here => actor.cpu,
                To::Cpu(cpu) => Some(cpu),
                To::Node(_) => None,
            };
            let call = self.ledger.begin_call(item, number, cpu);
            let queued = match to {
                To::Here if self.plan.is_drained(number) => queue.try_queue(work),
                To::Here => Ok(queue.queue(work)),
                To::Cpu(cpu) => queue.queue_on(cpu, work),
                To::Node(node) => queue.queue_on_node(node, work),
            };
            match queued {
                Ok(queued) => {
                    self.ledger.end_call(call, queued);
                    let outcome = if queued { "queued" } else { "found pending" };
                    note(format_args!("item {item} {outcome} on queue-{number}{to}"));
                }
                Err(Error::Disabled) => {
                    self.ledger.end_call(call, false);
                    note(format_args!("item {item} is disabled"));
                }
                Err(Error::Draining { .. }) => self.refused(call, number),
                Err(error) => {
                    self.ledger.call_failed(call);
                    self.ledger.violation(format!("queueing item {item}{to} was refused: {error}"));
                }
            }
        }
        drop(slot);
        self.let_go(number, queue, actor);
    }

    /// Whether a body may queue the item once more.
    pub(super) fn may_queue(&self, item: usize) -> bool {
        let mut budgets = self.budgets.lock().expect("not held by a panic");
        let left = budgets[item].checked_sub(1);
        budgets[item] = left.unwrap_or(0);
        left.is_some()
    }

    /// Spawns a closure, which drops its luggage at its end.
    pub(super) fn spawn(
        self: &Arc<Self>,
        number: usize,
        body: &Arc<Body>,
        actor: Actor<'_>,
        luggage: Option<Luggage>,
    ) -> Option<(Unit, JoinHandle<Answer, Sim>)> {
        let queue = self.queue(number)?;
        let unit = self.ledger.add_closure();
        let call = self.ledger.begin_call(unit, number, actor.cpu);
        let (state, body, captured) =
            (Arc::clone(self), Arc::clone(body), Captured::new(&self.ledger, self.name(unit)));
        // A closure whose drop wakes others must not panic: the simulated machine stands still while it unwinds.
        let panics = self.plan.hardships.drops_panic;
        let captured = captured.that_panics(panics && luggage.is_none());
        let closure = move || {
            let _captured = (captured.used(), luggage);
            let actor = Actor { within: Some(number), ..Actor::default() };
            state.run(unit, &body, actor, false, |_| body.panics);
            Answer::new(unit, panics)
        };
        let handle = if self.plan.is_drained(number) {
            // A refused closure comes back, and we must drop it.
            queue.try_spawn(closure).map_err(|refused| drop_quietly(refused.into_inner())).ok()
        } else {
            Some(queue.spawn(closure))
        };
        if handle.is_some() {
            self.ledger.end_call(call, true);
            note(format_args!("closure {unit} spawned on queue-{number}"));
        } else {
            self.refused(call, number);
        }
        self.let_go(number, queue, actor);
        handle.map(|handle| (unit, handle))
    }

    /// A queue that drains, or may have drained, has refused something.
    pub(super) fn refused(&self, call: Call, number: usize) {
        note(format_args!("was refused by queue-{number}, which drains"));
        if !self.ledger.call_refused(call) {
            self.ledger.violation(format!(
                "queue-{number} refused an item because it drains, and nobody drained it"
            ));
        }
    }

    // ---- flush and drain -------------------------------------------------------------------------------------

    fn flush(&self, number: usize, polled: bool, actor: Actor<'_>) {
        let Some(queue) = self.queue(number) else { return };
        let promised = self.ledger.promised(number);
        let done = polled && {
            let mut future = queue.flushed();
            poll_once(&mut future).is_some_and(|result| self.waited(number, result))
        };
        if !done {
            self.waited(number, queue.flush());
        }
        note(format_args!("has flushed queue-{number}"));
        self.check_promised(number, &promised, "flushed");
        self.let_go(number, queue, actor);
    }

    fn drain(&self, number: usize, polled: bool, actor: Actor<'_>) {
        let Some(queue) = self.queue(number) else { return };
        let promised = self.ledger.promised(number);
        self.ledger.begin_drain(number);
        note(format_args!("drains queue-{number}"));
        let done = polled && {
            let mut future = queue.drained();
            poll_once(&mut future).is_some_and(|result| self.waited(number, result))
        };
        if !done {
            self.waited(number, queue.drain());
        }
        self.ledger.end_drain(number);
        note(format_args!("has drained queue-{number}"));
        self.check_promised(number, &promised, "drained");
        self.let_go(number, queue, actor);
    }

    /// True: a body that waits for a queue above its own is never refused.
    fn waited(&self, number: usize, result: Result<(), Error>) -> bool {
        if let Err(error) = result {
            self.ledger.violation(format!("waiting for queue-{number} was refused: {error}"));
        }
        true
    }

    fn check_promised(&self, number: usize, promised: &Promised, what: &str) {
        if let Some(left) = self.ledger.not_kept(promised) {
            self.ledger.violation(format!(
                "queue-{number} was {what}, and what had been queued before has not ended: {left}"
            ));
        }
    }

    /// An item or a closure by its name.
    pub(super) fn name(&self, unit: Unit) -> String {
        if unit < self.plan.items.len() {
            format!("item {unit}")
        } else {
            format!("closure {unit}")
        }
    }

    /// A closure has been joined: its result is its own number, or its panic.
    pub(super) fn joined(&self, unit: Unit, panics: bool, result: Result<Answer, JoinError>) {
        let result = result.map(Answer::joined);
        let right = match &result {
            Ok(answer) => !panics && answer.number == unit,
            Err(error) => panics && error.message() == Some(panic_text(unit).as_str()),
        };
        if !right {
            let expected = if panics { "its panic" } else { "its number" };
            self.ledger
                .violation(format!("joining closure {unit} gave {result:?} instead of {expected}"));
        }
        note(format_args!("has joined closure {unit}"));
    }

    fn poll(&self, unit: Unit, panics: bool, mut handle: JoinHandle<Answer, Sim>) {
        let waker = Waker::from(Arc::new(Bell(Arc::clone(&self.ledger))));
        // Counted before the poll: it may be called before the poll returns.
        self.ledger.wakers(1);
        match Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(result) => {
                self.ledger.wakers(-1);
                self.joined(unit, panics, result);
            }
            Poll::Pending => self.joined(unit, panics, handle.join()),
        }
    }

    fn scope(self: &Arc<Self>, number: usize, bodies: &[Arc<Body>], actor: Actor<'_>) {
        let Some(queue) = self.queue(number) else { return };
        if self.plan.is_drained(number) {
            // The queue may refuse any of them.
            let spawned: Vec<_> = bodies
                .iter()
                .filter_map(|body| Some((body, self.spawn(number, body, actor, None)?)))
                .collect();
            for (body, (unit, handle)) in spawned {
                self.joined(unit, body.panics, handle.join());
            }
            return self.let_go(number, queue, actor);
        }
        // Borrowed by the closures: they must have ended when `scope` returns.
        let ran: Vec<AtomicU32> = bodies.iter().map(|_| AtomicU32::new(0)).collect();
        let mut panicking = Vec::new();
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            queue.scope(|scope| {
                for (body, ran) in bodies.iter().zip(&ran) {
                    let unit = self.ledger.add_closure();
                    let captured = Captured::new(&self.ledger, self.name(unit));
                    let bursts = self.plan.hardships.drops_panic;
                    let captured = captured.that_panics(bursts);
                    if body.panics {
                        panicking.push(panic_text(unit));
                    } else {
                        panicking.extend(captured.panic_text());
                    }
                    let call = self.ledger.begin_call(unit, number, actor.cpu);
                    scope.spawn(move || {
                        let _captured = captured;
                        let actor = Actor { within: Some(number), ..Actor::default() };
                        let end = |_| {
                            ran.fetch_add(1, Ordering::Relaxed);
                            body.panics
                        };
                        self.run(unit, body, actor, bursts, end);
                    });
                    self.ledger.end_call(call, true);
                    note(format_args!("closure {unit} spawned in a scope of queue-{number}"));
                }
            });
        }));
        note(format_args!("scope of {} closures on queue-{number} has ended", bodies.len()));
        if let Some(at) = ran.iter().position(|ran| ran.load(Ordering::Relaxed) != 1) {
            self.ledger.violation(format!(
                "a scope of queue-{number} ended, and its closure {at} had run to its end {} times",
                ran[at].load(Ordering::Relaxed)
            ));
        }
        let right = match &outcome {
            Ok(()) => panicking.is_empty(),
            Err(panic) => {
                panic.downcast_ref::<String>().is_some_and(|text| panicking.contains(text))
            }
        };
        if !right {
            self.ledger.violation(format!(
                "a scope of queue-{number} ended with {}; expected was a panic of {panicking:?}",
                if outcome.is_ok() { "no panic" } else { "another panic" }
            ));
        }
        self.let_go(number, queue, actor);
    }

    /// Waits until everything that was queued on the queue before now has ended, without touching the runtime: nothing
    /// that this thread does must help a forgotten item.
    pub(super) fn wait_for(&self, queue: usize) {
        let mark = self.ledger.outstanding(queue);
        let deadline = Sim::now() + PATIENCE;
        let mut pause = Duration::from_micros(20);
        while let Some(left) = self.ledger.still_waiting(queue, mark) {
            if Sim::now() >= deadline {
                self.ledger.violation(format!(
                    "queue-{queue}: what was queued has not ended {PATIENCE:?} later: {left}"
                ));
                return;
            }
            self.sleep_and_ask(pause);
            pause = (pause * 2).min(Duration::from_millis(10));
        }
        note(format_args!("has awaited queue-{queue}"));
    }

    // ---- changes ---------------------------------------------------------------------------------------------

    pub(super) fn change(&self, number: usize, change: &Change) {
        let Some(queue) = self.queue(number) else { return };
        note(format_args!("sets queue-{number} {change}"));
        if let Change::MaxActive(_) | Change::MinActive(_) = change {
            self.change_limit(number, &queue, change);
            return self.let_go(number, queue, Actor::default());
        }
        self.ledger.begin_change(number, |attributes| match change {
            Change::AffinityScope(scope) => attributes.affinity_scope = *scope,
            Change::Strict(on) => attributes.affinity_strict = *on,
            Change::Localize(on) => attributes.localize = *on,
            Change::Helping(on) => attributes.helping = *on,
            Change::Affinity(on) => attributes.affinity_enabled = *on,
            Change::Mask(mask) => attributes.cpumask.clone_from(mask),
            Change::Nice(nice) => attributes.nice = *nice,
            Change::Idle(on) => attributes.sched_idle = *on,
            Change::Slice(slice) => attributes.time_slice = *slice,
            Change::MaxActive(_) | Change::MinActive(_) => {}
        });
        let made = match change {
            Change::AffinityScope(scope) => queue.set_affinity_scope(*scope),
            Change::Strict(on) => queue.set_affinity_strict(*on),
            Change::Localize(on) => queue.set_localize(*on),
            Change::Helping(on) => queue.set_helping(*on),
            Change::Affinity(on) => queue.set_affinity_enabled(*on),
            Change::Mask(mask) => queue.set_cpumask(mask.clone()),
            Change::Nice(nice) => queue.set_nice(*nice),
            Change::Idle(on) => queue.set_sched_idle(*on),
            Change::Slice(slice) => queue.set_time_slice(*slice),
            Change::MaxActive(_) | Change::MinActive(_) => Ok(()),
        };
        self.ledger.end_change(number, made.is_ok());
        if let Some(possible) = self.may_be_made(number, change)
            && possible != made.is_ok()
        {
            let answer = made.map_or_else(|error| error.to_string(), |()| "accepted".into());
            self.ledger.violation(format!("queue-{number} {change}: {answer}"));
        }
        self.let_go(number, queue, Actor::default());
    }

    fn change_limit(&self, number: usize, queue: &Workqueue<Sim>, change: &Change) {
        let kind = self.plan.queues[number].kind;
        let mut possible = true;
        self.ledger.begin_limit(number, |bounds| {
            let changed = match (change, kind) {
                (Change::MinActive(items), Kind::Unbound) => bounds.with_min_active(*items),
                (Change::MaxActive(items), Kind::Unbound | Kind::PerCpu) => {
                    Some(bounds.with_max_active(*items))
                }
                _ => None,
            };
            possible = changed.is_some();
            // A change that must be refused counts as if it had not been requested.
            changed.unwrap_or(bounds)
        });
        let made = match change {
            Change::MinActive(items) => queue.set_min_active(*items),
            Change::MaxActive(items) => queue.set_max_active(*items),
            _ => Ok(()),
        };
        self.ledger.end_limit(number);
        if made.is_ok() != possible {
            self.ledger.violation(format!("queue-{number} {change}: {made:?}"));
        }
    }

    /// Whether a change can be carried out, if that is known.
    fn may_be_made(&self, number: usize, change: &Change) -> Option<bool> {
        if self.plan.queues[number].kind == Kind::PerCpu {
            // An attribute that this kind of queue lacks can only be left as it is.
            let same = match change {
                Change::AffinityScope(scope) => scope.is_none(),
                Change::Strict(on) | Change::Localize(on) => !on,
                Change::Helping(on) | Change::Affinity(on) => *on,
                Change::Mask(mask) => mask.is_none(),
                _ => true,
            };
            if !same {
                return Some(false);
            }
        }
        match change {
            Change::Nice(nice) => Some((-20..=19).contains(nice)),
            Change::Slice(Some(slice)) => Some((SLICES[0]..=SLICES[1]).contains(slice)),
            Change::Mask(Some(mask)) if !mask.is_subset(&self.plan.possible()) => Some(false),
            Change::Mask(Some(mask)) if mask.is_empty() => Some(false),
            Change::Mask(Some(mask)) => self.allowed().map(|allowed| mask.intersects(&allowed)),
            _ => Some(true),
        }
    }

    pub(super) fn change_runtime(&self, op: &Op) {
        let runtime = self.runtime.lock().expect("not held by a panic").clone();
        let Some(runtime) = runtime else { return };
        note(op);
        match op {
            Op::DefaultScope(scope) => {
                self.ledger.begin_defaults(|defaults| defaults.scope = *scope);
                runtime.set_default_affinity_scope(*scope);
                self.ledger.end_defaults();
            }
            Op::RuntimeAffinity(on) => {
                self.ledger.begin_defaults(|defaults| defaults.affinity = *on);
                runtime.set_affinity_enabled(*on);
                self.ledger.end_defaults();
            }
            Op::Spin(looks) => runtime.set_spin(*looks),
            Op::Freeze(time) => {
                if let Err(error) = runtime.freeze() {
                    self.ledger.violation(format!("an issuer may freeze: {error}"));
                }
                self.ledger.begin_frozen();
                Sim::sleep(*time);
                self.ledger.end_frozen();
                runtime.thaw();
            }
            _ => runtime.refresh(),
        }
    }
}
