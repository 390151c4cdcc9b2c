//! The table by itself, on Linux.

use std::collections::BTreeSet;

use nearq_platform::{Linux, ThreadSpec};

use super::*;

fn nowhere(_number: u32) {}

#[test]
fn numbers_and_places_are_the_same_thing() {
    assert_eq!((0..CHUNKS).map(size).sum::<usize>(), MOST + 1);
    for wanted in [1, 4, 5, 8, 9, 16, 17, 32_768, 32_769, 65_535] {
        let (chunk, at) = find(wanted);
        assert!(at < size(chunk), "{wanted}");
        assert_eq!(number(chunk, at), wanted);
    }
    assert_eq!((find(1), find(5), find(9)), ((0, 0), (1, 0), (2, 0)));
}

#[test]
#[cfg_attr(miri, ignore = "too many")]
fn there_are_65535_and_no_more() {
    let table = Table::<Linux>::new(nowhere);
    let all: BTreeSet<u32> = core::iter::from_fn(|| table.take_new(false)).collect();
    assert_eq!((all.len(), all.first(), all.last()), (MOST, Some(&1), Some(&65_535)));
    assert_eq!((table.count(), table.take_new(false)), (MOST, None));
    table.free(40_000);
    assert_eq!((table.take_new(false), table.take_new(false)), (Some(40_000), None));
    for number in all {
        table.free(number);
    }
    assert_eq!(table.count(), 0);
}

#[test]
fn a_thread_keeps_its_record_and_takes_another_while_it_is_in_use() {
    let thread = Linux::spawn(ThreadSpec::default(), || {
        let table = Table::<Linux>::new(nowhere);
        let own = table.take().expect("there are many");
        let second = table.take().expect("there are many");
        assert_ne!(own, second);
        table.give_back(second);
        assert_eq!(table.count(), 1);
        table.give_back(own);
        assert_eq!((table.take(), table.count()), (Some(own), 1));
        // Left in a queue: the next one is another.
        table.leave_behind(own);
        let third = table.take().expect("there are many");
        assert_ne!(third, own);
        table.free(own);
        table.give_back(third);
        assert_eq!((table.take(), table.count()), (Some(third), 1));
    });
    Linux::join(thread.expect("a thread can be created"));
}

#[test]
fn a_thread_that_ends_gives_its_record_back() {
    static ENDED: <Linux as Platform>::AtomicU32 = <<Linux as Platform>::AtomicU32>::new(0);
    fn end(number: u32) {
        ENDED.fetch_add(number, Ordering::Relaxed);
    }
    let thread = Linux::spawn(ThreadSpec::default(), || {
        let table = Table::<Linux>::new(end);
        let own = table.take().expect("there are many");
        table.give_back(own);
        assert_eq!(own, 1);
    });
    Linux::join(thread.expect("a thread can be created"));
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
}
