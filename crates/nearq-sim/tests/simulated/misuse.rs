//! Mutexes that are used wrongly on a simulated machine: its threads are distinguished, although they are coroutines of one thread,
//! and the checks cost no simulated time.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::RawMutex;
use nearq_lock::{Condvar, Mutex};
use nearq_platform::Threads;
use nearq_sim::{Sim, compute};

use crate::common::{on, spawn, spawn_on};

#[test]
fn releasing_a_mutex_of_another_simulated_thread_panics() {
    let outcome = on("core:2", || {
        let mutex = Arc::new(RawMutex::<Sim>::new_in());
        mutex.lock();
        let shared = Arc::clone(&mutex);
        // SAFETY: none: the panic that is expected comes before anything is done.
        Sim::join(spawn(move || unsafe { shared.unlock() }));
        assert!(mutex.is_locked());
        // SAFETY: the mutex was taken above.
        unsafe { mutex.unlock() };
        mutex.is_locked()
    });
    let [panicked] = &outcome.panics[..] else { panic!("one thread was wrong: {outcome:?}") };
    assert!(panicked.message.contains("by a thread that does not hold it"), "{panicked}");
    assert_eq!(outcome.result, Some(false));
}

#[test]
fn locking_a_mutex_twice_panics_instead_of_deadlocking() {
    let outcome = on("core:2", || {
        let mutex = Mutex::<u32, Sim>::new_in(0);
        let _guard = mutex.lock();
        drop(mutex.lock());
    });
    let [panicked] = &outcome.panics[..] else { panic!("one thread was wrong: {outcome:?}") };
    assert!(panicked.message.contains("already holds"), "{panicked}");
}

/// Threads that run on the stack of an earlier thread, with mutexes whose guards exist in the meantime.
#[test]
fn held_locks_are_tracked_per_simulated_thread() {
    let outcome = on("l3:2 core:2", || {
        let both = Arc::new((Mutex::<u32, Sim>::new_in(0), Condvar::new_in()));
        let others = Arc::new([(); 4].map(|()| Mutex::<u32, Sim>::new_in(0)));
        let threads: Vec<_> = (0..12)
            .map(|index| {
                let (both, others) = (Arc::clone(&both), Arc::clone(&others));
                spawn_on(index % 4, move || {
                    for round in 0..20 {
                        let mut other = others[(index + round) % 4].lock();
                        *other += 1;
                        compute(Duration::from_micros(3));
                        let mut count = both.0.lock();
                        drop(other);
                        *count += 1;
                        both.1.notify_one();
                        both.1.wait_for(&mut count, Duration::from_micros(20));
                        *count += 1;
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(Sim::join);
        *both.0.lock()
    });
    assert_eq!(outcome.expect(), 12 * 20 * 2);
}
