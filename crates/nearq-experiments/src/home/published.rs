//! What the document of 2003 published: numa_test on a TX7 with 8 CPUs and 4 nodes, under the kernel's own scheduler and the
//! node affine one, means and deviations of ten measurements.

use super::plan::Row;
use nearq_report::metric::{self, Metric};

/// Where the figures are from, for a table.
pub(super) const SOURCE: &str = "E. Focht, \"node affine NUMA scheduler extension\", 18 July 2003, Linux 2.6.0-test1, NEC TX7 with 8 Itanium 2 and 4 nodes";

/// The machine that they are about.
pub(super) const MACHINE: &str = "tx7-itanium2";

/// The four columns.
pub(super) const COLUMNS: [Metric; 4] =
    [metric::AVERAGE_USER, metric::ELAPSED, metric::USER, metric::SYSTEM];

/// Mean and deviation of each column.
type Line = [(f64, f64); 4];

const KERNEL: [(usize, Line); 4] = [
    (4, [(52.67, 3.51), (61.30, 8.04), (210.70, 14.05), (0.16, 0.02)]),
    (8, [(50.29, 1.85), (55.19, 6.36), (402.38, 14.78), (0.34, 0.02)]),
    (16, [(53.27, 2.30), (115.30, 5.40), (852.40, 36.75), (0.62, 0.02)]),
    (32, [(51.92, 1.13), (215.98, 5.95), (1661.66, 36.08), (1.21, 0.04)]),
];

const NODE_AFFINE: [(usize, Line); 4] = [
    (4, [(50.13, 2.09), (56.72, 8.46), (200.55, 8.34), (0.15, 0.01)]),
    (8, [(49.78, 1.29), (54.43, 4.90), (398.26, 10.31), (0.34, 0.02)]),
    (16, [(50.37, 0.96), (110.79, 8.46), (806.01, 15.33), (0.63, 0.03)]),
    (32, [(51.10, 0.51), (210.18, 3.27), (1635.40, 16.16), (1.23, 0.04)]),
];

/// The document's line for a row and a number of tasks.
pub(super) fn line(row: Row, tasks: usize) -> Option<Line> {
    let lines = match row {
        Row::Without => &KERNEL,
        Row::Homes | Row::Scheduler => &NODE_AFFINE,
        Row::Dynamic | Row::Oracle => return None,
    };
    lines.iter().find(|(of, _)| *of == tasks).map(|(_, line)| *line)
}

/// By how many percent the document's elapsed time became shorter, to a tenth.
pub(super) fn gain(tasks: usize) -> Option<f64> {
    let [before, after] = [Row::Without, Row::Homes].map(|row| line(row, tasks));
    let percent = (1.0 - after?[1].0 / before?[1].0) * 100.0;
    Some((percent * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gains_are_those_of_the_tables() {
        assert_eq!([4, 8, 16, 32].map(gain), [Some(7.5), Some(1.4), Some(3.9), Some(2.7)]);
        assert_eq!((gain(5), line(Row::Oracle, 4)), (None, None));
    }
}
