//! Under the model checker: a waiting thread is called away, like a thread that is cancelled under the preload, and a condition variable is
//! destroyed by a thread that holds the mutex that the leaving threads want.
//!
//! A thread that does not heed the call shows as a deadlock. A thread that touches what was destroyed is reported.

use std::sync::Arc;

use nearq_model::{Loom, bound};
use nearq_platform::{Atomic, LockPlatform, Ordering, PlatformCell, ThreadSpec, Threads};

use crate::modelled::{self, Count};
use crate::process_state::ProcessState;
use crate::raw::{Ended, RawCondvar, RawMutex, Summons};
use crate::settings::{Mode, Settings};
use crate::statistics::Event;

type Watched = <Loom as Threads>::Cell<u32>;
type JoinHandle = <Loom as Threads>::JoinHandle;

struct Scene {
    mutex: RawMutex<Loom>,
    condvar: *const RawCondvar<Loom>,
    /// How much there is to take; `GONE` when the condition variable no longer exists.
    value: Watched,
    summons: Summons<Loom>,
    /// What the calling thread does between sending and waking.
    noted: <Loom as LockPlatform>::AtomicU32,
}

const GONE: u32 = 100;

// SAFETY: the cell and the condition variable belong to no thread; which thread frees the latter is tested.
unsafe impl Send for Scene {}
// SAFETY: the cell is used under the mutex, and the condition variable while it is allocated; both is tested.
unsafe impl Sync for Scene {}

/// The outcome for a thread that may be called away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Left,
}

impl Scene {
    fn new() -> Arc<Self> {
        Settings { mode: Mode::Plain, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        let process = ProcessState::<Loom>::get();
        assert!(process.make_slots() && process.make_slots());
        Arc::new(Scene {
            mutex: RawMutex::new_in(),
            condvar: Box::into_raw(Box::new(RawCondvar::new_in())),
            value: Watched::new(0),
            summons: Summons::new_in(),
            noted: <Loom as LockPlatform>::AtomicU32::new(0),
        })
    }

    fn condvar(&self) -> &RawCondvar<Loom> {
        // SAFETY: freed by a thread that holds the mutex and then notes that it is gone.
        unsafe { &*self.condvar }
    }

    /// Frees the condition variable. The caller holds the mutex, or is alone.
    fn free(&self) {
        // SAFETY: allocated as a box; no thread uses it any more, which is tested.
        drop(unsafe { Box::from_raw(self.condvar.cast_mut()) });
    }

    fn get(&self) -> u32 {
        // SAFETY: the caller holds the mutex.
        self.value.with(|value| unsafe { *value })
    }

    fn set(&self, to: u32) {
        // SAFETY: the caller holds the mutex, so no other thread uses the cell; the model reports it if that is not so.
        self.value.with_mut(|value| unsafe { *value = to });
    }

    fn unlock(&self) {
        // SAFETY: the caller has taken it.
        unsafe { self.mutex.unlock() };
    }

    fn is_noted(&self) -> bool {
        // Acquire: as the C library does.
        self.noted.load(Ordering::Acquire) != 0
    }

    /// Like a thread that may be cancelled: it ends if it was called and not notified, or before it waits.
    fn take_unless_called(&self) -> Outcome {
        // Momentary waits reach their deadline.
        Loom::set_deadlines_come(true);
        self.mutex.lock();
        let became = loop {
            match self.get() {
                0 => {}
                GONE => break Outcome::Left,
                left => {
                    self.set(left - 1);
                    break Outcome::Taken;
                }
            }
            if self.is_noted() {
                break Outcome::Left;
            }
            // SAFETY: taken above.
            let ended =
                unsafe { self.condvar().wait_unless_called(&self.mutex, None, &self.summons) };
            if ended == Ended::Called && self.is_noted() {
                break Outcome::Left;
            }
            Loom::yield_now();
        };
        self.unlock();
        became
    }

    fn take(&self) {
        self.mutex.lock();
        while self.get() == 0 {
            // SAFETY: taken above.
            unsafe { self.condvar().wait(&self.mutex) };
        }
        self.set(self.get() - 1);
        self.unlock();
    }

    fn give(&self) {
        self.mutex.lock();
        self.set(self.get() + 1);
        self.unlock();
        self.condvar().notify_one();
    }

    fn call(&self) {
        let called = self.summons.send();
        // Release: pairs with the acquire in `is_noted`.
        self.noted.store(1, Ordering::Release);
        called.wake();
    }
}

fn spawn(scene: &Arc<Scene>, body: impl FnOnce(&Scene) + Send + 'static) -> JoinHandle {
    let scene = Arc::clone(scene);
    Loom::spawn(ThreadSpec::default(), move || body(&scene)).expect("the model spawns")
}

fn none_is_lost() {
    let count = ProcessState::<Loom>::get().waiters.count();
    assert!(count <= 3, "{count} records in use");
}

#[test]
fn a_waiter_that_is_called_away_wakes_up() {
    modelled::check(3, &[], || {
        let scene = Scene::new();
        let waiter = spawn(&scene, |scene| {
            assert_eq!(scene.take_unless_called(), Outcome::Left);
        });
        scene.call();
        Loom::join(waiter);
        scene.free();
        none_is_lost();
    });
}

/// The thread takes what it is given, unless it was called away before it was notified: then it has taken nothing.
fn one_waiter_is_called_away_and_one_is_notified(preemptions: usize, runs: Option<usize>) {
    let outcomes = Arc::new([Count::new(0), Count::new(0)]);
    let outcomes_clone = Arc::clone(&outcomes);
    modelled::check_first(runs, preemptions, &[Event::Moved], move || {
        let scene = Scene::new();
        let other = spawn(&scene, Scene::take);
        let became = Arc::new(Count::new(0));
        let became_clone = Arc::clone(&became);
        let waiter = spawn(&scene, move |scene| {
            let took = scene.take_unless_called() == Outcome::Taken;
            // Relaxed, here and below: ordered by the end of the thread.
            became_clone.store(u32::from(took), Ordering::Relaxed);
        });
        scene.give();
        scene.call();
        Loom::join(waiter);
        let took = became.load(Ordering::Relaxed);
        outcomes_clone[took as usize].fetch_add(1, Ordering::Relaxed);
        if took == 1 {
            scene.give();
        }
        Loom::join(other);
        scene.free();
        none_is_lost();
    });
    for count in &*outcomes {
        assert!(count.load(Ordering::Relaxed) > 0, "{outcomes:?}");
    }
}

#[test]
fn a_waiter_that_is_called_away_loses_no_notification() {
    one_waiter_is_called_away_and_one_is_notified(1, bound(Some(8_000), None));
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn a_waiter_that_is_called_away_loses_no_notification_long() {
    one_waiter_is_called_away_and_one_is_notified(2, None);
}

/// The destroyer holds the mutex, and does not wait for a thread that only has to take the mutex.
fn destroyed(before: impl Fn(&Scene) + Copy + Send + Sync + 'static) {
    modelled::check(3, &[], move || {
        let scene = Scene::new();
        let waiter = spawn(&scene, |scene| {
            scene.take_unless_called();
        });
        scene.mutex.lock();
        before(&scene);
        scene.condvar().wait_until_left();
        scene.set(GONE);
        scene.free();
        scene.unlock();
        Loom::join(waiter);
        none_is_lost();
    });
}

#[test]
fn a_condvar_is_destroyed_when_its_waiter_was_notified() {
    destroyed(|scene| {
        scene.condvar().notify_one();
    });
}

#[test]
fn a_condvar_is_destroyed_when_its_waiter_was_called_away() {
    destroyed(Scene::call);
}

#[test]
fn a_condvar_is_destroyed_when_its_waiter_was_called_away_and_notified() {
    destroyed(|scene| {
        scene.call();
        scene.condvar().notify_one();
    });
}

/// No thread has ended its wait yet: the destroyer sleeps until one does.
#[test]
fn a_condvar_is_destroyed_while_another_thread_calls_its_waiter_away() {
    modelled::check(2, &[], move || {
        let scene = Scene::new();
        let waiter = spawn(&scene, |scene| {
            scene.take_unless_called();
        });
        let caller = spawn(&scene, Scene::call);
        scene.mutex.lock();
        scene.condvar().wait_until_left();
        scene.set(GONE);
        scene.free();
        scene.unlock();
        Loom::join(waiter);
        Loom::join(caller);
        none_is_lost();
    });
}
