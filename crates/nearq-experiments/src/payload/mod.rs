//! What the items of the `scopes` experiment compute: block data, AES-256-XTS over it, and the SHA-512 by which
//! the issuer verifies that it got its own data back.

mod generator;
mod xts;

pub use generator::Generator;
pub use xts::{SECTOR, Xts};

use serde::Serialize;
use sha2::{Digest as _, Sha512};
use std::hint::black_box;
use std::time::{Duration, Instant};

/// The document's block size, in bytes.
pub const BLOCK_BYTES: usize = 32 << 10;
/// How many 512-byte sectors a block has.
pub const SECTORS_PER_BLOCK: u64 = (BLOCK_BYTES / SECTOR) as u64;

/// The SHA-512 of a block.
pub type Digest = [u8; 64];

/// The SHA-512 of `data`.
pub fn digest(data: &[u8]) -> Digest {
    Sha512::digest(data).into()
}

/// Whether `data` is what `expected` was computed from.
pub fn verify(data: &[u8], expected: &Digest) -> bool {
    digest(data) == *expected
}

/// How fast one CPU does each part of the work here, in MiB/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Speeds {
    /// Making the data.
    pub generate_mib_s: f64,
    /// SHA-512.
    pub sha512_mib_s: f64,
    /// AES-256-XTS, encrypting.
    pub encrypt_mib_s: f64,
    /// AES-256-XTS, decrypting.
    pub decrypt_mib_s: f64,
}

impl Speeds {
    /// Measures for about four times `each`, on the calling thread.
    pub fn measure(each: Duration) -> Self {
        let mut data = vec![0; BLOCK_BYTES];
        let mut generator = Generator::new(1);
        let xts = Xts::new(&[1; 32], &[2; 32]);
        Self {
            generate_mib_s: mib_per_second(each, || generator.fill(black_box(&mut data))),
            sha512_mib_s: mib_per_second(each, || {
                black_box(digest(black_box(&data)));
            }),
            encrypt_mib_s: mib_per_second(each, || xts.encrypt(black_box(&mut data), 77)),
            decrypt_mib_s: mib_per_second(each, || xts.decrypt(black_box(&mut data), 77)),
        }
    }

    /// CPU time that a block costs its issuer (generating, hashing twice), in microseconds.
    pub fn issuer_us_per_block(&self) -> f64 {
        us_per_block(self.generate_mib_s) + 2.0 * us_per_block(self.sha512_mib_s)
    }

    /// CPU time that a block costs the two items (encrypting, decrypting), in microseconds.
    pub fn items_us_per_block(&self) -> f64 {
        us_per_block(self.encrypt_mib_s) + us_per_block(self.decrypt_mib_s)
    }
}

fn us_per_block(mib_s: f64) -> f64 {
    BLOCK_BYTES as f64 / f64::from(1 << 20) / mib_s * 1e6
}

/// Runs `work` on blocks for about `budget`; the best of eight parts counts, because a neighbour can only slow
/// it down.
fn mib_per_second(budget: Duration, mut work: impl FnMut()) -> f64 {
    let mut best: f64 = 0.0;
    for _ in 0..8 {
        let (start, mut blocks) = (Instant::now(), 0);
        while blocks == 0 || start.elapsed() < budget / 8 {
            work();
            blocks += 1;
        }
        let mib = f64::from(blocks) * BLOCK_BYTES as f64 / f64::from(1 << 20);
        best = best.max(mib / start.elapsed().as_secs_f64());
    }
    best
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_flipped_bit_is_detected_before_and_after_encryption() {
        let xts = Xts::new(&[3; 32], &[4; 32]);
        let mut data = vec![0; BLOCK_BYTES];
        Generator::new(1).fill(&mut data);
        let expected = digest(&data);
        assert!(verify(&data, &expected));

        data[BLOCK_BYTES - 1] ^= 0x80;
        assert!(!verify(&data, &expected));
        data[BLOCK_BYTES - 1] ^= 0x80;

        xts.encrypt(&mut data, 5);
        assert!(!verify(&data, &expected));
        data[100] ^= 1;
        xts.decrypt(&mut data, 5);
        assert!(!verify(&data, &expected));
    }

    #[test]
    fn data_decrypts_only_at_the_position_where_it_was_written() {
        let xts = Xts::new(&[3; 32], &[4; 32]);
        let mut data = vec![0; BLOCK_BYTES];
        Generator::new(2).fill(&mut data);
        let expected = digest(&data);
        xts.encrypt(&mut data, 64);
        let mut elsewhere = data.clone();
        xts.decrypt(&mut data, 64);
        xts.decrypt(&mut elsewhere, 65);
        assert!(verify(&data, &expected));
        assert!(!verify(&elsewhere, &expected));
    }

    #[test]
    fn sha512_matches_the_published_vectors() {
        let of_abc = digest(b"abc");
        assert_eq!(of_abc[..8], [0xdd, 0xaf, 0x35, 0xa1, 0x93, 0x61, 0x7a, 0xba]);
        assert_eq!(of_abc[56..], [0x2a, 0x9a, 0xc9, 0x4f, 0xa5, 0x4c, 0xa4, 0x9f]);
    }

    #[test]
    fn the_cost_of_a_block_follows_from_the_speeds() {
        let speeds = Speeds {
            generate_mib_s: 1e9,
            sha512_mib_s: 500.0,
            encrypt_mib_s: 1000.0,
            decrypt_mib_s: 1000.0,
        };
        assert!((speeds.issuer_us_per_block() - 125.0).abs() < 0.01);
        assert!((speeds.items_us_per_block() - 62.5).abs() < 0.01);
    }
}
