//! The table by itself, on Linux.

use nearq_platform::{Linux, Ordering, ThreadSpec, Threads};

use super::*;

fn nowhere(_number: u32) {}

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
        // Left in a queue: the next one is a different record.
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
    static ENDED: <Linux as LockPlatform>::AtomicU32 = <<Linux as LockPlatform>::AtomicU32>::new(0);
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
