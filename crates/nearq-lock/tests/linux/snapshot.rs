//! Mutexes that are observed from outside while threads compete for them.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings, Snapshot};
use nearq_platform::{Linux, LockPlatform, Ordering, ThreadSpec, Threads};

use crate::alone;

type Word = <Linux as LockPlatform>::AtomicU32;

const THREADS: usize = 4;
const MUTEXES: usize = 3;
const SNAPSHOTS: usize = if cfg!(miri) { 3 } else { 2_000 };

/// A snapshot shows a possible state at any time, and disturbs no thread.
#[test]
fn snapshots_of_contended_mutexes_are_consistent() {
    let _alone = alone();
    let mut settings = Settings::default();
    (settings.mode, settings.yields) = (Mode::Numa, 0);
    settings.set_for_process();
    let mutexes: Arc<[Mutex<u64>]> = (0..MUTEXES).map(|_| Mutex::new(0)).collect();
    let stop = Arc::new(Word::new(0));
    let deadline = Linux::now() + Duration::from_mins(5);
    // The threads begin with this mutex: one of them waits for it, and so the process has slots when it is released.
    let held = mutexes[0].lock();
    let threads: Vec<_> = (0..THREADS)
        .map(|index| {
            let (mutexes, stop) = (Arc::clone(&mutexes), Arc::clone(&stop));
            let main = move || {
                let mut rounds = 0;
                while stop.load(Ordering::Relaxed) == 0 {
                    let mut count = mutexes[rounds % MUTEXES].lock();
                    *count += 1;
                    rounds += 1;
                    if rounds % 16 == index {
                        // Other threads come in the meantime, and queue up.
                        Linux::yield_now();
                    }
                }
                rounds as u64
            };
            let rounds = Arc::new(Mutex::new(0));
            let rounds_clone = Arc::clone(&rounds);
            let spawned =
                Linux::spawn(ThreadSpec::default(), move || *rounds_clone.lock() = main());
            (spawned.expect("a few threads can be created"), rounds)
        })
        .collect();
    while Snapshot::of_process().slots == 0 {
        assert!(Linux::now() < deadline, "no thread waits");
        Linux::yield_now();
    }
    drop(held);
    let mut slotted = 0;
    let mut snapshots = 0;
    // Until some mutexes have queues by cache, which happens when two threads wait for one; Miri takes too long for that.
    while snapshots < SNAPSHOTS || slotted == 0 && !cfg!(miri) {
        assert!(
            Linux::now() < deadline,
            "no mutex has queues by cache after {snapshots} snapshots"
        );
        snapshots += 1;
        let seen = Snapshot::of_process();
        slotted = slotted.max(seen.mutexes.len());
        assert!((1..=4095).contains(&seen.slots) && seen.mutexes.len() <= seen.slots, "{seen:?}");
        assert!(seen.mutexes.is_sorted_by(|one, next| one.slot < next.slot), "{seen:?}");
        if cfg!(miri) {
            Linux::yield_now();
        }
    }
    // The mutexes that threads compete for, and the threads' counts.
    assert!(slotted <= MUTEXES + THREADS, "{slotted}");
    stop.store(1, Ordering::Relaxed);
    let mut rounds = 0;
    for (thread, counted) in threads {
        Linux::join(thread);
        rounds += *counted.lock();
    }
    assert_eq!(mutexes.iter().map(|mutex| *mutex.lock()).sum::<u64>(), rounds);
    let seen = Snapshot::of_process();
    assert!(seen.mutexes.iter().all(|mutex| mutex.caches == 0), "{seen:?}");
}
