//! The places where something can be at home: the nodes, or the last-level caches if homes must be that small, as far as their CPUs may be
//! used.

use core::fmt;

use nearq_topology::{CpuSet, LOCAL_DISTANCE, Topology};

/// The distance between two caches of one node: more than from a cache to itself, less than to any other node.
const OTHER_CACHE: u32 = LOCAL_DISTANCE + 1;

/// A place where something can be at home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The operating system's number of the node; for a cache, its index in [`Topology::llcs`].
    pub id: usize,
    /// The operating system's number of the node whose memory is close.
    pub memory: usize,
    /// Its CPUs that may be used. Never empty.
    pub cpus: CpuSet,
    /// The capacity of its CPUs together, in thousandths of the machine's fastest CPU.
    pub capacity: u32,
}

/// The places of a machine where something can be at home. Never empty.
///
/// ```
/// use nearq_home::Nodes;
/// use nearq_topology::Topology;
///
/// let machine = Topology::from_synthetic("numa:2 l3:2 core:4")?;
/// let nodes = Nodes::of(&machine, &"0-3,8-15".parse()?);
/// assert_eq!(nodes.len(), 2);
/// assert_eq!(nodes.get(0).cpus.to_list(), "0-3");
/// assert_eq!(nodes.distance(0, 1), 20);
/// assert_eq!(Nodes::by_cache(&machine, machine.online()).len(), 4);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes {
    nodes: Vec<Node>,
    /// The distances: a row for each place.
    distances: Vec<u32>,
    /// Index by CPU number; `usize::MAX` if there is none.
    by_cpu: Vec<usize>,
    /// The places of the machine that cannot be a home: their numbers, and whether they have CPUs at all.
    others: Vec<(usize, bool)>,
    /// Whether places were left out that may be used.
    part: bool,
}

impl Nodes {
    /// The machine's nodes that have CPUs among `allowed`; one node of all CPUs if no node has.
    pub fn of(topology: &Topology, allowed: &CpuSet) -> Self {
        let nodes = topology.nodes();
        let distance = |a: usize, b: usize| topology.distance(a, b);
        let all = nodes.iter().map(|node| (node.id, node.id, &node.cpus));
        Self::from_parts(topology, allowed, all, distance)
    }

    /// The machine's last-level caches that have CPUs among `allowed`; one place of all CPUs if no cache has.
    pub fn by_cache(topology: &Topology, allowed: &CpuSet) -> Self {
        let node_of =
            |cpus: &CpuSet| cpus.first().and_then(|cpu| topology.node_index(cpu)).unwrap_or(0);
        let caches = topology.llcs();
        let distance = |a: usize, b: usize| {
            let (from, to) = (node_of(&caches[a].cpus), node_of(&caches[b].cpus));
            if a != b && from == to { OTHER_CACHE } else { topology.distance(from, to) }
        };
        let all = caches
            .iter()
            .enumerate()
            .map(|(index, cache)| (index, topology.nodes()[node_of(&cache.cpus)].id, &cache.cpus));
        Self::from_parts(topology, allowed, all, distance)
    }

    /// Any places with any distances, a row for each place: for tests, and for simulated machines.
    ///
    /// # Panics
    /// If there are no places, one has no CPUs, or there is not one row and one column for each.
    pub fn pretended(places: &[(usize, CpuSet)], distances: &[Vec<u32>]) -> Self {
        assert!(!places.is_empty() && distances.len() == places.len());
        let nodes = places.iter().enumerate().map(|(id, (memory, cpus))| {
            assert!(!cpus.is_empty() && distances[id].len() == places.len());
            Node { id, memory: *memory, cpus: cpus.clone(), capacity: 1000 * cpus.len() as u32 }
        });
        Self::new(nodes.collect(), distances.concat(), Vec::new())
    }

    /// Only the places that have the memory of one of these nodes, which the operating system numbers so; `None` if there is none.
    ///
    /// ```
    /// use nearq_home::Nodes;
    /// use nearq_topology::Topology;
    ///
    /// let machine = Topology::from_synthetic("numa:4 core:2")?;
    /// let nodes = Nodes::of(&machine, machine.online()).near(&[1, 3]).unwrap();
    /// assert_eq!(nodes.cpus().to_list(), "2-3,6-7");
    /// // One place, and nevertheless not where everything is anyway.
    /// let one = nodes.near(&[3]).unwrap();
    /// assert!(one.is_single() && !one.is_all());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn near(&self, nodes: &[usize]) -> Option<Self> {
        let kept: Vec<usize> =
            (0..self.len()).filter(|index| nodes.contains(&self.nodes[*index].memory)).collect();
        if kept.is_empty() {
            return None;
        }
        let rows = kept.iter().flat_map(|a| kept.iter().map(|b| self.distance(*a, *b)));
        let distances = rows.collect();
        let places = kept.iter().map(|index| self.nodes[*index].clone()).collect();
        let part = self.part || kept.len() < self.len();
        Some(Self { part, ..Self::new(places, distances, self.others.clone()) })
    }

    /// One place that has the CPUs of all places: for callers that want no homes.
    #[must_use]
    pub fn joined(&self) -> Self {
        let (first, cpus) = (&self.nodes[0], self.cpus());
        let capacity = self.nodes.iter().map(|node| node.capacity).sum();
        let all = Node { id: first.id, memory: first.memory, cpus, capacity };
        Self::new(vec![all], vec![LOCAL_DISTANCE], Vec::new())
    }

    fn from_parts<'a>(
        topology: &Topology,
        allowed: &CpuSet,
        all: impl Iterator<Item = (usize, usize, &'a CpuSet)>,
        distance: impl Fn(usize, usize) -> u32,
    ) -> Self {
        let mut nodes = Vec::new();
        let mut indices = Vec::new();
        let mut others = Vec::new();
        for (index, (id, memory, cpus)) in all.enumerate() {
            let online = cpus.intersection(topology.online());
            let cpus = online.intersection(allowed);
            if cpus.is_empty() {
                others.push((id, !online.is_empty()));
            } else {
                let capacity = capacity(topology, &cpus);
                nodes.push(Node { id, memory, cpus, capacity });
                indices.push(index);
            }
        }
        if nodes.is_empty() {
            let cpus = if allowed.is_empty() { CpuSet::single(0) } else { allowed.clone() };
            let capacity = capacity(topology, &cpus);
            let memory = topology.nodes().first().map_or(0, |node| node.id);
            nodes.push(Node { id: memory, memory, cpus, capacity });
            return Self::new(nodes, vec![LOCAL_DISTANCE], others);
        }
        let rows = indices.iter().flat_map(|a| indices.iter().map(|b| distance(*a, *b)));
        let distances = rows.collect();
        Self::new(nodes, distances, others)
    }

    fn new(nodes: Vec<Node>, distances: Vec<u32>, others: Vec<(usize, bool)>) -> Self {
        let last = nodes.iter().filter_map(|node| node.cpus.last()).max().unwrap_or(0);
        let mut by_cpu = vec![usize::MAX; last + 1];
        for (index, node) in nodes.iter().enumerate() {
            for cpu in &node.cpus {
                by_cpu[cpu] = index;
            }
        }
        Nodes { nodes, distances, by_cpu, others, part: false }
    }

    /// The number of places; at least one.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is only one place, so that everything is always at home.
    pub fn is_single(&self) -> bool {
        self.nodes.len() == 1
    }

    /// Whether the only place has all CPUs that may be used: then nothing needs to be placed.
    pub fn is_all(&self) -> bool {
        self.is_single() && !self.part
    }

    /// A place.
    ///
    /// # Panics
    /// If `index` is not below [`len`](Self::len).
    pub fn get(&self, index: usize) -> &Node {
        &self.nodes[index]
    }

    /// All places, by index.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Node> + Clone {
        self.nodes.iter()
    }

    /// The CPUs of all places.
    pub fn cpus(&self) -> CpuSet {
        union(&self.nodes)
    }

    /// The CPUs of some places, by index.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn cpus_of(&self, indices: &[usize]) -> CpuSet {
        union(indices.iter().map(|index| &self.nodes[*index]))
    }

    /// The index of the place whose memory is that of the operating system's node `memory`: `first` if several places have that memory and
    /// `first` is one of them.
    pub fn of_memory(&self, memory: usize, first: Option<usize>) -> Option<usize> {
        let is = |index: &usize| self.nodes.get(*index).is_some_and(|node| node.memory == memory);
        first.filter(is).or_else(|| (0..self.nodes.len()).find(is))
    }

    /// The index of the place that has the number `id`.
    ///
    /// # Errors
    /// If no place has that number, or it has no CPUs, or none of its CPUs may be used.
    pub fn index_of(&self, id: usize) -> Result<usize, NodeError> {
        if let Some(index) = self.nodes.iter().position(|node| node.id == id) {
            return Ok(index);
        }
        let usable = self.nodes.iter().map(|node| node.id).collect();
        Err(match self.others.iter().find(|(other, _)| *other == id) {
            None => NodeError::NoSuchNode { node: id, usable },
            Some((_, false)) => NodeError::NoCpus { node: id, usable },
            Some((_, true)) => NodeError::NotAllowed { node: id, usable },
        })
    }

    /// The place of a CPU; `None` if the CPU may not be used.
    pub fn of_cpu(&self, cpu: usize) -> Option<usize> {
        self.by_cpu.get(cpu).copied().filter(|index| *index != usize::MAX)
    }

    /// The distance from one place to another.
    ///
    /// # Panics
    /// If an index is not below [`len`](Self::len).
    pub fn distance(&self, from: usize, to: usize) -> u32 {
        assert!(to < self.nodes.len());
        self.distances[from * self.nodes.len() + to]
    }
}

fn union<'a>(nodes: impl IntoIterator<Item = &'a Node>) -> CpuSet {
    nodes.into_iter().fold(CpuSet::new(), |all, node| all.union(&node.cpus))
}

/// The capacity of CPUs together, in thousandths of the machine's fastest CPU.
fn capacity(topology: &Topology, cpus: &CpuSet) -> u32 {
    let fastest = topology.cpus().iter().filter_map(|cpu| cpu.capacity).max();
    let of = |cpu: usize| match (topology.cpu(cpu).and_then(|cpu| cpu.capacity), fastest) {
        (Some(capacity), Some(fastest)) if fastest > 0 => {
            (u64::from(capacity) * 1000 / u64::from(fastest)).clamp(1, 1000) as u32
        }
        _ => 1000,
    };
    cpus.iter().map(of).sum::<u32>().max(1)
}

/// Why something cannot be at home on a node.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeError {
    /// The machine has no node of that number.
    NoSuchNode {
        /// The requested number.
        node: usize,
        /// The numbers of the nodes that can be a home.
        usable: Vec<usize>,
    },
    /// The node has no CPUs that are online.
    NoCpus {
        /// The requested number.
        node: usize,
        /// The numbers of the nodes that can be a home.
        usable: Vec<usize>,
    },
    /// The node has CPUs, but none that this process may use.
    NotAllowed {
        /// The requested number.
        node: usize,
        /// The numbers of the nodes that can be a home.
        usable: Vec<usize>,
    },
}

impl fmt::Display for NodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (node, what, usable) = match self {
            NodeError::NoSuchNode { node, usable } => (node, "there is no such node", usable),
            NodeError::NoCpus { node, usable } => (node, "it has no online CPUs", usable),
            NodeError::NotAllowed { node, usable } => {
                (node, "the affinity mask or the cpuset allows none of its CPUs", usable)
            }
        };
        let list: Vec<String> = usable.iter().map(ToString::to_string).collect();
        let (word, list) = (if list.len() == 1 { "node" } else { "one of" }, list.join(", "));
        write!(out, "node {node} cannot be a home: {what}; give {word} {list}")
    }
}

nearq_topology::debug_as_display!(NodeError);

impl core::error::Error for NodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(text: &str) -> Topology {
        Topology::from_synthetic(text).unwrap()
    }

    #[test]
    fn nodes_are_those_with_cpus_that_may_be_used() {
        let machine = machine("numa:4 core:2").with_online(&"0-5".parse().unwrap());
        let nodes = Nodes::of(&machine, &"1-3,6-7".parse().unwrap());
        let list: Vec<_> = nodes.iter().map(|node| (node.id, node.cpus.to_list())).collect();
        assert_eq!(list, [(0, "1".to_owned()), (1, "2-3".to_owned())]);
        assert_eq!(nodes.get(1).capacity, 2000);
        assert_eq!([0, 1, 3, 5].map(|cpu| nodes.of_cpu(cpu)), [None, Some(0), Some(1), None]);
        assert_eq!(nodes.cpus().to_list(), "1-3");
        let joined = nodes.joined();
        assert!(
            joined.is_single() && joined.of_cpu(3) == Some(0) && joined.get(0).capacity == 3000
        );
        assert_eq!(nodes.index_of(1), Ok(1));
        let errors = [2, 3, 9].map(|node| nodes.index_of(node).unwrap_err().to_string());
        let texts = [
            "the affinity mask or the cpuset allows none",
            "no online CPUs",
            "there is no such node",
        ];
        for (error, text) in errors.iter().zip(texts) {
            assert!(error.contains(text) && error.ends_with("give one of 0, 1"), "{error}");
        }
    }

    #[test]
    fn caches_of_a_node_are_nearer_than_other_nodes() {
        let machine = machine("numa:2 l3:2 core:2");
        let caches = Nodes::by_cache(&machine, machine.online());
        assert_eq!(caches.len(), 4);
        assert_eq!([0, 1, 2].map(|to| caches.distance(0, to)), [10, 11, 20]);
        assert_eq!(caches.cpus_of(&[0, 2]).to_list(), "0-1,4-5");
        let of = |memory, first| caches.of_memory(memory, first);
        assert_eq!(
            [of(1, None), of(1, Some(3)), of(1, Some(0)), of(7, Some(0))],
            [Some(2), Some(3), Some(2), None]
        );
        assert_eq!(caches.iter().map(|cache| cache.memory).collect::<Vec<_>>(), [0, 0, 1, 1]);
    }

    #[test]
    fn with_no_usable_cpus_there_is_one_node() {
        let machine = machine("numa:2 core:2").with_online(&"0-1".parse().unwrap());
        let nodes = Nodes::of(&machine, &"2-3".parse().unwrap());
        assert!(nodes.is_single());
        assert_eq!(nodes.get(0).cpus.to_list(), "2-3");
        assert_eq!(nodes.distance(0, 0), LOCAL_DISTANCE);
    }
}
