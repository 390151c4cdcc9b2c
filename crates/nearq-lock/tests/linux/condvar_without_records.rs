//! A condition variable while no record is left to wait by, and after records have become free again.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::{OsqGuard, OsqLock};
use nearq_lock::{Condvar, Mutex};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::alone;

struct Scene {
    count: Mutex<u32>,
    changed: Condvar,
}

#[test]
fn condvars_work_without_records() {
    let _alone = alone();
    let locks: Vec<OsqLock<()>> = (0..65_535).map(|_| OsqLock::new(())).collect();
    // Each held lock takes one of the process's records.
    let held: Vec<OsqGuard<'_, ()>> = locks.iter().map(OsqLock::lock).collect();
    assert!(OsqLock::new(()).try_lock().is_none(), "there are records left");

    let scene = Arc::new(Scene { count: Mutex::new(0), changed: Condvar::new() });
    let threads: Vec<_> = (0..4)
        .map(|index| {
            let scene = Arc::clone(&scene);
            let main = move || {
                for round in 0..50 {
                    let mut count = scene.count.lock();
                    scene.changed.wait_while(&mut count, |count| *count % 4 != index);
                    *count += 1;
                    // No thread can be notified while there are no records; each checks by itself.
                    scene.changed.notify_all();
                    assert!(*count > round);
                }
            };
            Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
        })
        .collect();
    let mut count = scene.count.lock();
    // A deadline is kept.
    let began = Linux::now();
    let time = Duration::from_millis(5);
    assert!(!scene.changed.wait_while_for(&mut count, |_| true, time));
    assert!(Linux::now() - began >= time);
    drop(count);
    while *scene.count.lock() < 20 {
        Linux::sleep(Duration::from_millis(1));
    }
    // From here on they wait by records, one after the other.
    drop(held);
    threads.into_iter().for_each(Linux::join);
    assert_eq!(*scene.count.lock(), 200);
}
