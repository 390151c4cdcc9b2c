//! Where encrypted blocks go and come back from: memory, a file, a block device, or a simulated drive.
//!
//! An issuer owns a [`Lane`] of the store, as a thread under fio owns its libaio context: it starts transfers,
//! up to one for every block that it has in flight, and learns of their ends. A transfer owns the block's memory
//! until then. Items never wait for the store: they only encrypt and decrypt.
//!
//! The kernel's dm-crypt differs in one respect: the worker that encrypted a block (or dm-crypt's writer thread) passes the block on to the
//! disk, and a finished read queues the decryption from an interrupt. Here both go through the issuer.

mod drive;
mod file;
mod memory;

pub use drive::Drive;
pub use file::FileStore;
pub use memory::Buffer;
pub use memory::MemoryStore;

use crate::Error;
use crate::harness::Host;
use nearq_platform::Instant;
use std::ops::Range;

/// The direction in which a block goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the store.
    Write,
    /// From the store.
    Read,
}

/// A block in transfer.
#[derive(Debug)]
pub struct Transfer {
    /// Which way.
    pub direction: Direction,
    /// The issuer's name for the block.
    pub slot: usize,
    /// Its place in the store, in blocks.
    pub place: u64,
    /// Its memory.
    pub data: Buffer,
}

/// A place to store blocks in.
pub trait Store<H: Host>: Send + Sync {
    /// How many blocks fit; lanes divide them among themselves.
    fn places(&self) -> u64;

    /// What it is and how it is accessed, for the report.
    fn describe(&self) -> String;

    /// A lane for the blocks at `places`, with up to `in_flight` transfers at once. Transfers that take their
    /// time ring `bell` when they end.
    fn lane(
        &self,
        places: Range<u64>,
        in_flight: usize,
        bell: &H::Bell,
    ) -> Result<Box<dyn Lane>, Error>;
}

/// One issuer's access to the store.
pub trait Lane: Send {
    /// Starts a transfer. A transfer that is finished at once is returned; [`Lane::reap`] returns the others.
    fn start(&mut self, transfer: Transfer) -> Result<Option<Transfer>, Error>;

    /// Appends the transfers that have finished since the last call.
    fn reap(&mut self, _finished: &mut Vec<Transfer>) -> Result<(), Error> {
        Ok(())
    }

    /// When the next transfer that does not ring the bell ends, if there is one.
    fn next_end(&self) -> Option<Instant> {
        None
    }
}
