//! On Linux; small enough to run under Miri as well. The machine may have only one cache: even then, queues by domain are queues.

use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Linux, LockPlatform, Ordering, ThreadSpec, Threads};

use crate::process_state::ProcessState;
use crate::raw::RawMutex;
use crate::skipped::skipped;
use crate::word::{LOCKED, NUMA, RESERVED, TAIL, slot};
use crate::{Mutex, MutexGuard};

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 15 } else { 5_000 };

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

/// All ways of taking and releasing the mutex, mixed.
fn hammer(bound: bool) {
    let mutex = Arc::new(Mutex::<(usize, usize)>::new((0, 0)));
    if bound {
        mutex.raw().bind_for_test();
    }
    let shared = Arc::clone(&mutex);
    on_threads(move |index| {
        for round in 0..ROUNDS {
            let guard = match (index + round) % 5 {
                0 => shared.try_lock_for(Duration::from_micros(30)),
                1 => shared.try_lock(),
                _ => Some(shared.lock()),
            };
            let Some(mut pair) = guard else { continue };
            pair.0 += 1;
            if round % 64 == 0 {
                Linux::yield_now();
            }
            pair.1 += 1;
            assert_eq!(pair.0, pair.1, "two threads held the lock at once");
            match round % 7 {
                0 => MutexGuard::unlock_fair(pair),
                1 => MutexGuard::bump(&mut pair),
                _ => drop(pair),
            }
        }
    });
    let pair = *mutex.lock();
    assert_eq!(pair.0, pair.1);
    assert!((THREADS * ROUNDS * 3 / 5..=THREADS * ROUNDS).contains(&pair.0), "{pair:?}");
}

#[test]
fn every_transition_of_the_plain_queue() {
    hammer(false);
}

#[test]
fn every_transition_of_the_queues_by_domain() {
    hammer(true);
}

#[test]
fn a_timed_out_waiter_leaves_the_mutex_usable() {
    for bound in [false, true] {
        let mutex = Arc::new(Mutex::<u32>::new(0));
        if bound {
            mutex.raw().bind_for_test();
        }
        let guard = mutex.lock();
        let waiting: Vec<_> = (1..4)
            .map(|millis| {
                let mutex = Arc::clone(&mutex);
                Linux::spawn(ThreadSpec::default(), move || {
                    let began = Linux::now();
                    let time = Duration::from_millis(millis);
                    assert!(mutex.try_lock_for(time).is_none());
                    assert!(Linux::now() - began >= time);
                })
                .expect("a few threads can be created")
            })
            .collect();
        waiting.into_iter().for_each(Linux::join);
        MutexGuard::unlock_fair(guard);
        *mutex.try_lock().expect("no thread waits any more") += 1;
        *mutex.lock() += 1;
        assert_eq!(*mutex.lock(), 2);
    }
}

/// A thread that has the turn and gives up no longer keeps the mutex for itself.
#[test]
fn a_reservation_ends_with_its_thread() {
    for bound in [false, true] {
        let mutex = Arc::new(RawMutex::new());
        let bound = bound && mutex.bind_for_test();
        mutex.lock();
        mutex.change_word(|word| word | RESERVED);
        let waiting = Arc::clone(&mutex);
        let waiter = Linux::spawn(ThreadSpec::default(), move || {
            assert!(!waiting.try_lock_for(Duration::from_millis(3)));
        });
        Linux::join(waiter.expect("a thread can be created"));
        let numa = if bound { NUMA } else { 0 };
        assert_eq!(mutex.word_now() & (LOCKED | RESERVED | NUMA | TAIL), LOCKED | numa);
        // SAFETY: taken above.
        unsafe { mutex.unlock() };
    }
}

/// A thread that tries a reserved mutex gets it if no thread has the turn.
#[test]
fn a_mutex_reserved_for_no_thread_can_be_locked() {
    for bound in [false, true] {
        let mutex = RawMutex::new();
        let bound = bound && mutex.bind_for_test();
        let try_and_unlock = || {
            mutex.change_word(|word| word | RESERVED);
            let locked = mutex.try_lock();
            if locked {
                assert_eq!(mutex.word_now() & (LOCKED | RESERVED), LOCKED);
                // SAFETY: just taken.
                unsafe { mutex.unlock() };
            }
            locked
        };
        assert!(try_and_unlock());
        if bound {
            let slot = ProcessState::<Linux>::get().slots.get(slot(mutex.word_now()));
            assert!(slot.take_if_quiet(), "no thread waits");
            assert!(!try_and_unlock(), "it is reserved for the thread that has the turn");
            assert!(slot.rest());
            assert!(try_and_unlock());
        }
    }
}

/// Memory that held a mutex is freed the moment that the next holder has the mutex (Miri reports an access that comes too late).
#[test]
fn mutexes_are_destroyed_by_the_next_holder() {
    struct Last(*const Mutex<u32>);
    // SAFETY: the pointer goes to one thread, which uses it only while the mutex is allocated.
    unsafe impl Send for Last {}

    for round in 0..ROUNDS / 10 {
        let mutex = Box::into_raw(Box::new(Mutex::<u32>::new(0)));
        // SAFETY: just allocated; the other thread frees it, but not before it has the lock.
        let shared = unsafe { &*mutex };
        if round % 2 == 0 {
            shared.raw().bind_for_test();
        }
        let guard = shared.lock();
        let last = Last(mutex);
        let other = Linux::spawn(ThreadSpec::default(), move || {
            let Last(mutex) = { last };
            // SAFETY: only we free it.
            core::mem::forget(unsafe { &*mutex }.lock());
            // SAFETY: allocated as a box; the other thread's last use is the step that let us take the lock.
            drop(unsafe { Box::from_raw(mutex.cast_mut()) });
        })
        .expect("a thread can be created");
        if round % 3 != 0 {
            Linux::yield_now();
        }
        drop(guard);
        Linux::join(other);
    }
}

/// More mutexes than there are slots: those that get none stay plain, and all are given back.
#[test]
#[cfg_attr(miri, ignore = "too many")]
fn more_mutexes_than_slots() {
    let mutexes: Vec<Mutex<u32>> = (0..5000).map(Mutex::new).collect();
    let bound = mutexes.iter().filter(|mutex| mutex.raw().bind_for_test()).count();
    // Other tests of this process have some.
    assert!((4000..=4095).contains(&bound), "{bound}");
    for (index, mutex) in mutexes.iter().enumerate() {
        assert_eq!(*mutex.lock(), index as u32);
    }
    drop(mutexes);
    assert!(Mutex::new(0).raw().bind_for_test());
}

/// A free mutex that is reserved for an ordinary thread, which does not come, can be taken by a thread of a real-time class, but not by
/// other threads.
#[test]
#[cfg_attr(miri, ignore = "Miri has no classes")]
fn an_urgent_thread_may_take_a_reserved_mutex() {
    unsafe extern "C" {
        fn sched_setscheduler(thread: i32, policy: i32, priority: *const i32) -> i32;
    }
    const SCHED_FIFO: i32 = 1;
    let mutex = Arc::new(RawMutex::new());
    let process = ProcessState::<Linux>::get();
    let number = process.waiters.take().expect("a record is free");
    process.waiters.prepare(number, 0);
    mutex.change_word(|word| word | RESERVED | number << crate::word::TAIL_SHIFT);
    assert!(!mutex.try_lock() && !mutex.try_lock_for(Duration::from_millis(1)));
    let taken = Arc::new(<Linux as LockPlatform>::AtomicU32::new(0));
    let (shared, taken_clone) = (Arc::clone(&mutex), Arc::clone(&taken));
    let thread = Linux::spawn(ThreadSpec::default(), move || {
        let priority = 1;
        // SAFETY: the parameter is an integer of the caller.
        if unsafe { sched_setscheduler(0, SCHED_FIFO, &raw const priority) } != 0 {
            return skipped("a thread of a real-time class", "refused", "run the tests as root");
        }
        for take in
            [RawMutex::try_lock, |mutex: &RawMutex| mutex.try_lock_for(Duration::from_mins(1))]
        {
            if take(&shared) {
                taken_clone.fetch_add(1, Ordering::Relaxed);
                // SAFETY: just taken.
                unsafe { shared.unlock() };
            }
        }
    });
    Linux::join(thread.expect("a thread can be created"));
    assert_eq!(taken.load(Ordering::Relaxed), 2);
    assert_eq!(
        mutex.word_now() & (LOCKED | RESERVED),
        RESERVED,
        "it is still reserved for the other thread"
    );
    mutex.change_word(|_| 0);
    process.waiters.give_back(number);
}
