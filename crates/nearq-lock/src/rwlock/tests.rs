use super::*;

#[test]
fn readers_share_and_writers_exclude() {
    let lock: RwLock<i32> = RwLock::new(1);
    let one = lock.read();
    let another = lock.try_read().expect("readers share");
    assert!(lock.is_locked() && !lock.is_locked_for_writing());
    assert!(lock.try_write().is_none());
    assert_eq!(format!("{lock:?} {one} {another:?}"), "RwLock { value: 1 } 1 1");
    drop((one, another));
    let mut guard = lock.write();
    assert!(lock.try_read().is_none() && lock.try_write().is_none());
    assert!(lock.try_upgradable_read().is_none() && lock.is_locked_for_writing());
    assert_eq!(format!("{lock:?}"), "RwLock { value: <locked> }");
    *guard += 1;
    drop(guard);
    assert!(!lock.is_locked());
    assert_eq!(lock.into_inner(), 2);
}

#[test]
fn upgradable_readers_share_with_readers_but_not_with_each_other() {
    let lock: RwLock<i32> = RwLock::new(1);
    let reader = lock.read();
    let guard = lock.upgradable_read();
    assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
    drop(lock.try_read().expect("readers share"));
    let guard = RwLockUpgradableReadGuard::try_upgrade(guard).expect_err("there is a reader");
    drop(reader);
    let mut guard = RwLockUpgradableReadGuard::upgrade(guard);
    assert!(lock.try_read().is_none());
    *guard = 2;
    let guard = RwLockWriteGuard::downgrade_to_upgradable(guard);
    assert_eq!(lock.try_read().as_deref(), Some(&2));
    assert!(lock.try_write().is_none() && lock.try_upgradable_read().is_none());
    let guard = RwLockUpgradableReadGuard::downgrade(guard);
    assert!(lock.try_upgradable_read().is_some() && lock.try_write().is_none());
    drop(guard);
    let guard = RwLockWriteGuard::downgrade(lock.write());
    assert!(lock.try_read().is_some() && lock.try_write().is_none());
    drop(guard);
    assert!(!lock.is_locked());
}

#[test]
fn deadlines_pass_and_leave_no_trace() {
    const TIME: Duration = Duration::from_millis(1);
    let lock: RwLock<i32> = RwLock::new(1);
    let guard = lock.write();
    assert!(lock.try_read_for(TIME).is_none() && lock.try_write_for(TIME).is_none());
    assert!(lock.try_upgradable_read_for(TIME).is_none());
    drop(guard);
    let guard = lock.read();
    assert!(lock.try_write_for(TIME).is_none());
    assert!(lock.try_read().is_some(), "the writer that gave up keeps no reader out");
    let upgradable = lock.try_upgradable_read_for(TIME).expect("there is only a reader");
    let upgradable =
        RwLockUpgradableReadGuard::try_upgrade_for(upgradable, TIME).expect_err("there is one");
    assert!(lock.try_read_for(TIME).is_some() && lock.try_upgradable_read().is_none());
    drop((guard, upgradable));
    assert!(lock.try_write_for(TIME).is_some());
    assert!(!lock.is_locked());
}

#[test]
fn a_panic_releases_the_lock_and_poisons_nothing() {
    let lock: RwLock<i32> = RwLock::new(1);
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        *lock.write() = 2;
        let _guard = lock.write();
        std::panic::resume_unwind(Box::new(()));
    }));
    assert!(outcome.is_err());
    assert_eq!(*lock.read(), 2);
}

#[test]
fn unsized_values_and_exclusive_access() {
    let mut lock: RwLock<[u8; 3]> = RwLock::new([1, 2, 3]);
    lock.get_mut()[0] = 4;
    let slice: &RwLock<[u8]> = &lock;
    assert_eq!(slice.read().len(), 3);
    assert_eq!(lock.read()[0], 4);
    assert_eq!(*RwLock::<u8>::from(7).read() + *RwLock::<u8>::default().read(), 7);
    // SAFETY: no guard exists.
    assert_eq!(unsafe { &*lock.data_ptr() }[0], 4);
}
