//! Queues by group: a queue of threads for each group of CPUs, and a queue of the groups.
//!
//! After Dice, Marathe and Shavit, "Lock Cohorting", PPoPP 2012, and the NUMA-aware part of the document of 2024, whose batch is 256. The
//! HQ-spinlock (Stepanov and others, linux-kernel, 2025) has the same two levels, and a batch of 1000.
//!
//! # Protocol
//! A thread queues up in its group (`tail`). The thread in front of the group queues its group up among the groups (`top`). The thread in
//! front of the group that is in front of the groups is *in front*. When it leaves, it tells the thread behind it in the group to be in front,
//! with the length of the batch; or, if there is none or the batch is over, it lets the next group have its turn, and *then* gives up the
//! front of its group: the thread behind it must queue the group up again. The order matters: the group's node in the queue of groups is free
//! before another thread of the group can use it.

use super::roster::{Grouping, Records, Roster};
use core::marker::PhantomData;
use nearq_platform::{Atomic as _, LockPlatform, Ordering};
use std::sync::Arc;

/// Said to a thread that must queue its group up.
const QUEUE_UP: u32 = u32::MAX;

/// The last thread of a group's queue, by the name of its writer; 0 if it is empty.
#[repr(align(128))]
struct Tail<P: LockPlatform>(P::AtomicU32);

/// A group's node in the queue of groups.
#[repr(align(128))]
struct Node<P: LockPlatform> {
    /// 1 if it is the group's turn.
    told: P::AtomicU32,
    /// The group behind it, by its number plus one.
    next: P::AtomicU32,
}

pub(super) struct Cohort<P: LockPlatform, G> {
    top: Tail<P>,
    tails: Vec<Tail<P>>,
    nodes: Vec<Node<P>>,
    records: Records<P>,
    /// The group of each writer.
    pub(super) groups: Vec<usize>,
    /// How many hand-overs there are in a group before the next one has its turn.
    batch: u32,
    grouping: PhantomData<G>,
}

impl<P: LockPlatform, G: Grouping> Cohort<P, G> {
    pub(super) fn new(roster: &Arc<Roster>, batch: u32) -> Self {
        let groups = roster.groups::<G>();
        let count = groups.iter().max().map_or(0, |last| last + 1);
        let zero = || P::AtomicU32::new(0);
        Cohort {
            top: Tail(zero()),
            tails: (0..count).map(|_| Tail(zero())).collect(),
            nodes: (0..count).map(|_| Node { told: zero(), next: zero() }).collect(),
            records: Records::new(roster),
            groups,
            batch,
            grouping: PhantomData,
        }
    }

    /// Queues up, and returns when the writer is in front.
    pub(super) fn enter(&self, name: u32) {
        let group = self.groups[name as usize - 1];
        self.records.prepare(name);
        // Release: the record. Acquire: that of the thread before.
        let before = self.tails[group].0.swap(name, Ordering::AcqRel);
        if before != 0 && self.records.wait_behind(name, before) != QUEUE_UP {
            return;
        }
        // Relaxed: our own, until we are told again.
        self.records.at(name).told.store(1, Ordering::Relaxed);
        let node = &self.nodes[group];
        // Relaxed, both: published by the step below.
        node.told.store(0, Ordering::Relaxed);
        node.next.store(0, Ordering::Relaxed);
        // Release: the node. Acquire: that of the group before.
        let before = self.top.0.swap(group as u32 + 1, Ordering::AcqRel);
        if before != 0 {
            // Release: pairs with the acquire of `pass_turn`.
            self.nodes[before as usize - 1].next.store(group as u32 + 1, Ordering::Release);
            self.records.roster.await_change::<P>(&node.told, 0);
        }
    }

    /// Lets the next thread be in front. Returns whether there was none.
    pub(super) fn leave(&self, name: u32) -> bool {
        let group = self.groups[name as usize - 1];
        let record = self.records.at(name);
        // Relaxed: told to us. Acquire: the record of the next thread.
        let (batch, next) =
            (record.told.load(Ordering::Relaxed), record.next.load(Ordering::Acquire));
        if next != 0 && batch < self.batch {
            self.records.tell(next, batch + 1);
            return false;
        }
        let last_group = self.pass_turn(group);
        // Release: our turn is over. Relaxed: on failure the next thread's record is acquired by `next`.
        let tail = &self.tails[group].0;
        if tail.compare_exchange(name, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return last_group;
        }
        self.records.tell(self.records.next(name), QUEUE_UP);
        false
    }

    /// Lets the next group have its turn. Returns whether there was none.
    fn pass_turn(&self, group: usize) -> bool {
        let (name, node) = (group as u32 + 1, &self.nodes[group]);
        // Release: our turn is over. Relaxed: on failure the next node is acquired below.
        if self.top.0.compare_exchange(name, 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return true;
        }
        // Acquire: pairs with the release of the group that queued up behind.
        let next = match node.next.load(Ordering::Acquire) {
            0 => self.records.roster.await_change::<P>(&node.next, 0),
            known => known,
        };
        // Release: pairs with the acquire at the end of `await_change`.
        self.nodes[next as usize - 1].told.store(1, Ordering::Release);
        false
    }
}
