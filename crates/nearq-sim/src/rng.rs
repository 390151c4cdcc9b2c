//! The simulator's random numbers: xoshiro256**, written out so that a seed always means the same.
//!
//! Blackman and Vigna, "Scrambled linear pseudorandom number generators" (2021); seeded through splitmix64, as
//! its authors recommend.

/// A stream of random numbers, a function of its seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng([u64; 4]);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Rng([(); 4].map(|()| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut mixed = state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        }))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let Rng(s) = self;
        let result = s[1].wrapping_mul(5).rotate_left(7).wrapping_mul(9);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `limit`, which is not zero. The distribution is slightly uneven for huge limits, which does not matter here.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// True once in `times` calls on average.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The generator's reference values for the state 1, 2, 3, 4.
    #[test]
    fn matches_the_reference() {
        let mut rng = Rng([1, 2, 3, 4]);
        let expected = [11520, 0, 1509978240, 1215971899390074240];
        assert_eq!(expected.map(|_| rng.next()), expected);
    }

    #[test]
    fn seeds_differ_and_limits_hold() {
        assert_ne!(Rng::new(0).next(), Rng::new(1).next());
        let mut rng = Rng::new(7);
        assert!((0..1000).all(|_| rng.below(3) < 3));
        assert!((0..1000).any(|_| rng.one_in(4)) && (0..1000).any(|_| !rng.one_in(4)));
    }
}
