//! The reader-writer lock under the model checker, and its limits.

#[cfg(not(any(miri, tsan)))]
mod by_cache;
#[cfg(not(any(miri, tsan)))]
mod model;

use core::time::Duration;

use super::RawRwLock;
use super::word::MOST;

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
