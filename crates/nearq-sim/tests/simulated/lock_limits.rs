//! More mutexes than there are places for queues by cache, on a simulated machine with several caches; and settings that nobody may
//! have.

use std::sync::Arc;
use std::time::Duration;

use nearq_lock::{Mode, Mutex, Settings, Snapshot, Statistics};
use nearq_platform::{Atomic, Ordering, Platform};
use nearq_sim::{Sim, compute};

use crate::common::{on, spawn_on};

type Word = <Sim as Platform>::AtomicU32;

/// How many mutexes may have queues by cache.
const PLACES: usize = 4095;
/// How many mutexes are fought for beside those.
const FURTHER: usize = 65;

struct Scene {
    mutexes: Vec<Mutex<(u32, u32), Sim>>,
    /// Up to which mutex each of the two has come.
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
    assert_eq!(pair.0, pair.1, "two threads were inside");
}

/// Has two threads wait for each of the mutexes, so that one of them has the other one behind it.
fn two_wait_for_each(scene: &Arc<Scene>) {
    let mut held = Some(scene.mutexes[0].lock());
    let threads: Vec<_> = (0..2)
        .map(|index| {
            let scene = Arc::clone(scene);
            spawn_on(4 * index + 2, move || {
                for (at, mutex) in scene.mutexes.iter().enumerate() {
                    scene.come[index].store(at as u32 + 1, Ordering::Relaxed);
                    use_it(mutex);
                }
            })
        })
        .collect();
    for at in 0..scene.mutexes.len() {
        while scene.come.iter().any(|come| come.load(Ordering::Relaxed) as usize <= at) {
            Sim::sleep(Duration::from_micros(20));
        }
        // By now both have found it held and have queued up.
        Sim::sleep(Duration::from_micros(40));
        // The next one first, so that they find it held, too.
        let next = scene.mutexes.get(at + 1).map(Mutex::lock);
        drop(core::mem::replace(&mut held, next));
    }
    drop(held);
    threads.into_iter().for_each(Sim::join);
}

/// How many mutexes have got queues by cache so far.
fn bound() -> usize {
    Statistics::of_process::<Sim>().bound as usize
}

#[test]
fn mutexes_beyond_the_places_stay_plain_and_work() {
    let outcome = on("numa:2 l3:2 core:2", || {
        let mut settings = Settings::default();
        (settings.mode, settings.count, settings.yields) = (Mode::Numa, true, 0);
        settings.set_for_process::<Sim>();
        let scene = Scene::new(PLACES + FURTHER);
        // Nobody waits for those that were fought for before: their places are had again.
        two_wait_for_each(&scene);
        assert_eq!(bound(), PLACES + FURTHER);
        let used = Snapshot::of_process::<Sim>().mutexes.len();
        assert!(used < 1100, "{used} mutexes that no thread waits for have places");

        // Settings of their own stay: they take all places.
        drop(scene);
        let scene = Scene::new(PLACES + FURTHER);
        for mutex in &scene.mutexes[..PLACES] {
            assert_eq!(mutex.set_settings(settings), Ok(()));
        }
        let before = bound();
        two_wait_for_each(&scene);
        assert_eq!(bound(), before);
        assert!(scene.mutexes.iter().all(|mutex| *mutex.lock() == (2, 2)));

        // All CPUs fight for one that has queues by cache, and for two that have not.
        let fought_for = [0, PLACES, PLACES + FURTHER - 1];
        for at in fought_for {
            let threads: Vec<_> = (0..8)
                .map(|cpu| {
                    let scene = Arc::clone(&scene);
                    spawn_on(cpu, move || (0..30).for_each(|_| use_it(&scene.mutexes[at])))
                })
                .collect();
            threads.into_iter().for_each(Sim::join);
            assert_eq!(*scene.mutexes[at].lock(), (242, 242));
        }
        assert_eq!(bound(), before);

        // Settings need a place too; who has one may use it for that.
        settings.mode = Mode::Plain;
        let refused = scene.mutexes[PLACES].set_settings(settings).expect_err("all are taken");
        assert!(refused.to_string().contains("4095"), "{refused}");
        assert_eq!(scene.mutexes[PLACES].settings().mode, Mode::Numa);
        assert_eq!(scene.mutexes[0].set_settings(settings), Ok(()));
        assert_eq!(scene.mutexes[0].settings().mode, Mode::Plain);
        for at in fought_for {
            use_it(&scene.mutexes[at]);
        }

        // Places come back with their mutexes.
        drop(scene);
        two_wait_for_each(&Scene::new(FURTHER));
        bound() - before
    });
    let told = outcome.warnings.iter().filter(|warning| warning.contains("no more places"));
    assert_eq!(told.count(), 1, "{}", outcome.report());
    assert_eq!(outcome.expect(), FURTHER);
}

#[test]
fn a_threshold_out_of_bounds_is_clamped_and_said_once() {
    let outcome = on("core:2", || {
        let mut settings = Settings::default();
        let mutex = Mutex::<(), Sim>::new_in(());
        settings.batch = 1_000_000;
        for _ in 0..3 {
            settings.set_for_process::<Sim>();
            mutex.set_settings(settings).expect("there is room");
            assert_eq!((Settings::of_process::<Sim>().batch, mutex.settings().batch), (2048, 2048));
        }
        settings.quiet = 0;
        settings.batch = 0;
        mutex.set_settings(settings).expect("there is room");
        (mutex.settings().batch, mutex.settings().quiet)
    });
    let [first, second] = &outcome.warnings[..] else { panic!("two: {:?}", outcome.warnings) };
    assert!(first.contains("batch 1000000 (allowed are 5 to 2048; going on with 2048)"), "{first}");
    assert!(second.contains("quiet 0 (allowed are 1 to 127; going on with 1)"), "{second}");
    assert!(!first.contains("quiet") && !second.contains("batch"), "{outcome:?}");
    assert_eq!(outcome.expect(), (5, 1));
}
