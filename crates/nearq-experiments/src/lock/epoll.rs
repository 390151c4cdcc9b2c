//! The lock of an epoll instance, as `perf bench epoll` uses it: some threads put their own items on one ready list, others
//! take what is there, all under one lock.
//!
//! Even writers add, odd ones wait; a single one does either in turn. An item that is on the list already is only noted, as an
//! event that comes again before anybody fetched the first is.
//!
//! Everything but the lock is under the lock. Items and list are made of the platform's atomics, so that a simulated machine
//! charges for their lines, and are read and written in separate steps, so that two threads inside would break them.

use super::contestant::Exclusive;
use super::load::Plan;
use super::run::Shape;
use super::{Line, bump};
use crate::harness::Host;
use nearq_platform::{Atomic as _, Ordering};

/// Items of each thread, as many as `perf bench epoll` has descriptors for each.
const ITEMS: usize = 64;

/// An item is named by its index plus one; 0 is none.
struct Item<P: Host> {
    next: P::AtomicU32,
    ready: P::AtomicU32,
    /// Events that came while it was ready.
    again: P::AtomicU64,
}

struct List<P: Host> {
    first: P::AtomicU32,
    last: P::AtomicU32,
    added: P::AtomicU64,
    taken: P::AtomicU64,
    calls: P::AtomicU64,
}

/// The instance.
pub(super) struct Epoll<P: Host, L> {
    lock: Line<L>,
    list: Line<List<P>>,
    items: Vec<Line<Item<P>>>,
    writers: usize,
}

impl<P: Host, L: Exclusive> Epoll<P, L> {
    fn item(&self, name: u32) -> &Item<P> {
        &self.items[name as usize - 1].0
    }

    /// Under the lock: an event of that item.
    fn add(&self, name: u32) {
        let (list, item) = (&self.list.0, self.item(name));
        if item.ready.load(Ordering::Relaxed) != 0 {
            bump::<P>(&item.again);
            return;
        }
        item.ready.store(1, Ordering::Relaxed);
        item.next.store(0, Ordering::Relaxed);
        match list.last.load(Ordering::Relaxed) {
            0 => list.first.store(name, Ordering::Relaxed),
            last => self.item(last).next.store(name, Ordering::Relaxed),
        }
        list.last.store(name, Ordering::Relaxed);
        bump::<P>(&list.added);
    }

    /// Under the lock: the next event, if there is one.
    fn take(&self) {
        let list = &self.list.0;
        let first = list.first.load(Ordering::Relaxed);
        if first == 0 {
            return;
        }
        let item = self.item(first);
        let next = item.next.load(Ordering::Relaxed);
        list.first.store(next, Ordering::Relaxed);
        if next == 0 {
            list.last.store(0, Ordering::Relaxed);
        }
        item.ready.store(0, Ordering::Relaxed);
        bump::<P>(&list.taken);
    }
}

impl<P: Host, L: Exclusive> Shape<P> for Epoll<P, L> {
    fn new(plan: &Plan) -> Self {
        let item = |_| {
            Line(Item {
                next: P::AtomicU32::new(0),
                ready: P::AtomicU32::new(0),
                again: P::AtomicU64::new(0),
            })
        };
        let count = || P::AtomicU64::new(0);
        let list = List {
            first: P::AtomicU32::new(0),
            last: P::AtomicU32::new(0),
            added: count(),
            taken: count(),
            calls: count(),
        };
        Self {
            lock: Line(L::free()),
            list: Line(list),
            items: (0..plan.writers * ITEMS).map(item).collect(),
            writers: plan.writers,
        }
    }

    #[inline]
    fn step(&self, writer: usize, turn: u64, acquired: impl FnOnce()) {
        let waits = if self.writers == 1 { turn % 2 == 1 } else { writer % 2 == 1 };
        let own = writer * ITEMS + turn as usize % ITEMS + 1;
        self.lock.0.with(|| {
            acquired();
            bump::<P>(&self.list.0.calls);
            if waits { self.take() } else { self.add(own as u32) }
        });
    }

    fn verify(&self, entered: &[u64]) -> Result<(), String> {
        let list = &self.list.0;
        // Relaxed, all: everybody has ended.
        let [added, taken, calls] =
            [&list.added, &list.taken, &list.calls].map(|count| count.load(Ordering::Relaxed));
        let expected: u64 = entered.iter().sum();
        if calls != expected {
            return Err(format!("{expected} calls were made and {calls} are known"));
        }
        let (mut left, mut name) = (0, list.first.load(Ordering::Relaxed));
        while name != 0 && left <= self.items.len() as u64 {
            if self.item(name).ready.load(Ordering::Relaxed) == 0 {
                return Err(format!("item {name} is on the list and not ready"));
            }
            left += 1;
            name = self.item(name).next.load(Ordering::Relaxed);
        }
        let ready =
            self.items.iter().filter(|item| item.0.ready.load(Ordering::Relaxed) != 0).count()
                as u64;
        if added.wrapping_sub(taken) != left || ready != left {
            return Err(format!(
                "{added} items were added and {taken} taken, {left} are on the list and {ready} say so"
            ));
        }
        Ok(())
    }
}
