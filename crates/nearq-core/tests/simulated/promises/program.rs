//! The program that makes the calls, and compares the results with the model.

use std::sync::atomic::AtomicU32 as Plain;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nearq_core::{AffinityScope, JoinHandle, Runtime, Work, Workqueue};
use nearq_platform::{Atomic, Instant, LockPlatform, Ordering, ThreadSpec, Threads};
use nearq_sim::Sim;

use super::Call;
use super::model::*;

type SimWord = <Sim as LockPlatform>::AtomicU32;

/// More threads than this would need more CPUs.
const MOST_SPAWNED: usize = 3;
/// The time in which everything comes to rest. It is long, because pushers rely on a worker that has run short items for a while to be back
/// in a moment; if that worker blocks, the monitor must notice it.
const REST: Duration = Duration::from_millis(12);
/// The time in which a call is made, or in which what is due is done.
const MOMENT: Duration = Duration::from_micros(300);

/// What an item and the driver share.
pub(crate) struct Shared {
    open: SimWord,
    runs: Plain,
    inside: Plain,
    /// One more than the number of the queue on which it queues itself.
    again: Plain,
}

impl Shared {
    pub(crate) fn new(open: bool) -> Arc<Self> {
        let zero = || Plain::new(0);
        let open = SimWord::new(u32::from(open));
        Arc::new(Shared { open, runs: zero(), inside: zero(), again: zero() })
    }

    pub(crate) fn pass(&self) {
        while self.open.load(Ordering::SeqCst) == 0 {
            Sim::wait(&self.open, 0, None);
        }
    }

    pub(crate) fn open(&self) {
        self.open.store(1, Ordering::SeqCst);
        Sim::wake(&raw const self.open, usize::MAX);
    }

    pub(crate) fn close(&self) {
        self.open.store(0, Ordering::SeqCst);
    }
}

/// A call that may block, and what the model says about it.
pub(crate) struct Waiter {
    what: Call,
    /// 0 while it blocks; then one more than what it returned.
    returned: Arc<Plain>,
    expected: u32,
    until: Until,
}

pub(crate) enum Until {
    Over(Vec<Queueing>),
    /// As `Over`; then the item is enabled once.
    Cancelled(usize, Vec<Queueing>),
    Empty(usize),
    /// Freezing: nothing of the freezable queue runs, or it is thawed.
    Still,
}

/// A closure: its handle until it is joined, and what it shares with the program.
type Spawned = (Option<JoinHandle<usize, Sim>>, Arc<Shared>);

pub(crate) struct Program {
    runtime: Runtime<Sim>,
    queues: Vec<Arc<Workqueue<Sim>>>,
    items: Vec<(Work<Sim>, Arc<Shared>)>,
    spawned: Vec<Spawned>,
    waiters: Vec<Waiter>,
    threads: Vec<<Sim as Threads>::JoinHandle>,
    /// What has started since the last check.
    started: Arc<Mutex<Vec<Runnable>>>,
    model: Model,
}

pub(crate) const FALSE: u32 = 1;
pub(crate) const TRUE: u32 = 2;

pub(crate) fn as_word(answer: bool) -> u32 {
    if answer { TRUE } else { FALSE }
}

impl Program {
    pub(crate) fn new() -> Self {
        let runtime = Runtime::<Sim>::builder_in().spin(0).build().expect("the machine is known");
        let build = |name: &str, limit| {
            let builder = runtime
                .workqueue_builder(name)
                .affinity_scope(AffinityScope::System)
                .max_active(limit);
            if limit == 1 { builder.freezable() } else { builder }
        };
        let ordered = runtime.workqueue_builder("ordered").ordered();
        let queues: Vec<_> = [ordered, build("freezable", 1), build("plain", 2)]
            .into_iter()
            .map(|builder| Arc::new(builder.build().expect("the call succeeds")))
            .collect();
        let log = Arc::new(Mutex::new(Vec::new()));
        let weak: Vec<_> = queues.iter().map(Arc::downgrade).collect();
        let items = (0..ITEMS).map(|number| Self::item(number, weak.clone(), &log)).collect();
        Program {
            runtime,
            queues,
            items,
            spawned: Vec::new(),
            waiters: Vec::new(),
            threads: Vec::new(),
            started: log,
            model: Model::new(),
        }
    }

    pub(crate) fn item(
        number: usize,
        queues: Vec<Weak<Workqueue<Sim>>>,
        log: &Arc<Mutex<Vec<Runnable>>>,
    ) -> (Work<Sim>, Arc<Shared>) {
        let shared = Shared::new(true);
        let (shared_clone, log) = (Arc::clone(&shared), Arc::clone(log));
        let work = Work::new_in(move |work: &Work<Sim>| {
            assert_eq!(shared_clone.inside.swap(1, Ordering::SeqCst), 0, "two executions at once");
            shared_clone.runs.fetch_add(1, Ordering::SeqCst);
            log.lock().expect("the mutex is not poisoned").push(Runnable::Item(number));
            shared_clone.pass();
            let again = shared_clone.again.swap(0, Ordering::SeqCst) as usize;
            if again != 0 {
                let queue = queues[again - 1].upgrade().expect("the program owns the handle");
                let _ = queue.try_queue(work);
            }
            shared_clone.inside.store(0, Ordering::SeqCst);
        });
        (work, shared)
    }

    /// Makes a call in a thread of its own.
    pub(crate) fn wait(
        &mut self,
        what: Call,
        expected: u32,
        until: Until,
        call: impl FnOnce() -> bool + Send + 'static,
    ) {
        let returned = Arc::new(Plain::new(0));
        let returned_clone = Arc::clone(&returned);
        let main = move || returned_clone.store(as_word(call()), Ordering::SeqCst);
        self.threads
            .push(Sim::spawn(ThreadSpec::default(), main).expect("a thread can be started"));
        self.waiters.push(Waiter { what, returned, expected, until });
    }

    /// A delay after which nothing else is due at the same time or close to it.
    pub(crate) fn delay(&self, millis: u64) -> Duration {
        let mut delay = Duration::from_millis(millis);
        if millis == 0 {
            return delay;
        }
        let now = Sim::now();
        let is_near = |delay: Duration| {
            self.model.deadlines().any(|other| {
                let (deadline, other) = ((now + delay).as_nanos(), other.as_nanos());
                deadline.abs_diff(other) < 4 * MOMENT.as_nanos() as u64
            })
        };
        while is_near(delay) {
            delay += MOMENT;
        }
        delay
    }

    pub(crate) fn arm(&mut self, queue: usize, item: usize, delay: Duration) {
        if delay.is_zero() {
            self.model.queue(queue, item, None);
        } else if !self.model.refuses(item) {
            // The call read the clock a little later; nothing is checked so soon after a deadline.
            let deadline = Sim::now() + delay;
            self.model.items[item].pending = Pending::Timed { queue, deadline };
        }
    }

    pub(crate) fn make(&mut self, call: Call) {
        match call {
            Call::Queue { queue, item } => {
                let answer = self.queues[queue].try_queue(&self.items[item].0).ok();
                assert_eq!(answer, self.model.queue(queue, item, None));
            }
            Call::QueueOn { queue, item, cpu } => {
                let answer = self.queues[queue].queue_on(cpu, &self.items[item].0).ok();
                assert_eq!(answer, self.model.queue(queue, item, None));
            }
            Call::QueueDelayed { queue, item, millis } => {
                let delay = self.delay(millis);
                let refused = self.model.refuses(item)
                    || (millis == 0 && self.model.queues[queue].drainers > 0);
                self.arm(queue, item, delay);
                let answer = self.queues[queue].queue_delayed(&self.items[item].0, delay);
                assert_eq!(answer, !refused);
            }
            Call::ModifyDelayed { queue, item, millis } => {
                let delay = self.delay(millis);
                let pending = self.model.cancel(item);
                self.arm(queue, item, delay);
                let answer = self.queues[queue].modify_delayed(&self.items[item].0, delay);
                assert_eq!(answer, pending);
            }
            Call::Again { queue, item } => {
                if self.model.items[item].running.is_some() {
                    self.model.items[item].again = Some(queue);
                    self.items[item].1.again.store(queue as u32 + 1, Ordering::SeqCst);
                }
            }
            Call::Cancel { item } => {
                assert_eq!(self.items[item].0.cancel(), self.model.cancel(item));
            }
            Call::CancelSync { item } => {
                let work = self.items[item].0.clone();
                self.model.items[item].disabled_by_waiters += 1;
                let cancelled = self.model.cancel(item);
                let running = self.model.items[item].running.map(|(_, number)| number);
                let until = Until::Cancelled(item, running.into_iter().collect());
                self.wait(call, as_word(cancelled), until, move || {
                    work.cancel_sync().expect("from outside")
                });
            }
            Call::Disable { item } => {
                self.model.items[item].disabled += 1;
                assert_eq!(self.items[item].0.disable(), self.model.cancel(item));
            }
            Call::DisableSync { item } => {
                let work = self.items[item].0.clone();
                self.model.items[item].disabled += 1;
                let cancelled = self.model.cancel(item);
                let running = self.model.items[item].running.map(|(_, number)| number);
                let until = Until::Over(running.into_iter().collect());
                self.wait(call, as_word(cancelled), until, move || {
                    work.disable_sync().expect("from outside")
                });
            }
            Call::Enable { item } => {
                let state = &mut self.model.items[item];
                if state.disabled > 0 {
                    state.disabled -= 1;
                    let last = state.disabled + state.disabled_by_waiters == 0;
                    assert_eq!(self.items[item].0.enable(), last);
                }
            }
            Call::EnableAndQueue { queue, item } => {
                let state = &mut self.model.items[item];
                if state.disabled > 0 {
                    state.disabled -= 1;
                    let queued = self.model.queue(queue, item, None).unwrap_or(false);
                    let answer = self.queues[queue].enable_and_queue(&self.items[item].0);
                    assert_eq!(answer, queued);
                }
            }
            Call::Flush { item } => {
                let work = self.items[item].0.clone();
                let busy = self.model.busy(item);
                self.wait(call, as_word(!busy.is_empty()), Until::Over(busy), move || {
                    work.flush().expect("from outside")
                });
            }
            Call::FlushDelayed { item } => {
                let work = self.items[item].0.clone();
                // If it runs at once, there is nothing left to wait for.
                let timed = self.model.expedite(item);
                let busy = self.model.busy(item);
                self.wait(call, as_word(timed || !busy.is_empty()), Until::Over(busy), move || {
                    work.flush_delayed().expect("from outside")
                });
            }
            Call::Close { item } => {
                self.model.items[item].closed = true;
                self.items[item].1.close();
            }
            Call::Open { item } => {
                self.model.items[item].closed = false;
                self.model.finish(item);
                self.items[item].1.open();
            }
            Call::FlushQueue { queue } => {
                let all = self.model.queueings.iter().enumerate();
                let left = all.filter(|(_, (on, over))| *on == queue && !over);
                let until = Until::Over(left.map(|(number, _)| number).collect());
                let queue = Arc::clone(&self.queues[queue]);
                self.wait(call, TRUE, until, move || queue.flush().is_ok());
            }
            Call::Drain { queue } => {
                self.model.queues[queue].drainers += 1;
                let on = Arc::clone(&self.queues[queue]);
                self.wait(call, TRUE, Until::Empty(queue), move || on.drain().is_ok());
            }
            Call::SetMaxActive { queue, items } => {
                self.model.queues[queue].limit = items;
                self.model.let_in(queue);
                self.queues[queue].set_max_active(items).expect("not the ordered one");
            }
            Call::Freeze => {
                self.model.frozen = true;
                let runtime = self.runtime.clone();
                self.wait(call, TRUE, Until::Still, move || runtime.freeze().is_ok());
            }
            Call::Thaw => {
                self.model.frozen = false;
                self.model.let_in(FREEZABLE);
                self.runtime.thaw();
            }
            Call::Spawn { queue } => self.spawn(queue),
            Call::OpenSpawned => {
                let closures = &self.model.spawned;
                let first = closures.iter().position(|one| matches!(one, Closure::Running(..)));
                if let Some(first) = first
                    && let Closure::Running(queue, number) = self.model.spawned[first]
                {
                    self.model.spawned[first] = Closure::Ended;
                    self.model.over(number);
                    self.model.leave(queue);
                    self.spawned[first].1.open();
                }
            }
            Call::CancelSpawned => {
                let Some(handle) = self.spawned.last().and_then(|last| last.0.as_ref()) else {
                    return;
                };
                let last = self.model.spawned.len() - 1;
                let answer = handle.cancel();
                if let Closure::HeldBack(queue, number) = self.model.spawned[last] {
                    self.model.queues[queue].held.retain(|held| held.1 != number);
                    self.model.over(number);
                    self.model.spawned[last] = Closure::Cancelled;
                    assert!(answer);
                } else if self.model.spawned[last] != Closure::Cancelled {
                    assert!(!answer);
                }
            }
            Call::Pass { millis } => Sim::sleep(Duration::from_millis(millis)),
        }
    }

    pub(crate) fn spawn(&mut self, queue: usize) {
        let over = |one: &&Closure| matches!(one, Closure::Ended | Closure::Cancelled);
        let number = self.model.spawned.len();
        if number - self.model.spawned.iter().filter(over).count() >= MOST_SPAWNED {
            return;
        }
        let shared = Shared::new(false);
        let (shared_clone, log) = (Arc::clone(&shared), Arc::clone(&self.started));
        let handle = self.queues[queue].try_spawn(move || {
            log.lock().expect("the mutex is not poisoned").push(Runnable::Spawned(number));
            shared_clone.pass();
            number
        });
        assert_eq!(handle.is_err(), self.model.queues[queue].drainers > 0);
        if let Ok(handle) = handle {
            self.spawned.push((Some(handle), shared));
            self.model.spawned.push(Closure::Ended);
            self.model.enter(queue, Runnable::Spawned(number));
        }
    }

    /// Sleeps until everything has come to rest, and nothing is about to be due.
    pub(crate) fn rest(&mut self) {
        loop {
            Sim::sleep(REST);
            let now = Sim::now();
            // What was due a moment ago is not at rest yet.
            let near = |deadline: Instant| now < deadline + REST && deadline < now + MOMENT;
            if !self.model.deadlines().any(near) {
                // A waiting thread that returns changes the model, so this repeats until none returns: first for what follows from the
                // call, then for what follows from the time that has passed.
                while self.let_waiters_go() {}
                self.model.expire(now);
                while self.let_waiters_go() {}
                return;
            }
        }
    }

    /// Applies to the model what follows from calls that return; returns whether one does.
    pub(crate) fn let_waiters_go(&mut self) -> bool {
        let model = &mut self.model;
        let over = |model: &Model, all: &[Queueing]| all.iter().all(|one| model.is_over(*one));
        let gone = self.waiters.iter().position(|waiter| match &waiter.until {
            Until::Over(all) | Until::Cancelled(_, all) => over(model, all),
            Until::Empty(queue) => {
                model.queues[*queue].active == 0 && model.queues[*queue].held.is_empty()
            }
            Until::Still => !model.frozen || model.queues[FREEZABLE].active == 0,
        });
        let Some(gone) = gone else { return false };
        let waiter = self.waiters.remove(gone);
        match waiter.until {
            Until::Cancelled(item, _) => model.items[item].disabled_by_waiters -= 1,
            Until::Empty(queue) => model.queues[queue].drainers -= 1,
            Until::Over(_) | Until::Still => {}
        }
        let returned = waiter.returned.load(Ordering::SeqCst);
        assert_eq!(returned, waiter.expected, "{:?} has returned", waiter.what);
        true
    }

    pub(crate) fn compare(&mut self) {
        for waiter in &self.waiters {
            let returned = waiter.returned.load(Ordering::SeqCst);
            assert_eq!(returned, 0, "{:?} waits", waiter.what);
        }
        for (number, ((work, shared), model)) in
            self.items.iter().zip(&self.model.items).enumerate()
        {
            let real = (
                work.is_pending(),
                work.is_running(),
                work.is_disabled(),
                shared.runs.load(Ordering::SeqCst),
            );
            let expected = (
                model.pending != Pending::No,
                model.running.is_some(),
                model.disabled + model.disabled_by_waiters > 0,
                model.runs,
            );
            assert_eq!(real, expected, "item {number}: pending, running, disabled, runs");
        }
        for (queue, model) in self.queues.iter().zip(&self.model.queues) {
            assert_eq!(
                queue.inactive(),
                model.held.len(),
                "items are held back on {}",
                queue.name()
            );
        }
        for ((handle, _), model) in self.spawned.iter().zip(&self.model.spawned) {
            if let Some(handle) = handle {
                let over = matches!(model, Closure::Ended | Closure::Cancelled);
                assert_eq!(handle.is_finished(), over);
            }
        }
        let expected = core::mem::take(&mut self.model.started);
        self.compare_starts(&expected);
    }

    /// The same items have started, and those that ran only on the ordered queue started in that order.
    pub(crate) fn compare_starts(&self, expected: &[(usize, Runnable)]) {
        let real = core::mem::take(&mut *self.started.lock().expect("the mutex is not poisoned"));
        assert_eq!(real.len(), expected.len(), "{real:?} have started, not {expected:?}");
        let elsewhere =
            |runnable: Runnable| expected.iter().any(|one| one.1 == runnable && one.0 != ORDERED);
        let real = real.into_iter().filter(|runnable| !elsewhere(*runnable));
        let ordered = expected.iter().map(|one| one.1).filter(|runnable| !elsewhere(*runnable));
        assert!(ordered.eq(real), "not in the order of {expected:?}");
    }

    pub(crate) fn run(&mut self, calls: &[Call]) {
        for call in calls {
            self.make(*call);
            self.rest();
            self.compare();
        }
        self.let_all_go();
    }

    /// Everything goes on, and nothing may be left in the end.
    pub(crate) fn let_all_go(&mut self) {
        self.make(Call::Thaw);
        self.rest();
        for item in 0..ITEMS {
            self.make(Call::Open { item });
            self.rest();
            self.make(Call::Cancel { item });
            self.rest();
        }
        while self.model.spawned.iter().any(|one| matches!(one, Closure::Running(..))) {
            self.make(Call::OpenSpawned);
            self.rest();
            self.compare();
        }
        self.compare();
        assert!(self.waiters.is_empty());
        assert!(self.model.queueings.iter().all(|(_, over)| *over));
        for (number, (handle, _)) in self.spawned.iter_mut().enumerate() {
            let result = handle.take().expect("not joined").join().ok();
            let ended = self.model.spawned[number] == Closure::Ended;
            assert_eq!(result, ended.then_some(number));
        }
    }

    pub(crate) fn end(self) {
        self.threads.into_iter().for_each(Sim::join);
        for queue in self.queues {
            drop(Arc::into_inner(queue).expect("no other thread has it"));
        }
        let shared: Vec<_> = self.items.into_iter().map(|(_, shared)| shared).collect();
        // When the runtime ends, the timer gives up what was taken off it.
        drop(self.runtime);
        Sim::sleep(REST);
        for (number, shared) in shared.iter().enumerate() {
            assert_eq!(Arc::strong_count(shared), 1, "item {number} is gone");
        }
    }
}
