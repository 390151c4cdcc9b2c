//! Helpers for several test files: threads with a watchdog, and waiting until a condition is true.

#![allow(dead_code, unreachable_pub, reason = "each test file uses some of it")]

mod tsan;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::time::Duration;

use nearq_platform::{Atomic, Linux, LockPlatform, Ordering, Parker, ThreadSpec, Threads, Wait};

/// A thread of the platform, as its tests see it.
pub type Thread = <Linux as Threads>::Thread;

/// How long something that takes microseconds may take: longer is a failure, not a slow machine.
pub const PATIENCE: Duration = Duration::from_mins(2);

/// Checks again and again until `holds`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Linux::now() + PATIENCE;
    while !holds() {
        assert!(Linux::now() < end, "not within {PATIENCE:?}: {what}");
        Linux::yield_now();
    }
}

/// One value, from one thread to another.
///
/// Not a channel of `std`: the thread sanitizer does not see into channels, and mistakes their internals for races. For the same reason the
/// receiver's half must live until the other thread has been joined: the sanitizer does not understand the fence in `Arc`'s destructor.
pub struct OneShot<T>(Arc<Shared<T>>);

struct Shared<T> {
    full: <Linux as LockPlatform>::AtomicU32,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: `value` is written before `full` is set (release), and taken after that was seen (acquire).
unsafe impl<T: Send> Sync for Shared<T> {}

impl<T> Clone for OneShot<T> {
    fn clone(&self) -> Self {
        OneShot(Arc::clone(&self.0))
    }
}

impl<T> OneShot<T> {
    /// An empty envelope: one half for the thread that sends, one for the thread that receives.
    pub fn pair() -> (Self, Self) {
        let half = OneShot(Arc::new(Shared { full: Atomic::new(0), value: UnsafeCell::new(None) }));
        (half.clone(), half)
    }

    pub fn send(self, value: T) {
        // SAFETY: validity: the envelope lives. Aliasing and thread: only the sender comes here, once, and the
        // receiver not before `full` is set.
        unsafe { *self.0.value.get() = Some(value) };
        self.0.full.store(1, Ordering::Release);
        Linux::wake(&raw const self.0.full, 1);
    }

    /// Waits for the value; must be called only once.
    pub fn receive(&self) -> T {
        let deadline = Linux::now() + PATIENCE;
        while self.0.full.load(Ordering::Acquire) == 0 {
            let outcome = Linux::wait(&self.0.full, 0, Some(deadline));
            assert_ne!(outcome, Wait::TimedOut, "the other thread panicked, or does not answer");
        }
        // SAFETY: validity: the envelope lives. Aliasing and thread: the sender has sent, and is done with it.
        unsafe { (*self.0.value.get()).take() }.expect("sent")
    }
}

/// Runs `main` in a new thread as `spec` says, and returns what it returned.
pub fn in_thread<R: Send + 'static>(
    spec: ThreadSpec,
    main: impl FnOnce() -> R + Send + 'static,
) -> R {
    let (sender, receiver) = OneShot::pair();
    let handle = Linux::spawn(spec, move || sender.send(main())).expect("a thread can be started");
    let answer = receiver.receive();
    Linux::join(handle);
    answer
}

/// A thread that sleeps until a test ends it.
pub struct Sleeper {
    pub thread: Thread,
    handle: Option<<Linux as Threads>::JoinHandle>,
    parker: Arc<Parker<Linux>>,
    _until_joined: OneShot<Thread>,
}

impl Sleeper {
    pub fn start(spec: ThreadSpec) -> Self {
        let parker = Arc::new(Parker::new());
        let parker_clone = Arc::clone(&parker);
        let (sender, receiver) = OneShot::pair();
        let handle = Linux::spawn(spec, move || {
            sender.send(Linux::current_thread());
            assert!(parker_clone.park(None));
        })
        .expect("a thread can be started");
        let thread = receiver.receive();
        Sleeper { thread, handle: Some(handle), parker, _until_joined: receiver }
    }

    /// Ends the thread, and returns its name, which no thread has any more.
    pub fn end(mut self) -> Thread {
        self.finish();
        self.thread
    }

    fn finish(&mut self) {
        if let Some(handle) = self.handle.take() {
            self.parker.unpark();
            Linux::join(handle);
        }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Keeps a CPU busy for at least that long.
pub fn spin(duration: Duration) {
    let end = Linux::now() + duration;
    while Linux::now() < end {
        std::hint::spin_loop();
    }
}
