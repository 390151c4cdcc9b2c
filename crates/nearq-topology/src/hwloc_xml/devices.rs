//! The devices of an hwloc XML file: GPUs by the class and vendor of `PCIDev`, disks and network interfaces by `OSDev`.
//!
//! Devices are inside the object that they are near. That object, or one around it, has a set of nodes.

use super::{attribute, mask};
use crate::devices::gpu::{self, PciAddress};
use crate::{CpuSet, Device, DeviceKind, NodeSource, Topology};
use roxmltree::{Document, Node as Element};

/// The devices, and the nodes of each.
pub(super) fn read(document: &Document<'_>, major: u32) -> Result<Vec<(Device, CpuSet)>, String> {
    let mut devices = Vec::new();
    for element in document.descendants().filter(|element| element.has_tag_name("object")) {
        let found = match element.attribute("type") {
            Some("PCIDev") => is_gpu(element).then(|| (DeviceKind::Gpu, String::new())),
            Some("OSDev") => kind(element, major).zip(element.attribute("name").map(str::to_owned)),
            _ => None,
        };
        let Some((kind, name)) = found else { continue };
        let pci = element.ancestors().find(|around| around.attribute("type") == Some("PCIDev"));
        let address = pci.and_then(|pci| pci.attribute("pci_busid")).and_then(PciAddress::parse);
        // Of the objects around it, devices and bridges have none.
        let sets = element.ancestors().skip(1).find(|around| around.has_attribute("nodeset"));
        let nodes = sets.map(|around| attribute(around, "nodeset", mask)).transpose()?.flatten();
        let device = Device {
            kind,
            name,
            address: address.map(|address| address.to_string()),
            vendor: pci.and_then(class_and_vendor).map(|(_, vendor)| vendor),
            nodes: Vec::new(),
            source: NodeSource::Unknown,
        };
        devices.push((device, nodes.unwrap_or_default()));
    }
    Ok(devices)
}

/// Gives the machine its devices. A set of all nodes says nothing about a device.
pub(super) fn place(mut machine: Topology, devices: Vec<(Device, CpuSet)>) -> Topology {
    let ids: CpuSet = machine.nodes.iter().map(|node| node.id).collect();
    let placed = devices.into_iter().map(|(device, nodes)| {
        let nodes = nodes.intersection(&ids);
        let named = if nodes == ids { Vec::new() } else { nodes.iter().collect() };
        let (nodes, source) = machine.place(named, NodeSource::Device);
        Device { nodes, source, ..device }
    });
    let mut devices: Vec<Device> = placed.collect();
    gpu::number(&mut devices);
    machine.devices = devices;
    machine
}

fn is_gpu(element: Element<'_, '_>) -> bool {
    class_and_vendor(element).is_some_and(|(class, vendor)| gpu::is_gpu(class, vendor))
}

/// From `pci_type`, which is `class [vendor:device] ...`.
fn class_and_vendor(element: Element<'_, '_>) -> Option<(u32, u16)> {
    let (class, rest) = element.attribute("pci_type")?.split_once(" [")?;
    let vendor = rest.split(':').next()?;
    Some((u32::from_str_radix(class, 16).ok()?, u16::from_str_radix(vendor, 16).ok()?))
}

/// What an `OSDev` is. Its type is a number in version 2, and a set of bits in version 3.
fn kind(element: Element<'_, '_>, major: u32) -> Option<DeviceKind> {
    let number: u64 = element.attribute("osdev_type")?.parse().ok()?;
    let bit = if major == 2 {
        [1, 0, 1 << 4].get(usize::try_from(number).ok()?).copied()?
    } else {
        number
    };
    // Memory that is used as a disk counts as one too; a GPU is known by its `PCIDev`.
    match bit {
        bits if bits & 1 != 0 => Some(DeviceKind::Block),
        bits if bits & (1 << 4) != 0 && bits & (1 << 5) == 0 => Some(DeviceKind::Network),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine of two nodes, with the devices inside the machine and inside the second package.
    fn machine(version: &str, outside: &str, inside: &str) -> Vec<String> {
        let text = format!(
            r#"<topology version="{version}"><object type="Machine" cpuset="0x3" nodeset="0x3">
                 <object type="Package" cpuset="0x1" nodeset="0x1"><object type="NUMANode" os_index="0" cpuset="0x1" nodeset="0x1"/>
                   <object type="PU" os_index="0" cpuset="0x1"/></object>
                 <object type="Package" cpuset="0x2" nodeset="0x2"><object type="NUMANode" os_index="1" cpuset="0x2" nodeset="0x2"/>
                   <object type="PU" os_index="1" cpuset="0x2"/>
                   <object type="Bridge" bridge_type="0-1">{inside}</object></object>{outside}
               </object></topology>"#
        );
        let machine = Topology::from_hwloc_xml(&text).unwrap();
        let shown = |device: &Device| {
            format!("{device} {:?} {:?}", device.address.as_deref().unwrap_or("-"), device.nodes)
        };
        machine.devices().iter().map(shown).collect()
    }

    #[test]
    fn devices_are_near_the_nodes_of_what_they_are_inside() {
        let device = |bus: &str, class: &str, inside: &str| {
            format!(
                r#"<object type="PCIDev" pci_busid="0000:{bus}:00.0" pci_type="{class} [0000:0000] 00">{inside}</object>"#
            )
        };
        let inside = [
            device("c1", "0302 [10de:1db6]", ""),
            device("81", "0300 [1002:1db6]", ""),
            device("82", "0300 [1a03:2000]", ""),
            device(
                "83",
                "0200 [8086:10c9]",
                r#"<object type="OSDev" name="eth0" osdev_type="2"/>"#,
            ),
        ]
        .concat();
        let outside = device(
            "01",
            "0108 [8086:0953]",
            r#"<object type="OSDev" name="nvme0n1" osdev_type="0"/>"#,
        );
        let expected = [
            r#"gpu:0 "0000:81:00.0" [1]"#,
            r#"gpu:1 "0000:c1:00.0" [1]"#,
            r#"netdev:eth0 "0000:83:00.0" [1]"#,
            r#"block:nvme0n1 "0000:01:00.0" []"#,
        ];
        assert_eq!(machine("2.0", &outside, &inside), expected);
        // Version 3 has other numbers.
        let third = |text: &str| {
            text.replace(r#"osdev_type="2""#, r#"osdev_type="16""#)
                .replace(r#"osdev_type="0""#, r#"osdev_type="1""#)
        };
        assert_eq!(machine("3.0", &third(&outside), &third(&inside)), expected);
    }
}
