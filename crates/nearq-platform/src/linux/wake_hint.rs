//! Wake hints to the machine's scheduler, if the node affine scheduler is loaded: near which CPU a thread should wake up the next time.
//!
//! The scheduler puts an array map into the BPF file system that processes can have in their memory. A hint is one store to it: the number
//! of the thread in the upper half, of the CPU in the lower half. Its place is the thread's number modulo the length, so two threads may
//! have the same place: then the later hint replaces the earlier one, which is lost. The scheduler reads the entry when it chooses a CPU for the
//! thread, and empties it if it is the thread's: a hint counts once.
//!
//! **When it is mapped.** A thread that asks for the receiver of hints (`home_hint`), as one does every second or so, maps it: if another
//! scheduler has been loaded, its map takes the place of the earlier one in the process's memory, at the same address and in one step. The map
//! of a scheduler that has gone stays until then. So a thread that sends a hint never waits, and never writes to memory that is gone. A hint
//! to a scheduler that has just gone is lost.
//!
//! **Numbers** are those of the first namespace of processes, as in `home_hint`; in any other one nothing is sent.
//!
//! Everything about it is a hint, so a wrong entry, one of a thread that has ended, or one that another process has written, wakes a
//! thread near another CPU on which it may run anyway.

use core::ffi::CStr;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::OnceLock;

use super::thread::Thread;
use crate::sys::SharedArray;

/// Where the scheduler has its map.
const PATH: &CStr = c"/sys/fs/bpf/nearq/near";
/// The map's length: `NQ_HINTS` of the scheduler's policy.
const LEN: usize = 1 << 16;

/// The memory that stands for a scheduler's map.
#[derive(Debug)]
struct Hints<'a> {
    path: &'a CStr,
    /// None until there has been a scheduler.
    memory: OnceLock<SharedArray>,
    /// Whether it stands for a map. Relaxed: a thread that reads an old value sends a hint to no scheduler, or sends none.
    received: AtomicBool,
    /// The scheduler that was found last. Relaxed: a thread that reads an old value checks `mapping` next.
    receiver: AtomicU64,
    /// Whether a thread changes what the memory stands for. In the child of a fork that happened meanwhile it stays so: then that child
    /// goes on with what it has.
    mapping: AtomicBool,
}

static HINTS: Hints<'_> = Hints::new(PATH);

impl<'a> Hints<'a> {
    const fn new(path: &'a CStr) -> Self {
        Hints {
            path,
            memory: OnceLock::new(),
            received: AtomicBool::new(false),
            receiver: AtomicU64::new(0),
            mapping: AtomicBool::new(false),
        }
    }

    fn send(&self, number: u32, cpu: usize) {
        let Some(memory) = self.memory.get().filter(|_| self.received.load(Ordering::Relaxed))
        else {
            return;
        };
        let hint = u64::from(number) << 32 | (cpu as u64 & u64::from(u32::MAX));
        // Relaxed: nothing else depends on it. The wake-up that follows is a system call, and the scheduler reads the entry after that.
        memory.numbers()[number as usize % LEN].store(hint, Ordering::Relaxed);
    }

    /// The scheduler now is `receiver`; 0 if there is none.
    fn follow(&self, receiver: u64) {
        if self.receiver.load(Ordering::Relaxed) == receiver
            // Acquire: pairs with the store at the end; what the last thread did here comes before.
            || self.mapping.swap(true, Ordering::Acquire)
        {
            return;
        }
        let received = receiver != 0 && self.stand_for_map();
        self.received.store(received, Ordering::Relaxed);
        self.receiver.store(receiver, Ordering::Relaxed);
        // Release: pairs with the swap.
        self.mapping.store(false, Ordering::Release);
    }

    /// False if there is no map, or the caller may not write it.
    fn stand_for_map(&self) -> bool {
        if self.memory.get().is_none() {
            let Ok(memory) = SharedArray::new(LEN) else { return false };
            // The caller alone maps, so it is not set.
            let _ = self.memory.set(memory);
        }
        self.memory.get().is_some_and(|memory| memory.stand_for(self.path).is_ok())
    }
}

/// As the trait's method says.
pub(super) fn set(thread: Thread, cpu: usize) {
    if let Ok(number) = u32::try_from(thread.id()) {
        HINTS.send(number, cpu);
    }
}

/// As the trait's method says.
pub(super) fn are_received() -> bool {
    HINTS.received.load(Ordering::Relaxed)
}

/// The scheduler now is `receiver`, a number that distinguishes it from others; 0 if there is none.
pub(super) fn follow(receiver: u64) {
    HINTS.follow(receiver);
}

#[cfg(test)]
#[cfg(not(miri))]
mod tests {
    use std::fs;

    use super::super::bpf_folder::in_bpf_file_system;
    use super::*;
    use crate::sys::made::Made;

    #[test]
    fn without_a_map_nothing_is_sent() {
        let hints = Hints::new(c"/no/such/map");
        hints.send(7, 3);
        hints.follow(5);
        assert!(!hints.received.load(Ordering::Relaxed));
        hints.send(7, 3);
        assert_eq!(hints.memory.get().map(|memory| memory.numbers().len()), Some(LEN));
    }

    #[test]
    fn hints_go_to_the_map_of_the_scheduler_that_is_there() {
        in_bpf_file_system("near", "a real map of wake hints", |folder| {
            let path = folder.file("near");
            let hints = Hints::new(&path);
            let received = || hints.received.load(Ordering::Relaxed);
            let first = Made::shared(LEN as u32).unwrap();
            first.pin(&path).unwrap();
            hints.follow(1);
            assert!(received());
            hints.send(7, 3);
            assert_eq!(first.get(7), Some([3, 7]), "the thread is in the upper half");
            hints.send(LEN as u32 + 7, 4);
            assert_eq!(first.get(7), Some([4, LEN as u32 + 7]), "the later one replaces it");
            // Another scheduler.
            let remove = || fs::remove_file(path.to_str().unwrap()).unwrap();
            remove();
            let second = Made::shared(LEN as u32).unwrap();
            second.pin(&path).unwrap();
            hints.follow(2);
            hints.send(8, 1);
            assert_eq!((first.get(8), second.get(8)), (Some([0, 0]), Some([1, 8])));
            // None.
            hints.follow(0);
            assert!(!received());
            // Not even to the map of the scheduler that has gone.
            hints.send(9, 1);
            assert_eq!(second.get(9), Some([0, 0]));
            // A map of another kind, or of another length.
            for other in [Made::new(8).unwrap(), Made::shared(LEN as u32 / 2).unwrap()] {
                remove();
                other.pin(&path).unwrap();
                hints.follow(3);
                assert!(!received());
                hints.follow(0);
            }
        });
    }
}
