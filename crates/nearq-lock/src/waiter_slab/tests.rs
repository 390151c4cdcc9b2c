//! The slab by itself, on Linux.

use nearq_platform::{Linux, Ordering, ThreadSpec, Threads};

use super::*;

fn nowhere(_number: u32) {}

#[test]
fn a_thread_keeps_its_record_and_takes_another_while_it_is_in_use() {
    let thread = Linux::spawn(ThreadSpec::default(), || {
        let waiters = WaiterSlab::<Linux>::new(nowhere);
        let first = waiters.take().expect("a record is free");
        let second = waiters.take().expect("a record is free");
        assert_ne!(first, second);
        waiters.give_back(second);
        assert_eq!(waiters.count(), 1);
        waiters.give_back(first);
        assert_eq!((waiters.take(), waiters.count()), (Some(first), 1));
        // Left in a queue: the next one is a different record.
        waiters.leave_behind(first);
        let third = waiters.take().expect("a record is free");
        assert_ne!(third, first);
        waiters.free(first);
        waiters.give_back(third);
        assert_eq!((waiters.take(), waiters.count()), (Some(third), 1));
    });
    Linux::join(thread.expect("a thread can be created"));
}

#[test]
fn an_exiting_thread_returns_its_record() {
    static ENDED: <Linux as LockPlatform>::AtomicU32 = <<Linux as LockPlatform>::AtomicU32>::new(0);
    fn end(number: u32) {
        ENDED.fetch_add(number, Ordering::Relaxed);
    }
    let thread = Linux::spawn(ThreadSpec::default(), || {
        let waiters = WaiterSlab::<Linux>::new(end);
        let first = waiters.take().expect("a record is free");
        waiters.give_back(first);
        assert_eq!(first, 1);
    });
    Linux::join(thread.expect("a thread can be created"));
    assert_eq!(ENDED.load(Ordering::Relaxed), 1);
}
