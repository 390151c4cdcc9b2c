//! Where an item goes because of its home.
//!
//! [`HOMED`] on pwqs tells issuers whether they must look for homes at all: on a machine of several nodes, from the first home of the
//! runtime on. Of the homes that an item could have, the first that exists counts: its own, its queue's, and that of the item which queues
//! it.
//!
//! An item with a home goes to the pod of the CPU that queues it, if that is on the home's node. Otherwise it goes to one of the pods of
//! that node, one where a worker may be free, beginning with another one each time. If no pod lies inside the node (with the scope
//! `system`, or for an ordered queue), the item goes where it would go without a home, and the worker that runs it moves to the node
//! (`run/homes`).
//!
//! If the caller names a CPU or a node for a queueing, that is used; the home still applies to helpers and to memory.

use std::collections::BTreeSet;
use std::sync::Arc;

use nearq_platform::{Atomic, AtomicInt, Ordering, Platform};

use super::{CpuMap, Queue};
use crate::base::error::Error;
use crate::base::ids::QueueKind;
use crate::homes::{Home, Inside, MemoryPolicy};
use crate::item::{Item, Origin, PROXIED};

use crate::limit::pool_workqueue::{HOMED, PoolWorkqueue};

/// How an item is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubmitKind {
    /// By a thread that has queued it before, or may have done so.
    Again,
    /// A task, by the thread that spawned it.
    New,
    /// To a CPU that was named.
    Named,
}

/// A queue's home, and its setting for memory.
pub(crate) struct QueueHome<P: Platform> {
    /// For code on an item's path; memory that `kept` keeps.
    now: P::AtomicPtr<Inside<P>>,
    memory: P::AtomicU32,
}

impl<P: Platform> QueueHome<P> {
    pub(crate) fn new(memory: MemoryPolicy) -> Self {
        QueueHome {
            now: P::AtomicPtr::new(core::ptr::null_mut()),
            memory: P::AtomicU32::new(memory as u32),
        }
    }
}

/// The part of a queue's home that is only used to change the queue.
pub(crate) struct HomeConfig<P: Platform> {
    home: Option<Home<P>>,
    /// Every home that it has had. A thread that reads `QueueHome::now` may be late, and a worker uses what it has read until its item has
    /// ended (`run/homes`). To know when none does any more, each of them would have to write something for each item; that would save some
    /// 300 bytes for each home, and queues seldom change theirs.
    kept: Vec<Arc<Inside<P>>>,
    /// The same, for lookup.
    known: BTreeSet<*const Inside<P>>,
}

impl<P: Platform> HomeConfig<P> {
    pub(crate) fn new() -> Self {
        HomeConfig { home: None, kept: Vec::new(), known: BTreeSet::new() }
    }

    fn keep(&mut self, inside: &Arc<Inside<P>>) {
        if self.known.insert(Arc::as_ptr(inside)) {
            self.kept.push(Arc::clone(inside));
        }
    }
}

impl<P: Platform> Queue<P> {
    /// The queue's home, for code on an item's path: null, or the pointer of an `Arc` that is kept as long as the queue.
    #[inline]
    pub(crate) fn home_now(&self) -> *const Inside<P> {
        // Acquire: pairs with the release in `set_home`.
        self.home.now.load(Ordering::Acquire)
    }

    /// The queue's home.
    pub(crate) fn home(&self) -> Option<Home<P>> {
        self.lock_config().home.home.clone()
    }

    /// Changes the queue's home; in effect for the next item.
    pub(crate) fn set_home(&self, home: Option<&Home<P>>) -> Result<(), Error> {
        if home.is_some() && self.kind == QueueKind::PerCpu {
            return Err(Error::Unsupported { attribute: "a home", kind: QueueKind::PerCpu });
        }
        let before;
        {
            let mut config = self.lock_config();
            if config.closed {
                return Err(self.ended());
            }
            let now = match home {
                Some(home) => {
                    let inside = home.inside();
                    config.home.keep(inside);
                    Arc::as_ptr(inside).cast_mut()
                }
                None => core::ptr::null_mut(),
            };
            before = core::mem::replace(&mut config.home.home, home.cloned());
            self.home.now.store(now, Ordering::Release);
        }
        drop(before);
        Ok(())
    }

    /// Where its items' memory comes from.
    #[inline]
    pub(crate) fn memory(&self) -> MemoryPolicy {
        MemoryPolicy::from_number(self.home.memory.load(Ordering::Relaxed))
    }

    /// Makes the pwqs of all queues see homes if items' memory is to come from there. Without any queue's configuration.
    pub(crate) fn prepare_memory(&self, memory: MemoryPolicy) {
        if memory == MemoryPolicy::Interleave {
            self.inner().services.homes.begin_use();
        }
    }

    /// Follows the attribute that says where its items' memory comes from; in effect for the next item.
    pub(super) fn follow_memory(&self, memory: MemoryPolicy) {
        self.home.memory.store(memory as u32, Ordering::Relaxed);
    }

    /// Whether its pwqs make items look for a home, and workers for where their memory comes from.
    pub(super) fn heeds_homes(&self) -> bool {
        self.kind != QueueKind::PerCpu && self.inner().services.homes.are_used()
    }

    /// The pwq for an item, and what is noted with it.
    pub(super) fn find_home<'a>(
        &'a self,
        pwq: &'a PoolWorkqueue<P>,
        node: &Item<P>,
        cpu: usize,
        submit: SubmitKind,
    ) -> (&'a PoolWorkqueue<P>, Origin) {
        debug_assert!(pwq.flags() & HOMED != 0);
        let Some(home) = self.home_for(node, submit) else { return (pwq, Origin::new(cpu, None)) };
        let origin = Origin::new(cpu, Some(home));
        let there = self.inner().services.homes.map.node_of(cpu) == Some(home);
        if there || submit == SubmitKind::Named {
            return (pwq, origin);
        }
        // SAFETY: pwqs live as long as the queue.
        let at_home = self.current_map().at_home(home).map(|pwq| unsafe { &*pwq });
        (at_home.unwrap_or(pwq), origin)
    }

    /// The number of the home node of an item that is about to be sent.
    fn home_for(&self, node: &Item<P>, submit: SubmitKind) -> Option<u32> {
        let target;
        let item = match node.state.load(Ordering::Relaxed) & PROXIED {
            0 => node,
            _ => {
                // SAFETY: a node that is `PROXIED` and about to be sent is a proxy of an item.
                target = unsafe { crate::item::proxy::target_of(node) };
                &*target
            }
        };
        // SAFETY: the item has a handle of the home.
        if let Some(node) = item.attachment.with_home(|home| unsafe { &*home }.node()) {
            return Some(node);
        }
        // SAFETY: null, or memory that the configuration keeps as long as the queue.
        if let Some(home) = unsafe { self.home_now().as_ref() } {
            return Some(home.node());
        }
        if !self.inner().services.homes.inherits() {
            return None;
        }
        let home = crate::pool::context::home_of_caller(&raw const self.inner().services)?;
        let node = home.inside().node();
        if submit == SubmitKind::New {
            item.attachment.give_home(home);
        }
        Some(node)
    }
}

impl<P: Platform> CpuMap<P> {
    /// A pwq whose pod lies in the node: one with room for one more worker, or else any, a different one each time.
    fn at_home(&self, node: u32) -> Option<*const PoolWorkqueue<P>> {
        let pwqs = self.by_node.get(node as usize).filter(|pwqs| !pwqs.is_empty())?;
        let first = self.next_home.fetch_add(1, Ordering::Relaxed) as usize;
        let each = (0..pwqs.len()).map(|index| pwqs[(first + index) % pwqs.len()]);
        // SAFETY: pwqs live as long as the queue.
        let mut free = each.filter(|pwq| !unsafe { &**pwq }.pool.is_full());
        Some(free.next().unwrap_or(pwqs[first % pwqs.len()]))
    }
}
