//! The rules for numbers that are not published: distances that a machine does not have, shares of a link, and
//! what the kernel's paths cost.
//!
//! A rule applies to a machine only if its own file has no number. Rules are applied in order: each may use the results of the rules before
//! it.
//!
//! # The kernel
//! The kernel's paths are counted in cycles and cost the same number of cycles on every machine (`kernel.json`). The cycles come from a
//! measurement on some machine, times that machine's clock; a clock that is not stated counts as 4 GHz.

use super::file::Sheet;
use crate::costs::Given;
use crate::source::{Origin, Source};

/// What the kernel's paths cost on every machine.
const KERNEL: &str = include_str!("../../machines/kernel.json");

/// How one cost follows from others.
struct Rule {
    cost: &'static str,
    text: &'static str,
    value: fn(&Sheet) -> Option<u64>,
}

/// The costs that are added to others, or whose lack means that the machine does no such thing.
const MAY_BE_NOTHING: [&str; 11] = [
    "store_buffer",
    "capture",
    "interrupt",
    "home_same_package",
    "home_other_package",
    "far_atomic",
    "deep_idle_exit",
    "deep_idle_after",
    "timer_interrupt",
    "timer_slack",
    "tick",
];

/// Adds the missing costs.
pub(super) fn complete(sheet: &mut Sheet) {
    let kernel: Given = serde_json::from_str(KERNEL).expect("kernel.json: costs by name");
    for (cost, given) in kernel.each() {
        sheet.read(cost, given).unwrap_or_else(|wrong| panic!("kernel.json: {wrong}"));
    }
    for &Rule { cost, text, value } in RULES {
        if sheet.get(cost).is_none()
            && let Some(value) = value(sheet)
        {
            let origin = if cost == "slice" { Origin::Specified } else { Origin::Derived };
            let value = if MAY_BE_NOTHING.contains(&cost) { value } else { value.max(1) };
            sheet.put(Source { cost, value, origin, text: text.into() });
        }
    }
}

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Nanoseconds for that many bytes at that many MB/s.
fn at_rate(bytes: u64, megabytes_a_second: u64) -> u64 {
    bytes * 1_000 / megabytes_a_second
}

fn has_smt(sheet: &Sheet) -> bool {
    sheet.topology().cores().iter().any(|core| core.cpus.len() > 1)
}

fn one_core_each(sheet: &Sheet) -> bool {
    sheet.topology().llcs().iter().all(|llc| llc.core_indices.len() == 1)
}

fn one_llc_a_node(sheet: &Sheet) -> bool {
    sheet.topology().llcs().len() == sheet.topology().nodes().len()
}

fn one_node_a_package(sheet: &Sheet) -> bool {
    sheet.topology().nodes().len() <= sheet.topology().packages().len().max(1)
}

fn one_node(sheet: &Sheet) -> bool {
    sheet.topology().nodes().len() == 1
}

/// The result of `get`, if the machine lacks the part that would make the cost differ.
fn nearer(lacks: bool, sheet: &Sheet, get: &str) -> Option<u64> {
    if lacks { sheet.get(get) } else { None }
}

const NONE_SUCH: &str =
    "no two CPUs are exactly this far apart: the same as the next shorter distance";

const NO_NOISE: &str = "none unless it is asked for";
const NO_HOME: &str = "nothing: a line costs the same wherever its home is";

const RULES: &[Rule] = &[
    Rule {
        cost: "own_line_ps",
        text: "as own_line: no access is executed beside another",
        value: |sheet| Some(sheet.get("own_line")? * 1_000),
    },
    Rule {
        cost: "fence",
        text: "a full fence is a read-modify-write of an own line (Linux's smp_mb() on x86 is one)",
        value: |sheet| sheet.get("read_modify_write"),
    },
    Rule {
        cost: "same_core",
        text: NONE_SUCH,
        value: |sheet| nearer(!has_smt(sheet), sheet, "own_line"),
    },
    Rule {
        cost: "same_llc",
        text: NONE_SUCH,
        value: |sheet| nearer(one_core_each(sheet), sheet, "same_core"),
    },
    Rule {
        cost: "other_llc",
        text: NONE_SUCH,
        value: |sheet| nearer(one_llc_a_node(sheet), sheet, "same_llc"),
    },
    Rule {
        cost: "same_package",
        text: NONE_SUCH,
        value: |sheet| nearer(one_node_a_package(sheet), sheet, "other_llc"),
    },
    Rule {
        cost: "other_package",
        text: NONE_SUCH,
        value: |sheet| nearer(one_node(sheet), sheet, "same_package"),
    },
    Rule { cost: "home_same_package", text: NO_HOME, value: |_| Some(0) },
    Rule { cost: "home_other_package", text: NO_HOME, value: |_| Some(0) },
    Rule {
        cost: "far_atomic",
        text: "none: the CPU gets the line for each read-modify-write",
        value: |_| Some(0),
    },
    Rule {
        cost: "memory_same_package",
        text: "the package has one node: as the node's own memory",
        value: |sheet| nearer(one_node_a_package(sheet), sheet, "memory"),
    },
    Rule {
        cost: "memory_other_package",
        text: "one node: as its own memory; else own memory plus what a line takes longer from the other package \
               than from another last-level cache of the node",
        value: |sheet| {
            let memory = sheet.get("memory")?;
            if one_node(sheet) {
                return Some(memory);
            }
            Some(memory + sheet.get("other_package")?.saturating_sub(sheet.get("other_llc")?))
        },
    },
    Rule {
        cost: "link_bandwidth",
        text: "one node: there is no link; as the node's memory",
        value: |sheet| nearer(one_node(sheet), sheet, "node_bandwidth"),
    },
    Rule {
        cost: "smt_percent",
        text: "one CPU a core",
        value: |sheet| if has_smt(sheet) { None } else { Some(100) },
    },
    Rule {
        cost: "counter",
        text: "as the clock, which the kernel computes from it",
        value: |sheet| sheet.get("clock"),
    },
    Rule {
        cost: "capture",
        text: "none: the next CPU gets the line after the access",
        value: |_| Some(0),
    },
    Rule {
        cost: "store_buffer",
        text: "none: the CPU waits for each line, one after the other",
        value: |_| Some(0),
    },
    Rule { cost: "interrupt", text: "part of wake_up", value: |_| Some(0) },
    Rule { cost: "deep_idle_exit", text: NO_NOISE, value: |_| Some(0) },
    Rule { cost: "deep_idle_after", text: NO_NOISE, value: |_| Some(0) },
    Rule { cost: "timer_interrupt", text: NO_NOISE, value: |_| Some(0) },
    Rule { cost: "timer_slack", text: NO_NOISE, value: |_| Some(0) },
    Rule { cost: "tick", text: NO_NOISE, value: |_| Some(0) },
    // ---- the kernel ----------------------------------------------------------------------------------------
    Rule {
        cost: "migration",
        text: "taking a thread out of one run queue and into another: a wake-up, and six lines (two locks, two \
               queues, two of the thread) from as far as a node reaches",
        value: |sheet| Some(sheet.get("wake_up")? + 6 * sheet.get("other_llc")?),
    },
    Rule {
        cost: "page_fault",
        text: "784 cycles, and 4 KiB cleared at memory_stream: lmbench Pagefaults 0.196 us on Linux 6.13.5 (0.388 \
               us before a patch that hardly touches it); U. Bizjak, 2025, \
               https://lore.kernel.org/r/20250309170955.48919-1-ubizjak@gmail.com",
        value: |sheet| Some(sheet.cycles(784) + at_rate(PAGE, sheet.get("memory_stream")?)),
    },
    Rule {
        cost: "read_machine",
        text: "20 files in sysfs a CPU, 8000 cycles each (2 us at 4 GHz; lmbench open/close alone takes 1.55 us in \
               the sample of PerfKitBenchmarker)",
        value: |sheet| Some(sheet.topology().possible().len() as u64 * sheet.cycles(20 * 8_000)),
    },
    Rule {
        cost: "slice",
        text: "base_slice: 0.7 ms times 1 + log2(CPUs, at most 8), rounded down; kernel/sched/fair.c since Linux \
               6.15, commit 2ae891b82695",
        value: |sheet| {
            let cpus = sheet.topology().possible().len().clamp(1, 8);
            Some(700_000 * (1 + u64::from(cpus.ilog2())))
        },
    },
];
