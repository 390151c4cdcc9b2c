//! The soak's random numbers: a stream that depends only on its seed, and is the same on every machine.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A stream of random numbers: splitmix64 (Steele, Lea and Flood, 2014).
#[derive(Clone, Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    /// The stream of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`, which is not zero.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        ((u128::from(self.next()) * limit as u128) >> 64) as usize
    }

    /// A number of the range.
    pub(crate) fn within(&mut self, range: RangeInclusive<usize>) -> usize {
        range.start() + self.below(range.end() - range.start() + 1)
    }

    /// True once in `times`.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the elements.
    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// A number of microseconds.
    pub(crate) fn micros(&mut self, range: RangeInclusive<usize>) -> Duration {
        Duration::from_micros(self.within(range) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's reference values for the seed 1234567.
    #[test]
    fn matches_the_reference() {
        let mut dice = Dice::new(1234567);
        let expected = [6457827717110365317, 3203168211198807973, 9817491932198370423];
        assert_eq!(expected.map(|_| dice.next()), expected);
    }

    #[test]
    fn limits_hold() {
        let mut dice = Dice::new(1);
        assert!((0..1000).all(|_| (3..=5).contains(&dice.within(3..=5))));
        assert!((0..1000).any(|_| dice.one_in(4)) && (0..1000).any(|_| !dice.one_in(4)));
    }
}
