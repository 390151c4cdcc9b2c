//! The join word through every interleaving: completion against join, poll and drop; the result comes once, and nothing
//! leaks.

use core::future::Future as _;
use core::pin::Pin;
use core::task::{Context, Poll};
use std::sync::Arc;
use std::task::{Wake, Waker};

use nearq_platform::{Atomic, AtomicInt, Linux, Ordering, Parker, Platform};

use super::{JoinHandle, new};
use crate::item::{Item, Started};

/// Executes a task as a worker does.
fn execute<P: Platform>(item: core::ptr::NonNull<Item<P>>) {
    // SAFETY: born with PENDING, which keeps the item alive, and ours.
    let header = unsafe { item.as_ref() };
    assert_eq!(header.start(), Started::Yes);
    // SAFETY: its RUNNING is ours, and the table is the item's own.
    assert!(!unsafe { (header.table().execute)(item) }.deferred);
}

struct Sent<P: Platform>(core::ptr::NonNull<Item<P>>);
// SAFETY: stands for a list, which hands the item over.
unsafe impl<P: Platform> Send for Sent<P> {}

/// A task that is queued.
fn queued<P: Platform, T: Send>(closure: impl FnOnce() -> T + Send) -> (Sent<P>, JoinHandle<T, P>) {
    let (item, handle) = new::<P, _, T>(closure);
    (Sent(item), handle)
}

/// Wakes a thread, and counts.
struct Bell<P: Platform> {
    parker: Parker<P>,
    rung: P::AtomicU32,
}

impl<P: Platform> Bell<P> {
    fn new() -> Arc<Self> {
        Arc::new(Bell { parker: Parker::new(), rung: P::AtomicU32::new(0) })
    }
}

impl<P: Platform> Wake for Bell<P> {
    fn wake(self: Arc<Self>) {
        self.rung.fetch_add(1, Ordering::Relaxed);
        self.parker.unpark();
    }
}

fn poll<T, P: Platform>(
    handle: &mut JoinHandle<T, P>,
    bell: &Arc<Bell<P>>,
) -> Poll<Result<T, super::Panic>> {
    let waker = Waker::from(Arc::clone(bell));
    Pin::new(handle).poll(&mut Context::from_waker(&waker))
}

#[test]
fn polled_before_and_after() {
    let (item, mut handle) = queued::<Linux, _>(|| 7);
    let (first, second) = (Bell::new(), Bell::new());
    assert!(poll(&mut handle, &first).is_pending());
    assert!(poll(&mut handle, &first).is_pending());
    assert!(poll(&mut handle, &second).is_pending());
    assert_eq!(Arc::strong_count(&first), 1, "the waker of an earlier poll is let go");
    assert!(!handle.is_finished());
    execute(item.0);
    assert!(handle.is_finished());
    assert_eq!((first.rung.load(Ordering::Relaxed), second.rung.load(Ordering::Relaxed)), (0, 1));
    assert!(matches!(poll(&mut handle, &second), Poll::Ready(Ok(7))));
    drop(handle);
    assert_eq!(Arc::strong_count(&second), 1);
}

#[test]
fn polled_then_joined_or_dropped() {
    let bell = Bell::new();
    let (item, mut handle) = queued::<Linux, _>(|| "text".to_owned());
    assert!(poll(&mut handle, &bell).is_pending());
    execute(item.0);
    assert_eq!(handle.join().unwrap(), "text");
    let (item, mut handle) = queued::<Linux, _>(|| "text".to_owned());
    assert!(poll(&mut handle, &bell).is_pending());
    drop(handle);
    execute(item.0);
    assert_eq!(Arc::strong_count(&bell), 1, "nothing leaks");
}

#[test]
#[should_panic(expected = "polled after it had given its result")]
fn polled_once_too_often() {
    let bell = Bell::new();
    let (item, mut handle) = queued::<Linux, _>(|| ());
    execute(item.0);
    let _ = poll(&mut handle, &bell);
    let _ = poll(&mut handle, &bell);
}

#[test]
fn a_panic_is_the_result() {
    let (item, handle) = queued::<Linux, ()>(|| std::panic::panic_any("so be it".to_owned()));
    execute(item.0);
    let panic = handle.join().unwrap_err();
    assert_eq!(panic.message(), Some("so be it"));
    assert_eq!(panic.to_string(), "the closure panicked: so be it");
    assert_eq!(panic.into_payload().downcast_ref::<String>().unwrap(), "so be it");
    let (item, handle) = queued::<Linux, ()>(|| std::panic::panic_any(5));
    execute(item.0);
    let panic = handle.join().unwrap_err();
    assert_eq!(
        (panic.message(), panic.to_string().as_str()),
        (None, "the closure panicked: (not a text)")
    );
}

#[test]
fn a_result_whose_drop_panics_does_not_end_a_worker() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a result that nobody took");
        }
    }
    let (item, handle) = queued::<Linux, _>(|| Bomb);
    drop(handle);
    execute(item.0);
}

#[test]
fn a_waker_that_panics_does_not_end_a_worker() {
    struct Bomb;
    impl Wake for Bomb {
        fn wake(self: Arc<Self>) {
            panic!("a waker of somebody else's");
        }
    }
    let (item, mut handle) = queued::<Linux, _>(|| 1);
    let waker = Waker::from(Arc::new(Bomb));
    assert!(Pin::new(&mut handle).poll(&mut Context::from_waker(&waker)).is_pending());
    execute(item.0);
    assert_eq!(handle.join().unwrap(), 1);
}

#[cfg(not(miri))]
mod modelled {
    use super::*;
    use crate::item::tests::{model, spawn};
    use nearq_model::Loom;

    type AtomicU32 = <Loom as Platform>::AtomicU32;

    /// A value that counts its drops.
    struct Counted(Arc<AtomicU32>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Runs a task, whose result counts its drops, in one thread, and `user` in the other.
    fn check(preemptions: usize, user: fn(JoinHandle<Counted, Loom>)) {
        model(preemptions, move || {
            let drops = Arc::new(AtomicU32::new(0));
            let captured = Arc::new(AtomicU32::new(0));
            let result = Counted(Arc::clone(&drops));
            let tail = Counted(Arc::clone(&captured));
            let (item, handle) = queued::<Loom, _>(move || {
                let _tail = tail;
                result
            });
            let worker = spawn(move || {
                let Sent(item) = { item };
                execute(item);
            });
            user(handle);
            Loom::join(worker);
            assert_eq!(drops.load(Ordering::Relaxed), 1, "the result is dropped once");
            assert_eq!(captured.load(Ordering::Relaxed), 1, "the closure is dropped once");
        });
    }

    #[test]
    fn joined() {
        check(3, |handle| drop(handle.join().unwrap()));
    }

    #[test]
    fn dropped() {
        check(3, drop);
    }

    #[test]
    fn finished_and_then_joined() {
        check(3, |handle| {
            if handle.is_finished() {
                drop(handle.join().unwrap());
            }
        });
    }

    #[test]
    fn polled_until_it_is_ready() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            while poll(&mut handle, &bell).is_pending() {
                bell.parker.park(None);
            }
        });
    }

    #[test]
    fn polled_with_another_waker_each_time() {
        check(3, |mut handle| {
            let (first, second) = (Bell::<Loom>::new(), Bell::<Loom>::new());
            if poll(&mut handle, &first).is_pending() && poll(&mut handle, &second).is_pending() {
                // The first may have rung before it was replaced; then the second poll would have been ready. So it
                // is the second that rings.
                second.parker.park(None);
                assert!(poll(&mut handle, &second).is_ready());
            }
            drop(handle);
        });
    }

    #[test]
    fn polled_and_then_joined() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            match poll(&mut handle, &bell) {
                Poll::Ready(result) => drop(result.unwrap()),
                Poll::Pending => drop(handle.join().unwrap()),
            }
        });
    }

    #[test]
    fn polled_and_then_dropped() {
        check(3, |mut handle| {
            let bell = Bell::<Loom>::new();
            drop(poll(&mut handle, &bell));
            drop(handle);
            assert!(bell.rung.load(Ordering::Relaxed) <= 1);
        });
    }
}
