//! Synthetic descriptions of machines, for properties.

use proptest::collection::vec;
use proptest::prelude::*;

/// A synthetic description: packages, nodes and caches in orders that cross or nest, up to a few hundred CPUs.
pub(crate) fn description() -> impl Strategy<Value = String> {
    let order = prop_oneof![
        Just(["pack", "numa", "l3"]),
        Just(["numa", "pack", "l3"]),
        Just(["pack", "l3", "numa"]),
        Just(["pack", "die", "l3"]),
    ];
    (order, vec(1_usize..4, 3), 1_usize..14, 1_usize..4, any::<bool>()).prop_map(
        |(order, counts, cores, cpus, by_core)| {
            let outer: Vec<String> =
                order.iter().zip(&counts).map(|(name, count)| format!("{name}:{count}")).collect();
            let indexes = if by_core { "(indexes=core)" } else { "" };
            format!("{} core:{cores} pu:{cpus}{indexes}", outer.join(" "))
        },
    )
}
