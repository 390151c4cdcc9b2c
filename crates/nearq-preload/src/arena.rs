//! Memory for Rust's allocations in this library, straight from the system: the program's `malloc` may be the code that waits for a mutex.
//!
//! Most of what is allocated here is made once and kept (waiters' records, slots). The thread that answers over the control socket, if
//! there is one (`control.rs`), allocates and frees all the time. So a small piece has the size of a power of two and is cut from a chunk;
//! when it is freed, it goes into a list for its size, from which the next allocation of that size takes it. A large piece has a mapping of
//! its own, which is returned to the system.
//!
//! # Protocol
//! `current` names the chunk that is being cut; a chunk's `used` is how much of it has been cut off. Both are changed only by
//! compare-exchange, so a fork at any moment leaves a usable arena. A chunk that is full is no longer touched. A new chunk is published by
//! release, and found by acquire. `used` is relaxed: what is in the memory concerns only the thread that got it.
//!
//! The lists are changed by one thread at a time, the one that has changed `busy` from 0 to 1 (acquire) and will change it back (release).
//! **No thread waits for that**: a thread that finds the lists busy cuts a new piece instead of taking a listed one, and abandons a piece
//! that it would free. So a thread may be preempted or interrupted while it uses the lists, and in the child of a fork it may not exist:
//! then the child starts with empty lists ([`Arena::forked`]), as one may have been half changed. Only a few pieces are lost that way, as
//! only one thread frees much.
//!
//! # Without memory
//! An allocation that fails ends a Rust program, unless its caller is prepared for it. The functions that the program calls are prepared;
//! the thread that answers over the control socket is not. So that thread waits until there is memory ([`wait_for_memory`]): the program
//! can do without it.

use core::alloc::{GlobalAlloc, Layout};
use core::cell::{Cell, UnsafeCell};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use core::time::Duration;

use nearq_platform::{Linux, LockPlatform, SavedErrno};

/// How much is requested from the system at once.
const CHUNK: usize = 256 << 10;
/// The smallest and the largest piece that is cut; a larger allocation has a mapping of its own.
const SMALLEST: usize = 16;
const LARGEST: usize = 32 << 10;
/// The number of piece sizes.
const SIZES: usize = (LARGEST / SMALLEST).ilog2() as usize + 1;
/// Mappings are aligned to at least this.
const PAGE: usize = 4096;

/// How long a thread that waits for memory sleeps before it tries again.
const PAUSE: Duration = Duration::from_millis(20);

thread_local! {
    /// Whether the thread waits if there is no memory.
    static WAITS: Cell<bool> = const { Cell::new(false) };
}

/// The beginning of a chunk; the pieces that it is cut into follow.
struct Chunk {
    /// How many bytes from the beginning of the chunk are in use.
    used: AtomicUsize,
}

/// A piece that was freed.
struct Free {
    next: *mut Free,
}

const _: () = assert!(align_of::<Free>() <= SMALLEST && size_of::<Free>() <= SMALLEST);

/// Pieces that were freed, by size. Only for the thread that has set `busy`.
struct Lists {
    busy: AtomicU32,
    first: UnsafeCell<[*mut Free; SIZES]>,
}

/// The allocator.
pub(crate) struct Arena {
    current: AtomicPtr<Chunk>,
    lists: Lists,
}

// SAFETY: one thread at a time touches the lists; the pieces in them belong to no thread.
unsafe impl Sync for Arena {}

impl Lists {
    /// Does something with the list of one size, unless another thread uses the lists.
    fn with<R>(&self, size: usize, what: impl FnOnce(&mut *mut Free) -> R) -> Option<R> {
        // Acquire: what the previous thread did is over. Relaxed on failure: then nothing is read.
        self.busy.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        // SAFETY: ours, until the store below.
        let done = what(unsafe { &mut (*self.first.get())[size] });
        // Release: pairs with the acquire above.
        self.busy.store(0, Ordering::Release);
        Some(done)
    }
}

impl Arena {
    pub(crate) const fn new() -> Self {
        let first = UnsafeCell::new([ptr::null_mut(); SIZES]);
        let lists = Lists { busy: AtomicU32::new(0), first };
        Arena { current: AtomicPtr::new(ptr::null_mut()), lists }
    }

    /// In the child of a fork, whose only thread is the caller: no thread uses the lists.
    pub(crate) fn forked(&self) {
        // Relaxed: the caller is the only thread.
        if self.lists.busy.load(Ordering::Relaxed) != 0 {
            // SAFETY: the thread that used them is not in this process.
            unsafe { *self.lists.first.get() = [ptr::null_mut(); SIZES] };
            self.lists.busy.store(0, Ordering::Relaxed);
        }
    }

    /// The index of a piece's size, if it is small.
    fn size(layout: Layout) -> Option<usize> {
        let needed = layout.size().max(layout.align()).max(SMALLEST);
        (needed <= LARGEST && layout.align() <= PAGE)
            .then(|| (needed.next_power_of_two() / SMALLEST).ilog2() as usize)
    }

    /// The chunk that is being cut.
    fn chunk(&self) -> *mut Chunk {
        // Acquire: pairs with the release in `next_chunk`.
        self.current.load(Ordering::Acquire)
    }

    /// Cuts a piece of one of the sizes from a chunk, if enough is left. It is aligned to its size, or to pages.
    fn cut(chunk: *mut Chunk, size: usize) -> Option<*mut u8> {
        if chunk.is_null() {
            return None;
        }
        let length = SMALLEST << size;
        // SAFETY: chunks are never freed.
        let used = unsafe { &(*chunk).used };
        let base = chunk.addr();
        let mut from = used.load(Ordering::Relaxed);
        loop {
            let start = (base + from).next_multiple_of(length.min(PAGE)) - base;
            let end = start + length;
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

    /// Puts a new chunk in the place of a full one, unless another thread has done so. False if there is no memory.
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

    /// A freed piece of one of the sizes, if there is one.
    fn take_listed(&self, size: usize) -> Option<*mut u8> {
        let taken = self.lists.with(size, |first| {
            let piece = *first;
            // SAFETY: null, or a piece that no thread has, and that was written when it was listed.
            if let Some(free) = unsafe { piece.as_ref() } {
                *first = free.next;
            }
            piece
        })?;
        (!taken.is_null()).then_some(taken.cast())
    }

    /// A piece; null if there is no memory.
    fn take(&self, layout: Layout) -> *mut u8 {
        let Some(size) = Self::size(layout) else {
            return if layout.align() <= PAGE {
                map(layout.size()).cast()
            } else {
                ptr::null_mut()
            };
        };
        if let Some(piece) = self.take_listed(size) {
            return piece;
        }
        loop {
            let chunk = self.chunk();
            if let Some(piece) = Self::cut(chunk, size) {
                return piece;
            }
            if !self.next_chunk(chunk) {
                return ptr::null_mut();
            }
        }
    }
}

/// From now on the calling thread waits if there is no memory.
pub(crate) fn wait_for_memory() {
    WAITS.set(true);
}

// SAFETY: pieces do not overlap, as each is cut by one step of `used` and is in one list at most; they are aligned and at least as long as
// requested, and stay where they are; nothing here unwinds.
unsafe impl GlobalAlloc for Arena {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let mut piece = self.take(layout);
        while piece.is_null() && WAITS.get() {
            Linux::sleep(PAUSE);
            piece = self.take(layout);
        }
        piece
    }

    unsafe fn dealloc(&self, piece: *mut u8, layout: Layout) {
        let Some(size) = Self::size(layout) else { return unmap(piece, layout.size()) };
        #[allow(clippy::cast_ptr_alignment, reason = "the smallest piece is aligned well enough")]
        let free = piece.cast::<Free>();
        self.lists.with(size, |first| {
            // SAFETY: the caller gives it up; it is as long and as aligned as its size, which is enough.
            unsafe { free.write(Free { next: *first }) };
            *first = free;
        });
    }

    unsafe fn realloc(&self, piece: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller promises that the size is a valid one for this alignment.
        let wanted = unsafe { Layout::from_size_align_unchecked(size, layout.align()) };
        let class = Self::size(layout);
        if class.is_some() && class == Self::size(wanted) {
            return piece;
        }
        // SAFETY: the caller promises a size that is not zero.
        let moved = unsafe { self.alloc(wanted) };
        if !moved.is_null() {
            // SAFETY: both are at least this long, and different pieces.
            unsafe { ptr::copy_nonoverlapping(piece, moved, layout.size().min(size)) };
            // SAFETY: the caller gives up the old one.
            unsafe { self.dealloc(piece, layout) };
        }
        moved
    }
}

/// Whether the system has this much memory; it may be gone by the time the caller uses the answer.
pub(crate) fn is_there(size: usize) -> bool {
    let tried = map(size);
    if !tried.is_null() {
        unmap(tried.cast(), size);
    }
    !tried.is_null()
}

/// Fresh zeroed memory, in whole pages; null if there is none.
fn map(size: usize) -> *mut c_void {
    let _saved = SavedErrno::new();
    // SAFETY: a new mapping, which affects no other.
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
    let _saved = SavedErrno::new();
    // SAFETY: a mapping made by `map`, which no thread uses any more.
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
    fn freed_memory_is_reused_for_the_same_size() {
        let arena = Arena::new();
        // SAFETY: for all calls, sizes are not zero, and each piece is used as it was last requested.
        unsafe {
            let first = arena.alloc(layout(100, 8));
            first.write_bytes(1, 100);
            // The piece is longer than requested.
            assert_eq!(arena.realloc(first, layout(100, 8), 128), first);
            let moved = arena.realloc(first, layout(128, 8), 300);
            assert!(moved != first && (moved.read(), moved.add(99).read()) == (1, 1));
            assert_eq!([arena.alloc(layout(60, 64)), arena.alloc(layout(65, 1))][1], first);
            arena.dealloc(moved, layout(300, 8));
            arena.dealloc(first, layout(65, 1));
            assert_eq!(arena.alloc(layout(100, 128)), first);
            assert_eq!(arena.alloc(layout(512, 512)), moved);
        }
    }

    /// The chunk that is being cut, and how much of it is in use.
    fn gone(arena: &Arena) -> (*mut Chunk, usize) {
        let chunk = arena.chunk();
        // SAFETY: chunks are never freed.
        (chunk, unsafe { (*chunk).used.load(Ordering::Relaxed) })
    }

    /// Allocates and frees pieces of many sizes, some of them at the same time.
    fn churn(arena: &Arena, rounds: usize) {
        let mut pieces = std::collections::VecDeque::new();
        for round in 0..rounds {
            let layout = layout(1 + round * 31 % 4000, 8);
            // SAFETY: sizes are not zero; a piece is ours until it is freed, written for its size, and freed with its layout.
            unsafe {
                let piece = arena.alloc(layout);
                piece.write_bytes(round as u8, layout.size());
                pieces.push_back((piece, layout, round as u8));
                if pieces.len() > 10 {
                    let (piece, layout, value) = pieces.pop_front().unwrap();
                    let bytes = core::slice::from_raw_parts(piece, layout.size());
                    assert!(bytes.iter().all(|byte| *byte == value));
                    arena.dealloc(piece, layout);
                }
            }
        }
        for (piece, layout, _) in pieces {
            // SAFETY: allocated with this layout, and not freed yet.
            unsafe { arena.dealloc(piece, layout) };
        }
    }

    #[test]
    fn repeated_allocation_and_freeing_uses_constant_memory() {
        let arena = Arena::new();
        churn(&arena, 5_000);
        let before = gone(&arena);
        churn(&arena, 100_000);
        assert_eq!(gone(&arena), before);
    }

    #[test]
    fn concurrent_allocations_do_not_wait_or_overlap() {
        let arena = Arena::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| churn(&arena, 20_000));
            }
        });
        // While one thread uses the lists, other threads cut new pieces and abandon freed ones; a child starts with empty lists.
        let listed = arena.lists.with(2, |first| {
            // SAFETY: sizes are not zero; a freed piece is not used afterwards, and is freed with the layout with which it was allocated.
            unsafe {
                let one = arena.alloc(layout(64, 8));
                arena.dealloc(one, layout(64, 8));
                assert_ne!(arena.alloc(layout(64, 8)), one, "the freed piece is abandoned");
            }
            *first
        });
        assert!(listed.is_some_and(|listed| !listed.is_null()));
        arena.lists.busy.store(1, Ordering::Relaxed);
        arena.forked();
        assert_eq!(arena.take_listed(2), None);
        churn(&arena, 1000);
        assert!(arena.take_listed(2).is_some());
    }

    #[test]
    fn a_large_allocation_has_its_own_mapping() {
        let arena = Arena::new();
        // SAFETY: sizes are not zero; each piece is used for the size, and freed with the layout, that it was last requested with.
        unsafe {
            let small = arena.alloc(layout(1000, 8));
            small.write_bytes(7, 1000);
            let large = arena.realloc(small, layout(1000, 8), 1 << 20);
            assert_eq!((large.read(), large.add(999).read(), large.add(1000).read()), (7, 7, 0));
            arena.dealloc(large, layout(1 << 20, 8));
        }
    }
}
