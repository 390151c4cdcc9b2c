//! Tests of `configuration`: the loads of the document, scaled to the machine, and the figures that the document published for them.

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
