//! The work on a block: computed here, declared on a simulated machine.

use crate::harness::Host;
use crate::payload::{BLOCK_BYTES, Digest, Generator, Speeds, Xts, digest, verify};
use crate::store::Buffer;
use nearq_platform::Linux;
use nearq_sim::Sim;
use serde::Serialize;
use std::time::Duration;

// The work that goes through the items: how an issuer makes and verifies blocks, and what an item does to a block. The work is real here;
// for simulated machines it is declared, in `declared`.

/// The work of a run, on a platform.
pub(super) trait Payload: Clone + Send + Sync + 'static {
    /// Where it is done.
    type Host: Host;
    /// An issuer's part.
    type Blocks: Blocks;

    /// The blocks of one issuer, which depend on `seed`.
    fn blocks(&self, seed: u64) -> Self::Blocks;
}

/// An issuer's part of the work.
pub(super) trait Blocks {
    /// What a block is verified with.
    type Proof: Default;
    /// The items' part.
    type Cipher: Cipher;

    /// The items' part, for each of the issuer's items.
    fn cipher(&self) -> Self::Cipher;

    /// A number below `bound`, for choosing places.
    fn below(&mut self, bound: u64) -> u64;

    /// Fills a block with new data.
    fn generate(&mut self, data: &mut Buffer) -> Self::Proof;

    /// Whether a block that came back is the one that was generated.
    fn verify(&self, data: &Buffer, proof: &Self::Proof) -> bool;
}

/// What an item does to a block that is at `first_sector` of the store.
pub(super) trait Cipher: Clone + Send + 'static {
    /// Before it is stored.
    fn encrypt(&self, data: &mut Buffer, first_sector: u64);

    /// After it was read back.
    fn decrypt(&self, data: &mut Buffer, first_sector: u64);
}

/// Random data, AES-256-XTS and SHA-512, computed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Real;

/// An issuer's generator and its keys.
pub(super) struct RealBlocks {
    generator: Generator,
    xts: Xts,
}

impl Payload for Real {
    type Host = Linux;
    type Blocks = RealBlocks;

    fn blocks(&self, seed: u64) -> RealBlocks {
        let mut generator = Generator::new(seed);
        let mut keys = [[0; 32]; 2];
        generator.fill(keys.as_flattened_mut());
        RealBlocks { generator, xts: Xts::new(&keys[0], &keys[1]) }
    }
}

impl Blocks for RealBlocks {
    type Proof = Proof;
    type Cipher = Xts;

    fn cipher(&self) -> Xts {
        self.xts.clone()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.generator.below(bound)
    }

    fn generate(&mut self, data: &mut Buffer) -> Proof {
        self.generator.fill(data);
        Proof(digest(data))
    }

    fn verify(&self, data: &Buffer, proof: &Proof) -> bool {
        verify(data, &proof.0)
    }
}

/// A block's SHA-512.
pub(super) struct Proof(Digest);

impl Default for Proof {
    fn default() -> Self {
        Self([0; 64])
    }
}

impl Cipher for Xts {
    fn encrypt(&self, data: &mut Buffer, first_sector: u64) {
        Self::encrypt(self, data, first_sector);
    }

    fn decrypt(&self, data: &mut Buffer, first_sector: u64) {
        Self::decrypt(self, data, first_sector);
    }
}

// The work of a run on a simulated machine: declared, not computed.
//
// # Inputs, with their sources
// - SHA-512: [`SHA512`], 7.25 cycles a byte on x86-64 without SIMD: the table at the head of OpenSSL's
// `crypto/sha/asm/sha512-x86_64.pl` (7.25 on Skylake, 7.66 on Haswell).
// - Making a block's data: [`GENERATE`], 0.44 cycles a byte: 0.09 ns a byte for xoshiro256++ on a Ryzen 9 6900HX at 4.9 GHz
//   (github.com/imartayan/prng-bench). An error in this number is small compared with the two SHA-512.
// - A cycle: the machine's clock.
// - The items: [`ITEM_PERCENT`], encryption and decryption of a block together take four times what its issuer spends on
// it. The document determines this by what it says about its loads, on 24 CPUs: with 8 issuers, and with 6 just as well,
// there is "enough work for saturation", with 4 there is "not enough work to saturate". An issuer that is always busy keeps
// w other CPUs busy with its items, if w is the items' work by its own; n issuers fill 24 CPUs from n (1 + w) = 24 on. So w
// lies between 24 / 6 - 1 = 3 and 24 / 4 - 1 = 5: the middle. (That the document's items do more than AES is plausible:
// each passes through the kernel's block layer as well.) Its tables of results are not used.
//
// # Bytes
// The issuer writes the block when it makes it and reads it for each SHA-512; an item reads and writes it. The simulator
// says what that costs, by where the bytes are and which CPU used them last. That cost comes on top of the cycles.
//
// # Verification
// Work is declared, order is not: a block carries a word, which its issuer makes from a sequence number, each encryption turns into another
// one that depends on place and key, and decryption turns back. An item that ran twice, or did not run, or ran on the wrong block, leaves
// another word.

/// Hundredths of a cycle a byte.
const SHA512: u64 = 725;
const GENERATE: u64 = 44;
/// The items' work in percent of the issuer's.
const ITEM_PERCENT: u64 = 400;

/// What the work costs: the inputs of a simulated run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Declared {
    /// The clock, in MHz.
    pub clock_mhz: u64,
    /// SHA-512, in hundredths of a cycle a byte.
    pub sha512_centicycles: u64,
    /// Making data, in hundredths of a cycle a byte.
    pub generate_centicycles: u64,
    /// What both items of a block cost, in percent of what its issuer spends on it.
    pub item_percent: u64,
}

impl Declared {
    /// The costs on a machine with this clock.
    pub fn at(clock_mhz: u64) -> Self {
        Self {
            clock_mhz,
            sha512_centicycles: SHA512,
            generate_centicycles: GENERATE,
            item_percent: ITEM_PERCENT,
        }
    }

    fn time(&self, centicycles: u64) -> Duration {
        Duration::from_nanos(BLOCK_BYTES as u64 * centicycles * 10 / self.clock_mhz.max(1))
    }

    /// Making a block's data.
    pub fn generate(&self) -> Duration {
        self.time(self.generate_centicycles)
    }

    /// One SHA-512 of a block.
    pub fn hash(&self) -> Duration {
        self.time(self.sha512_centicycles)
    }

    /// One item: an encryption or a decryption.
    pub fn item(&self) -> Duration {
        let issuer = self.generate() + 2 * self.hash();
        Duration::from_nanos(issuer.as_nanos() as u64 * self.item_percent / 200)
    }

    /// The same as speeds of one CPU that has the bytes in its caches.
    pub fn speeds(&self) -> Speeds {
        let speed = |time: Duration| {
            BLOCK_BYTES as f64
                / f64::from(1 << 20)
                / time.max(Duration::from_nanos(1)).as_secs_f64()
        };
        Speeds {
            generate_mib_s: speed(self.generate()),
            sha512_mib_s: speed(self.hash()),
            encrypt_mib_s: speed(self.item()),
            decrypt_mib_s: speed(self.item()),
        }
    }
}

impl Payload for Declared {
    type Host = Sim;
    type Blocks = DeclaredBlocks;

    fn blocks(&self, seed: u64) -> DeclaredBlocks {
        let mut generator = Generator::new(seed);
        let key = generator.below(u64::MAX);
        DeclaredBlocks {
            costs: *self,
            generator,
            cipher: DeclaredCipher { item: self.item(), key },
            made: 0,
        }
    }
}

/// An issuer's part.
pub(super) struct DeclaredBlocks {
    costs: Declared,
    generator: Generator,
    cipher: DeclaredCipher,
    /// Blocks made so far.
    made: u64,
}

/// An item's part.
#[derive(Clone, Debug)]
pub(super) struct DeclaredCipher {
    item: Duration,
    key: u64,
}

impl Blocks for DeclaredBlocks {
    type Proof = u64;
    type Cipher = DeclaredCipher;

    fn cipher(&self) -> DeclaredCipher {
        self.cipher.clone()
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.generator.below(bound)
    }

    fn generate(&mut self, data: &mut Buffer) -> u64 {
        Sim::write(data);
        Sim::charge(self.costs.generate());
        self.made += 1;
        let word = mixed(self.made);
        set_word(data, word);
        Sim::read(data);
        Sim::charge(self.costs.hash());
        word
    }

    fn verify(&self, data: &Buffer, proof: &u64) -> bool {
        Sim::read(data);
        Sim::charge(self.costs.hash());
        word(data) == *proof
    }
}

impl Cipher for DeclaredCipher {
    fn encrypt(&self, data: &mut Buffer, first_sector: u64) {
        self.work(data);
        let word = word(data).wrapping_mul(FACTOR) ^ mixed(first_sector ^ self.key);
        set_word(data, word);
    }

    fn decrypt(&self, data: &mut Buffer, first_sector: u64) {
        self.work(data);
        let word = (word(data) ^ mixed(first_sector ^ self.key)).wrapping_mul(INVERSE);
        set_word(data, word);
    }
}

impl DeclaredCipher {
    fn work(&self, data: &mut Buffer) {
        Sim::read(data);
        Sim::charge(self.item);
        Sim::write(data);
    }
}

/// An odd number, which makes multiplication reversible, and its inverse.
const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
const INVERSE: u64 = {
    // Newton's step doubles the number of right bits; an odd number is its own inverse in the last three.
    let mut inverse = FACTOR;
    let mut step = 0;
    while step < 5 {
        inverse = inverse.wrapping_mul(2_u64.wrapping_sub(FACTOR.wrapping_mul(inverse)));
        step += 1;
    }
    inverse
};

/// Any number, turned into one that resembles none of its neighbours (the finaliser of `SplitMix64`).
pub(crate) fn mixed(number: u64) -> u64 {
    let mut word = number.wrapping_mul(FACTOR);
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

/// The word that a block carries, in its first bytes.
fn word(data: &Buffer) -> u64 {
    u64::from_le_bytes(*data.first_chunk().expect("a block has 32 KiB"))
}

fn set_word(data: &mut Buffer, word: u64) {
    *data.first_chunk_mut().expect("a block has 32 KiB") = word.to_le_bytes();
}

#[cfg(test)]
#[path = "tests/declared.rs"]
mod declared_tests;
