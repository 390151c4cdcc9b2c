//! What goes through the items: how an issuer makes and verifies blocks, and what an item does to one. Real here;
//! declared, for simulated machines, in `declared`.

use crate::harness::Host;
use crate::payload::{Digest, Generator, Xts, digest, verify};
use crate::store::Buffer;
use nearq_platform::Linux;

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
    /// What a block is verified by.
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

/// What an item does to a block that lies at `first_sector` of the store.
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
