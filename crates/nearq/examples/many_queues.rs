//! Many queues under load, to observe: `cargo run --release --example many_queues -- 200 2000000 600`, and `nearq top` beside it.
//!
//! `many_queues [QUEUES [RATE [SECONDS]]]`: a thread queues RATE items a second (2,000,000), on QUEUES queues (200) in turn, for
//! SECONDS seconds (3). An item counts itself and does nothing else. With a rate of 0, items queue themselves again as soon as they
//! have run, which is as fast as possible.
//!
//! Each second it prints how many items have ended, how many could not be queued because they had not run yet, and how much CPU
//! time was used: by all threads, and by the thread that answers control clients.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "a program that uses nearq may use what it likes"
)]

use nearq::{Work, Workqueue};
use std::error::Error;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// How often items are queued, as many at a time as make up the rate.
const TICK: Duration = Duration::from_millis(1);
/// How many items of a queue queue themselves.
const ROUND: usize = 4;
const SECOND: Duration = Duration::from_secs(1);

/// A queue and its items.
struct Load {
    queue: Arc<Workqueue>,
    items: Vec<Work>,
    /// Items that have ended.
    ended: Arc<Count>,
}

/// A count on cache lines of its own: workers of different queues must not wait for each other.
#[repr(align(128))]
struct Count(AtomicU64);

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: u64| arguments.next().map_or(Ok(default), |text| text.parse());
    let (queues, rate, seconds) = (number(200)?.max(1), number(2_000_000)?, number(3)?);

    let stop = Arc::new(AtomicBool::new(false));
    let per_tick = rate * TICK.as_nanos() as u64 / SECOND.as_nanos() as u64;
    // Twice as many as one tick queues: an item may still wait when its turn comes again.
    let items = if rate == 0 { ROUND } else { (2 * per_tick).div_ceil(queues) as usize + 1 };
    let loads = (0..queues).map(|number| load(number, items, &stop, rate == 0));
    let loads = Arc::new(loads.collect::<Result<Vec<Load>, _>>()?);
    let refused = Arc::new(AtomicU64::new(0));
    println!("pid {}: {queues} queues, {items} items each", std::process::id());

    let issuer = {
        let (loads, stop, refused) = (Arc::clone(&loads), Arc::clone(&stop), Arc::clone(&refused));
        thread::spawn(move || match rate {
            0 => loads.iter().for_each(Load::queue_all),
            _ => issue(&loads, per_tick.max(1), &stop, &refused),
        })
    };
    report(&loads, &refused, seconds);
    stop.store(true, Ordering::Relaxed);
    issuer.join().expect("the issuer does not panic");
    Ok(())
}

fn load(
    number: u64,
    items: usize,
    stop: &Arc<AtomicBool>,
    again: bool,
) -> Result<Load, nearq::Error> {
    let queue = Arc::new(Workqueue::builder(format!("load/{number}")).build()?);
    let ended = Arc::new(Count(AtomicU64::new(0)));
    let item = || {
        let (ended, stop, queue) = (Arc::clone(&ended), Arc::clone(stop), Arc::clone(&queue));
        Work::new(move |work: &Work| {
            ended.0.fetch_add(1, Ordering::Relaxed);
            if again && !stop.load(Ordering::Relaxed) {
                queue.queue(work);
            }
        })
    };
    Ok(Load { items: (0..items).map(|_| item()).collect(), queue, ended })
}

impl Load {
    fn queue_all(&self) {
        for item in &self.items {
            self.queue.queue(item);
        }
    }
}

/// Queues `per_tick` items each tick, one queue after the other.
fn issue(loads: &[Load], per_tick: u64, stop: &AtomicBool, refused: &AtomicU64) {
    let items = loads[0].items.len();
    let mut turns = (0..items).cycle().flat_map(|item| loads.iter().map(move |load| (load, item)));
    let mut next = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        let mut late = 0;
        for (load, item) in turns.by_ref().take(per_tick as usize) {
            late += u64::from(!load.queue.queue(&load.items[item]));
        }
        refused.fetch_add(late, Ordering::Relaxed);
        next += TICK;
        let now = Instant::now();
        // Ticks that were missed long ago are not caught up on.
        if next + 20 * TICK < now {
            next = now;
        }
        thread::sleep(next.saturating_duration_since(now));
    }
}

/// Prints a line each second.
fn report(loads: &[Load], refused: &AtomicU64, seconds: u64) {
    let totals = || {
        let ended: u64 = loads.iter().map(|load| load.ended.0.load(Ordering::Relaxed)).sum();
        let [all, control] = cpu_times();
        (Instant::now(), ended, refused.load(Ordering::Relaxed), all, control)
    };
    println!("{:>12}  {:>12}  {:>9}  {:>11}", "items/s", "late/s", "CPU %", "control %");
    let mut before = totals();
    for _ in 0..seconds {
        thread::sleep(SECOND);
        let now = totals();
        let per_second = 1.0 / (now.0 - before.0).as_secs_f64();
        let rate = |now: u64, before: u64| (now - before) as f64 * per_second;
        let part = |now: Duration, before: Duration| {
            now.saturating_sub(before).as_secs_f64() * per_second * 100.0
        };
        println!(
            "{:>12.0}  {:>12.0}  {:>9.1}  {:>11.3}",
            rate(now.1, before.1),
            rate(now.2, before.2),
            part(now.3, before.3),
            part(now.4, before.4),
        );
        before = now;
    }
}

/// The CPU time of all threads, and of the one that answers control clients.
fn cpu_times() -> [Duration; 2] {
    let mut times = [Duration::ZERO; 2];
    for thread in fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let file = |name: &str| fs::read_to_string(thread.path().join(name)).unwrap_or_default();
        let nanoseconds = file("schedstat").split(' ').next().and_then(|text| text.parse().ok());
        let time = Duration::from_nanos(nanoseconds.unwrap_or_default());
        times[0] += time;
        if file("comm").trim() == "nq/control" {
            times[1] = time;
        }
    }
    times
}
