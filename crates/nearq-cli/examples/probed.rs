//! A program under load whose settings are changed from outside. It reports under which conditions its next item runs.
//!
//! Three queues are kept busy by two threads: `crypt` (unbound), `events` (per-CPU) and `log` (ordered). Commands come on standard input,
//! one per line; each is answered by a line of JSON:
//!
//! | command | answer |
//! |---|---|
//! | `probe QUEUE` | the conditions of an item queued now: its worker's name, the CPUs that the worker may use, its nice value and policy |
//! | `peak QUEUE` | the largest number of the queue's items that ran at once, among the next few hundred |
//! | `end` | how many items were queued and how many ran, and how many of `log` were out of order; then the program exits |

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use nearq::Workqueue;
use serde_json::{Value, json};
use std::fs;
use std::hint::black_box;
use std::io::{self, BufRead as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// How many items of a queue wait or run at once.
const IN_FLIGHT: u64 = 64;

/// A queue, and the counts of its items.
struct Busy {
    queue: Workqueue,
    queued: AtomicU64,
    ran: AtomicU64,
    running: AtomicU64,
    peak: AtomicU64,
    disorder: AtomicU64,
}

impl Busy {
    fn new(queue: Workqueue) -> Arc<Self> {
        let zero = || AtomicU64::new(0);
        let (queued, ran, running) = (zero(), zero(), zero());
        Arc::new(Busy { queue, queued, ran, running, peak: zero(), disorder: zero() })
    }

    /// Queues an item, unless there are too many.
    fn feed(self: &Arc<Self>) -> bool {
        if self.queued.load(SeqCst) - self.ran.load(SeqCst) >= IN_FLIGHT {
            return false;
        }
        let number = self.queued.fetch_add(1, SeqCst);
        let busy = Arc::clone(self);
        drop(self.queue.spawn(move || busy.run(number)));
        true
    }

    /// Some 20 microseconds of work.
    fn run(&self, number: u64) {
        self.peak.fetch_max(self.running.fetch_add(1, SeqCst) + 1, SeqCst);
        black_box((0..20_000_u64).fold(1_u64, |sum, n| black_box(sum.wrapping_mul(31) ^ n)));
        self.running.fetch_sub(1, SeqCst);
        if self.ran.fetch_add(1, SeqCst) != number {
            self.disorder.fetch_add(1, SeqCst);
        }
    }

    fn wait_for(&self, items: u64) {
        let until = self.ran.load(SeqCst) + items;
        while self.ran.load(SeqCst) < until {
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Describes the worker that runs this function.
fn worker() -> Value {
    let read =
        |file: &str| fs::read_to_string(format!("/proc/thread-self/{file}")).unwrap_or_default();
    let (status, stat) = (read("status"), read("stat"));
    let cpus = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    // The name in parentheses may contain blanks; the text after it begins with the third field.
    let fields: Vec<&str> =
        stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |number: usize| fields.get(number - 3).and_then(|field| field.parse::<i64>().ok());
    json!({
        "worker": read("comm").trim_end(),
        "cpus": cpus.unwrap_or_default().trim(),
        "nice": field(19),
        "policy": field(41),
    })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let queues = [
        ("crypt", Busy::new(Workqueue::builder("crypt").build()?)),
        ("events", Busy::new(Workqueue::builder("events").per_cpu().build()?)),
        ("log", Busy::new(Workqueue::builder("log").ordered().build()?)),
    ];
    let stop = Arc::new(AtomicBool::new(false));
    // Only one thread feeds `log`, so that the order is defined.
    let feeders = [vec![0, 1, 2], vec![0, 1]].map(|fed_queues| {
        let fed_queues: Vec<Arc<Busy>> =
            fed_queues.iter().map(|&index| Arc::clone(&queues[index].1)).collect();
        let stop = Arc::clone(&stop);
        thread::spawn(move || {
            while !stop.load(SeqCst) {
                let fed = fed_queues.iter().filter(|busy| busy.feed()).count();
                if fed == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
            }
        })
    });
    let named = |name: &str| {
        let known = queues.iter().find(|(known, _)| *known == name);
        known.map(|(_, busy)| busy).ok_or_else(|| format!("there is no queue {name}"))
    };
    for line in io::stdin().lock().lines() {
        let line = line?;
        let answer = match line.split_once(' ') {
            Some(("probe", name)) => named(name)?.queue.spawn(worker).join()?,
            Some(("peak", name)) => {
                let busy = named(name)?;
                // Lets the items that were active before finish.
                busy.wait_for(2 * IN_FLIGHT);
                busy.peak.store(0, SeqCst);
                busy.wait_for(300);
                json!({ "peak": busy.peak.load(SeqCst) })
            }
            _ if line == "end" => break,
            _ => return Err(format!("`{line}` is no command").into()),
        };
        println!("{answer}");
    }
    stop.store(true, SeqCst);
    for feeder in feeders {
        feeder.join().map_err(|_| "a thread that queues has panicked")?;
    }
    queues.iter().try_for_each(|(_, busy)| busy.queue.drain())?;
    let sum = |count: fn(&Busy) -> &AtomicU64| -> u64 {
        queues.iter().map(|(_, busy)| count(busy).load(SeqCst)).sum()
    };
    let disorder = queues[2].1.disorder.load(SeqCst);
    println!(
        "{}",
        json!({ "queued": sum(|busy| &busy.queued), "ran": sum(|busy| &busy.ran), "disorder": disorder })
    );
    Ok(())
}
