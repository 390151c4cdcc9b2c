//! Under the model checker: queueing up, handing over, leaving, by two and three threads.
//!
//! The value is a watched cell: an access that is not ordered after the previous holder's is reported as a race, and a thread that is never
//! sent a message as a deadlock.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, LockPlatform, Ordering, PlatformCell, ThreadSpec, Threads};

use super::super::OsqLock;
use crate::modelled::check;
use crate::process_state::ProcessState;
use crate::statistics::Event;

type Watched = <Loom as Threads>::Cell<u32>;
type Shared = Arc<OsqLock<Watched, Loom>>;

fn increment(lock: &OsqLock<Watched, Loom>) {
    let guard = lock.lock();
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    guard.with_mut(|count| unsafe { *count += 1 });
}

/// Queues up, and leaves if it is not the caller's turn at once. Returns whether it was.
fn increment_or_leave(lock: &OsqLock<Watched, Loom>) -> u32 {
    let Some(guard) = lock.lock_spinning(1) else { return 0 };
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    guard.with_mut(|count| unsafe { *count += 1 });
    1
}

fn start(
    lock: &Shared,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> <Loom as Threads>::JoinHandle {
    let lock = Arc::clone(lock);
    Loom::spawn(ThreadSpec::default(), move || body(&lock)).expect("the model spawns")
}

fn new() -> Shared {
    // So that making it is not part of what is explored.
    ProcessState::<Loom>::get();
    Arc::new(OsqLock::new_in(Watched::new(0)))
}

fn count(lock: &Shared) -> u32 {
    let guard = lock.lock();
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    guard.with(|count| unsafe { *count })
}

#[test]
fn two_threads_hand_the_lock_over() {
    check(bound(3, 4), &[Event::NotLinked], || {
        let lock = new();
        let other = start(&lock, |lock| {
            increment(lock);
            increment(lock);
        });
        increment(&lock);
        Loom::join(other);
        assert_eq!(count(&lock), 3);
    });
}

#[test]
fn three_threads_hand_the_lock_over() {
    // With one preemption, each thread finds the one before it linked.
    check(bound(1, 2), bound(&[], &[Event::NotLinked][..]), || {
        let lock = new();
        let others = [start(&lock, |lock| increment(lock)), start(&lock, |lock| increment(lock))];
        increment(&lock);
        others.into_iter().for_each(Loom::join);
        assert_eq!(count(&lock), 3);
    });
}

#[test]
fn a_thread_leaves_while_it_is_handed_the_lock() {
    check(bound(3, 4), &[Event::NotLinked, Event::SentToLeft], || {
        let lock = new();
        let other = start(&lock, |lock| increment(lock));
        let increments = increment_or_leave(&lock) + increment_or_leave(&lock);
        Loom::join(other);
        assert_eq!(count(&lock), 1 + increments);
    });
}

/// A thread in the middle of the queue leaves: the one before it passes the lock on to the one behind.
#[test]
fn a_thread_in_the_middle_of_the_queue_leaves() {
    check(bound(2, 3), &[Event::NotLinked, Event::SentToLeft], || {
        let lock = new();
        let guard = lock.lock();
        let last = start(&lock, |lock| increment(lock));
        let middle = start(&lock, |lock| {
            increment_or_leave(lock);
        });
        // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
        guard.with_mut(|count| unsafe { *count += 1 });
        drop(guard);
        Loom::join(last);
        Loom::join(middle);
        assert!((2..=3).contains(&count(&lock)));
        // What was left behind was found by another thread: besides the records that the three threads keep, none is lost.
        assert!(
            ProcessState::<Loom>::get().waiters.count() <= 3,
            "{}",
            ProcessState::<Loom>::get().waiters.count()
        );
    });
}

/// Two threads leave, and the one behind takes over the record of the one ahead, while the lock is handed on to them and to one behind
/// them.
#[test]
fn a_leaving_thread_removes_abandoned_records_ahead() {
    check(bound(2, 3), &[Event::SentToLeft, Event::TakenOver], || {
        let lock = new();
        let guard = lock.lock();
        let leaves = || {
            start(&lock, |lock| {
                increment_or_leave(lock);
            })
        };
        let others = [leaves(), leaves()];
        // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
        guard.with_mut(|count| unsafe { *count += 1 });
        drop(guard);
        increment(&lock);
        others.into_iter().for_each(Loom::join);
        assert!((2..=4).contains(&count(&lock)));
        assert!(
            ProcessState::<Loom>::get().waiters.count() <= 3,
            "{}",
            ProcessState::<Loom>::get().waiters.count()
        );
    });
}

/// A thread polls a lock that another one holds: of the records that it left behind, one stays.
#[test]
fn repeatedly_leaving_leaves_one_record_behind() {
    check(bound(2, 3), &[Event::TakenOver], || {
        let lock = new();
        let guard = lock.lock();
        let polls = start(&lock, |lock| {
            for _ in 0..3 {
                increment_or_leave(lock);
            }
        });
        let late = start(&lock, |lock| {
            increment_or_leave(lock);
        });
        Loom::join(polls);
        Loom::join(late);
        let count = ProcessState::<Loom>::get().waiters.count();
        assert!(count <= 5, "{count}");
        drop(guard);
    });
}

#[test]
fn try_lock_orders_like_lock() {
    check(3, &[Event::NotLinked], || {
        let lock = new();
        let other = start(&lock, |lock| increment(lock));
        if let Some(guard) = lock.try_lock() {
            // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
            guard.with_mut(|count| unsafe { *count += 1 });
        }
        Loom::join(other);
    });
}

/// The last step of a thread, which the model does not do by itself.
fn end_thread() {
    let number = Loom::number();
    Loom::set_number(0, |_| {});
    ProcessState::<Loom>::get().waiters.ended(number);
}

/// A thread forgets its guard and ends: the lock stays held, and its record, which is still in front, is no other thread's. If it were, the
/// thread that leaves the front of another lock by that record would hand this one on.
#[test]
fn a_lock_with_a_forgotten_guard_stays_held_after_its_thread_exits() {
    check(2, &[Event::SentToLeft], || {
        let (forgotten, other) = (new(), new());
        Loom::join(start(&forgotten, |lock| {
            core::mem::forget(lock.lock());
            end_thread();
        }));
        let try_it = |lock: &Shared| assert_eq!(increment_or_leave(lock), 0, "it is held");
        let tries = start(&forgotten, try_it);
        let counts = start(&other, |lock| increment(lock));
        increment(&other);
        increment_or_leave(&other);
        try_it(&forgotten);
        Loom::join(tries);
        Loom::join(counts);
        assert!(count(&other) >= 2);
    });
}

/// A thread ends in the middle of its wait: it is skipped, whether its message comes before or after, and its record is not lost.
#[test]
fn a_thread_that_exits_in_a_queue_is_skipped() {
    check(3, &[Event::SentToLeft], || {
        let lock = new();
        let guard = lock.lock();
        let ends = start(&lock, |lock| {
            let waiters = &ProcessState::<Loom>::get().waiters;
            let number = waiters.take().expect("a record is free");
            waiters.prepare(number, 0);
            let before = u32::from(lock.tail.swap(number as u16, Ordering::AcqRel));
            assert!(before != 0 && waiters.link(number, before).is_none());
            end_thread();
        });
        Loom::join(ends);
        let last = start(&lock, |lock| increment(lock));
        drop(guard);
        increment(&lock);
        Loom::join(last);
        assert_eq!(count(&lock), 2);
        assert!(ProcessState::<Loom>::get().waiters.count() <= 3);
    });
}
