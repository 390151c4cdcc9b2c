//! More mutexes than there are places for queues by cache, on a simulated machine with several caches; and settings that are not
//! allowed.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings, Snapshot, Statistics};
use nearq_platform::{Atomic, LockPlatform, Ordering, Threads};
use nearq_sim::{Sim, compute};

use crate::common::{on, spawn_on};

type Word = <Sim as LockPlatform>::AtomicU32;

/// How many mutexes may have queues by cache.
const PLACES: usize = 4095;
/// How many mutexes beyond that number are contended.
const FURTHER: usize = 65;

struct Scene {
    mutexes: Vec<Mutex<(u32, u32), Sim>>,
    /// The mutex that each of the two has reached.
    come: [Word; 2],
}

impl Scene {
    fn new(count: usize) -> Arc<Self> {
        let mutexes = (0..count).map(|_| Mutex::new_in((0, 0))).collect();
        Arc::new(Scene { mutexes, come: [Word::new(0), Word::new(0)] })
    }
}

fn use_it(mutex: &Mutex<(u32, u32), Sim>) {
    let mut pair = mutex.lock();
    pair.0 += 1;
    compute(Duration::from_micros(2));
    pair.1 += 1;
    assert_eq!(pair.0, pair.1, "two threads held the lock");
}

/// Makes two threads wait for each of the mutexes, so that one of them is behind the other.
fn two_wait_for_each(scene: &Arc<Scene>, which: Range<usize>) {
    let mut held = Some(scene.mutexes[which.start].lock());
    let threads: Vec<_> = (0..2)
        .map(|index| {
            let (scene, which) = (Arc::clone(scene), which.clone());
            spawn_on(4 * index + 2, move || {
                for at in which {
                    scene.come[index].store(at as u32 + 1, Ordering::Relaxed);
                    use_it(&scene.mutexes[at]);
                }
            })
        })
        .collect();
    for at in which.clone() {
        while scene.come.iter().any(|come| come.load(Ordering::Relaxed) as usize <= at) {
            Sim::sleep(Duration::from_micros(20));
        }
        // By now both threads have found the mutex held and have queued up.
        Sim::sleep(Duration::from_micros(40));
        // The next mutex is taken first, so that the threads find it held, too.
        let next = (at + 1 < which.end).then(|| scene.mutexes[at + 1].lock());
        drop(core::mem::replace(&mut held, next));
    }
    drop(held);
    threads.into_iter().for_each(Sim::join);
}

/// Leaves queues by cache in a mutex: the thread that waits last gives up, and no thread takes the mutex afterwards.
fn leave_queues_in(scene: &Arc<Scene>, at: usize) {
    let held = scene.mutexes[at].lock();
    let stays = Arc::clone(scene);
    let stays = spawn_on(2, move || {
        let guard = stays.mutexes[at].lock();
        // Longer than the other thread waits.
        compute(Duration::from_micros(200));
        drop(guard);
    });
    Sim::sleep(Duration::from_micros(20));
    let gives_up = Arc::clone(scene);
    let gives_up = spawn_on(6, move || {
        assert!(gives_up.mutexes[at].try_lock_for(Duration::from_micros(100)).is_none());
    });
    Sim::sleep(Duration::from_micros(40));
    drop(held);
    Sim::join(stays);
    Sim::join(gives_up);
}

/// How many mutexes have got queues by cache so far.
fn bound() -> usize {
    Statistics::of_process_in::<Sim>().bound as usize
}

#[test]
fn mutexes_beyond_the_slab_stay_plain_and_work() {
    let outcome = on("numa:2 l3:2 core:2", || {
        let mut settings = Settings::default();
        (settings.mode, settings.count, settings.yields) = (Mode::Numa, true, 0);
        settings.set_for_process_in::<Sim>();
        let scene = Scene::new(PLACES + FURTHER);
        // No thread waits for the mutexes that were contended before: their places are reused.
        two_wait_for_each(&scene, 0..PLACES + FURTHER);
        assert_eq!(bound(), PLACES + FURTHER);
        let used = Snapshot::of_process_in::<Sim>().mutexes.len();
        assert!(used < 1100, "{used} mutexes that no thread waits for use the slab");

        // Queues that are left in mutexes take all places.
        drop(scene);
        let scene = Scene::new(PLACES + FURTHER);
        (0..PLACES).for_each(|at| leave_queues_in(&scene, at));
        assert_eq!(Snapshot::of_process_in::<Sim>().mutexes.len(), PLACES);
        let before = bound();
        let further = PLACES..PLACES + FURTHER;
        two_wait_for_each(&scene, further.clone());
        assert_eq!(bound(), before);
        assert!(scene.mutexes[further].iter().all(|mutex| *mutex.lock() == (2, 2)));

        // All CPUs contend for two mutexes that have one queue, and then for one that has queues by cache.
        for (at, count) in [(PLACES, 242), (PLACES + FURTHER - 1, 242), (0, 240)] {
            assert_eq!(bound(), before);
            let threads: Vec<_> = (0..8)
                .map(|cpu| {
                    let scene = Arc::clone(&scene);
                    spawn_on(cpu, move || (0..30).for_each(|_| use_it(&scene.mutexes[at])))
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            assert_eq!(*scene.mutexes[at].lock(), (count, count));
        }

        // Places come back with their mutexes.
        drop(scene);
        let before = bound();
        two_wait_for_each(&Scene::new(FURTHER), 0..FURTHER);
        bound() - before
    });
    let warnings = outcome.warnings.iter().filter(|warning| warning.contains("which is the limit"));
    assert_eq!(warnings.count(), 1, "{}", outcome.report());
    assert_eq!(outcome.expect(), FURTHER);
}

#[test]
fn a_threshold_out_of_bounds_is_clamped_and_reported_once() {
    let outcome = on("core:2", || {
        let mut settings = Settings::default();
        settings.batch = 1_000_000;
        for _ in 0..3 {
            settings.set_for_process_in::<Sim>();
            assert_eq!(Settings::of_process_in::<Sim>().batch, 2048);
        }
        settings.quiet = 0;
        settings.batch = 0;
        settings.set_for_process_in::<Sim>();
        let settings = Settings::of_process_in::<Sim>();
        (settings.batch, settings.quiet)
    });
    let [first, second] = &outcome.warnings[..] else { panic!("two: {:?}", outcome.warnings) };
    assert!(first.contains("batch 1000000 (allowed are 5 to 2048; using 2048)"), "{first}");
    assert!(second.contains("quiet 0 (allowed are 1 to 127; using 1)"), "{second}");
    assert!(!first.contains("quiet") && !second.contains("batch"), "{outcome:?}");
    assert_eq!(outcome.expect(), (5, 1));
}
