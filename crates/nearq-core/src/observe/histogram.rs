//! How often each time was measured: counters by class of time, which any thread increments without a lock.
//!
//! The classes are those of a high dynamic range histogram: sixteen to each power of two, so that a class is about 6 % wide whatever the
//! time, from a nanosecond to more than an hour. Longer times count in the last one. (G. Tene, HdrHistogram; that library's own histograms
//! belong to one thread.) 5 KB each.

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

/// Classes per power of two, as a power of two.
const FINENESS: u32 = 4;
const FINE: u64 = 1 << FINENESS;
/// Times from two to this power of nanoseconds on (73 minutes) count in the last class.
const LONGEST: u32 = 42;
const CLASSES: usize = (FINE + (LONGEST - FINENESS) as u64 * FINE) as usize;

/// The class of a time.
fn class(nanos: u64) -> usize {
    if nanos < FINE {
        return nanos as usize;
    }
    let power = nanos.ilog2() - FINENESS;
    // The leading bit is the class's power, those behind it are its place there.
    let class = u64::from(power) * FINE + (nanos >> power);
    (class as usize).min(CLASSES - 1)
}

/// The least time that is too long for a class.
fn end(class: usize) -> u64 {
    let class = class as u64;
    if class < FINE {
        return class + 1;
    }
    let power = class / FINE - 1;
    (class % FINE + FINE + 1) << power
}

/// Times of one kind.
pub(crate) struct Recorder<P: Platform> {
    classes: Box<[P::AtomicU64]>,
    samples: P::AtomicU64,
    sum: P::AtomicU64,
}

impl<P: Platform> Recorder<P> {
    pub(crate) fn new() -> Self {
        Recorder {
            classes: (0..CLASSES).map(|_| P::AtomicU64::new(0)).collect(),
            samples: P::AtomicU64::new(0),
            sum: P::AtomicU64::new(0),
        }
    }

    /// Adds a time that stands for `weight` items.
    pub(crate) fn record(&self, nanos: u64, weight: u64) {
        // Relaxed, all of them: counts and nothing else.
        self.classes[class(nanos)].fetch_add(weight, Ordering::Relaxed);
        self.samples.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(nanos.saturating_mul(weight), Ordering::Relaxed);
    }

    /// What was recorded so far; more may be recorded meanwhile.
    pub(crate) fn times(&self) -> Histogram {
        let counts = self.classes.iter().map(|count| count.load(Ordering::Relaxed));
        let classes = counts.enumerate().filter(|(_, count)| *count != 0);
        Histogram {
            samples: self.samples.load(Ordering::Relaxed),
            sum_nanos: self.sum.load(Ordering::Relaxed),
            buckets: classes
                .map(|(class, count)| Bucket { below_nanos: end(class), count })
                .collect(),
        }
    }
}

/// How often each length of time was measured. Each timed item also stands for those that were left out beside it, so the counts are
/// approximately those of all items.
///
/// ```
/// # use nearq_core as nearq;
/// use nearq::{Runtime, Workqueue, trace::Histogram};
///
/// /// The time in nanoseconds that 99 % of the items did not exceed.
/// fn p99(times: &Histogram) -> Option<u64> {
///     let items: u64 = times.buckets.iter().map(|bucket| bucket.count).sum();
///     let mut seen = 0;
///     times.buckets.iter().find_map(|bucket| {
///         seen += bucket.count;
///         (seen * 100 >= items * 99).then_some(bucket.below_nanos)
///     })
/// }
///
/// let queue = Workqueue::builder("timed").build()?;
/// let timing = Runtime::global().time_items();
/// (0..100).for_each(|_| drop(queue.spawn(|| ())));
/// queue.flush()?;
/// let times = queue.times().unwrap();
/// println!("99 % of the items began within {:?} ns and took less than {:?} ns", p99(&times.wait), p99(&times.run));
/// # Ok::<(), nearq::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// The number of items that were timed.
    pub samples: u64,
    /// The sum of all times, in nanoseconds, by the same weights as the counts.
    pub sum_nanos: u64,
    /// The buckets that are not empty, shortest times first. Each is about 6 % wide.
    pub buckets: Vec<Bucket>,
}

/// How long the items of a queue waited and ran; see [`QueueView::times`](crate::inspect::QueueView::times).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QueueTimes {
    /// From queueing to start.
    pub wait: Histogram,
    /// From start to end.
    pub run: Histogram,
}

/// A range of times, and how many items fell into it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bucket {
    /// The end of the range, in nanoseconds: the shortest time that is too long for it.
    pub below_nanos: u64,
    /// How many items took a time in this range.
    pub count: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_platform::Linux;

    #[test]
    fn every_time_is_in_the_class_that_ends_above_it() {
        let times =
            (0..LONGEST).flat_map(|power| [-1_i64, 0, 1, 7].map(|off| (1_i64 << power) + off));
        for nanos in
            times.filter(|nanos| (0..1 << LONGEST).contains(nanos)).map(|nanos| nanos as u64)
        {
            let class = class(nanos);
            let begin = if class == 0 { 0 } else { end(class - 1) };
            assert!((begin..end(class)).contains(&nanos), "{nanos}: {begin} to {}", end(class));
            assert!(end(class) - begin <= begin / FINE + 1, "{nanos}: class too wide");
        }
        assert_eq!(class(u64::MAX), CLASSES - 1);
        assert_eq!(end(CLASSES - 1), 1 << LONGEST);
    }

    #[test]
    fn counts_are_by_weight_and_samples_are_not() {
        let histogram = Recorder::<Linux>::new();
        histogram.record(3, 1);
        histogram.record(1000, 8);
        histogram.record(1001, 8);
        let times = histogram.times();
        assert_eq!((times.samples, times.sum_nanos), (3, 3 + 8 * 2001));
        let classes: Vec<_> =
            times.buckets.iter().map(|class| (class.below_nanos, class.count)).collect();
        assert_eq!(classes, [(4, 1), (1024, 16)]);
    }
}
