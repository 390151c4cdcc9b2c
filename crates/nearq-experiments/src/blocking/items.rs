//! The items of a run, the same for every contestant: each computes, and some of them are blocked half-way.

use super::ways::Block;
use crate::Error;
use crate::harness::Host;
use nearq_platform::{Atomic, AtomicInt, Ordering, Parker};
use std::sync::{Arc, OnceLock};

/// What the items of a run share.
pub struct Items<P: Host> {
    count: usize,
    /// What an item computes.
    rounds: u64,
    /// One item in so many is blocked; 0 is none.
    every: usize,
    block: Arc<dyn Block>,
    /// Items that have not ended.
    left: P::AtomicU64,
    /// Where the issuer waits for the last one.
    done: Parker<P>,
    /// What went wrong first.
    failure: OnceLock<String>,
}

impl<P: Host> std::fmt::Debug for Items<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Items").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<P: Host> Items<P> {
    /// So many items, of which none has run.
    pub fn new(count: usize, rounds: u64, every: usize, block: Arc<dyn Block>) -> Self {
        let (left, done) = (P::AtomicU64::new(count as u64), Parker::new());
        Self { count, rounds, every, block, left, done, failure: OnceLock::new() }
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Whether that item is blocked half-way.
    pub fn blocks(&self, number: usize) -> bool {
        self.every != 0 && number.is_multiple_of(self.every)
    }

    /// Runs an item.
    pub fn run(&self, number: usize) {
        self.run_around(number, |block| block());
    }

    /// Runs an item; `around` is called with what blocks, if this one is blocked, and calls it.
    pub fn run_around(&self, number: usize, around: impl FnOnce(&dyn Fn())) {
        if self.blocks(number) {
            P::compute(self.rounds / 2);
            around(&|| {
                if let Err(error) = self.block.block() {
                    let _ = self.failure.set(error.to_string());
                }
            });
            P::compute(self.rounds - self.rounds / 2);
        } else {
            P::compute(self.rounds);
        }
        // AcqRel: whoever ends last has seen the others' failures, and the issuer sees them through the parker.
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.done.unpark();
        }
    }

    /// Waits for the last one. By the issuer alone.
    pub fn wait(&self) -> Result<(), Error> {
        let mut before = self.left.load(Ordering::Acquire);
        while before != 0 && !self.done.park(Some(P::now() + P::LOST_AFTER)) {
            let left = self.left.load(Ordering::Acquire);
            if left == before && left != 0 {
                return Err(Error::run(format!(
                    "{left} of {} items have not ended, and none has for {} s",
                    self.count,
                    P::LOST_AFTER.as_secs()
                )));
            }
            before = left;
        }
        match self.failure.get() {
            None => Ok(()),
            Some(failure) => Err(Error::run(format!("an item could not be blocked: {failure}"))),
        }
    }
}

#[cfg(test)]
mod tests {
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
    fn one_item_in_so_many_is_blocked_and_the_last_one_ends_the_wait() {
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
        assert_eq!(error.to_string(), "an item could not be blocked: no descriptors left");
    }
}
