//! `wait` and `wake`: counts, order, deadlines, signals.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a thread that is not of the platform is what some tests are about"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::{OneShot, PATIENCE, Thread, eventually};
use nearq_platform::{Instant, Linux, LockPlatform, RunState, ThreadSpec, Threads, Wait};

#[test]
fn a_word_with_another_value_is_not_waited_on() {
    let word = AtomicU32::new(1);
    assert_eq!(Linux::wait(&word, 2, None), Wait::Changed);
    assert_eq!(Linux::wait(&word, 2, Some(Linux::now() + PATIENCE)), Wait::Changed);
}

#[test]
fn waits_end_at_the_deadline_and_never_early() {
    let word = AtomicU32::new(1);
    for micros in [0, 1, 50, 1000, 20_000] {
        let deadline = Linux::now() + Duration::from_micros(micros);
        // May also wake for no reason.
        while Linux::wait(&word, 1, Some(deadline)) != Wait::TimedOut {}
        assert!(Linux::now() >= deadline, "{micros} µs");
    }
}

#[test]
fn a_deadline_before_the_origin_of_time_has_passed() {
    let word = AtomicU32::new(1);
    assert_eq!(Linux::wait(&word, 1, Some(Instant::from_nanos(0))), Wait::TimedOut);
}

/// Threads asleep on one word; each counts itself when it is woken.
struct Sleepers {
    word: AtomicU32,
    awake: AtomicUsize,
}

type Started = (<Linux as Threads>::JoinHandle, OneShot<Thread>);

fn asleep(count: usize) -> (Arc<Sleepers>, Vec<Started>) {
    let shared = Arc::new(Sleepers { word: AtomicU32::new(0), awake: AtomicUsize::new(0) });
    let handles = (0..count)
        .map(|_| {
            let (sender, receiver) = OneShot::pair();
            let shared = Arc::clone(&shared);
            let handle = Linux::spawn(ThreadSpec::default(), move || {
                sender.send(Linux::current_thread());
                let outcome = Linux::wait(&shared.word, 0, Some(Linux::now() + PATIENCE));
                assert_eq!(outcome, Wait::Woken);
                shared.awake.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
            let thread = receiver.receive();
            eventually("the thread sleeps", || Linux::run_state(thread) == Ok(RunState::Blocked));
            (handle, receiver)
        })
        .collect();
    (shared, handles)
}

/// Wakes exactly `count`, whatever the threads are doing: one that was seen asleep may have slept on something
/// else.
fn wake_exactly(shared: &Sleepers, count: usize) {
    let mut left = count;
    eventually("enough threads are woken", || {
        let woken = Linux::wake(&raw const shared.word, left);
        assert!(woken <= left, "{woken} woken of at most {left}");
        left -= woken;
        left == 0
    });
}

#[test]
fn exactly_the_requested_number_of_threads_wake() {
    let (shared, handles) = asleep(5);
    assert_eq!(Linux::wake(&raw const shared.word, 0), 0, "waking none wakes none");
    wake_exactly(&shared, 1);
    eventually("one is awake", || shared.awake.load(Ordering::Relaxed) == 1);
    wake_exactly(&shared, 2);
    eventually("three are awake", || shared.awake.load(Ordering::Relaxed) == 3);
    let mut rest = 0;
    eventually("all are awake", || {
        rest += Linux::wake(&raw const shared.word, usize::MAX);
        rest == 2
    });
    for (handle, _until_joined) in handles {
        Linux::join(handle);
    }
    assert_eq!(shared.awake.load(Ordering::Relaxed), 5);
    assert_eq!(Linux::wake(&raw const shared.word, usize::MAX), 0, "no thread is left");
}

#[test]
fn waking_an_unmapped_word_is_harmless() {
    let gone: *const AtomicU32 = {
        let word = Box::new(AtomicU32::new(0));
        &raw const *word
    };
    assert_eq!(Linux::wake(gone, 1), 0);
    assert_eq!(Linux::wake(std::ptr::null(), 1), 0);
}

#[test]
fn a_spinner_sees_the_change() {
    let word = Arc::new(AtomicU32::new(0));
    let word_clone = Arc::clone(&word);
    let handle =
        Linux::spawn(ThreadSpec::default(), move || word_clone.store(1, Ordering::Relaxed))
            .unwrap();
    let end = Linux::now() + PATIENCE;
    while !Linux::wait_until_changed(&word, 0, 1000) {
        assert!(Linux::now() < end);
        Linux::yield_now();
    }
    Linux::join(handle);
}

extern "C" fn nothing(_signal: libc::c_int) {}

#[test]
fn a_signal_ends_a_wait_as_a_spurious_wake_up() {
    // SAFETY: validity: an all-zero sigaction is one without flags. Aliasing and thread: a local value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: validity: the handler does nothing, and lives as long as the program. Aliasing: `action` is only
    // read. Thread: no other test uses this signal.
    let refused =
        unsafe { libc::sigaction(libc::SIGUSR1, &raw const action, std::ptr::null_mut()) };
    assert_eq!(refused, 0);

    let word = Arc::new(AtomicU32::new(0));
    let outcome = Arc::new(AtomicUsize::new(usize::MAX));
    let (word_clone, outcome_clone) = (Arc::clone(&word), Arc::clone(&outcome));
    // A thread of `std`: those of the platform block the signal.
    let sleeper = std::thread::spawn(move || {
        let end = Linux::wait(&word_clone, 0, Some(Linux::now() + PATIENCE));
        outcome_clone.store(usize::from(end == Wait::Woken), Ordering::Relaxed);
    });
    use std::os::unix::thread::JoinHandleExt;
    eventually("the wait ends", || {
        // SAFETY: validity: the thread is not joined yet. Aliasing: none. Thread: any may signal any.
        unsafe { libc::pthread_kill(sleeper.as_pthread_t() as libc::pthread_t, libc::SIGUSR1) };
        outcome.load(Ordering::Relaxed) != usize::MAX
    });
    sleeper.join().unwrap();
    assert_eq!(outcome.load(Ordering::Relaxed), 1);
}
