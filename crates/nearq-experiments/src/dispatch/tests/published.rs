//! Tests of `targets`: what was published for the kernel's test_workqueue, with which the load `issuers` is compared.

use super::*;

#[test]
fn figures_are_found_by_machine_and_scope() {
    let shard = published("grace-72", AffinityScope::CacheShard).unwrap();
    let cache = published("grace-72", AffinityScope::Cache).unwrap();
    assert_eq!((shard.call_us_p50, cache.call_us_p50), (6.08, 44.0));
    assert!((shard.items_per_second / cache.items_per_second - 5.11).abs() < 0.01);
    assert_eq!(published("here", AffinityScope::Cache), None);
    assert_eq!(published("ryzen-3900x", AffinityScope::Cache), None);
}
