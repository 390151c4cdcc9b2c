//! What the workers are doing, as the monitor sees it from outside.
//!
//! A check reads the CPU clock of each worker that has a place of its concurrency limit (0.2 to 0.8 us). A worker whose clock moved about
//! as much as the time did has run all the while. For the others, the system is asked what they do (3 to 5 us), but only if they have run
//! since the last such question: a worker that has not run can neither have fallen asleep nor have ended its item.
//!
//! | [`Doing`] | clock | state | counts as |
//! |---|---|---|---|
//! | `Runs` | moved with the time | not asked | runnable |
//! | `Waits` | stands still, or moved less | runnable: preempted, or throttled by its control group | runnable: no other thread would fare better |
//! | `Blocked` | stands still | asleep | not there |
//! | `Unknown` | read once | not asked yet | runnable: no thread is started on a guess |
//! | `Unreported` | stands still, or moved less | the system does not report it | as `Unknown`; but nothing is taken away for it, because it may be asleep |
//!
//! If the clocks of a pool's workers moved by about as much as its CPUs can give, no worker's state is asked for in three checks of four.
//! The clock of a worker that was found asleep and has stood still since is read in one check of four: nothing depends on it soon. A
//! blocked worker that is woken but has not got a CPU yet still counts as blocked; it is seen once it has run. A worker that has run a bit
//! since it was asleep is taken to be asleep again until its state is asked for. Workers that were awake come first, because one of them
//! may have fallen asleep, and the number of questions in a check is limited.
//!
//! Belongs to the monitor's thread. What it reads of workers is relaxed: the values may be a moment old.

use core::time::Duration;

use nearq_platform::{Instant, Platform, RunState};

use crate::base::ids::PoolId;
use crate::pool::Pool;
use crate::pool::worker::{Worker, WorkerSlab};

/// The most clocks read in one check, which bounds its cost to 15 to 50 us. If there are more workers, they take turns.
const CLOCKS: usize = 64;
/// The most workers whose state is asked for in one check: 30 to 40 us.
const STATES: usize = 8;
/// How many of these queries are for workers that were asleep before, if there are other workers.
const SLEEPERS: usize = 2;
/// A state that is not needed soon is read in one check out of this many.
const SELDOM: u32 = 4;

/// What a worker that has a place was doing when it was last checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    #[default]
    Unknown,
    Runs,
    Waits,
    Blocked,
    Unreported,
}

/// One worker.
pub(crate) struct Seen<P: Platform> {
    thread: P::Thread,
    watch: P::Watch,
    /// When its clock was read, and what it showed.
    at: Instant,
    pub(crate) cpu_time: Duration,
    pub(crate) doing: Doing,
    /// Whether it has run since the system was last asked about it.
    ran: bool,
    /// Changes with each item that it starts.
    pub(crate) item: u64,
    /// When this item was first seen.
    pub(crate) since: Instant,
    /// What its clock showed when it was last seen with a new item, or asleep.
    pub(crate) burst: Duration,
    /// Whether it does not count as running until its item ends, because it uses its CPU for too long (`hogs`).
    pub(crate) hog: bool,
}

/// The monitor's view of all workers.
pub(crate) struct Watcher<P: Platform> {
    /// By the worker's number; none without a place.
    workers: Vec<Option<Seen<P>>>,
    /// The number of the worker that is next, if there are too many for one check.
    next: u32,
    /// Checks so far.
    samples: u32,
    /// By the pool's number.
    loads: Vec<Load>,
    /// The numbers of the pools whose workers used a CPU since the last check: there may be thousands that are not used any more.
    busy: Vec<PoolId>,
}

/// How busy a pool is.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// What its workers used since the last check, in 1024ths of a CPU.
    used: u64,
    /// Whether more workers may be running than should, and that can be changed.
    suspect: bool,
}

impl Load {
    /// Whether that many CPUs were used almost completely.
    fn fills(self, cpus: u32) -> bool {
        self.used != 0 && self.used * 8 >= u64::from(cpus) * 1024 * 7
    }
}

impl<P: Platform> Watcher<P> {
    pub(crate) fn new() -> Self {
        Watcher { workers: Vec::new(), next: 0, samples: 0, loads: Vec::new(), busy: Vec::new() }
    }

    /// What is recorded of the worker, if it has a place.
    pub(crate) fn seen(&self, worker: &Worker<P>) -> Option<&Seen<P>> {
        self.workers.get(worker.index as usize)?.as_ref()
    }

    /// As [`seen`](Self::seen).
    pub(crate) fn seen_mut(&mut self, worker: &Worker<P>) -> Option<&mut Seen<P>> {
        self.workers.get_mut(worker.index as usize)?.as_mut()
    }

    /// Checks the workers. Returns whether any has run since the last check.
    pub(crate) fn sample(&mut self, slab: &WorkerSlab<P>) -> bool {
        self.samples = self.samples.wrapping_add(1);
        // In the order of their numbers. An entry that is about to be written may be missing.
        let mut due = Vec::new();
        for worker in slab.iter() {
            let index = worker.index as usize;
            if index >= self.workers.len() {
                self.workers.resize_with(index + 1, || None);
            }
            if !worker.is_placed() {
                self.workers[index] = None;
            } else if self.is_due(worker) {
                due.push(worker);
            }
        }
        let first = due.partition_point(|worker| worker.index < self.next);
        let mut turns = due[first..].iter().chain(&due[..first]);
        let now = P::now();
        let mut moved = false;
        let (mut fresh, mut asleep) = (Vec::new(), Vec::new());
        for pool in self.busy.drain(..) {
            self.loads[pool.0 as usize].used = 0;
        }
        for worker in turns.by_ref().take(CLOCKS) {
            let (used, asks) = self.read_clock(worker, now);
            moved |= used != 0;
            self.count_load(worker, used);
            match asks {
                Asks::Nothing => {}
                Asks::Fresh => fresh.push(worker),
                Asks::Again => asleep.push(worker),
            }
        }
        fresh.retain(|worker| !self.is_left_alone(worker.pool()));
        asleep.retain(|worker| !self.is_left_alone(worker.pool()));
        // A worker that was awake before may have fallen asleep, so those come first. The system is asked about some of the others as well;
        // otherwise a worker that is awake for good would not be noticed.
        let others = asleep.len().min(STATES - fresh.len().min(STATES - SLEEPERS));
        for worker in fresh.iter().take(STATES - others).chain(asleep.iter().take(others)) {
            self.ask(worker);
        }
        // Workers that the system was not asked about come first next time.
        let left = asleep.get(others).copied().or_else(|| turns.next());
        self.next = left.map_or(self.next, |worker| worker.index);
        moved
    }

    /// Whether to read the worker's clock in this check.
    fn is_due(&self, worker: &Worker<P>) -> bool {
        let sleeps = |seen: &Seen<P>| seen.doing == Doing::Blocked && !seen.ran;
        !self.seen(worker).is_some_and(sleeps)
            || self.samples.wrapping_add(worker.index) % SELDOM == 0
    }

    fn count_load(&mut self, worker: &Worker<P>, used: u64) {
        let pool = worker.pool().id;
        let index = pool.0 as usize;
        self.loads.resize(self.loads.len().max(index + 1), Load::default());
        let load = &mut self.loads[index];
        if load.used == 0 && used != 0 {
            if worker.pool().id != pool {
                // The entry has passed to another pool meanwhile. It is unknown which of the two used the time.
                return;
            }
            self.busy.push(pool);
        }
        load.used += used;
    }

    /// Whether the system was not asked about the pool's workers in this check: they use its CPUs, so even if some of them sleep, no worker
    /// needs to be called.
    pub(crate) fn is_left_alone(&self, pool: &Pool<P>) -> bool {
        let load = self.loads.get(pool.id.0 as usize);
        load.is_some_and(|load| !load.suspect && load.fills(pool.cpus()))
            && self.samples % SELDOM != 0
    }

    /// Sets whether more of the pool's workers may be running than should, so that their state must be known.
    pub(crate) fn suspect(&mut self, pool: PoolId, suspect: bool) {
        if let Some(load) = self.loads.get_mut(pool.0 as usize) {
            load.suspect = suspect;
        }
    }

    /// How much of a CPU the worker has used since the last check, in 1024ths, and whether to ask the system about it.
    fn read_clock(&mut self, worker: &Worker<P>, now: Instant) -> (u64, Asks) {
        let slot = &mut self.workers[worker.index as usize];
        let Some(thread) = *worker.thread.lock() else {
            *slot = None;
            return (0, Asks::Nothing);
        };
        let Ok(cpu_time) = P::cpu_time(thread) else {
            *slot = None;
            return (0, Asks::Nothing);
        };
        let item = worker.batch.signature();
        let Some(seen) = slot.as_mut().filter(|seen| seen.thread == thread) else {
            *slot = Some(Seen {
                thread,
                watch: P::watch(thread),
                at: now,
                cpu_time,
                doing: Doing::Unknown,
                ran: true,
                item,
                since: now,
                burst: cpu_time,
                hog: false,
            });
            return (1, Asks::Nothing);
        };
        let used = cpu_time.saturating_sub(seen.cpu_time);
        let passed = now - seen.at;
        (seen.at, seen.cpu_time) = (now, cpu_time);
        seen.ran |= used != Duration::ZERO;
        if seen.item != item {
            (seen.item, seen.since, seen.burst, seen.hog) = (item, now, cpu_time, false);
        }
        let asks = if used * 8 >= passed * 7 {
            seen.doing = Doing::Runs;
            Asks::Nothing
        } else if !seen.ran {
            Asks::Nothing
        } else if seen.doing == Doing::Blocked {
            // The worker alternates between sleeping and computing: it counts as asleep again until the system is asked about it.
            Asks::Again
        } else {
            seen.doing = Doing::Unknown;
            Asks::Fresh
        };
        if seen.doing == Doing::Blocked {
            seen.burst = cpu_time;
        }
        // However little it was.
        let share = used.as_nanos() as u64 * 1024 / passed.as_nanos().max(1) as u64;
        (if used == Duration::ZERO { 0 } else { share.max(1) }, asks)
    }

    /// Asks the system what a worker does whose clock has been read.
    fn ask(&mut self, worker: &Worker<P>) {
        let Some(seen) = &mut self.workers[worker.index as usize] else { return };
        let state = P::watched_state(&mut seen.watch);
        // Its clock was read before, and it may have ended that item since. Then the worker is asleep for lack of work, or waits for a lock
        // whose holder does not run; both end without help. The system is asked about it again.
        seen.ran =
            !worker.is_placed() || !worker.is_in_item() || worker.batch.signature() != seen.item;
        seen.doing = match state {
            Ok(RunState::Runnable) => Doing::Waits,
            Ok(RunState::Blocked) if seen.ran => Doing::Unknown,
            Ok(RunState::Blocked) => Doing::Blocked,
            Ok(RunState::Ended) => Doing::Unknown,
            Err(refused) => {
                let line = format!(
                    "{refused}; workers that sleep inside their items are then noticed only after 10 ms: \
                     call nearq::block_in_place around code of items that may sleep"
                );
                P::warn_once(&format!("states: {}", refused.cause()), &line);
                Doing::Unreported
            }
        };
        if seen.doing == Doing::Blocked {
            seen.burst = seen.cpu_time;
        }
    }
}

/// Whether to ask the system about a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// It was awake when it was last checked.
    Fresh,
    /// It was asleep, and has run a bit since.
    Again,
}
