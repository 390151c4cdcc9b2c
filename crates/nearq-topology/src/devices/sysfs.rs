//! The devices of a machine from its `/sys`, and the node of each.
//!
//! A device's folder lies in the folders of the bridges and adapters that it is behind, and the outermost of them is the root of its PCI
//! bus:
//!
//! ```text
//! devices/pci0000:40/0000:40:01.1/0000:41:00.0/nvme/nvme0/nvme0n1
//!         root       bridge       the device on the bus    the disk
//! ```
//!
//! The first of these that answers names the node: `numa_node` of the device, or of what it is behind, from the inside to the outside;
//! `local_cpulist` of the device, if these are not the CPUs of all nodes; the root, that is the CPUs near its bus and the nodes of the
//! devices directly at it, which may name several. -1 in `numa_node` means that the firmware does not say.

use super::gpu::{self, PciAddress};
use super::{Device, DeviceKind, NodeSource};
use crate::files::{Files, Roots};
use crate::{CpuSet, Topology};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The most devices of a kind that are listed.
const MOST_DEVICES: usize = 4096;

/// The folder of the devices that are only software, below a `/sys`.
pub(super) const VIRTUAL: &str = "devices/virtual";

/// The drivers that reserve a device for a virtual machine, by the ends of their names: VFIO has variants, such as `nvgrace_gpu_vfio_pci`.
const RESERVING: [&str; 4] = ["vfio-pci", "vfio_pci", "pci-stub", "pciback"];

impl Topology {
    /// The same machine with the [devices](Self::devices) below `root`, the folder that [`from_sysfs`](Self::from_sysfs) has read. Reads
    /// some files for each device. What cannot be read is left out, and [`notes`](Self::notes) says so.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    /// use std::path::Path;
    ///
    /// let here = Topology::from_sysfs(Path::new("/"))?.with_devices_of(Path::new("/"));
    /// for device in here.devices() {
    ///     println!("{device} is near nodes {:?}", device.nodes);
    /// }
    /// # Ok::<(), nearq::topology::TopologyError>(())
    /// ```
    #[must_use]
    pub fn with_devices_of(mut self, root: &Path) -> Self {
        let Some(mut tree) = Tree::below(&self, root) else { return self };
        let mut devices = tree.gpus();
        devices.extend(tree.class(DeviceKind::Network));
        devices.extend(tree.class(DeviceKind::Block));
        gpu::number(&mut devices);
        let notes = tree.files.into_notes();
        self.devices = devices;
        self.notes.extend(notes);
        self
    }
}

/// The tree of devices of a machine.
pub(super) struct Tree<'a> {
    pub(super) topology: &'a Topology,
    /// Where `/sys` and `/proc` are, without links.
    pub(super) sys: PathBuf,
    pub(super) proc: PathBuf,
    pub(super) files: Files,
    /// The nodes that roots of PCI buses name.
    roots: BTreeMap<PathBuf, Vec<usize>>,
}

impl<'a> Tree<'a> {
    pub(super) fn below(topology: &'a Topology, root: &Path) -> Option<Self> {
        let roots = Roots::find(root).ok()?;
        let mut files = Files::default();
        let sys = files.real(&roots.sys)?;
        Some(Self { topology, sys, proc: roots.proc, files, roots: BTreeMap::new() })
    }

    /// The folder that a path leads to, if that is below `/sys`.
    pub(super) fn folder(&mut self, path: &Path) -> Option<PathBuf> {
        self.files.real(path).filter(|real| real.starts_with(&self.sys))
    }

    /// Whether a device is only software.
    pub(super) fn is_virtual(&self, folder: &Path) -> bool {
        folder.starts_with(self.sys.join(VIRTUAL))
    }

    /// The folder in which a kind of devices is listed.
    pub(super) fn list_of(&self, kind: DeviceKind) -> PathBuf {
        self.sys.join(match kind {
            DeviceKind::Network => "class/net",
            DeviceKind::Block => "block",
            DeviceKind::Gpu | DeviceKind::Pci => "bus/pci/devices",
        })
    }

    /// The GPUs; their numbers are not right yet.
    fn gpus(&mut self) -> Vec<Device> {
        let list = self.list_of(DeviceKind::Gpu);
        let mut gpus = Vec::new();
        for name in self.files.names(&list) {
            let folder = list.join(&name);
            let (Some(class), Some(vendor)) =
                (self.pci_number(&folder, "class"), self.vendor(&folder))
            else {
                continue;
            };
            // A virtual function is a part of a GPU that was set aside for a virtual machine.
            if PciAddress::parse(&name).is_some()
                && gpu::is_gpu(class >> 8, vendor)
                && !self.files.is_folder(&folder.join("physfn"))
                && !self.is_set_aside(&folder)
                && gpus.len() < MOST_DEVICES
            {
                gpus.extend(
                    self.folder(&folder).map(|real| self.device(DeviceKind::Gpu, name, &real)),
                );
            }
        }
        gpus
    }

    /// Whether a PCI device is reserved for a virtual machine: programs of this system cannot use it, and their drivers do not number it.
    fn is_set_aside(&mut self, folder: &Path) -> bool {
        let driver = self.files.real(&folder.join("driver"));
        let name = driver.as_deref().and_then(Path::file_name).and_then(|name| name.to_str());
        name.is_some_and(|name| RESERVING.iter().any(|end| name.ends_with(end)))
    }

    /// The hardware of a class.
    fn class(&mut self, kind: DeviceKind) -> Vec<Device> {
        let list = self.list_of(kind);
        let mut devices = Vec::new();
        for name in self.files.names(&list) {
            if devices.len() == MOST_DEVICES {
                break;
            }
            // Not the single paths to a disk that has several.
            let Some(folder) = self.device_folder(&list.join(&name)) else { continue };
            if self.files.text(&folder.join("hidden")).is_some_and(|hidden| hidden == "1") {
                continue;
            }
            let controllers = self.controllers(&folder);
            if !controllers.is_empty() {
                devices.push(self.device_of(kind, name, &controllers));
            } else if !self.is_virtual(&folder) {
                devices.push(self.device(kind, name, &folder));
            }
        }
        devices
    }

    /// The folder of a device, by its entry in a list: a link to the folder, or, with old kernels, a folder with a link to the device.
    pub(super) fn device_folder(&mut self, entry: &Path) -> Option<PathBuf> {
        let folder = self.folder(entry)?;
        if folder.starts_with(self.sys.join("devices")) {
            return Some(folder);
        }
        self.folder(&folder.join("device"))
    }

    /// The controllers of a disk with several paths (`devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1`); none if it is no such disk.
    pub(super) fn controllers(&mut self, folder: &Path) -> Vec<PathBuf> {
        let subsystem = folder.ancestors().find(|above| {
            let name = above.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with("nvme-subsys") && name != "nvme-subsystem")
        });
        let Some(subsystem) = subsystem else { return Vec::new() };
        let names = self.files.names(subsystem);
        let is_controller = |name: &&String| {
            let number = name.strip_prefix("nvme");
            number.is_some_and(|number| {
                !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
            })
        };
        names
            .iter()
            .filter(is_controller)
            .filter_map(|name| self.folder(&subsystem.join(name)))
            .collect()
    }

    /// The device in a folder.
    pub(super) fn device(&mut self, kind: DeviceKind, name: String, folder: &Path) -> Device {
        let on_bus = self.on_bus(folder);
        let address = on_bus.as_deref().and_then(address_of);
        let vendor = on_bus.and_then(|folder| self.vendor(&folder));
        let (nodes, source) = self.nodes(folder);
        let (nodes, source) = self.topology.place(nodes, source);
        Device {
            kind,
            name,
            address: address.map(|address| address.to_string()),
            vendor,
            nodes,
            source,
        }
    }

    /// A device that is reached by several folders.
    fn device_of(&mut self, kind: DeviceKind, name: String, folders: &[PathBuf]) -> Device {
        let devices: Vec<Device> =
            folders.iter().map(|folder| self.device(kind, name.clone(), folder)).collect();
        let nodes: BTreeSet<usize> =
            devices.iter().flat_map(|device| device.nodes.clone()).collect();
        let first = devices.into_iter().next().expect("there is a folder");
        Device { nodes: nodes.into_iter().collect(), ..first }
    }

    /// The innermost folder of a path that is a device on a PCI bus.
    fn on_bus(&self, folder: &Path) -> Option<PathBuf> {
        let inside = folder.ancestors().take_while(|above| above.starts_with(&self.sys));
        inside.into_iter().find(|above| address_of(above).is_some()).map(Path::to_owned)
    }

    /// The nodes that are named for the device in a folder, and who names them; none if nobody does.
    fn nodes(&mut self, folder: &Path) -> (Vec<usize>, NodeSource) {
        let top = self.sys.join("devices");
        for above in folder.ancestors().take_while(|above| *above != top && above.starts_with(&top))
        {
            if let Some(node) = self.numa_node(above) {
                return (vec![node], NodeSource::Device);
            }
        }
        let Some(on_bus) = self.on_bus(folder) else { return (Vec::new(), NodeSource::Unknown) };
        let local = self.files.set(&on_bus, "local_cpus", "local_cpulist");
        let local = self.topology.nodes_of(&local.unwrap_or_default());
        if !local.is_empty() {
            return (local, NodeSource::Device);
        }
        let root = folder.ancestors().find(|above| root_bus(above).is_some()).map(Path::to_owned);
        (root.map(|root| self.root_nodes(root)).unwrap_or_default(), NodeSource::Root)
    }

    /// The nodes near the root of a PCI bus: those of the CPUs near the bus, and those of the devices directly at it.
    fn root_nodes(&mut self, root: PathBuf) -> Vec<usize> {
        if let Some(known) = self.roots.get(&root) {
            return known.clone();
        }
        let bus = root_bus(&root).unwrap_or_default();
        let near =
            self.files.set(&root.join("pci_bus").join(bus), "cpuaffinity", "cpulistaffinity");
        let mut cpus = vec![near.unwrap_or_default()];
        let mut nodes = BTreeSet::new();
        for name in self.files.names(&root) {
            let folder = root.join(&name);
            if PciAddress::parse(&name).is_none() {
                continue;
            }
            match self.numa_node(&folder) {
                Some(node) => drop(nodes.insert(node)),
                None => cpus.extend(self.files.set(&folder, "local_cpus", "local_cpulist")),
            }
        }
        nodes.extend(cpus.iter().flat_map(|cpus: &CpuSet| self.topology.nodes_of(cpus)));
        // All nodes: that says nothing.
        let said = nodes.len() < self.topology.nodes.len() || nodes.len() == 1;
        let nodes: Vec<usize> = if said { nodes.into_iter().collect() } else { Vec::new() };
        self.roots.insert(root, nodes.clone());
        nodes
    }

    /// The node that a folder names, if the machine has it.
    fn numa_node(&mut self, folder: &Path) -> Option<usize> {
        let node = self.files.number::<i64>(&folder.join("numa_node"))?;
        let node = usize::try_from(node).ok()?;
        self.topology.node_index_by_id(node).map(|_| node)
    }

    fn vendor(&mut self, folder: &Path) -> Option<u16> {
        self.pci_number(folder, "vendor").and_then(|vendor| u16::try_from(vendor).ok())
    }

    /// A number that the kernel writes as `0x10de`.
    fn pci_number(&mut self, folder: &Path, name: &str) -> Option<u32> {
        let text = self.files.text(&folder.join(name))?;
        u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()
    }
}

/// The address of the device on a PCI bus that a folder is.
fn address_of(folder: &Path) -> Option<PciAddress> {
    // With the domain: other folders, such as a SCSI device's 4:0:0:0, have other forms.
    let name = folder.file_name()?.to_str()?;
    PciAddress::parse(name).filter(|address| address.to_string() == name)
}

/// The bus of which a folder, such as `pci0000:40`, is the root.
fn root_bus(folder: &Path) -> Option<&str> {
    let bus = folder.file_name()?.to_str()?.strip_prefix("pci")?;
    bus.contains(':').then_some(bus)
}
