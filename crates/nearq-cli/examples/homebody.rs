//! A job that reports where it has been: `homebody MIB SECONDS [FILE]` touches that much memory for that long and, if a file is named,
//! continues until the file exists. Then it prints one line of JSON.
//!
//! `cpus`: the CPUs that it was allowed to use at its start. `kib`: its memory on each node at the end, from `/proc/self/numa_maps`.
//! `policies`: the memory policies named there. `begin`: its start, in seconds since the machine started. `nodes`: the node on which it
//! was, a digit for every 20 ms.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a Linux program")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

const PAGE: usize = 4096;
const INTERVAL: Duration = Duration::from_millis(20);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let numbers: Vec<f64> = arguments.iter().filter_map(|argument| argument.parse().ok()).collect();
    let [mib, seconds, ..] = numbers[..] else { panic!("usage: homebody MIB SECONDS [FILE]") };
    // The file is the argument that is not a number: `nearq run` appends its inputs, which are numbers.
    let file = arguments.iter().find(|argument| argument.parse::<f64>().is_err()).map(Path::new);
    let begin = Instant::now();
    let booted = fs::read_to_string("/proc/uptime").unwrap();
    let booted: f64 = booted.split_whitespace().next().unwrap().parse().unwrap();
    let cpus = status("Cpus_allowed_list:");
    let mut memory = vec![0_u8; (mib * 1048576.0) as usize];
    let mut nodes = String::new();
    while begin.elapsed().as_secs_f64() < seconds || file.is_some_and(|file| !file.exists()) {
        while begin.elapsed() < INTERVAL * (nodes.len() as u32 + 1) {
            for byte in memory.iter_mut().step_by(PAGE) {
                *byte = byte.wrapping_add(1);
            }
        }
        nodes.push_str(&node().to_string());
    }
    let (kib, policies) = maps();
    println!(
        "{}",
        serde_json::json!({ "cpus": cpus, "kib": kib, "policies": policies, "begin": booted, "nodes": nodes })
    );
    // The memory must stay allocated until here.
    drop(memory);
}

fn status(name: &str) -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap();
    text.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned()
}

fn node() -> u32 {
    let (mut cpu, mut node) = (0_u32, 0_u32);
    // SAFETY: validity: two places for numbers; the third argument is no longer used. Aliasing: the only references are
    // those passed. Thread: the caller's own.
    let returned = unsafe {
        libc::syscall(libc::SYS_getcpu, &raw mut cpu, &raw mut node, std::ptr::null::<u8>())
    };
    assert_eq!(returned, 0);
    node
}

/// The KiB on each node, and the policies.
fn maps() -> (BTreeMap<String, u64>, BTreeSet<String>) {
    let (mut kib, mut policies) = (BTreeMap::new(), BTreeSet::new());
    for line in fs::read_to_string("/proc/self/numa_maps").unwrap().lines() {
        policies.extend(line.split_whitespace().nth(1).map(str::to_owned));
        // Pages of files are on the node of the process that read them first.
        if line.contains("file=") {
            continue;
        }
        let size = line
            .split_once("kernelpagesize_kB=")
            .map_or(4, |(_, size)| size.trim().parse().unwrap());
        for (node, pages) in
            line.split_whitespace().filter_map(|word| word.strip_prefix('N')?.split_once('='))
        {
            *kib.entry(node.to_owned()).or_insert(0) += pages.parse::<u64>().unwrap() * size;
        }
    }
    (kib, policies)
}
