//! What was published for the kernel's test_workqueue, with which the load `issuers` is compared.

use nearq_topology::Scope;

/// Figures of one scope.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Items per second over all issuers.
    pub items_per_second: f64,
    /// Median of the call that queues, in microseconds.
    pub call_us_p50: f64,
}

/// Where the figures are from, for a table.
pub(crate) const SOURCE: &str = "the kernel's test_workqueue, 50000 items a thread, posting of 2026-03-12 that proposed cache_shard";

/// Scope, items per second, nanoseconds at p50: one NVIDIA Grace with 72 CPUs under one last-level cache.
const GRACE: [(Scope, f64, f64); 6] = [
    (Scope::Cpu, 3.25e6, 10_944.0),
    (Scope::Smt, 3.36e6, 10_945.0),
    (Scope::CacheShard, 3.63e6, 6_080.0),
    (Scope::Cache, 0.71e6, 44_000.0),
    (Scope::Numa, 0.71e6, 44_096.0),
    (Scope::System, 0.72e6, 43_104.0),
];

/// The figures for a scope on a machine of that name, if there are any.
pub fn published(machine: &str, scope: Scope) -> Option<Published> {
    if machine != "grace-72" {
        return None;
    }
    let (_, items_per_second, ns) = GRACE.into_iter().find(|(known, ..)| *known == scope)?;
    Some(Published { items_per_second, call_us_p50: ns / 1000.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_machine_and_scope() {
        let shard = published("grace-72", Scope::CacheShard).unwrap();
        let cache = published("grace-72", Scope::Cache).unwrap();
        assert_eq!((shard.call_us_p50, cache.call_us_p50), (6.08, 44.0));
        assert!((shard.items_per_second / cache.items_per_second - 5.11).abs() < 0.01);
        assert_eq!(published("here", Scope::Cache), None);
        assert_eq!(published("ryzen-3900x", Scope::Cache), None);
    }
}
