//! Tests of `shapes`: a tree of directories in memory, and what fxmark's MWRM and MWUM do with it.

use super::*;
use nearq_lock::Mutex;
use nearq_platform::Linux;

type Lock = Mutex<(), Linux>;

/// Makes turns of two writers, and says how many of each.
fn turns(step: impl Fn(usize, u64), turns: [u64; 2]) -> Vec<u64> {
    for turn in 0..turns[0].max(turns[1]) {
        for writer in [0, 1] {
            if turn < turns[writer] {
                step(writer, turn);
            }
        }
    }
    turns.to_vec()
}

#[test]
fn files_are_in_the_folders_of_their_writers() {
    for made in [[1, 1], [3, 4], [5, 9], [103, 64]] {
        let renames = Renames::<Linux, Lock>::new(&Plan::for_test(2));
        let entered = turns(|writer, turn| renames.step(writer, turn, || ()), made);
        assert_eq!(renames.verify(&entered), Ok(()), "{made:?}");
        let unlinks = Unlinks::<Linux, Lock>::new(&Plan::for_test(2));
        let entered = turns(|writer, turn| unlinks.step(writer, turn, || ()), made);
        assert_eq!(unlinks.verify(&entered), Ok(()), "{made:?}");
    }
}

#[test]
fn a_lost_change_is_detected() {
    let renames = Renames::<Linux, Lock>::new(&Plan::for_test(2));
    let entered = turns(|writer, turn| renames.step(writer, turn, || ()), [6, 6]);
    assert!(renames.verify(&[7, 6]).unwrap_err().contains("and know of"));
    let moved = &renames.0.files[0].0;
    moved.home.store(2, Ordering::Relaxed);
    assert!(renames.verify(&entered).unwrap_err().contains("file 0 is in directory"));
    moved.next.store(1, Ordering::Relaxed);
    assert!(renames.verify(&entered).unwrap_err().contains("file 0 is in a chain"));

    let unlinks = Unlinks::<Linux, Lock>::new(&Plan::for_test(2));
    let entered = turns(|writer, turn| unlinks.step(writer, turn, || ()), [3, 0]);
    bump::<Linux>(&unlinks.0.directories[SHARED].head.0.entries);
    assert!(unlinks.verify(&entered).unwrap_err().contains("knows of"));
}

#[test]
fn names_are_spread_and_touches_counted() {
    let chains: std::collections::BTreeSet<usize> =
        (0..256).map(|file| chain_of(name_of(file, 7))).collect();
    assert!(chains.len() > CHAINS / 2, "{}", chains.len());
    assert_eq!([0, 1, 2, 3].map(|file| touches(6, file)), [2, 2, 1, 1]);
}
