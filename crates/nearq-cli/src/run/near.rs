//! `nearq run --near`: the nodes of devices, and what selects a GPU for a process.
//!
//! Devices are found once, before anything runs. Their nodes are then the only places where jobs can be at home, so nothing is let out to
//! another node. With `--near gpu`, each job slot has one GPU, that GPU's node and the variables by which the vendor's programs see it alone.
//!
//! A command without inputs runs once. This process takes the CPUs and the memory policy and becomes the command, so both are set before the
//! command's first instruction, and nothing stands between the command and its caller.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::process::{self, ExitCode};
use std::str::FromStr;

use nearq_home::Nodes;
use nearq_platform::{Linux, Machine, MemoryPolicy, Placement as _, Threads as _};
use nearq_processes::jobs::{Halt, Homes, Slot};
use nearq_processes::tree;
use nearq_topology::{Device, DeviceKind, DeviceName, Topology};

use super::Options;
use super::arguments::Retries;
use crate::output::{self, Failure};

/// A value of `--near`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// `gpu`: a GPU for each process.
    EachGpu,
    Device(DeviceName),
}

impl FromStr for Wanted {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "gpu" {
            return Ok(Self::EachGpu);
        }
        let name = text.parse().map(Self::Device);
        name.map_err(|error: nearq_topology::ParseError| {
            format!(
                "{}; give gpu:0, pci:0000:41:00.0, netdev:eth0, block:nvme0n1, file:/data/x or ip:10.0.0.1, or gpu for a GPU for each process",
                error.reason()
            )
        })
    }
}

/// What is known about the devices of `--near`.
#[derive(Debug, Default)]
pub(super) struct Near {
    /// The nodes, as the operating system numbers them.
    nodes: Vec<usize>,
    /// What the user should know: where a device itself does not say its node.
    pub(super) notices: Vec<String>,
    /// For `--verbose`: each device and its node.
    pub(super) about: Vec<String>,
    /// One for each GPU with `--near gpu`.
    gpus: Vec<Gpu>,
    /// What the devices are called together.
    name: String,
    /// Whether several devices were named.
    are_several: bool,
    /// Variables for all jobs: they make programs number GPUs as here.
    variables: Vec<(OsString, OsString)>,
}

/// A GPU that jobs have for themselves.
#[derive(Debug)]
struct Gpu {
    name: String,
    nodes: Vec<usize>,
    variables: Vec<(OsString, OsString)>,
}

impl Near {
    /// Finds the devices on this machine; `None` without `--near`.
    pub(super) fn of(wanted: &[Wanted], machine: &Machine) -> Result<Option<Self>, Failure> {
        let root = "/".as_ref();
        if wanted.is_empty() {
            return Ok(None);
        }
        if wanted.contains(&Wanted::EachGpu) {
            if wanted.len() > 1 {
                return Err(Failure::input(
                    "--near gpu: each process has the node of its own GPU; leave out the other --near, or name GPUs by number as in --near gpu:0",
                ));
            }
            let topology = machine.topology.clone().with_devices_of(root);
            return Self::each_gpu(&topology, |name| env::var_os(name)).map(Some);
        }
        let mut near = Self::default();
        let mut nodes = BTreeSet::new();
        for wanted in wanted {
            let Wanted::Device(name) = wanted else { continue };
            let found = machine.topology.near_device(root, name);
            let found = found.map_err(|error| Failure::input(format!("--near {error}")))?;
            nodes.extend(&found.nodes);
            near.notices.extend(found.explain());
            let what = found.devices.iter().map(shown).collect::<Vec<_>>().join(", ");
            near.about.push(format!("{name} is {what}: {}", listed(&found.nodes)));
            if matches!(name, DeviceName::Gpu(_)) {
                near.variables.extend(found.devices.iter().flat_map(order));
            }
        }
        near.nodes = nodes.into_iter().collect();
        near.variables.sort();
        near.variables.dedup();
        near.name = wanted.iter().map(Wanted::to_string).collect::<Vec<_>>().join(" and ");
        near.are_several = wanted.len() > 1;
        Ok(Some(near))
    }

    /// A slot for each GPU, less those that `variable`, an environment, hides.
    fn each_gpu(
        topology: &Topology,
        variable: impl Fn(&str) -> Option<OsString>,
    ) -> Result<Self, Failure> {
        let all: Vec<&Device> =
            topology.devices().iter().filter(|device| device.kind == DeviceKind::Gpu).collect();
        if all.is_empty() {
            return Err(Failure::input(
                "--near gpu: this machine has no GPU; `nearq topo` shows its devices; leave out --near, or name another device",
            ));
        }
        let mut near = Self { name: "gpu".into(), ..Self::default() };
        let mut nodes = BTreeSet::new();
        for gpu in &all {
            let of_vendor = all.iter().filter(|other| other.vendor == gpu.vendor);
            let index = of_vendor.take_while(|other| other.name != gpu.name).count();
            if !is_visible(gpu, index, &variable)? {
                continue;
            }
            if gpu.nodes.is_empty() {
                let why = format!(
                    "--near gpu: the machine does not say which node {gpu} is near; leave out --near and give the node with --home N (`nearq topo` lists them)"
                );
                return Err(Failure::input(why));
            }
            near.notices.extend(gpu.explain());
            let variables = visible(gpu, index);
            if variables.is_empty() {
                near.notices.push(format!(
                    "{gpu}: no variable is known that shows a program this GPU alone"
                ));
            }
            let set: Vec<String> = variables
                .iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
            near.about.push(format!("{}: {}; {}", shown(gpu), listed(&gpu.nodes), set.join(" ")));
            nodes.extend(&gpu.nodes);
            near.gpus.push(Gpu { name: gpu.to_string(), nodes: gpu.nodes.clone(), variables });
        }
        if near.gpus.is_empty() {
            return Err(Failure::input(
                "--near gpu: the environment hides all GPUs (CUDA_VISIBLE_DEVICES, ROCR_VISIBLE_DEVICES, HIP_VISIBLE_DEVICES, ZE_AFFINITY_MASK); unset the variable",
            ));
        }
        near.nodes = nodes.into_iter().collect();
        Ok(near)
    }

    /// How many jobs run at a time unless the user says it.
    pub(super) fn width(&self) -> Option<usize> {
        (!self.gpus.is_empty()).then_some(self.gpus.len())
    }

    /// The input of each job if the user gives none: the name of what it is near.
    pub(super) fn inputs(&self) -> Vec<Vec<u8>> {
        if self.gpus.is_empty() {
            return vec![self.name.clone().into_bytes()];
        }
        self.gpus.iter().map(|gpu| gpu.name.clone().into_bytes()).collect()
    }

    /// The homes that are near, of all homes that may be used.
    pub(super) fn homes(&self, mut homes: Homes) -> Result<Homes, Failure> {
        homes.nodes = match homes.nodes.near(&self.nodes) {
            Some(nodes) => nodes,
            None => {
                let node = self.nodes.first().copied().unwrap_or_default();
                let why = homes
                    .nodes
                    .index_of(node)
                    .map_or_else(|error| error.to_string(), |_| String::new());
                let why = why.split("; give").next().unwrap_or_default();
                return Err(Failure::input(format!(
                    "--near {}: {why}; allow its CPUs, or choose another node with --home",
                    self.name
                )));
            }
        };
        homes.slots = self.gpus.iter().map(|gpu| slot(gpu, &homes.nodes)).collect();
        if homes.slots.is_empty() && !self.variables.is_empty() {
            homes.slots.push(Slot { home: None, variables: self.variables.clone() });
        }
        Ok(homes)
    }

    /// Runs the command once near the devices: this process becomes the command.
    pub(super) fn become_command(
        &self,
        options: &Options,
        homes: &Homes,
    ) -> Result<ExitCode, Failure> {
        if !homes.nodes.is_all() {
            settle(&homes.nodes, homes.strict);
        }
        let error = tree::become_command(&options.command, &self.variables);
        Err(Failure::with_status(error.exit_status(), error))
    }

    pub(super) fn variables(&self) -> &[(OsString, OsString)] {
        &self.variables
    }

    /// Prints what the user should know. `nodes`: those where jobs are at home.
    pub(super) fn print(&self, verbose: bool, nodes: &Nodes) {
        let about = if verbose { self.about.as_slice() } else { &[] };
        for line in about.iter().chain(&self.notices).chain(&self.used(nodes)) {
            output::print_aside(&format!("nearq: {line}\n"));
        }
    }

    /// Which nodes are used, if that does not follow from each device: there are several, or this process may use no CPU of one.
    fn used(&self, nodes: &Nodes) -> Vec<String> {
        let is_used = |node: &usize| nodes.of_memory(*node, None).is_some();
        let used: Vec<usize> = self.nodes.iter().copied().filter(is_used).collect();
        let elsewhere = self.gpus.iter().filter(|gpu| !gpu.nodes.iter().any(is_used));
        let mut lines: Vec<String> = elsewhere
            .map(|gpu| {
                let (name, near, used) = (&gpu.name, listed(&gpu.nodes), listed(&used));
                format!("{name} is near {near}, and this process may use none of its CPUs: jobs with {name} run at {used}")
            })
            .collect();
        let (name, near) = (&self.name, listed(&self.nodes));
        if self.gpus.is_empty() && used.len() < self.nodes.len() {
            let used = listed(&used);
            lines.push(format!("{name}: of {near}, this process may use CPUs of {used} only"));
        } else if self.are_several && used.len() > 1 {
            lines.push(format!("{name} are near different nodes: {near} are used"));
        }
        lines
    }
}

impl Options {
    /// Whether the command runs once, or once for each GPU, because no inputs are given. Standard input holds inputs only if an option says
    /// so.
    pub(super) fn repeats(&self) -> bool {
        let has_inputs =
            self.input.is_some() || self.null || self.delimiter.is_some() || self.retry_failed;
        let given = has_inputs || self.queue.from.is_some() || self.has_lists();
        !self.near.is_empty() && !self.tree && !given
    }

    fn has_lists(&self) -> bool {
        self.command.iter().any(|word| word == ":::")
    }

    /// Whether this process becomes the command: with `--near` and without inputs, if there is one process and no option asks for more than
    /// its place.
    pub(super) fn becomes_command(&self, near: &Near, homes: &Homes) -> Result<bool, Failure> {
        let each = !near.gpus.is_empty();
        if self.tree {
            if each {
                return Err(Failure::input(
                    "--near gpu and --tree: a tree is one command; leave out --tree, or name the devices as in --near gpu:0",
                ));
            }
            // On one node, programs inherit what the first of them has.
            let becomes = homes.nodes.is_single() && !self.command.is_empty() && !self.has_lists();
            if becomes && (self.summary || self.json.is_some()) {
                output::print_aside(
                    "nearq: --summary and --json: nothing is counted, because all programs are on one node\n",
                );
            }
            return Ok(becomes);
        }
        let is_plain = self.halt == Halt::Never
            && self.retries == Retries(Some(1))
            && self.delay.is_zero()
            && !(self.shell
                || self.tty
                || self.keep_order
                || self.ungroup
                || self.resume
                || self.resume_failed)
            && !(self.tag
                || self.summary
                || self.dry_run
                || self.jobs.is_some()
                || self.timeout.is_some())
            && [&self.joblog, &self.json].iter().all(|option| option.is_none())
            && [&self.tagstring, &self.results].iter().all(|option| option.is_none());
        Ok(self.repeats() && !each && is_plain && !self.command.is_empty())
    }
}

impl std::fmt::Display for Wanted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::EachGpu => f.write_str("gpu"),
            Self::Device(name) => name.fmt(f),
        }
    }
}

/// The slot that has a GPU. If its node may not be used, its jobs are at home where another GPU is.
fn slot(gpu: &Gpu, nodes: &Nodes) -> Slot {
    let home = gpu.nodes.iter().find_map(|node| nodes.of_memory(*node, None));
    Slot { home, variables: gpu.variables.clone() }
}

/// Gives this process the CPUs and the memory of places. What is refused is one line, and the command runs without it.
fn settle(nodes: &Nodes, strict: bool) {
    let notice = |refused: nearq_platform::OsError, without: &str| {
        output::print_aside(&format!("nearq: {refused}; the command runs without {without}\n"));
    };
    if let Err(refused) = Linux::set_affinity(Linux::current_thread(), &nodes.cpus()) {
        notice(refused, "the CPUs of a node");
    }
    let memory: BTreeSet<usize> = nodes.iter().map(|node| node.memory).collect();
    let only = memory.first().copied().filter(|_| memory.len() == 1);
    let policy = match only {
        _ if strict => MemoryPolicy::Bind(memory.into_iter().collect()),
        Some(node) => MemoryPolicy::Preferred(node),
        // The CPUs are on these nodes, so memory is too.
        None => MemoryPolicy::Local,
    };
    if let Err(refused) = Linux::set_memory_policy(&policy) {
        notice(refused, "memory from a node");
    }
    Linux::set_home_hint_of(process::id(), only);
}

/// `gpu:0 (0000:41:00.0, NVIDIA)`.
fn shown(device: &Device) -> String {
    let facts: Vec<&str> =
        device.address.as_deref().into_iter().chain(device.vendor_name()).collect();
    if facts.is_empty() { device.to_string() } else { format!("{device} ({})", facts.join(", ")) }
}

/// `node 1`, or `nodes 0, 1`.
fn listed(nodes: &[usize]) -> String {
    let list: Vec<String> = nodes.iter().map(usize::to_string).collect();
    format!("{} {}", if nodes.len() == 1 { "node" } else { "nodes" }, list.join(", "))
}

/// The variables that have programs number the GPUs of this one's vendor by PCI address.
fn order(gpu: &Device) -> Vec<(OsString, OsString)> {
    match gpu.vendor_name() {
        Some("NVIDIA") => vec![("CUDA_DEVICE_ORDER".into(), "PCI_BUS_ID".into())],
        Some("Intel") => vec![("ZE_ENABLE_PCI_ID_DEVICE_ORDER".into(), "1".into())],
        _ => Vec::new(),
    }
}

/// The variables by which a program sees this GPU alone. `index` is its place among those of its vendor.
fn visible(gpu: &Device, index: usize) -> Vec<(OsString, OsString)> {
    let mut variables = order(gpu);
    if let (&[name, ..], _) = selectors(gpu) {
        variables.push((name.into(), index.to_string().into()));
    }
    if gpu.vendor_name() == Some("AMD") {
        // It counts the GPUs that the other variable leaves.
        variables.push(("HIP_VISIBLE_DEVICES".into(), "0".into()));
    }
    variables
}

/// The variables that say which GPUs of a vendor programs see, and whether an empty value hides all.
fn selectors(gpu: &Device) -> (&'static [&'static str], bool) {
    match gpu.vendor_name() {
        Some("NVIDIA") => (&["CUDA_VISIBLE_DEVICES"], true),
        Some("AMD") => (&["ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"], true),
        Some("Intel") => (&["ZE_AFFINITY_MASK"], false),
        _ => (&[], false),
    }
}

/// Whether this process may use a GPU: the variable may be set already, for example by the system that allots GPUs to jobs.
fn is_visible(
    gpu: &Device,
    index: usize,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Result<bool, Failure> {
    let (names, empty_hides) = selectors(gpu);
    let mut set = names.iter().filter_map(|name| Some((*name, variable(name)?)));
    let Some((name, value)) = set.next() else { return Ok(true) };
    if let Some((other, _)) = set.next() {
        // The second one counts what the first one leaves.
        return Err(Failure::input(format!(
            "--near gpu: {name} and {other} are both set; unset one of them"
        )));
    }
    if value.is_empty() {
        return Ok(!empty_hides);
    }
    // A negative number ends the list: -1 hides all GPUs.
    let parts = value.to_str().unwrap_or_default().split(',').map(str::trim);
    let mut numbers = parts.take_while(|part| !part.starts_with('-')).map(str::parse);
    if let Some(Err(_)) = numbers.clone().find(Result::is_err) {
        return Err(Failure::input(format!(
            "--near gpu: {name} is {:?}, which does not name GPUs by numbers, so it is not known which of them are meant; set it to the numbers \
             of the same GPUs, in the order of PCI addresses",
            value.display().to_string()
        )));
    }
    Ok(numbers.any(|number| number == Ok(index)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// GPUs of vendors, on nodes 0 and 1 in turn.
    fn machine(vendors: &[&str]) -> Topology {
        let gpu = |(at, vendor): (usize, &&str)| {
            let text = format!(
                r#"<object type="PCIDev" pci_busid="0000:{at:02x}:00.0" pci_type="0302 [{vendor}:0001] [0000:0000] 00"/>"#
            );
            (at % 2, text)
        };
        let gpus: Vec<(usize, String)> = vendors.iter().enumerate().map(gpu).collect();
        let node = |id: usize| {
            let inside: String = gpus
                .iter()
                .filter(|(node, _)| *node == id)
                .map(|(_, text)| text.as_str())
                .collect();
            format!(
                r#"<object type="Package" cpuset="0x{0}" nodeset="0x{0}"><object type="NUMANode" os_index="{id}" cpuset="0x{0}" nodeset="0x{0}"/>
                   <object type="PU" os_index="{id}" cpuset="0x{0}"/>{inside}</object>"#,
                1 << id
            )
        };
        let text = format!(
            r#"<topology version="2.0"><object type="Machine" cpuset="0x3" nodeset="0x3">{}{}</object></topology>"#,
            node(0),
            node(1)
        );
        Topology::from_hwloc_xml(&text).unwrap()
    }

    fn each(topology: &Topology, set: &[(&str, &str)]) -> Result<Vec<String>, String> {
        let value = |name: &str| {
            set.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        };
        let near = Near::each_gpu(topology, value).map_err(|error| error.to_string())?;
        let homes = Homes {
            nodes: Nodes::of(topology, topology.online()),
            fixed: None,
            strict: false,
            weights: nearq_home::Weights::default(),
            slots: Vec::new(),
        };
        let homes = near.homes(homes).map_err(|error| error.to_string())?;
        let text = |slot: &Slot| {
            let home = slot.home.map_or(usize::MAX, |home| homes.nodes.get(home).id);
            let variables: Vec<String> = slot
                .variables
                .iter()
                .map(|(name, value)| format!("{}={}", name.display(), value.display()))
                .collect();
            format!("{home} {}", variables.join(" "))
        };
        Ok(homes.slots.iter().map(text).collect())
    }

    #[test]
    fn each_process_sees_one_gpu_and_is_at_home_on_its_node() {
        let mixed = machine(&["10de", "10de", "1002", "1002", "8086", "10de"]);
        assert_eq!(
            each(&mixed, &[]).unwrap(),
            [
                "0 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0",
                "1 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1",
                "0 ROCR_VISIBLE_DEVICES=0 HIP_VISIBLE_DEVICES=0",
                "1 ROCR_VISIBLE_DEVICES=1 HIP_VISIBLE_DEVICES=0",
                "0 ZE_ENABLE_PCI_ID_DEVICE_ORDER=1 ZE_AFFINITY_MASK=0",
                "1 CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2",
            ]
        );
    }

    #[test]
    fn gpus_that_the_environment_hides_have_no_process() {
        let four = machine(&["10de"; 4]);
        let slots = each(&four, &[("CUDA_VISIBLE_DEVICES", "3, 0"), ("ROCR_VISIBLE_DEVICES", "7")])
            .unwrap();
        assert_eq!(slots.len(), 2);
        assert!(slots[0].ends_with("DEVICES=0") && slots[1].ends_with("DEVICES=3"), "{slots:?}");
        assert!(
            each(&four, &[("CUDA_VISIBLE_DEVICES", "7")]).unwrap_err().contains("hides all GPUs")
        );
        assert!(
            each(&four, &[("CUDA_VISIBLE_DEVICES", "GPU-1f")])
                .unwrap_err()
                .contains("in the order of PCI addresses")
        );
        assert!(
            each(&four, &[("CUDA_VISIBLE_DEVICES", "-1")]).unwrap_err().contains("hides all GPUs")
        );
        assert_eq!(each(&four, &[("CUDA_VISIBLE_DEVICES", "1,-1,0")]).unwrap().len(), 1);
        assert!(
            each(&four, &[("CUDA_VISIBLE_DEVICES", "")]).unwrap_err().contains("hides all GPUs")
        );
        let amd = machine(&["1002"; 3]);
        assert_eq!(each(&amd, &[("HIP_VISIBLE_DEVICES", "2")]).unwrap().len(), 1);
        let both = [("HIP_VISIBLE_DEVICES", "0"), ("ROCR_VISIBLE_DEVICES", "1,2")];
        assert!(each(&amd, &both).unwrap_err().contains("are both set"));
        let intel = machine(&["8086"]);
        assert_eq!(each(&intel, &[("ZE_AFFINITY_MASK", "")]).unwrap().len(), 1);
        assert!(each(&machine(&[]), &[]).unwrap_err().contains("this machine has no GPU"));
    }

    #[test]
    fn a_device_whose_node_may_not_be_used_is_named() {
        let topology = machine(&["10de"; 2]);
        let some = nearq_topology::CpuSet::single(0);
        let [all, some] = [topology.online(), &some].map(|cpus| Nodes::of(&topology, cpus));
        let gpus = Near::each_gpu(&topology, |_| None).unwrap();
        assert!(gpus.used(&all).is_empty());
        let lines = gpus.used(&some.near(&gpus.nodes).unwrap());
        assert!(
            matches!(&lines[..], [line] if line.starts_with("gpu:1 is near node 1,")),
            "{lines:?}"
        );
        let name = "gpu:0 and gpu:1".to_owned();
        let named = Near { nodes: vec![0, 1], name, are_several: true, ..Near::default() };
        assert!(named.used(&all)[0].contains("nodes 0, 1 are used"));
        let lines = named.used(&some);
        assert!(matches!(&lines[..], [line] if line.ends_with("node 0 only")), "{lines:?}");
    }

    #[test]
    fn values_are_devices_or_each_gpu() {
        assert_eq!("gpu".parse(), Ok(Wanted::EachGpu));
        assert_eq!("netdev:eth0".parse(), Ok(Wanted::Device(DeviceName::Network("eth0".into()))));
        let error = "gpus".parse::<Wanted>().unwrap_err();
        assert!(error.contains("or gpu for a GPU for each process"), "{error}");
    }
}
