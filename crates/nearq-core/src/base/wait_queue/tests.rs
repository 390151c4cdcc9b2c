//! No waiter is forgotten, thread or future, whichever way it meets the notifier; and a waiter that leaves takes its waker with it.

#![cfg_attr(miri, allow(dead_code, unused_imports, reason = "the model checker is not for Miri"))]

use core::mem::ManuallyDrop;
use core::task::{RawWaker, RawWakerVTable, Waker};
use std::sync::Arc;
use std::task::Wake;

use nearq_model::Loom;
use nearq_platform::{Atomic, AtomicInt, Linux, LockPlatform, Ordering, Platform, Threads};

use super::{ARMED, LEAST, Listener, WaitQueue};
use crate::item::tests::{model, spawn};
use crate::pool::context::wait_until;

/// A waker that counts its calls.
struct Bell<P: Platform>(P::AtomicU32);

impl<P: Platform> Wake for Bell<P> {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn bell<P: Platform>() -> (Arc<Bell<P>>, Waker) {
    let bell = Arc::new(Bell::<P>(P::AtomicU32::new(0)));
    (Arc::clone(&bell), Waker::from(bell))
}

impl<P: Platform> Bell<P> {
    fn rings(&self) -> u32 {
        self.0.load(Ordering::SeqCst)
    }
}

/// A counter that can be a static.
pub(crate) type Count = <Linux as LockPlatform>::AtomicU32;

/// A waker; each of its copies counts and panics when it is dropped.
pub(crate) fn bomb(dropped: &'static Count) -> ManuallyDrop<Waker> {
    const TABLE: RawWakerVTable =
        RawWakerVTable::new(|data| RawWaker::new(data, &TABLE), explode, |_| {}, explode);
    fn explode(data: *const ()) {
        // SAFETY: from the reference below.
        unsafe { &*data.cast::<Count>() }.fetch_add(1, Ordering::Relaxed);
        std::panic::resume_unwind(Box::new("on purpose"));
    }
    let raw = RawWaker::new(core::ptr::from_ref(dropped).cast(), &TABLE);
    // SAFETY: it points to what lives for ever and may be shared.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

/// A wait queue, and the condition that is waited for.
struct Scene<P: Platform> {
    waiters: WaitQueue<P>,
    made: P::AtomicU32,
}

impl<P: Platform> Scene<P> {
    fn new() -> Arc<Self> {
        Arc::new(Scene { waiters: WaitQueue::new(), made: P::AtomicU32::new(0) })
    }

    fn make(&self) {
        self.made.fetch_add(1, Ordering::SeqCst);
        self.waiters.notify();
    }

    fn has(&self, count: u32) -> bool {
        self.made.load(Ordering::SeqCst) >= count
    }

    fn poll(&self, listener: &mut Listener<P>, waker: &Waker, count: u32) -> bool {
        listener.poll_until(&self.waiters, waker, || self.has(count))
    }

    /// Registrations on the stack, and how many of them are armed; while no other thread exists.
    fn registered(&self) -> (usize, usize) {
        let (mut all, mut armed) = (0, 0);
        let mut next = self.waiters.stack.load(Ordering::Relaxed);
        // SAFETY: no other thread exists, and what is on the stack is alive.
        while let Some(registration) = unsafe { next.as_ref() } {
            all += 1;
            armed += usize::from(registration.state.load(Ordering::Relaxed) == ARMED);
            next = registration.next.load(Ordering::Relaxed);
        }
        (all, armed)
    }
}

/// A lost wake-up shows as a deadlock.
#[test]
#[cfg(not(miri))]
fn a_waiting_thread_is_woken() {
    model(3, || {
        let scene = Scene::<Loom>::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.make())
        };
        assert!(wait_until(&scene.waiters, None, || scene.has(1)));
        Loom::join(other);
    });
}

#[test]
#[cfg(not(miri))]
fn a_waiter_whose_mark_was_cleared_was_seen_by_the_notifier() {
    model(3, || {
        let scene = Scene::<Loom>::new();
        let others = [(); 2].map(|()| {
            let scene = Arc::clone(&scene);
            spawn(move || scene.make())
        });
        assert!(wait_until(&scene.waiters, None, || scene.has(2)));
        others.into_iter().for_each(Loom::join);
    });
}

#[test]
#[cfg(not(miri))]
fn two_threads_that_wait_for_different_things_are_both_woken() {
    model(2, || {
        let scene = Scene::<Loom>::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || assert!(wait_until(&scene.waiters, None, || scene.has(1))))
        };
        let maker = {
            let scene = Arc::clone(&scene);
            spawn(move || {
                scene.make();
                scene.make();
            })
        };
        assert!(wait_until(&scene.waiters, None, || scene.has(2)));
        Loom::join(other);
        Loom::join(maker);
    });
}

#[test]
#[cfg(not(miri))]
fn a_future_sees_its_condition_or_its_waker_is_called() {
    model(3, || {
        let scene = Scene::<Loom>::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.make())
        };
        let (bell, waker) = bell::<Loom>();
        let mut listener = Listener::new();
        let seen = scene.poll(&mut listener, &waker, 1);
        Loom::join(other);
        assert!(seen || bell.rings() == 1);
        assert!(scene.poll(&mut listener, &waker, 1), "it is there now");
    });
}

/// A future and a thread: whichever of them sets the mark, the notifier that clears it wakes both.
#[test]
#[cfg(not(miri))]
fn a_future_and_a_thread_on_one_wait_queue() {
    model(3, || {
        let scene = Scene::<Loom>::new();
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || assert!(wait_until(&scene.waiters, None, || scene.has(1))))
        };
        let (bell, waker) = bell::<Loom>();
        let poller = {
            let scene = Arc::clone(&scene);
            spawn(move || {
                let mut listener = Listener::new();
                let seen = scene.poll(&mut listener, &waker, 1);
                // Kept until the wait queue has been notified.
                (!seen).then_some(listener).into_iter().for_each(core::mem::forget);
                scene.made.fetch_add(u32::from(seen) << 16, Ordering::SeqCst);
            })
        };
        scene.make();
        Loom::join(other);
        Loom::join(poller);
        assert!(scene.made.load(Ordering::SeqCst) >> 16 == 1 || bell.rings() == 1);
    });
}

#[test]
#[cfg(not(miri))]
fn a_future_leaving_during_a_notification_is_woken_at_most_once() {
    model(3, || {
        let scene = Scene::<Loom>::new();
        let (bell, waker) = bell::<Loom>();
        let mut listener = Listener::new();
        assert!(!scene.poll(&mut listener, &waker, 1));
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.make())
        };
        drop(listener);
        Loom::join(other);
        assert!(bell.rings() <= 1);
        drop(waker);
        drop(scene);
        assert_eq!(Arc::strong_count(&bell), 1, "no waker is left");
    });
}

#[test]
#[cfg(not(miri))]
fn a_sweep_during_a_notification_loses_no_waiter() {
    model(2, || {
        let scene = Scene::<Loom>::new();
        let (bell, waker) = bell::<Loom>();
        let mut waiting = Listener::new();
        assert!(!scene.poll(&mut waiting, &waker, 1));
        // The next one to come checks what is on the stack.
        scene.waiters.limit.store(0, Ordering::Relaxed);
        let other = {
            let scene = Arc::clone(&scene);
            spawn(move || scene.make())
        };
        let (late_bell, late_waker) = self::bell::<Loom>();
        let mut late = Listener::new();
        let seen = scene.poll(&mut late, &late_waker, 1);
        Loom::join(other);
        assert_eq!(bell.rings(), 1, "it is woken by one of the two");
        assert!(seen || late_bell.rings() == 1);
    });
}

// ---- without the model checker, also under Miri -----------------------------------------------------------

#[test]
#[cfg_attr(miri, ignore = "there a waker does not know its clone: each has a table of its own")]
fn nothing_is_kept_for_waiters_that_have_left() {
    let scene = Scene::<Linux>::new();
    let (kept_bell, kept_waker) = bell::<Linux>();
    let mut kept = Listener::new();
    let (bell, waker) = bell::<Linux>();
    for _ in 0..1000 {
        let mut passing = Listener::new();
        assert!(!scene.poll(&mut passing, &waker, 1));
        assert!(!scene.poll(&mut kept, &kept_waker, 1));
        drop(passing);
        assert_eq!(Arc::strong_count(&bell), 2, "a listener that leaves drops its waker");
        let (all, armed) = scene.registered();
        assert!(all <= LEAST as usize + 2 && armed == 1, "{all} wakers exist, {armed} wait");
    }
    assert_eq!(bell.rings(), 0);
    assert!(kept_bell.rings() <= 1000 / LEAST + 1, "spurious wake-ups are bounded");
    let before = kept_bell.rings();
    scene.make();
    assert_eq!(kept_bell.rings(), before + 1);
    assert_eq!(scene.registered(), (0, 0));
    assert!(scene.poll(&mut kept, &kept_waker, 1));
}

#[test]
#[cfg_attr(miri, ignore = "there a waker does not know its clone: each has a table of its own")]
fn one_registration_serves_all_polls_until_the_waker_changes() {
    let scene = Scene::<Linux>::new();
    let ((first_bell, first), (second_bell, second)) = (bell::<Linux>(), bell::<Linux>());
    let mut listener = Listener::new();
    for _ in 0..10 {
        assert!(!scene.poll(&mut listener, &first, 1));
    }
    assert_eq!(scene.registered(), (1, 1));
    assert!(!scene.poll(&mut listener, &second, 1));
    assert_eq!(scene.registered(), (2, 1));
    scene.make();
    assert_eq!((first_bell.rings(), second_bell.rings()), (0, 1));
    // Nothing waits, so no waker is called.
    scene.make();
    assert_eq!(second_bell.rings(), 1);
}

#[test]
fn a_panicking_waker_does_not_affect_other_waiters() {
    struct Broken;
    impl Wake for Broken {
        fn wake(self: Arc<Self>) {
            std::panic::resume_unwind(Box::new("on purpose"));
        }
    }
    let scene = Scene::<Linux>::new();
    let ((first_bell, first), (last_bell, last)) = (bell::<Linux>(), bell::<Linux>());
    let mut listeners = [(); 3].map(|()| Listener::new());
    assert!(!scene.poll(&mut listeners[0], &first, 1));
    assert!(!scene.poll(&mut listeners[1], &Waker::from(Arc::new(Broken)), 1));
    assert!(!scene.poll(&mut listeners[2], &last, 1));
    scene.make();
    assert_eq!((first_bell.rings(), last_bell.rings()), (1, 1));
}

/// A waker is replaced, or its future leaves, or the wait queue is dropped before the future.
#[test]
fn wakers_that_panic_when_dropped_do_not_affect_other_waiters() {
    static DROPPED: Count = Count::new(0);
    let scene = Arc::into_inner(Scene::<Linux>::new()).expect("the only reference");
    let ((_bell, other), waker) = (bell::<Linux>(), bomb(&DROPPED));
    let mut listeners = [(); 3].map(|()| Listener::new());
    for listener in &mut listeners {
        assert!(!scene.poll(listener, &waker, 1));
    }
    let [mut first, second, third] = listeners;
    assert!(!scene.poll(&mut first, &other, 1));
    assert_eq!(DROPPED.load(Ordering::Relaxed), 1);
    drop(second);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    drop(scene);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
    drop(third);
    assert_eq!(DROPPED.load(Ordering::Relaxed), 3);
}

#[test]
fn a_notification_can_outlive_its_wait_queue() {
    let scene = Box::new(Scene::<Linux> {
        waiters: WaitQueue::new(),
        made: <Linux as LockPlatform>::AtomicU32::new(0),
    });
    let (bell, waker) = bell::<Linux>();
    let mut listener = Listener::new();
    assert!(!scene.poll(&mut listener, &waker, 1));
    let notification = scene.waiters.take();
    drop(scene);
    assert_eq!(notification.wake(), 1);
    assert_eq!(bell.rings(), 1);
}

#[test]
fn a_deadline_ends_the_wait() {
    let scene = Scene::<Linux>::new();
    let begin = Linux::now();
    let deadline = begin + core::time::Duration::from_millis(5);
    assert!(!wait_until(&scene.waiters, Some(deadline), || scene.has(1)));
    assert!(Linux::now() >= deadline);
    scene.make();
    assert!(
        wait_until(&scene.waiters, Some(deadline), || scene.has(1)),
        "what holds needs no time"
    );
}
