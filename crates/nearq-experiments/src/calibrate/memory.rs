//! What memory costs: latency and rates by place, and the first touch of a page.
//!
//! | quantity | what is measured | what is subtracted, and why |
//! |---|---|---|
//! | `memory latency DISTANCE` | a chain of reads over all lines of a large range in random order, so that no prefetcher knows the next | nothing; large pages, if the kernel has some, keep the reads of page tables out |
//! | `l2 stream`, `l3 stream`, `memory stream` | one CPU adds up the words of a range, in order, that fits into half of its L2, into a quarter of its last-level cache, and into no cache | nothing |
//! | `llc bandwidth`, `node bandwidth`, `link bandwidth` | the same by a CPU of each core of a cache, of a node, and of a node to the memory of another | nothing |
//! | `page fault` | the first write to each page of a new range, which the kernel clears | nothing: clearing is part of the cost |

use super::meter::{Pages, Samples, batches, batches_on, bind, on};
use crate::Error;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::Instant;

/// Bytes of a line.
const LINE: usize = 64;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Makes a chain of all lines of a range: each holds the number of the word to read next. A cycle in random order (Sattolo).
fn chain(words: &mut [u64]) {
    let lines = words.len() / (LINE / 8);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    // The same chain each time.
    let mut random = fastrand::Rng::with_seed(1);
    for last in (1..lines).rev() {
        order.swap(last, random.usize(..last));
    }
    for (from, to) in order.iter().enumerate() {
        words[from * (LINE / 8)] = u64::from(*to) * (LINE / 8) as u64;
    }
}

/// The latency of the memory of a node, or of the nearest if none is named, from `cpu`.
pub(super) fn latency(
    name: &str,
    cpu: usize,
    node: Option<usize>,
    bytes: usize,
    count: usize,
) -> Result<Samples, Error> {
    on(cpu, || {
        let mut pages = Pages::new(bytes, node, true)?;
        let words = pages.words();
        chain(words);
        let mut at = 0;
        Ok(batches(name, count, |times| {
            for _ in 0..times {
                at = words[at] as usize;
            }
            black_box(at);
        }))
    })
}

/// The sum of all words, with as many partial sums as a core can add at once.
#[inline(never)]
fn sum(words: &[u64]) -> u64 {
    let mut sums = [0_u64; 32];
    for chunk in words.chunks_exact(32) {
        for (sum, word) in sums.iter_mut().zip(chunk) {
            *sum = sum.wrapping_add(*word);
        }
    }
    sums.iter().fold(0, |all, one| all.wrapping_add(*one))
}

/// Megabytes a second of that many bytes in nanoseconds.
fn rate(bytes: usize, nanoseconds: f64) -> f64 {
    bytes as f64 * 1000.0 / nanoseconds
}

/// The rate at which one CPU reads a range of that size again and again.
pub(super) fn stream(name: &str, cpu: usize, bytes: usize, count: usize) -> Result<Samples, Error> {
    let mut pages = Pages::new(bytes, None, true)?;
    let words = pages.words();
    let mut samples = batches_on(cpu, name, count, |times| {
        // The pages are touched on the CPU that reads them.
        if words[0] == 0 {
            words.fill(1);
        }
        for _ in 0..times {
            black_box(sum(black_box(words)));
        }
    })?;
    samples.unit = "MB/s";
    samples.values.iter_mut().for_each(|value| *value = rate(bytes, *value));
    Ok(samples)
}

/// The rate at which several CPUs together read memory of a node, each its own range.
pub(super) fn together(
    name: &str,
    cpus: &[usize],
    node: Option<usize>,
    bytes: usize,
    count: usize,
) -> Result<Samples, Error> {
    let barrier = Barrier::new(cpus.len());
    let mut samples = Samples::new(name, "MB/s");
    let prepare = || {
        let mut pages = Pages::new(bytes, node, true)?;
        pages.words().fill(1);
        Ok(pages)
    };
    // Each range is touched by the CPU that reads it, so that it is near it if no node is named.
    let ranges: Result<Vec<Pages>, Error> = cpus.iter().map(|cpu| on(*cpu, prepare)).collect();
    let mut ranges = ranges?;
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (cpu, range) in cpus.iter().zip(&mut ranges) {
            let barrier = &barrier;
            let body = move || {
                let bound = bind(*cpu);
                let mut times = Vec::with_capacity(count);
                for _ in 0..count {
                    barrier.wait();
                    let start = Instant::now();
                    black_box(sum(black_box(range.words())));
                    times.push((start, Instant::now()));
                }
                bound.map(|()| times)
            };
            let thread = std::thread::Builder::new().spawn_scoped(scope, body);
            // A thread that cannot be started would leave the others at the barrier.
            threads.push(thread.expect("failed to spawn thread"));
        }
        let times: Result<Vec<_>, Error> =
            threads.into_iter().map(|thread| thread.join().expect("it does not panic")).collect();
        let times = times?;
        for round in 0..count {
            let of_round = || times.iter().map(|times| times[round]);
            let start = of_round().map(|(start, _)| start).min();
            let end = of_round().map(|(_, end)| end).max();
            if let Some((start, end)) = start.zip(end) {
                let passed = (end - start).as_nanos() as f64;
                samples.add(rate(bytes * cpus.len(), passed), false);
            }
        }
        Ok::<(), Error>(())
    })?;
    Ok(samples)
}

/// Pages of a batch of first touches.
const TOUCHED: usize = 256;

/// The first touch of a page.
pub(super) fn page_fault(cpu: usize, count: usize) -> Result<Samples, Error> {
    on(cpu, || {
        let mut samples = Samples::new("page fault", "ns");
        for _ in 0..count {
            let mut pages = Pages::new(TOUCHED * PAGE, None, false)?;
            let words = pages.words();
            let before = super::meter::switches_of_thread();
            let start = Instant::now();
            for page in words.chunks_exact_mut(PAGE / 8) {
                page[0] = 1;
            }
            let passed = start.elapsed().as_nanos() as f64;
            let preempted = super::meter::switches_of_thread() != before;
            samples.add(passed / TOUCHED as f64, preempted);
        }
        Ok(samples)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::tests::{a_cpu, cpus};

    #[test]
    fn the_chain_visits_every_line_once() {
        let mut words = vec![0; 64 * LINE / 8];
        chain(&mut words);
        let (mut at, mut seen) = (0, 0);
        loop {
            at = words[at] as usize;
            seen += 1;
            if at == 0 {
                break;
            }
        }
        assert_eq!(seen, 64);
    }

    #[test]
    fn memory_has_a_latency_and_a_rate() {
        let cpu = a_cpu();
        let near = latency("near", cpu, None, 1 << 13, 9).unwrap().median();
        let far = latency("far", cpu, None, 1 << 25, 9).unwrap().median();
        assert!(far > near && far < 10_000.0, "{near} {far}");
        let stream = stream("stream", cpu, 1 << 16, 5).unwrap().median();
        let all = together("all", &cpus(), None, 1 << 20, 5).unwrap().median();
        assert!(stream > 10.0 && all > 10.0, "MB/s: {stream} {all}");
        let fault = page_fault(cpu, 9).unwrap().median();
        assert!((50.0..200_000.0).contains(&fault), "{fault}");
    }

    #[test]
    fn all_words_are_added() {
        let words: Vec<u64> = (0..320).collect();
        assert_eq!(sum(&words), 319 * 320 / 2);
    }
}
