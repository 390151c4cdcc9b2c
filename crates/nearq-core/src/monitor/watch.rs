//! What the workers are doing, as the monitor sees it from outside.
//!
//! A look reads the CPU clock of each worker that has a place of its level (0.2 to 0.8 us). One whose clock moved about as much as the
//! time did has run all the while. Of the others the system is asked what they do (3 to 5 us), but only if they have run since they
//! were asked last: who has not run can neither have fallen asleep nor have ended its item.
//!
//! | [`Doing`] | clock | state | counts as |
//! |---|---|---|---|
//! | `Runs` | moved with the time | not asked | runnable |
//! | `Waits` | stands still, or moved less | runnable: preempted, or throttled by its control group | runnable: no other thread would fare better |
//! | `Blocked` | stands still | asleep | not there |
//! | `Unknown` | read once | not asked yet | runnable: nobody starts a thread on a guess |
//! | `Untold` | stands still, or moved less | the system does not tell | as `Unknown`; but nothing is taken away for it, as it may be asleep |
//!
//! Where the clocks of a pool's workers moved by about as much as its CPUs can give, nobody is asked in three looks of four.
//! The clock of one that was found asleep and has stood still since is read in one look of four: nobody waits for what it says.
//! A blocked worker that is woken and has not got a CPU yet still counts as blocked; it is seen once it has run.
//! One that has run a bit since it was asleep is taken to be asleep again until its turn comes to be asked about: those that were awake
//! come first, as one of them may have fallen asleep, and there are only so many questions in a look.
//!
//! Belongs to the monitor's thread. What it reads of workers is relaxed: a look may be a moment old.

use core::time::Duration;

use nearq_platform::{Instant, Platform, RunState};

use crate::pool::Pool;
use crate::pool::worker::{Worker, WorkerSlab};

/// Clocks read in one look at most, which bounds its cost to 15 to 50 us. Where there are more workers they take turns.
const CLOCKS: usize = 64;
/// Workers of which the system is asked in one look at most: 30 to 40 us.
const STATES: usize = 8;
/// So many of them about workers that were asleep before, where there are others.
const SLEEPERS: usize = 2;
/// What need not be known soon is looked at in one look of so many.
const SELDOM: u32 = 4;

/// What a worker that has a place was doing when it was looked at last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Doing {
    #[default]
    Unknown,
    Runs,
    Waits,
    Blocked,
    Untold,
}

/// One worker.
pub(crate) struct Seen<P: Platform> {
    thread: P::Thread,
    watch: P::Watch,
    /// When its clock was read, and what it showed.
    at: Instant,
    pub(crate) cpu_time: Duration,
    pub(crate) doing: Doing,
    /// Whether it has run since the system was asked about it.
    ran: bool,
    /// Changes with each item that it starts.
    pub(crate) item: u64,
    /// When this item was seen first.
    pub(crate) since: Instant,
    /// What its clock showed when it was seen with a new item, or asleep, last.
    pub(crate) burst: Duration,
    /// It does not count as running until its item ends: it uses its CPU for too long (`hogs`).
    pub(crate) hog: bool,
}

/// The monitor's view of all workers.
pub(crate) struct Watcher<P: Platform> {
    /// By the worker's number; none without a place.
    workers: Vec<Option<Seen<P>>>,
    /// The number of the worker whose turn it is where there are too many for one look.
    next: u32,
    /// Looks so far.
    looks: u32,
    /// By the pool's number.
    loads: Vec<Load>,
    /// The numbers of the pools whose workers used a CPU since the last look: there may be thousands that nobody uses any more.
    busy: Vec<u32>,
}

/// How busy a pool is.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    /// What its workers used since the last look, in 1024ths of a CPU.
    used: u64,
    /// Whether there may be more that run than there should be, and that can be changed.
    suspect: bool,
}

impl Load {
    /// Whether hardly anything of so many CPUs was left.
    fn fills(self, cpus: u32) -> bool {
        self.used != 0 && self.used * 8 >= u64::from(cpus) * 1024 * 7
    }
}

impl<P: Platform> Watcher<P> {
    pub(crate) fn new() -> Self {
        Watcher { workers: Vec::new(), next: 0, looks: 0, loads: Vec::new(), busy: Vec::new() }
    }

    /// What is known of the worker, if it has a place.
    pub(crate) fn seen(&self, worker: &Worker<P>) -> Option<&Seen<P>> {
        self.workers.get(worker.index as usize)?.as_ref()
    }

    /// As [`seen`](Self::seen).
    pub(crate) fn seen_mut(&mut self, worker: &Worker<P>) -> Option<&mut Seen<P>> {
        self.workers.get_mut(worker.index as usize)?.as_mut()
    }

    /// Looks at the workers. Whether any has run since the last look.
    pub(crate) fn look(&mut self, slab: &WorkerSlab<P>) -> bool {
        self.looks = self.looks.wrapping_add(1);
        // In the order of their numbers. An entry may be missing that is about to be written.
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
            self.loads[pool as usize].used = 0;
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
        // Who was awake before is the one that may have fallen asleep, so they come first. Some of the others all the same, or one that has
        // come back for good would not be seen.
        let others = asleep.len().min(STATES - fresh.len().min(STATES - SLEEPERS));
        for worker in fresh.iter().take(STATES - others).chain(asleep.iter().take(others)) {
            self.ask(worker);
        }
        // Those that were not asked about come first next time.
        let left = asleep.get(others).copied().or_else(|| turns.next());
        self.next = left.map_or(self.next, |worker| worker.index);
        moved
    }

    /// Whether the worker's clock is to be read in this look.
    fn is_due(&self, worker: &Worker<P>) -> bool {
        let sleeps = |seen: &Seen<P>| seen.doing == Doing::Blocked && !seen.ran;
        !self.seen(worker).is_some_and(sleeps)
            || self.looks.wrapping_add(worker.index).is_multiple_of(SELDOM)
    }

    fn count_load(&mut self, worker: &Worker<P>, used: u64) {
        let pool = worker.pool().id as usize;
        self.loads.resize(self.loads.len().max(pool + 1), Load::default());
        let load = &mut self.loads[pool];
        if load.used == 0 && used != 0 {
            self.busy.push(worker.pool().id);
        }
        load.used += used;
    }

    /// Whether the system was not asked about the pool's workers in this look: they use its CPUs, so whoever of them sleeps, nobody
    /// needs to be called.
    pub(crate) fn is_left_alone(&self, pool: &Pool<P>) -> bool {
        let load = self.loads.get(pool.id as usize);
        load.is_some_and(|load| !load.suspect && load.fills(pool.cpus()))
            && !self.looks.is_multiple_of(SELDOM)
    }

    /// Whether more of the pool's workers may run than should, so that it must be known what they do.
    pub(crate) fn suspect(&mut self, pool: u32, suspect: bool) {
        if let Some(load) = self.loads.get_mut(pool as usize) {
            load.suspect = suspect;
        }
    }

    /// How much of a CPU the worker has used since the last look, in 1024ths, and whether the system is to be asked about it.
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
            // It sleeps and computes in turn: until it is asked about, it counts as asleep again.
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
        // Its clock was read before, and it may have ended that item since. Then it is asleep for want of work, or for a lock whose holder
        // does not run; both will be over without anybody's help. It is asked again.
        seen.ran =
            !worker.is_placed() || !worker.is_in_item() || worker.batch.signature() != seen.item;
        seen.doing = match state {
            Ok(RunState::Runnable) => Doing::Waits,
            Ok(RunState::Blocked) if seen.ran => Doing::Unknown,
            Ok(RunState::Blocked) => Doing::Blocked,
            Ok(RunState::Ended) => Doing::Unknown,
            Err(refused) => {
                let line = format!(
                    "{refused}; workers that sleep inside their items are found by the clock alone, 10 ms late: call \
                     nearq::blocking where an item may sleep"
                );
                P::warn_once(&format!("states: {}", refused.cause()), &line);
                Doing::Untold
            }
        };
        if seen.doing == Doing::Blocked {
            seen.burst = seen.cpu_time;
        }
    }
}

/// Whether the system is to be asked about a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Nothing,
    /// It was awake when it was looked at last.
    Fresh,
    /// It was asleep, and has run a bit since.
    Again,
}
