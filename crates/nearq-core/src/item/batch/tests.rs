//! The batch: each item comes out once, whichever thread takes it, over several fills.

use std::sync::Arc;

use nearq_platform::{Linux, LockPlatform, Platform, ThreadSpec, Threads};

use super::{Batch, CAPACITY};
use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::item::tests::{blank, pending};

struct Items<P: Platform> {
    items: Vec<Item<P>>,
    batch: Batch<P>,
}
// SAFETY: each item is on one list at a time, which the batch hands over.
unsafe impl<P: Platform> Sync for Items<P> {}
// SAFETY: nothing in it belongs to the thread that made it.
unsafe impl<P: Platform> Send for Items<P> {}

impl<P: Platform> Items<P> {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Items { items: (0..count).map(|_| blank()).collect(), batch: Batch::new() })
    }

    fn list(&self, numbers: core::ops::Range<usize>) -> List<P> {
        let mut list = List::new();
        numbers.for_each(|number| list.push_back(pending(&self.items[number])));
        list
    }

    fn number(&self, item: Pending<P>) -> usize {
        (item.into_raw().as_ptr().addr() - self.items.as_ptr().addr()) / size_of::<Item<P>>()
    }

    fn pop_all(&self) -> Vec<usize> {
        core::iter::from_fn(|| self.batch.pop()).map(|item| self.number(item)).collect()
    }

    fn steal(&self) -> Vec<usize> {
        let mut list = List::new();
        let count = self.batch.steal(&mut list, || true);
        assert_eq!(count, list.len());
        core::iter::from_fn(|| list.pop_front()).map(|item| self.number(item)).collect()
    }
}

#[test]
fn the_owner_takes_the_oldest_item_and_thieves_the_younger_half() {
    let items = Items::<Linux>::new(5);
    assert_eq!(items.batch.len(), 0);
    assert!(items.batch.pop().is_none());
    assert!(items.steal().is_empty());
    let mut list = items.list(0..5);
    assert_eq!(items.batch.fill(&mut list, 8), 5);
    assert_eq!(items.steal(), [2, 3, 4]);
    assert_eq!(items.batch.len(), 2);
    assert_eq!(items.batch.pop().map(|item| items.number(item)), Some(0));
    assert_eq!(items.steal(), [1], "a single one can be taken too");
    assert!(items.pop_all().is_empty());
}

#[test]
fn a_fill_moves_the_requested_items_up_to_the_free_space() {
    let items = Items::<Linux>::new(2 * CAPACITY);
    let mut list = items.list(0..2 * CAPACITY);
    assert_eq!(items.batch.fill(&mut list, 3), 3);
    assert_eq!(items.pop_all(), [0, 1, 2]);
    let before = items.batch.signature();
    assert_eq!(items.batch.fill(&mut list, 2 * CAPACITY), CAPACITY);
    assert_ne!(items.batch.signature(), before);
    assert_eq!(items.pop_all(), (3..3 + CAPACITY).collect::<Vec<_>>());
    assert_eq!(items.batch.fill(&mut list, 2 * CAPACITY), CAPACITY - 3);
    assert_eq!(items.pop_all().len(), CAPACITY - 3);
    assert!(list.is_empty());
}

#[test]
fn owner_and_thief_over_many_fills() {
    const ROUNDS: usize = if cfg!(miri) { 20 } else { 5_000 };
    const EACH: usize = 7;
    let items = Items::<Linux>::new(ROUNDS * EACH);
    let done = Arc::new(<Linux as LockPlatform>::AtomicU32::new(0));
    let (shared, ended) = (Arc::clone(&items), Arc::clone(&done));
    let stolen = Arc::new(nearq_lock::Mutex::<Vec<usize>>::new(Vec::new()));
    let pile = Arc::clone(&stolen);
    let thief = Linux::spawn(ThreadSpec::default(), move || {
        while ended.load(nearq_platform::Ordering::Acquire) == 0 {
            let fresh = shared.steal();
            pile.lock().extend(fresh);
        }
    })
    .expect("a thread can be started");
    let mut taken = Vec::new();
    for round in 0..ROUNDS {
        let mut list = items.list(round * EACH..(round + 1) * EACH);
        items.batch.fill(&mut list, EACH);
        taken.extend(items.pop_all());
    }
    done.store(1, nearq_platform::Ordering::Release);
    Linux::join(thief);
    taken.extend(stolen.lock().iter());
    taken.sort_unstable();
    assert_eq!(taken, (0..ROUNDS * EACH).collect::<Vec<_>>());
}

#[cfg(not(miri))]
mod modelled {
    use nearq_lock::Mutex;
    use nearq_model::Loom;
    use nearq_platform::Threads;
    use std::sync::Arc;

    use super::Items;
    use crate::item::tests::{model, spawn};

    /// The owner fills this often, each time with this many, and takes what it can; thieves steal once each.
    fn check(preemptions: usize, thieves: usize, fills: &'static [usize]) {
        model(preemptions, move || {
            let total = fills.iter().sum();
            let items = Items::<Loom>::new(total);
            let stolen = Arc::new(Mutex::<Vec<usize>, Loom>::new_in(Vec::new()));
            let threads: Vec<_> = (0..thieves)
                .map(|_| {
                    let (items, stolen) = (Arc::clone(&items), Arc::clone(&stolen));
                    spawn(move || {
                        let fresh = items.steal();
                        if !fresh.is_empty() {
                            stolen.lock().extend(fresh);
                        }
                    })
                })
                .collect();
            let mut taken = Vec::new();
            let mut first = 0;
            for count in fills {
                let mut list = items.list(first..first + count);
                assert_eq!(items.batch.fill(&mut list, *count), *count);
                first += count;
                taken.extend(items.pop_all());
            }
            threads.into_iter().for_each(Loom::join);
            taken.extend(stolen.lock().iter());
            taken.sort_unstable();
            assert_eq!(taken, (0..total).collect::<Vec<_>>(), "each item once");
        });
    }

    #[test]
    fn one_thief_through_three_fills() {
        check(3, 1, &[2, 1, 2]);
    }

    #[test]
    fn two_thieves_through_two_fills() {
        check(2, 2, &[3, 1]);
    }
}
