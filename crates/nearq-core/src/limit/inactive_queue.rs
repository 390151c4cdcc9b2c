//! The items that a domain holds back, by pool, and which pool comes next. Private to the activator (`node_active`).
//!
//! Pools take turns. What is held back for one pool starts in the order in which it was queued, even if a flush has led its issuers from
//! one pwq to another (`flush`): the older pwq's items come first.
//!
//! # Older first
//! A thread queues A on the old pwq, then B on the new one. A worker that takes B must find A, so the newer pwq's inbox is taken first. A
//! was there before B, hence before B was taken, and the older inbox is taken after that. If a pwq comes into use again meanwhile, what
//! was newer is now older. Its age is written before any thread can queue there. So if the ages are unchanged after everything was taken,
//! they were right; otherwise everything is taken once more, and A with it.

use nearq_platform::Platform;

use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::limit::node_active::NodeActive;
use crate::limit::pool_workqueue::PoolWorkqueue;
use crate::pool::Pool;

/// What was taken off the inactive inboxes, by pool, and which pool has the next turn.
pub(crate) struct InactiveQueue<P: Platform> {
    pools: Vec<OfPool<P>>,
    next: usize,
    /// The newest pwq that is in `pools`; older ones are as well, except those from the first retired one on.
    known: *const PoolWorkqueue<P>,
    retired: *const PoolWorkqueue<P>,
    items: usize,
    /// Pwqs on which something was admitted while a thread watched them.
    pub(crate) watched: Vec<*const PoolWorkqueue<P>>,
}

/// Where an item was taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pool: usize,
    pwq: usize,
}

/// The pwqs of one pool, newest first.
struct OfPool<P: Platform> {
    pool: *const Pool<P>,
    pwqs: Vec<OfPwq<P>>,
}

struct OfPwq<P: Platform> {
    /// The age, as last read.
    age: u64,
    pwq: *const PoolWorkqueue<P>,
    list: List<P>,
}

// SAFETY: the pwqs live as long as the queue that owns this; the lists own their items.
unsafe impl<P: Platform> Send for InactiveQueue<P> {}

impl<P: Platform> InactiveQueue<P> {
    pub(crate) fn new() -> Self {
        InactiveQueue {
            pools: Vec::new(),
            next: 0,
            known: core::ptr::null(),
            retired: core::ptr::null(),
            items: 0,
            watched: Vec::new(),
        }
    }

    /// Whether nothing is left of what was collected.
    pub(crate) fn is_empty(&self) -> bool {
        self.items == 0
    }

    /// Takes what is on the inactive inboxes of the domain's pwqs.
    pub(crate) fn collect(&mut self, node_active: &NodeActive<P>) {
        self.learn(node_active);
        self.items += self.pools.iter_mut().map(OfPool::collect).sum::<usize>();
    }

    /// Adds new pwqs, and drops retired ones.
    fn learn(&mut self, node_active: &NodeActive<P>) {
        let line = node_active.line();
        let retired = node_active.first_retired();
        if retired != self.retired {
            self.retired = retired;
            self.forget_retired(line);
        }
        let known = self.known;
        let mut pwqs = node_active.pwqs().peekable();
        if known.is_null() {
            if let Some(line) = line.filter(|line| line.is_gone()) {
                self.add(line);
            }
        }
        self.known = pwqs.peek().map_or(core::ptr::null(), |pwq| core::ptr::from_ref(*pwq));
        pwqs.take_while(|pwq| !core::ptr::eq(*pwq, known)).for_each(|pwq| self.add(pwq));
    }

    fn add(&mut self, pwq: &PoolWorkqueue<P>) {
        let pool = std::sync::Arc::as_ptr(&pwq.pool);
        let new = OfPwq { age: 0, pwq, list: List::new() };
        match self.pools.iter_mut().find(|known| core::ptr::eq(known.pool, pool)) {
            Some(known) => known.pwqs.push(new),
            None => self.pools.push(OfPool { pool, pwqs: vec![new] }),
        }
    }

    /// Drops the pwqs that receive no more items. In an ordered queue, the `line` receives all items.
    fn forget_retired(&mut self, line: Option<&PoolWorkqueue<P>>) {
        let line = line.map_or(core::ptr::null(), core::ptr::from_ref);
        for pool in &mut self.pools {
            pool.pwqs.retain(|of| {
                core::ptr::eq(of.pwq, line) || !of.pwq().is_gone() || !of.list.is_empty()
            });
        }
        self.pools.retain(|pool| !pool.pwqs.is_empty());
    }

    /// The number of items that were collected and are still here.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = *const Item<P>> {
        self.pools.iter().flat_map(|pool| pool.pwqs.iter().flat_map(|pwq| pwq.list.nodes()))
    }

    /// The first item of the next pool that has one.
    pub(crate) fn pop(&mut self) -> Option<(Source, Pending<P>)> {
        for _ in 0..self.pools.len() {
            self.next = (self.next + 1) % self.pools.len();
            let pwqs = self.pools[self.next].pwqs.iter_mut().enumerate().rev();
            for (pwq, of) in pwqs {
                if let Some(item) = of.list.pop_front() {
                    self.items -= 1;
                    return Some((Source { pool: self.next, pwq }, item));
                }
            }
        }
        None
    }

    /// Undoes the last `pop`.
    pub(crate) fn put_back(&mut self, place: Source, item: Pending<P>) {
        self.pools[place.pool].pwqs[place.pwq].list.push_front(item);
        self.items += 1;
        self.next = (place.pool + self.pools.len() - 1) % self.pools.len();
    }

    /// Takes out the items that were cancelled.
    pub(crate) fn take_stale(&mut self) -> List<P> {
        let mut stale = List::new();
        for of in self.pools.iter_mut().flat_map(|pool| &mut pool.pwqs) {
            for _ in 0..of.list.len() {
                let item = of.list.pop_front().expect("as many as it has");
                if item.is_stale() {
                    self.items -= 1;
                    stale.push_back(item);
                } else {
                    of.list.push_back(item);
                }
            }
        }
        stale
    }
}

impl<P: Platform> OfPool<P> {
    /// Takes what is on the pwqs' inboxes; returns how many items that was.
    fn collect(&mut self) -> usize {
        if let [only] = &mut self.pwqs[..] {
            return only.collect();
        }
        let mut items = 0;
        loop {
            self.pwqs.iter_mut().for_each(|of| of.age = of.pwq().age());
            self.pwqs.sort_by_key(|of| core::cmp::Reverse(of.age));
            // A thread that takes an item acquires what was written before it was pushed: an age that has changed, and older items.
            items += self.pwqs.iter_mut().map(OfPwq::collect).sum::<usize>();
            if self.pwqs.iter().all(|of| of.age == of.pwq().age()) {
                return items;
            }
        }
    }
}

impl<P: Platform> OfPwq<P> {
    fn pwq(&self) -> &PoolWorkqueue<P> {
        // SAFETY: pwqs live as long as the queue, which keeps this.
        unsafe { &*self.pwq }
    }

    fn collect(&mut self) -> usize {
        let mut fresh = self.pwq().inactive.take_all();
        let items = fresh.len();
        self.list.append(&mut fresh);
        items
    }
}
