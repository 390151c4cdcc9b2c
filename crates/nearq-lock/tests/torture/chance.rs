//! Random numbers, and what is done with them under a mutex.

use std::time::Duration;

use nearq_platform::{Linux, LockPlatform};

/// Random numbers, the same for the same seed (xorshift64*; Vigna: An experimental exploration of Marsaglia's xorshift generators, 2016).
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut chance = Chance((seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15)) | 1);
        for _ in 0..8 {
            chance.below(2);
        }
        chance
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % limit
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub(crate) fn micros(&mut self, limit: u64) -> Duration {
        Duration::from_micros(self.below(limit))
    }

    /// Spends some time: usually almost none, sometimes a scheduler's time slice.
    pub(crate) fn dwell(&mut self) {
        match self.below(256) {
            0 => Linux::sleep(self.micros(300)),
            1..=3 => Linux::yield_now(),
            4..=15 => Linux::pause(self.below(2000) as u32),
            _ => Linux::pause(self.below(30) as u32),
        }
    }
}

/// Two numbers that are equal for the thread that has the mutex.
#[derive(Default)]
pub(crate) struct Pair(pub(crate) u64, pub(crate) u64);

impl Pair {
    pub(crate) fn use_it(&mut self, chance: &mut Chance) {
        assert_eq!(self.0, self.1, "two threads held the lock at once");
        self.0 += 1;
        chance.dwell();
        self.1 += 1;
        assert_eq!(self.0, self.1, "two threads held the lock at once");
    }
}
