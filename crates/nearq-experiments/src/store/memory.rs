//! Blocks in memory, and a store of them.

use super::{Direction, Lane, Store, Transfer};
use crate::Error;
use crate::harness::EventBell;
use crate::payload::BLOCK_BYTES;
use nearq_platform::Linux;
use std::ops::{Deref, DerefMut, Range};

// The default store: memory. A transfer is a copy, made by the issuer's thread.

/// Blocks in memory. Every lane has its own, made (and touched) when the lane is.
#[derive(Clone, Copy, Debug)]
pub struct MemoryStore {
    places: u64,
}

impl MemoryStore {
    /// A store for `places` blocks.
    pub fn new(places: u64) -> Self {
        Self { places }
    }
}

impl Store<Linux> for MemoryStore {
    fn places(&self) -> u64 {
        self.places
    }

    fn describe(&self) -> String {
        "memory (the issuer's thread copies)".into()
    }

    fn lane(
        &self,
        places: Range<u64>,
        _in_flight: usize,
        _bell: &EventBell,
    ) -> Result<Box<dyn Lane>, Error> {
        assert!(places.end <= self.places, "the lane is outside the store");
        let blocks = places.clone().map(|_| Buffer::new()).collect();
        Ok(Box::new(MemoryLane { first: places.start, blocks }))
    }
}

#[derive(Debug)]
struct MemoryLane {
    first: u64,
    blocks: Vec<Buffer>,
}

impl Lane for MemoryLane {
    fn start(&mut self, mut transfer: Transfer) -> Result<Option<Transfer>, Error> {
        let block = &mut self.blocks[(transfer.place - self.first) as usize];
        match transfer.direction {
            Direction::Write => block.copy_from_slice(&transfer.data),
            Direction::Read => transfer.data.copy_from_slice(block),
        }
        Ok(Some(transfer))
    }
}

// The memory of one block, aligned for direct input and output.

/// One block in memory, at an address that direct input and output accepts (a multiple of 4096).
#[derive(Debug)]
pub struct Buffer(Box<Page>);

#[derive(Debug)]
#[repr(C, align(4096))]
struct Page([u8; BLOCK_BYTES]);

impl Buffer {
    /// A block of zeroes, touched, so that no run pays for its first use.
    #[expect(
        clippy::large_stack_arrays,
        reason = "32 KiB, once for each block, and it needs no unsafe code"
    )]
    pub fn new() -> Self {
        Self(Box::new(Page([0; BLOCK_BYTES])))
    }
}

impl Default for Buffer {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0.0
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0.0
    }
}

#[cfg(test)]
#[path = "tests/buffer.rs"]
mod buffer_tests;
