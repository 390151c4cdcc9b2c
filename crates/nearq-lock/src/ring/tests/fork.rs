//! Words of another process.

use nearq_platform::{Linux, Ordering};

use super::super::*;

type Word = <Linux as LockPlatform>::AtomicU32;

fn nowhere(_number: u32) {}

/// A record that waits in a ring, as one of the given process.
fn listed(waiters: &WaiterSlab<Linux>, process: u32) -> u32 {
    let number = waiters.take().expect("a record is free");
    waiters.prepare_for_ring(number, 0, core::ptr::null(), 0);
    waiters.record(number).epoch.store(process, Ordering::Relaxed);
    number
}

/// A handler forks while its thread holds the ring's lock, and a thread that it starts in the child waits by the record that is last then.
#[test]
fn a_lock_that_was_taken_before_a_fork_is_not_given_back_after_it() {
    let waiters = WaiterSlab::<Linux>::new(nowhere);
    let word = Word::new(0);
    let ring = Ring::lock(&word, 0, &waiters);
    let of_child = 5 << LAST_SHIFT | part_of(WaiterSlab::<Linux>::epoch() + 1);
    word.store(of_child, Ordering::Relaxed);
    ring.unlock();
    assert_eq!(word.load(Ordering::Relaxed), of_child);
}

#[test]
fn a_thread_that_comes_while_the_ring_is_locked_changes_nothing_of_that() {
    let waiters = WaiterSlab::<Linux>::new(nowhere);
    let word = Word::new(0);
    let ring = Ring::lock(&word, 0, &waiters);
    word.fetch_or(ASLEEP, Ordering::Relaxed);
    ring.unlock();
    assert_eq!(word.load(Ordering::Relaxed), 0);
}

/// The word has the last bits of the process's epoch alone, but records have all.
#[test]
fn a_ring_of_a_process_with_the_same_last_bits_is_empty() {
    let waiters = WaiterSlab::<Linux>::new(nowhere);
    let now = WaiterSlab::<Linux>::epoch();
    let before = now.wrapping_sub((EPOCH >> EPOCH_SHIFT) + 1);
    assert_eq!(part_of(before), part_of(now));
    let old = listed(&waiters, before);
    let word = Word::new(old << LAST_SHIFT | AWAITED | part_of(now));
    let mut ring = Ring::lock(&word, 0, &waiters);
    assert_eq!(ring.claim_first(), None);
    let own = listed(&waiters, before);
    ring.add(own, 0);
    ring.unlock();
    assert_eq!(word.load(Ordering::Relaxed), own << LAST_SHIFT | part_of(now));
    // It was added by this process, whatever was known when it was prepared.
    let mut ring = Ring::lock(&word, 0, &waiters);
    assert_eq!(ring.claim_first(), Some(own));
    ring.unlock();
}
