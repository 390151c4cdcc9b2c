//! Statistics of a few measurements of each configuration: pure functions over numbers.
//!
//! **The middle and the spread** are the median and the median absolute deviation from it. One disturbed measurement in five does not
//! affect either much.
//!
//! **Whether one is better than the control** is decided by ranks, with the exact one-sided test of Mann and Whitney ("On a test of whether
//! one of two random variables is stochastically larger than the other", Annals of Mathematical Statistics 18, 1947): all measurements of
//! the two are sorted. The answer is the share, among all ways to distribute their ranks over the two, in which the candidate's sum of
//! ranks is at least as large as the observed sum. Equal measurements each count with the mean of their ranks, so the answer is exact for
//! them too. Nothing is assumed about the distribution of measurements. A load that drifts from round to round affects both alike, because
//! each round has one measurement of each in random order: drift can hide differences, but not create them.
//!
//! **Several candidates** have several chances to be better by chance, so each answer is multiplied by their number (Bonferroni's
//! inequality; Dunn, "Multiple comparisons among means", Journal of the American Statistical Association 56, 1961).

/// The median of some numbers; for an even count, the mean of the middle two.
pub(super) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The median absolute deviation from the median.
pub(super) fn spread(values: &[f64]) -> Option<f64> {
    let middle = median(values)?;
    median(&values.iter().map(|value| (value - middle).abs()).collect::<Vec<f64>>())
}

/// The probability that `candidate` would exceed `control` this much if the two were equal: see the head of the file. The probability is 1
/// if either has no measurement.
pub(super) fn chance(candidate: &[f64], control: &[f64]) -> f64 {
    let all: Vec<f64> = candidate.iter().chain(control).copied().collect();
    let ranks = doubled_ranks(&all);
    let reached: usize = ranks[..candidate.len()].iter().sum();
    let ways = ways(&ranks, candidate.len());
    let total: f64 = ways.iter().sum();
    ways[reached..].iter().sum::<f64>() / total
}

/// The rank of each number, from 1, times two: equal ones share the mean of theirs.
fn doubled_ranks(values: &[f64]) -> Vec<usize> {
    let rank = |value: &f64| {
        let below = values.iter().filter(|other| *other < value).count();
        let equal = values.iter().filter(|other| *other == value).count();
        2 * below + equal + 1
    };
    values.iter().map(rank).collect()
}

/// In how many ways `count` of the ranks can be chosen, by their sum.
fn ways(ranks: &[usize], chosen: usize) -> Vec<f64> {
    let most: usize = ranks.iter().sum();
    // Indexed by the number of ranks chosen so far, then by their sum.
    let mut ways = vec![vec![0.0; most + 1]; chosen + 1];
    ways[0][0] = 1.0;
    for &rank in ranks {
        for count in (1..=chosen).rev() {
            for sum in (rank..=most).rev() {
                ways[count][sum] += ways[count - 1][sum - rank];
            }
        }
    }
    ways.swap_remove(chosen)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_spread_of_known_numbers() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[7.0, 1.0, 100.0]), Some(7.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 100.0]), Some(3.0));
        assert_eq!(spread(&[1.0, 1.0, 2.0, 2.0, 4.0, 6.0, 9.0]), Some(1.0));
        assert_eq!(spread(&[5.0]), Some(0.0));
    }

    /// Computes the same probability by enumerating all ways to distribute the ranks.
    fn enumerated_chance(candidate: &[f64], control: &[f64]) -> f64 {
        let all: Vec<f64> = candidate.iter().chain(control).copied().collect();
        let ranks = doubled_ranks(&all);
        let reached: usize = ranks[..candidate.len()].iter().sum();
        let (mut as_large, mut total) = (0, 0);
        for set in 0_u32..1 << all.len() {
            if set.count_ones() as usize == candidate.len() {
                let chosen = (0..all.len()).filter(|index| set >> index & 1 == 1);
                total += 1;
                as_large += i32::from(chosen.map(|index| ranks[index]).sum::<usize>() >= reached);
            }
        }
        f64::from(as_large) / f64::from(total)
    }

    #[test]
    fn chances_match_published_tables() {
        // All five above all five: one way of 252. All four above all four: one way of 70.
        let (low, high) = ([1.0, 2.0, 3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0, 10.0]);
        assert_eq!(chance(&high, &low), 1.0 / 252.0);
        assert_eq!(chance(&low, &high), 1.0);
        assert_eq!(chance(&high[..4], &low[..4]), 1.0 / 70.0);
        // U = 2 with five and five measurements: 4 ways of 252, as in the tables of the exact distribution.
        let nearly = [1.5, 6.0, 7.0, 8.0, 9.0];
        let control = [1.0, 2.0, 3.0, 0.5, 0.7];
        assert_eq!(chance(&nearly, &control), 4.0 / 252.0);
    }

    #[test]
    fn chances_match_enumeration_with_ties() {
        let mut random = fastrand::Rng::with_seed(3);
        for _ in 0..200 {
            let mut some = |count: usize| -> Vec<f64> {
                (0..count).map(|_| f64::from(random.u8(0..6))).collect()
            };
            let (candidate, control) = (some(4), some(5));
            let (counted, expected) =
                (chance(&candidate, &control), enumerated_chance(&candidate, &control));
            assert!((counted - expected).abs() < 1e-12, "{candidate:?} {control:?}");
        }
    }

    #[test]
    fn the_false_positive_rate_is_at_most_five_percent() {
        let mut random = fastrand::Rng::with_seed(17);
        let mut found = 0;
        for _ in 0..1000 {
            // Rounds that drift: both configurations share the level of a round.
            let mut round = |drift: f64| (drift + random.f64(), drift + random.f64());
            let pairs: Vec<(f64, f64)> = (0..6).map(|number| round(f64::from(number))).collect();
            let (one, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            found += i32::from(chance(&one, &other) <= 0.05);
        }
        assert!(found <= 50, "{found} of 1000");
    }

    #[test]
    fn an_empty_or_equal_sample_proves_nothing() {
        assert_eq!(chance(&[], &[1.0]), 1.0);
        assert_eq!(chance(&[1.0], &[]), 1.0);
        assert_eq!(chance(&[2.0, 2.0], &[2.0, 2.0]), 1.0);
    }
}
