//! Mutexes with settings and statistics of their own.

use std::sync::Arc;

use nearq_lock::{Mode, Mutex, Settings, Statistics};
use nearq_platform::{Linux, Platform, ThreadSpec};

use crate::alone;

fn counted(mode: Mode) -> Settings {
    let mut settings = Settings::default();
    (settings.mode, settings.count) = (mode, true);
    settings
}

#[test]
fn each_acquisition_is_counted_at_its_own_mutex() {
    let _alone = alone();
    let (threads, rounds) = if cfg!(miri) { (2, 20) } else { (4, 5000) };
    for mode in [Mode::Off, Mode::Plain, Mode::Auto, Mode::Numa] {
        let (watched, plain) = (Arc::new(Mutex::<u64>::new(0)), Arc::new(Mutex::<u64>::new(0)));
        watched.set_settings(counted(mode)).unwrap();
        let running: Vec<_> = (0..threads)
            .map(|_| {
                let (watched, plain) = (Arc::clone(&watched), Arc::clone(&plain));
                let main = move || {
                    for round in 0..rounds {
                        match round % 3 {
                            0 => while watched.try_lock().map(|mut guard| *guard += 1).is_none() {},
                            _ => *watched.lock() += 1,
                        }
                        *plain.lock() += 1;
                    }
                };
                Linux::spawn(ThreadSpec::default(), main).unwrap()
            })
            .collect();
        running.into_iter().for_each(Linux::join);
        let counted = watched.statistics().unwrap();
        assert_eq!(counted.acquisitions, threads * rounds, "{mode:?}");
        assert!(counted.contended >= counted.in_turn, "{mode:?} {counted:?}");
        assert_eq!(plain.statistics(), None, "it was not asked for");
        assert_eq!((*watched.lock(), *plain.lock()), (threads * rounds, threads * rounds));
    }
}

#[test]
fn settings_of_one_mutex_are_its_own() {
    let _alone = alone();
    let (one, other) = (Mutex::<()>::new(()), Mutex::<()>::new(()));
    let process = Settings::of_process::<Linux>();
    let mut own = counted(Mode::Off);
    own.batch = 7;
    one.set_settings(own).unwrap();
    assert_eq!((one.settings(), other.settings()), (own, process));
    assert_eq!(Settings::of_process::<Linux>(), process);
    // Out of bounds: clamped.
    own.batch = 0;
    one.set_settings(own).unwrap();
    assert_eq!(one.settings().batch, 5);
    // They can be read while it is held, and do not count any more if that is taken back.
    own.count = false;
    one.set_settings(own).unwrap();
    let guard = one.lock();
    assert_eq!((one.settings().count, one.statistics()), (false, None));
    drop(guard);
}

#[test]
fn there_is_room_for_4095_and_a_place_comes_back_with_its_mutex() {
    let _alone = alone();
    let count = if cfg!(miri) { 70 } else { 4095 };
    let all: Vec<Mutex<()>> = (0..count).map(|_| Mutex::new(())).collect();
    for mutex in &all {
        mutex.set_settings(counted(Mode::Auto)).unwrap();
        drop(mutex.lock());
    }
    let late = Mutex::<()>::new(());
    if !cfg!(miri) {
        let refused = late.set_settings(counted(Mode::Auto)).unwrap_err().to_string();
        assert!(refused.contains("4095"), "{refused}");
        drop(late.lock());
    }
    drop(all);
    late.set_settings(counted(Mode::Auto)).unwrap();
    // What the one before counted is gone.
    let expected = Statistics::default();
    assert_eq!(late.statistics().unwrap(), expected);
    drop(late.lock());
    assert_eq!(late.statistics().unwrap().acquisitions, 1);
}

#[test]
fn settings_stay_in_a_mutex_that_is_made_anew() {
    let _alone = alone();
    let mutex = Mutex::<u32>::new(1);
    mutex.set_settings(counted(Mode::Plain)).unwrap();
    core::mem::forget(mutex.lock());
    // SAFETY: nobody else uses it, and the guard is forgotten; as the child of a fork does.
    unsafe { mutex.renew(2) };
    assert_eq!((*mutex.lock(), mutex.settings()), (2, counted(Mode::Plain)));
}
