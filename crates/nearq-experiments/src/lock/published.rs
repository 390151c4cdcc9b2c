//! What the document of 2024 published for its lock: gains over the kernel's own, in percent.

use super::load::Load;

/// Where the figures are from, for a table.
pub(super) const SOURCE: &str = "\"dynamic numa-aware osq_lock\", v1 and v2, September 2024, Linux 6.6.28, gain over the kernel's own lock";

/// Locktorture on two EPYC 7551, writers pinned, nine runs: writers and gain with dynamic switching.
const TORTURE: [(usize, f64); 8] = [
    (1, 1.48),
    (2, 0.51),
    (4, -10.37),
    (8, -4.69),
    (16, 72.39),
    (32, 72.52),
    (48, 80.35),
    (64, 90.83),
];

/// The machine that [`gain`] is about.
pub(super) const MACHINE: &str = "epyc-7551-2s";

/// The published gain for a load with so many writers, on the document's EPYC machine.
pub fn gain(load: Load, writers: usize) -> Option<f64> {
    match load {
        Load::Short => TORTURE.into_iter().find(|(of, _)| *of == writers).map(|(_, gain)| gain),
        Load::Long | Load::Epoll => None,
        Load::Dwom => fxmark(writers, [128.86, 210.41]),
        Load::Mwrm => fxmark(writers, [60.10, 96.28]),
        Load::Mwum => fxmark(writers, [62.81, 88.20]),
    }
}

/// Fxmark was published for 32 and 64 cores of that machine.
fn fxmark(writers: usize, [of_32, of_64]: [f64; 2]) -> Option<f64> {
    match writers {
        32 => Some(of_32),
        64 => Some(of_64),
        _ => None,
    }
}

/// All that the document says of a load, in a line.
pub(super) fn remark(load: Load) -> &'static str {
    match load {
        Load::Short | Load::Long => {
            "The document's other figures of locktorture, writers not told: KH-40000 +141.9 %, two EPYC 7551 +116.8 %."
        }
        Load::Epoll => {
            "The document's perf bench epoll, threads not told: two EPYC 7551 ADD +307 %, WAIT +81 %; KH-40000 ADD +152 %, \
             WAIT +56 %."
        }
        Load::Dwom => {
            "The document's DWOM: two EPYC 7551 +129 % at 32 cores, +210 % at 64; KH-40000 +46 % at 24, +52 % at 32."
        }
        Load::Mwrm => {
            "The document's MWRM: two EPYC 7551 +60 % at 32 cores, +96 % at 64; KH-40000 +60 % at 24, +63 % at 32."
        }
        Load::Mwum => {
            "The document's MWUM: two EPYC 7551 +63 % at 32 cores, +88 % at 64; KH-40000 +31 % at 24, +38 % at 32."
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_load_and_writers() {
        assert_eq!(gain(Load::Short, 64), Some(90.83));
        assert_eq!(gain(Load::Short, 4), Some(-10.37));
        assert_eq!((gain(Load::Short, 3), gain(Load::Long, 64)), (None, None));
        assert_eq!((gain(Load::Dwom, 32), gain(Load::Mwum, 64)), (Some(128.86), Some(88.20)));
        assert_eq!(gain(Load::Mwrm, 16), None);
    }
}
