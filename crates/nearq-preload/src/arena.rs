//! Memory for Rust's allocations in this library, straight from the system: the program's `malloc` may be what waits for a mutex.
//!
//! What is allocated here is made once and kept (waiters' records, slots), or is needed for a moment while the machine is
//! read. So small things are cut from the front of a chunk, and only what was cut last is put back; the rest of the memory that
//! was used for a moment is lost, a few pages a process. What is large has a mapping of its own, which is given back.
//!
//! # Protocol
//! `current` names the chunk that is cut; a chunk's `used` is how much of it is gone. Both are changed by compare-exchange only, so
//! a fork at any moment leaves a usable arena. A chunk that is full is not touched any more.
//! A new chunk is published by release, and found by acquire. `used` is relaxed: what is in the memory is the affair of who got it.

use core::alloc::{GlobalAlloc, Layout};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::errno::Saved;

/// How much is taken from the system at once.
const CHUNK: usize = 256 << 10;
/// What needs more than that has a mapping of its own.
const SMALL: usize = CHUNK / 4;
/// Mappings are aligned to that at least.
const PAGE: usize = 4096;

/// The beginning of a chunk; what it is cut into follows.
struct Chunk {
    /// Bytes from the beginning of the chunk that are gone.
    used: AtomicUsize,
}

/// The allocator.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
}

impl Arena {
    pub(crate) const fn new() -> Self {
        Arena { current: AtomicPtr::new(ptr::null_mut()) }
    }

    fn is_small(layout: Layout) -> bool {
        layout.size() + layout.align() <= SMALL
    }

    /// The chunk that is cut now.
    fn chunk(&self) -> *mut Chunk {
        // Acquire: pairs with the release in `next_chunk`.
        self.current.load(Ordering::Acquire)
    }

    /// Cuts a piece from a chunk, if it is large enough.
    fn cut(chunk: *mut Chunk, layout: Layout) -> Option<*mut u8> {
        if chunk.is_null() {
            return None;
        }
        // SAFETY: chunks are never given back.
        let used = unsafe { &(*chunk).used };
        let base = chunk.addr();
        let mut from = used.load(Ordering::Relaxed);
        loop {
            let start = (base + from).next_multiple_of(layout.align()) - base;
            let end = start + layout.size();
            if end > CHUNK {
                return None;
            }
            match used.compare_exchange_weak(from, end, Ordering::Relaxed, Ordering::Relaxed) {
                // SAFETY: within the chunk.
                Ok(_) => return Some(unsafe { chunk.cast::<u8>().add(start) }),
                Err(found) => from = found,
            }
        }
    }

    /// Puts a new chunk in the place of a full one, unless somebody has done so. False if there is no memory.
    #[cold]
    fn next_chunk(&self, full: *mut Chunk) -> bool {
        let made = map(CHUNK).cast::<Chunk>();
        if made.is_null() {
            return false;
        }
        // SAFETY: a fresh mapping, aligned to pages.
        unsafe { made.write(Chunk { used: AtomicUsize::new(size_of::<Chunk>()) }) };
        // Release: the chunk is made.
        if self.current.compare_exchange(full, made, Ordering::Release, Ordering::Relaxed).is_err()
        {
            unmap(made.cast(), CHUNK);
        }
        true
    }

    /// Changes the end of the piece that was cut last, if that is this one and there is room.
    fn move_end(&self, piece: *mut u8, from: usize, to: usize) -> bool {
        let chunk = self.chunk();
        let start = piece.addr().wrapping_sub(chunk.addr());
        if chunk.is_null() || start >= CHUNK || start + to > CHUNK {
            return false;
        }
        // SAFETY: chunks are never given back.
        let used = unsafe { &(*chunk).used };
        used.compare_exchange(start + from, start + to, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }
}

// SAFETY: pieces do not overlap, as each is cut by one step of `used`, are aligned and as long as asked for, and stay where they are;
// nothing here unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !Self::is_small(layout) {
            return if layout.align() <= PAGE {
                map(layout.size()).cast()
            } else {
                ptr::null_mut()
            };
        }
        loop {
            let chunk = self.chunk();
            if let Some(piece) = Self::cut(chunk, layout) {
                return piece;
            }
            if !self.next_chunk(chunk) {
                return ptr::null_mut();
            }
        }
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        if Self::is_small(layout) {
            self.move_end(piece, layout.size(), 0);
        } else {
            unmap(piece, layout.size());
        }
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is a valid one for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        if Self::is_small(layout)
            && Self::is_small(wanted)
            && self.move_end(piece, layout.size(), size)
        {
            return piece;
        }
        // SAFETY: as the caller promises.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are at least so long, and different pieces.
            unsafe { ptr::copy_nonoverlapping(piece, moved, layout.size().min(size)) };
            // SAFETY: the caller gives the old one away.
            unsafe { self.dealloc(piece, layout) };
        }
        moved
    }
}

/// Fresh memory of zeros, in whole pages; null if there is none.
fn map(size: usize) -> *mut c_void {
    let _saved = Saved::new();
    // SAFETY: a new mapping, which touches no other.
    let mapped = unsafe {
        libc::mmap(
            ptr::null_mut(),
            size,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if mapped == libc::MAP_FAILED { ptr::null_mut() } else { mapped }
}

fn unmap(mapped: *mut u8, size: usize) {
    let _saved = Saved::new();
    // SAFETY: a mapping made by `map`, which nobody uses any more.
    unsafe { libc::munmap(mapped.cast(), size) };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn pieces_are_aligned_and_do_not_overlap() {
        let arena = Arena::new();
        let mut pieces = Vec::new();
        for round in 0..3000_usize {
            let layout = layout(1 + round * 7 % 900, 1 << (round % 8));
            // SAFETY: no size is zero.
            let piece = unsafe { arena.alloc(layout) };
            assert!(piece.addr().is_multiple_of(layout.align()));
            // SAFETY: ours, and as long.
            unsafe { piece.write_bytes(round as u8, layout.size()) };
            pieces.push((piece, layout, round as u8));
        }
        for (piece, layout, value) in pieces {
            // SAFETY: ours, and written above.
            let bytes = unsafe { core::slice::from_raw_parts(piece, layout.size()) };
            assert!(bytes.iter().all(|byte| *byte == value));
        }
    }

    #[test]
    fn what_was_cut_last_grows_in_place_and_is_put_back() {
        let arena = Arena::new();
        // SAFETY: for all of them, sizes are not zero, and each piece is used as it was last asked for.
        unsafe {
            let first = arena.alloc(layout(100, 8));
            first.write_bytes(1, 100);
            assert_eq!(arena.realloc(first, layout(100, 8), 200), first);
            let second = arena.alloc(layout(50, 1));
            assert_eq!(second.addr(), first.addr() + 200);
            let moved = arena.realloc(first, layout(200, 8), 300);
            assert!(moved.addr() > second.addr());
            assert_eq!((moved.read(), moved.add(99).read()), (1, 1));
            arena.dealloc(moved, layout(300, 8));
            assert_eq!(arena.alloc(layout(8, 8)), moved);
        }
    }

    #[test]
    fn what_is_large_has_a_mapping_of_its_own() {
        let arena = Arena::new();
        // SAFETY: for all of them, as above.
        unsafe {
            let small = arena.alloc(layout(1000, 8));
            small.write_bytes(7, 1000);
            let large = arena.realloc(small, layout(1000, 8), 1 << 20);
            assert_eq!((large.read(), large.add(999).read(), large.add(1000).read()), (7, 7, 0));
            arena.dealloc(large, layout(1 << 20, 8));
        }
    }
}
