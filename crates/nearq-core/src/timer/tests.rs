//! The timer: each deadline is delivered once or never will be, each hold is released once, no deadline is delivered too early, and no
//! wake-up is lost. This file has what the tests share; they are by interleaving in `interleaved`, on Linux in `linux`, on simulated
//! machines in `simulated`.

#[cfg(not(miri))]
mod interleaved;
mod linux;
#[cfg(not(miri))]
mod simulated;

use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Instant, Ordering, Parker, Platform};

use super::{Armed, Foreign, Hold, Timer, TimerNode, TimerTable};

/// An object that is notified of deadlines, and counts them. The timer's hold is a reference.
#[repr(C)]
struct Probe<P: Platform> {
    node: TimerNode<P>,
    /// No deadline that may still be delivered is earlier.
    floor: P::AtomicU64,
    /// Deadlines that the timer has accepted.
    accepted: P::AtomicU32,
    refused: P::AtomicU32,
    prevented: P::AtomicU32,
    expired: P::AtomicU32,
    dropped: P::AtomicU32,
    held: P::AtomicU32,
    released: P::AtomicU32,
    /// When it was last notified.
    expired_at: P::AtomicU64,
    /// How often it arms itself again when it is notified, and how many nanoseconds later.
    again: P::AtomicU32,
    period: P::AtomicU64,
    timer: Arc<Timer<P>>,
    /// Gets a permit at each notification.
    parker: Parker<P>,
}

trait Table: Platform {
    const TABLE: &'static TimerTable<Self>;
}

impl<P: Platform> Table for P {
    const TABLE: &'static TimerTable<P> =
        &TimerTable { expire: expire::<P>, end_if_over: goes_on::<P>, release: release::<P> };
}

unsafe fn goes_on<P: Platform>(_: NonNull<TimerNode<P>>, _: &mut dyn FnMut()) -> Option<Foreign> {
    None
}

unsafe fn expire<P: Platform>(node: NonNull<TimerNode<P>>) -> Option<Foreign> {
    // SAFETY: a probe begins with its node, and the hold keeps it alive.
    let probe = unsafe { node.cast::<Probe<P>>().as_ref() };
    let now = P::now().as_nanos();
    let floor = probe.floor.load(Ordering::SeqCst);
    assert!(now >= floor, "expired at {now}, {} ns too early", floor - now);
    assert!(probe.timer.is_current());
    probe.expired_at.store(now, Ordering::Relaxed);
    probe.expired.fetch_add(1, Ordering::SeqCst);
    let again = probe.again.load(Ordering::Relaxed);
    if again > 0 {
        probe.again.store(again - 1, Ordering::Relaxed);
        let at = now + probe.period.load(Ordering::Relaxed);
        probe.floor.store(at, Ordering::SeqCst);
        // SAFETY: the hold keeps it alive, and is kept; no other thread arms it meanwhile.
        let armed = unsafe { probe.timer.arm(node, Instant::from_nanos(at)) };
        assert_eq!(armed, Armed { prevented: false, hold: Hold::Kept });
        probe.accepted.fetch_add(1, Ordering::Relaxed);
    }
    probe.parker.unpark();
    None
}

unsafe fn release<P: Platform>(node: NonNull<TimerNode<P>>, dropped: bool) {
    // SAFETY: the hold was a reference, which comes back.
    let probe = unsafe { Arc::from_raw(node.cast::<Probe<P>>().as_ptr()) };
    probe.dropped.fetch_add(u32::from(dropped), Ordering::Relaxed);
    probe.released.fetch_add(1, Ordering::SeqCst);
    probe.parker.unpark();
}

/// The owner of a probe.
struct Owner<P: Platform>(Arc<Probe<P>>);

impl<P: Platform> Clone for Owner<P> {
    fn clone(&self) -> Self {
        Owner(Arc::clone(&self.0))
    }
}

impl<P: Platform> Owner<P> {
    fn new(timer: &Arc<Timer<P>>) -> Self {
        let zero = || P::AtomicU32::new(0);
        Owner(Arc::new(Probe {
            node: TimerNode::new(P::TABLE),
            floor: P::AtomicU64::new(u64::MAX),
            accepted: zero(),
            refused: zero(),
            prevented: zero(),
            expired: zero(),
            dropped: zero(),
            held: zero(),
            released: zero(),
            expired_at: P::AtomicU64::new(0),
            again: zero(),
            period: P::AtomicU64::new(0),
            timer: Arc::clone(timer),
            parker: Parker::new(),
        }))
    }

    /// The node, as a pointer to the whole object that may also be used for its count of references.
    fn node(&self) -> NonNull<TimerNode<P>> {
        NonNull::new(Arc::as_ptr(&self.0).cast_mut()).expect("an address").cast()
    }

    /// Arms it; by one thread at a time.
    fn arm(&self, deadline: Instant) -> Armed {
        let probe = &*self.0;
        // The deadline before may still be under way.
        let deadline_nanos = deadline.as_nanos();
        let floor = probe.floor.load(Ordering::SeqCst);
        probe.floor.store(floor.min(deadline_nanos), Ordering::SeqCst);
        let reference = Arc::clone(&self.0);
        // SAFETY: the reference that was just made keeps it alive, until it comes back by `release` or is dropped here.
        let armed = unsafe { probe.timer.arm(self.node(), deadline) };
        probe.timer.see_to_the_thread();
        if armed.hold == Hold::Taken {
            core::mem::forget(reference);
        }
        probe.held.fetch_add(u32::from(armed.hold == Hold::Taken), Ordering::Relaxed);
        probe.prevented.fetch_add(u32::from(armed.prevented), Ordering::Relaxed);
        probe.accepted.fetch_add(u32::from(armed.hold != Hold::Refused), Ordering::Relaxed);
        probe.refused.fetch_add(u32::from(armed.hold == Hold::Refused), Ordering::Relaxed);
        // The deadlines before this one have been delivered or never will be; none is still on its way, as it may be if the timer's thread
        // was preempted.
        let accounted =
            probe.prevented.load(Ordering::Relaxed) + probe.expired.load(Ordering::SeqCst);
        if probe.accepted.load(Ordering::Relaxed) <= accounted + 1 {
            probe.floor.store(deadline_nanos, Ordering::SeqCst);
        }
        armed
    }

    fn arm_in(&self, delay: Duration) -> Armed {
        self.arm(P::now() + delay)
    }

    fn disarm(&self) -> bool {
        // SAFETY: our reference keeps it alive.
        let prevented = unsafe { self.0.timer.disarm(self.node()) };
        self.0.prevented.fetch_add(u32::from(prevented), Ordering::Relaxed);
        prevented
    }

    fn expired(&self) -> u32 {
        self.0.expired.load(Ordering::SeqCst)
    }

    fn released(&self) -> u32 {
        self.0.released.load(Ordering::SeqCst)
    }

    /// Whether the timer holds it, as far as its owner knows.
    fn is_held(&self) -> bool {
        self.0.held.load(Ordering::Relaxed) != self.released()
    }

    /// Waits until it was notified this often.
    fn wait(&self, times: u32) {
        while self.expired() < times {
            self.0.parker.park(None);
        }
    }

    /// Checks that every deadline and hold is accounted for. Called when the timer has ended.
    fn check(&self) {
        let [accepted, refused, prevented, expired, dropped, held, released] = [
            &self.0.accepted,
            &self.0.refused,
            &self.0.prevented,
            &self.0.expired,
            &self.0.dropped,
            &self.0.held,
            &self.0.released,
        ]
        .map(|count| count.load(Ordering::SeqCst));
        assert_eq!(held, released, "each hold is released once");
        let accounted = prevented + expired + dropped;
        assert!(
            (accepted..=accepted + refused).contains(&accounted),
            "{accepted} deadlines accepted, {refused} refused; {prevented} prevented, {expired} expired, {dropped} dropped"
        );
        assert!(!self.0.node.is_armed());
        // `release` counts before it gives the hold back.
        let mut checks = 0;
        while Arc::strong_count(&self.0) > 1 {
            assert!(checks < 10_000, "the timer has not released the node");
            checks += 1;
            P::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the timer and waits for its thread.
fn end<P: Platform>(timer: &Timer<P>) {
    timer.stop();
    timer.join();
}
