//! The inbox: nothing is lost, and each pusher's items come out in its order.

use std::sync::Arc;

use nearq_platform::{Linux, LockPlatform, Platform, ThreadSpec, Threads};

use super::Inbox;
use crate::item::Item;
use crate::item::tests::{blank, pending};

struct Items<P: Platform>(Vec<Item<P>>, Inbox<P>);
// SAFETY: the items are pushed by one thread each and taken by one; the vector does not change.
unsafe impl<P: Platform> Sync for Items<P> {}
// SAFETY: nothing in it belongs to the thread that made it.
unsafe impl<P: Platform> Send for Items<P> {}

impl<P: Platform> Items<P> {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Items((0..count).map(|_| blank()).collect(), Inbox::new()))
    }

    fn push(&self, number: usize) {
        self.1.push(pending(&self.0[number]));
    }

    fn take(&self, into: &mut Vec<usize>) {
        let mut list = self.1.take_all();
        while let Some(item) = list.pop_front() {
            into.push(
                self.0
                    .iter()
                    .position(|node| core::ptr::eq(node, &raw const *item))
                    .expect("the node is one of the list"),
            );
        }
    }
}

#[test]
fn items_are_popped_in_push_order() {
    let items = Items::<Linux>::new(4);
    assert!(items.1.is_empty());
    (0..4).for_each(|number| items.push(number));
    assert!(!items.1.is_empty());
    let mut taken = Vec::new();
    items.take(&mut taken);
    assert_eq!(taken, [0, 1, 2, 3]);
    assert!(items.1.is_empty());
    items.take(&mut taken);
    assert_eq!(taken.len(), 4);
}

#[test]
fn two_threads_push_and_one_takes() {
    const EACH: usize = if cfg!(miri) { 30 } else { 20_000 };
    let items = Items::<Linux>::new(2 * EACH);
    let pushers = [0, EACH].map(|first| {
        let items = Arc::clone(&items);
        let main = move || (first..first + EACH).for_each(|number| items.push(number));
        Linux::spawn(ThreadSpec::default(), main).expect("a thread can be started")
    });
    let mut taken = Vec::new();
    let mut order = Vec::new();
    while taken.len() < 2 * EACH {
        let mut list = items.1.take_all();
        while let Some(item) = list.pop_front() {
            taken.push(item);
        }
        Linux::yield_now();
    }
    pushers.into_iter().for_each(Linux::join);
    let base = items.0.as_ptr().addr();
    order.extend(
        taken.iter().map(|item| (item.as_raw().as_ptr().addr() - base) / size_of::<Item<Linux>>()),
    );
    for half in [0..EACH, EACH..2 * EACH] {
        let popped: Vec<_> = order.iter().copied().filter(|number| half.contains(number)).collect();
        assert_eq!(popped, half.collect::<Vec<_>>(), "a pusher's items in its order");
    }
}

#[test]
#[cfg(not(miri))]
fn through_every_interleaving() {
    use nearq_model::Loom;

    crate::item::tests::model(3, || {
        let items = Items::<Loom>::new(4);
        let pushers = [0, 2].map(|first| {
            let items = Arc::clone(&items);
            crate::item::tests::spawn(move || {
                items.push(first);
                items.push(first + 1);
            })
        });
        let mut taken = Vec::new();
        items.take(&mut taken);
        pushers.into_iter().for_each(Loom::join);
        items.take(&mut taken);
        let place =
            |number| taken.iter().position(|taken| *taken == number).expect("nothing is lost");
        assert!(place(0) < place(1) && place(2) < place(3));
        assert_eq!(taken.len(), 4);
    });
}
