//! Real threads hammer the mutex on Linux. Small enough to run under Miri as well.

use std::cell::UnsafeCell;
use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_lock::raw::RawMutex;
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::alone;

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 20 } else { 20_000 };

#[test]
fn increments_are_not_lost() {
    let _alone = alone();
    let mutex = Arc::new(Mutex::<(usize, usize)>::new((0, 0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|_| {
            let mutex = Arc::clone(&mutex);
            Linux::spawn(ThreadSpec::default(), move || {
                for round in 0..ROUNDS {
                    let mut pair = mutex.lock();
                    pair.0 += 1;
                    if round % 64 == 0 {
                        // Gives up the CPU while holding it, so that the other threads sleep and do not only spin.
                        Linux::yield_now();
                    }
                    pair.1 += 1;
                    assert_eq!(pair.0, pair.1, "two threads held the lock at once");
                }
            })
            .expect("a few threads can be created")
        })
        .collect();
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*mutex.lock(), (THREADS * ROUNDS, THREADS * ROUNDS));
}

/// Some threads queue up, others sleep on the word, and all get it.
#[test]
fn threads_with_and_without_a_record_wait_for_the_same_lock() {
    let _alone = alone();
    struct Both(RawMutex, UnsafeCell<usize>);
    // SAFETY: only the thread that has the lock touches the number.
    unsafe impl Sync for Both {}

    let both = Arc::new(Both(RawMutex::new(), UnsafeCell::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let both = Arc::clone(&both);
            Linux::spawn(ThreadSpec::default(), move || {
                for round in 0..ROUNDS {
                    if index % 2 == 0 {
                        assert!(both.0.lock_unqueued(None));
                    } else {
                        both.0.lock();
                    }
                    // SAFETY: we have the lock.
                    unsafe { *both.1.get() += 1 };
                    if round % 64 == 0 {
                        Linux::yield_now();
                        let past = Linux::now();
                        assert!(!both.0.lock_unqueued(Some(past)), "it is held, by us");
                    }
                    // SAFETY: taken above.
                    unsafe { both.0.unlock() };
                }
            })
            .expect("a few threads can be created")
        })
        .collect();
    threads.into_iter().for_each(Linux::join);
    // SAFETY: no other thread exists any more.
    assert_eq!(unsafe { *both.1.get() }, THREADS * ROUNDS);
}

/// The next holder may free the mutex: the unlock before must not touch it any more (Miri reports it).
#[test]
fn the_next_owner_may_free_the_mutex() {
    let _alone = alone();
    struct Last(*const RawMutex);
    // SAFETY: the pointer goes to one thread, which uses it only while the mutex is allocated.
    unsafe impl Send for Last {}

    for _ in 0..ROUNDS / 20 {
        let mutex = Box::into_raw(Box::new(RawMutex::new()));
        // SAFETY: just allocated; the other thread frees it, but not before it has the lock.
        unsafe { &*mutex }.lock();
        let last = Last(mutex);
        let other = Linux::spawn(ThreadSpec::default(), move || {
            let Last(mutex) = { last };
            // SAFETY: only we free it.
            unsafe { &*mutex }.lock();
            // SAFETY: allocated as a box; the other thread's last use is the swap that let us take the lock.
            drop(unsafe { Box::from_raw(mutex.cast_mut()) });
        })
        .expect("a thread can be created");
        Linux::yield_now();
        // SAFETY: we hold the lock, so the other thread has not freed it.
        unsafe { (*mutex).unlock() };
        Linux::join(other);
    }
}
