//! The thread that moves pages between nodes: one process's at a time, as that may take seconds.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::residency;

/// Whose pages go where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) pid: u32,
    /// The operating system's numbers of nodes.
    pub(crate) from: Vec<u32>,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
}

/// What has become of it.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) order: Order,
    pub(crate) took: Duration,
    /// Pages that stayed, or why none were moved.
    pub(crate) stayed: io::Result<u64>,
}

/// The thread, as those know it who give orders. It begins with the first one.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    thread: Option<(SyncSender<Order>, Receiver<Moved>)>,
    /// Whose pages are on their way.
    moves: Option<u32>,
}

impl Pages {
    /// Whose pages are being moved.
    pub(crate) fn moves(&self) -> Option<u32> {
        self.moves
    }

    /// Has pages moved. Nothing happens while others are, or where there can be no thread: the next check sees that they are
    /// where they were.
    pub(crate) fn bring(&mut self, order: Order) {
        if self.moves.is_some() {
            return;
        }
        if self.thread.is_none() {
            self.thread = begin();
        }
        let Some((sender, _)) = &self.thread else { return };
        let pid = order.pid;
        self.moves = sender.try_send(order).is_ok().then_some(pid);
    }

    /// What has become of the last order, once.
    pub(crate) fn moved(&mut self) -> Option<Moved> {
        let (_, receiver) = self.thread.as_ref()?;
        let moved = receiver.try_recv().ok()?;
        self.moves = None;
        Some(moved)
    }
}

fn begin() -> Option<(SyncSender<Order>, Receiver<Moved>)> {
    let (sender, orders) = mpsc::sync_channel::<Order>(1);
    let (done, receiver) = mpsc::sync_channel(1);
    let work = move || {
        for order in orders {
            let begun = Instant::now();
            let stayed = residency::bring(order.pid, &order.from, order.to);
            if done.send(Moved { took: begun.elapsed(), order, stayed }).is_err() {
                return;
            }
        }
    };
    thread::Builder::new().name("pages".into()).spawn(work).ok()?;
    Some((sender, receiver))
}

#[cfg(test)]
impl Pages {
    /// Nobody moves anything: orders come out here.
    pub(crate) fn pretended() -> (Self, Receiver<Order>, SyncSender<Moved>) {
        let (sender, orders) = mpsc::sync_channel(1);
        let (done, receiver) = mpsc::sync_channel(1);
        (Pages { thread: Some((sender, receiver)), moves: None }, orders, done)
    }
}
