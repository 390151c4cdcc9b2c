//! The child of a fork: mutexes and condition variables that threads of the parent waited for are usable, whichever threads these were.

// ThreadSanitizer starts no thread in a child of several threads.
#![cfg(not(any(miri, tsan)))]
#![allow(
    clippy::disallowed_methods,
    reason = "the child must end without unwinding, within a time"
)]

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Condvar, Mode, Mutex, MutexGuard, Settings, Snapshot, Statistics, start};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
    fn alarm(seconds: u32) -> u32;
}

fn spawn(main: impl FnOnce() + Send + 'static) -> <Linux as Threads>::JoinHandle {
    Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
}

/// While one thread holds the mutex and several wait for it, the holder forks. In the child it releases the mutex, and new threads compete
/// for it.
fn fork_while_others_wait(mode: Mode) {
    start();
    let mut settings = Settings::of_process();
    (settings.mode, settings.count) = (mode, true);
    settings.set_for_process();
    let contended = || Statistics::of_process().contended;
    let before = contended();
    let mutex = Arc::new(Mutex::<u32>::new(0));
    let guard = mutex.lock();
    let waiting: Vec<_> = (0..4)
        .map(|_| {
            let mutex = Arc::clone(&mutex);
            let thread = spawn(move || *mutex.lock() += 1);
            Linux::sleep(Duration::from_millis(20));
            thread
        })
        .collect();
    while contended() < before + 4 {
        Linux::sleep(Duration::from_millis(1));
    }
    // SAFETY: the child uses nothing that a thread of the parent may have been changing, except the mutex, and ends by `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: it ends the child if it hangs.
        unsafe { alarm(120) };
        // No thread waits here, even before any thread has used the mutex, and nothing has happened.
        let seen = Snapshot::of_process();
        let all_free = seen.mutexes.iter().all(|mutex| !mutex.held && mutex.caches == 0);
        let nothing = Statistics::of_process() == Statistics::default();
        // The threads for which it is reserved do not exist here.
        MutexGuard::unlock_fair(guard);
        let free = mutex.try_lock().is_some();
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let mutex = Arc::clone(&mutex);
                spawn(move || {
                    for round in 0..2000 {
                        let mut count = mutex.lock();
                        *count += 1;
                        if round % 16 == 0 {
                            Linux::yield_now();
                        }
                    }
                })
            })
            .collect();
        threads.into_iter().for_each(Linux::join);
        // None of the threads that waited in the parent took it here.
        let right = all_free && nothing && free && *mutex.lock() == 8000;
        // SAFETY: ends the child without running what the parent registered.
        unsafe { _exit(i32::from(!right)) };
    }
    assert!(child > 0, "the test can fork");
    drop(guard);
    waiting.into_iter().for_each(Linux::join);
    assert_eq!(*mutex.lock(), 4);
    let mut status = -1;
    // SAFETY: the status is ours.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child hung or counted wrongly ({mode:?})");
}

/// While several threads wait for a condition, one forks. In the child no thread waits for it, and new threads do.
fn fork_while_others_wait_for_a_condition(mode: Mode) {
    start();
    let mut settings = Settings::of_process();
    settings.mode = mode;
    settings.set_for_process();
    let shared = Arc::new((Mutex::<u32>::new(0), Condvar::new()));
    let wait = |shared: &Arc<(Mutex<u32>, Condvar)>| {
        let shared = Arc::clone(shared);
        spawn(move || {
            let mut waiting = shared.0.lock();
            *waiting += 1;
            shared.1.wait(&mut waiting);
            *waiting -= 1;
        })
    };
    let wait_for_count = |count| {
        loop {
            let waiting = shared.0.lock();
            if *waiting == count {
                return waiting;
            }
            drop(waiting);
            Linux::sleep(Duration::from_millis(1));
        }
    };
    let waiting: Vec<_> = (0..4).map(|_| wait(&shared)).collect();
    let guard = wait_for_count(4);
    // SAFETY: the child uses nothing that a thread of the parent may have been changing, and ends by `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: it ends the child if it hangs.
        unsafe { alarm(120) };
        let no_waiter = shared.1.notify_all() == 0;
        drop(guard);
        let threads: Vec<_> = (0..4).map(|_| wait(&shared)).collect();
        drop(wait_for_count(8));
        let all = u32::from(shared.1.notify_one()) + shared.1.notify_all() as u32;
        threads.into_iter().for_each(Linux::join);
        let right = no_waiter && all == 4 && *shared.0.lock() == 4;
        // SAFETY: ends the child without running what the parent registered.
        unsafe { _exit(i32::from(!right)) };
    }
    assert!(child > 0, "the test can fork");
    assert_eq!(shared.1.notify_all(), 4);
    drop(guard);
    waiting.into_iter().for_each(Linux::join);
    let mut status = -1;
    // SAFETY: the status is ours.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child hung or counted wrongly ({mode:?})");
}

/// While one thread holds a mutex and another one holds another, the first forks. The child's thread holds the first mutex, but not the
/// other, which must be reset.
#[cfg(debug_assertions)]
fn fork_while_each_holds_one() {
    let mutexes = Arc::new((Mutex::<u32>::new(0), Mutex::<u32>::new(0), Mutex::<u32>::new(0)));
    let mutexes_clone = Arc::clone(&mutexes);
    let other = spawn(move || {
        let guard = mutexes_clone.1.lock();
        *mutexes_clone.2.lock() = 1;
        Linux::sleep(Duration::from_millis(300));
        drop(guard);
    });
    while *mutexes.2.lock() == 0 {
        Linux::sleep(Duration::from_millis(1));
    }
    core::mem::forget(mutexes.0.lock());
    // SAFETY: the child uses nothing that a thread of the parent may have been changing, except the mutexes, and ends by `_exit`.
    let child = unsafe { fork() };
    if child == 0 {
        // SAFETY: it ends the child if it hangs.
        unsafe { alarm(120) };
        let panics = |misuse: &dyn Fn()| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(misuse)).is_err()
        };
        let own_is_reported = panics(&|| drop(mutexes.0.lock()));
        // SAFETY: the thread of which this one is a copy took it, and has forgotten the guard.
        unsafe { mutexes.0.force_unlock() };
        // SAFETY: none: the panic that is expected comes before anything is done.
        let others_is_reported = panics(&|| unsafe { mutexes.1.force_unlock() });
        // SAFETY: this is the only thread, and it has no guard.
        unsafe { mutexes.1.renew(7) };
        let right =
            own_is_reported && others_is_reported && *mutexes.0.lock() + *mutexes.1.lock() == 7;
        // SAFETY: ends the child without running what the parent registered.
        unsafe { _exit(i32::from(!right)) };
    }
    assert!(child > 0, "the test can fork");
    // SAFETY: taken above, and the guard is forgotten.
    unsafe { mutexes.0.force_unlock() };
    Linux::join(other);
    let mut status = -1;
    // SAFETY: the status is ours.
    assert_eq!(unsafe { waitpid(child, &raw mut status, 0) }, child);
    assert_eq!(status, 0, "the child hung, or took a free mutex for a held one");
}

/// One after the other: the mode is the process's.
#[test]
fn a_child_continues_without_the_parents_waiters() {
    for mode in [Mode::Plain, Mode::Numa, Mode::Off, Mode::Auto] {
        fork_while_others_wait(mode);
        fork_while_others_wait_for_a_condition(mode);
    }
    #[cfg(debug_assertions)]
    fork_while_each_holds_one();
}
