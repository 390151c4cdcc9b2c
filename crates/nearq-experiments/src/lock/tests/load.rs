//! Tests of `load`: what is done with the locks, by which threads and where.

use super::*;

#[test]
fn compact_fills_a_cache_and_spread_goes_round_nodes_and_caches() {
    let machine = Machine::named("numa:2 l3:2 core:2 pu:2").unwrap();
    let topology = machine.topology();
    let cache = |cpu: &usize| topology.llc_index(*cpu).unwrap();
    let compact = CpuPlacement::Compact.order(&machine);
    let caches: Vec<usize> = compact.iter().map(cache).collect();
    assert_eq!(caches, [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1, 2, 2, 3, 3]);
    let cores: std::collections::BTreeSet<_> =
        compact[..8].iter().map(|cpu| topology.core_index(*cpu)).collect();
    assert_eq!(cores.len(), 8, "siblings come last");
    let spread = CpuPlacement::Spread.order(&machine);
    let caches: Vec<usize> = spread.iter().map(cache).collect();
    assert_eq!(caches, [0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3, 0, 2, 1, 3]);
    let mut all = spread;
    all.sort_unstable();
    assert_eq!(all, (0..16).collect::<Vec<_>>());
}

#[test]
fn the_documents_machine_is_filled_in_cpu_order() {
    let machine = Machine::named("epyc-7551-2s").unwrap();
    let compact = CpuPlacement::Compact.order(&machine);
    assert_eq!(compact[..64], (0..64).collect::<Vec<_>>());
}

#[test]
fn shapes_and_sections_are_loads() {
    let of = |shape, section, quick| loads(shape, section, quick);
    assert_eq!(of(None, None, false), Ok(vec![Load::Short, Load::Long]));
    assert_eq!(of(None, None, true), Ok(vec![Load::Short]));
    assert_eq!(of(Some("torture"), Some("long"), true), Ok(vec![Load::Long]));
    assert_eq!(of(Some("shared-dir"), None, true), Ok(vec![Load::Mwrm, Load::Mwum]));
    let refused = |shape, section| of(shape, section, false).unwrap_err().to_string();
    assert_eq!(
        refused(Some("tree"), None),
        "--shape \"tree\": give torture, epoll, shared-file or shared-dir"
    );
    assert_eq!(refused(None, Some("tiny")), "--section \"tiny\": give short, long or both");
    assert!(refused(Some("epoll"), Some("long")).contains("--shape epoll has no sections"));
    assert!(CpuPlacement::named(Some("x")).unwrap_err().to_string().contains("compact or spread"));
}
