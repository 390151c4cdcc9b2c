//! The first thread in order is claimed first, whichever threads leave in between.

use nearq_platform::Linux;

use super::super::*;

type Word = <Linux as LockPlatform>::AtomicU32;

fn nowhere(_number: u32) {}

fn locked<'a>(word: &Word, waiters: &'a WaiterSlab<Linux>) -> Ring<'a, Linux> {
    Ring::lock(word, word.load(Ordering::Relaxed), waiters)
}

/// A ring of this many records.
fn filled(count: usize, word: &Word, waiters: &WaiterSlab<Linux>) -> Vec<u32> {
    filled_by(&vec![0; count], word, waiters)
}

/// A ring of records whose owners have these urgencies.
fn filled_by(urgencies: &[u32], word: &Word, waiters: &WaiterSlab<Linux>) -> Vec<u32> {
    let add = |&urgency: &u32| {
        let number = waiters.take().expect("a record is free");
        waiters.prepare_for_ring(number, 0, word, urgency);
        let mut ring = locked(word, waiters);
        ring.add(number, urgency);
        ring.unlock();
        number
    };
    urgencies.iter().map(add).collect()
}

fn give_up(number: u32, waiters: &WaiterSlab<Linux>) {
    assert_eq!(waiters.sleep_in_ring(number, Some(Instant::from_nanos(1))), Slept::TimedOut);
}

#[test]
fn waiters_are_claimed_in_arrival_order() {
    let (word, waiters) = (Word::new(0), WaiterSlab::<Linux>::new(nowhere));
    let numbers = filled(5, &word, &waiters);
    // The oldest, one in the middle and the newest leave.
    for index in [0, 2, 4] {
        give_up(numbers[index], &waiters);
        waiters.leave(numbers[index], &word);
    }
    let mut ring = locked(&word, &waiters);
    assert_eq!(ring.claim_first(), Some(numbers[1]));
    assert_eq!(ring.claim_first(), Some(numbers[3]));
    assert_eq!(ring.claim_first(), None);
    ring.unlock();
    assert_eq!((peek::<Linux>(&word), word.load(Ordering::Relaxed)), (None, 0));
    for claimed in [1, 3] {
        assert_eq!(waiters.sleep_in_ring(numbers[claimed], None), Slept::Claimed);
    }
}

#[test]
fn all_waiters_except_timed_out_ones_are_claimed_in_order() {
    let (word, waiters) = (Word::new(0), WaiterSlab::<Linux>::new(nowhere));
    let numbers = filled(6, &word, &waiters);
    for index in [0, 1, 3, 5] {
        give_up(numbers[index], &waiters);
    }
    let mut ring = locked(&word, &waiters);
    assert_eq!(ring.claim_first(), Some(numbers[2]));
    let gate = Word::new(0);
    let claimed = ring.claim_all(&gate);
    ring.unlock();
    assert_eq!((claimed.count, claimed.collect()), (1, vec![numbers[4]]));
    assert_eq!((word.load(Ordering::Relaxed), gate.load(Ordering::Relaxed)), (0, 4));
    for index in [0, 1, 3, 5] {
        waiters.leave(numbers[index], &word);
    }
    past_the_gate::<Linux>(&gate);
    // The two that were claimed, and the one that the thread keeps.
    assert_eq!(waiters.count(), 3);
}

/// Each arrival of up to four threads of three urgencies, with one thread that leaves; both ways of notifying.
#[test]
fn waiters_are_claimed_by_urgency_and_then_in_arrival_order() {
    let (word, waiters) = (Word::new(0), WaiterSlab::<Linux>::new(nowhere));
    for count in 1..=4 {
        for case in 0..3_usize.pow(count) * (count as usize + 1) {
            let (leaves, case) = (case % (count as usize + 1), case / (count as usize + 1));
            let urgencies: Vec<u32> =
                (0..count).map(|index| (case / 3_usize.pow(index) % 3) as u32 * 7).collect();
            let mut expected: Vec<usize> = (0..urgencies.len()).collect();
            expected.retain(|&index| index != leaves);
            expected.sort_by_key(|&index| core::cmp::Reverse(urgencies[index]));
            for all in [false, true] {
                let numbers = filled_by(&urgencies, &word, &waiters);
                if let Some(&number) = numbers.get(leaves) {
                    give_up(number, &waiters);
                    waiters.leave(number, &word);
                }
                let mut ring = locked(&word, &waiters);
                let gate = Word::new(0);
                let claimed: Vec<u32> = if all {
                    ring.claim_all(&gate).collect()
                } else {
                    core::iter::from_fn(|| ring.claim_first()).collect()
                };
                ring.unlock();
                let expected: Vec<u32> = expected.iter().map(|&index| numbers[index]).collect();
                assert_eq!(claimed, expected, "{urgencies:?}, of which {leaves} leaves");
                for number in claimed {
                    waiters.give_back(number);
                }
            }
        }
    }
}

/// What the word says of another process is ignored.
#[test]
fn a_ring_of_the_parent_is_empty_in_the_child() {
    let (word, waiters) = (Word::new(0), WaiterSlab::<Linux>::new(nowhere));
    filled(2, &word, &waiters);
    let elsewhere = (WaiterSlab::<Linux>::epoch() + 1) << EPOCH_SHIFT & EPOCH;
    for state in [0, LOCKED, LOCKED | ASLEEP] {
        word.store(7 << LAST_SHIFT | elsewhere | state, Ordering::Relaxed);
        let mut ring = locked(&word, &waiters);
        assert_eq!(ring.claim_first(), None);
        ring.unlock();
        assert_eq!(word.load(Ordering::Relaxed), 0);
    }
}

/// A thread that is called away leaves by itself, even if all are notified in the meantime; one that was claimed is no longer called.
#[test]
fn a_waiter_that_was_called_away_is_not_notified() {
    let (word, waiters) = (Word::new(0), WaiterSlab::<Linux>::new(nowhere));
    let numbers = filled(3, &word, &waiters);
    waiters.call_away(numbers[0]);
    let mut ring = locked(&word, &waiters);
    assert_eq!(ring.claim_first(), Some(numbers[1]));
    ring.unlock();
    waiters.call_away(numbers[1]);
    let gate = Word::new(0);
    let mut ring = locked(&word, &waiters);
    assert_eq!(ring.claim_all(&gate).collect::<Vec<_>>(), [numbers[2]]);
    ring.unlock();
    let slept: Vec<_> = numbers.iter().map(|&number| waiters.sleep_in_ring(number, None)).collect();
    assert_eq!(slept, [Slept::Called, Slept::Claimed, Slept::Claimed]);
    waiters.leave(numbers[0], &word);
    past_the_gate::<Linux>(&gate);
    until_empty(&word, &waiters);
}
