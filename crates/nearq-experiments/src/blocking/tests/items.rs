//! Tests of `load`: the items of a run, the same for every contestant.

use super::*;
use nearq_platform::Linux;
use std::io;
use std::sync::atomic::AtomicUsize;

struct Counts(AtomicUsize, bool);

impl Block for Counts {
    fn block(&self) -> io::Result<()> {
        self.0.fetch_add(1, Ordering::Relaxed);
        if self.1 { Ok(()) } else { Err(io::Error::other("no descriptors left")) }
    }
}

#[test]
fn every_nth_item_blocks_and_the_last_item_ends_the_wait() {
    let block = Arc::new(Counts(AtomicUsize::new(0), true));
    let items = Items::<Linux>::new(65, 2, 32, Arc::clone(&block) as Arc<dyn Block>);
    let hinted = AtomicUsize::new(0);
    for number in 0..65 {
        items.run_around(number, |block| {
            hinted.fetch_add(1, Ordering::Relaxed);
            block();
        });
    }
    items.wait().unwrap();
    assert_eq!((block.0.load(Ordering::Relaxed), hinted.load(Ordering::Relaxed)), (3, 3));
}

#[test]
fn an_item_that_cannot_be_blocked_fails_the_run() {
    let items = Items::<Linux>::new(1, 2, 1, Arc::new(Counts(AtomicUsize::new(0), false)));
    items.run(0);
    let error = items.wait().unwrap_err();
    assert_eq!(error.to_string(), "an item could not block: no descriptors left");
}
