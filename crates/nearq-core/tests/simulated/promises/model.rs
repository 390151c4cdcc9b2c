//! What is promised, without how it is implemented.

use std::collections::VecDeque;

use nearq_platform::Instant;

pub(crate) const ITEMS: usize = 4;
/// The queues: an ordered one; a freezable one whose limit begins at 1; and one whose limit begins at 2.
pub(crate) const QUEUES: usize = 3;
pub(crate) const ORDERED: usize = 0;
pub(crate) const FREEZABLE: usize = 1;

/// A queueing, by its number in the order of the calls.
pub(crate) type Queueing = usize;

/// What is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runnable {
    Item(usize),
    Spawned(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pending {
    No,
    Timed {
        queue: usize,
        deadline: Instant,
    },
    HeldBack {
        queue: usize,
        number: Queueing,
    },
    /// The item has a place, and waits for the end of its own execution.
    Deferred {
        queue: usize,
        number: Queueing,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct ModelItem {
    pub(crate) pending: Pending,
    pub(crate) running: Option<(usize, Queueing)>,
    /// How often it is disabled: by calls, and by threads that wait until they have cancelled it.
    pub(crate) disabled: usize,
    pub(crate) disabled_by_waiters: usize,
    pub(crate) closed: bool,
    pub(crate) again: Option<usize>,
    pub(crate) runs: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelQueue {
    pub(crate) limit: usize,
    pub(crate) drainers: usize,
    pub(crate) active: usize,
    pub(crate) held: VecDeque<(Runnable, Queueing)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closure {
    HeldBack(usize, Queueing),
    Running(usize, Queueing),
    Ended,
    Cancelled,
}

#[derive(Debug)]
pub(crate) struct Model {
    pub(crate) items: Vec<ModelItem>,
    pub(crate) queues: Vec<ModelQueue>,
    pub(crate) spawned: Vec<Closure>,
    pub(crate) frozen: bool,
    /// The queueings, by number: on which queue, and whether it is over.
    pub(crate) queueings: Vec<(usize, bool)>,
    /// What has started since the last check, and where.
    pub(crate) started: Vec<(usize, Runnable)>,
}

impl Model {
    pub(crate) fn new() -> Self {
        let item = ModelItem {
            pending: Pending::No,
            running: None,
            disabled: 0,
            disabled_by_waiters: 0,
            closed: false,
            again: None,
            runs: 0,
        };
        let queue = |limit| ModelQueue { limit, drainers: 0, active: 0, held: VecDeque::new() };
        Model {
            items: vec![item; ITEMS],
            queues: vec![queue(1), queue(1), queue(2)],
            spawned: Vec::new(),
            frozen: false,
            queueings: Vec::new(),
            started: Vec::new(),
        }
    }

    pub(crate) fn limit(&self, queue: usize) -> usize {
        if self.frozen && queue == FREEZABLE { 0 } else { self.queues[queue].limit }
    }

    pub(crate) fn refuses(&self, item: usize) -> bool {
        let item = &self.items[item];
        item.pending != Pending::No || item.disabled + item.disabled_by_waiters > 0
    }

    pub(crate) fn over(&mut self, number: Queueing) {
        self.queueings[number].1 = true;
    }

    pub(crate) fn is_over(&self, number: Queueing) -> bool {
        self.queueings[number].1
    }

    /// Queues an item; `None` if the item is disabled, or the queue drains. `by` is the queue whose item makes the call, if an item does.
    pub(crate) fn queue(&mut self, queue: usize, item: usize, by: Option<usize>) -> Option<bool> {
        if self.refuses(item) {
            return (self.items[item].pending != Pending::No).then_some(false);
        }
        if self.queues[queue].drainers > 0 && by != Some(queue) {
            return None;
        }
        self.enter(queue, Runnable::Item(item));
        Some(true)
    }

    pub(crate) fn enter(&mut self, queue: usize, runnable: Runnable) {
        let number = self.queueings.len();
        self.queueings.push((queue, false));
        self.queues[queue].held.push_back((runnable, number));
        match runnable {
            Runnable::Item(item) => self.items[item].pending = Pending::HeldBack { queue, number },
            Runnable::Spawned(closure) => self.spawned[closure] = Closure::HeldBack(queue, number),
        }
        self.let_in(queue);
    }

    pub(crate) fn let_in(&mut self, queue: usize) {
        while self.queues[queue].active < self.limit(queue) {
            let Some((runnable, number)) = self.queues[queue].held.pop_front() else { return };
            self.queues[queue].active += 1;
            match runnable {
                Runnable::Item(item) if self.items[item].running.is_some() => {
                    self.items[item].pending = Pending::Deferred { queue, number };
                }
                _ => self.start(queue, runnable, number),
            }
        }
    }

    pub(crate) fn start(&mut self, queue: usize, runnable: Runnable, number: Queueing) {
        self.started.push((queue, runnable));
        match runnable {
            Runnable::Item(item) => {
                let state = &mut self.items[item];
                state.pending = Pending::No;
                state.running = Some((queue, number));
                state.runs += 1;
                if !state.closed {
                    self.finish(item);
                }
            }
            Runnable::Spawned(closure) => self.spawned[closure] = Closure::Running(queue, number),
        }
    }

    pub(crate) fn finish(&mut self, item: usize) {
        let Some((queue, number)) = self.items[item].running else { return };
        if let Some(again) = self.items[item].again.take() {
            self.queue(again, item, Some(queue));
        }
        self.items[item].running = None;
        self.over(number);
        if let Pending::Deferred { queue, number } = self.items[item].pending {
            self.start(queue, Runnable::Item(item), number);
        }
        self.leave(queue);
    }

    /// A place is free.
    pub(crate) fn leave(&mut self, queue: usize) {
        self.queues[queue].active -= 1;
        self.let_in(queue);
    }

    pub(crate) fn cancel(&mut self, item: usize) -> bool {
        let pending = core::mem::replace(&mut self.items[item].pending, Pending::No);
        match pending {
            Pending::No => return false,
            Pending::Timed { .. } => {}
            Pending::HeldBack { queue, number } => {
                self.queues[queue].held.retain(|held| held.1 != number);
                self.over(number);
            }
            Pending::Deferred { queue, number } => {
                self.over(number);
                self.leave(queue);
            }
        }
        true
    }

    pub(crate) fn deadlines(&self) -> impl Iterator<Item = Instant> {
        self.items.iter().filter_map(|item| match item.pending {
            Pending::Timed { deadline, .. } => Some(deadline),
            _ => None,
        })
    }

    /// Takes off the timer what is due at `now`.
    pub(crate) fn expire(&mut self, now: Instant) {
        loop {
            let due = (0..ITEMS).filter_map(|item| match self.items[item].pending {
                Pending::Timed { deadline, queue } if deadline <= now => {
                    Some((deadline, item, queue))
                }
                _ => None,
            });
            let Some((_, item, queue)) = due.min() else { return };
            self.items[item].pending = Pending::No;
            self.queue(queue, item, None);
        }
    }

    pub(crate) fn expedite(&mut self, item: usize) -> bool {
        let Pending::Timed { queue, .. } = self.items[item].pending else { return false };
        self.items[item].pending = Pending::No;
        self.queue(queue, item, None);
        true
    }

    /// What a flush of the item waits for.
    pub(crate) fn busy(&self, item: usize) -> Vec<Queueing> {
        let item = &self.items[item];
        let pending = match item.pending {
            Pending::HeldBack { number, .. } | Pending::Deferred { number, .. } => Some(number),
            _ => None,
        };
        item.running.map(|(_, number)| number).into_iter().chain(pending).collect()
    }
}
