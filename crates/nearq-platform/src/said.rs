//! Records which causes a warning was given for: [`Said`].
//!
//! Many threads may meet the same cause, and one warning is enough. The table has a fixed size and no lock, so it may be used anywhere,
//! also in the child of a fork. The child does not repeat the warnings of its parent.

use core::sync::atomic::{AtomicU64, Ordering};

/// How many causes are distinguished. Further causes get no warning. The program has about ten.
const CAUSES: usize = 64;

/// The hashes of the causes for which a warning was given.
#[derive(Debug)]
pub struct Said([AtomicU64; CAUSES]);

impl Said {
    /// None.
    pub const fn new() -> Self {
        Said([const { AtomicU64::new(0) }; CAUSES])
    }

    /// Whether the caller is the first to warn of this cause. Notes that a warning was given.
    pub fn is_first(&self, cause: &str) -> bool {
        let hashed = hash(cause);
        for entry in &self.0 {
            // Relaxed: nothing is published with the value.
            match entry.compare_exchange(0, hashed, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(known) if known == hashed => return false,
                Err(_) => {}
            }
        }
        false
    }
}

impl Default for Said {
    fn default() -> Self {
        Said::new()
    }
}

/// FNV-1a of 64 bits; never 0.
fn hash(text: &str) -> u64 {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    hash.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_cause_is_reported_once() {
        let said = Said::new();
        assert!(said.is_first("affinity"));
        assert!(said.is_first("memory"));
        assert!(!said.is_first("affinity"));
        assert!(!said.is_first("memory"));
    }

    #[test]
    fn only_one_of_many_threads_reports_a_cause() {
        let said = Said::new();
        let first = std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| said.is_first("affinity")));
            threads.map(|thread| thread.join().expect("no panic"))
        });
        assert_eq!(first.iter().filter(|first| **first).count(), 1);
    }

    #[test]
    fn causes_beyond_the_capacity_are_not_repeated() {
        let said = Said::new();
        for cause in 0..CAUSES {
            assert!(said.is_first(&cause.to_string()));
        }
        assert!(!said.is_first("one more"));
    }
}
