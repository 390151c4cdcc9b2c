//! How a worker looks for work, and how long before it sleeps.

use core::time::Duration;

use nearq_platform::Platform;

use super::Runner;

/// Looks at the inbox before others may run: some 2 us.
const LOOKS: u32 = 64;
/// Items since it was woken from which on a worker that found nothing lets others run, before it looks again. One that runs a
/// single item now and then finds nothing by that.
const STEADY: u32 = 2;
/// Looking in vain counts up to this: of 32 times that a worker goes to sleep it looks before one, at the least.
const MOST_IN_VAIN: u32 = 5;
/// A yield that took so long was for a crowd: some time slices of others are no more than that.
const LONG_YIELD: Duration = Duration::from_millis(20);
/// Letting others run may cost one part in so many of a worker's time.
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

    /// Looks at the inbox for a while, letting others run in between: who shall push may be waiting for this very CPU. Where
    /// the process has a single CPU, one look at a time is enough.
    ///
    /// A worker whose items come now and then finds nothing by that, and pays for it with CPU time of which it may have little. So
    /// after each time in vain it goes to sleep at once for twice as many times as before.
    pub(super) fn spin(&mut self) -> bool {
        let sparse = self.ran < STEADY;
        if sparse && self.sleeps_at_once > 0 {
            self.sleeps_at_once -= 1;
            return self.pool.has_work();
        }
        let several = self.inner.may_spin();
        let looks = if several { LOOKS } else { 1 };
        for _ in 0..self.inner.spin_budget().div_ceil(LOOKS) {
            if self.pool.spin(looks) {
                self.in_vain = 0;
                return true;
            }
            let goes_on = self.let_others_run() || several;
            // Another thread may wait until the worker has let go of the queue that it served last, or ends.
            if !goes_on || self.inner.is_stopping() || self.inner.services.departures.is_awaited() {
                break;
            }
        }
        if sparse {
            self.in_vain = (self.in_vain + 1).min(MOST_IN_VAIN);
            self.sleeps_at_once = (1 << self.in_vain) - 1;
        }
        self.pool.has_work()
    }

    /// Yields, if that is worth it. False if not.
    ///
    /// Who yields says that it wants nothing more for now, and a scheduler may believe it: Linux 6.18 moves the thread a whole
    /// slice back. Beside 3000 busy threads one yield at nice 0 took 4 s, where a sleep ends within some 100 ms. So only a worker
    /// whose items follow each other yields, and after a yield that took long not before it was a small part of the time.
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
