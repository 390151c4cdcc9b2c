//! Devices: the nodes that they are near, and from names to devices, on a machine of two nodes.

use crate::common::Folder;
use nearq_topology::{Device, DeviceKind, NodeSource, Topology};
use std::os::unix::fs::symlink;

/// A machine of nodes 0 (CPUs 0-1,4-5) and 1 (CPUs 2-3,6-7) to which devices are added.
struct Machine(Folder);

impl Machine {
    fn new(name: &str) -> Self {
        Self(Folder::machine(name))
    }

    /// A device in a folder of `sys/devices`, with these files.
    fn device(&self, folder: &str, files: &[(&str, &str)]) -> &Self {
        self.0.file(&format!("sys/devices/{folder}/uevent"), "");
        for (name, text) in files {
            self.0.file(&format!("sys/devices/{folder}/{name}"), &format!("{text}\n"));
        }
        self
    }

    /// An entry of a list of devices, which is a link.
    fn listed(&self, list: &str, folder: &str) -> &Self {
        let list = self.0.path.join("sys").join(list);
        std::fs::create_dir_all(&list).unwrap();
        let up =
            "../".repeat(list.strip_prefix(self.0.path.join("sys")).unwrap().components().count());
        let name = folder.rsplit('/').next().unwrap();
        symlink(format!("{up}devices/{folder}"), list.join(name)).unwrap();
        self
    }

    fn pci(&self, folder: &str, class: &str, vendor: &str, node: &str) -> &Self {
        self.device(folder, &[("class", class), ("vendor", vendor), ("numa_node", node)]);
        self.listed("bus/pci/devices", folder)
    }

    /// A GPU with a driver.
    fn driven(&self, folder: &str, driver: &str) -> &Self {
        self.pci(folder, "0x030200", "0x10de", "1");
        self.0.file(&format!("sys/bus/pci/drivers/{driver}/uevent"), "");
        let up = "../".repeat(folder.split('/').count() + 1);
        let link = self.0.path.join(format!("sys/devices/{folder}/driver"));
        symlink(format!("{up}bus/pci/drivers/{driver}"), link).unwrap();
        self
    }

    fn interface(&self, folder: &str) -> &Self {
        self.device(folder, &[]).listed("class/net", folder)
    }

    fn disk(&self, folder: &str) -> &Self {
        self.device(folder, &[]).listed("block", folder).listed("class/block", folder)
    }

    fn read(&self) -> Topology {
        Topology::from_sysfs(&self.0.path).unwrap().with_devices_of(&self.0.path)
    }

    /// The nodes of a device by its name, and what is said about them; or the error.
    fn near(&self, name: &str) -> Result<(Vec<usize>, String), String> {
        let near = self.read().near_device(&self.0.path, &name.parse().unwrap());
        near.map(|near| (near.nodes.clone(), near.explain().join("; ")))
            .map_err(|error| error.to_string())
    }

    fn nodes(&self, name: &str) -> Vec<usize> {
        self.near(name).unwrap_or_else(|error| panic!("{error}")).0
    }
}

fn shown(device: &Device) -> String {
    format!(
        "{device} {} {:?} {:?}",
        device.address.as_deref().unwrap_or("-"),
        device.nodes,
        device.source
    )
}

#[test]
fn a_gpu_that_is_reserved_for_a_virtual_machine_has_no_number() {
    let machine = Machine::new("reserved-gpu");
    machine
        .driven("pci0000:40/0000:40:01.0/0000:c1:00.0", "vfio-pci")
        .driven("pci0000:40/0000:40:02.0/0000:c2:00.0", "nvidia")
        .driven("pci0000:40/0000:40:03.0/0000:c3:00.0", "pciback")
        .driven("pci0000:40/0000:40:04.0/0000:c4:00.0", "nvgrace_gpu_vfio_pci");
    let read = machine.read();
    let all: Vec<String> = read.devices().iter().map(shown).collect();
    assert_eq!(all, ["gpu:0 0000:c2:00.0 [1] Device"]);
    assert_eq!(read.notes(), [""; 0]);
    assert_eq!(machine.nodes("gpu:0"), [1]);
    assert!(machine.near("gpu:1").is_err());
    assert_eq!(machine.nodes("pci:c1:00.0"), [1]);
}

#[test]
fn gpus_are_numbered_by_address_and_the_others_listed_by_name() {
    let machine = Machine::new("devices");
    machine
        .pci("pci0000:40/0000:40:01.0/0000:c1:00.0", "0x030200", "0x10de", "1")
        .pci("pci0000:00/0000:00:01.0/0000:41:00.0", "0x120000", "0x1da3", "0")
        .pci("pci0000:00/0000:00:02.0", "0x030000", "0x1a03", "0")
        .pci("pci0000:40/0000:40:02.0/0000:c2:00.0", "0x030200", "0x10de", "1")
        .pci("pci0000:00/0000:00:03.0/0000:05:00.0", "0x020000", "0x8086", "0")
        .device("pci0000:40/0000:40:02.0/0000:c2:00.0/physfn", &[])
        .interface("pci0000:00/0000:00:03.0/0000:05:00.0/net/eth0")
        .interface("virtual/net/lo")
        .disk("virtual/block/loop0");
    for disk in ["nvme10n1", "nvme2n1"] {
        machine.disk(&format!(
            "pci0000:00/0000:00:03.0/0000:05:00.0/nvme/{}/{disk}",
            &disk[..disk.len() - 2]
        ));
    }
    let read = machine.read();
    let all: Vec<String> = read.devices().iter().map(shown).collect();
    assert_eq!(
        all,
        [
            "gpu:0 0000:41:00.0 [0] Device",
            "gpu:1 0000:c1:00.0 [1] Device",
            "netdev:eth0 0000:05:00.0 [0] Device",
            "block:nvme2n1 0000:05:00.0 [0] Device",
            "block:nvme10n1 0000:05:00.0 [0] Device",
        ]
    );
    assert_eq!(read.notes(), [""; 0]);
    assert_eq!(
        (read.devices()[1].vendor_name(), read.devices()[0].vendor_name()),
        (Some("NVIDIA"), None)
    );
    // The usual reading, of which there are many, leaves the devices out.
    assert!(Topology::from_sysfs(&machine.0.path).unwrap().devices().is_empty());
    assert_eq!(machine.nodes("gpu:1"), [1]);
    assert_eq!(machine.nodes("pci:00:02.0"), [0]);
    let error = machine.near("gpu:2").unwrap_err();
    assert_eq!(error, "gpu:2: there is no such GPU; this machine has gpu:0, gpu:1");
    let error = machine.near("block:sda").unwrap_err();
    assert!(
        error.ends_with("no such disk; this machine has block:nvme2n1, block:nvme10n1"),
        "{error}"
    );
    let error = machine.near("pci:99:00.0").unwrap_err();
    assert!(error.contains("this machine has pci:0000:05:00.0, pci:0000:41:00.0"), "{error}");
    assert!(machine.near("netdev:lo").unwrap_err().contains("virtual interface with no hardware"));
    assert!(machine.near("block:loop0").unwrap_err().contains("virtual disk with no hardware"));
}

#[test]
fn a_device_that_names_no_node_is_near_that_of_its_bridge_its_cpus_or_its_root() {
    let machine = Machine::new("devices-without-node");
    machine
        // The bridge names a node that does not exist, and what is above it one that does.
        .device("pci0000:00/0000:00:01.0", &[("numa_node", "1")])
        .device("pci0000:00/0000:00:01.0/0000:01:00.0", &[("numa_node", "7")])
        .pci("pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", "0x030200", "0x10de", "-1")
        // Its own CPUs.
        .pci("pci0000:20/0000:20:01.0/0000:21:00.0", "0x030200", "0x10de", "-1")
        .device("pci0000:20/0000:20:01.0/0000:21:00.0", &[("local_cpulist", "2-3")])
        // All CPUs, which says nothing; the CPUs near the bus.
        .pci("pci0000:40/0000:40:01.0/0000:41:00.0", "0x030200", "0x10de", "-1")
        .device("pci0000:40/0000:40:01.0/0000:41:00.0", &[("local_cpulist", "0-7")])
        .device("pci0000:40/pci_bus/0000:40", &[("cpulistaffinity", "4-5")])
        // The host bridge beside it.
        .pci("pci0000:60/0000:60:01.0/0000:61:00.0", "0x030200", "0x10de", "-1")
        .device("pci0000:60/0000:60:00.0", &[("numa_node", "1")])
        .device("pci0000:60/pci_bus/0000:60", &[("cpulistaffinity", "0-7")])
        // Nobody.
        .pci("pci0000:80/0000:80:01.0/0000:81:00.0", "0x030200", "0x10de", "-1");
    let all: Vec<String> = machine.read().devices().iter().map(shown).collect();
    assert_eq!(
        all,
        [
            "gpu:0 0000:02:00.0 [1] Device",
            "gpu:1 0000:21:00.0 [1] Device",
            "gpu:2 0000:41:00.0 [0] Root",
            "gpu:3 0000:61:00.0 [1] Root",
            "gpu:4 0000:81:00.0 [] Unknown",
        ]
    );
    assert_eq!(machine.near("gpu:0").unwrap().1, "");
    let said = machine.near("gpu:2").unwrap().1;
    assert_eq!(
        said,
        "gpu:2 (0000:41:00.0) names no node itself; the root of its PCI bus is near node 0"
    );
    let error = machine.near("gpu:4").unwrap_err();
    assert!(
        error.contains("does not say which node gpu:4 is near")
            && error.ends_with("give the number of a node in place of the device"),
        "{error}"
    );
}

#[test]
fn a_root_may_name_several_nodes_and_a_machine_with_one_node_needs_none() {
    let machine = Machine::new("devices-several");
    machine
        .0
        .file("sys/devices/system/node/online", "0-2\n")
        .file("sys/devices/system/node/node2/cpulist", "\n");
    machine
        .pci("pci0000:40/0000:40:01.0/0000:41:00.0", "0x030200", "0x10de", "-1")
        .device("pci0000:40/0000:40:00.0", &[("numa_node", "0")])
        .device("pci0000:40/0000:40:00.1", &[("numa_node", "1")]);
    let (nodes, said) = machine.near("gpu:0").unwrap();
    assert_eq!(nodes, [0, 1]);
    assert!(said.ends_with("the root of its PCI bus gives several: nodes 0, 1"), "{said}");
    machine.0.remove("sys/devices/system/node");
    let read = machine.read();
    assert_eq!(
        (&*read.devices()[0].nodes, read.devices()[0].source),
        (&[0][..], NodeSource::OnlyNode)
    );
}

#[test]
fn virtual_devices_are_near_the_hardware_below_them() {
    let machine = Machine::new("devices-below");
    let at = |node: usize, inside: &str| format!("pci0000:{node}0/0000:{node}0:01.0/{inside}");
    for node in 0..2 {
        machine.device(&at(node, ""), &[("numa_node", &node.to_string())]);
        machine.interface(&at(node, &format!("net/eth{node}")));
        machine.disk(&at(node, &format!("nvme/nvme{node}/nvme{node}n1")));
    }
    let link = |from: &str, name: &str, to: &str| {
        let list = machine.0.path.join("sys/devices").join(from);
        std::fs::create_dir_all(&list).unwrap();
        symlink(machine.0.path.join("sys/devices").join(to), list.join(name)).unwrap();
    };
    // A VLAN on a bond of one interface; a bridge on two, and on one of a virtual machine.
    machine
        .interface("virtual/net/vnet0")
        .interface("virtual/net/bond0")
        .interface("virtual/net/bond0.7")
        .interface("virtual/net/br0");
    link("virtual/net/bond0", "lower_eth1", &at(1, "net/eth1"));
    link("virtual/net/bond0.7", "lower_bond0", "virtual/net/bond0");
    link("virtual/net/br0", "lower_vnet0", "virtual/net/vnet0");
    link("virtual/net/br0", "lower_eth0", &at(0, "net/eth0"));
    link("virtual/net/br0", "lower_eth1", &at(1, "net/eth1"));
    assert_eq!(machine.nodes("netdev:bond0.7"), [1]);
    let (nodes, said) = machine.near("netdev:br0").unwrap();
    assert_eq!(
        (nodes, said.as_str()),
        (vec![0, 1], "netdev:br0 is netdev:eth0 and netdev:eth1: nodes 0, 1")
    );
    // A logical volume on a partition of a RAID of a partition and a disk.
    machine.device(&at(1, "nvme/nvme1/nvme1n1/nvme1n1p2"), &[("partition", "2")]);
    machine.listed("class/block", &at(1, "nvme/nvme1/nvme1n1/nvme1n1p2"));
    machine.disk("virtual/block/md0").disk("virtual/block/dm-0");
    machine
        .device("virtual/block/md0/md0p1", &[("partition", "1")])
        .listed("class/block", "virtual/block/md0/md0p1");
    link("virtual/block/md0/slaves", "nvme1n1p2", &at(1, "nvme/nvme1/nvme1n1/nvme1n1p2"));
    link("virtual/block/dm-0/slaves", "md0p1", "virtual/block/md0/md0p1");
    assert_eq!(machine.nodes("block:nvme1n1p2"), [1]);
    assert_eq!(machine.nodes("block:dm-0"), [1]);
    // A disk that two controllers reach.
    let many = "virtual/nvme-subsystem/nvme-subsys3";
    machine.disk(&format!("{many}/nvme3n1"));
    link(many, "nvme0", &at(0, "nvme/nvme0"));
    link(many, "nvme1", &at(1, "nvme/nvme1"));
    assert_eq!(machine.nodes("block:nvme3n1"), [0, 1]);
    // A circle ends.
    machine.disk("virtual/block/dm-1");
    link("virtual/block/dm-1/slaves", "dm-1", "virtual/block/dm-1");
    assert!(machine.near("block:dm-1").unwrap_err().contains("more than 8 layers"));
    // A loop device on a file that is in memory, and one whose file is gone.
    machine
        .disk("virtual/block/loop1")
        .device("virtual/block/loop1/loop", &[("backing_file", "/nonexistent")]);
    assert!(machine.near("block:loop1").unwrap_err().contains("/nonexistent cannot be looked at"));
}

#[test]
#[cfg_attr(target_endian = "big", ignore = "the table is that of a little-endian machine")]
fn an_address_is_near_the_interface_that_reaches_it() {
    let machine = Machine::new("devices-routes");
    machine
        .device("pci0000:40/0000:40:01.0", &[("numa_node", "1")])
        .interface("pci0000:40/0000:40:01.0/net/eth0");
    machine.interface("virtual/net/tun0");
    machine.0.file(
        "proc/net/route",
        "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n\
         eth0 0000000A 00000000 0001 0 0 0 000000FF 0 0 0\ntun0 0000A8C0 00000000 0001 0 0 0 0000FFFF 0 0 0\n",
    );
    assert_eq!(machine.nodes("ip:10.1.2.3"), [1]);
    assert_eq!(machine.nodes("ip:::ffff:10.1.2.3"), [1], "the same address");
    assert!(machine.near("ip:::ffff:127.0.0.1").unwrap_err().contains("this machine itself"));
    let error = machine.near("ip:192.168.1.1").unwrap_err();
    assert!(
        error.starts_with("ip:192.168.1.1: it is reached through tun0: it is a virtual"),
        "{error}"
    );
    assert!(machine.near("ip:8.8.8.8").unwrap_err().contains("no route to it"));
    assert!(machine.near("ip:2001:db8::1").unwrap_err().contains("no route to it"));
    assert!(machine.near("ip:127.0.0.1").unwrap_err().contains("this machine itself"));
}

#[test]
fn an_address_with_several_equally_good_routes_is_near_all_of_their_interfaces() {
    let machine = Machine::new("devices-equal-routes");
    let zero = "0".repeat(32);
    let link = format!("fe80{}", "0".repeat(28));
    let mut table = String::new();
    for (interface, node) in [("eth0", "0"), ("eth1", "1")] {
        let device = format!("pci0000:{node}0/0000:{node}0:01.0");
        machine
            .device(&device, &[("numa_node", node)])
            .interface(&format!("{device}/net/{interface}"));
        for (to, bits) in [(&zero, "00"), (&link, "40")] {
            table += &format!("{to} {bits} {zero} 00 {zero} 100 1 0 00000001 {interface}\n");
        }
    }
    machine.0.file("proc/net/ipv6_route", &table);
    assert_eq!(machine.nodes("ip:2001:db8::1"), [0, 1]);
    // An address of a link is another machine on each of them.
    let error = machine.near("ip:fe80::1").unwrap_err();
    assert!(error.contains("(eth0, eth1); name one of them with netdev:NAME"), "{error}");
    let one: String = table.split_inclusive('\n').take(2).collect();
    machine.0.file("proc/net/ipv6_route", &one);
    assert_eq!(machine.nodes("ip:fe80::1"), [0]);
}

#[test]
fn a_link_that_leaves_the_tree_is_not_followed() {
    let machine = Machine::new("devices-outside");
    let outside = Folder::new("devices-elsewhere");
    outside.file("0000:41:00.0/class", "0x030200\n").file("0000:41:00.0/vendor", "0x10de\n");
    let list = machine.0.path.join("sys/bus/pci/devices");
    std::fs::create_dir_all(&list).unwrap();
    symlink(outside.path.join("0000:41:00.0"), list.join("0000:41:00.0")).unwrap();
    assert!(machine.read().devices().is_empty());
}

#[test]
fn files_of_this_machine_are_on_a_disk_or_one_line_says_why_not() {
    let here = Topology::from_sysfs("/".as_ref()).unwrap();
    let near = |name: &str| here.near_device("/".as_ref(), &name.parse().unwrap());
    let reason = |name: &str| near(name).unwrap_err().to_string();
    assert!(reason("file:/nonexistent").contains("cannot be looked at"));
    assert!(reason("file:/dev/null").contains("character device"));
    assert!(
        reason("file:/proc/version").contains("in memory and on no disk"),
        "{}",
        reason("file:/proc/version")
    );
    // What this folder is on differs between machines.
    match near(concat!("file:", env!("CARGO_MANIFEST_DIR"))) {
        Ok(near) => assert!(!near.nodes.is_empty() && near.devices[0].kind == DeviceKind::Block),
        Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
    }
}
