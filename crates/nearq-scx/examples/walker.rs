//! A task whose memory is on the wrong node: for tests under a loaded scheduler.
//!
//! It starts on any node, gets its memory from another node, walks through it, and prints how long it takes until it has run where its
//! memory is for a second without a break. The exit status is 1 if that does not happen within half a minute.
//!
//! `walker NODES [MEBIBYTES]`: NODES is the number of nodes of the machine.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::process::ExitCode;
use std::ptr;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
/// Linux's numbers of memory policies.
const DEFAULT: i32 = 0;
const BIND: i32 = 2;

fn main() -> ExitCode {
    let mut numbers = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let nodes: u32 = numbers.next().expect("how many nodes there are") as u32;
    let mebibytes: usize = numbers.next().unwrap_or(32);
    // Its home may be another node: the task goes to its home first.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        std::hint::spin_loop();
    }
    let wrong = (node() + 1) % nodes;
    prefer(BIND, 1 << wrong);
    let mut memory = vec![1_u64; mebibytes << 17];
    prefer(DEFAULT, 0);
    println!("memory on node {wrong}, running on node {}", node());

    let begun = Instant::now();
    let mut together = None;
    let mut sum = 0_u64;
    while begun.elapsed() < Duration::from_secs(30) {
        for word in memory.iter_mut().step_by(512) {
            *word = word.wrapping_mul(7).wrapping_add(1);
            sum = sum.wrapping_add(*word);
        }
        if at(&memory, node()) * 100 < 95 * SAMPLES {
            together = None;
            continue;
        }
        let since = *together.get_or_insert_with(Instant::now);
        if since.elapsed() > Duration::from_secs(1) {
            let after = (since - begun).as_millis();
            println!("together after {after} ms on node {} ({})", node(), sum & 1);
            return ExitCode::SUCCESS;
        }
    }
    println!(
        "not together: running on node {}, {} of {SAMPLES} pages there",
        node(),
        at(&memory, node())
    );
    ExitCode::FAILURE
}

const SAMPLES: usize = 64;

/// How many of the sampled pages are on a node.
fn at(memory: &[u64], node: u32) -> usize {
    let step = memory.len() * 8 / SAMPLES / PAGE * PAGE;
    let start = memory.as_ptr().addr();
    let pages: [usize; SAMPLES] = std::array::from_fn(|index| (start + index * step) / PAGE * PAGE);
    let mut status = [-1_i32; SAMPLES];
    // SAFETY: as many addresses are read and as many words written as there are; nothing is moved.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            0,
            SAMPLES,
            pages.as_ptr(),
            ptr::null::<i32>(),
            status.as_mut_ptr(),
            0,
        )
    };
    assert_eq!(result, 0, "the nodes of pages can be read");
    status.iter().filter(|found| u32::try_from(**found) == Ok(node)).count()
}

/// The node that the calling thread runs on.
fn node() -> u32 {
    let mut node = 0_u32;
    // SAFETY: the kernel writes one word.
    let result =
        unsafe { libc::syscall(libc::SYS_getcpu, ptr::null_mut::<u32>(), &raw mut node, 0) };
    assert_eq!(result, 0, "the kernel says where this runs");
    node
}

/// Sets where memory comes from.
fn prefer(mode: i32, nodes: u64) {
    let mask = if mode == DEFAULT { ptr::null() } else { &raw const nodes };
    let bits = if mode == DEFAULT { 0 } else { 64 };
    // SAFETY: the kernel reads a word at most.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask, bits) };
    assert_eq!(result, 0, "a policy can be set");
}
