//! The program of docs/tutorial.md, from the first `use` on: `cargo run -p nearq-cli --example checksums [SECONDS]`.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program that uses nearq may use what it likes"
)]

use nearq::{AffinityScope, Workqueue};
use std::time::{Duration, Instant};

/// A stand-in for a checksum that takes as long as a good one.
fn checksum(block: &[u8]) -> u32 {
    block.iter().fold(1, |sum: u32, byte| sum.rotate_left(5) ^ u32::from(*byte))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    let end = Instant::now() + Duration::from_secs(seconds);

    let queue = Workqueue::builder("checksums").affinity_scope(AffinityScope::Cache).build()?;
    let bounded = queue.bounded(64);
    let mut blocks: u64 = 0;
    while Instant::now() < end {
        // Written here, and so in this CPU's cache.
        let block = vec![blocks as u8; 64 << 10];
        bounded.task().named("checksum").spawn(move || checksum(&block));
        blocks += 1;
    }
    queue.flush()?;
    println!("{blocks} checksums");
    Ok(())
}
