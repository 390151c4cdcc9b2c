//! Times in the few classes of an exported histogram.
//!
//! A metrics store keeps a line for each class and needs the same classes each time. So the process's own classes, which are
//! narrow and left out if empty, are merged into powers of two of a nanosecond.

use crate::protocol::Histogram;

/// The first class ends at 2^10 ns, about a microsecond: shorter waits are those of items that found a worker that was already running.
const FIRST: u32 = 10;
/// The last class with a finite end: 2^34 ns, 17 seconds.
const LAST: u32 = 34;

/// The upper end of each class in seconds, and the number of items in it, not cumulative; the last end is infinity.
///
/// One of the process's classes that lies across an end is counted above the end.
pub(super) fn steps(times: &Histogram) -> Vec<(f64, u64)> {
    let ends = (FIRST..=LAST).map(|power| ((1_u64 << power) as f64 / 1e9, 0));
    let mut steps: Vec<(f64, u64)> = ends.chain([(f64::INFINITY, 0)]).collect();
    let mut left = u64::MAX;
    for bucket in &times.buckets {
        let power = bucket.below_ns.checked_next_power_of_two().map_or(64, u64::trailing_zeros);
        // Another process may report any numbers; their sum must still fit.
        let count = bucket.count.min(left);
        left -= count;
        steps[(power.clamp(FIRST, LAST + 1) - FIRST) as usize].1 += count;
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Bucket;

    #[test]
    fn each_time_is_in_exactly_one_bucket_with_a_sufficient_bound() {
        let ends = [1, 1000, 1024, 1025, 1 << 34, (1 << 34) + 1, u64::MAX];
        let buckets = ends.map(|below_ns| Bucket { below_ns, count: 3 }).to_vec();
        let steps = steps(&Histogram { samples: 9, sum_ns: 9, buckets });
        let some: Vec<_> = steps.iter().filter(|(_, count)| *count != 0).copied().collect();
        assert_eq!(some, [(1.024e-6, 9), (2.048e-6, 3), (17.179869184, 3), (f64::INFINITY, 6)]);
        assert!(steps.windows(2).all(|pair| pair[0].0 < pair[1].0));
        assert_eq!(steps.len(), 26);
    }
}
