//! The data of the blocks: pseudo-random, the same for the same seed, and cheap to make (xoshiro256++, four
//! streams side by side so that the compiler keeps a CPU's vector units busy).

/// Streams that run side by side.
const LANES: usize = 8;

/// A generator of block data.
#[derive(Clone, Debug)]
pub struct Generator {
    state: [[u64; LANES]; 4],
}

impl Generator {
    /// A generator whose data depends on `seed` alone.
    pub fn new(seed: u64) -> Self {
        let mut mix = seed;
        let mut state = [[0; LANES]; 4];
        for word in state.iter_mut().flatten() {
            *word = split_mix(&mut mix);
        }
        Self { state }
    }

    /// Fills `data` with the next bytes.
    pub fn fill(&mut self, data: &mut [u8]) {
        let mut state = self.state;
        for chunk in data.chunks_mut(LANES * 8) {
            let words = step(&mut state);
            if chunk.len() == LANES * 8 {
                for (bytes, word) in chunk.chunks_exact_mut(8).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
            } else {
                let bytes = words.iter().flat_map(|word| word.to_le_bytes());
                chunk.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
            }
        }
        self.state = state;
    }

    /// A number below `bound`, for choosing places; `bound` must not be zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        let word = step(&mut self.state)[0];
        ((u128::from(word) * u128::from(bound)) >> 64) as u64
    }
}

/// One step of xoshiro256++ in every lane.
#[inline]
fn step(state: &mut [[u64; LANES]; 4]) -> [u64; LANES] {
    let mut out = [0; LANES];
    let [a, b, c, d] = state;
    for lane in 0..LANES {
        out[lane] = a[lane].wrapping_add(d[lane]).rotate_left(23).wrapping_add(a[lane]);
        let shifted = b[lane] << 17;
        c[lane] ^= a[lane];
        d[lane] ^= b[lane];
        b[lane] ^= c[lane];
        a[lane] ^= d[lane];
        c[lane] ^= shifted;
        d[lane] = d[lane].rotate_left(45);
    }
    out
}

/// SplitMix64: turns one seed into well-mixed words.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_data_and_another_seed_does_not() {
        let (mut one, mut same, mut other) = ([0; 1000], [0; 1000], [0; 1000]);
        Generator::new(1).fill(&mut one);
        Generator::new(1).fill(&mut same);
        Generator::new(2).fill(&mut other);
        assert_eq!(one, same);
        assert_ne!(one, other);
    }

    #[test]
    fn data_does_not_repeat_and_looks_random() {
        let mut generator = Generator::new(3);
        let (mut first, mut second) = (vec![0; 32 << 10], vec![0; 32 << 10]);
        generator.fill(&mut first);
        generator.fill(&mut second);
        assert_ne!(first, second);
        let ones: u32 = first.iter().map(|byte| byte.count_ones()).sum();
        let half = 32 * 1024 * 4;
        assert!(ones.abs_diff(half) < half / 50, "{ones} of {} bits are set", half * 2);
    }

    #[test]
    fn a_length_that_is_not_a_multiple_of_a_step_is_filled_to_the_end() {
        let mut data = [0; 100];
        Generator::new(5).fill(&mut data);
        assert!(
            data[64..].iter().any(|&byte| byte != 0) && data[96..].iter().any(|&byte| byte != 0)
        );
    }

    #[test]
    fn random_numbers_cover_the_range_below_the_bound() {
        let mut generator = Generator::new(4);
        let mut seen = [false; 5];
        for _ in 0..200 {
            seen[generator.below(5) as usize] = true;
        }
        assert_eq!(seen, [true; 5]);
    }
}
