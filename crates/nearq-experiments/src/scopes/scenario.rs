//! The loads of the document, scaled to the machine, and the figures that the document published for them.

use super::configuration::{CONFIGURATIONS, of_document};

/// CPUs of the document's machine, a Ryzen 9 3900X.
const DOCUMENT_CPUS: f64 = 24.0;
/// Blocks that each of the document's issuers has in flight.
const DOCUMENT_IN_FLIGHT: f64 = 64.0;

/// A load: how many threads issue blocks, and how many each has in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The document's name for it.
    pub name: String,
    /// What the document says of it.
    pub meaning: &'static str,
    /// Threads that generate and verify.
    pub issuers: usize,
    /// Blocks of each issuer that are on their way at any time.
    pub in_flight: usize,
}

/// A published result: mean and deviation of bandwidth (MiB/s) and of CPU use (%).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Bandwidth in MiB/s.
    pub throughput: (f64, f64),
    /// CPU use in percent.
    pub cpu: (f64, f64),
}

/// Name, meaning, issuers.
const DOCUMENT: [(&str, &str, f64); 3] = [
    ("HIGH", "enough issuers and work spread across the machine", 24.0),
    ("MED", "fewer issuers, enough work for saturation", 8.0),
    ("LOW", "even fewer issuers, not enough work to saturate", 4.0),
];

/// The document's tables, in the order of [`CONFIGURATIONS`] (its first five).
const PUBLISHED: [[(f64, f64, f64, f64); 5]; 3] = [
    [
        (1159.40, 1.34, 99.31, 0.02),
        (1166.40, 0.89, 99.34, 0.01),
        (1166.00, 0.71, 99.35, 0.01),
        (1157.40, 1.67, 99.50, 0.01),
        (1160.40, 0.55, 99.50, 0.02),
    ],
    [
        (1155.40, 0.89, 97.41, 0.05),
        (1154.40, 1.14, 96.15, 0.09),
        (1112.00, 4.64, 93.26, 0.35),
        (1066.80, 2.17, 86.70, 0.10),
        (1034.60, 1.52, 83.00, 0.07),
    ],
    [
        (993.60, 1.82, 75.49, 0.06),
        (973.40, 1.52, 74.90, 0.07),
        (828.20, 4.49, 66.84, 0.29),
        (884.20, 18.39, 64.14, 1.12),
        (860.60, 4.72, 61.46, 0.24),
    ],
];

/// The document's three loads for a machine with `cpus`: the same number of blocks in flight for each CPU, from as
/// many issuers as that takes, at least one. Where issuers are rounded, the number in flight makes up for it.
pub fn scaled(cpus: usize) -> Vec<Scenario> {
    let scale = cpus as f64 / DOCUMENT_CPUS;
    let scenario = |(name, meaning, issuers): (&str, &'static str, f64)| {
        let scaled = issuers * scale;
        let count = scaled.round().max(1.0);
        let in_flight = (scaled * DOCUMENT_IN_FLIGHT / count).round().max(1.0);
        Scenario {
            name: name.into(),
            meaning,
            issuers: count as usize,
            in_flight: in_flight as usize,
        }
    };
    DOCUMENT.map(scenario).into()
}

/// What the document published, if it has this scenario and configuration; the same for our pools and for the kernel's.
pub fn published(scenario: &str, configuration: &str) -> Option<Published> {
    let configuration = of_document(configuration);
    let row = DOCUMENT.iter().position(|(name, ..)| *name == scenario)?;
    let column = CONFIGURATIONS.iter().position(|known| known.name == configuration)?;
    let &(throughput, throughput_deviation, cpu, cpu_deviation) = PUBLISHED[row].get(column)?;
    Some(Published { throughput: (throughput, throughput_deviation), cpu: (cpu, cpu_deviation) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(cpus: usize) -> Vec<(usize, usize)> {
        scaled(cpus).iter().map(|scenario| (scenario.issuers, scenario.in_flight)).collect()
    }

    #[test]
    fn the_documents_machine_gets_the_documents_loads() {
        assert_eq!(counts(24), [(24, 64), (8, 64), (4, 64)]);
    }

    #[test]
    fn small_machines_keep_one_issuer_and_have_less_in_flight() {
        assert_eq!(counts(1), [(1, 64), (1, 21), (1, 11)]);
        assert_eq!(counts(2), [(2, 64), (1, 43), (1, 21)]);
    }

    #[test]
    fn large_machines_get_more_issuers() {
        assert_eq!(counts(128), [(128, 64), (43, 64), (21, 65)]);
        assert_eq!(counts(384), [(384, 64), (128, 64), (64, 64)]);
    }

    #[test]
    fn every_machine_gets_the_documents_load_per_cpu() {
        for cpus in 1..=512 {
            for (scenario, (_, _, issuers)) in scaled(cpus).iter().zip(DOCUMENT) {
                let load = (scenario.issuers * scenario.in_flight) as f64 / cpus as f64;
                let document = issuers * DOCUMENT_IN_FLIGHT / DOCUMENT_CPUS;
                assert!(
                    (load / document - 1.0).abs() < 0.05,
                    "{cpus} CPUs, {}: {load}, not {document}",
                    scenario.name
                );
            }
        }
    }

    #[test]
    fn published_figures_are_found_by_name() {
        let low = published("LOW", "cache+strict").unwrap();
        assert_eq!((low.throughput, low.cpu), ((828.20, 4.49), (66.84, 0.29)));
        assert_eq!(published("HIGH", "system").unwrap().throughput.0, 1159.40);
        assert_eq!(published("LOW", "kernel: cache+strict"), Some(low));
        assert_eq!(published("HIGH", "cpu+strict"), None);
        assert_eq!(published("2 issuers", "system"), None);
    }
}
