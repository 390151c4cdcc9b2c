//! What a cache line costs that several CPUs write.
//!
//! | quantity | what is measured | what is subtracted, and why |
//! |---|---|---|
//! | `bounce DISTANCE` | two CPUs take a line by turns with a compare-exchange; half of a round trip, as core-to-core benchmarks give it | nothing; the reader of the file subtracts `read_modify_write`, because the simulated machine charges it for itself |
//! | `bounce DISTANCE, home PLACE` | the same with the line in the memory of the nearest other node of the package of one of them (`same_package`), or of a package where neither is (`other_package`) | the same at home; the cost is a half of the rest, or the rest, as `costs` says |
//! | `many lines DISTANCE` | one CPU writes 512 lines, then the other adds to each with fetch_add, in an order without a pattern; the time for one line | nothing. No cost follows from it: it says how much a CPU gains by fetching several lines at once, which the simulated machine does not do |
//! | `contended OPERATION, N CPUs` | N CPUs do it on one line without a pause; the time from one to the next, whichever CPU did it | nothing |
//!
//! The cost of a distance is that of a line at home where one of the two CPUs is, which is where the kernel puts memory. From what it takes
//! longer elsewhere follows what the way to a home costs.

use super::meter::{Pages, Samples, batches_on, bind, no_thread, on, switches_of_thread};
use super::places::{Class, Home};
use crate::Error;
use nearq_topology::Topology;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Whose turn it is, and the end.
const MINE: u64 = 0;
const YOURS: u64 = 1;
const OVER: u64 = 2;

/// Takes the line in `expected` and leaves it in `next`. False if it is over.
fn take(line: &AtomicU64, expected: u64, next: u64) -> bool {
    loop {
        // Relaxed, both: the line is all that the two share. A read-modify-write costs the same with any ordering on x86.
        match line.compare_exchange(expected, next, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(OVER) => return false,
            Err(_) => {}
        }
    }
}

/// The bounce between two CPUs, of a line on the node `home`.
pub(super) fn bounce(
    name: &str,
    [a, b]: [usize; 2],
    home: Option<usize>,
    count: usize,
) -> Result<Samples, Error> {
    let page = Pages::new(4096, home, false)?;
    let line = page.first();
    let ready = AtomicBool::new(false);
    let mut samples = std::thread::scope(|scope| {
        let other = std::thread::Builder::new();
        let other = other.spawn_scoped(scope, || {
            let bound = bind(b);
            // Relaxed: it guards nothing.
            ready.store(true, Ordering::Relaxed);
            bound?;
            while take(line, YOURS, MINE) {}
            Ok::<(), Error>(())
        });
        let other = other.map_err(no_thread)?;
        while !ready.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let samples = batches_on(a, name, count, |times| {
            for _ in 0..times {
                if other.is_finished() {
                    return;
                }
                take(line, MINE, YOURS);
            }
        });
        // The other thread may be about to take its turn: it must not write over the end.
        while line.load(Ordering::Relaxed) == YOURS && !other.is_finished() {
            spin_loop();
        }
        line.store(OVER, Ordering::Relaxed);
        other.join().expect("it does not panic")?;
        samples
    })?;
    samples.values.iter_mut().for_each(|value| *value /= 2.0);
    Ok(samples)
}

/// The bounces of one distance, with each home that the machine has for it.
pub(super) fn bounces(
    topology: &Topology,
    class: Class,
    pairs: &[(usize, usize)],
    count: usize,
) -> Result<Vec<Samples>, Error> {
    let several = topology.nodes().len() > 1;
    let mut all = Vec::new();
    for home in Home::ALL {
        let name = format!("bounce {}{}", class.cost(), home.suffix());
        let mut samples = Samples::new(&name, "ns");
        for &(a, b) in pairs {
            let node = home.nearest(topology, (a, b));
            if node.is_some() || home == Home::Near {
                let node = node.filter(|_| several).map(|at| topology.nodes()[at].id);
                samples.join(&bounce(&name, [a, b], node, count)?);
            }
        }
        all.push(samples);
    }
    all.retain(|samples| !samples.values.is_empty());
    Ok(all)
}

/// Lines that one CPU fetches at once.
const MANY: usize = 512;

/// The numbers below [`MANY`], in an order in which no prefetcher finds a pattern.
fn without_pattern() -> Vec<usize> {
    let mut order: Vec<usize> = (0..MANY).collect();
    // The same order each time.
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    order
}

/// What each of many lines takes that the other CPU of a pair has written, if the addresses of all are known.
pub(super) fn many(class: Class, pairs: &[(usize, usize)], count: usize) -> Result<Samples, Error> {
    let order = without_pattern();
    let mut samples = Samples::new(format!("many lines {}", class.cost()), "ns");
    for &(a, b) in pairs {
        let lines: Vec<Line<AtomicU64>> = (0..MANY).map(|_| Line(AtomicU64::new(0))).collect();
        let turn = Line(AtomicU64::new(MINE));
        // Relaxed: the lines are counters. Their order after the turn comes from `turn`.
        let add = |at: &usize| {
            lines[*at].0.fetch_add(1, Ordering::Relaxed);
        };
        std::thread::scope(|scope| {
            let other = std::thread::Builder::new();
            let other = other.spawn_scoped(scope, || {
                bind(b)?;
                loop {
                    // Acquire and release: pair with those of the other thread, so that one adds after the other.
                    match turn.0.load(Ordering::Acquire) {
                        OVER => return Ok::<(), Error>(()),
                        YOURS => {
                            (0..MANY).for_each(|at| add(&at));
                            turn.0.store(MINE, Ordering::Release);
                        }
                        _ => spin_loop(),
                    }
                }
            });
            let other = other.map_err(no_thread)?;
            let measured = on(a, || {
                for _ in 0..count {
                    turn.0.store(YOURS, Ordering::Release);
                    while turn.0.load(Ordering::Acquire) == YOURS {
                        if other.is_finished() {
                            return Ok(());
                        }
                        spin_loop();
                    }
                    let (before, start) = (switches_of_thread(), Instant::now());
                    order.iter().for_each(add);
                    let taken = start.elapsed().as_nanos() as f64 / MANY as f64;
                    samples.add(taken, switches_of_thread() != before);
                }
                Ok(())
            });
            turn.0.store(OVER, Ordering::Release);
            other.join().expect("it does not panic")?;
            measured
        })?;
    }
    Ok(samples)
}

/// How long a window lasts in which CPUs contend.
const WINDOW: Duration = Duration::from_millis(2);
/// How long windows may pass in which no CPU made progress, because other programs have all of them.
const PATIENCE: Duration = Duration::from_secs(20);
/// Operations between two checks whether it is over.
const TURN: u64 = 64;

/// What is done to a contended line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Operation {
    FetchAdd,
    CompareExchange,
}

#[repr(align(128))]
struct Line<T>(T);

/// `cpus` do `operation` on one line: nanoseconds from one to the next.
pub(super) fn contended(
    operation: Operation,
    cpus: &[usize],
    count: usize,
) -> Result<Samples, Error> {
    let (what, once): (_, fn(&AtomicU64)) = match operation {
        Operation::FetchAdd => ("fetch_add", |line| {
            line.fetch_add(1, Ordering::Relaxed);
        }),
        // An increment: a read, and a compare-exchange that fails if another CPU was faster. Each try counts.
        Operation::CompareExchange => ("compare_exchange", |line| {
            let old = line.load(Ordering::Relaxed);
            let _ = line.compare_exchange(old, old + 1, Ordering::Relaxed, Ordering::Relaxed);
        }),
    };
    let mut samples = Samples::new(format!("contended {what}, {} CPUs", cpus.len()), "ns");
    let line = Line(AtomicU64::new(0));
    let (there, over) = (Line(AtomicUsize::new(0)), Line(AtomicBool::new(false)));
    let done: Vec<Line<AtomicU64>> = cpus.iter().map(|_| Line(AtomicU64::new(0))).collect();
    std::thread::scope(|scope| {
        let start = |at: usize| {
            let (line, there, over, done) = (&line.0, &there.0, &over.0, &done[at].0);
            let cpu = cpus[at];
            let body = move || {
                let bound = bind(cpu);
                // Relaxed here and below: counters and a flag, which guard nothing; the joins order the end.
                there.fetch_add(1, Ordering::Relaxed);
                bound?;
                while !over.load(Ordering::Relaxed) {
                    (0..TURN).for_each(|_| once(line));
                    done.store(done.load(Ordering::Relaxed) + TURN, Ordering::Relaxed);
                }
                Ok::<(), Error>(())
            };
            std::thread::Builder::new().spawn_scoped(scope, body).map_err(no_thread)
        };
        let threads: Result<Vec<_>, Error> = (0..cpus.len()).map(start).collect();
        if let Ok(threads) = &threads {
            while there.0.load(Ordering::Relaxed) < threads.len() {
                std::thread::yield_now();
            }
            let sum = || done.iter().map(|one| one.0.load(Ordering::Relaxed)).sum::<u64>();
            let patience = Instant::now() + PATIENCE;
            while samples.values.len() < count && Instant::now() < patience {
                let (before, from) = (sum(), Instant::now());
                std::thread::sleep(WINDOW);
                let (passed, operations) = (from.elapsed(), sum() - before);
                if operations > 0 {
                    samples.add(passed.as_nanos() as f64 / operations as f64, false);
                }
            }
        }
        over.0.store(true, Ordering::Relaxed);
        threads?.into_iter().try_for_each(|thread| thread.join().expect("it does not panic"))
    })?;
    if samples.values.is_empty() {
        return Err(Error::run(format!("{}: no CPU made progress", samples.name)));
    }
    Ok(samples)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::tests::cpus;

    #[test]
    fn the_order_without_a_pattern_has_each_line_once() {
        let mut order = without_pattern();
        order.sort_unstable();
        assert!(order.iter().copied().eq(0..MANY));
    }

    #[test]
    fn a_line_bounces_between_two_cpus_and_costs_more_than_an_own_one() {
        let cpus = cpus();
        let [a, b] = [cpus[0], *cpus.last().unwrap()];
        if a == b {
            return println!("skipped: the bounce of a line: it needs two CPUs");
        }
        let bounce = bounce("bounce", [a, b], None, 20).unwrap();
        assert_eq!(bounce.values.len(), 20);
        // The least: another program on one of the two CPUs makes it longer.
        let least = bounce.values.iter().copied().fold(f64::INFINITY, f64::min);
        assert!((2.0..20_000.0).contains(&least), "{least}");
        let many = many(Class::SameLlc, &[(a, b)], 20).unwrap();
        let each = many.values.iter().copied().fold(f64::INFINITY, f64::min);
        assert_eq!(many.values.len(), 20);
        assert!(each > 0.2 && each < 2.0 * least, "{each} ns a line, {least} ns alone");
        let contended = contended(Operation::FetchAdd, &[a, b], 5).unwrap();
        assert_eq!(
            (contended.name.as_str(), contended.values.len()),
            ("contended fetch_add, 2 CPUs", 5)
        );
    }
}
