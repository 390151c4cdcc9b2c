//! Real threads use a reader-writer lock in every way at once; small enough to run under Miri as well. In debug builds, wrong uses panic.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::RawRwLock;
use nearq_lock::{Mode, RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard, Settings};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::alone;

const THREADS: usize = if cfg!(miri) { 3 } else { 8 };
const ROUNDS: usize = if cfg!(miri) { 20 } else { 10_000 };

/// Two numbers that only a writer may find different from each other, and the number of changes.
type Pair = RwLock<(usize, usize)>;

fn change(pair: &mut (usize, usize)) {
    pair.0 += 1;
    if pair.0 % 64 == 0 {
        // Gives up the CPU while writing, so that the other threads sleep and do not only spin.
        Linux::yield_now();
    }
    pair.1 += 1;
}

fn look(pair: &(usize, usize)) {
    assert_eq!(pair.0, pair.1, "a writer changes it");
}

/// One use of the lock, of the kind that `round` selects. Returns how often it has changed the pair.
fn use_lock(lock: &Pair, round: usize) -> usize {
    const SHORT: Duration = Duration::from_micros(30);
    match round % 16 {
        0..=4 => look(&lock.read()),
        5 => _ = lock.try_read().as_deref().map(look),
        6 => _ = lock.try_read_for(SHORT).as_deref().map(look),
        7 => look(&lock.upgradable_read()),
        8 => match RwLockUpgradableReadGuard::try_upgrade(lock.upgradable_read()) {
            Ok(mut guard) => {
                change(&mut guard);
                return 1;
            }
            Err(guard) => look(&RwLockUpgradableReadGuard::downgrade(guard)),
        },
        9 => {
            let guard = lock.upgradable_read();
            let before = *guard;
            let mut guard = RwLockUpgradableReadGuard::upgrade(guard);
            assert_eq!(*guard, before, "a writer came in between");
            change(&mut guard);
            return 1;
        }
        10 => match RwLockUpgradableReadGuard::try_upgrade_for(lock.upgradable_read(), SHORT) {
            Ok(guard) => look(&RwLockWriteGuard::downgrade_to_upgradable(guard)),
            Err(guard) => look(&guard),
        },
        11 => {
            let mut guard = lock.write();
            change(&mut guard);
            let after = *guard;
            let guard = RwLockWriteGuard::downgrade(guard);
            assert_eq!(*guard, after, "a writer came in between");
            return 1;
        }
        12 | 13 => {
            let guard = if round % 16 == 12 { lock.try_write() } else { lock.try_write_for(SHORT) };
            return guard.map_or(0, |mut guard| {
                change(&mut guard);
                1
            });
        }
        14 => {
            return lock.try_upgradable_read_for(SHORT).map_or(0, |guard| {
                change(&mut RwLockUpgradableReadGuard::upgrade(guard));
                1
            });
        }
        _ => {
            change(&mut lock.write());
            return 1;
        }
    }
    0
}

/// In the mode `Numa`, readers count themselves by cache even if there is one.
#[test]
fn changes_are_not_lost_and_readers_see_whole_ones() {
    let _alone = alone();
    for mode in [Mode::Off, Mode::Auto, Mode::Numa] {
        let mut settings = Settings::of_process();
        settings.mode = mode;
        settings.set_for_process();
        let lock = Arc::new(Pair::new((0, 0)));
        let made = Arc::new(nearq_lock::Mutex::<usize>::new(0));
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let (lock, made) = (Arc::clone(&lock), Arc::clone(&made));
                let main = move || {
                    let rounds = (0..ROUNDS).map(|round| use_lock(&lock, round + index));
                    *made.lock() += rounds.sum::<usize>();
                };
                Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
            })
            .collect();
        threads.into_iter().for_each(Linux::join);
        let made = *made.lock();
        assert_eq!(*lock.read(), (made, made));
        assert!(made >= THREADS * ROUNDS / 16, "each thread has written");
        assert!(!lock.is_locked());
    }
}

/// The next holder may free the lock: leaving it must not touch it any more (Miri reports it).
#[test]
fn the_next_owner_may_free_the_lock() {
    let _alone = alone();
    struct Last(*const RawRwLock);
    // SAFETY: the pointer goes to one thread, which uses it only while the lock is allocated.
    unsafe impl Send for Last {}

    for round in 0..ROUNDS / 10 {
        let lock = Box::into_raw(Box::new(RawRwLock::new()));
        // SAFETY: just allocated; the other thread frees it, but not before it has the lock.
        let here = unsafe { &*lock };
        if round % 2 == 0 {
            here.read()
        } else {
            here.write()
        }
        let last = Last(lock);
        let other = Linux::spawn(ThreadSpec::default(), move || {
            let Last(lock) = { last };
            // SAFETY: only we free it.
            unsafe { &*lock }.write();
            // SAFETY: allocated as a box; the other thread's last use is the step that let us in.
            drop(unsafe { Box::from_raw(lock.cast_mut()) });
        })
        .expect("a thread can be created");
        Linux::yield_now();
        // SAFETY: we have the lock, so the other thread has not freed it.
        unsafe { if round % 2 == 0 { (*lock).unlock_read() } else { (*lock).unlock_write() } }
        Linux::join(other);
    }
}

#[cfg(debug_assertions)]
mod misuse {
    use nearq_lock::{RwLock, RwLockUpgradableReadGuard};

    use super::*;
    use crate::misuse::{complaint, elsewhere};

    #[test]
    fn leaving_without_having_it_so_panics_and_changes_nothing() {
        let _alone = alone();
        static LOCK: RawRwLock = RawRwLock::new();
        LOCK.read();
        LOCK.read();
        // SAFETY: none, as for the blocks below: that is what is tested. The panic comes before anything is done.
        assert!(complaint(|| unsafe { LOCK.unlock_write() }).contains("as a writer"));
        // SAFETY: see above.
        assert!(complaint(|| unsafe { LOCK.downgrade() }).contains("as a writer"));
        // SAFETY: see above.
        assert!(complaint(|| unsafe { LOCK.upgrade() }).contains("as an upgradable reader"));
        // SAFETY: see above.
        elsewhere(|| assert!(complaint(|| unsafe { LOCK.unlock_read() }).contains("as a reader")));
        for _ in 0..2 {
            // SAFETY: taken twice above.
            unsafe { LOCK.unlock_read() };
        }
        // SAFETY: see above.
        assert!(complaint(|| unsafe { LOCK.unlock_read() }).contains("as a reader"));
        assert!(LOCK.try_write());
        // SAFETY: taken above.
        unsafe { LOCK.unlock_write() };
    }

    #[test]
    fn waiting_for_oneself_panics_unless_the_wait_has_a_deadline() {
        const TIME: Duration = Duration::from_millis(1);
        let _alone = alone();
        let lock = RwLock::<u32>::new(0);
        let guard = lock.write();
        assert!(complaint(|| drop(lock.read())).contains("already has"));
        assert!(complaint(|| drop(lock.write())).contains("already has"));
        assert!(complaint(|| drop(lock.upgradable_read())).contains("already has"));
        assert!(lock.try_read_for(TIME).is_none() && lock.try_write_for(TIME).is_none());
        drop(guard);
        let guard = lock.read();
        assert!(complaint(|| drop(lock.write())).contains("already has"));
        let upgradable = lock.upgradable_read();
        assert!(complaint(|| drop(lock.upgradable_read())).contains("already has"));
        assert!(
            complaint(|| drop(RwLockUpgradableReadGuard::upgrade(upgradable)))
                .contains("already has")
        );
        drop((guard, lock.read()));
        drop(lock.write());
        assert!(!lock.is_locked());
    }

    /// The address of a lock that was leaked while a thread had it may be another lock's.
    #[test]
    fn a_leaked_guard_is_forgotten_with_its_lock() {
        let _alone = alone();
        let mut lock = RwLock::<u32>::new(0);
        for _ in 0..2 {
            core::mem::forget(lock.read());
            // At the same address.
            lock = RwLock::new(1);
            core::mem::forget(lock.write());
            lock = RwLock::new(2);
            *lock.write() += 1;
            drop(RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()));
        }
    }
}
