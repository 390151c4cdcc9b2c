//! AES-256-XTS as dm-crypt's `aes-xts-plain64` does it: the data is cut into sectors of 512 bytes, and the tweak
//! of each is its number on the device, little-endian. A block of 32 KiB is 64 sectors with 64 tweaks.
//!
//! The `xts-mode` crate encrypts one block of 16 bytes at a time and leaves most of a CPU's AES units idle. Here
//! the tweaks of a batch are computed first, then whole batches go through the cipher at once; the ciphertext is
//! the same (the tests compare with that crate and with the vectors of IEEE 1619).

use aes::cipher::{Array, BlockCipherDecrypt, BlockCipherEncrypt, KeyInit};
use aes::{Aes256, Block};

/// What dm-crypt encrypts under one tweak, in bytes.
pub const SECTOR: usize = 512;
/// One block of the cipher, in bytes.
const BLOCK: usize = 16;
/// How many blocks of 16 bytes go through the cipher at once: enough for the widest implementation (64 with
/// 512-bit vectors), and the 2 KiB of data and the 2 KiB of tweaks stay in the first-level cache.
const BATCH: usize = 128;
/// x^128 + x^7 + x^2 + x + 1: what is folded back when a tweak is doubled past 128 bits.
const POLYNOMIAL: u128 = 0x87;

/// Both keys of AES-256-XTS, expanded.
#[derive(Clone)]
pub struct Xts {
    data: Aes256,
    tweak: Aes256,
}

impl Xts {
    /// Expands the keys: first the one for the data, then the one for the tweaks.
    pub fn new(data: &[u8; 32], tweak: &[u8; 32]) -> Self {
        Self { data: Aes256::new(&Array(*data)), tweak: Aes256::new(&Array(*tweak)) }
    }

    /// Encrypts `data` in place; its first sector is number `first` of the device.
    ///
    /// # Panics
    ///
    /// If `data` is not made of whole sectors.
    pub fn encrypt(&self, data: &mut [u8], first: u64) {
        self.apply(data, SECTOR, u128::from(first), Aes256::encrypt_blocks);
    }

    /// Decrypts `data` in place; its first sector is number `first` of the device.
    ///
    /// # Panics
    ///
    /// If `data` is not made of whole sectors.
    pub fn decrypt(&self, data: &mut [u8], first: u64) {
        self.apply(data, SECTOR, u128::from(first), Aes256::decrypt_blocks);
    }

    /// Both directions, for sectors of `sector` bytes: whiten with the tweaks, cipher, whiten again.
    fn apply(
        &self,
        data: &mut [u8],
        sector: usize,
        first: u128,
        cipher: impl Fn(&Aes256, &mut [Block]),
    ) {
        assert!(
            sector.is_multiple_of(BLOCK) && data.len().is_multiple_of(sector),
            "{} bytes are not whole sectors of {sector} bytes",
            data.len()
        );
        let per_sector = sector / BLOCK;
        let (blocks, _) = Block::slice_as_chunks_mut(data);
        let mut tweaks = [0; BATCH];
        // A batch is some whole sectors, or a part of one that is longer than a batch.
        if per_sector <= BATCH {
            let sectors_per_batch = BATCH / per_sector;
            let mut number = first;
            for batch in blocks.chunks_mut(sectors_per_batch * per_sector) {
                let mut firsts = [Block::default(); BATCH];
                let sectors = batch.len() / per_sector;
                for first in &mut firsts[..sectors] {
                    *first = Array(number.to_le_bytes());
                    number += 1;
                }
                self.tweak.encrypt_blocks(&mut firsts[..sectors]);
                for (first, tweaks) in firsts[..sectors].iter().zip(tweaks.chunks_mut(per_sector)) {
                    double(u128::from_le_bytes(first.0), tweaks);
                }
                whiten(batch, &tweaks);
                cipher(&self.data, batch);
                whiten(batch, &tweaks);
            }
        } else {
            for (index, sector) in blocks.chunks_mut(per_sector).enumerate() {
                let mut first = [Array((first + index as u128).to_le_bytes())];
                self.tweak.encrypt_blocks(&mut first);
                let mut next = u128::from_le_bytes(first[0].0);
                for batch in sector.chunks_mut(BATCH) {
                    next = double(next, &mut tweaks);
                    whiten(batch, &tweaks);
                    cipher(&self.data, batch);
                    whiten(batch, &tweaks);
                }
            }
        }
    }
}

/// Fills `tweaks` with `first` and its doublings in GF(2^128), and returns the one that would follow.
#[inline]
fn double(first: u128, tweaks: &mut [u128]) -> u128 {
    let mut next = first;
    for tweak in tweaks {
        *tweak = next;
        next = (next << 1) ^ (POLYNOMIAL * (next >> 127));
    }
    next
}

#[inline]
fn whiten(blocks: &mut [Block], tweaks: &[u128; BATCH]) {
    for (block, tweak) in blocks.iter_mut().zip(tweaks) {
        block.0 = (u128::from_le_bytes(block.0) ^ tweak).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::Generator;
    use xts_mode::{Xts128, get_tweak_default};

    fn keys(seed: u64) -> ([u8; 32], [u8; 32]) {
        let mut both = [0; 64];
        Generator::new(seed).fill(&mut both);
        (both[..32].try_into().unwrap(), both[32..].try_into().unwrap())
    }

    /// The same data encrypted by the crate that works one block at a time.
    fn oracle(keys: &([u8; 32], [u8; 32]), data: &[u8], sector: usize, first: u128) -> Vec<u8> {
        let mut data = data.to_vec();
        let xts = Xts128::new(Aes256::new(&Array(keys.0)), Aes256::new(&Array(keys.1)));
        xts.encrypt_area(&mut data, sector, first, get_tweak_default);
        data
    }

    #[test]
    fn agrees_with_xts_mode_for_every_size_and_tweak() {
        let numbers =
            [0, 1, 63, 64, 0xff, 0x1_0000_0000, u128::from(u64::MAX) - 500, u128::MAX >> 3];
        for (seed, first) in numbers.into_iter().enumerate() {
            let keys = keys(seed as u64);
            let xts = Xts::new(&keys.0, &keys.1);
            let sizes = [16, 48, 512, 2064, 32, 2032, 2048, 4096];
            let counts = [1, 5, 8, 9, 2, 3, 64, 129];
            for &sector in &sizes[..nearq_model::bound(4, 8)] {
                for &sectors in &counts[..nearq_model::bound(4, 8)] {
                    let mut data = vec![0; sector * sectors];
                    Generator::new(first as u64 ^ sectors as u64).fill(&mut data);
                    let expected = oracle(&keys, &data, sector, first);
                    let plain = data.clone();
                    xts.apply(&mut data, sector, first, |cipher, blocks| {
                        cipher.encrypt_blocks(blocks)
                    });
                    assert_eq!(data, expected, "{sectors} sectors of {sector} bytes from {first}");
                    xts.apply(&mut data, sector, first, |cipher, blocks| {
                        cipher.decrypt_blocks(blocks)
                    });
                    assert_eq!(
                        data, plain,
                        "{sectors} sectors of {sector} bytes from {first}, back"
                    );
                }
            }
        }
    }

    #[test]
    fn a_block_of_32_kib_is_64_sectors_numbered_from_the_first() {
        let keys = keys(7);
        let xts = Xts::new(&keys.0, &keys.1);
        let mut data = vec![0; 32 << 10];
        Generator::new(9).fill(&mut data);
        let expected = oracle(&keys, &data, 512, 1 << 33);
        xts.encrypt(&mut data, 1 << 33);
        assert_eq!(data, expected);
    }

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
            .collect()
    }

    /// IEEE 1619-2007, annex B, vectors 10 to 14: AES-256, the bytes 00 to ff twice, tweaks of growing length.
    /// The ciphertext of each begins as given here; of vector 10 the end is given too.
    #[test]
    fn ieee_1619_vectors() {
        let data_key = hex("2718281828459045235360287471352662497757247093699959574966967627");
        let tweak_key = hex("3141592653589793238462643383279502884197169399375105820974944592");
        let xts = Xts::new(&data_key.try_into().unwrap(), &tweak_key.try_into().unwrap());
        for (first, begins) in VECTORS {
            let mut data: Vec<u8> = (0..512).map(|byte| byte as u8).collect();
            xts.encrypt(&mut data, first);
            let begins = hex(begins);
            assert_eq!(data[..begins.len()], begins, "tweak {first:#x}");
            if first == 0xff {
                assert_eq!(data[480..], hex(VECTOR_10_ENDS), "end of vector 10");
            }
            xts.decrypt(&mut data, first);
            assert!(
                data.iter().enumerate().all(|(at, &byte)| byte == at as u8),
                "tweak {first:#x}, back"
            );
        }
    }

    const VECTOR_10_ENDS: &str = "773dad38014bd2092fa755c824bb5e54c4f36ffda9fcea70b9c6e693e148c151";
    const VECTORS: [(u64, &str); 5] = [
        (
            0xff,
            "1c3b3a102f770386e4836c99e370cf9bea00803f5e482357a4ae12d414a3e63b5d31e276f8fe4a8d66b317f9ac683f44",
        ),
        (
            0xffff,
            "77a31251618a15e6b92d1d66dffe7b50b50bad552305ba0217a610688eff7e11e1d0225438e093242d6db274fde801d4",
        ),
        (
            0xff_ffff,
            "e387aaa58ba483afa7e8eb469778317ecf4cf573aa9d4eac23f2cdf914e4e200a8b490e42ee646802dc6ee2b471b2781",
        ),
        (
            0xffff_ffff,
            "bf53d2dade78e822a4d949a9bc6766b01b06a8ef70d26748c6a7fc36d80ae4c5520f7c4ab0ac8544424fa405162fef5a",
        ),
        (
            0xff_ffff_ffff,
            "64497e5a831e4a932c09be3e5393376daa599548b816031d224bbf50a818ed2350eae7e96087c8a0db51ad290bd00c1a",
        ),
    ];
}
