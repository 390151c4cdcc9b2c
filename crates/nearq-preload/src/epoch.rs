//! A word that lets the first thread that comes make a thing fit for the child of a fork.
//!
//! # Protocol
//! The word is the epoch of the process whose threads use the thing (`Linux::fork_epoch`), times two; odd while a thread makes the thing
//! fit for this process. The thread that makes the step from another process's epoch to odd does that, and stores the even epoch afterwards
//! (release). A thread that finds the even epoch (acquire) finds the thing made fit. Others sleep until then.
//!
//! The model below fails if one of these orderings is weakened, and if two threads could make the step.

use core::time::Duration;

use nearq_platform::{Atomic, Linux, Ordering, Platform};

/// How long a thread sleeps until another thread has done some steps.
const MOMENT: Duration = Duration::from_micros(50);

/// The process for which a thing is fit. Zero is the first one.
#[repr(transparent)]
pub(crate) struct Epoch<P: Platform = Linux> {
    word: P::AtomicU32,
}

impl<P: Platform> Epoch<P> {
    /// The value of the word if the thing is fit for this process.
    #[inline]
    fn now() -> u32 {
        (P::fork_epoch() as u32) << 1
    }

    /// Whether the thing is fit for this process.
    #[inline]
    pub(crate) fn is_now(&self) -> bool {
        // Acquire: pairs with the release of the thread that has renewed it.
        self.word.load(Ordering::Acquire) == Self::now()
    }

    /// The first use in the child of a fork: one thread calls `renew`, which makes the thing fit, and all return afterwards.
    pub(crate) fn make_fit(&self, renew: impl FnOnce()) {
        let now = Self::now();
        loop {
            // Acquire: pairs with the release of the thread that has renewed it.
            let found = self.word.load(Ordering::Acquire);
            if found == now {
                return;
            }
            if found == now | 1 {
                // Another thread is doing it. That thread may be less urgent than the caller, and need the caller's CPU.
                P::sleep(MOMENT);
                continue;
            }
            // Relaxed: decides which thread does it; the others wait for the release below.
            let step =
                self.word.compare_exchange(found, now | 1, Ordering::Relaxed, Ordering::Relaxed);
            if step.is_ok() {
                break;
            }
        }
        renew();
        // Release: pairs with the acquires above.
        self.word.store(now, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use nearq_model::Loom;
    use nearq_platform::{LockPlatform, PlatformCell, ThreadSpec, Threads};

    use super::*;

    /// How many milliseconds the caller has had a CPU.
    fn cpu_time() -> i64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock exists everywhere, and the time is ours.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        time.tv_sec * 1000 + time.tv_nsec / 1_000_000
    }

    #[test]
    fn a_waiting_thread_yields_the_cpu_to_the_thread_that_renews() {
        let now = Epoch::<Linux>::now();
        let epoch = Epoch::<Linux> { word: Atomic::new(now | 1) };
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| {
                epoch.make_fit(|| unreachable!("another thread is at it"));
                cpu_time()
            });
            Linux::sleep(Duration::from_millis(300));
            epoch.word.store(now, Ordering::Release);
            let used = waits.join().expect("the thread does not panic");
            assert!(used < 90, "{used} ms of 300");
        });
    }

    /// A thing that the model checker watches, and how often it was renewed.
    struct State {
        epoch: Epoch<Loom>,
        renewed: <Loom as Threads>::Cell<u32>,
    }

    // SAFETY: one thread writes it before others read it; that is tested.
    unsafe impl Sync for State {}

    impl State {
        fn be_used(&self) {
            if !self.epoch.is_now() {
                // SAFETY: one thread calls it, and others read afterwards; that is tested.
                self.epoch.make_fit(|| self.renewed.with_mut(|renewed| unsafe { *renewed += 1 }));
            }
            // SAFETY: not written any more; that is tested.
            assert_eq!(self.renewed.with(|renewed| unsafe { *renewed }), 1);
        }
    }

    #[test]
    fn one_thread_renews_the_state_before_any_thread_uses_it() {
        // The epoch of another process, and that of a process in which a thread had begun to renew the thing.
        for before in [2, 3] {
            loom::model(move || {
                let now = Epoch::<Loom>::now();
                assert!(now >> 1 != before >> 1, "this process has another epoch");
                let epoch = Epoch { word: Atomic::new(before) };
                let state = Arc::new(State { epoch, renewed: PlatformCell::new(0) });
                let state_clone = Arc::clone(&state);
                let other = Loom::spawn(ThreadSpec::default(), move || state_clone.be_used());
                state.be_used();
                Loom::join(other.expect("the model spawns"));
                state.be_used();
            });
        }
    }
}
