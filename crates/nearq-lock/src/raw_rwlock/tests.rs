//! The reader-writer lock under the model checker, and its limits.

#[cfg(not(any(miri, tsan)))]
mod by_cache;
#[cfg(not(any(miri, tsan)))]
mod model;
#[cfg(not(any(miri, tsan)))]
mod requests;

use core::time::Duration;

use nearq_platform::Ordering;

use super::RawRwLock;
use super::word::{MOST, WAITING_ONE, WRITER, WRITER_ASLEEP};

#[test]
fn readers_beyond_the_limit_wait() {
    const TIME: Duration = Duration::from_millis(1);
    let lock = RawRwLock::new();
    lock.upgradable_read();
    for _ in 0..MOST {
        assert!(lock.try_read());
    }
    assert!(!lock.try_read() && !lock.try_read_for(TIME));
    // SAFETY: taken above.
    unsafe { lock.unlock_read() };
    // SAFETY: taken above. It is counted as a reader now.
    unsafe { lock.downgrade_upgradable() };
    assert!(!lock.try_read() && !lock.try_write_for(TIME));
    for _ in 0..MOST {
        // SAFETY: taken above.
        unsafe { lock.unlock_read() };
    }
    assert!(!lock.is_locked() && lock.try_write());
}

/// The state of a lock that threads of the parent waited for.
fn inherited(kind: u32, readers: u32) -> RawRwLock {
    let lock = RawRwLock::new();
    for _ in 0..readers {
        assert!(lock.take_free_read());
    }
    let waited = lock.state.load(Ordering::Relaxed) | kind | WRITER_ASLEEP;
    lock.state.store(waited + 2 * WAITING_ONE, Ordering::Relaxed);
    assert!(lock.writers.take_free());
    lock
}

#[test]
fn a_child_forgets_the_threads_that_waited() {
    // A reader had it, a writer and two readers waited.
    let lock = inherited(WRITER, 1);
    // SAFETY: for all calls, no other thread uses it, and it was taken above.
    unsafe {
        lock.renew(false);
        assert!(lock.is_read() && !lock.try_write_disowned() && lock.take_free_read());
        lock.leave_read();
        lock.leave_read();
        assert!(!lock.is_locked() && lock.try_write_disowned() && lock.leave_write_unwaited());
        // A writer had it: the one that forked, or another one, which never leaves.
        for written in [true, false] {
            let lock = inherited(WRITER, 0);
            lock.renew(written);
            assert!(!lock.try_read_disowned() && !lock.try_write_disowned() && !lock.is_read());
            lock.leave_write();
            assert!(!lock.is_locked() && lock.take_free_write() && lock.leave_write_unwaited());
        }
    }
}

#[test]
fn a_disowned_lock_is_left_in_one_step_only_if_no_thread_waits() {
    let lock = RawRwLock::new();
    // SAFETY: for all calls, as the checks say, the lock is taken.
    unsafe {
        assert!(!lock.leave_read_unwaited() && !lock.leave_write_unwaited());
        assert!(lock.try_read_alone() && lock.take_free_read() && !lock.try_write_alone());
        assert!(lock.leave_read_unwaited() && lock.is_read() && lock.leave_read_unwaited());
        assert!(lock.try_write_alone() && !lock.try_read_alone() && !lock.is_read());
        assert!(!lock.leave_read_unwaited() && lock.leave_write_unwaited());
        let lock = inherited(WRITER, 1);
        assert!(!lock.leave_read_unwaited() && !lock.leave_write_unwaited());
        lock.renew(false);
        assert!(lock.leave_read_unwaited());
    }
    assert!(!lock.is_locked());
}
