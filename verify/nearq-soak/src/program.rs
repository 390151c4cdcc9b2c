//! Runs a program on the simulated machine with the real runtime, and reports to the ledger what the program does and observes.
//!
//! Everything here runs on simulated threads. What the program's threads share (`ProgramState`) is plain memory under locks that no thread
//! holds across a call of the platform.

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nearq::inspect::QueueKind;
use nearq::{CpuSet, Error, Runtime, Work, Workqueue};
use nearq_platform::{LockPlatform, PAUSE, ThreadSpec, Threads};
use nearq_sim::Sim;

use super::futures::{Kept, Wakers};
use super::ledger::{Ledger, Unit};
use super::plan::{Body, Change, Kind, Op, Plan, queue_name};
use super::steps::SLICES;

/// What is queued runs within this time, whatever goes wrong: a thousand times what a program's work takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// After this long without work, everything must be quiet: the monitor checks for 20 ms, and timers may be 20 ms late.
const SETTLING: Duration = Duration::from_millis(200);
/// For how long it must then stay quiet.
const SILENCE: Duration = Duration::from_secs(2);
/// The number of switches between threads while the first thread sleeps once and no other thread runs.
const OWN_SWITCHES: u64 = 2;
/// The prefix of all lines of a program in the trace.
pub(crate) const NOTE: &str = "soak: ";

/// What the threads of a program share.
pub(super) struct ProgramState {
    pub(super) plan: Plan,
    pub(super) ledger: Arc<Ledger>,
    // Counted by `Arc`, because cloning a handle of the runtime itself is a call of the platform.
    pub(super) runtime: Mutex<Option<Arc<Runtime<Sim>>>>,
    pub(super) queues: Mutex<Vec<Option<Arc<Workqueue<Sim>>>>>,
    pub(super) works: Mutex<Vec<Option<Arc<Item>>>>,
    /// How often bodies may still queue each item.
    pub(super) budgets: Mutex<Vec<u64>>,
    /// What the outside thread must wake.
    pub(super) wakers: Wakers,
}

/// The context in which a step is carried out.
#[derive(Clone, Copy, Default)]
pub(super) struct Actor<'a> {
    /// The issuer, and the CPU that it cannot leave.
    pub(super) issuer: Option<usize>,
    pub(super) cpu: Option<usize>,
    /// In a body: the queue that it runs on, if that is certain.
    pub(super) within: Option<usize>,
    /// In an item's body: the item, and the handle that its function was given.
    pub(super) item: Option<(usize, &'a Work<Sim>)>,
}

/// A handle of an item. Dropping the last one drops what the function captured, whose drop may panic.
#[derive(Clone)]
pub(super) struct Item(Option<Work<Sim>>);

impl Deref for Item {
    type Target = Work<Sim>;

    fn deref(&self) -> &Work<Sim> {
        self.0.as_ref().expect("there until it is dropped")
    }
}

impl Drop for Item {
    fn drop(&mut self) {
        drop_quietly(self.0.take());
    }
}

/// Must be dropped exactly once; every function captures one.
pub(super) struct Captured {
    ledger: Arc<Ledger>,
    by: String,
    /// Whether its drop panics.
    panics: bool,
}

impl Captured {
    pub(super) fn new(ledger: &Arc<Ledger>, by: String) -> Self {
        ledger.captured(&by, 1);
        Captured { ledger: Arc::clone(ledger), by, panics: false }
    }

    /// The same; if `panics`, its drop panics unless it was [`used`](Self::used) before.
    pub(super) fn that_panics(mut self, panics: bool) -> Self {
        self.panics = panics;
        self
    }

    /// The payload of a panic in the drop of something.
    pub(super) fn text(by: &str) -> String {
        format!("what {by} captured panics on purpose")
    }

    /// The payload with which its drop panics, if it does.
    pub(super) fn panic_text(&self) -> Option<String> {
        self.panics.then(|| Self::text(&self.by))
    }

    /// The function runs: what it captured is dropped as a part of it.
    pub(super) fn used(self) -> Self {
        self.that_panics(false)
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        self.ledger.captured(&self.by, -1);
        if self.panics && !std::thread::panicking() {
            resume_unwind(Box::new(Self::text(&self.by)));
        }
    }
}

/// What a closure or a future returns: its number. Its drop may panic.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) number: usize,
    panics: bool,
}

impl Answer {
    pub(super) fn new(number: usize, panics: bool) -> Self {
        Answer { number, panics }
    }

    /// The same number, for the thread that joins: its drop does not panic.
    pub(super) fn joined(mut self) -> Self {
        self.panics = false;
        self
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if self.panics && !std::thread::panicking() {
            resume_unwind(Box::new(format!("the result of {} panics on purpose", self.number)));
        }
    }
}

/// Drops something whose drop may panic: a handle whose result may already exist, a closure that came back.
pub(super) fn drop_quietly(value: impl Sized) {
    let _ = catch_unwind(AssertUnwindSafe(|| drop(value)));
}

/// Writes a line into the trace. Costs no virtual time.
pub(super) fn note(text: impl std::fmt::Display) {
    Sim::warn(&format!("{NOTE}{text}"));
}

/// The calling thread's number.
pub(super) fn me() -> u64 {
    Sim::thread_id(Sim::current_thread())
}

/// The text that a unit panics with.
pub(super) fn panic_text(unit: Unit) -> String {
    format!("unit {unit} panics on purpose")
}

/// The first thread of the program.
pub(crate) fn main(plan: &Plan, ledger: &Arc<Ledger>) {
    let state = ProgramState::set(plan, ledger);
    let issuers: Vec<_> = (0..plan.issuers.len())
        .map(|issuer| {
            let state = Arc::clone(&state);
            let affinity = plan.issuers[issuer].pinned.map(CpuSet::single);
            start(&format!("issuer-{issuer}"), affinity, move || state.issue(issuer))
        })
        .collect();
    let outside = {
        let state = Arc::clone(&state);
        start("outside", None, move || state.wakers.wake_them())
    };
    let scarcity = plan.hardships.refused.map(|(after, time)| {
        let faults = plan.faults;
        start("scarcity", None, move || {
            Sim::sleep(after);
            let mut refusing = faults;
            refusing.spawn_refused_one_in = 1;
            note("every thread is refused");
            Sim::start_faults(refusing);
            Sim::sleep(time);
            note("threads can be had again");
            Sim::start_faults(faults);
        })
    });
    issuers.into_iter().for_each(Sim::join);
    scarcity.into_iter().for_each(Sim::join);
    state.come_to_rest();
    state.wakers.close();
    Sim::join(outside);
    state.strike();
}

/// Starts a thread. If the machine refuses it, tries again.
fn start(
    name: &str,
    affinity: Option<CpuSet>,
    main: impl FnOnce() + Send + 'static,
) -> <Sim as Threads>::JoinHandle {
    let main = Arc::new(Mutex::new(Some(main)));
    loop {
        let main = Arc::clone(&main);
        let spec =
            ThreadSpec { name: name.into(), affinity: affinity.clone(), ..ThreadSpec::default() };
        let started = Sim::spawn(spec, move || {
            let main = main.lock().expect("nobody panics with it").take();
            main.expect("one thread is started")();
        });
        match started {
            Ok(handle) => return handle,
            Err(_) => Sim::sleep(Duration::from_micros(100)),
        }
    }
}

impl ProgramState {
    // ---- beginning and end -----------------------------------------------------------------------------------

    fn set(plan: &Plan, ledger: &Arc<Ledger>) -> Arc<Self> {
        let (begins, ends) = (Arc::clone(ledger), Arc::clone(ledger));
        let settings = &plan.runtime;
        let (hooks, panic) = (plan.hardships.hooks, plan.hardships.hooks_panic);
        let hook = move || {
            hooks.into_iter().for_each(Sim::sleep);
            if panic {
                resume_unwind(Box::new("a hook panics on purpose"));
            }
        };
        let mut runtime = Runtime::<Sim>::builder_in()
            .default_affinity_scope(settings.default_affinity_scope)
            .affinity_enabled(settings.affinity)
            .cache_shard_size(settings.shard_size)
            .spin(settings.spin)
            .idle_timeout(settings.idle_timeout)
            .on_worker_start(move |info| {
                begins.worker_begins(me(), info.name.clone(), info.pod.clone());
                note(format_args!("worker {} of pod {} begins", info.name, info.pod));
                hook();
            })
            .on_worker_stop(move |_| {
                ends.worker_ends(me());
                hook();
            });
        if let Some(threads) = plan.hardships.threads {
            runtime = runtime.thread_limit(threads);
        }
        let runtime = runtime.build().expect("the simulated machine can be described");
        let state = Arc::new(ProgramState {
            plan: plan.clone(),
            ledger: Arc::clone(ledger),
            runtime: Mutex::new(None),
            queues: Mutex::default(),
            works: Mutex::default(),
            budgets: Mutex::new(plan.items.iter().map(|item| item.budget).collect()),
            wakers: Wakers::default(),
        });
        for number in 0..plan.queues.len() {
            let queue = state.build(&runtime, number);
            state.queues.lock().expect("not held by a panic").push(Some(Arc::new(queue)));
        }
        for number in 0..plan.items.len() {
            let unit = ledger.add_unit(format!("item {number}"));
            debug_assert_eq!(unit, number, "items are the first units");
            let (on, captured) =
                (Arc::clone(&state), Captured::new(ledger, format!("item {number}")));
            let captured = captured.that_panics(plan.hardships.drops_panic);
            let work = Work::<Sim>::new_in(move |work: &Work<Sim>| {
                let _ = &captured;
                on.run_item(number, work);
            });
            state.works.lock().expect("not held by a panic").push(Some(Arc::new(Item(Some(work)))));
        }
        *state.runtime.lock().expect("not held by a panic") = Some(Arc::new(runtime));
        state
    }

    fn build(&self, runtime: &Runtime<Sim>, number: usize) -> Workqueue<Sim> {
        let plan = &self.plan.queues[number];
        let mut attributes = plan.attributes.clone();
        let mut rescuer = plan.rescuer;
        loop {
            let builder = runtime
                .workqueue_builder(queue_name(number))
                .affinity_scope(attributes.affinity_scope)
                .affinity_strict(attributes.affinity_strict)
                .localize(attributes.localize)
                .helping(attributes.helping)
                .affinity_enabled(attributes.affinity_enabled)
                .cpumask(attributes.cpumask.clone())
                .nice(attributes.nice)
                .max_active(plan.max_active)
                .time_slice(attributes.time_slice)
                .kind(match plan.kind {
                    Kind::Unbound => QueueKind::Unbound,
                    Kind::PerCpu => QueueKind::PerCpu,
                    Kind::Ordered => QueueKind::Ordered,
                });
            let builder = if attributes.sched_idle { builder.sched_idle() } else { builder };
            let builder = if plan.freezable { builder.freezable() } else { builder };
            let builder = if plan.cpu_intensive { builder.cpu_intensive() } else { builder };
            let builder = if rescuer { builder.rescuer() } else { builder };
            match builder.build() {
                Ok(queue) => {
                    self.ledger.add_queue(attributes, plan);
                    return queue;
                }
                // No thread can be started at the moment.
                Err(Error::NoRescuer { .. }) => rescuer = false,
                // The process may use no CPU of the mask.
                Err(error) => {
                    assert!(attributes.cpumask.take().is_some(), "{error}");
                }
            }
        }
    }

    /// Waits until everything that was queued has ended, and whatever that queued, and so on.
    fn come_to_rest(&self) {
        let deadline = Sim::now() + PATIENCE * 2;
        let queues = 0..self.plan.queues.len();
        loop {
            while queues.clone().any(|queue| self.ledger.still_waiting(queue, u64::MAX).is_some())
                && Sim::now() < deadline
            {
                queues.clone().for_each(|queue| self.wait_for(queue));
            }
            let before = self.ledger.doings();
            if self.ledger.futures_left().is_some() || self.ledger.anything_runs() {
                self.sleep_and_ask(Duration::from_millis(1));
            } else if let Some(until) = self.ledger.loose_until() {
                // It is not known whether these will run, so they get as much time as anything else.
                Sim::sleep(until.saturating_since(Sim::now()) + SETTLING);
                if self.ledger.doings() == before
                    && !self.ledger.anything_runs()
                    && !self.is_anything_pending()
                {
                    break;
                }
            } else if self.must_ask() {
                Sim::sleep(SETTLING);
                if !self.is_anything_pending() {
                    break;
                }
            } else {
                break;
            }
            if Sim::now() > deadline {
                let left = self.ledger.futures_left().unwrap_or("something that runs".into());
                self.ledger.violation(format!("{left} did not come to an end in {PATIENCE:?}"));
                break;
            }
        }
    }

    /// Sleeps, then asks for what the program waits for, if it may wait for that.
    pub(super) fn sleep_and_ask(&self, time: Duration) {
        Sim::sleep(time);
        if self.must_ask() {
            // As a thread does that polls a future, or asks whether an item is pending.
            Sim::retry_now();
        }
    }

    /// Whether what is left may wait until a thread asks for it: threads were refused, and the runtime has none that would try again.
    fn must_ask(&self) -> bool {
        let runtime = self.runtime.lock().expect("not held by a panic").clone();
        self.plan.hardships.refused.is_some() && runtime.is_some_and(|of| of.thread_count() == 0)
    }

    /// Asks for every item, like a program that waits for it.
    fn is_anything_pending(&self) -> bool {
        let works = self.works.lock().expect("not held by a panic").clone();
        let pending = works.iter().flatten().filter(|work| work.is_pending() || work.is_running());
        // Every item is asked for.
        pending.count() != 0
    }

    /// Everything has been queued and has run: checks that it is quiet, and tears everything down.
    fn strike(&self) {
        let ledger = &self.ledger;
        Sim::stop_faults();
        self.check_counts();
        let runtime = self.runtime.lock().expect("not held by a panic").take();
        let runtime = runtime.expect("taken here only");
        Sim::sleep(SETTLING);
        if self.plan.hardships.refused.is_some() {
            // A thread that was refused may be started by the last attempt, and then waits once more for others.
            Sim::sleep(PAUSE * 2);
        }
        if let Some(hook) = self.plan.hardships.hooks {
            // If the limit on threads makes pools wait for each other's threads, the last pool waits for the hooks of all others.
            Sim::sleep(hook * 2 * self.plan.possible().len() as u32);
        }
        let before = Sim::switches();
        Sim::sleep(SILENCE);
        let woken = (Sim::switches() - before).saturating_sub(OWN_SWITCHES);
        if woken > 0 {
            ledger.violation(format!(
                "threads ran {woken} times in {SILENCE:?} although there was no work: an idle runtime must not wake up"
            ));
        }
        if self.plan.runtime.idle_timeout < SETTLING / 10 && runtime.thread_count() != 0 {
            ledger.violation(format!(
                "{} workers are there after {SETTLING:?} without work; they were to end after {:?}",
                runtime.thread_count(),
                self.plan.runtime.idle_timeout
            ));
        }
        for queue in 0..self.plan.queues.len() {
            self.drop_queue(queue, Actor::default());
        }
        let works = std::mem::take(&mut *self.works.lock().expect("not held by a panic"));
        for (number, work) in works.iter().enumerate() {
            if work.as_ref().is_some_and(|work| work.is_pending() || work.is_running()) {
                ledger.violation(format!(
                    "item {number} is pending or running, and nothing is queued"
                ));
            }
        }
        drop(works);
        note("drops the runtime");
        drop(runtime);
        // The threads' last instructions, and those of a runtime that a worker ended.
        Sim::sleep(SETTLING);
        ledger.close();
    }

    /// The runtime's statistics say the same as the ledger.
    fn check_counts(&self) {
        for number in 0..self.plan.queues.len() {
            let Some(queue) = self.queue(number) else { continue };
            let (executed, mut panicked) = self.ledger.counts(number);
            if self.plan.hardships.drops_panic {
                // A future, or a result that nothing will take, is dropped as part of the execution that ends it.
                panicked = *panicked.start()..=*executed.end();
            }
            let count = |of: fn(&nearq::inspect::PoolStatistics) -> u64| -> u64 {
                queue.statistics().iter().map(of).sum()
            };
            // Thieves are the runtime's own.
            let completed = || count(|pwq| pwq.completed).saturating_sub(count(|pwq| pwq.thieves));
            // An execution is counted a moment after its function has returned.
            let deadline = Sim::now() + PATIENCE;
            let is_counted = || {
                completed() >= *executed.start() && count(|pwq| pwq.panicked) >= *panicked.start()
            };
            while !is_counted() && Sim::now() < deadline {
                self.sleep_and_ask(Duration::from_millis(1));
            }
            let (completed, counted) = (completed(), count(|pwq| pwq.panicked));
            if !executed.contains(&completed) {
                self.ledger.violation(format!(
                    "queue-{number}: {executed:?} queueings were accepted and not cancelled, the statistics say {completed} completed"
                ));
            }
            if !panicked.contains(&counted) {
                self.ledger.violation(format!(
                    "queue-{number}: {panicked:?} executions panicked, the statistics say {counted}"
                ));
            }
            self.check_limits(number, &queue);
        }
    }

    /// Nothing is queued: the queue says so for each domain, and each has the share of the limit that it must have.
    fn check_limits(&self, number: usize, queue: &Workqueue<Sim>) {
        let expected = self.ledger.limits(number);
        // A future that has ended may be executed once more, for nothing; and held back before that, until a thread can be started.
        let is_used = |row: &nearq::inspect::DomainLimit| row.active != 0 || row.inactive != 0;
        let deadline = Sim::now() + PATIENCE;
        while queue.limits().iter().any(is_used) && Sim::now() < deadline {
            self.sleep_and_ask(Duration::from_millis(1));
        }
        for row in queue.limits() {
            if is_used(&row) {
                self.ledger.violation(format!("queue-{number}: nothing runs, and it says {row:?}"));
            }
            if let Some(limit) = expected.iter().find(|(domain, _)| *domain == row.domain)
                && limit.1 != row.limit
            {
                self.ledger.violation(format!("queue-{number}: {row:?} instead of {limit:?}"));
            }
        }
    }

    // ---- threads ---------------------------------------------------------------------------------------------

    fn issue(self: &Arc<Self>, issuer: usize) {
        let plan = &self.plan.issuers[issuer];
        let allowed = self.allowed();
        let cpu = plan.pinned.filter(|cpu| allowed.is_some_and(|allowed| allowed.contains(*cpu)));
        let actor = Actor { issuer: Some(issuer), cpu, ..Actor::default() };
        let mut kept: Vec<Kept> = Vec::new();
        for op in &plan.ops {
            match op {
                Op::Step(step) => self.step(step, actor, &mut kept),
                Op::Await { queue } => self.wait_for(*queue),
                Op::Change { queue, change } => self.change(*queue, change),
                Op::Restless { queue, times } => {
                    for change in 1..=*times {
                        let slice = SLICES[0] + Duration::from_micros(change as u64);
                        self.change(*queue, &Change::Slice(Some(slice)));
                    }
                }
                Op::Limits(allowance) => {
                    note(op);
                    let possible = self.plan.possible();
                    Sim::set_limits(allowance.limits(&possible));
                }
                op => self.change_runtime(op),
            }
        }
        for kept in kept {
            self.join_kept(kept);
        }
    }

    /// The CPUs that the process may use, if that does not change.
    pub(super) fn allowed(&self) -> Option<CpuSet> {
        let plan = &self.plan;
        plan.limits_are_fixed().then(|| plan.allowance.limits(&plan.possible()).effective())
    }

    fn run_item(self: &Arc<Self>, number: usize, work: &Work<Sim>) {
        let plan = &self.plan.items[number];
        let within = (plan.queues.len() == 1).then_some(plan.queues[0]);
        let actor = Actor { within, item: Some((number, work)), ..Actor::default() };
        let panics =
            |before: u64| plan.panics_every != 0 && (before + 1).is_multiple_of(plan.panics_every);
        self.run(number, &plan.body, actor, false, panics);
    }

    /// One execution of a unit. If `bursts`, the caller panics right after it.
    pub(super) fn run(
        self: &Arc<Self>,
        unit: Unit,
        body: &Body,
        actor: Actor<'_>,
        bursts: bool,
        panics: impl FnOnce(u64) -> bool,
    ) {
        let cpu = Sim::current_cpu();
        let execution = self.ledger.begin_execution(unit, me(), cpu, Sim::now());
        note(format_args!("{} starts", self.name(unit)));
        for step in &body.steps {
            self.step(step, actor, &mut Vec::new());
        }
        let panics = panics(execution.number);
        self.ledger.end_execution(unit, execution, panics || bursts);
        note(format_args!("{} {}", self.name(unit), if panics { "panics" } else { "ends" }));
        if panics {
            // Not `panic!`: its hook would print a report of an intended panic.
            resume_unwind(Box::new(panic_text(unit)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::draw::draw;
    use crate::plan::{FuturePlan, Handle, Hardships, IssuerPlan, Step};
    use crate::verdict::{SeedOptions, run_plan};

    /// Every thread is refused while a future is spawned. The runtime then has no thread that would try again, and the program no handle.
    #[test]
    fn a_future_without_a_handle_is_asked_for() {
        let spawn =
            Step::Future { queue: 0, plan: Arc::new(FuturePlan::default()), handle: Handle::Drop };
        let ops = [Step::Sleep(Duration::from_millis(1)), spawn].map(Op::Step).to_vec();
        let refused = Some((Duration::ZERO, Duration::from_millis(100)));
        let mut plan = Plan {
            hardships: Hardships { refused, ..Hardships::default() },
            faults: nearq_sim::Faults::NONE,
            items: Vec::new(),
            issuers: vec![IssuerPlan { pinned: None, ops }],
            ..draw(0)
        };
        // A rescuer's thread would try again.
        plan.queues.iter_mut().for_each(|queue| queue.rescuer = false);
        let verdict = run_plan(plan, &SeedOptions::default());
        assert!(verdict.passed(), "{verdict}");
    }
}
