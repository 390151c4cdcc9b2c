//! Under the model checker: a thread jumps out of its wait at the first sleep in it, while other threads do what ends that sleep. If a
//! thread waits for one that does not exist, that is a deadlock; records are counted, so a lost one is found.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{AtomicInt, LockPlatform, Ordering, ThreadSpec, Threads};

use super::*;
use crate::modelled::{self, Count};
use crate::raw::{RawCondvar, RawMutex};
use crate::settings::{Mode, Settings};
use crate::statistics::Event;
use crate::word::{NUMA, TAIL, slot};

type JoinHandle = <Loom as Threads>::JoinHandle;

struct Scene {
    mutex: RawMutex<Loom>,
    condvar: RawCondvar<Loom>,
    /// How much there is to take; under the mutex.
    value: <Loom as LockPlatform>::AtomicU32,
}

/// The outcome for a thread that may jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Jumped,
    Taken,
}

impl Scene {
    fn unlock(&self) {
        // SAFETY: the caller has taken it.
        unsafe { self.mutex.unlock() };
    }

    fn use_mutex(&self) {
        self.mutex.lock();
        self.unlock();
    }

    /// Takes the mutex and releases it, unless it jumps out of the wait.
    fn use_or_jump(&self) -> Outcome {
        let stay = Stay::new_in();
        if !Loom::jump_out_of(|| {
            assert!(self.mutex.lock_staying(None, &stay));
        }) {
            // SAFETY: the wait has been unwound; the scene is there.
            unsafe { stay.leave() };
            return Outcome::Jumped;
        }
        self.unlock();
        Outcome::Taken
    }

    // Relaxed, below: under the mutex.

    fn take(&self) {
        self.mutex.lock();
        while self.value.load(Ordering::Relaxed) == 0 {
            // SAFETY: taken above.
            unsafe { self.condvar.wait(&self.mutex) };
        }
        self.value.fetch_sub(1, Ordering::Relaxed);
        self.unlock();
    }

    /// Takes one unit, or jumps out of the wait for it.
    fn take_or_jump(&self) -> Outcome {
        self.mutex.lock();
        let stay = Stay::new_in();
        while self.value.load(Ordering::Relaxed) == 0 {
            if !Loom::jump_out_of(|| {
                // SAFETY: taken above.
                unsafe { self.condvar.wait_as(&self.mutex, None, None, Some(&stay)) };
            }) {
                // SAFETY: the wait has been unwound; the scene is there.
                unsafe { stay.leave() };
                return Outcome::Jumped;
            }
        }
        self.value.fetch_sub(1, Ordering::Relaxed);
        self.unlock();
        Outcome::Taken
    }

    fn give(&self) {
        self.mutex.lock();
        self.value.fetch_add(1, Ordering::Relaxed);
        self.unlock();
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
        // Two slots, as in the models of the condition variable.
        let process = ProcessState::<Loom>::get();
        assert!(process.make_slots() && process.make_slots());
        let scene = Arc::new(Scene {
            mutex: RawMutex::new_in(),
            condvar: RawCondvar::new_in(),
            value: <Loom as LockPlatform>::AtomicU32::new(0),
        });
        if mode == Mode::Numa {
            scene.mutex.bind_for_test();
        }
        model(&scene);
        // Everything is as it was.
        assert_eq!(scene.condvar.notify_all(), 0);
        assert!(scene.mutex.try_lock());
        scene.unlock();
        let word = scene.mutex.word_now();
        assert_eq!(word & TAIL, 0, "the queue is empty");
        assert!(word & NUMA == 0 || process.slots.get(slot(word)).is_quiet());
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

/// Runs a model of a thread that may jump, and does in some runs.
fn check_jumps(
    preemptions: usize,
    mode: Mode,
    reaches: &[Event],
    model: impl Fn(&Arc<Scene>, &Count) + Send + Sync + 'static,
) {
    let jumps = Arc::new(Count::new(0));
    let jumped = Arc::clone(&jumps);
    check(preemptions, mode, reaches, move |scene| model(scene, &jumped));
    assert!(jumps.load(Ordering::Relaxed) > 0, "{mode:?}");
}

const MODES: [Mode; 3] = [Mode::Off, Mode::Plain, Mode::Numa];

/// The mutex is released while a thread jumps out of the wait for it.
#[test]
fn a_thread_jumps_out_of_the_wait_for_a_mutex() {
    for mode in MODES {
        check_jumps(3, mode, &[], |scene, jumps| {
            scene.mutex.lock();
            let other = spawn(2, scene, |scene| {
                scene.use_or_jump();
            });
            scene.unlock();
            if scene.use_or_jump() == Outcome::Jumped {
                jumps.fetch_add(1, Ordering::Relaxed);
            }
            Loom::join(other);
        });
    }
}

/// Another thread waits behind it, and gets the mutex. The mutex is released at once, or when both wait.
fn one_thread_jumps_and_one_waits(preemptions: usize, mode: Mode, later: bool) {
    check_jumps(preemptions, mode, &[Event::Contended], move |scene, jumps| {
        let jumped = Arc::new(Count::new(0));
        let jumped_clone = Arc::clone(&jumped);
        scene.mutex.lock();
        let jumper = spawn(2, scene, move |scene| {
            let jumped = scene.use_or_jump() == Outcome::Jumped;
            jumped_clone.store(u32::from(jumped), Ordering::Relaxed);
        });
        let other = spawn(0, scene, Scene::use_mutex);
        if later {
            Loom::yield_now();
        }
        scene.unlock();
        Loom::join(jumper);
        Loom::join(other);
        jumps.fetch_add(jumped.load(Ordering::Relaxed), Ordering::Relaxed);
    });
}

#[test]
fn threads_behind_a_jumping_thread_get_the_mutex() {
    for mode in [Mode::Off, Mode::Plain] {
        one_thread_jumps_and_one_waits(1, mode, false);
        one_thread_jumps_and_one_waits(1, mode, true);
    }
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn threads_behind_a_jumping_thread_get_the_mutex_long() {
    for later in [false, true] {
        for mode in [Mode::Off, Mode::Plain] {
            one_thread_jumps_and_one_waits(2, mode, later);
        }
        one_thread_jumps_and_one_waits(1, Mode::Numa, later);
    }
}

/// A thread with the given urgency, which takes or jumps; whether it jumped, once it has ended.
fn spawn_jumper(scene: &Arc<Scene>, urgency: u32) -> (JoinHandle, Arc<Count>) {
    let jumped = Arc::new(Count::new(0));
    let jumped_clone = Arc::clone(&jumped);
    let jumper = spawn(2, scene, move |scene| {
        Loom::set_urgency(urgency);
        let jumped = scene.take_or_jump() == Outcome::Jumped;
        jumped_clone.store(u32::from(jumped), Ordering::Relaxed);
    });
    (jumper, jumped)
}

/// A thread is notified, alone or with all others, while it jumps: whichever comes first, nothing of the thread is left behind. It may be
/// urgent.
#[test]
fn a_thread_jumps_out_of_the_wait_for_a_condition() {
    for mode in MODES {
        for (all, urgency, reaches) in
            [(false, 0, Event::Moved), (true, 0, Event::Moved), (false, 5, Event::Contended)]
        {
            check_jumps(3, mode, &[reaches], move |scene, jumps| {
                if urgency > 0 {
                    ProcessState::<Loom>::get().expect_urgent();
                }
                let (jumper, jumped) = spawn_jumper(scene, urgency);
                scene.give();
                if all {
                    scene.condvar.notify_all();
                } else {
                    scene.condvar.notify_one();
                }
                Loom::join(jumper);
                jumps.fetch_add(jumped.load(Ordering::Relaxed), Ordering::Relaxed);
            });
        }
    }
}

/// Another thread waits too: it is notified, or the one that jumps was, and then the next notification finds it.
fn one_thread_jumps_and_one_is_notified(preemptions: usize, mode: Mode, urgency: u32) {
    check_jumps(preemptions, mode, &[], move |scene, jumps| {
        if urgency > 0 {
            ProcessState::<Loom>::get().expect_urgent();
        }
        let (jumper, jumped) = spawn_jumper(scene, urgency);
        let other = spawn(0, scene, Scene::take);
        scene.give();
        scene.condvar.notify_one();
        Loom::join(jumper);
        let jumped = jumped.load(Ordering::Relaxed);
        if jumped == 0 {
            scene.give();
        }
        scene.condvar.notify_one();
        Loom::join(other);
        jumps.fetch_add(jumped, Ordering::Relaxed);
    });
}

#[test]
#[ignore = "takes minutes: .ci/long"]
fn the_next_notification_skips_a_thread_that_has_jumped() {
    for urgency in [0, 5] {
        one_thread_jumps_and_one_is_notified(1, Mode::Plain, urgency);
        one_thread_jumps_and_one_is_notified(1, Mode::Off, urgency);
    }
}
