//! The thread that sees to it that work which waits gets started, whatever the states say.
//!
//! Workers may all be asleep inside their items, or preempted; nobody else would notice. So while work waits that nobody
//! could be woken for, the monitor looks every few milliseconds at what the workers do (`watch`), and gives and takes places
//! and hands accordingly (`balance`). With nothing waiting it sleeps, without a time-out: an idle process makes no wake-ups.
//!
//! # Arming
//! Who pushes an item and finds nobody to wake arms the monitor: `armed` from 0 to 1 wakes it. The monitor disarms
//! (0), looks once more over all pools, and sleeps if nothing waits. Push, then read `armed`; write `armed`, then look
//! for work: all `SeqCst`, one of the two sees the other.
//!
//! # Where no thread can be started
//! The machine may refuse the worker that should run an item, and then the monitor that should try again. No thread would be left
//! that knows of the item. So a thread that arms the monitor tries to start it for a while. Then it gives up with a warning, and leaves
//! further attempts to the threads that wait for work (`runtime::retry`).

use core::time::Duration;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_platform::{Atomic, Ordering, Parker, Platform, Refused, ThreadSpec};

use crate::balance::{Adjusted, Balance};
use crate::forked;
use crate::runtime::{Inner, until_retry};
use crate::stall::Stalls;
use crate::watch::Watcher;

/// How often the armed monitor looks: a worker that falls asleep is noticed after half of that on average. To wake up and go to sleep
/// again takes some 15 us where the CPUs are virtual ones, and a look as much again where all workers run: below 1 % of a CPU.
const TICK: Duration = Duration::from_millis(3);
/// How soon it looks after it was armed.
const FIRST_LOOK: Duration = Duration::from_micros(500);
/// How often it looks where no worker has run for [`STILL`] looks.
const SLOW_TICK: Duration = Duration::from_millis(10);
const STILL: u32 = 50;
/// Looks without anything waiting before the monitor sleeps; a few, because work comes in bursts.
const QUIET: u32 = 10;

/// How often its thread is tried to be started before it is left to the next push: some 80 ms with the pauses.
const TRIES: u32 = 14;
/// The first of the pauses between them; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_micros(10);

const DISARMED: u32 = 0;
const ARMED: u32 = 1;
const STOPPED: u32 = 2;

const NOT_STARTED: u32 = 0;
const STARTING: u32 = 1;
const STARTED: u32 = 2;

/// The monitor of one runtime.
pub(crate) struct Monitor<P: Platform> {
    armed: P::AtomicU32,
    parker: Parker<P>,
    /// 1: cancelled items have piled up among those that some queue holds back.
    untidy: P::AtomicU32,
    runtime: P::AtomicPtr<Inner<P>>,
    started: P::AtomicU32,
    /// Whether its thread is there, or about to be started.
    alive: P::AtomicU32,
    /// Whether its thread could not be started last time.
    refused: P::AtomicU32,
    handle: Mutex<Option<P::JoinHandle>, P>,
    thread: Mutex<Option<P::Thread>, P>,
}

impl<P: Platform> Monitor<P> {
    pub(crate) fn new() -> Self {
        Monitor {
            armed: P::AtomicU32::new(DISARMED),
            parker: Parker::new(),
            untidy: P::AtomicU32::new(0),
            runtime: P::AtomicPtr::new(core::ptr::null_mut()),
            started: P::AtomicU32::new(NOT_STARTED),
            alive: P::AtomicU32::new(0),
            refused: P::AtomicU32::new(0),
            handle: Mutex::new_in(None),
            thread: Mutex::new_in(None),
        }
    }

    /// Names the runtime that it belongs to; before anything else.
    pub(crate) fn set_runtime(&self, runtime: *const Inner<P>) {
        self.runtime.store(runtime.cast_mut(), Ordering::Release);
    }

    /// There is work that nobody could be woken for.
    #[inline]
    pub(crate) fn arm(&self) {
        P::model_fence();
        if self.armed.load(Ordering::SeqCst) == DISARMED {
            self.arm_slow();
        }
    }

    /// As [`arm`](Self::arm), with a single try to start the thread, for a thread that must not sleep for that.
    #[cold]
    pub(crate) fn retry(&self) {
        if !self.is_alive() {
            // Relaxed: only the number of tries depends on it.
            self.refused.store(1, Ordering::Relaxed);
        }
        self.arm();
    }

    #[cold]
    fn arm_slow(&self) {
        let armed =
            self.armed.compare_exchange(DISARMED, ARMED, Ordering::SeqCst, Ordering::SeqCst);
        if armed.is_err() {
            return;
        }
        if self.begin_start()
            && self.start().is_err()
            && self.refused.swap(1, Ordering::Relaxed) == 0
        {
            P::warn(
                "no thread can be started to look after work that waits: limits on threads or memory? Work that finds no worker waits \
                 until a thread can be started: each push and each thread that waits for the work tries again. Raise the limit, or \
                 build queues that must make progress with rescuer(true), which reserves a thread",
            );
        }
        self.parker.unpark();
    }

    /// Has its thread started now, for who will need it where none can be.
    pub(crate) fn reserve(&self) -> Result<(), Refused> {
        loop {
            if self.begin_start() {
                return self.start();
            }
            // Somebody else may be about to fail.
            let starting = self.started.load(Ordering::Acquire) == STARTING;
            if !starting || self.armed.load(Ordering::SeqCst) == STOPPED {
                return Ok(());
            }
            P::sleep(FIRST_PAUSE);
        }
    }

    /// Whether the caller starts the thread.
    fn begin_start(&self) -> bool {
        P::model_fence();
        // SeqCst: Dekker's pattern with a start that fails, which writes `started`, then looks whether the monitor is armed.
        self.started.load(Ordering::SeqCst) == NOT_STARTED
            && self
                .started
                .compare_exchange(NOT_STARTED, STARTING, Ordering::SeqCst, Ordering::Relaxed)
                .is_ok()
    }

    fn start(&self) -> Result<(), Refused> {
        let runtime = self.runtime.load(Ordering::Acquire);
        // SAFETY: the thread that arms the monitor keeps the runtime alive; this adds a reference of our own.
        let own = unsafe { &*runtime }.shared();
        // After it has been in vain for long enough, one try for each push, so that pushers need not wait each time.
        let tries = if self.refused.load(Ordering::Relaxed) == 0 { TRIES } else { 1 };
        let mut pause = FIRST_PAUSE;
        let mut refusal = Ok(());
        for left in (0..tries).rev() {
            // Who stops the monitor writes `armed`, then reads `alive`.
            self.alive.store(1, Ordering::SeqCst);
            P::model_fence();
            if self.armed.load(Ordering::SeqCst) == STOPPED {
                break;
            }
            let (own, spec) = (
                Arc::clone(&own),
                ThreadSpec {
                    name: "nq/monitor".into(),
                    scheduling: Some(own.priorities.ordinary()),
                    // It calls `on_stall`.
                    signals: Some(own.config.signals),
                    ..ThreadSpec::default()
                },
            );
            let main = move || {
                P::set_employer(own.number);
                if watch(&own) {
                    own.monitor.alive.store(0, Ordering::SeqCst);
                }
            };
            match P::spawn(spec, main) {
                Ok(handle) => {
                    *self.handle.lock() = Some(handle);
                    self.refused.store(0, Ordering::Relaxed);
                    self.started.store(STARTED, Ordering::Release);
                    return Ok(());
                }
                Err(error) => refusal = Err(error),
            }
            if left == 0 || self.armed.load(Ordering::SeqCst) == STOPPED {
                break;
            }
            P::sleep(pause);
            pause *= 2;
        }
        self.alive.store(0, Ordering::SeqCst);
        if self.armed.load(Ordering::SeqCst) == STOPPED {
            return Ok(());
        }
        self.started.store(NOT_STARTED, Ordering::SeqCst);
        P::model_fence();
        // Not over `STOPPED`. The next push that finds nobody tries again.
        let was_armed =
            self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst);
        if was_armed.is_ok() {
            own.retry_later();
        }
        refusal
    }

    /// Nothing has waited for a while: disarms the monitor, so that it sleeps until it is armed again; unless something waits now.
    fn disarm(&self, inner: &Inner<P>) {
        // SeqCst: see "Arming".
        let disarmed =
            self.armed.compare_exchange(ARMED, DISARMED, Ordering::SeqCst, Ordering::SeqCst);
        P::model_fence();
        // Read the pools anew: a thread that pushed onto a pool that was made since has found the monitor armed.
        if disarmed.is_ok() && inner.pools_in_service().iter().any(|pool| pool.has_waiting()) {
            self.arm();
        }
    }

    /// Many cancelled items are held back somewhere. A worker is asked already, and throws them away if it comes; if none comes, work
    /// waits, and the monitor is armed.
    pub(crate) fn ask_to_tidy(&self) {
        // Relaxed: it is seen by one of the next looks.
        self.untidy.store(1, Ordering::Relaxed);
    }

    /// Does what workers would, if one came by.
    fn tidy(&self, inner: &Inner<P>) {
        if self.untidy.load(Ordering::Relaxed) != 0 {
            // Before the look: a request that comes later is for the next one.
            self.untidy.store(0, Ordering::Relaxed);
            inner.live_queues().iter().for_each(|queue| queue.tidy());
        }
    }

    /// Has it look now, if it is armed.
    pub(crate) fn hurry(&self) {
        if self.armed.load(Ordering::SeqCst) == ARMED {
            self.parker.unpark();
        }
    }

    /// Wakes its thread, if there is one, so that it sees what is left to try.
    pub(crate) fn wake(&self) {
        self.parker.unpark();
    }

    /// Ends the thread.
    pub(crate) fn stop(&self) {
        self.armed.store(STOPPED, Ordering::SeqCst);
        self.parker.unpark();
    }

    /// Its thread, once that has begun.
    pub(crate) fn thread(&self) -> Option<P::Thread> {
        *self.thread.lock()
    }

    /// Whether its thread is there, or about to be started.
    pub(crate) fn is_alive(&self) -> bool {
        P::model_fence();
        self.alive.load(Ordering::SeqCst) != 0
    }

    /// Waits for the thread's end.
    pub(crate) fn join(&self) {
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            P::join(handle);
        }
    }

    /// Not started: its thread is the parent's. In the child of a fork.
    pub(crate) fn after_fork_in_child(&self) {
        if self.armed.load(Ordering::Relaxed) != STOPPED {
            forked::set(&self.armed, DISARMED);
        }
        forked::set(&self.started, NOT_STARTED);
        forked::set(&self.alive, 0);
        forked::set(&self.refused, 0);
        forked::set(&self.untidy, 0);
        // SAFETY: this is the only thread, and no user's code runs while it holds one of the two locks.
        unsafe { self.handle.renew(None) };
        // SAFETY: as above.
        unsafe { self.thread.renew(None) };
    }
}

/// The life of the monitor's thread. False in the child of a fork: there it is the monitor no more.
fn watch<P: Platform>(inner: &Inner<P>) -> bool {
    let monitor = &inner.monitor;
    *monitor.thread.lock() = Some(P::current_thread());
    P::wake_exactly();
    inner.favour_monitor();
    let (mut watcher, mut balance, mut stalls) = (Watcher::new(), Balance::new(), Stalls::new());
    let mut pace = Pace::Begins;
    let mut quiet = 0;
    let mut still = 0;
    loop {
        match monitor.armed.load(Ordering::SeqCst) {
            STOPPED => return true,
            DISARMED => {
                monitor.parker.park(until_retry::<P>(None));
                (quiet, still, pace) = (0, 0, Pace::Begins);
                // What the clocks show now is what the first look compares with.
                watcher.look(&inner.table);
                continue;
            }
            _ => {}
        }
        monitor.parker.park(Some(P::now() + pace.interval()));
        P::retry_now();
        let moved = watcher.look(&inner.table);
        still = if moved { 0 } else { still + 1 };
        pace = if still < STILL { Pace::Looks } else { Pace::Waits };
        let now = P::now();
        let pools = inner.pools_in_service();
        let Adjusted { waiting, replaced, stuck } =
            balance.adjust(inner, &pools, &mut watcher, now);
        if crate::rescuer::attend(inner, &pools, now) {
            pace = Pace::Looks;
        }
        if replaced {
            // Sleepers seldom come alone: who was called may run into the next.
            pace = Pace::Begins;
        }
        if stuck {
            monitor.tidy(inner);
        }
        if !stalls.look(inner, &pools, &watcher, now) {
            return false;
        }
        inner.look_at_machine(now);
        inner.homes.judge(now);
        // Where work waits all the time, workers may never come to rest.
        inner.reap_orphans();
        quiet = if waiting { 0 } else { quiet + 1 };
        if quiet >= QUIET {
            balance.settle(&pools);
            monitor.disarm(inner);
        }
    }
}

/// How long the monitor sleeps between two looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// It was armed just now, maybe because everybody sleeps already.
    Begins,
    Looks,
    /// Nothing has moved for a while.
    Waits,
}

impl Pace {
    fn interval(self) -> Duration {
        match self {
            Pace::Begins => FIRST_LOOK,
            Pace::Looks => TICK,
            Pace::Waits => SLOW_TICK,
        }
    }
}

#[cfg(test)]
mod tests;
