//! Tests of `privilege`: what the experiment does to its own threads on Linux.

use super::*;
use nearq_platform::{Linux, Threads as _};
use std::thread;

fn nice() -> i32 {
    Linux::nice(Linux::current_thread()).unwrap()
}

#[test]
fn privilege_is_given_up_for_the_thread_and_its_children_only() {
    thread::spawn(|| {
        let may = favour(-5).is_ok();
        let before = nice();
        let limit = give_up().unwrap();
        assert!(favour(-6).is_err(), "the privilege is gone");
        thread::spawn(|| assert!(favour(-7).is_err(), "the privilege is not inherited"))
            .join()
            .unwrap();
        assert_eq!(nice(), before);
        drop(limit);
        if may {
            assert_eq!(before, -5);
        }
    })
    .join()
    .unwrap();
    // Another thread still may favour itself, if the process could before.
    let may = |nice: i32| thread::spawn(move || favour(nice).is_ok()).join().unwrap();
    assert_eq!(may(-3), may(-4));
}

#[test]
fn a_favour_for_one_thread_is_not_inherited() {
    thread::spawn(|| {
        if favour_alone().is_err() {
            return;
        }
        assert_eq!(nice(), MOST_FAVOURED);
        assert_eq!(thread::spawn(nice).join().unwrap(), 0);
    })
    .join()
    .unwrap();
}
