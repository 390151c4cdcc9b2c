//! A pipeline of stages: `cargo run --release --example pipeline [BLOCKS]`. With a million blocks there is time to observe it with
//! `nearq top`, `trace` and `tune`.
//!
//! Blocks of data are filled, sealed, checked, and filled again. A fixed number of them is in flight; each has one item
//! for every stage, made once and queued thousands of times, so nothing is allocated on the way. A stage hands the block
//! on by queueing the next stage's item: it goes to the pod of the CPU that has the block in its cache.

#![allow(clippy::disallowed_types, reason = "a program that uses nearq may use what it likes")]

use nearq::{AffinityScope, Work, Workqueue};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Instant;

/// Blocks in flight.
const IN_FLIGHT: usize = 16;
/// The total number of blocks if the argument does not give it.
const BLOCKS: u64 = 3_000;
/// The size of a block in bytes.
const SIZE: usize = 16 << 10;

/// A block on its way. Only one stage has it at a time, so the lock is always free.
struct Block {
    number: u64,
    data: Vec<u8>,
    sum: u64,
}

impl Block {
    fn fill(&mut self, number: u64) {
        self.number = number;
        self.data.fill(number as u8);
        self.sum = self.checksum();
    }

    fn checksum(&self) -> u64 {
        self.data.iter().fold(0, |sum, byte| u64::rotate_left(sum, 5) ^ u64::from(*byte))
    }

    /// Stands in for encryption: applying it twice with the same number gives the data back.
    fn seal(&mut self) {
        let mut key = self.number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for byte in &mut self.data {
            key ^= key << 13;
            key ^= key >> 7;
            key ^= key << 17;
            *byte ^= key as u8;
        }
    }
}

/// A block with the item of its first stage, which knows the items of the others.
struct Slot {
    block: Arc<Mutex<Block>>,
    first: Work,
}

/// Makes a block and its stages; the last stage sends the slot's number to `done`.
fn slot(number: usize, queue: &Arc<Workqueue>, done: mpsc::Sender<usize>) -> Slot {
    let block = Arc::new(Mutex::new(Block { number: 0, data: vec![0; SIZE], sum: 0 }));

    let open = Work::new({
        let block = Arc::clone(&block);
        move |_: &Work| {
            block.lock().unwrap().seal();
            // The completion: the thread that waits for the slot learns that it is free.
            done.send(number).expect("main is listening");
        }
    });
    let first = Work::new({
        let (block, queue) = (Arc::clone(&block), Arc::clone(queue));
        move |_: &Work| {
            block.lock().unwrap().seal();
            queue.queue(&open);
        }
    });
    Slot { block, first }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let blocks = std::env::args().nth(1).map_or(Ok(BLOCKS), |argument| argument.parse())?;
    let queue =
        Arc::new(Workqueue::builder("pipeline").affinity_scope(AffinityScope::Cache).build()?);
    let (done, free) = mpsc::channel();
    let slots: Vec<Slot> =
        (0..IN_FLIGHT).map(|number| slot(number, &queue, done.clone())).collect();

    let begin = Instant::now();
    // Every slot is free at first.
    (0..IN_FLIGHT).try_for_each(|number| done.send(number))?;
    let mut checked = 0;
    for number in 0..blocks + IN_FLIGHT as u64 {
        let slot = &slots[free.recv()?];
        let mut block = slot.block.lock().unwrap();
        // What comes back is what went in; a slot that was never filled has nothing to compare.
        if number >= IN_FLIGHT as u64 {
            assert_eq!(block.checksum(), block.sum, "block {} was damaged", block.number);
            checked += 1;
        }
        if number < blocks {
            block.fill(number);
            drop(block);
            queue.queue(&slot.first);
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("{checked} blocks sealed, opened and checked in {seconds:.2} s");
    for row in queue.statistics() {
        println!("  CPUs {}: {} items, {:.1?} CPU time", row.pod, row.completed, row.cpu_time);
    }
    Ok(())
}
