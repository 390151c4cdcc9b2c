//! The model checker runs the mutex through every interleaving of two and three threads.
//!
//! The value is a watched cell: an access that is not ordered after the previous holder's is reported as a race,
//! and a lost wake-up as a deadlock.

use std::sync::Arc;

use nearq_lock::Mutex;
use nearq_lock::raw::RawMutex;
use nearq_model::{Loom, bound};
use nearq_platform::{PlatformCell, ThreadSpec, Threads};

type Watched = <Loom as Threads>::Cell<u32>;

fn increment(mutex: &Mutex<Watched, Loom>) {
    let guard = mutex.lock();
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    guard.with_mut(|count| unsafe { *count += 1 });
}

fn check(preemptions: usize, threads: u32, model: impl Fn(u32) + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(move || model(threads));
}

fn count_with(threads: u32) {
    let mutex = Arc::new(Mutex::<Watched, Loom>::new_in(Watched::new(0)));
    let others: Vec<_> = (1..threads)
        .map(|_| {
            let mutex = Arc::clone(&mutex);
            Loom::spawn(ThreadSpec::default(), move || increment(&mutex)).expect("the model spawns")
        })
        .collect();
    increment(&mutex);
    others.into_iter().for_each(Loom::join);
    let guard = mutex.lock();
    // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
    assert_eq!(guard.with(|count| unsafe { *count }), threads);
}

#[test]
fn two_threads_exclude_each_other_and_no_wake_up_is_lost() {
    check(4, 2, count_with);
}

#[test]
fn three_threads_exclude_each_other_and_no_wake_up_is_lost() {
    check(bound(1, 2), 3, count_with);
}

#[test]
fn try_lock_orders_like_lock() {
    check(4, 2, |_| {
        let mutex = Arc::new(Mutex::<Watched, Loom>::new_in(Watched::new(0)));
        let other = {
            let mutex = Arc::clone(&mutex);
            Loom::spawn(ThreadSpec::default(), move || increment(&mutex)).expect("the model spawns")
        };
        if let Some(guard) = mutex.try_lock() {
            // SAFETY: the cell lives as long as the guard, which excludes other threads; that is what is tested.
            guard.with_mut(|count| unsafe { *count += 1 });
        }
        Loom::join(other);
    });
}

/// The next holder may free the mutex: the unlock before must not touch it any more.
#[test]
fn the_next_owner_may_free_the_mutex() {
    struct Last(*const RawMutex<Loom>);
    // SAFETY: the pointer goes to one thread, which uses it only while the mutex is allocated.
    unsafe impl Send for Last {}

    check(3, 2, |_| {
        let mutex = Box::into_raw(Box::new(RawMutex::<Loom>::new_in()));
        // SAFETY: just allocated, freed below by the thread that takes the lock second.
        unsafe { &*mutex }.lock();
        let last = Last(mutex);
        let other = Loom::spawn(ThreadSpec::default(), move || {
            let Last(mutex) = { last };
            // SAFETY: only we free it.
            unsafe { &*mutex }.lock();
            // SAFETY: allocated as a box; the other thread's last use is the swap that let us take the lock. If there were a later one, the
            // model would see an access to a freed atomic.
            drop(unsafe { Box::from_raw(mutex.cast_mut()) });
        })
        .expect("the model spawns");
        // SAFETY: we hold the lock, so the other thread has not freed it.
        unsafe { (*mutex).unlock() };
        Loom::join(other);
    });
}

/// Threads of a model are distinguished, although they are coroutines of one thread.
#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "by a thread that does not hold it")]
fn releasing_another_threads_mutex_panics() {
    check(2, 2, |_| {
        let mutex = Arc::new(RawMutex::<Loom>::new_in());
        mutex.lock();
        let mutex_clone = Arc::clone(&mutex);
        let other = Loom::spawn(ThreadSpec::default(), move || {
            // SAFETY: none: the panic that is expected comes before anything is done.
            unsafe { mutex_clone.unlock() };
        });
        Loom::join(other.expect("the model spawns"));
    });
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "already holds")]
fn relocking_a_held_mutex_panics() {
    check(2, 1, |_| {
        let mutex = RawMutex::<Loom>::new_in();
        mutex.lock();
        mutex.lock();
    });
}
