//! A file that everybody writes to, as fxmark's DWOM: each overwrites a block of its own, all under the lock of the one inode.

use super::contestant::Exclusive;
use super::load::Plan;
use super::run::Shape;
use super::{Line, bump};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

/// Cache lines of a block of 4 KiB.
const LINES: usize = 64;

/// A cache line of a block, of which one word is written: the whole line moves with it.
#[repr(align(64))]
struct Part<A>(A);

/// What an inode knows of its file, on one line.
struct Head<P: Host> {
    version: P::AtomicU64,
    last_writer: P::AtomicU64,
}

/// The file.
pub(super) struct File<P: Host, L> {
    lock: Line<L>,
    head: Line<Head<P>>,
    blocks: Vec<[Part<P::AtomicU64>; LINES]>,
}

impl<P: Host, L: Exclusive> Shape<P> for File<P, L> {
    fn new(plan: &Plan) -> Self {
        let zero = || P::AtomicU64::new(0);
        let block = |_| core::array::from_fn(|_| Part(zero()));
        Self {
            lock: Line(L::free()),
            head: Line(Head { version: zero(), last_writer: zero() }),
            blocks: (0..plan.writers).map(block).collect(),
        }
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        self.lock.0.with(|| {
            acquired();
            for part in &self.blocks[writer] {
                part.0.store(turn + 1, Ordering::Relaxed);
            }
            bump::<P>(&self.head.0.version);
            self.head.0.last_writer.store(writer as u64, Ordering::Relaxed);
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        // Relaxed, both: everybody has ended.
        let version = self.head.0.version.load(Ordering::Relaxed);
        let expected: u64 = entered.iter().sum();
        if version != expected {
            return Err(format!("{expected} writes were made, and the inode knows of {version}"));
        }
        for (writer, (block, turns)) in self.blocks.iter().zip(entered).enumerate() {
            if block.iter().any(|part| part.0.load(Ordering::Relaxed) != *turns) {
                return Err(format!("the block of writer {writer} is not what it wrote last"));
            }
        }
        Ok(())
    }
}
