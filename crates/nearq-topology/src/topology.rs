//! The machine: its parts and where they are. It is immutable, and `assemble` makes it from what a reader found.

use crate::assemble::Draft;
use crate::distance::CpuPosition;
use crate::unread::{self, Unread};
use crate::{Cache, Core, Cpu, CpuSet, Device, Distance, Group, Llc, Node, TopologyError};

/// The most CPUs that a machine may have. Their ids are below [`CPU_ID_LIMIT`](crate::CPU_ID_LIMIT), and may have gaps.
pub const MAX_CPU_COUNT: usize = 4096;

/// The most nodes that a machine may have; their ids are below this too. No kernel configuration allows more.
pub const MAX_NODES: usize = 1024;

/// The distance from a node to itself, in the firmware's units (SLIT).
pub const LOCAL_DISTANCE: u32 = 10;

/// The distance between two nodes if the machine does not say: twice [`LOCAL_DISTANCE`], as in the kernel.
pub const REMOTE_DISTANCE: u32 = 20;

/// The end of the note for a machine that could not be read at all.
pub(crate) const STANDS_IN: &str = "are put under one cache on one node";

/// The end of the note for a machine that could not be read again as completely as before.
pub(crate) const STANDS: &str = "of the machine, what was known before stands";

/// The beginning of the note that is no longer true after `with_distances`.
pub(crate) const DISTANCES_UNKNOWN: &str = "the distances between nodes are not known";

/// A machine: its CPUs, cores, caches, nodes and the distances between them.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::Topology;
///
/// let machine = Topology::from_synthetic("pack:2 numa:2 l3:2 core:4 pu:2")?;
/// assert_eq!(machine.llcs().len(), 8);
/// assert_eq!(machine.node_index(63), Some(3));
/// assert_eq!(machine.distance(0, 3), 20);
/// # Ok::<(), nearq::topology::TopologyError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    pub(crate) possible: CpuSet,
    pub(crate) slots: CpuSet,
    pub(crate) online: CpuSet,
    pub(crate) isolated: CpuSet,
    /// In order of `id`.
    pub(crate) cpus: Vec<Cpu>,
    /// Where a CPU is in `cpus`, by its number; `usize::MAX` for numbers without a CPU.
    pub(crate) places: Vec<usize>,
    pub(crate) cores: Vec<Core>,
    pub(crate) clusters: Vec<Group>,
    pub(crate) llcs: Vec<Llc>,
    pub(crate) dies: Vec<Group>,
    pub(crate) packages: Vec<Group>,
    pub(crate) nodes: Vec<Node>,
    /// A row for each node, in the order of `nodes`.
    pub(crate) distances: Vec<Vec<u32>>,
    pub(crate) caches: Vec<Cache>,
    /// By kind; GPUs by address.
    pub(crate) devices: Vec<Device>,
    pub(crate) model: Option<String>,
    pub(crate) notes: Vec<String>,
    /// What exists and could not be read.
    pub(crate) unread: Vec<Unread>,
    /// Whether the online CPUs have changed since this was read, and the machine could not be read completely after that.
    pub(crate) outdated: bool,
}

impl Topology {
    /// The ids of the CPUs that are plugged in, online or not. These are the *possible* CPUs here, and all other functions are about them.
    pub fn possible(&self) -> &CpuSet {
        &self.possible
    }

    /// The ids of CPUs that are not plugged in but may be later. No other function includes them.
    pub fn slots(&self) -> &CpuSet {
        &self.slots
    }

    /// The ids of the CPUs that were online when the machine was read.
    pub fn online(&self) -> &CpuSet {
        &self.online
    }

    /// The ids of the isolated CPUs: those that the machine keeps free of work that is bound to no CPU, by `isolcpus=` or `nohz_full=` of
    /// the kernel's command line. [`Limits::isolated`](crate::Limits::isolated) has those of cpusets too.
    pub fn isolated(&self) -> &CpuSet {
        &self.isolated
    }

    /// The possible CPUs, in order of their ids. Ids may have gaps, so a CPU's place in this slice may differ from its id: see
    /// [`cpu`](Self::cpu).
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The CPU with this id, or `None` if it is not a possible CPU.
    pub fn cpu(&self, cpu: usize) -> Option<&Cpu> {
        self.places.get(cpu).and_then(|place| self.cpus.get(*place))
    }

    /// The cores, in order of their first CPU.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// The last-level cache domains, in order of their first CPU.
    pub fn llcs(&self) -> &[Llc] {
        &self.llcs
    }

    /// The nodes, in order of their ids. There is always at least one; nodes without CPUs are included.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The packages (sockets), in order of their first CPU.
    pub fn packages(&self) -> &[Group] {
        &self.packages
    }

    /// The dies, in order of their first CPU; empty if unknown or if every package is one die.
    pub fn dies(&self) -> &[Group] {
        &self.dies
    }

    /// The groups of cores between core and last-level cache, in order of their first CPU; empty if there are
    /// none.
    pub fn clusters(&self) -> &[Group] {
        &self.clusters
    }

    /// Every cache, the highest level first, then by first CPU.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The GPUs, network interfaces and disks, in this order. Empty unless they were read: by
    /// [`with_devices_of`](Self::with_devices_of), from an hwloc XML file that has them, or by
    /// [`from_description`](Self::from_description).
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Index in [`nodes`](Self::nodes) of the node of the CPU with this id; `None` if it is not known, or the CPU is not a possible one.
    pub fn node_index(&self, cpu: usize) -> Option<usize> {
        self.cpu(cpu)?.node_index
    }

    /// Index in [`llcs`](Self::llcs) of the last-level cache domain of the CPU with this id; `None` if it is not a possible CPU.
    pub fn llc_index(&self, cpu: usize) -> Option<usize> {
        Some(self.cpu(cpu)?.llc_index)
    }

    /// Index in [`cores`](Self::cores) of the core of the CPU with this id; `None` if it is not a possible CPU.
    pub fn core_index(&self, cpu: usize) -> Option<usize> {
        Some(self.cpu(cpu)?.core_index)
    }

    /// Index in [`packages`](Self::packages) of the package of the CPU with this id; `None` if it is not known, or the CPU is not a
    /// possible one.
    pub fn package_index(&self, cpu: usize) -> Option<usize> {
        self.cpu(cpu)?.package_index
    }

    /// Index in [`nodes`](Self::nodes) of the node that the operating system numbers `id`; `None` if there is none.
    pub fn node_index_by_id(&self, id: usize) -> Option<usize> {
        self.nodes.iter().position(|node| node.id == id)
    }

    /// The distance from one node to another, in the firmware's units (SLIT): [`LOCAL_DISTANCE`] within a node, usually 11 to 40 between
    /// nodes. The nodes are given by their indices in [`nodes`](Self::nodes). The firmware may state different distances for the two
    /// directions.
    ///
    /// # Panics
    /// If an index is not below the number of nodes.
    pub fn distance(&self, from_index: usize, to_index: usize) -> u32 {
        self.distances[from_index][to_index]
    }

    /// How far apart two CPUs are, given by their ids.
    ///
    /// # Panics
    /// If one of them is not a possible CPU.
    pub fn cpu_distance(&self, a: usize, b: usize) -> Distance {
        self.position(a).distance(&self.position(b), &self.distances)
    }

    /// Where a CPU is, as far as distances go.
    pub(crate) fn position(&self, cpu: usize) -> CpuPosition {
        let none = || panic!("CPU {cpu} is none of this machine's {}", self.possible);
        let cpu = self.cpu(cpu).unwrap_or_else(none);
        CpuPosition {
            cpu: cpu.id,
            core: cpu.core_index,
            cluster: cpu.cluster_index,
            llc: cpu.llc_index,
            package: cpu.package_index,
            node: cpu.node_index,
        }
    }

    /// The name of the machine's CPUs, such as `AMD Ryzen 9 3900X 12-Core Processor`.
    pub fn model_name(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// What could not be read, and what is used instead: a sentence for each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The parts of the machine that exist and could not be read, one entry for each error number. If there are any, the machine may differ
    /// from this description.
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// Whether everything that existed could be read: when the machine was read first, and each time when it was [read
    /// again](Self::reread).
    pub fn is_whole(&self) -> bool {
        self.unread.is_empty() && !self.outdated
    }

    /// Whether this is a stand-in for a machine that could not be read at all.
    pub(crate) fn stands_in(&self) -> bool {
        self.notes.iter().any(|note| note.ends_with(STANDS_IN))
    }

    /// The warning for a machine that could not be read completely: one line that says what could not be read, why, and what is used
    /// instead. `None` if nothing is missing.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Topology};
    /// use std::path::Path;
    ///
    /// let error = Topology::from_sysfs(Path::new("/nonexistent")).unwrap_err();
    /// let machine = Topology::of_cpus(&CpuSet::from_range(2..6), &error)?;
    /// let text = "/nonexistent: No such file or directory (os error 2): CPUs 2-5 are put under one cache on one node";
    /// assert_eq!(machine.warning().as_deref(), Some(text));
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn warning(&self) -> Option<String> {
        let is_one = |note: &&String| note.ends_with(STANDS_IN) || note.ends_with(STANDS);
        let part = || {
            let text = format!("{}: the machine is known only in part", unread::list(&self.unread));
            (!self.unread.is_empty()).then_some(text)
        };
        self.notes.iter().find(is_one).cloned().or_else(part)
    }

    /// Whether CPUs differ in kind ([`Cpu::kind`]) or speed ([`Cpu::capacity`]).
    pub fn is_hybrid(&self) -> bool {
        self.cpus
            .windows(2)
            .any(|pair| (pair[0].capacity, &pair[0].kind) != (pair[1].capacity, &pair[1].kind))
    }

    /// The same machine with other distances between its nodes: a row for each node, in the order of
    /// [`nodes`](Self::nodes), in the firmware's units. For descriptions that cannot state distances.
    ///
    /// # Errors
    /// If there is not one row and one column for each node, a node is not [`LOCAL_DISTANCE`] from itself, or
    /// a distance to another node is smaller.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    ///
    /// let machine = Topology::from_synthetic("numa:2 core:4")?.with_distances(&[vec![10, 32], vec![32, 10]])?;
    /// assert_eq!(machine.distance(0, 1), 32);
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn with_distances(mut self, rows: &[Vec<u32>]) -> Result<Self, TopologyError> {
        crate::assemble::check_distances(rows, self.nodes.len())
            .map_err(|reason| TopologyError::Distances { reason })?;
        self.distances = rows.to_vec();
        self.notes.retain(|note| !note.starts_with(DISTANCES_UNKNOWN));
        Ok(self)
    }

    /// The same machine with these CPUs online, and no others. Ids that the machine does not have are ignored.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Topology};
    ///
    /// let machine = Topology::from_synthetic("numa:2 core:4")?.with_online(&CpuSet::from_range(2..99));
    /// assert_eq!(machine.online().to_list(), "2-7");
    /// assert!(!machine.cpus()[0].online && machine.cpus()[2].online);
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    #[must_use]
    pub fn with_online(mut self, online: &CpuSet) -> Self {
        self.online = self.possible.intersection(online);
        for cpu in &mut self.cpus {
            cpu.online = online.contains(cpu.id);
        }
        self
    }

    /// The same machine with these CPUs [isolated](Self::isolated), and no others. Ids that the machine does not have are ignored.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Topology};
    ///
    /// let machine = Topology::from_synthetic("numa:2 core:4")?.with_isolated(&CpuSet::from_range(6..99));
    /// assert_eq!(machine.isolated().to_list(), "6-7");
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    #[must_use]
    pub fn with_isolated(mut self, isolated: &CpuSet) -> Self {
        self.isolated = self.possible.intersection(isolated);
        self
    }

    /// A stand-in for a machine that could not be read because of `error`: these CPUs, each a core, under one cache on one node.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Topology};
    /// use std::path::Path;
    ///
    /// let error = Topology::from_sysfs(Path::new("/nonexistent")).unwrap_err();
    /// let machine = Topology::of_cpus(&CpuSet::from_range(2..6), &error)?;
    /// assert_eq!((machine.llcs().len(), machine.nodes().len()), (1, 1));
    /// assert_eq!((machine.online().to_list(), machine.is_whole()), ("2-5".into(), false));
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    ///
    /// # Errors
    /// If there is no CPU, or more than [`MAX_CPU_COUNT`].
    pub fn of_cpus(cpus: &CpuSet, error: &TopologyError) -> Result<Self, TopologyError> {
        let what = error.unread().map_or_else(|| error.to_string(), |unread| unread.to_string());
        let mut draft = Draft {
            place: "the set of CPUs".into(),
            possible: cpus.clone(),
            online: cpus.clone(),
            notes: vec![format!("{what}: CPUs {cpus} {STANDS_IN}")],
            ..Draft::default()
        };
        draft.nodes.push(Node { id: 0, cpus: cpus.clone(), memory: None });
        draft.packages.add_whole(cpus.clone(), None);
        for cpu in cpus {
            draft.cores.add_whole(CpuSet::single(cpu), None);
        }
        draft.unread.extend(error.unread());
        // The machine is read again each time: this costs nothing if nothing can be read.
        Ok(Self { outdated: true, ..draft.finish()? })
    }

    /// The same machine with another [model name](Self::model_name).
    #[must_use]
    pub fn with_model_name(mut self, name: &str) -> Self {
        self.model = Some(name.into());
        self
    }
}
