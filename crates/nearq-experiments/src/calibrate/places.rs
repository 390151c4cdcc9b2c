//! Which CPUs are measured: pairs of each distance, with a home for their line, and the CPUs of each cache and node.

use nearq_topology::{CpuSet, Topology};

/// How far apart two CPUs are, as the costs of a machine distinguish it. In order of distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    SameCore,
    SameLlc,
    OtherLlc,
    SamePackage,
    OtherPackage,
}

impl Class {
    pub(crate) const ALL: [Self; 5] =
        [Self::SameCore, Self::SameLlc, Self::OtherLlc, Self::SamePackage, Self::OtherPackage];

    /// The name of the cost of a line from there.
    pub(crate) fn cost(self) -> &'static str {
        match self {
            Self::SameCore => "same_core",
            Self::SameLlc => "same_llc",
            Self::OtherLlc => "other_llc",
            Self::SamePackage => "same_package",
            Self::OtherPackage => "other_package",
        }
    }

    /// The distance of two different CPUs, by the rules of the simulated machine.
    pub(crate) fn of(topology: &Topology, a: usize, b: usize) -> Self {
        if topology.node_index(a) != topology.node_index(b) {
            let package = topology.package_index(a);
            return if package.is_some() && package == topology.package_index(b) {
                Self::SamePackage
            } else {
                Self::OtherPackage
            };
        }
        if topology.llc_index(a) != topology.llc_index(b) {
            Self::OtherLlc
        } else if topology.core_index(a) != topology.core_index(b) {
            Self::SameLlc
        } else {
            Self::SameCore
        }
    }
}

/// Where the home of a line is, for two CPUs that want it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Home {
    /// The node of one of the two.
    Near,
    /// Another node of the package of one of the two.
    SamePackage,
    /// A package where neither is.
    OtherPackage,
}

impl Home {
    pub(crate) const ALL: [Self; 3] = [Self::Near, Self::SamePackage, Self::OtherPackage];

    /// What follows the distance in the name of a quantity.
    pub(crate) fn suffix(self) -> &'static str {
        match self {
            Self::Near => "",
            Self::SamePackage => ", home same_package",
            Self::OtherPackage => ", home other_package",
        }
    }

    /// What the node with the index `home` is for two CPUs.
    pub(crate) fn of(topology: &Topology, (a, b): (usize, usize), home: usize) -> Self {
        let nodes = [topology.node_index(a), topology.node_index(b)];
        if nodes.contains(&Some(home)) {
            return Self::Near;
        }
        let package = |cpu: usize| topology.package_index(cpu);
        let first = topology.nodes()[home].cpus.first();
        match first.and_then(package) {
            Some(of) if [package(a), package(b)].contains(&Some(of)) => Self::SamePackage,
            _ => Self::OtherPackage,
        }
    }

    /// The nearest such node with CPUs, by its index, if the machine has one.
    pub(super) fn nearest(self, topology: &Topology, pair: (usize, usize)) -> Option<usize> {
        let nodes = topology.nodes();
        let own = topology.node_index(pair.0)?;
        (0..nodes.len())
            .filter(|&at| !nodes[at].cpus.is_empty() && Self::of(topology, pair, at) == self)
            .min_by_key(|&at| topology.distance(own, at))
    }
}

/// The most pairs of one distance that are measured.
const MOST_PAIRS: usize = 6;

/// Pairs of usable CPUs of each distance that the machine has, spread over the machine. Of pairs between packages, only those of the
/// nearest nodes: the cost of longer ways follows from the firmware's distances.
pub(super) fn pairs(topology: &Topology, usable: &CpuSet) -> Vec<(Class, Vec<(usize, usize)>)> {
    let cpus: Vec<usize> = usable.iter().collect();
    let distance = |a, b| {
        let nodes = topology.node_index(a).zip(topology.node_index(b));
        nodes.map_or(0, |(a, b)| topology.distance(a, b))
    };
    let of_class = |class: Class| {
        let mut found = Vec::new();
        for (at, &a) in cpus.iter().enumerate() {
            // One partner for each CPU keeps the list short on large machines.
            let others = cpus[at + 1..].iter().chain(&cpus[..at]);
            let partner = others
                .copied()
                .filter(|&b| Class::of(topology, a, b) == class)
                .min_by_key(|&b| distance(a, b));
            found.extend(partner.map(|b| (a, b)));
        }
        let nearest = found.iter().map(|&(a, b)| distance(a, b)).min().unwrap_or(0);
        if class == Class::OtherPackage {
            found.retain(|&(a, b)| distance(a, b) == nearest);
        }
        found.dedup_by(|later, earlier| (later.1, later.0) == (earlier.0, earlier.1));
        let step = found.len().div_ceil(MOST_PAIRS).max(1);
        found.into_iter().step_by(step).collect::<Vec<_>>()
    };
    let all = Class::ALL.map(|class| (class, of_class(class)));
    all.into_iter().filter(|(_, pairs)| !pairs.is_empty()).collect()
}

/// Two CPUs, and the index of the node that is their line's home, if the machine has several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) cpus: [usize; 2],
    pub(crate) home: Option<usize>,
}

/// Pairs of CPUs of each distance with each kind of home, spread over the machine; with that home alone, if one is given.
pub(crate) fn pairs_by_home(
    topology: &Topology,
    only: Option<usize>,
) -> Vec<(Class, Home, Vec<Pair>)> {
    let nodes = topology.nodes();
    let cpus: Vec<usize> = topology.online().iter().collect();
    // If the description names no memory at all, it is everywhere.
    let somewhere = nodes.iter().any(|node| node.memory != Some(0));
    let has_memory = |at: usize| nodes[at].memory != Some(0) || !somewhere;
    let homes: Vec<usize> = (0..nodes.len())
        .filter(|&at| !nodes[at].cpus.is_empty() && has_memory(at))
        .filter(|&at| only.is_none_or(|only| only == at))
        .collect();
    let mut kinds: Vec<(Class, Home, Vec<Pair>)> = Vec::new();
    for class in Class::ALL {
        for home in Home::ALL {
            let mut found = Vec::new();
            for (at, &a) in cpus.iter().enumerate() {
                for &b in cpus[at + 1..].iter().filter(|&&b| Class::of(topology, a, b) == class) {
                    let fits = |&&at: &&usize| Home::of(topology, (a, b), at) == home;
                    found.extend(homes.iter().find(fits).map(|&home| Pair {
                        cpus: [a, b],
                        home: Some(home).filter(|_| nodes.len() > 1),
                    }));
                }
            }
            let step = found.len().div_ceil(MOST_PAIRS).max(1);
            if !found.is_empty() {
                kinds.push((class, home, found.into_iter().step_by(step).collect()));
            }
        }
    }
    kinds
}

/// The first usable CPU of each core.
pub(crate) fn one_of_each_core(topology: &Topology, usable: &CpuSet) -> Vec<usize> {
    let first = |cpus: &CpuSet| cpus.intersection(usable).first();
    topology.cores().iter().filter_map(|core| first(&core.cpus)).collect()
}

/// Numbers of CPUs that contend: 2, 4, 8 and so on, and all.
pub(super) fn crowds(all: usize) -> Vec<usize> {
    let mut crowds: Vec<usize> =
        std::iter::successors(Some(2), |n| Some(n * 2)).take_while(|n| *n < all).collect();
    if all > 1 {
        crowds.push(all);
    }
    crowds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_distance_of_the_machine_has_pairs_and_no_other() {
        let found = |text: &str| {
            let topology = Topology::from_synthetic(text).unwrap();
            pairs(&topology, &topology.online().clone())
        };
        let classes =
            |text: &str| found(text).iter().map(|(class, _)| class.cost()).collect::<Vec<_>>();
        assert_eq!(classes("core:1"), [""; 0]);
        assert_eq!(classes("core:2"), ["same_llc"]);
        assert_eq!(
            classes("pack:2 numa:2 l3:2 core:4 pu:2"),
            ["same_core", "same_llc", "other_llc", "same_package", "other_package"]
        );
        assert_eq!(found("core:2")[0].1, [(0, 1)]);
        let topology = Topology::from_synthetic("pack:2 numa:2 l3:2 core:4 pu:2").unwrap();
        for (class, pairs) in pairs(&topology, &topology.online().clone()) {
            assert!(pairs.len() <= MOST_PAIRS, "{class:?}");
            assert!(pairs.iter().all(|&(a, b)| Class::of(&topology, a, b) == class));
        }
    }

    #[test]
    fn the_home_of_a_line_is_near_in_the_package_or_in_another() {
        let topology = Topology::from_synthetic("pack:2 numa:2 l3:2 core:1").unwrap();
        let of = |pair| [0, 1, 2, 3].map(|home| Home::of(&topology, pair, home));
        use Home::{Near, OtherPackage, SamePackage};
        assert_eq!(of((0, 1)), [Near, SamePackage, OtherPackage, OtherPackage]);
        assert_eq!(of((0, 2)), [Near, Near, OtherPackage, OtherPackage]);
        assert_eq!(of((0, 4)), [Near, SamePackage, Near, SamePackage]);
        let nearest = |pair| Home::ALL.map(|home| home.nearest(&topology, pair));
        assert_eq!(nearest((0, 1)), [Some(0), Some(1), Some(2)]);
        assert_eq!(nearest((0, 4)), [Some(0), Some(1), None]);
        let one = Topology::from_synthetic("l3:2 core:1").unwrap();
        assert_eq!(Home::ALL.map(|home| home.nearest(&one, (0, 1))), [Some(0), None, None]);
    }

    #[test]
    fn crowds_double_up_to_all_cpus() {
        assert!(crowds(1).is_empty());
        assert_eq!(crowds(2), [2]);
        assert_eq!(crowds(12), [2, 4, 8, 12]);
    }
}
