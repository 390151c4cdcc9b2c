//! How many items are samples: 20,000 a second at most over all queues of a runtime, of which each queue has a share.
//!
//! Each queue leaves out all but one item of 2^sample_shift; its pwqs have a copy of the shift beside what every issuer reads, and update
//! it whenever an item would be a sample. Time is divided into windows of 100 ms, each with a budget. A queue's first few samples of a
//! window are always taken while the budget lasts; a part of it is reserved for those, so that queues with few items are timed completely
//! even beside one with many. A queue that is refused more and more often raises its shift; one that takes little of the budget lowers it,
//! a step a window. The more items are already left out, the slower the shift rises, so it settles instead of overshooting.
//!
//! All accesses are to counts, and Relaxed: threads that race here take a sample more or less.

use core::time::Duration;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Platform};

use crate::base::pad::Padded;

/// One item of 2^20, at the least.
const MAX_SHIFT: u32 = 20;
const WINDOW: Duration = Duration::from_millis(100);
/// Samples in a window: 20,000 a second.
const BUDGET: u32 = 2000;
/// The part of these samples that any queue may use; the rest is reserved for queues that have taken few. A sample costs some 200 ns, so
/// that is about 0.2 % of a CPU.
const COMMON: u32 = 800;
/// A queue that has taken at most this many has taken few. That is enough for a percentile over some seconds, and little even when hundreds
/// of queues are busy.
const FEW: u32 = 3;
/// From this many refusals in a window on, a queue leaves out more: each costs a read of the clock.
const MANY_REFUSED: u32 = 4;

/// The power of two to use if one item of `every` is wanted: rounded up, as far as possible.
pub(crate) fn shift_for(every: u32) -> u32 {
    every.max(1).checked_next_power_of_two().map_or(MAX_SHIFT, u32::ilog2).min(MAX_SHIFT)
}

/// What is left for all queues together.
pub(crate) struct Budget<P: Platform> {
    shared: Padded<Shared<P>>,
}

struct Shared<P: Platform> {
    window: P::AtomicU64,
    taken: P::AtomicU32,
    samples: P::AtomicU64,
}

/// How many items of one queue are left out.
pub(crate) struct Rate<P: Platform> {
    sample_shift: P::AtomicU32,
    /// As requested by a reader.
    least: P::AtomicU32,
    window: P::AtomicU64,
    taken: P::AtomicU32,
    refused: P::AtomicU32,
}

impl<P: Platform> Rate<P> {
    pub(crate) fn new() -> Self {
        Rate {
            sample_shift: P::AtomicU32::new(0),
            least: P::AtomicU32::new(0),
            window: P::AtomicU64::new(0),
            taken: P::AtomicU32::new(0),
            refused: P::AtomicU32::new(0),
        }
    }

    /// One item of two to this power is a sample.
    #[inline]
    pub(crate) fn sample_shift(&self) -> u32 {
        self.sample_shift.load(Ordering::Relaxed)
    }

    /// Limits samples to one item of two to this power.
    pub(crate) fn set_least(&self, sample_shift: u32) {
        self.least.store(sample_shift, Ordering::Relaxed);
        self.sample_shift.store(sample_shift, Ordering::Relaxed);
    }

    fn change(&self, by: i32) {
        let least = self.least.load(Ordering::Relaxed);
        let sample_shift =
            self.sample_shift().saturating_add_signed(by).clamp(least, MAX_SHIFT.max(least));
        self.sample_shift.store(sample_shift, Ordering::Relaxed);
    }

    /// What the queue does at the beginning of a new window.
    fn begin(&self, window: u64) {
        let last = self.window.swap(window, Ordering::Relaxed);
        if last == window {
            return;
        }
        let taken = self.taken.swap(0, Ordering::Relaxed);
        let refused = self.refused.swap(0, Ordering::Relaxed);
        if refused == 0 && taken < COMMON / 4 {
            self.change(-1);
        }
    }

    fn refuse(&self) {
        let refused = self.refused.fetch_add(1, Ordering::Relaxed) + 1;
        if refused >= MANY_REFUSED && refused.is_power_of_two() {
            self.change(1);
        }
    }
}

impl<P: Platform> Budget<P> {
    pub(crate) fn new() -> Self {
        Budget {
            shared: Padded(Shared {
                window: P::AtomicU64::new(0),
                taken: P::AtomicU32::new(0),
                samples: P::AtomicU64::new(0),
            }),
        }
    }

    /// All samples so far.
    pub(crate) fn samples(&self) -> u64 {
        self.shared.samples.load(Ordering::Relaxed)
    }

    /// Whether an item of the queue with that rate may be a sample.
    pub(crate) fn allows(&self, rate: &Rate<P>, now: Instant) -> bool {
        let window = now.as_nanos() / WINDOW.as_nanos() as u64;
        if rate.window.load(Ordering::Relaxed) != window {
            rate.begin(window);
        }
        let shared = &*self.shared;
        let last = shared.window.load(Ordering::Relaxed);
        if last != window
            && shared
                .window
                .compare_exchange(last, window, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            shared.taken.store(0, Ordering::Relaxed);
        }
        let own = rate.taken.load(Ordering::Relaxed);
        let most = if own < FEW { BUDGET } else { COMMON };
        if shared.taken.load(Ordering::Relaxed) >= most {
            rate.refuse();
            return false;
        }
        // Added, then checked: whatever races, no window has more than its budget.
        if shared.taken.fetch_add(1, Ordering::Relaxed) >= BUDGET {
            shared.taken.fetch_sub(1, Ordering::Relaxed);
            rate.refuse();
            return false;
        }
        rate.taken.fetch_add(1, Ordering::Relaxed);
        shared.samples.fetch_add(1, Ordering::Relaxed);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;

    /// Queues items at an even pace for some seconds; returns the samples in the last second, and the shift at its end.
    fn run(
        budget: &Budget<Linux>,
        queues: &[(&Rate<Linux>, u64)],
        seconds: u64,
    ) -> Vec<(u64, u32)> {
        let mut samples = vec![0; queues.len()];
        // In steps of 100 us.
        for step in 0..seconds * 10_000 {
            let now = Instant::from_nanos(1_000_000_000 + step * 100_000);
            for (index, (rate, pace)) in queues.iter().enumerate() {
                let (first, last) = (step * pace / 10_000, (step + 1) * pace / 10_000);
                for item in first..last {
                    let wanted = item & ((1 << rate.sample_shift()) - 1) == 0;
                    if wanted && budget.allows(rate, now) && step >= (seconds - 1) * 10_000 {
                        samples[index] += 1;
                    }
                }
            }
        }
        queues
            .iter()
            .zip(samples)
            .map(|((rate, _), samples)| (samples, rate.sample_shift()))
            .collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of items, one by one")]
    fn few_items_are_all_taken() {
        let (budget, rate) = (Budget::new(), Rate::new());
        assert_eq!(run(&budget, &[(&rate, 5000)], 2), [(5000, 0)]);
        assert_eq!(budget.samples(), 10_000);
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of items, one by one")]
    fn many_items_are_thinned_to_the_budget_and_few_beside_them_are_not() {
        let (budget, busy, calm) = (Budget::new(), Rate::new(), Rate::new());
        let rows = run(&budget, &[(&busy, 3_000_000), (&calm, 100)], 20);
        let (taken, sample_shift) = rows[0];
        assert!((1000..=8000).contains(&taken), "{taken} samples");
        assert!((7..=11).contains(&sample_shift), "sample_shift {sample_shift}");
        assert_eq!(rows[1], (100, 0), "of a queue with few items each one counts");
        // When few items come again, all of them are sampled again.
        assert_eq!(run(&budget, &[(&busy, 2000), (&calm, 100)], 3), [(2000, 0), (100, 0)]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of items, one by one")]
    fn no_second_has_more_than_the_budget() {
        let budget = Budget::new();
        let rates: Vec<Rate<Linux>> = (0..200).map(|_| Rate::new()).collect();
        let queues: Vec<_> = rates.iter().map(|rate| (rate, 20_000)).collect();
        let before = budget.samples();
        let rows = run(&budget, &queues, 3);
        assert!(budget.samples() - before <= 3 * 20_000 + u64::from(BUDGET));
        assert!(rows.iter().all(|(samples, _)| *samples > 0), "each queue has its share");
    }

    #[test]
    #[cfg_attr(miri, ignore = "millions of items, one by one")]
    fn a_reader_may_want_fewer() {
        let (budget, rate) = (Budget::new(), Rate::new());
        rate.set_least(4);
        assert_eq!(run(&budget, &[(&rate, 1600)], 2), [(100, 4)]);
    }
}
