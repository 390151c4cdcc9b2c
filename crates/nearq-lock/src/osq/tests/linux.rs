//! On Linux; small enough to run under Miri as well.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use super::super::*;

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 10 } else { 2_000 };

fn on_threads(body: impl Fn(usize) + Send + Sync + 'static) {
    let body = Arc::new(body);
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let body = Arc::clone(&body);
            Linux::spawn(ThreadSpec::default(), move || body(index))
                .expect("a few threads can be created")
        })
        .collect();
    threads.into_iter().for_each(Linux::join);
}

#[test]
fn guards_exclude_each_other_and_release() {
    let mut lock: OsqLock<i32> = OsqLock::new(1);
    let guard = lock.lock();
    assert!(lock.try_lock().is_none());
    assert!(lock.lock_spinning(10).is_none());
    assert!(lock.try_lock_for(Duration::from_millis(1)).is_none());
    assert_eq!(format!("{lock:?}"), "OsqLock { value: <locked> }");
    drop(guard);
    *lock.try_lock().expect("threads that left are skipped") += 1;
    *lock.lock_spinning(0).expect("it is free") += 1;
    assert_eq!(format!("{lock:?}"), "OsqLock { value: 3 }");
    *lock.get_mut() += 1;
    assert_eq!(lock.into_inner(), 4);
}

#[test]
fn several_locks_are_held_at_once_and_released_in_any_order() {
    let (first, second): (OsqLock<i32>, OsqLock<i32>) = (OsqLock::new(1), OsqLock::new(2));
    for _ in 0..3 {
        let one = first.lock();
        let two = second.lock();
        assert_eq!(*one + *two, 3);
        drop(one);
        assert!(!first.is_locked() && second.is_locked());
        drop(two);
    }
    assert!(!second.is_locked());
}

#[test]
fn increments_are_not_lost() {
    let lock = Arc::new(OsqLock::<_>::new((0, 0)));
    let shared = Arc::clone(&lock);
    on_threads(move |_| {
        for round in 0..ROUNDS {
            let mut pair = shared.lock();
            pair.0 += 1;
            if round % 64 == 0 {
                Linux::yield_now();
            }
            pair.1 += 1;
            assert_eq!(pair.0, pair.1, "two threads held the lock at once");
        }
    });
    assert_eq!(*lock.lock(), (THREADS * ROUNDS, THREADS * ROUNDS));
}

#[test]
fn threads_that_leave_are_skipped_and_no_thread_waits_for_ever() {
    let lock = Arc::new(OsqLock::<_>::new(0));
    let (shared, entered) =
        (Arc::clone(&lock), Arc::new(<Linux as LockPlatform>::AtomicU64::new(0)));
    let counted = Arc::clone(&entered);
    on_threads(move |index| {
        for round in 0..ROUNDS {
            let guard = match (index + round) % 3 {
                0 => Some(shared.lock()),
                1 => shared.lock_spinning(50),
                _ => shared.try_lock_for(Duration::from_micros(20)),
            };
            if let Some(mut count) = guard {
                *count += 1;
                if round % 32 == 0 {
                    Linux::yield_now();
                }
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    assert_eq!(*lock.lock(), entered.load(Ordering::Relaxed));
    assert!(*lock.lock() >= (THREADS * ROUNDS / 3) as u64);
}

/// Threads come again and again, and wait for a short time while another one holds the lock for a long time. Otherwise they would leave all
/// records of the process behind, and then no thread could take any lock.
#[test]
fn repeated_attempts_do_not_exhaust_the_records() {
    let lock = Arc::new(OsqLock::<_>::new(0));
    let mutex = Arc::new(crate::raw::RawMutex::<Linux>::new_in());
    let guard = lock.lock();
    mutex.lock();
    let waits = Arc::clone(&mutex);
    let waiting = Linux::spawn(ThreadSpec::default(), move || {
        waits.lock();
        // SAFETY: taken above.
        unsafe { waits.unlock() };
    });
    let (shared, tried) = (Arc::clone(&lock), Arc::clone(&mutex));
    on_threads(move |index| {
        let past = Linux::now();
        for round in 0..ROUNDS * nearq_model::bound(1, 5) {
            assert!(shared.lock_spinning((index + round) as u32 % 3).is_none());
            assert!(!tried.try_lock_until_in(past));
        }
    });
    let waiters = &ProcessState::<Linux>::get().waiters;
    let count = waiters.count();
    assert!(count < ROUNDS, "{count} records");
    drop(guard);
    // SAFETY: taken above.
    unsafe { mutex.unlock() };
    Linux::join(waiting.expect("a thread can be created"));
    *lock.lock() += 1;
}

#[test]
fn first_come_first_served() {
    let lock = Arc::new(OsqLock::<_>::new(Vec::new()));
    let guard = lock.lock();
    let threads: Vec<_> = (0..5)
        .map(|index| {
            let before = lock.tail.load(Ordering::Relaxed);
            let shared = Arc::clone(&lock);
            let thread = Linux::spawn(ThreadSpec::default(), move || shared.lock().push(index))
                .expect("a few threads can be created");
            while lock.tail.load(Ordering::Relaxed) == before {
                Linux::yield_now();
            }
            thread
        })
        .collect();
    drop(guard);
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*lock.lock(), [0, 1, 2, 3, 4]);
}

/// The next holder may free the lock: the unlock before must not touch it any more (Miri reports it).
#[test]
fn the_next_holder_may_free_the_lock() {
    struct Last(*const OsqLock<()>);
    // SAFETY: the pointer goes to one thread, which uses it only while the lock is allocated.
    unsafe impl Send for Last {}

    for _ in 0..ROUNDS / 10 {
        let lock = Box::into_raw(Box::new(OsqLock::new(())));
        // SAFETY: just allocated; the other thread frees it, but not before it has the lock.
        let guard = unsafe { &*lock }.lock();
        let last = Last(lock);
        let other = Linux::spawn(ThreadSpec::default(), move || {
            let Last(lock) = { last };
            // SAFETY: only we free it.
            core::mem::forget(unsafe { &*lock }.lock());
            // SAFETY: allocated as a box; the other thread's last use is the step that let us take the lock.
            drop(unsafe { Box::from_raw(lock.cast_mut()) });
        })
        .expect("a thread can be created");
        Linux::yield_now();
        drop(guard);
        Linux::join(other);
    }
}

/// Safe code may forget a guard and end its thread. The lock stays held, and later threads do not disturb each other.
#[test]
fn a_forgotten_guard_outlives_its_thread() {
    let lock = Arc::new(OsqLock::<_>::new(7));
    let shared = Arc::clone(&lock);
    let thread = Linux::spawn(ThreadSpec::default(), move || core::mem::forget(shared.lock()));
    Linux::join(thread.expect("a thread can be created"));
    let forgotten = u32::from(lock.tail.load(Ordering::Relaxed));
    let others: Arc<[OsqLock<usize>; 2]> = Arc::new([OsqLock::new(0), OsqLock::new(0)]);
    let (shared, counted) = (Arc::clone(&lock), Arc::clone(&others));
    on_threads(move |index| {
        let waiters = &ProcessState::<Linux>::get().waiters;
        let free = waiters.take().expect("a record is free");
        assert_ne!(free, forgotten);
        waiters.give_back(free);
        for round in 0..ROUNDS {
            *counted[(index + round) % 2].lock() += 1;
            assert!(shared.lock_spinning(1).is_none(), "it was never given back");
        }
    });
    assert_eq!(*others[0].lock() + *others[1].lock(), THREADS * ROUNDS);
    assert!(lock.is_locked());
}
