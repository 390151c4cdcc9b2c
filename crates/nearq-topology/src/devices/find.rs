//! From a name to the devices that it means, and their nodes.

use super::sysfs::{Tree, VIRTUAL};
use super::{Device, DeviceError, DeviceKind, DeviceName, node_list, route};
use crate::Topology;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// What a name means: one device, or several if it is a bond or a RAID of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NearDevice {
    /// What was named.
    pub name: DeviceName,
    /// The devices; at least one.
    pub devices: Vec<Device>,
    /// The ids of the nodes that they are near, ascending; at least one.
    pub nodes: Vec<usize>,
}

impl NearDevice {
    /// Sentences about how the nodes were found, if that is not simply what the device says: what it was resolved to, who names the node,
    /// that there are several.
    pub fn explain(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.devices.iter().filter_map(Device::explain).collect();
        if self.devices.len() > 1 {
            let devices: Vec<String> = self.devices.iter().map(Device::to_string).collect();
            lines.push(format!(
                "{} is {}: {}",
                self.name,
                devices.join(" and "),
                node_list(&self.nodes)
            ));
        }
        lines
    }
}

impl Topology {
    /// The devices that a name means, and the nodes that they are near. `root` is `/`, or the folder that this machine was read from
    /// ([`from_sysfs`](Self::from_sysfs)). A bond, a bridge, a VLAN, a RAID, a logical volume, a partition or a loop device means the
    /// hardware below it; an address, the interface that the main routing table names; a file, the disk of its file system. Files are always
    /// those of this machine.
    ///
    /// # Errors
    /// There is no such device, or no hardware below it, or nobody says which node it is near.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::Topology;
    /// use std::path::Path;
    ///
    /// let here = Topology::from_sysfs(Path::new("/"))?;
    /// let error = here.near_device(Path::new("/"), &"netdev:lo".parse()?).unwrap_err();
    /// assert!(error.to_string().starts_with("netdev:lo: "));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn near_device(&self, root: &Path, name: &DeviceName) -> Result<NearDevice, DeviceError> {
        let listed = self.clone().with_devices_of(root);
        let devices = listed.found(root, name)?;
        let nodes: BTreeSet<usize> =
            devices.iter().flat_map(|device| device.nodes.clone()).collect();
        if let Some(unknown) = devices.iter().find(|device| device.nodes.is_empty()) {
            return Err(DeviceError::NoNode { name: name.clone(), device: unknown.to_string() });
        }
        Ok(NearDevice { name: name.clone(), devices, nodes: nodes.into_iter().collect() })
    }

    fn found(&self, root: &Path, name: &DeviceName) -> Result<Vec<Device>, DeviceError> {
        let unknown = |kind: DeviceKind| {
            let known = self.devices.iter().filter(|device| device.kind == kind);
            DeviceError::Unknown {
                name: name.clone(),
                kind,
                known: known.map(Device::to_string).collect(),
            }
        };
        let no_hardware = |reason: String| DeviceError::NoHardware { name: name.clone(), reason };
        let no_sys = || no_hardware("this machine shows no devices: there is no /sys".into());
        if let DeviceName::Gpu(number) = name {
            let mut gpus = self.devices.iter().filter(|device| device.kind == DeviceKind::Gpu);
            return gpus
                .nth(*number)
                .map(|gpu| vec![gpu.clone()])
                .ok_or_else(|| unknown(DeviceKind::Gpu));
        }
        let mut tree = Tree::below(self, root).ok_or_else(no_sys)?;
        match name {
            DeviceName::Pci(address) => {
                let entry = tree.list_of(DeviceKind::Pci).join(address);
                let folder = tree.folder(&entry).ok_or_else(|| DeviceError::Unknown {
                    name: name.clone(),
                    kind: DeviceKind::Pci,
                    known: self
                        .devices
                        .iter()
                        .filter_map(|device| Some(format!("pci:{}", device.address.as_ref()?)))
                        .collect::<BTreeSet<_>>()
                        .into_iter()
                        .collect(),
                })?;
                Ok(vec![tree.device(DeviceKind::Pci, address.clone(), &folder)])
            }
            DeviceName::Network(interface) => {
                let folder =
                    tree.interface(interface).ok_or_else(|| unknown(DeviceKind::Network))?;
                tree.below_device(DeviceKind::Network, &folder).map_err(no_hardware)
            }
            DeviceName::Block(disk) => {
                let folder = tree.disk(disk).ok_or_else(|| unknown(DeviceKind::Block))?;
                tree.below_device(DeviceKind::Block, &folder).map_err(no_hardware)
            }
            DeviceName::File(path) => {
                let folders = tree.below_file(path, 0).map_err(no_hardware)?;
                Ok(tree.devices(DeviceKind::Block, &folders))
            }
            DeviceName::Ip(address) if address.to_canonical().is_loopback() => Err(no_hardware(
                "it is this machine itself, so no network interface reaches it; name another address, or an interface with netdev:NAME".into(),
            )),
            DeviceName::Ip(address) => {
                // `::ffff:10.0.0.1` is an address of the fourth version, and its packets take the routes of that version.
                let address = address.to_canonical();
                let file = tree.proc.join(route::file(address));
                let table = tree.files.text(&file).unwrap_or_default();
                let interfaces = route::interfaces(&table, address);
                if interfaces.is_empty() {
                    return Err(no_hardware("the main routing table has no route to it; name the network interface with netdev:NAME".into()));
                }
                if interfaces.len() > 1 && route::is_link_local(address) {
                    let names = interfaces.join(", ");
                    return Err(no_hardware(format!(
                        "an address of a link, and several interfaces have one ({names}); name one of them with netdev:NAME"
                    )));
                }
                let mut devices = Vec::new();
                for interface in interfaces {
                    let through = |reason: String| {
                        no_hardware(format!("it is reached through {interface}: {reason}"))
                    };
                    let folder =
                        tree.interface(interface).ok_or_else(|| unknown(DeviceKind::Network))?;
                    let below = tree.below_device(DeviceKind::Network, &folder);
                    for device in below.map_err(through)? {
                        // Two VLANs may be on one card.
                        if !devices.contains(&device) {
                            devices.push(device);
                        }
                    }
                }
                Ok(devices)
            }
            DeviceName::Gpu(_) => Err(unknown(DeviceKind::Gpu)),
        }
    }
}

impl Tree<'_> {
    /// The folder of a network interface. One that exists and has no folder in this tree counts as virtual.
    fn interface(&mut self, name: &str) -> Option<PathBuf> {
        let entry = self.list_of(DeviceKind::Network).join(name);
        // Copies of a machine may leave out where a link leads. A plain file is no interface.
        self.device_folder(&entry).or_else(|| {
            let is_there = self.files.is_folder(&entry)
                || (self.files.is_file(&entry) && self.files.real(&entry).is_none());
            is_there.then(|| self.sys.join(VIRTUAL))
        })
    }

    /// The folder of a disk or a partition.
    fn disk(&mut self, name: &str) -> Option<PathBuf> {
        let entry = self.sys.join("class/block").join(name);
        self.device_folder(&entry).or_else(|| {
            let entry = self.list_of(DeviceKind::Block).join(name);
            self.device_folder(&entry)
        })
    }

    fn below_device(&mut self, kind: DeviceKind, folder: &Path) -> Result<Vec<Device>, String> {
        let folders = self.hardware(kind, folder, 0)?;
        Ok(self.devices(kind, &folders))
    }

    fn devices(&mut self, kind: DeviceKind, folders: &BTreeSet<PathBuf>) -> Vec<Device> {
        let name =
            |folder: &Path| folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        folders.iter().map(|folder| self.device(kind, name(folder), folder)).collect()
    }
}
