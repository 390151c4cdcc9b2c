//! What was published about locks on machines that can be simulated, and how far the simulation is from it.
//!
//! A figure is a *ratio*: the throughput of a lock to that of another one, or to the same experiment with one writer. Absolute figures of a
//! kernel and of a simulation cannot be compared. If the ratio is a gain over another lock with as many writers,
//! the error factor is that of the gains.

use super::Load;
use super::contestants::{
    AUTO, CNA, HQ_CACHES, HQ_DEPTH, HQ_SOCKETS, KERNEL_OSQ, KERNEL_OSQ_2, KERNEL_OSQ_DYNAMIC, NUMA,
    PLAIN, QSPINLOCK,
};
use super::goals::of;
use crate::harness::published as error_factor;
use nearq_report::{Row, metric};
use serde::Serialize;

/// The origin of the document's figures, for a table.
pub(super) const SOURCE: &str = "\"dynamic numa-aware osq_lock\", v1 and v2, September 2024, Linux 6.6.28, gain over the kernel's own lock";
/// The origin of those about the EPYC 9654.
const HQ_SOURCE: &str =
    "\"HQ-spinlock\", linux-kernel, November 2025 to April 2026, gain over the kernel's qspinlock";

/// The document's two machines, and that of the HQ-spinlock.
pub(super) const EPYC_7551: &str = "epyc-7551-2s";
const KH_40000: &str = "kh-40000-2s";
const EPYC_9654: &str = "epyc-9654-2s";

/// Locktorture on two EPYC 7551, writers pinned, the average of nine runs: writers, and what was counted for each of [`COLUMNS`].
const TORTURE: [(usize, [f64; 3]); 8] = [
    (1, [21_047_265.0, 21_331_993.0, 21_359_519.0]),
    (2, [39_186_677.0, 40_348_197.0, 39_387_961.0]),
    (4, [43_467_264.0, 44_133_849.0, 38_961_218.0]),
    (8, [43_780_445.0, 48_887_433.0, 41_725_007.0]),
    (16, [41_407_176.0, 51_042_178.0, 71_381_112.0]),
    (32, [46_000_746.0, 50_060_246.0, 79_361_487.0]),
    (48, [44_235_011.0, 44_988_160.0, 79_779_501.0]),
    (64, [59_054_128.0, 62_233_006.0, 112_695_286.0]),
];
/// The document's columns, and their rows here: "4-byte", "dynamic disable", "dynamic enable".
const COLUMNS: [&str; 3] = [KERNEL_OSQ, KERNEL_OSQ_2, KERNEL_OSQ_DYNAMIC];

/// Locktorture on one KH-40000; the writers are not told, and are taken to be as many as its CPUs.
const KH_TORTURE: (usize, f64) = (32, 141.87);

/// The HQ-spinlock's authors: writers, and the gains with queues by socket, with queues by last-level cache, and of CNA.
const HQ: [(usize, [f64; 3]); 2] = [(128, [9.0, 163.0, 0.0]), (384, [-1.0, 186.0, 0.0])];
const HQ_ROWS: [&str; 3] = [HQ_SOCKETS, HQ_CACHES, CNA];

/// The lock that the gain of a row is over.
pub(super) fn base(row: &str) -> Option<&'static str> {
    match row {
        AUTO | NUMA => Some(PLAIN),
        CNA | HQ_SOCKETS | HQ_CACHES | HQ_DEPTH => Some(QSPINLOCK),
        KERNEL_OSQ_2 | KERNEL_OSQ_DYNAMIC => Some(KERNEL_OSQ),
        _ => None,
    }
}

fn torture(writers: usize, row: &str) -> Option<f64> {
    let column = COLUMNS.iter().position(|of| *of == row)?;
    TORTURE.iter().find(|(of, _)| *of == writers).map(|(_, counted)| counted[column])
}

/// The published gain of a row in percent, on that machine. The mutex that goes by cache stands for the document's lock.
pub(super) fn gain(machine: &str, load: Load, writers: usize, row: &str) -> Option<f64> {
    let document = matches!(row, AUTO | KERNEL_OSQ_DYNAMIC);
    let of_the_document = |given: [(usize, f64); 2]| {
        let found = given.into_iter().find(|(of, _)| *of == writers);
        found.filter(|_| document).map(|(_, gain)| gain)
    };
    match (machine, load) {
        (EPYC_7551, Load::Short) => {
            let row = if document { KERNEL_OSQ_DYNAMIC } else { row };
            let over = torture(writers, base(row).filter(|_| COLUMNS.contains(&row))?)?;
            // As it was published, with two digits.
            Some((torture(writers, row)? / over * 1e4 - 1e4).round() / 100.0)
        }
        (KH_40000, Load::Short) => of_the_document([KH_TORTURE; 2]),
        (EPYC_7551, Load::Dwom) => of_the_document([(32, 128.86), (64, 210.41)]),
        (EPYC_7551, Load::Mwrm) => of_the_document([(32, 60.10), (64, 96.28)]),
        (EPYC_7551, Load::Mwum) => of_the_document([(32, 62.81), (64, 88.20)]),
        (KH_40000, Load::Dwom) => of_the_document([(24, 45.93), (32, 51.63)]),
        (KH_40000, Load::Mwrm) => of_the_document([(24, 60.18), (32, 63.06)]),
        (KH_40000, Load::Mwum) => of_the_document([(24, 31.16), (32, 37.73)]),
        (EPYC_9654, Load::Short) => {
            let column = HQ_ROWS.iter().position(|of| *of == row)?;
            HQ.iter().find(|(of, _)| *of == writers).map(|(_, gains)| gains[column])
        }
        _ => None,
    }
}

/// All that was published about a load on a machine and stands in no row, in a line; and the origin of what does.
pub(super) fn remarks(machine: &str, load: Load) -> Vec<String> {
    let more = match (machine, load) {
        (EPYC_7551, Load::Short | Load::Long) => {
            "The document's other figure of locktorture here, writers not told: +116.8 %."
        }
        (KH_40000, Load::Short) => {
            "The document does not tell how many writers there were; 32 are as many as the CPUs of its machine, which has one socket."
        }
        (EPYC_7551, Load::Epoll) => {
            "The document's perf bench epoll, threads not told: ADD +307 %, WAIT +81 %."
        }
        (KH_40000, Load::Epoll) => {
            "The document's perf bench epoll, threads not told: ADD +152 %, WAIT +56 %."
        }
        _ => "",
    };
    let source = match machine {
        EPYC_7551 | KH_40000 => SOURCE,
        EPYC_9654 if load == Load::Short => HQ_SOURCE,
        _ => "",
    };
    let lines =
        [more.to_owned(), if source.is_empty() { String::new() } else { format!("{source}.") }];
    lines.into_iter().filter(|line| !line.is_empty()).collect()
}

/// A published ratio, and the one that was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Compared {
    pub(super) load: &'static str,
    pub(super) row: &'static str,
    /// The row that the throughput is divided by.
    pub(super) over: &'static str,
    pub(super) writers: usize,
    /// The writers of that row.
    pub(super) over_writers: usize,
    pub(super) published: f64,
    pub(super) measured: f64,
    pub(super) error_factor: f64,
    pub(super) reproduced: bool,
}

/// The published ratios of a load on a machine, by row, then by writers.
pub(super) fn compare(
    rows: &[Row],
    machine: &str,
    load: Load,
    writers: &[usize],
    of_rows: &[&'static str],
) -> Vec<Compared> {
    let rate = |row: &str, writers: usize| {
        of(rows, load, writers, row, metric::ACQUISITIONS_PER_SECOND).map(|rate| rate.median)
    };
    let mut compared = Vec::new();
    let mut add = |row, over, [writers, over_writers]: [usize; 2], published: f64| {
        let Some((of, base)) = rate(row, writers).zip(rate(over, over_writers)) else { return };
        let measured = of / base;
        let factor = if writers == over_writers {
            error_factor::of_gains(measured - 1.0, published - 1.0)
        } else {
            error_factor::of_figures(measured, published)
        };
        if !factor.is_finite() {
            return;
        }
        compared.push(Compared {
            load: load.name(),
            row,
            over,
            writers,
            over_writers,
            published,
            measured,
            error_factor: factor,
            reproduced: factor <= error_factor::MOST,
        });
    };
    // The document's columns, over one writer of the first one.
    let alone = torture(1, KERNEL_OSQ).filter(|_| machine == EPYC_7551 && load == Load::Short);
    for row in COLUMNS {
        for &writers in writers {
            if let Some((counted, alone)) = torture(writers, row).zip(alone)
                && (row, writers) != (KERNEL_OSQ, 1)
            {
                add(row, KERNEL_OSQ, [writers, 1], counted / alone);
            }
        }
    }
    for &row in of_rows {
        for &writers in writers {
            if let Some((gain, over)) = gain(machine, load, writers, row).zip(base(row)) {
                add(row, over, [writers; 2], 1.0 + gain / 100.0);
            }
        }
    }
    compared
}

#[cfg(test)]
#[path = "tests/published.rs"]
mod tests;
