//! Limits: no record left to wait by, thresholds out of bounds.
//!
//! What happens if there is no place for queues by cache is tested on simulated machines, which have several caches.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::{OsqGuard, OsqLock};
use nearq_lock::{Mode, Mutex, Settings, Snapshot, Statistics};
use nearq_platform::{Linux, LockPlatform, Ordering, ThreadSpec, Threads};

use crate::alone;

type Word = <Linux as LockPlatform>::AtomicU32;

const THREADS: u32 = 8;
const ROUNDS: u32 = 2_000;

/// Several threads that have no record compete for a mutex.
fn fight(mutex: &Arc<Mutex<(u32, u32)>>) -> Vec<<Linux as Threads>::JoinHandle> {
    (0..THREADS)
        .map(|_| {
            let mutex = Arc::clone(mutex);
            let main = move || {
                for round in 0..ROUNDS {
                    let mut pair = mutex.lock();
                    pair.0 += 1;
                    if round % 32 == 0 {
                        // Other threads come in the meantime, and fall asleep.
                        Linux::yield_now();
                    }
                    pair.1 += 1;
                    assert_eq!(pair.0, pair.1, "two threads held the lock at once");
                }
            };
            Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
        })
        .collect()
}

/// The records are the process's, and so is the mode: all in one test.
#[test]
fn threads_without_a_record_wait_on_the_word() {
    let _alone = alone();
    let locks: Vec<OsqLock<()>> = (0..65_535).map(|_| OsqLock::new(())).collect();
    for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
        // Each held lock takes one of the process's records.
        let held: Vec<OsqGuard<'_, ()>> =
            locks.iter().map(|lock| lock.try_lock().expect("there are records left")).collect();
        assert!(OsqLock::new(()).try_lock().is_none(), "there are records left");
        let mut settings = Settings::of_process();
        (settings.mode, settings.count, settings.yields) = (mode, true, 0);
        settings.set_for_process();

        let mutex = Arc::new(Mutex::new((0, 0)));
        let before = Statistics::of_process();
        fight(&mutex).into_iter().for_each(Linux::join);
        assert_eq!(*mutex.lock(), (THREADS * ROUNDS, THREADS * ROUNDS), "{mode:?}");
        let after = Statistics::of_process();
        assert_eq!(after.in_turn, before.in_turn, "{mode:?}: no thread is in a queue");
        // A deadline is kept, and a thread that gives up leaves nothing behind.
        let guard = mutex.lock();
        let mutex_clone = Arc::clone(&mutex);
        let gives_up = move || {
            let began = Linux::now();
            assert!(mutex_clone.try_lock_for(Duration::from_millis(5)).is_none());
            assert!(Linux::now() - began >= Duration::from_millis(5));
        };
        let thread = Linux::spawn(ThreadSpec::default(), gives_up);
        Linux::join(thread.expect("a thread can be created"));
        let after = Statistics::of_process();
        assert!(after.unqueued > before.unqueued, "{mode:?}: that thread waited");
        drop(guard);
        drop(mutex.try_lock().expect("no thread waits any more"));

        // Records become free while some threads sleep on the word: threads that come now queue up, and both kinds go on.
        let guard = mutex.lock();
        let first = fight(&mutex);
        while Statistics::of_process().unqueued < after.unqueued + u64::from(THREADS) {
            Linux::sleep(Duration::from_millis(1));
        }
        drop(held);
        let second = fight(&mutex);
        Linux::sleep(Duration::from_millis(5));
        drop(guard);
        first.into_iter().chain(second).for_each(Linux::join);
        let count = 3 * THREADS * ROUNDS;
        assert_eq!(*mutex.lock(), (count, count), "{mode:?}");
    }
}

/// Mutexes that threads waited for by cache and that no thread uses any more, like those of a program that never destroys them, do not take
/// all places.
#[test]
fn mutexes_that_are_never_dropped_leave_slots_to_others() {
    const MUTEXES: usize = 2_000;
    let _alone = alone();
    let before = Settings::of_process();
    let mut settings = before;
    (settings.mode, settings.count, settings.yields) = (Mode::Numa, true, 0);
    settings.set_for_process();
    let bound = || Statistics::of_process().bound;
    let contended = || Statistics::of_process().contended;
    let (bound_before, used_before) = (bound(), Snapshot::of_process().mutexes.len());
    let mutexes: Arc<Vec<_>> = Arc::new((0..MUTEXES).map(|_| Mutex::<u32>::new(0)).collect());
    let (next, done) = (Arc::new(Word::new(0)), Arc::new(Word::new(0)));
    let threads = [(); 3].map(|()| {
        let (mutexes, next, done) = (Arc::clone(&mutexes), Arc::clone(&next), Arc::clone(&done));
        let main = move || {
            for (index, mutex) in mutexes.iter().enumerate() {
                while next.load(Ordering::Acquire) as usize <= index {
                    Linux::yield_now();
                }
                *mutex.lock() += 1;
                done.fetch_add(1, Ordering::Release);
            }
        };
        Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
    });
    for (index, mutex) in mutexes.iter().enumerate() {
        let already = contended();
        let guard = mutex.lock();
        next.store(index as u32 + 1, Ordering::Release);
        while contended() < already + 3 {
            Linux::yield_now();
        }
        drop(guard);
        while done.load(Ordering::Acquire) as usize != 3 * (index + 1) {
            Linux::yield_now();
        }
    }
    threads.into_iter().for_each(Linux::join);
    before.set_for_process();
    let times = bound() - bound_before;
    assert!(times > 1_500, "only {times} of them changed to queues by cache");
    let used = Snapshot::of_process().mutexes.len() - used_before;
    // They are dropped in the end, so that the other tests of this process find free places.
    drop(mutexes);
    assert!(used <= 1_200, "{used} unused mutexes have slots");
}
