//! Chooses the home of something new: the node with the least load per CPU; among equals, the nearest.

use crate::{Nodes, least_loaded};

/// The load of a node, in thousandths of a task.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Homes that were assigned here and are in use: 1000 for each task that may use one CPU.
    pub homes: u32,
    /// The load that runs or waits here and is not at home here: other programs, and strays.
    pub others: u32,
}

impl Load {
    /// The whole load.
    pub fn sum(self) -> u64 {
        u64::from(self.homes) + u64::from(self.others)
    }
}

/// The index of the node where one more task should be at home: the node where the load per CPU, with that task, would be
/// least. If several are equal, the nearest to `from`, then the first.
///
/// A home counts even while its task sleeps: the task will wake, and the choice holds for a long time. Nothing is allocated. Nodes without
/// a load (`loads` is shorter) count as empty.
///
/// ```
/// use nearq_home::{Load, Nodes, pick};
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 core:2")?;
/// let nodes = Nodes::of(&machine, machine.online());
/// let busy = Load { homes: 2000, others: 0 };
/// assert_eq!(pick(&nodes, &[busy, Load::default()], Some(0)), 1);
/// assert_eq!(pick(&nodes, &[busy, busy], Some(1)), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pick(nodes: &Nodes, loads: &[Load], from: Option<usize>) -> usize {
    least_loaded(
        nodes.len(),
        |index| loads.get(index).copied().unwrap_or_default().sum(),
        |index| nodes.get(index).capacity,
        |index| from.map_or(0, |from| nodes.distance(from, index)),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::Topology;
    use proptest::prelude::*;

    fn nodes(text: &str, allowed: &str) -> Nodes {
        Nodes::of(&Topology::from_synthetic(text).unwrap(), &allowed.parse().unwrap())
    }

    fn homes(homes: u32) -> Load {
        Load { homes, others: 0 }
    }

    #[test]
    fn homes_are_spread_in_proportion_to_the_cpus_of_the_nodes() {
        // Nodes of 4, 4 and 1 CPUs.
        let nodes = nodes("numa:3 core:4", "0-8");
        let mut loads = [Load::default(); 3];
        for _ in 0..18 {
            loads[pick(&nodes, &loads, Some(0))].homes += 1000;
        }
        assert_eq!(loads.map(|load| load.homes), [8000, 8000, 2000]);
    }

    #[test]
    fn the_load_of_others_counts_as_homes_do() {
        let nodes = nodes("numa:2 core:2", "0-3");
        let other = Load { homes: 0, others: 1500 };
        assert_eq!(pick(&nodes, &[other, homes(1000)], Some(0)), 1);
        assert_eq!(pick(&nodes, &[other, homes(2000)], Some(1)), 0);
        assert_eq!(pick(&nodes, &[homes(1)], Some(0)), 1, "a node without a load is empty");
    }

    #[test]
    fn the_nearest_wins_a_tie() {
        let machine = Topology::from_synthetic("numa:3 core:2").unwrap();
        let rows = [vec![10, 30, 20], vec![30, 10, 15], vec![20, 15, 10]];
        let machine = machine.with_distances(&rows).unwrap();
        let nodes = Nodes::of(&machine, machine.online());
        let loads = [homes(1000), homes(0), homes(0)];
        assert_eq!([0, 1, 2].map(|from| pick(&nodes, &loads, Some(from))), [2, 1, 2]);
        assert_eq!(pick(&nodes, &loads, None), 1);
    }

    proptest! {
        #[test]
        fn no_other_node_would_be_less_crowded(
            homes in prop::collection::vec(0_u32..50_000, 4),
            others in prop::collection::vec(0_u32..50_000, 4),
            from in prop::option::of(0_usize..4),
        ) {
            let nodes = nodes("numa:4 core:4", "0-2,4-6,8,12-15");
            let loads: Vec<Load> =
                homes.iter().zip(&others).map(|(&homes, &others)| Load { homes, others }).collect();
            let best = pick(&nodes, &loads, from);
            let crowd = |index: usize| {
                (loads[index].sum() + 1000) as f64 / f64::from(nodes.get(index).capacity)
            };
            for index in 0..nodes.len() {
                prop_assert!(crowd(best) <= crowd(index) + 1e-9);
            }
        }
    }
}
