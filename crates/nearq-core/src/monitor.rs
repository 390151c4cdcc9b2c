//! The thread that ensures that waiting work gets started, whatever the states say.
//!
//! Workers may all be asleep inside their items, or preempted, and nothing else would notice. So while work waits for which no thread could
//! be woken, the monitor checks every few milliseconds what the workers do (`watch`), and sets the places and `max_running` accordingly
//! (`balance`). With nothing waiting it sleeps, without a time-out: an idle process makes no wake-ups. For what wakes it, and how its
//! thread is started, see `pool/alarm`.
//!
//! # The folder
//! Imports `base`, `pool`, `limit`, `runtime` and `queue`. `watch`: what workers do. `balance`: how many may be awake. `rescue`: when rescuers are called.
//! `stall`: reports that nothing starts. `by_pool`: what is remembered of each pool. It has the monitor's thread, and no locks or words of
//! its own.

pub(crate) mod balance;
pub(crate) mod by_pool;
pub(crate) mod rescue;
pub(crate) mod stall;
pub(crate) mod watch;

use core::time::Duration;

use nearq_platform::{OsError, Platform, ThreadSpec};

use crate::monitor::balance::{Adjusted, Balance};
use crate::monitor::stall::Stalls;
use crate::monitor::watch::Watcher;
use crate::pool::alarm::{self, Task};
use crate::queue::runtime::Inner;
use crate::runtime::until_retry;

/// How often the armed monitor checks: a worker that falls asleep is noticed after half of that on average. Waking up and going to sleep
/// again takes some 15 us on virtual CPUs, and a check takes as much again if all workers run: together below 1 % of a CPU.
const TICK: Duration = Duration::from_millis(3);
/// How soon it checks after it was armed.
const FIRST_CHECK: Duration = Duration::from_micros(500);
/// How often it checks if no worker has run for [`STILL`] checks.
const SLOW_TICK: Duration = Duration::from_millis(10);
const STILL: u32 = 50;
/// The checks without anything waiting before the monitor sleeps; a few, because work comes in bursts.
const QUIET: u32 = 10;

/// The life of the monitor's thread. False in the child of a fork: there the thread is not the monitor any more.
fn watch<P: Platform>(inner: &Inner<P>) -> bool {
    let alarm = &inner.services.alarm;
    alarm.thread.begun();
    P::wake_exactly();
    inner.favour_monitor();
    let (mut watcher, mut balance, mut stalls) = (Watcher::new(), Balance::new(), Stalls::new());
    let mut pace = Pace::Begins;
    let mut quiet = 0;
    let mut still = 0;
    loop {
        match alarm.task() {
            Task::End => return true,
            Task::Sleep => {
                alarm.thread.sleep(until_retry::<P>(None));
                (quiet, still, pace) = (0, 0, Pace::Begins);
                // The first check compares with what the clocks show now.
                watcher.sample(&inner.services.workers);
                continue;
            }
            Task::Check => {}
        }
        alarm.thread.sleep(Some(P::now() + pace.interval()));
        P::retry_now();
        let moved = watcher.sample(&inner.services.workers);
        still = if moved { 0 } else { still + 1 };
        pace = if still < STILL { Pace::Checks } else { Pace::Waits };
        let now = P::now();
        let pools = inner.pools_in_service();
        let Adjusted { waiting, replaced, stuck } =
            balance.adjust(inner, &pools, &mut watcher, now);
        if rescue::attend(inner, &pools, now) {
            pace = Pace::Checks;
        }
        if replaced {
            // There is seldom only one sleeper: the worker that was called may block in the next item.
            pace = Pace::Begins;
        }
        if stuck && alarm.take_untidy() {
            // As a worker would, if one checked.
            inner.live_queues().iter().for_each(|queue| queue.tidy());
        }
        if !stalls.check(inner, &pools, &watcher, now) {
            return false;
        }
        inner.refresh_machine(now);
        inner.services.homes.judge(now);
        // If work waits all the time, workers may never come to rest.
        inner.reap_orphans();
        quiet = if waiting { 0 } else { quiet + 1 };
        if quiet >= QUIET {
            balance.settle(&pools);
            disarm(inner);
        }
    }
}

/// Makes the monitor sleep until it is armed again, unless something waits.
fn disarm<P: Platform>(inner: &Inner<P>) {
    inner.services.alarm.disarm(|| inner.pools_in_service().iter().any(|pool| pool.has_waiting()));
}

impl<P: Platform> alarm::Host<P> for Inner<P> {
    fn start_monitor(&self) -> Result<P::JoinHandle, OsError> {
        // The thread keeps the runtime alive.
        let own = self.shared();
        let spec = ThreadSpec {
            name: "nq/monitor".into(),
            // The thread that armed it may be one of an isolated CPU.
            affinity: self.housekeeping_mask(),
            scheduling: Some(self.priorities.ordinary()),
            // The monitor's thread calls `on_stall`.
            signals: Some(self.config.signals),
            ..ThreadSpec::default()
        };
        P::spawn(spec, move || {
            P::set_employer(own.number);
            if watch(&own) {
                own.services.alarm.thread.ended();
            }
        })
    }

    fn retry_later(&self) {
        Self::retry_later(self);
    }
}

/// How long the monitor sleeps between two checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    /// The monitor was armed just now, perhaps because every worker sleeps already.
    Begins,
    Checks,
    /// Nothing has changed for a while.
    Waits,
}

impl Pace {
    fn interval(self) -> Duration {
        match self {
            Pace::Begins => FIRST_CHECK,
            Pace::Checks => TICK,
            Pace::Waits => SLOW_TICK,
        }
    }
}

#[cfg(test)]
mod tests;
