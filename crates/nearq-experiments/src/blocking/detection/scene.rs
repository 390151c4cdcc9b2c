//! A queue whose workers are all busy, in which they are blocked at a known moment while an item waits.
//!
//! As many items as CPUs, the *runners*, compute until they are signalled to block; the others, the *fillers*, are blocked all the
//! time, or sleep and compute in turn. So no further worker may run, whichever workers sleep, until the monitor notices that a
//! runner is blocked. The *probe* is queued while the runners still compute; it notes when it starts.
//!
//! A round: the runners have arrived; the probe is queued; the runners are signalled to block, and each notes when it does; the probe
//! starts; the runners are woken up and end; no item is left for a while.

use super::monitor::{Cost, Monitor};
use crate::Error;
use crate::blocking::work;
use crate::harness::failed;
use nearq::{Runtime, Workqueue};
use nearq_topology::CpuSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// Rounds of computing between two checks: some microseconds.
const ROUNDS_PER_CHECK: u64 = 2_000;
/// How long a filler that comes back computes, and how long it then sleeps.
const BURST: u64 = 20_000;
/// See [`BURST`].
const NAP: Duration = Duration::from_millis(20);
/// An event that has not happened after this long never will.
const PATIENCE: Duration = Duration::from_secs(20);
/// The issuer's own sleep between two checks.
const CHECK_INTERVAL: Duration = Duration::from_micros(200);
/// Items that wait while the monitor's cost is measured; it may start some of them.
const WAITING: usize = 32;

/// What the fillers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fillers {
    /// They are blocked all the time.
    Asleep,
    /// They sleep, compute a bit, and sleep again.
    Restless,
}

/// A gate that opens once.
#[derive(Debug, Default)]
struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn wait(&self) {
        let open = self.open.lock().expect("no thread panics while holding it");
        drop(
            self.opened.wait_while(open, |open| !*open).expect("no thread panics while holding it"),
        );
    }

    fn open(&self) {
        *self.open.lock().expect("no thread panics while holding it") = true;
        self.opened.notify_all();
    }
}

/// What a round's items share.
struct Round {
    begin: Instant,
    arrived: AtomicUsize,
    /// Whether the runners must block.
    go: AtomicBool,
    /// When the last of them blocked, in nanoseconds since `begin`.
    blocked: AtomicU64,
    /// When the probe started; 0 before.
    started: AtomicU64,
    gate: Gate,
    ended: AtomicUsize,
}

impl Round {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            arrived: AtomicUsize::new(0),
            go: AtomicBool::new(false),
            blocked: AtomicU64::new(0),
            started: AtomicU64::new(0),
            gate: Gate::default(),
            ended: AtomicUsize::new(0),
        }
    }

    fn since_begin(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn runner(&self) {
        self.arrived.fetch_add(1, Ordering::AcqRel);
        while !self.go.load(Ordering::Acquire) {
            work::compute(ROUNDS_PER_CHECK);
        }
        self.blocked.fetch_max(self.since_begin(), Ordering::AcqRel);
        self.gate.wait();
        self.ended.fetch_add(1, Ordering::AcqRel);
    }

    fn probe(&self) {
        self.started.store(self.since_begin(), Ordering::Release);
        self.ended.fetch_add(1, Ordering::AcqRel);
    }
}

/// The queue and its fillers.
pub struct Scene {
    queue: Workqueue,
    runners: usize,
    stop: Arc<Gate>,
    fillers_active: Arc<AtomicBool>,
}

impl Scene {
    /// A queue on `cpus` with `busy` workers: a runner for each CPU, and fillers. The caller is confined to these CPUs.
    pub fn set(cpus: &CpuSet, busy: usize, fillers: Fillers) -> Result<Self, Error> {
        let runtime = Runtime::builder().build().map_err(failed)?;
        let queue = runtime.workqueue_builder("detection").cpumask(cpus.clone()).max_active(2048);
        let scene = Self {
            queue: queue.build().map_err(failed)?,
            runners: cpus.len(),
            stop: Arc::new(Gate::default()),
            fillers_active: Arc::new(AtomicBool::new(fillers == Fillers::Restless)),
        };
        let (asked, there) = (busy.saturating_sub(cpus.len()), Arc::new(AtomicUsize::new(0)));
        for _ in 0..asked {
            let (stop, fillers_active) =
                (Arc::clone(&scene.stop), Arc::clone(&scene.fillers_active));
            let there = Arc::clone(&there);
            drop(scene.queue.spawn(move || {
                there.fetch_add(1, Ordering::AcqRel);
                while fillers_active.load(Ordering::Relaxed) {
                    thread::sleep(NAP);
                    work::compute(BURST);
                }
                stop.wait();
            }));
        }
        wait_for("the fillers have not all been started", || {
            there.load(Ordering::Acquire) == asked
        })?;
        Ok(scene)
    }

    /// One round: the time from the moment at which the last runner was blocked to the start of the probe. `None` if the probe started
    /// earlier, because one more worker than there are CPUs was still awake.
    pub fn round(&self) -> Result<Option<Duration>, Error> {
        let round = Arc::new(Round::new());
        for _ in 0..self.runners {
            let round = Arc::clone(&round);
            drop(self.queue.spawn(move || round.runner()));
        }
        wait_for("the runners have not all been started", || {
            round.arrived.load(Ordering::Acquire) == self.runners
        })?;
        let probe = Arc::clone(&round);
        drop(self.queue.spawn(move || probe.probe()));
        round.go.store(true, Ordering::Release);
        let started = wait_for("the probe has not been started", || {
            round.started.load(Ordering::Acquire) != 0
        });
        round.gate.open();
        started?;
        wait_for("the round has not ended", || {
            round.ended.load(Ordering::Acquire) == self.runners + 1
        })?;
        let blocked = round.blocked.load(Ordering::Acquire);
        let started = round.started.load(Ordering::Acquire);
        Ok(started.checked_sub(blocked).map(Duration::from_nanos))
    }

    /// What the monitor costs in `window` while every CPU computes and work waits. `None` if there is no monitor.
    pub fn cost(&self, window: Duration) -> Result<Option<Cost>, Error> {
        let (stop, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let items = self.runners + WAITING;
        for _ in 0..items {
            let (stop, ended) = (Arc::clone(&stop), Arc::clone(&ended));
            drop(self.queue.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    work::compute(ROUNDS_PER_CHECK);
                }
                ended.fetch_add(1, Ordering::AcqRel);
            }));
        }
        // Its thread is started by the first item for which no worker could be woken.
        thread::sleep(window / 10);
        let monitor = Monitor::of(self.queue.runtime());
        let cost = || monitor.as_ref().and_then(Monitor::cost);
        let (before, start) = (cost(), Instant::now());
        thread::sleep(window);
        let (after, elapsed) = (cost(), start.elapsed());
        stop.store(true, Ordering::Relaxed);
        wait_for("the computing has not ended", || ended.load(Ordering::Acquire) == items)?;
        // The sleep may have been longer than the window, so the rate counts.
        let scale = |time: Duration| time.mul_f64(window.as_secs_f64() / elapsed.as_secs_f64());
        Ok(before.zip(after).map(|(before, after)| Cost {
            cpu: scale(after.cpu.saturating_sub(before.cpu)),
            waited: scale(after.waited.saturating_sub(before.waited)),
            turns: scale(Duration::from_nanos(after.turns - before.turns)).as_nanos() as u64,
        }))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.fillers_active.store(false, Ordering::Relaxed);
        self.stop.open();
    }
}

/// Checks until `done`, or until it has taken too long.
fn wait_for(what: &str, done: impl Fn() -> bool) -> Result<(), Error> {
    let begin = Instant::now();
    while !done() {
        if begin.elapsed() > PATIENCE {
            return Err(Error::run(format!("{what} for {} s", PATIENCE.as_secs())));
        }
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}
