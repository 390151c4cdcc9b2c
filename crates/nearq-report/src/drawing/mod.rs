//! Machines as text and pictures: pure functions from data to a string.
//!
//! ```
//! use nearq_report::drawing;
//! use nearq_topology::Topology;
//!
//! let machine = Topology::from_synthetic("pack:2 l3:1 core:2")?;
//! let text = drawing::text(&drawing::View::new(&machine));
//! assert!(text.contains("package 1"));
//! # Ok::<(), nearq_topology::TopologyError>(())
//! ```

mod layout;
mod svg;
mod text;
mod tree;

pub use svg::svg;
pub use text::text;

use nearq_topology::{AffinityScope, DEFAULT_SHARD_SIZE, Limits, Topology};

/// The machine and the options of a drawing.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    /// The machine.
    pub topology: &'a Topology,
    /// The limits of the process on the machine; `None` for a machine other than this one.
    pub limits: Option<&'a Limits>,
    /// The scope whose pods the picture colours. Text shows those of every scope.
    pub scope: AffinityScope,
    /// The size of a shard of a last-level cache, in cores.
    pub shard_size: usize,
}

impl<'a> View<'a> {
    /// A machine without limits, with the default scope and shard size.
    pub fn new(topology: &'a Topology) -> Self {
        Self {
            topology,
            limits: None,
            scope: AffinityScope::CacheShard,
            shard_size: DEFAULT_SHARD_SIZE,
        }
    }

    /// The same with the limits of a process.
    #[must_use]
    pub fn with_limits(self, limits: &'a Limits) -> Self {
        Self { limits: Some(limits), ..self }
    }
}

/// `1 core`, `2 cores`.
fn count(number: usize, what: &str) -> String {
    let ending = match (number, what) {
        (1, _) => "",
        (_, "die") => return format!("{number} dies"),
        _ => "s",
    };
    format!("{number} {what}{ending}")
}

/// `32 MiB`: a size in bytes in the largest unit of which there is at least one.
fn bytes(size: u64) -> String {
    let units = ["bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = size as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    // One digit after the point if it is significant.
    let digits = usize::from(value < 100.0 && (value * 10.0).round() % 10.0 != 0.0);
    format!("{value:.digits$} {}", units[unit])
}

/// The machine in one line: `2 packages, 4 nodes, 8 last-level caches, 32 cores, 64 CPUs`.
fn summary(machine: &Topology) -> String {
    let mut parts = vec![count(machine.packages().len(), "package")];
    if !machine.dies().is_empty() {
        parts.push(count(machine.dies().len(), "die"));
    }
    parts.push(count(machine.nodes().len(), "node"));
    parts.push(count(machine.llcs().len(), "last-level cache"));
    parts.push(count(machine.cores().len(), "core"));
    parts.push(count(machine.cpus().len(), "CPU"));
    let offline = machine.cpus().len() - machine.online().len();
    if offline > 0 {
        parts.push(format!("{offline} of them offline"));
    }
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_in_the_largest_unit_that_fits() {
        for (size, text) in [
            (0, "0 bytes"),
            (1000, "1000 bytes"),
            (1024, "1 KiB"),
            (32 << 10, "32 KiB"),
            (5118 << 10, "5 MiB"),
            (1310720, "1.2 MiB"),
            (1000 << 20, "1000 MiB"),
            (66_874_998_784, "62.3 GiB"),
            (u64::MAX, "16 EiB"),
        ] {
            assert_eq!(bytes(size), text, "{size}");
        }
    }
}
