//! Torture: mutexes and condition variables under everything at once, on real threads, after the kernel's locktorture and the mutex and
//! futex stressors of stress-ng.
//!
//! ```text
//! NEARQ_TORTURE_SECONDS=600 NEARQ_TORTURE_SEED=7 cargo test -p nearq-lock --test torture -- --nocapture
//! ```
//!
//! # Roles
//! - *Workers*, more than there are CPUs, do a number of rounds and end; the main thread starts others in their place. What a worker does
//!   depends only on the seed and on its number; the order in which workers run depends on the machine.
//! - The *hot* mutexes are taken and released in all possible ways, for no time, for long, and across a sleep.
//! - *Tokens* pass through a condition variable, whose waiters have deadlines or not and are notified one by one or all together.
//! - *Short-lived* mutexes have a page of their own, and a few users. The last user destroys the mutex right after its unlock. The page is
//!   unmapped, or overwritten and checked later, so that a thread that touches it too late is killed or detected.
//! - *Destroyers* are workers that do only that. The error that they provoke is an access a few instructions too late, so a separate
//!   thread, the *tormentor*, interrupts workers by a signal at any point, for longer than a mutex needs to be taken and destroyed.
//! - The *main thread* changes the mode and the thresholds, and forks; the child resets everything and lets threads of its own use it.
//!
//! # What must be true
//! A thread that has a mutex finds two plain numbers equal; it makes them unequal while it has the mutex. All the counts add up in the end.
//! No thread waits longer than [`BOUND`].

#![cfg(not(miri))]

#[path = "torture/chance.rs"]
mod chance;
#[path = "torture/scene.rs"]
mod scene;
#[path = "torture/short_lived.rs"]
mod short_lived;
#[path = "torture/system.rs"]
mod system;

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Statistics, start};
use nearq_platform::{Linux, LockPlatform, Ordering, ThreadSpec, Threads};

use chance::Chance;
use scene::{Scene, Watched};
use system::{INTERRUPT, getpid, has_ended, may_be_interrupted, signal, stand_still, tgkill};

type Word = <Linux as LockPlatform>::AtomicU64;
type JoinHandle = <Linux as Threads>::JoinHandle;

/// No thread waits longer than this for a mutex or for an available token, however busy the machine is.
const BOUND: Duration = Duration::from_mins(1);
/// How many hot mutexes there are.
const HOT: usize = 3;
/// ThreadSanitizer ends a child of a fork that starts a thread.
const FORKS: bool = !cfg!(tsan);

/// Interrupts workers until the end.
fn torment(scene: &Scene, mut chance: Chance) {
    // SAFETY: no arguments.
    let process = unsafe { getpid() };
    // Relaxed for both: numbers; one of a thread that has ended is refused, or names another worker.
    while scene.enough.load(Ordering::Relaxed) == 0 {
        let watched = scene.watched.lock();
        let worker = &watched[chance.below(watched.len() as u64) as usize];
        let number = worker.number.load(Ordering::Relaxed) as i32;
        if number > 0 {
            // SAFETY: a signal of this process, to one of its threads that accepts it.
            unsafe { tgkill(process, number, INTERRUPT) };
        }
        drop(watched);
        Linux::sleep(chance.micros(60));
    }
}

struct Worker {
    thread: JoinHandle,
    watched: Arc<Watched>,
}

impl Worker {
    fn start(scene: &Arc<Scene>, rounds: u64, mut chance: Chance) -> Self {
        let watched = Arc::new(Watched::default());
        let (scene, watched_clone) = (Arc::clone(scene), Arc::clone(&watched));
        let main = move || {
            may_be_interrupted();
            let number = Linux::thread_id(Linux::current_thread());
            watched_clone.number.store(number, Ordering::Relaxed);
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                scene.work(&watched_clone, rounds, &mut chance);
            }));
            watched_clone.number.store(0, Ordering::Relaxed);
            watched_clone.done.store(if outcome.is_ok() { 1 } else { 2 }, Ordering::Relaxed);
        };
        let thread =
            Linux::spawn(ThreadSpec::default(), main).expect("some threads can be created");
        Worker { thread, watched }
    }

    /// The workers that have not ended.
    fn join_ended(workers: Vec<Self>) -> Vec<Self> {
        let mut rest = Vec::new();
        for worker in workers {
            match worker.watched.done.load(Ordering::Relaxed) {
                0 => {
                    worker.watched.check();
                    rest.push(worker);
                }
                done => {
                    Linux::join(worker.thread);
                    assert_eq!(done, 1, "a worker failed, see above");
                }
            }
        }
        rest
    }
}

fn number_from(name: &str, usual: u64) -> u64 {
    let text = Linux::setting(name);
    text.map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn torture() {
    let seed = number_from("NEARQ_TORTURE_SEED", 1);
    let time = Duration::from_secs(number_from("NEARQ_TORTURE_SECONDS", 2));
    println!("torture for {time:?} with NEARQ_TORTURE_SEED={seed}");
    start();
    let count = (Linux::cache_map().cpus() * 4).clamp(8, 64);
    let scene = Arc::new(Scene::new());
    let mut chance = Chance::new(seed, 0);
    let (mut workers, mut children) = (Vec::new(), Vec::new());
    let (mut started, mut forked, mut longest) = (0, 0, 0);
    // SAFETY: the handler lives as long as the program, and does what handlers may.
    assert_ne!(unsafe { signal(INTERRUPT, stand_still) }, usize::MAX, "there is such a signal");
    let mut tormentor = None;
    let end = Linux::now() + time;
    // Longer on a busy machine, until there was a fork.
    while Linux::now() < end || FORKS && forked == 0 {
        for worker in &workers {
            let worker: &Worker = worker;
            longest = worker.watched.longest.load(Ordering::Relaxed).max(longest);
        }
        workers = Worker::join_ended(workers);
        while workers.len() < count {
            started += 1;
            let mut chance = Chance::new(seed, started);
            let rounds = 50 + chance.below(1500);
            workers.push(Worker::start(&scene, rounds, chance));
        }
        *scene.watched.lock() = workers.iter().map(|worker| Arc::clone(&worker.watched)).collect();
        tormentor.get_or_insert_with(|| {
            let (scene, chance) = (Arc::clone(&scene), Chance::new(seed, u64::MAX / 2));
            let main = move || torment(&scene, chance);
            Linux::spawn(ThreadSpec::default(), main).expect("some threads can be created")
        });
        children.retain(|&child| !has_ended(child, false));
        if FORKS && children.len() < 2 && chance.one_in(64) {
            forked += 1;
            children.push(Scene::fork(&scene, seed ^ forked, &mut chance));
        }
        if chance.one_in(2) {
            Scene::change_settings(&mut chance);
        }
        if chance.one_in(4) {
            // All may be waiting for tokens.
            scene.give_tokens(&mut chance);
        }
        Linux::sleep(chance.micros(4000));
    }
    // Relaxed: the thread sees it soon.
    scene.enough.store(1, Ordering::Relaxed);
    tormentor.into_iter().for_each(Linux::join);
    scene.end(workers);
    scene.check(|_| 0);
    assert!(children.into_iter().all(|child| has_ended(child, true)));
    // Relaxed for all: all threads have ended.
    let taken: u64 = scene.taken.iter().map(|taken| taken.load(Ordering::Relaxed)).sum();
    let destroyed = scene.destroyed.load(Ordering::Relaxed);
    println!(
        "{started} threads, {taken} times a hot mutex, {} tokens, {destroyed} uses of short-lived mutexes, {forked} forks; nothing took longer than {:?}; {:?}",
        scene.tokens.lock().taken,
        Duration::from_nanos(longest),
        Statistics::of_process(),
    );
    assert!(taken > 0 && destroyed > 0 && (forked > 0 || !FORKS), "too little time");
}
