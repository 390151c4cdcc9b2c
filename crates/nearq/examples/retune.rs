//! Changing a queue while its items run: `cargo run --release --example retune`.
//!
//! Items queue themselves again and again; meanwhile the queue's scope, strictness and limit are changed. Nothing is
//! stopped for this: items that were queued before run where they were queued; later ones go where they now belong.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program that uses nearq may use what it likes"
)]

use nearq::{AffinityScope, Error, Work, Workqueue, inspect::PoolStatistics};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// How many items queue themselves again and again.
const ITEMS: usize = 32;
/// How long each setting is watched.
const WATCHED: Duration = Duration::from_millis(150);

/// About 20 microseconds of work.
fn work_a_little() {
    black_box((0..20_000_u64).fold(1_u64, |sum, n| black_box(sum.wrapping_mul(31) ^ n)));
}

/// Prints what has happened on each pool since `before`.
fn report(queue: &Workqueue, before: &[PoolStatistics]) {
    println!(
        "\n{}{}, at most {} items active",
        queue.affinity_scope_in_words(),
        if queue.attributes().affinity_strict { ", strict" } else { "" },
        queue.max_active()
    );
    println!(
        "  {:>5}  {:10}  {:>9}  {:>9}  {:>6}  {:>11}",
        "pool", "CPUs", "completed", "CPU ms", "helped", "repatriated"
    );
    for row in queue.statistics() {
        // The figures of a pool that the queue has left stay, and continue if it comes back.
        let old = before.iter().find(|old| old.pool == row.pool);
        let since = |count: fn(&PoolStatistics) -> u64| count(&row) - old.map_or(0, count);
        let completed = since(|row| row.completed);
        let old_time = old.map_or(Duration::ZERO, |old| old.cpu_time);
        let cpu_time = row.cpu_time.saturating_sub(old_time);
        if completed > 0 {
            println!(
                "  {:>5}  {:10}  {completed:>9}  {:>9.1}  {:>6}  {:>11}",
                row.pool,
                row.pod.to_list(),
                cpu_time.as_secs_f64() * 1e3,
                since(|row| row.helped),
                since(|row| row.repatriated),
            );
        }
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queue = Arc::new(Workqueue::builder("retune").build()?);
    let stop = Arc::new(AtomicBool::new(false));
    let items: Vec<Work> = (0..ITEMS)
        .map(|_| {
            let (queue, stop) = (Arc::clone(&queue), Arc::clone(&stop));
            Work::new(move |work: &Work| {
                work_a_little();
                if !stop.load(Ordering::Relaxed) {
                    queue.queue(work);
                }
            })
        })
        .collect();
    for item in &items {
        queue.queue(item);
    }

    type Change = fn(&Workqueue) -> Result<(), Error>;
    let changes: [Change; 4] = [
        |_| Ok(()),
        |queue| queue.set_affinity_scope(AffinityScope::Cpu),
        // Several attributes at once: no item sees one without the other.
        |queue| {
            queue.change(|attributes| {
                attributes.affinity_scope = Some(AffinityScope::Cpu);
                attributes.affinity_strict = true;
            })
        },
        |queue| {
            queue.set_max_active(1)?;
            queue.change(|attributes| {
                attributes.affinity_scope = Some(AffinityScope::System);
                attributes.affinity_strict = false;
            })
        },
    ];
    for change in changes {
        let before = queue.statistics();
        change(&queue)?;
        thread::sleep(WATCHED);
        report(&queue, &before);
    }

    // A change that is not possible is refused and changes nothing; the error says what is possible.
    if let Err(error) = queue.set_nice(42) {
        println!("\nrefused: {error}");
    }
    stop.store(true, Ordering::Relaxed);
    Ok(())
}
