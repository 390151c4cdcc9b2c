//! The thread that moves pages between nodes, the pages of one process at a time, because this may take seconds.

use std::io;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use crate::residency;

/// An order to move a process's pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) pid: u32,
    /// The operating system's numbers of nodes.
    pub(crate) from: Vec<u32>,
    pub(crate) to: u32,
    pub(crate) bytes: u64,
}

/// The result of an order.
#[derive(Debug)]
pub(crate) struct Moved {
    pub(crate) order: Order,
    pub(crate) took: Duration,
    /// The number of pages that stayed, or why no pages were moved.
    pub(crate) stayed: io::Result<u64>,
}

/// The handle for giving orders to the thread, which starts with the first order.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    thread: Option<(SyncSender<Order>, Receiver<Moved>)>,
    /// The process whose pages are being moved.
    moves: Option<u32>,
}

impl Pages {
    /// The process whose pages are being moved, if there is one.
    pub(crate) fn moves(&self) -> Option<u32> {
        self.moves
    }

    /// Orders a move of pages. Nothing happens while other pages are being moved, or if the thread cannot be started: the next check will
    /// find the pages where they were.
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

    /// The result of the last order; it is returned once.
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
    /// For tests: no pages are moved, and the receiver gets the orders.
    pub(crate) fn fake() -> (Self, Receiver<Order>, SyncSender<Moved>) {
        let (sender, orders) = mpsc::sync_channel(1);
        let (done, receiver) = mpsc::sync_channel(1);
        (Pages { thread: Some((sender, receiver)), moves: None }, orders, done)
    }
}
