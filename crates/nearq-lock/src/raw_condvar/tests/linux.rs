//! On Linux; small enough to run under Miri as well.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::raw::{RawCondvar, RawMutex};
use crate::{Condvar, Mutex, MutexGuard};

const THREADS: usize = if cfg!(miri) { 3 } else { 16 };
const ROUNDS: usize = if cfg!(miri) { 4 } else { 300 };
const ITEMS: usize = if cfg!(miri) { 12 } else { 10_000 };

type JoinHandle = <Linux as Threads>::JoinHandle;

fn spawn(main: impl FnOnce() + Send + 'static) -> JoinHandle {
    Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
}

fn mutex<T>(bound: bool, value: T) -> Mutex<T> {
    let mutex = Mutex::new(value);
    if bound {
        mutex.raw().bind_for_test();
    }
    mutex
}

/// Waits until this many threads have counted themselves.
fn wait_for_count(mutex: &Mutex<usize>, count: usize) -> MutexGuard<'_, usize> {
    loop {
        let guard = mutex.lock();
        if *guard == count {
            return guard;
        }
        drop(guard);
        Linux::sleep(Duration::from_millis(1));
    }
}

#[test]
fn each_waiter_is_notified_exactly_once() {
    for bound in [false, true] {
        let shared = Arc::new((mutex(bound, 0), Condvar::new()));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let (mutex, condvar) = &*shared;
                    let mut waiting = mutex.lock();
                    *waiting += 1;
                    condvar.wait(&mut waiting);
                    *waiting -= 1;
                })
            })
            .collect();
        let (mutex, condvar) = &*shared;
        drop(wait_for_count(mutex, THREADS));
        assert!(condvar.notify_one());
        drop(wait_for_count(mutex, THREADS - 1));
        assert_eq!(condvar.notify_all(), THREADS - 1);
        assert_eq!((condvar.notify_all(), condvar.notify_one()), (0, false));
        threads.into_iter().for_each(Linux::join);
        assert_eq!(*mutex.lock(), 0);
    }
}

/// A caller's closure that panics does not lose the notifications for the threads that must get them.
#[test]
fn waiters_are_notified_although_a_closure_panics() {
    type Notify = fn(&RawCondvar);
    let ways: [Notify; 2] = [
        |condvar| _ = condvar.notify_one_after(|| resume_unwind(Box::new(()))),
        |condvar| _ = condvar.notify_all_after(|| resume_unwind(Box::new(()))),
    ];
    for (notify, count) in ways.into_iter().zip([1, 3]) {
        let shared = Arc::new((RawMutex::new(), RawCondvar::new(), Mutex::new(0)));
        let threads: Vec<_> = (0..count)
            .map(|_| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    shared.0.lock();
                    *shared.2.lock() += 1;
                    // SAFETY: taken above.
                    unsafe { shared.1.wait(&shared.0) };
                    // SAFETY: `wait` took it again.
                    unsafe { shared.0.unlock() };
                    *shared.2.lock() -= 1;
                })
            })
            .collect();
        drop(wait_for_count(&shared.2, count));
        shared.0.lock();
        assert!(catch_unwind(AssertUnwindSafe(|| notify(&shared.1))).is_err());
        // SAFETY: taken above.
        unsafe { shared.0.unlock() };
        let late = Linux::now() + Duration::from_secs(20);
        while *shared.2.lock() != 0 {
            assert!(Linux::now() < late, "a thread that was notified sleeps on");
            Linux::sleep(Duration::from_millis(1));
        }
        threads.into_iter().for_each(Linux::join);
    }
}

/// If notified one by one, they come in the order in which they waited; each is notified only after the one before has come.
#[test]
fn waiters_are_notified_in_arrival_order() {
    let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new(), Mutex::new(0)));
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let shared_clone = Arc::clone(&shared);
            let thread = spawn(move || {
                let (order, condvar, waiting) = &*shared_clone;
                let mut order = order.lock();
                *waiting.lock() += 1;
                condvar.wait(&mut order);
                order.push(index);
            });
            // It counts under the mutex that it releases to wait: a thread that has the mutex after the count finds it waiting.
            drop(wait_for_count(&shared.2, index + 1));
            drop(shared.0.lock());
            thread
        })
        .collect();
    let (order, condvar, _) = &*shared;
    for count in 1..=THREADS {
        assert!(condvar.notify_one());
        while order.lock().len() < count {
            Linux::yield_now();
        }
    }
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*order.lock(), (0..THREADS).collect::<Vec<_>>());
}

/// Producers and consumers of a small bounded queue, which wait for random times and check again. Every item goes through once.
fn pass_items(bound: bool, hold: bool) {
    struct Queue {
        items: Mutex<(VecDeque<usize>, usize)>,
        not_empty: Condvar,
        not_full: Condvar,
    }
    let queue = Arc::new(Queue {
        items: mutex(bound, (VecDeque::new(), 0)),
        not_empty: Condvar::new(),
        not_full: Condvar::new(),
    });
    let sum = Arc::new(Mutex::new((0, 0)));
    let mut threads = Vec::new();
    for producer in 0..THREADS / 2 {
        let queue = Arc::clone(&queue);
        threads.push(spawn(move || {
            for item in (producer..ITEMS).step_by(THREADS / 2) {
                let mut items = queue.items.lock();
                while items.0.len() == 3 {
                    let time = Duration::from_micros(item as u64 * 7 % 50);
                    queue.not_full.wait_for(&mut items, time);
                }
                items.0.push_back(item);
                if hold {
                    queue.not_empty.notify_one();
                } else {
                    drop(items);
                    queue.not_empty.notify_one();
                }
            }
        }));
    }
    for consumer in 0..THREADS / 2 {
        let (queue, sum) = (Arc::clone(&queue), Arc::clone(&sum));
        threads.push(spawn(move || {
            loop {
                let mut items = queue.items.lock();
                if consumer % 2 == 0 {
                    queue.not_empty.wait_while(&mut items, |(items, taken)| {
                        items.is_empty() && *taken < ITEMS
                    });
                } else {
                    let empty = |(items, taken): &mut (VecDeque<usize>, usize)| {
                        items.is_empty() && *taken < ITEMS
                    };
                    let time = Duration::from_micros(30);
                    if !queue.not_empty.wait_while_for(&mut items, empty, time) {
                        continue;
                    }
                }
                let Some(item) = items.0.pop_front() else { break };
                items.1 += 1;
                let last = items.1 == ITEMS;
                drop(items);
                queue.not_full.notify_one();
                if last {
                    queue.not_empty.notify_all();
                }
                let mut sum = sum.lock();
                *sum = (sum.0 + item, sum.1 + 1);
            }
        }));
    }
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*sum.lock(), (ITEMS * (ITEMS - 1) / 2, ITEMS));
    assert_eq!((queue.not_empty.notify_all(), queue.not_full.notify_all()), (0, 0));
}

#[test]
fn items_are_passed_with_notifications_under_the_mutex() {
    pass_items(false, true);
    pass_items(true, true);
}

#[test]
fn items_are_passed_with_notifications_after_unlocking() {
    pass_items(false, false);
    pass_items(true, false);
}

#[test]
fn a_timed_out_waiter_is_not_notified_afterwards() {
    let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    let mut guard = mutex.lock();
    let began = Linux::now();
    let time = Duration::from_millis(2);
    assert!(!condvar.wait_for(&mut guard, time));
    assert!(Linux::now() - began >= time);
    assert!(!condvar.wait_until_in(&mut guard, began));
    assert!(mutex.try_lock().is_none());
    assert!(!condvar.notify_one());
    assert!(!condvar.wait_while_until_in(&mut guard, |()| true, began));
    assert!(condvar.wait_while_until_in(&mut guard, |()| false, began));
}

/// Two mutexes and one condition variable: each thread gets its own mutex back.
#[test]
fn waiters_may_have_different_mutexes() {
    let shared = Arc::new(([Mutex::new(0), Mutex::new(0)], Condvar::new()));
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let shared = Arc::clone(&shared);
            spawn(move || {
                let mut guard = shared.0[index % 2].lock();
                *guard += 1;
                shared.1.wait(&mut guard);
                *guard -= 1;
            })
        })
        .collect();
    for (index, mutex) in shared.0.iter().enumerate() {
        drop(wait_for_count(mutex, (THREADS + 1 - index) / 2));
    }
    assert_eq!(shared.1.notify_all(), THREADS);
    threads.into_iter().for_each(Linux::join);
    assert_eq!((*shared.0[0].lock(), *shared.0[1].lock()), (0, 0));
}

/// Destroyed as soon as all threads have been notified; some give up at that moment (Miri reports an access that comes too late).
#[test]
fn a_condvar_is_destroyed_right_after_all_waiters_were_notified() {
    #[derive(Clone, Copy)]
    struct Shared(*const RawCondvar);
    // SAFETY: the pointer is used while what it points to is allocated; that is tested.
    unsafe impl Send for Shared {}

    for round in 0..ROUNDS {
        let condvar = Shared(Box::into_raw(Box::new(RawCondvar::new())));
        let shared = Arc::new((RawMutex::new(), Mutex::new(0)));
        let threads: Vec<_> = (0..THREADS.min(6))
            .map(|index| {
                let shared = Arc::clone(&shared);
                spawn(move || {
                    let Shared(condvar) = { condvar };
                    shared.0.lock();
                    *shared.1.lock() += 1;
                    let soon = Linux::now() + Duration::from_micros((round % 8 * 20) as u64);
                    let deadline = (index % 2 == 0).then_some(soon);
                    // SAFETY: we hold the mutex; the thread that frees the condition variable does so with the mutex, after all have
                    // counted, so each waits or has given up.
                    let in_time = unsafe { (*condvar).wait_at_most(&shared.0, deadline) };
                    assert!(in_time || deadline.is_some());
                    // SAFETY: `wait` took it again.
                    unsafe { shared.0.unlock() };
                })
            })
            .collect();
        drop(wait_for_count(&shared.1, threads.len()));
        shared.0.lock();
        let Shared(condvar) = condvar;
        // SAFETY: freed below.
        let notified = unsafe { &*condvar }.notify_all();
        assert!((threads.len() / 2..=threads.len()).contains(&notified));
        // SAFETY: allocated as a box. No thread waits by it any more, and none will.
        drop(unsafe { Box::from_raw(condvar.cast_mut()) });
        // SAFETY: taken above.
        unsafe { shared.0.unlock() };
        threads.into_iter().for_each(Linux::join);
    }
}
