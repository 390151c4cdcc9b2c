//! Under the model checker: a notification against falling asleep, being moved to the mutex while other threads queue up for it, a deadline
//! against a notification, and the end of a condition variable after all threads have been notified.
//!
//! A notification that is lost shows as a deadlock; models in which a deadline comes say so.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{Instant, Ordering, PlatformCell, ThreadSpec, Threads};

use crate::modelled::{self, Count};
use crate::process_state::ProcessState;
use crate::settings::{Mode, Settings};
use crate::statistics::Event;
use crate::{Condvar, Mutex};

type Watched = <Loom as Threads>::Cell<u32>;
type JoinHandle = <Loom as Threads>::JoinHandle;

const SOON: Instant = Instant::from_nanos(0);

/// A value, and the condition variable to wait for it.
struct Scene {
    value: Mutex<Watched, Loom>,
    changed: Condvar<Loom>,
}

impl Scene {
    fn get(guard: &Watched) -> u32 {
        // SAFETY: the cell lives as long as the guard that the caller passes, which excludes other threads; that is tested.
        guard.with(|value| unsafe { *value })
    }

    fn set(guard: &Watched, value: u32) {
        // SAFETY: the cell lives as long as the guard that the caller passes, which excludes other threads; that is tested.
        guard.with_mut(|old| unsafe { *old = value });
    }

    /// Waits until the value is not 0, and takes one away.
    fn take(&self) {
        let mut guard = self.value.lock();
        while Self::get(&guard) == 0 {
            self.changed.wait(&mut guard);
        }
        let left = Self::get(&guard) - 1;
        Self::set(&guard, left);
    }

    fn give(&self, count: u32) {
        let guard = self.value.lock();
        let now = Self::get(&guard) + count;
        Self::set(&guard, now);
    }
}

fn check(
    preemptions: usize,
    mode: Mode,
    reaches: &[Event],
    model: impl Fn(&Arc<Scene>) + Send + Sync + 'static,
) {
    modelled::check(preemptions, reaches, move || {
        Settings { mode, ..Settings::default() }.eager().set_for_process_in::<Loom>();
        // Two slots: a thread that binds one leaves one, so that no thread makes more of them.
        let process = ProcessState::<Loom>::get();
        assert!(process.make_slots() && process.make_slots());
        let scene =
            Arc::new(Scene { value: Mutex::new_in(Watched::new(0)), changed: Condvar::new_in() });
        if mode == Mode::Numa {
            scene.value.raw().bind_for_test();
        }
        model(&scene);
        // Everything is as it was: no thread waits, no record and no slot is lost.
        assert_eq!(scene.changed.notify_all(), 0);
        assert!(scene.value.try_lock().is_some());
        assert!(process.waiters.count() <= 3, "{} records in use", process.waiters.count());
        assert!(process.slots.count() <= 1);
    });
}

fn spawn(cpu: usize, scene: &Arc<Scene>, body: impl FnOnce(&Scene) + Send + 'static) -> JoinHandle {
    let scene = Arc::clone(scene);
    let main = move || {
        Loom::set_current_cpu(cpu);
        body(&scene);
    };
    Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
}

const MODES: [Mode; 3] = [Mode::Off, Mode::Plain, Mode::Numa];
/// For three threads: the number of preemptions with which a model ends within seconds.
const OF_THREE: [(usize, Mode); 2] = [(1, Mode::Off), (1, Mode::Plain)];
/// Likewise, within minutes.
const OF_THREE_AT_LENGTH: [(usize, Mode); 3] = [(2, Mode::Off), (2, Mode::Plain), (1, Mode::Numa)];

#[test]
fn a_notification_is_not_lost() {
    for mode in MODES {
        check(3, mode, &[Event::Moved], |scene| {
            let waiter = spawn(2, scene, Scene::take);
            scene.give(1);
            scene.changed.notify_one();
            Loom::join(waiter);
        });
    }
}

#[test]
fn a_notification_under_the_mutex_is_not_lost() {
    for mode in MODES {
        check(3, mode, &[Event::Moved], |scene| {
            let waiter = spawn(2, scene, Scene::take);
            let guard = scene.value.lock();
            Scene::set(&guard, 1);
            let waited = scene.changed.notify_one();
            // A thread that waits has released the mutex; it is notified once.
            assert!(!(waited && scene.changed.notify_one()));
            drop(guard);
            Loom::join(waiter);
        });
    }
}

fn notify_two_at_once(cases: &[(usize, Mode)]) {
    for &(preemptions, mode) in cases {
        check(preemptions, mode, &[Event::Moved], |scene| {
            let waiters = [spawn(0, scene, Scene::take), spawn(2, scene, Scene::take)];
            scene.give(2);
            assert!(scene.changed.notify_all() <= 2);
            waiters.into_iter().for_each(Loom::join);
        });
    }
}

#[test]
fn two_waiters_are_notified_at_once() {
    notify_two_at_once(&OF_THREE);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn two_waiters_are_notified_at_once_long() {
    notify_two_at_once(&OF_THREE_AT_LENGTH);
}

fn notify_two_one_by_one(cases: &[(usize, Mode)]) {
    for &(preemptions, mode) in cases {
        check(preemptions, mode, &[Event::Moved], |scene| {
            let waiters = [spawn(0, scene, Scene::take), spawn(2, scene, Scene::take)];
            scene.give(2);
            scene.changed.notify_one();
            scene.changed.notify_one();
            waiters.into_iter().for_each(Loom::join);
        });
    }
}

#[test]
fn two_waiters_are_notified_one_by_one() {
    notify_two_one_by_one(&OF_THREE);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn two_waiters_are_notified_one_by_one_long() {
    notify_two_one_by_one(&OF_THREE_AT_LENGTH);
}

/// While one thread is moved to the mutex, another one that does not wait for anything queues up there.
fn move_one_while_another_queues_up(cases: &[(usize, Mode)]) {
    for &(preemptions, mode) in cases {
        check(preemptions, mode, &[Event::Moved], |scene| {
            let waiter = spawn(2, scene, Scene::take);
            let other = spawn(3, scene, |scene| scene.give(1));
            scene.give(1);
            scene.changed.notify_one();
            Loom::join(other);
            Loom::join(waiter);
        });
    }
}

#[test]
fn a_waiter_is_moved_while_another_thread_queues_up() {
    move_one_while_another_queues_up(&OF_THREE);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn a_waiter_is_moved_while_another_thread_queues_up_long() {
    move_one_while_another_queues_up(&OF_THREE_AT_LENGTH);
}

/// A thread that gives up at its deadline is not notified, a thread that is notified does not give up, and each counts once. Both happen.
#[test]
fn a_deadline_expires_during_a_notification() {
    for mode in MODES {
        let outcomes = Arc::new([Count::new(0), Count::new(0)]);
        let outcomes_clone = Arc::clone(&outcomes);
        check(3, mode, &[Event::Moved], move |scene| {
            let waiter = spawn(2, scene, |scene| {
                Loom::set_deadlines_come(true);
                let mut guard = scene.value.lock();
                Scene::set(&guard, 1);
                let in_time = scene.changed.wait_until_in(&mut guard, SOON);
                Scene::set(&guard, 2 + u32::from(in_time));
            });
            let notified = scene.changed.notify_one();
            Loom::join(waiter);
            let guard = scene.value.lock();
            assert_eq!(Scene::get(&guard), 2 + u32::from(notified));
            outcomes_clone[usize::from(notified)].fetch_add(1, Ordering::Relaxed);
        });
        // Enough runs have each outcome: the model has not become smaller because the checker considers a step independent of another.
        for count in &*outcomes {
            assert!(count.load(Ordering::Relaxed) > 20, "{mode:?} {outcomes:?}");
        }
    }
}

/// There is one notification for two threads, and one of these gives up: the notification reaches the other thread if it does not reach the
/// first one.
#[test]
#[ignore = "takes minutes: .ci/long"]
fn a_notification_is_not_lost_to_a_waiter_that_gave_up() {
    check(2, Mode::Plain, &[Event::Moved], |scene| {
        let hasty = spawn(2, scene, |scene| {
            Loom::set_deadlines_come(true);
            let mut guard = scene.value.lock();
            if scene.changed.wait_until_in(&mut guard, SOON) {
                // The thread hands the notification on, because it does not need it.
                scene.changed.notify_one();
            }
        });
        let waiter = spawn(0, scene, Scene::take);
        scene.give(1);
        scene.changed.notify_one();
        Loom::join(waiter);
        Loom::join(hasty);
    });
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn all_waiters_are_notified_while_one_gives_up() {
    check(2, Mode::Plain, &[Event::Moved], |scene| {
        let hasty = spawn(2, scene, |scene| {
            Loom::set_deadlines_come(true);
            let mut guard = scene.value.lock();
            scene.changed.wait_until_in(&mut guard, SOON);
        });
        let waiter = spawn(0, scene, Scene::take);
        scene.give(1);
        scene.changed.notify_all();
        Loom::join(waiter);
        Loom::join(hasty);
    });
}

/// Two threads wait. Both may be urgent, one more than the other, or none is. They are notified one after the other, or both at once. An
/// urgent thread queues up nowhere, and no thread is left asleep.
fn notify_the_urgent(preemptions: usize, mode: Mode, urgencies: [u32; 2], at_once: bool) {
    check(preemptions, mode, &[], move |scene| {
        ProcessState::<Loom>::get().expect_urgent();
        let waiters = urgencies.map(|urgency| {
            spawn(2, scene, move |scene| {
                Loom::set_urgency(urgency);
                scene.take();
            })
        });
        scene.give(2);
        if at_once {
            scene.changed.notify_all();
        } else {
            scene.changed.notify_one();
            scene.changed.notify_one();
        }
        waiters.into_iter().for_each(Loom::join);
    });
}

#[test]
fn an_urgent_waiter_is_notified_and_takes_the_mutex_itself() {
    for mode in MODES {
        check(3, mode, &[Event::Unqueued], |scene| {
            ProcessState::<Loom>::get().expect_urgent();
            let waiter = spawn(2, scene, |scene| {
                Loom::set_urgency(5);
                scene.take();
            });
            let guard = scene.value.lock();
            Scene::set(&guard, 1);
            scene.changed.notify_one();
            drop(guard);
            Loom::join(waiter);
        });
    }
}

#[test]
fn an_urgent_and_an_ordinary_waiter_are_notified() {
    notify_the_urgent(1, Mode::Plain, [0, 5], false);
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn two_urgent_waiters_are_notified_long() {
    for at_once in [false, true] {
        notify_the_urgent(2, Mode::Plain, [0, 5], at_once);
        notify_the_urgent(2, Mode::Off, [7, 5], at_once);
        notify_the_urgent(1, Mode::Numa, [0, 5], at_once);
    }
}

/// A condition variable that is destroyed once all threads have been notified, or have given up, before any of them has returned.
#[test]
fn a_condvar_is_destroyed_before_notified_waiters_have_returned() {
    struct Shared {
        waiting: Mutex<Watched, Loom>,
        changed: *const Condvar<Loom>,
    }
    // SAFETY: the pointer is used while what it points to is allocated, which is tested.
    unsafe impl Send for Shared {}
    // SAFETY: `&Shared` gives a mutex, and the pointer, which is used while what it points to is allocated; that is tested.
    unsafe impl Sync for Shared {}

    for deadlines_come in [false, true] {
        modelled::check(3, &[Event::Moved], move || {
            let mode = Mode::Plain;
            Settings { mode, ..Settings::default() }.eager().set_for_process_in::<Loom>();
            let changed = Box::into_raw(Box::new(Condvar::<Loom>::new_in()));
            let shared = Arc::new(Shared { waiting: Mutex::new_in(Watched::new(0)), changed });
            let waiter = {
                let shared = Arc::clone(&shared);
                let main = move || {
                    Loom::set_deadlines_come(deadlines_come);
                    let mut guard = shared.waiting.lock();
                    // 2: there is nothing to wait for, and no condition variable any more.
                    if Scene::get(&guard) == 0 {
                        Scene::set(&guard, 1);
                        // SAFETY: the thread that frees it holds the mutex, and has set the value to 2.
                        let changed = unsafe { &*shared.changed };
                        changed.wait_until_in(&mut guard, SOON);
                    }
                };
                Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
            };
            let guard = shared.waiting.lock();
            // SAFETY: freed below.
            unsafe { &*changed }.notify_all();
            Scene::set(&guard, 2);
            // SAFETY: allocated as a box; no thread waits by it any more, and none will.
            drop(unsafe { Box::from_raw(changed) });
            drop(guard);
            Loom::join(waiter);
        });
    }
}
