//! Samples on which nodes a process's memory is, and moves it.
//!
//! The kernel returns the node of single pages (`move_pages(2)` without nodes), so the cost depends on the number of pages that are
//! sampled, not on the number that exist. Only memory that the process may write is sampled: code and memory that it only reads are shared
//! with other processes, and are on the node of the process that touched them first. If almost no addresses have pages (reserves of
//! language runtimes), and the process is small, all of its pages are counted.

use std::io;
use std::ops::Range;
use std::ptr;
use std::time::{Duration, Instant};

use nearq_processes::proc;

/// Pages in one call, and the most calls.
const SAMPLES: usize = 128;
const ROUNDS: u64 = 8;
/// The number of present pages that is enough for a result; with fewer there is no result.
const ENOUGH: u64 = 64;
const FEW: u64 = 16;
/// If a sample finds too few pages, all pages are counted in a process of up to this size, which takes some 3 ms.
const SMALL: u64 = 256 << 20;
/// The most bytes that are read of a process's list of mappings: some 40,000 mappings.
const LONGEST_MAPS: u64 = 4 << 20;

/// Where a process's memory is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Residency {
    /// Pages of the sample, or bytes, by the operating system's number of the node.
    pub(crate) nodes: Vec<(usize, u64)>,
    /// All bytes that are private to it or shared for writing.
    pub(crate) bytes: u64,
}

impl Residency {
    /// Samples a process. `None` if it is gone, belongs to the kernel, or has too few pages for a result. `seed` chooses the pages.
    pub(crate) fn of(process: u32, seed: u64) -> Option<Self> {
        let ranges = writable(&proc::read(format!("/proc/{process}/maps"), LONGEST_MAPS)?);
        let status = proc::read(format!("/proc/{process}/status"), proc::LONGEST_STATUS)?;
        let bytes = written(&status);
        let page = rustix::param::page_size() as u64;
        let mut nodes = Vec::new();
        for round in 0..ROUNDS {
            let addresses = sample(&ranges, SAMPLES, page, seed.wrapping_add(round));
            for node in page_nodes(process, &addresses).ok()? {
                // Otherwise the page is not present.
                if let Ok(node) = usize::try_from(node) {
                    count(&mut nodes, node);
                }
            }
            if sum(&nodes) >= ENOUGH {
                break;
            }
        }
        if sum(&nodes) < FEW {
            if bytes < FEW * page || bytes > SMALL {
                return None;
            }
            nodes = proc::resident(process)?;
        }
        Some(Residency { nodes, bytes })
    }
}

fn sum(nodes: &[(usize, u64)]) -> u64 {
    nodes.iter().map(|(_, pages)| pages).sum()
}

fn count(nodes: &mut Vec<(usize, u64)>, node: usize) {
    match nodes.iter_mut().find(|(known, _)| *known == node) {
        Some((_, pages)) => *pages += 1,
        None => nodes.push((node, 1)),
    }
}

/// The mappings that a process may write, from the text of `/proc/PID/maps`.
fn writable(text: &str) -> Vec<Range<u64>> {
    let parse = |line: &str| {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        (rest.as_bytes().get(1) == Some(&b'w')).then_some(number(start)?..number(end)?)
    };
    text.lines().filter_map(parse).filter(|range| !range.is_empty()).collect()
}

/// Bytes that a process has written or shares for writing, from the text of `/proc/PID/status`.
fn written(text: &str) -> u64 {
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    (of("RssAnon:").unwrap_or(0) + of("RssShmem:").unwrap_or(0)) * 1024
}

/// At most `count` addresses of different pages. Half of them are spread evenly over all pages, and half evenly over the mappings, so that
/// a huge reserve with few pages does not hide the rest.
fn sample(ranges: &[Range<u64>], count: usize, page: u64, seed: u64) -> Vec<u64> {
    let pages = |range: &Range<u64>| (range.end - range.start).div_ceil(page);
    let all: u64 = ranges.iter().map(pages).sum();
    let mut random = Random(seed);
    let mut addresses = Vec::with_capacity(count);
    let even = (count as u64 / 2).min(all);
    // One page from each part of equal length, at a random place within the part.
    let mut wanted = (0..even).map(|part| {
        let (from, to) = (part * all / even, (part + 1) * all / even);
        from + random.below(to - from)
    });
    let (mut before, mut next) = (0, wanted.next());
    for range in ranges {
        let range_pages = pages(range);
        while let Some(at) = next.filter(|at| *at < before + range_pages) {
            addresses.push(range.start / page * page + (at - before) * page);
            next = wanted.next();
        }
        before += range_pages;
    }
    if !ranges.is_empty() {
        for at in 0..count / 2 {
            let range = &ranges[at * ranges.len() / (count / 2)];
            addresses.push(range.start / page * page + random.below(pages(range)) * page);
        }
    }
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// Pseudo-random numbers: Vigna's SplitMix64.
struct Random(u64);

impl Random {
    /// A number below a bound that is not zero.
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// The node of each page, or its error as a negative number.
fn page_nodes(process: u32, addresses: &[u64]) -> io::Result<Vec<i32>> {
    pages(process, addresses, None)
}

/// Moves pages if nodes are given, one for each page. Returns the node of each page afterwards, or its error.
fn pages(process: u32, addresses: &[u64], to: Option<&[i32]>) -> io::Result<Vec<i32>> {
    /// Pages that other processes also map are not moved.
    const MPOL_MF_MOVE: i32 = 2;
    assert!(to.is_none_or(|to| to.len() == addresses.len()));
    let mut status = vec![-1_i32; addresses.len()];
    // SAFETY: the kernel reads as many addresses as the slice has, and as many nodes if there are any, follows none of the addresses in
    // this process, and writes as many words, for which there is space. The contents of a moved page do not change.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            libc::c_long::from(process),
            addresses.len(),
            addresses.as_ptr(),
            to.map_or(ptr::null(), <[i32]>::as_ptr),
            status.as_mut_ptr(),
            MPOL_MF_MOVE,
        )
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(status) }
}

/// The time to move a mebibyte from one node to another, measured with memory of our own. None if that is not possible.
pub(crate) fn for_mebibyte(from: u32, to: u32) -> Option<Duration> {
    const BYTES: usize = 1 << 20;
    let page = rustix::param::page_size();
    let memory = vec![1_u8; BYTES + page];
    let start = memory.as_ptr().addr().next_multiple_of(page);
    let addresses: Vec<u64> = (start..start + BYTES).step_by(page).map(|at| at as u64).collect();
    let bring = |node: u32| {
        let nodes = vec![node.cast_signed(); addresses.len()];
        let found = pages(0, &addresses, Some(&nodes)).ok()?;
        (found == nodes).then_some(())
    };
    bring(from)?;
    let begun = Instant::now();
    bring(to)?;
    let took = begun.elapsed();
    // The page was there all the time.
    std::hint::black_box(&memory);
    Some(took)
}

/// Moves a process's pages from all other nodes to one node. Returns how many could not be moved.
///
/// # Errors
/// If the process is gone, or it may not use the node's memory.
pub(crate) fn bring(process: u32, from: &[u32], to: u32) -> io::Result<u64> {
    const WORDS: usize = 16;
    let mut masks = [[0_u64; WORDS]; 2];
    let mut set = |mask: usize, node: u32| {
        if let Some(word) = masks[mask].get_mut(node as usize / 64) {
            *word |= 1 << (node % 64);
        }
    };
    from.iter().filter(|node| **node != to).for_each(|node| set(0, *node));
    set(1, to);
    // SAFETY: the kernel reads as many bits of both masks as the argument says, in fact one less, and writes none.
    let result = unsafe {
        libc::syscall(
            libc::SYS_migrate_pages,
            libc::c_long::from(process),
            WORDS * 64,
            masks[0].as_ptr(),
            masks[1].as_ptr(),
        )
    };
    u64::try_from(result).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skipped::skipped;

    /// Says what cannot be tested about a process's pages if the kernel has no nodes.
    const WHAT: &str = "where pages are";
    const HOW: &str = "a kernel with CONFIG_NUMA and CONFIG_MIGRATION";

    const MAPS: &str = "\
55d0a0000000-55d0a0001000 r--p 00000000 fe:00 1 /bin/x
55d0a0001000-55d0a0003000 rw-p 00001000 fe:00 1 /bin/x
7f0000000000-7f0000100000 rw-p 00000000 00:00 0 [heap]
7f1000000000-7f1000001000 ---p 00000000 00:00 0
7f2000000000-7f2000002000 rw-s 00000000 00:01 9 /memfd:x (deleted)
";

    #[test]
    fn only_writable_memory_is_sampled() {
        let ranges = writable(MAPS);
        assert_eq!(ranges.len(), 3);
        assert_eq!(ranges[0], 0x55d0_a000_1000..0x55d0_a000_3000);
        assert_eq!(written("VmRSS:\t 99 kB\nRssAnon:\t 12 kB\nRssShmem:\t 4 kB\n"), 16 << 10);
    }

    #[test]
    fn samples_are_within_the_mappings_and_in_each_of_them() {
        let ranges = writable(MAPS);
        for seed in 0..50 {
            let addresses = sample(&ranges, 256, 4096, seed);
            assert!(addresses.len() <= 256 && addresses.len() > 100, "{}", addresses.len());
            assert!(addresses.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(addresses.iter().all(|at| at % 4096 == 0));
            let within =
                |at: &u64| ranges.iter().position(|range| range.contains(at)).expect("within one");
            let hit: Vec<usize> = addresses.iter().map(within).collect();
            assert!((0..3).all(|range| hit.contains(&range)));
        }
        assert!(sample(&[], 256, 4096, 1).is_empty());
        let page = 0x1000..0x2000;
        assert_eq!(sample(std::slice::from_ref(&page), 256, 4096, 1), [0x1000]);
    }

    #[test]
    fn this_process_has_memory_somewhere() {
        let memory = vec![1_u8; 4 << 20];
        let Some(found) = Residency::of(std::process::id(), 1) else {
            return skipped(WHAT, "this kernel does not say where they are", HOW);
        };
        assert!(found.bytes >= memory.len() as u64 && sum(&found.nodes) >= FEW, "{found:?}");
        assert!(std::hint::black_box(&memory).iter().all(|byte| *byte == 1));
    }

    #[test]
    fn moving_pages_takes_time_and_fails_for_an_unknown_node() {
        let Some(took) = for_mebibyte(0, 0) else {
            return skipped(WHAT, "this kernel moves none", HOW);
        };
        assert!(took > Duration::ZERO && took < Duration::from_secs(10));
        assert_eq!(for_mebibyte(0, 1023), None);
    }
}
