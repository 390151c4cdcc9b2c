//! Devices: GPUs, network interfaces and disks, and the nodes that they are near.
//!
//! A device is near the node whose CPUs and memory it reaches without crossing to another node. What is known about it comes from sysfs
//! ([`Topology::with_devices_of`]) or from an hwloc XML file, and for the names `file:` and `ip:` also from `/proc`; no vendor's library is
//! asked.
//!
//! | file | holds |
//! |---|---|
//! | `name` | names of devices, as users write them |
//! | `gpu` | which PCI devices are GPUs, and their numbers |
//! | `sysfs` | the devices of a machine from its `/sys`, and the node of each |
//! | `hardware` | what is below a virtual device: a bond, a RAID, a partition, the file system of a file |
//! | `find` | from a name to its devices |
//! | `route` | from an address to the interface that reaches it |
//! | `error` | why a name leads to no node |

mod error;
mod find;
pub(crate) mod gpu;
mod hardware;
mod name;
mod route;
mod sysfs;

pub use error::DeviceError;
pub use find::NearDevice;
pub use name::DeviceName;

use crate::{CpuSet, Topology};
use std::fmt;

/// What a device is. Displays as the word before the colon of its [`DeviceName`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A GPU or another accelerator. Its name is its number, in the order of PCI addresses.
    Gpu,
    /// A network interface.
    Network,
    /// A disk.
    Block,
    /// Any other device that was named by its PCI address.
    Pci,
}

impl fmt::Display for DeviceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Gpu => "gpu",
            Self::Network => "netdev",
            Self::Block => "block",
            Self::Pci => "pci",
        })
    }
}

/// Who says which node a device is near.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeSource {
    /// The device itself, or the description of the machine.
    Device,
    /// The root of its PCI bus, because the device does not say.
    Root,
    /// Nobody needs to: the machine has one node.
    OnlyNode,
    /// Nobody does.
    Unknown,
}

/// A device. Displays as users write it, such as `gpu:0` or `netdev:eth0`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Device {
    /// What it is.
    pub kind: DeviceKind,
    /// Its name, without its kind: a number for a GPU.
    pub name: String,
    /// Its PCI address, such as `0000:41:00.0`, if it is on a PCI bus.
    pub address: Option<String>,
    /// The PCI number of its vendor, if known.
    pub vendor: Option<u16>,
    /// The ids of the nodes that it is near, ascending: usually one; several if who says it names several; none if nobody says it.
    pub nodes: Vec<usize>,
    /// Who says it.
    pub source: NodeSource,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}:{}", self.kind, self.name))
    }
}

impl Device {
    /// The name of its vendor, for the vendors that have their own way to select GPUs: `NVIDIA`, `AMD` or `Intel`.
    pub fn vendor_name(&self) -> Option<&'static str> {
        self.vendor.and_then(gpu::vendor_name)
    }

    /// A sentence about how its node was found, if that is not simply what the device says.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    ///
    /// let machine = Topology::from_hwloc_xml(
    ///     r#"<topology version="2.0"><object type="Machine" cpuset="0x3" nodeset="0x3">
    ///          <object type="NUMANode" os_index="0" cpuset="0x1"/><object type="NUMANode" os_index="1" cpuset="0x2"/>
    ///          <object type="PU" os_index="0" cpuset="0x1"/><object type="PU" os_index="1" cpuset="0x2"/>
    ///          <object type="PCIDev" pci_busid="0000:41:00.0" pci_type="0302 [10de:1db6] [10de:1214] a1"/>
    ///        </object></topology>"#,
    /// )?;
    /// let gpu = &machine.devices()[0];
    /// assert_eq!((gpu.to_string(), gpu.vendor_name()), ("gpu:0".into(), Some("NVIDIA")));
    /// assert!(gpu.explain().unwrap().contains("does not say which node"));
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    pub fn explain(&self) -> Option<String> {
        let device = match &self.address {
            Some(address) if self.name != *address => format!("{self} ({address})"),
            _ => self.to_string(),
        };
        let nodes = node_list(&self.nodes);
        match (self.source, self.nodes.len()) {
            (NodeSource::Unknown, _) => {
                Some(format!("{device}: the machine does not say which node it is near"))
            }
            (NodeSource::Root, 1) => Some(format!(
                "{device} names no node itself; the root of its PCI bus is near {nodes}"
            )),
            (NodeSource::Root, _) => Some(format!(
                "{device} names no node itself; the root of its PCI bus gives several: {nodes}"
            )),
            (NodeSource::Device, 2..) => Some(format!("{device} is equally near several: {nodes}")),
            _ => None,
        }
    }
}

/// `node 1`, or `nodes 0, 1`.
pub(crate) fn node_list(nodes: &[usize]) -> String {
    let list: Vec<String> = nodes.iter().map(usize::to_string).collect();
    format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, list.join(", "))
}

impl Topology {
    /// The ids of the nodes that have these CPUs, and who says so if `source` names the CPUs. A set of CPUs that covers all nodes says
    /// nothing.
    fn nodes_of(&self, cpus: &CpuSet) -> Vec<usize> {
        let on = |cpus: &CpuSet| -> Vec<usize> {
            let nodes = self.nodes.iter().filter(|node| node.cpus.intersects(cpus));
            nodes.map(|node| node.id).collect()
        };
        let nodes = on(cpus);
        if nodes.len() > 1 && nodes.len() == on(&self.possible).len() { Vec::new() } else { nodes }
    }

    /// What is known about a device if these nodes were named for it.
    pub(crate) fn place(&self, named: Vec<usize>, source: NodeSource) -> (Vec<usize>, NodeSource) {
        match self.nodes.as_slice() {
            [only] => (vec![only.id], NodeSource::OnlyNode),
            _ if named.is_empty() => (named, NodeSource::Unknown),
            _ => (named, source),
        }
    }
}
