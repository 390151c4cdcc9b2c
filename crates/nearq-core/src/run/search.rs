//! How a worker looks for work, and how long before it sleeps.

use core::time::Duration;

use nearq_platform::Platform;

use super::Runner;

/// How often it checks the inbox before other threads may run: some 2 us.
const CHECKS: u32 = 64;
/// The number of items since it was woken from which on a worker that found nothing lets other threads run, before it checks again. A
/// worker that runs a single item now and then gains nothing from letting others run.
const STEADY: u32 = 2;
/// The count of unsuccessful searches goes up to this: at the least, a worker looks for work once in 32 times that it goes to sleep.
const MOST_FRUITLESS: u32 = 5;
/// A yield that took at least this long gave the CPU to many threads: the time slices of a few other threads take less.
const LONG_YIELD: Duration = Duration::from_millis(20);
/// Letting others run may cost one part in this many of a worker's time.
const YIELD_SHARE: u32 = 100;
/// How many items a helper takes from another pod at a time: few, so that the pod's own workers find the rest.
const HELP: usize = 4;

impl<P: Platform> Runner<'_, P> {
    /// Fills the batch from wherever there is work.
    pub(super) fn find(&self) -> bool {
        self.pool.take(self.worker, self.limit) != 0
            || self.pool.take_back(self.worker) != 0
            || (self.pool.key.helping
                && self.pool.take_from_siblings(self.worker, HELP.min(self.limit)) != 0)
    }

    /// Checks the inbox for a while, letting other threads run in between: the thread that will push may be waiting for this very CPU. If
    /// the process has a single CPU, one check at a time is enough.
    ///
    /// A worker whose items come only now and then gains nothing from that, and pays for it with CPU time of which it may have little. So
    /// after each unsuccessful search it goes to sleep at once for twice as many times as before.
    pub(super) fn spin(&mut self) -> bool {
        let sparse = self.ran < STEADY;
        if sparse && self.sleeps_at_once > 0 {
            self.sleeps_at_once -= 1;
            return self.pool.has_work();
        }
        let several = self.inner.may_spin();
        let checks = if several { CHECKS } else { 1 };
        for _ in 0..self.inner.spin_budget().div_ceil(CHECKS) {
            if self.pool.spin(checks) {
                self.fruitless = 0;
                return true;
            }
            let goes_on = self.let_others_run() || several;
            // Another thread may be waiting until the worker has released the queue that it served last, or ends.
            if !goes_on || self.inner.is_stopping() || self.inner.services.departures.is_awaited() {
                break;
            }
        }
        if sparse {
            self.fruitless = (self.fruitless + 1).min(MOST_FRUITLESS);
            self.sleeps_at_once = (1 << self.fruitless) - 1;
        }
        self.pool.has_work()
    }

    /// Yields, if that is worth it. False if not.
    ///
    /// A thread that yields declares that it needs nothing more for now, and a scheduler may act on that: Linux 6.18 moves the thread a
    /// whole slice back. Beside 3000 busy threads one yield at nice 0 took 4 s, whereas a sleep ends within some 100 ms. So only a worker
    /// whose items follow each other yields. After a yield that took long, it does not yield again until that time is a small part of the
    /// total.
    fn let_others_run(&mut self) -> bool {
        if self.ran < STEADY {
            return false;
        }
        let before = P::now();
        if before < self.keeps_cpu_until {
            return false;
        }
        P::yield_now();
        let after = P::now();
        let took = after - before;
        if took >= LONG_YIELD {
            self.keeps_cpu_until = after + took * YIELD_SHARE;
        }
        true
    }
}
