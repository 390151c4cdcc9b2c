//! Which pool has the next turn among what a domain holds back. Private to the activator (`admission`).
//!
//! Pools take turns. What is held back for one pool starts in the order in which it was queued, even if a flush has led its issuers from
//! one link to another (`flush`): the older link's items come first.
//!
//! # Older first
//! A thread queues A on the old link, then B on the new one. A worker that takes B must find A, so the newer link's inbox is taken first. A
//! was there before B, hence before B was taken, and the older inbox is taken after that. If a link comes into use again meanwhile, what
//! was newer is now older. Its age is written before any thread can queue there. So if the ages are unchanged after everything was taken,
//! they were right; otherwise everything is taken once more, and A with it.

use nearq_platform::Platform;

use crate::item::Item;
use crate::item::list::List;
use crate::item::owned::Pending;
use crate::limit::admission::Admission;
use crate::limit::link::Link;
use crate::pool::Pool;

/// What was taken off the inactive inboxes, by pool, and which pool has the next turn.
pub(crate) struct Turn<P: Platform> {
    pools: Vec<OfPool<P>>,
    next: usize,
    /// The newest link that is in `pools`; older ones are as well, except those from the first retired one on.
    known: *const Link<P>,
    retired: *const Link<P>,
    items: usize,
    /// Links on which something was admitted while a thread watched them.
    pub(crate) watched: Vec<*const Link<P>>,
}

/// Where an item was taken from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pool: usize,
    link: usize,
}

/// The links of one pool, newest first.
struct OfPool<P: Platform> {
    pool: *const Pool<P>,
    links: Vec<OfLink<P>>,
}

struct OfLink<P: Platform> {
    /// As last read.
    age: u64,
    link: *const Link<P>,
    list: List<P>,
}

// SAFETY: the links live as long as the queue that owns this; the lists own their items.
unsafe impl<P: Platform> Send for Turn<P> {}

impl<P: Platform> Turn<P> {
    pub(crate) fn new() -> Self {
        Turn {
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

    /// Takes what is on the inactive inboxes of the domain's links.
    pub(crate) fn collect(&mut self, admission: &Admission<P>) {
        self.learn(admission);
        self.items += self.pools.iter_mut().map(OfPool::collect).sum::<usize>();
    }

    /// Adds the links that are new, and drops those that are retired.
    fn learn(&mut self, admission: &Admission<P>) {
        let line = admission.line();
        let retired = admission.first_retired();
        if retired != self.retired {
            self.retired = retired;
            self.forget_retired(line);
        }
        let known = self.known;
        let mut links = admission.links().peekable();
        if known.is_null()
            && let Some(line) = line.filter(|line| line.is_gone())
        {
            self.add(line);
        }
        self.known = links.peek().map_or(core::ptr::null(), |link| core::ptr::from_ref(*link));
        links.take_while(|link| !core::ptr::eq(*link, known)).for_each(|link| self.add(link));
    }

    fn add(&mut self, link: &Link<P>) {
        let pool = std::sync::Arc::as_ptr(&link.pool);
        let new = OfLink { age: 0, link, list: List::new() };
        match self.pools.iter_mut().find(|known| core::ptr::eq(known.pool, pool)) {
            Some(known) => known.links.push(new),
            None => self.pools.push(OfPool { pool, links: vec![new] }),
        }
    }

    /// Drops links to which nothing comes any more. Everything comes to the `line` of an ordered queue.
    fn forget_retired(&mut self, line: Option<&Link<P>>) {
        let line = line.map_or(core::ptr::null(), core::ptr::from_ref);
        for pool in &mut self.pools {
            pool.links.retain(|of| {
                core::ptr::eq(of.link, line) || !of.link().is_gone() || !of.list.is_empty()
            });
        }
        self.pools.retain(|pool| !pool.links.is_empty());
    }

    /// What was collected and is still there.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = *const Item<P>> {
        self.pools.iter().flat_map(|pool| pool.links.iter().flat_map(|link| link.list.nodes()))
    }

    /// The first item of the next pool that has one.
    pub(crate) fn pop(&mut self) -> Option<(Place, Pending<P>)> {
        for _ in 0..self.pools.len() {
            self.next = (self.next + 1) % self.pools.len();
            let links = self.pools[self.next].links.iter_mut().enumerate().rev();
            for (link, of) in links {
                if let Some(item) = of.list.pop_front() {
                    self.items -= 1;
                    return Some((Place { pool: self.next, link }, item));
                }
            }
        }
        None
    }

    /// Undoes the last `pop`.
    pub(crate) fn put_back(&mut self, place: Place, item: Pending<P>) {
        self.pools[place.pool].links[place.link].list.push_front(item);
        self.items += 1;
        self.next = (place.pool + self.pools.len() - 1) % self.pools.len();
    }

    /// Takes what was cancelled.
    pub(crate) fn take_stale(&mut self) -> List<P> {
        let mut stale = List::new();
        for of in self.pools.iter_mut().flat_map(|pool| &mut pool.links) {
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
    /// Takes what is on the links' inboxes; returns how many items that was.
    fn collect(&mut self) -> usize {
        if let [only] = &mut self.links[..] {
            return only.collect();
        }
        let mut items = 0;
        loop {
            self.links.iter_mut().for_each(|of| of.age = of.link().age());
            self.links.sort_by_key(|of| core::cmp::Reverse(of.age));
            // A thread that takes an item acquires what was written before it was pushed: an age that has changed, and older items.
            items += self.links.iter_mut().map(OfLink::collect).sum::<usize>();
            if self.links.iter().all(|of| of.age == of.link().age()) {
                return items;
            }
        }
    }
}

impl<P: Platform> OfLink<P> {
    fn link(&self) -> &Link<P> {
        // SAFETY: links live as long as the queue, which keeps this.
        unsafe { &*self.link }
    }

    fn collect(&mut self) -> usize {
        let mut fresh = self.link().inactive.take_all();
        let items = fresh.len();
        self.list.append(&mut fresh);
        items
    }
}
