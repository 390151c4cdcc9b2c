//! In debug builds, wrong uses of mutexes panic, and rare correct uses do not.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::raw::{RawCondvar, RawMutex};
use nearq_lock::{Condvar, Mode, Mutex, MutexGuard, Settings};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

use crate::alone;

/// Runs `main` to its end on a thread of its own.
pub(crate) fn elsewhere(main: impl FnOnce() + Send + 'static) {
    let done = Arc::new(Mutex::new(false));
    let done_clone = Arc::clone(&done);
    let main = move || {
        main();
        *done_clone.lock() = true;
    };
    Linux::join(Linux::spawn(ThreadSpec::default(), main).expect("a thread can be created"));
    assert!(*done.lock(), "it failed in that thread, see above");
}

/// The message with which `main` panics; it must panic.
#[track_caller]
pub(crate) fn complaint(misuse: impl FnOnce()) -> String {
    let payload = catch_unwind(AssertUnwindSafe(misuse)).expect_err("the misuse is reported");
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().expect("the payload is text")).to_owned(),
    }
}

fn with_each_mode(test: impl Fn(Mode)) {
    for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
        let mut settings = Settings::of_process();
        settings.mode = mode;
        settings.set_for_process();
        test(mode);
    }
}

#[test]
fn releasing_another_threads_mutex_panics_and_leaves_it_held() {
    let _alone = alone();
    static MUTEX: RawMutex = RawMutex::new();
    MUTEX.lock();
    elsewhere(|| {
        // SAFETY: none: that is what is tested. The panic comes before anything is done.
        let by_unlock = complaint(|| unsafe { MUTEX.unlock() });
        assert!(by_unlock.contains("by a thread that does not hold it"), "{by_unlock}");
        // SAFETY: none: that is what is tested. The panic comes before anything is done.
        assert_eq!(complaint(|| unsafe { MUTEX.unlock_fair() }), by_unlock);
        // SAFETY: none: that is what is tested. The panic comes before anything is done.
        assert_eq!(complaint(|| unsafe { MUTEX.bump() }), by_unlock);
        assert!(MUTEX.is_locked() && !MUTEX.try_lock());
    });
    // SAFETY: taken above, and not released by any thread.
    unsafe { MUTEX.unlock() };
    assert!(!MUTEX.is_locked());
}

#[test]
fn releasing_twice_panics() {
    let _alone = alone();
    let mutex = Mutex::<u32>::new(0);
    // SAFETY: none: no thread holds it, which is what is tested. The panic comes before anything is done.
    assert!(complaint(|| unsafe { mutex.force_unlock() }).contains("no thread holds"));
    core::mem::forget(mutex.lock());
    // SAFETY: taken, and the guard is forgotten.
    unsafe { mutex.force_unlock() };
    // SAFETY: none: it has been released, which is what is tested. The panic comes before anything is done.
    assert!(complaint(|| unsafe { mutex.force_unlock() }).contains("no thread holds"));
    assert!(mutex.try_lock().is_some());
}

#[test]
fn relocking_a_held_mutex_panics_unless_the_wait_has_a_deadline() {
    let _alone = alone();
    with_each_mode(|mode| {
        let mutex = Mutex::<u32>::new(0);
        let guard = mutex.lock();
        let message = complaint(|| drop(mutex.lock()));
        assert!(message.contains("already holds"), "{mode:?}: {message}");
        assert!(mutex.try_lock().is_none());
        assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
        assert!(mutex.try_lock_until_in(Linux::now()).is_none());
        drop(guard);
        *mutex.lock() += 1;

        let raw = RawMutex::new();
        assert!(raw.lock_unqueued(None));
        assert_eq!(complaint(|| assert!(raw.lock_unqueued(None))), message);
        assert!(!raw.lock_unqueued(Some(Linux::now())));
        // SAFETY: taken above.
        unsafe { raw.unlock() };
    });
}

/// Threads that hold and wait for different mutexes, and take the same ones again as soon as they have released them.
#[test]
fn correct_use_under_contention_is_not_reported() {
    let _alone = alone();
    const ROUNDS: u32 = if cfg!(miri) { 4 } else { 2_000 };
    const THREADS: u32 = if cfg!(miri) { 2 } else { 4 };
    with_each_mode(|mode| {
        let mutexes = Arc::new([const { Mutex::<u32>::new(0) }; 3]);
        let threads: Vec<_> = (0..THREADS)
            .map(|index| {
                let mutexes = Arc::clone(&mutexes);
                let main = move || {
                    for round in 0..ROUNDS {
                        let mut first = mutexes[0].lock();
                        let second = mutexes[1 + (index + round) as usize % 2].try_lock();
                        *first += 1;
                        match round % 4 {
                            0 => MutexGuard::bump(&mut first),
                            1 => MutexGuard::unlock_fair(first),
                            _ => drop(first),
                        }
                        drop(second);
                        drop(mutexes[2].try_lock_for(Duration::from_micros(20)));
                    }
                };
                Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
            })
            .collect();
        threads.into_iter().for_each(Linux::join);
        assert_eq!(*mutexes[0].lock(), THREADS * ROUNDS, "{mode:?}");
    });
}

/// A thread that waits for a condition releases the mutex and has it again: one that was notified, one that was not, and one that came too
/// late.
#[test]
fn a_thread_holds_the_mutex_after_waiting_for_a_condition() {
    let _alone = alone();
    with_each_mode(|_| {
        let both = Arc::new((Mutex::<u32>::new(0), Condvar::new()));
        let threads: Vec<_> = (0..3)
            .map(|_| {
                let both = Arc::clone(&both);
                let main = move || {
                    let mut guard = both.0.lock();
                    *guard += 1;
                    both.1.wait_while(&mut guard, |count| *count < 4);
                    assert!(complaint(|| drop(both.0.lock())).contains("already holds"));
                    *guard += 1;
                    drop(guard);
                    // SAFETY: none: the guard is gone, which is what is tested. The panic comes before anything is done.
                    complaint(|| unsafe { both.0.force_unlock() });
                };
                Linux::spawn(ThreadSpec::default(), main).expect("a few threads can be created")
            })
            .collect();
        let mut guard = both.0.lock();
        while *guard < 3 {
            assert!(!both.1.wait_for(&mut guard, Duration::from_millis(1)), "no thread notifies");
        }
        *guard += 1;
        both.1.notify_all();
        drop(guard);
        threads.into_iter().for_each(Linux::join);
        assert_eq!(*both.0.lock(), 7, "a thread failed, see above");
    });
}

#[test]
fn waiting_for_a_condition_with_another_threads_mutex_panics() {
    let _alone = alone();
    static MUTEX: RawMutex = RawMutex::new();
    static CONDVAR: RawCondvar = RawCondvar::new();
    MUTEX.lock();
    elsewhere(|| {
        let moment = Duration::from_millis(1);
        // SAFETY: none: another thread holds the mutex, which is what is tested. The panic comes before anything is done.
        let message = complaint(|| assert!(unsafe { CONDVAR.wait_for(&MUTEX, moment) }));
        assert!(message.contains("does not hold"), "{message}");
        assert!(!CONDVAR.notify_one(), "it does not wait");
    });
    // SAFETY: taken above.
    unsafe { MUTEX.unlock() };
}

/// A mutex is leaked while it is held, and another one is placed at its address, with and without a drop before. The thread that leaked it
/// waits for the new one like any other thread.
#[test]
fn a_mutex_at_a_reused_address_is_a_new_mutex() {
    let _alone = alone();
    struct Place(*mut RawMutex);
    // SAFETY: the memory lives as long as the test, and what is in it is used as a mutex is.
    unsafe impl Send for Place {}

    for dropped in [true, false] {
        let place = Box::into_raw(Box::new(RawMutex::new()));
        // SAFETY: a mutex is there, which is shared with the other thread and freed below, after that has ended.
        unsafe { &*place }.lock();
        let sent = Place(place);
        let taken = Arc::new(Mutex::new(false));
        let taken_clone = Arc::clone(&taken);
        let main = move || {
            let Place(place) = { sent };
            if dropped {
                // SAFETY: a mutex is there, and no thread uses it: the one that holds it waits for `taken`.
                unsafe { place.drop_in_place() };
            }
            // SAFETY: the memory is a box's, and no thread uses what is there: the other thread waits for `taken`.
            unsafe { place.write(RawMutex::new()) };
            // SAFETY: the mutex was written just now, and is freed after this thread has ended.
            let mutex = unsafe { &*place };
            mutex.lock();
            *taken_clone.lock() = true;
            Linux::sleep(Duration::from_millis(100));
            // SAFETY: taken above.
            unsafe { mutex.unlock() };
        };
        let thread = Linux::spawn(ThreadSpec::default(), main).expect("a thread can be created");
        while !*taken.lock() {
            Linux::sleep(Duration::from_millis(1));
        }
        // SAFETY: the other thread has written a mutex there before it set `taken`, and it is freed below.
        let mutex = unsafe { &*place };
        mutex.lock();
        assert!(complaint(|| mutex.lock()).contains("already holds"));
        // SAFETY: taken above.
        unsafe { mutex.unlock() };
        Linux::join(thread);
        // SAFETY: none: it has been released, which is what is tested. The panic comes before anything is done.
        assert!(complaint(|| unsafe { mutex.unlock() }).contains("no thread holds"));
        // SAFETY: made as a box above, and the thread has ended.
        drop(unsafe { Box::from_raw(place) });
    }
}

/// A mutex that the thread drops while holding it is forgotten, whatever is placed there later.
#[test]
fn dropping_a_held_mutex_forgets_it() {
    let _alone = alone();
    let mut place = MaybeUninit::new(RawMutex::new());
    // SAFETY: initialised above.
    unsafe { place.assume_init_ref() }.lock();
    // SAFETY: initialised above, and not used again before it is overwritten.
    unsafe { place.assume_init_drop() };
    let mutex = place.write(RawMutex::new());
    // SAFETY: none: no thread holds the new one, which is what is tested. The panic comes before anything is done.
    assert!(complaint(|| unsafe { mutex.unlock() }).contains("no thread holds"));
    mutex.lock();
    // SAFETY: no other thread uses it.
    unsafe { mutex.renew() };
    // SAFETY: none: it has been free since it was renewed, which is what is tested. The panic comes before anything is done.
    assert!(complaint(|| unsafe { mutex.unlock() }).contains("no thread holds"));
    assert!(mutex.try_lock());
}

#[test]
fn a_mutex_whose_owner_has_exited_has_no_owner() {
    let _alone = alone();
    static MUTEX: Mutex<u32> = Mutex::new(0);
    elsewhere(|| core::mem::forget(MUTEX.lock()));
    // SAFETY: none: the thread that took it has ended, which is what is tested. The panic comes before anything is done.
    let message = complaint(|| unsafe { MUTEX.force_unlock() });
    assert!(message.contains("does not hold"), "{message}");
    assert!(MUTEX.try_lock_for(Duration::from_millis(1)).is_none());
}

#[test]
fn a_disowned_mutex_can_be_released_by_another_thread() {
    let _alone = alone();
    static MUTEX: RawMutex = RawMutex::new();
    MUTEX.lock();
    MUTEX.disown();
    elsewhere(|| {
        MUTEX.adopt();
        assert!(complaint(|| MUTEX.lock()).contains("already holds"));
        // SAFETY: the thread that took it has handed it over.
        unsafe { MUTEX.unlock() };
    });
    // A thread that holds it, though not in its own name, waits for it like any other thread.
    MUTEX.lock();
    MUTEX.disown();
    let other = Linux::spawn(ThreadSpec::default(), || {
        Linux::sleep(Duration::from_millis(30));
        MUTEX.adopt();
        // SAFETY: the thread that took it has handed it over.
        unsafe { MUTEX.unlock() };
    });
    MUTEX.lock();
    Linux::join(other.expect("a thread can be created"));
    // SAFETY: taken above.
    unsafe { MUTEX.unlock() };
}

/// More than the list has space for, released in three orders.
#[test]
fn a_thread_may_hold_any_number_of_mutexes() {
    let _alone = alone();
    let mutexes: Vec<Mutex<usize>> = (0..100).map(Mutex::new).collect();
    let mut held: Vec<_> = mutexes.iter().map(Mutex::lock).collect();
    while !held.is_empty() {
        drop(held.swap_remove(held.len() / 2));
    }
    drop(mutexes.iter().map(Mutex::lock).collect::<Vec<_>>());
    let mut held: Vec<_> = mutexes.iter().map(Mutex::lock).collect();
    while held.pop().is_some() {}
    // SAFETY: none: all have been released, which is what is tested. The panic comes before anything is done.
    assert!(complaint(|| unsafe { mutexes[50].force_unlock() }).contains("no thread holds"));
}
