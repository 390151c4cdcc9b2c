//! The default store: memory. A transfer is a copy, made by the issuer's thread.

use super::{Buffer, Direction, Lane, Store, Transfer};
use crate::Error;
use crate::harness::EventBell;
use nearq_platform::Linux;
use std::ops::Range;

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

    fn reap(&mut self, _finished: &mut Vec<Transfer>) -> Result<(), Error> {
        Ok(())
    }
}
