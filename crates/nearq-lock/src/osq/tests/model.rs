//! Under the model checker: queueing up, handing over, leaving, by two and three threads.
//!
//! The value is a watched cell: an access that is not ordered after the previous holder's is reported as a race, and a
//! thread that nobody tells anything as a deadlock.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Platform, PlatformCell, ThreadSpec};

use super::super::OsqLock;
use crate::modelled::check;
use crate::room::Room;
use crate::statistics::Event;

type Watched = <Loom as Platform>::Cell<u32>;
type Shared = Arc<OsqLock<Watched, Loom>>;

fn increment(lock: &OsqLock<Watched, Loom>) {
    let guard = lock.lock();
    // SAFETY: the cell lives as long as the guard, which keeps other threads away; that is what is tested.
    guard.with_mut(|count| unsafe { *count += 1 });
}

/// Queues up, and leaves if it is not the caller's turn at once. Whether it was.
fn increment_or_leave(lock: &OsqLock<Watched, Loom>) -> u32 {
    let Some(guard) = lock.lock_spinning(1) else { return 0 };
    // SAFETY: as in `increment`.
    guard.with_mut(|count| unsafe { *count += 1 });
    1
}

fn start(
    lock: &Shared,
    body: impl FnOnce(&Shared) + Send + 'static,
) -> <Loom as Platform>::JoinHandle {
    let lock = Arc::clone(lock);
    Loom::spawn(ThreadSpec::default(), move || body(&lock)).expect("the model spawns")
}

fn new() -> Shared {
    // So that making it is no part of what is explored.
    Room::<Loom>::get();
    Arc::new(OsqLock::new_in(Watched::new(0)))
}

fn count(lock: &Shared) -> u32 {
    let guard = lock.lock();
    // SAFETY: as in `increment`.
    guard.with(|count| unsafe { *count })
}

#[test]
fn two_threads_hand_over() {
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
fn three_threads_hand_over() {
    // With one preemption, each of them finds the one before it linked.
    check(bound(1, 2), bound(&[], &[Event::NotLinked][..]), || {
        let lock = new();
        let others = [start(&lock, |lock| increment(lock)), start(&lock, |lock| increment(lock))];
        increment(&lock);
        others.into_iter().for_each(Loom::join);
        assert_eq!(count(&lock), 3);
    });
}

#[test]
fn one_leaves_while_it_is_handed_the_lock() {
    check(bound(3, 4), &[Event::NotLinked, Event::ToldLeft], || {
        let lock = new();
        let other = start(&lock, |lock| increment(lock));
        let mine = increment_or_leave(&lock) + increment_or_leave(&lock);
        Loom::join(other);
        assert_eq!(count(&lock), 1 + mine);
    });
}

/// One in the middle of the queue leaves: the one before it passes the lock on to the one behind.
#[test]
fn one_in_the_middle_leaves() {
    check(3, &[Event::NotLinked, Event::ToldLeft], || {
        let lock = new();
        let guard = lock.lock();
        let last = start(&lock, |lock| increment(lock));
        let middle = start(&lock, |lock| {
            increment_or_leave(lock);
        });
        // SAFETY: as in `increment`.
        guard.with_mut(|count| unsafe { *count += 1 });
        drop(guard);
        Loom::join(last);
        Loom::join(middle);
        assert!((2..=3).contains(&count(&lock)));
        // What was left behind was found by somebody: beside the records that the three threads keep, none is lost.
        assert!(Room::<Loom>::get().table.count() <= 3, "{}", Room::<Loom>::get().table.count());
    });
}

#[test]
fn trying_orders_as_waiting_does() {
    check(3, &[Event::NotLinked], || {
        let lock = new();
        let other = start(&lock, |lock| increment(lock));
        if let Some(guard) = lock.try_lock() {
            // SAFETY: as in `increment`.
            guard.with_mut(|count| unsafe { *count += 1 });
        }
        Loom::join(other);
    });
}
