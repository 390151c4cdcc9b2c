//! Every worker of a runtime, by a number that fits into the idle stack's word.
//!
//! Entries are written once and live as long as the runtime, so it is safe to look up a number that was read from a stale word. A worker
//! whose thread has ended leaves its entry to the next thread of the same pool.

use nearq_platform::{Atomic, AtomicInt, LockPlatform, Ordering, Platform};

use crate::pool::worker::Worker;

/// Small in tests, so that the model checker tracks few atomics, and the second chunk is reached.
const CHUNK: usize = if cfg!(test) { 2 } else { 256 };
const CHUNKS: usize = if cfg!(test) { 4 } else { 256 };
/// The most worker entries that a runtime can have.
pub(crate) const MAX_WORKERS: usize = CHUNK * CHUNKS;

type Chunk<P> = [<P as LockPlatform>::AtomicPtr<Worker<P>>; CHUNK];

/// The slab of workers.
pub(crate) struct WorkerSlab<P: Platform> {
    chunks: [P::AtomicPtr<Chunk<P>>; CHUNKS],
    len: P::AtomicU32,
}

impl<P: Platform> WorkerSlab<P> {
    pub(crate) fn new() -> Self {
        WorkerSlab {
            chunks: core::array::from_fn(|_| P::AtomicPtr::new(core::ptr::null_mut())),
            len: P::AtomicU32::new(0),
        }
    }

    /// Adds the worker that `make` builds for the number it is given; `None` if the slab is full.
    pub(crate) fn add(&self, make: impl FnOnce(u32) -> Worker<P>) -> Option<&Worker<P>> {
        let index = self.len.fetch_add(1, Ordering::Relaxed);
        if index as usize >= MAX_WORKERS {
            self.len.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let worker = Box::into_raw(Box::new(make(index)));
        // Release: pairs with the acquire in `entry`.
        self.chunk(index as usize / CHUNK)[index as usize % CHUNK].store(worker, Ordering::Release);
        // SAFETY: just made, and freed only when the slab is dropped.
        Some(unsafe { &*worker })
    }

    fn chunk(&self, number: usize) -> &Chunk<P> {
        // Acquire: pairs with the release below.
        let mut chunk = self.chunks[number].load(Ordering::Acquire);
        if chunk.is_null() {
            let fresh: Box<Chunk<P>> =
                Box::new(core::array::from_fn(|_| P::AtomicPtr::new(core::ptr::null_mut())));
            let fresh = Box::into_raw(fresh);
            match self.chunks[number].compare_exchange(
                chunk,
                fresh,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => chunk = fresh,
                Err(found) => {
                    // SAFETY: ours, and no other thread has seen it.
                    drop(unsafe { Box::from_raw(fresh) });
                    chunk = found;
                }
            }
        }
        // SAFETY: chunks are freed only when the slab is dropped, and shared from the moment they are stored.
        unsafe { &*chunk }
    }

    fn entry(&self, index: usize) -> Option<&Worker<P>> {
        let chunk = self.chunks[index / CHUNK].load(Ordering::Acquire);
        // SAFETY: null, or a chunk that lives as long as the slab.
        let chunk = unsafe { chunk.as_ref() }?;
        // SAFETY: null, or a worker that lives as long as the slab.
        unsafe { chunk[index % CHUNK].load(Ordering::Acquire).as_ref() }
    }

    /// The worker with that number. It exists: the number was read from a word into which a worker wrote itself.
    pub(crate) fn get(&self, index: u32) -> &Worker<P> {
        self.entry(index as usize).expect("a number on the idle stack names a worker")
    }

    /// Every worker that ever existed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Worker<P>> {
        let len = (self.len.load(Ordering::Acquire) as usize).min(MAX_WORKERS);
        (0..len).filter_map(|index| self.entry(index))
    }
}

impl<P: Platform> Drop for WorkerSlab<P> {
    fn drop(&mut self) {
        for chunk in &self.chunks {
            let chunk = chunk.load(Ordering::Acquire);
            if chunk.is_null() {
                continue;
            }
            // SAFETY: nothing else has the slab, so nothing else has its chunks.
            let chunk = unsafe { Box::from_raw(chunk) };
            for worker in chunk.iter() {
                let worker = worker.load(Ordering::Acquire);
                if !worker.is_null() {
                    // SAFETY: each worker was made as a box and is in one place of one chunk; nothing else has the slab, so nothing borrows
                    // the worker.
                    drop(unsafe { Box::from_raw(worker) });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
