//! How far a figure is from a published one: the error factor, the same for all experiments.
//!
//! The error factor of two figures is the larger one divided by the smaller one. Two *gains* are compared as gains: nothing instead of 72 %
//! is a failure, though the ratios 1.00 and 1.72 differ by less than 2. Above [`MOST`] a figure is not reproduced, whatever the direction.

/// An error factor above this is not a reproduction.
pub(crate) const MOST: f64 = 2.0;

/// A gain below this counts as this much: published throughputs vary by about as much from run to run.
const LEAST_GAIN: f64 = 0.05;

/// The error factor of two figures that are larger than 0.
pub(crate) fn of_figures(one: f64, other: f64) -> f64 {
    (one / other).max(other / one)
}

/// The error factor of two gains, 0.72 for 72 %. The farther two gains are on different sides of 0, the larger it is, too. Gains below
/// `least` count as that much.
pub(crate) fn of_gains_above(least: f64, one: f64, other: f64) -> f64 {
    let [less, more] = if one.abs() < other.abs() { [one, other] } else { [other, one] };
    if less * more < 0.0 {
        (more - less).abs().max(least) / least
    } else {
        more.abs().max(least) / less.abs().max(least)
    }
}

/// The same for gains of throughput in percent of runs that vary by some 5 %.
pub(crate) fn of_gains(one: f64, other: f64) -> f64 {
    of_gains_above(LEAST_GAIN, one, other)
}

/// A published gain below this many of its standard errors cannot be told from none, and there is nothing to reproduce.
const LEAST_ERRORS: f64 = 2.0;

/// Whether a published gain with that standard error can be told from none.
pub(crate) fn is_a_gain(gain: f64, error: f64) -> bool {
    gain.abs() >= LEAST_ERRORS * error
}

/// What a table says of a published gain that cannot be told from none.
pub(crate) const NO_GAIN: &str = "cannot be told from none";

/// What a table says about an error factor.
pub(crate) fn word(factor: f64) -> &'static str {
    if factor <= MOST { "reproduced" } else { "not reproduced" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_factor_is_the_larger_figure_over_the_smaller_one() {
        assert_eq!((of_figures(2.0, 4.0), of_figures(4.0, 2.0)), (2.0, 2.0));
        assert_eq!((word(2.0), word(2.1)), ("reproduced", "not reproduced"));
        assert_eq!(word(f64::NAN), "not reproduced");
    }

    #[test]
    fn gains_are_compared_as_gains() {
        assert!((of_gains(0.36, 0.72) - 2.0).abs() < 1e-9);
        assert!((of_gains(0.0, 0.72) - 14.4).abs() < 1e-9);
        // Both are within the noise.
        assert_eq!(of_gains(0.01, 0.04), 1.0);
        // On different sides of 0 the distance counts.
        assert!((of_gains(-0.1, 0.1) - 4.0).abs() < 1e-9);
        assert!((of_gains_above(0.01, 0.02, 0.04) - 2.0).abs() < 1e-9);
        assert!(is_a_gain(2.7, 1.0) && !is_a_gain(7.5, 6.0) && is_a_gain(-0.2, 0.1));
    }
}
