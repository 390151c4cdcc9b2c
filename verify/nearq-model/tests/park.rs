//! The platform's own promises, and the parker, through every interleaving.

use std::sync::Arc;

use nearq_model::Loom;
use nearq_platform::{
    Atomic, Instant, LockPlatform, Ordering, Parker, Placement, PlatformCell, ThreadSpec, Threads,
    Wait,
};

type AtomicU32 = <Loom as LockPlatform>::AtomicU32;
type Watched = <Loom as Threads>::Cell<u32>;

fn spawn(main: impl FnOnce() + Send + 'static) -> <Loom as Threads>::JoinHandle {
    Loom::spawn(ThreadSpec::default(), main).expect("the model spawns")
}

struct Shared<T>(T);
// SAFETY: the cells inside are written by one thread before it unparks the other, which reads after; the model
// reports it if that is not so.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: what is inside belongs to no thread, and is dropped by the last that has it; the model reports it if that is too early.
unsafe impl<T> Send for Shared<T> {}

#[test]
fn a_wake_up_after_the_change_is_never_lost() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = Arc::clone(&word);
        let waker = spawn(move || {
            theirs.store(1, Ordering::Relaxed);
            Loom::wake(&raw const *theirs, 1);
        });
        while word.load(Ordering::Relaxed) == 0 {
            Loom::wait(&word, 0, None);
        }
        Loom::join(waker);
        assert_eq!(Loom::wait(&word, 0, None), Wait::Changed);
    });
}

#[test]
fn park_returns_once_per_permit_and_sees_what_was_written() {
    loom::model(|| {
        let shared = Arc::new(Shared((Parker::<Loom>::new(), Watched::new(0))));
        let theirs = Arc::clone(&shared);
        let other = spawn(move || {
            let Shared((parker, cell)) = &*theirs;
            // SAFETY: the reader comes after the permit.
            cell.with_mut(|value| unsafe { *value = 7 });
            parker.unpark();
        });
        let Shared((parker, cell)) = &*shared;
        // The deadline never comes in the model: only the permit ends this.
        assert!(parker.park(Some(Instant::from_nanos(1))));
        // SAFETY: the writer wrote before the permit.
        assert_eq!(cell.with(|value| unsafe { *value }), 7);
        Loom::join(other);
    });
}

#[test]
fn two_unparkers_wake_one_sleeper() {
    loom::model(|| {
        let parker = Arc::new(Parker::<Loom>::new());
        let others = [(); 2].map(|()| {
            let parker = Arc::clone(&parker);
            spawn(move || parker.unpark())
        });
        assert!(parker.park(None));
        others.into_iter().for_each(Loom::join);
    });
}

#[test]
fn slots_and_cpus_belong_to_threads() {
    loom::model(|| {
        let value = 3_u32;
        Loom::set_slot((&raw const value).cast());
        Loom::set_current_cpu(2);
        let other = spawn(|| {
            assert!(Loom::slot().is_null());
            assert_eq!(Loom::current_cpu(), 0);
        });
        Loom::join(other);
        assert_eq!(Loom::slot(), (&raw const value).cast());
        assert_eq!(Loom::current_cpu(), 2);
    });
}

#[test]
fn the_machine_has_two_caches() {
    let machine = Loom::machine().expect("the description is constant");
    assert_eq!(machine.topology.cpus().len(), 4);
    assert_eq!(machine.limits.parallelism(), 4);
}

#[test]
fn deadlines_come_where_a_thread_says_so_and_before_no_change() {
    loom::model(|| {
        let word = Arc::new(AtomicU32::new(0));
        let theirs = Arc::clone(&word);
        let other = spawn(move || {
            // Deadlines do not come in this thread: only the wake-up ends the wait.
            while theirs.load(Ordering::Relaxed) == 0 {
                assert_ne!(Loom::wait(&theirs, 0, Some(Loom::now())), Wait::TimedOut);
            }
        });
        Loom::set_deadlines_come(true);
        assert_eq!(Loom::wait(&word, 0, Some(Loom::now())), Wait::TimedOut);
        word.store(1, Ordering::Relaxed);
        assert_eq!(Loom::wait(&word, 0, Some(Loom::now())), Wait::Changed);
        Loom::wake(&raw const *word, 1);
        Loom::join(other);
    });
}
