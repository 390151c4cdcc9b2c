//! The machine as text for a terminal.

use super::tree::{Block, blocks, cache_label, devices_nowhere, shown};
use super::{View, count, summary};
use nearq_topology::safe_text::plain;
use nearq_topology::{AffinityScope, Device, DeviceKind, LOCAL_DISTANCE, Topology};
use std::fmt::Write as _;

/// More pods than this are not all listed.
const PODS_SHOWN: usize = 16;

/// More cores than this are not all listed in one line.
const CORES_SHOWN: usize = 16;

/// More devices of one node than this are not all listed.
const DEVICES_SHOWN: usize = 32;

/// More nodes than this would make a table of distances too large to read.
const NODES_SHOWN: usize = 32;

/// The machine as text: a tree of packages, nodes and caches, the distances between nodes, the pods of every
/// scope, what the process may use and why, and what could not be learned. Ends with a line break.
pub fn text(view: &View<'_>) -> String {
    let machine = view.topology;
    let mut out = String::new();
    if let Some(name) = machine.model_name() {
        let _ = writeln!(out, "{}", plain(name));
    }
    let _ = writeln!(out, "{}\n", summary(machine));
    for block in blocks(machine) {
        tree(&mut out, machine, &block, 0);
    }
    devices_line(&mut out, "", "devices near no known node", &devices_nowhere(machine));
    devices(&mut out, machine);
    distances(&mut out, machine);
    pods(&mut out, view);
    if view.limits.is_none() && !machine.isolated().is_empty() {
        let isolated = format!("isolated: CPUs {}", machine.isolated());
        section(&mut out, "Kept free of unbound work", &[isolated]);
    }
    if let Some(limits) = view.limits {
        section(&mut out, "This process", &limits.explain());
        section(&mut out, "Unknown limits", limits.notes());
    }
    section(&mut out, "Unknown parts of the machine", machine.notes());
    out
}

fn section(out: &mut String, title: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(out, "\n{title}");
    for line in lines {
        let _ = writeln!(out, "  {}", plain(line));
    }
}

fn tree(out: &mut String, machine: &Topology, block: &Block, depth: usize) {
    let indent = "  ".repeat(depth);
    let cpus = if block.cpus.is_empty() { String::new() } else { format!(": CPUs {}", block.cpus) };
    let _ = writeln!(out, "{indent}{}{cpus}", block.label);
    for inner in &block.blocks {
        tree(out, machine, inner, depth + 1);
    }
    for llc in &block.llcs {
        let domain = &machine.llcs()[*llc];
        let cores = count(domain.core_indices.len(), "core");
        let _ = writeln!(
            out,
            "{indent}  {}: {cores}, CPUs {}",
            cache_label(machine, *llc),
            domain.cpus
        );
        cores_of(out, machine, *llc, &indent);
    }
    devices_line(out, &format!("{indent}  "), "devices", &block.devices(machine));
}

/// The names of devices at a node.
fn devices_line(out: &mut String, indent: &str, what: &str, devices: &[String]) {
    if !devices.is_empty() {
        let _ =
            writeln!(out, "{indent}{what}: {}", plain(&shown(devices, DEVICES_SHOWN).join(" ")));
    }
}

/// The GPUs with their addresses, and how nodes were found that devices do not say themselves.
fn devices(out: &mut String, machine: &Topology) {
    let devices = machine.devices().iter();
    let gpus = devices.clone().filter(|device| device.kind == DeviceKind::Gpu);
    let mut lines: Vec<String> = gpus
        .map(|gpu| {
            let facts = gpu.address.as_deref().into_iter().chain(gpu.vendor_name());
            format!("{gpu}: {}", facts.collect::<Vec<_>>().join(", "))
        })
        .collect();
    let placed = devices.filter(|device| !device.nodes.is_empty());
    let explained: Vec<String> = placed.filter_map(Device::explain).collect();
    lines.extend(shown(&explained, DEVICES_SHOWN));
    section(out, "Devices", &lines);
}

/// The cores of a cache, if they say more than the CPUs do: siblings, kinds, offline CPUs.
fn cores_of(out: &mut String, machine: &Topology, llc: usize, indent: &str) {
    let cores: Vec<_> =
        machine.llcs()[llc].core_indices.iter().map(|core| &machine.cores()[*core]).collect();
    let mut kinds: Vec<Option<&str>> = cores.iter().map(|core| core.kind.as_deref()).collect();
    kinds.dedup();
    if kinds.iter().all(Option::is_none) && cores.iter().all(|core| core.cpus.len() == 1) {
        return;
    }
    for kind in kinds {
        let these: Vec<String> = cores
            .iter()
            .filter(|core| core.kind.as_deref() == kind)
            .map(|core| core.cpus.to_list())
            .collect();
        let name = kind.map_or(String::new(), |kind| format!("{} ", plain(kind)));
        let more = if these.len() > CORES_SHOWN {
            format!(" | {} more", these.len() - CORES_SHOWN)
        } else {
            String::new()
        };
        let shown = these[..these.len().min(CORES_SHOWN)].join(" | ");
        let _ = writeln!(out, "{indent}    {name}cores {shown}{more}");
    }
}

fn distances(out: &mut String, machine: &Topology) {
    let nodes = machine.nodes();
    if !(2..=NODES_SHOWN).contains(&nodes.len()) {
        return;
    }
    let _ = writeln!(out, "\nDistances between nodes ({} within a node)", LOCAL_DISTANCE);
    let _ = write!(out, "  {:>6}", "node");
    for node in nodes {
        let _ = write!(out, " {:>4}", node.id);
    }
    out.push('\n');
    for (a, node) in nodes.iter().enumerate() {
        let _ = write!(out, "  {:>6}", node.id);
        for b in 0..nodes.len() {
            let _ = write!(out, " {:>4}", machine.distance(a, b));
        }
        out.push('\n');
    }
}

fn pods(out: &mut String, view: &View<'_>) {
    let _ = writeln!(
        out,
        "\nPods of every scope (shards of about {})",
        count(view.shard_size.max(1), "core")
    );
    for &scope in AffinityScope::ALL {
        let pods = view.topology.groups(scope, view.shard_size);
        let lists: Vec<String> =
            pods.iter().take(PODS_SHOWN).map(|pod| pod.cpus.to_list()).collect();
        let more = if pods.len() > PODS_SHOWN {
            format!(" | {} more", pods.len() - PODS_SHOWN)
        } else {
            String::new()
        };
        let _ =
            writeln!(out, "  {:<12} {:>4}  {}{more}", scope.name(), pods.len(), lists.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_topology::{CpuSet, Limits};

    #[test]
    fn the_whole_machine_is_described_in_words() {
        let machine =
            Topology::from_synthetic("pack:2 numa:1(memory=64GiB) l3:2(size=16MiB) core:1 pu:2")
                .unwrap();
        let machine = machine
            .with_distances(&[vec![10, 32], vec![32, 10]])
            .unwrap()
            .with_model_name("Example 1");
        let limits = Limits::unlimited(CpuSet::all(4));
        assert_eq!(
            text(&View::new(&machine).with_limits(&limits)),
            "\
Example 1
2 packages, 2 nodes, 4 last-level caches, 4 cores, 8 CPUs

package 0, node 0 (64 GiB): CPUs 0-3
  L3 16 MiB: 1 core, CPUs 0-1
    cores 0-1
  L3 16 MiB: 1 core, CPUs 2-3
    cores 2-3
package 1, node 1 (64 GiB): CPUs 4-7
  L3 16 MiB: 1 core, CPUs 4-5
    cores 4-5
  L3 16 MiB: 1 core, CPUs 6-7
    cores 6-7

Distances between nodes (10 within a node)
    node    0    1
       0   10   32
       1   32   10

Pods of every scope (shards of about 8 cores)
  cpu             8  0 | 1 | 2 | 3 | 4 | 5 | 6 | 7
  smt             4  0-1 | 2-3 | 4-5 | 6-7
  cache_shard     4  0-1 | 2-3 | 4-5 | 6-7
  cache           4  0-1 | 2-3 | 4-5 | 6-7
  numa            2  0-3 | 4-7
  system          1  0-7

This process
  affinity mask: CPUs 0-3 (4)
  online: CPUs 0-3 (4)
  cpuset: none
  CPU quota: none
  so this process may use CPUs 0-3 (4), 4 threads at once
"
        );
    }

    #[test]
    fn isolated_cpus_are_shown_with_and_without_limits() {
        let machine = Topology::from_synthetic("core:4").unwrap().with_isolated(&CpuSet::single(3));
        let alone = text(&View::new(&machine));
        assert!(alone.contains("\nKept free of unbound work\n  isolated: CPUs 3\n"), "{alone}");
        let mut limits = Limits::unlimited(CpuSet::all(4));
        limits.isolated = machine.isolated().clone();
        let both = text(&View::new(&machine).with_limits(&limits));
        let line = "isolated: CPU 3; unbound queues use CPUs 0-2 (3)";
        assert_eq!(both.matches("isolated").count(), 1, "{both}");
        assert!(both.contains(line), "{both}");
    }

    #[test]
    fn devices_are_at_their_nodes() {
        let gpu = |bus: u32| {
            format!(
                r#"<object type="PCIDev" pci_busid="0000:{bus}:00.0" pci_type="0302 [10de:0001] [] 00"/>"#
            )
        };
        let disk = |name: &str| format!(r#"<object type="OSDev" name="{name}" osdev_type="0"/>"#);
        let node = |id: usize, inside: &str| {
            format!(
                r#"<object type="Package" cpuset="0x{0}" nodeset="0x{0}" os_index="{id}"><object type="NUMANode" os_index="{id}" cpuset="0x{0}"/>
                   <object type="PU" os_index="{id}" cpuset="0x{0}"/>{inside}</object>"#,
                1 << id
            )
        };
        let machine = Topology::from_hwloc_xml(&format!(
            r#"<topology version="2.0"><object type="Machine" cpuset="0x3" nodeset="0x3">{}{}{}</object></topology>"#,
            node(0, &disk("sda")),
            node(1, &[gpu(81), gpu(41)].concat()),
            disk("sdb")
        ))
        .unwrap();
        let shown = text(&View::new(&machine));
        let begin = shown.find("package 0").unwrap();
        assert_eq!(
            shown[begin..shown.find("\nDistances").unwrap()],
            *"\
package 0, node 0: CPUs 0
  cache not known: 1 core, CPUs 0
  devices: block:sda
package 1, node 1: CPUs 1
  cache not known: 1 core, CPUs 1
  devices: gpu:0 gpu:1
devices near no known node: block:sdb

Devices
  gpu:0: 0000:41:00.0, NVIDIA
  gpu:1: 0000:81:00.0, NVIDIA
"
        );
        let picture = crate::drawing::svg(&View::new(&machine));
        for name in ["gpu:0", "gpu:1", "block:sda", "block:sdb", "devices near no known node"] {
            assert_eq!(picture.matches(&format!(">{name}</text>")).count(), 1, "{name}");
        }
    }

    #[test]
    fn long_lists_are_cut() {
        let machine = Topology::from_synthetic("l3:1 core:40 pu:2").unwrap();
        let text = text(&View::new(&machine));
        assert!(
            text.contains("cores 0-1 | 2-3 | ") && text.contains("30-31 | 24 more\n"),
            "{text}"
        );
        assert!(
            text.contains("  cpu            80  0 | 1 |") && text.contains("| 15 | 64 more\n"),
            "{text}"
        );
    }
}
