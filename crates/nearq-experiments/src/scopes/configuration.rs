//! The queue configurations and the loads that are compared, and what the document published about them.

use crate::Machine;
use crate::scopes::Placement;
use nearq_topology::{AffinityScope, CpuSet};

// The queue configurations that are compared, and which of them are the same on a given machine.

/// Which pools run the items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The pools of the queue that is measured.
    Ours,
    /// The same under a scheduler that receives wake hints, as nearq-scx does; on simulated machines.
    Hinted,
    /// The kernel's pools, in outline; on simulated machines.
    Kernel,
}

/// The prefix of the names of the kernel's rows.
const KERNEL: &str = "kernel: ";
/// The prefix of the names of rows with wake hints.
const HINTED: &str = "hinted: ";

/// A named way to place items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Configuration {
    /// The document's name for it, in lower case; prefixed with `kernel: ` if the pools are the kernel's.
    pub name: &'static str,
    /// The placement.
    pub placement: Placement,
    /// Which pools.
    pub policy: Policy,
}

impl Configuration {
    /// The row that it is compared with: `system`, of the same policy.
    pub fn base(&self) -> &'static str {
        match self.policy {
            Policy::Ours | Policy::Hinted => "system",
            Policy::Kernel => "kernel: system",
        }
    }
}

/// The document's name for a row, whichever pools it is about.
pub(super) fn of_document(name: &str) -> &str {
    name.strip_prefix(KERNEL).or(name.strip_prefix(HINTED)).unwrap_or(name)
}

/// Whether a row has the policy of the kernel's pools.
pub(super) fn is_kernel(name: &str) -> bool {
    name.starts_with(KERNEL)
}

const fn kernel(
    name: &'static str,
    scope: AffinityScope,
    strict: bool,
    localize: bool,
) -> Configuration {
    let placement = Placement { scope, strict, localize, helping: false };
    Configuration { name, placement, policy: Policy::Kernel }
}

const fn hinted(name: &'static str, scope: AffinityScope, localize: bool) -> Configuration {
    let placement = Placement { scope, strict: false, localize, helping: false };
    Configuration { name, placement, policy: Policy::Hinted }
}

const fn configuration(
    name: &'static str,
    scope: AffinityScope,
    strict: bool,
    localize: bool,
    helping: bool,
) -> Configuration {
    let placement = Placement { scope, strict, localize, helping };
    Configuration { name, placement, policy: Policy::Ours }
}

/// What is measured on this machine: the five configurations of the document in its order, and two beyond it, with
/// idle workers helping other pods, as they do by default.
pub const CONFIGURATIONS: [Configuration; 7] = [
    configuration("system", AffinityScope::System, false, false, true),
    configuration("cache", AffinityScope::Cache, false, false, true),
    configuration("cache+strict", AffinityScope::Cache, true, false, true),
    configuration("system+local", AffinityScope::System, false, true, true),
    configuration("cache+local", AffinityScope::Cache, false, true, true),
    configuration("cache_shard", AffinityScope::CacheShard, false, false, true),
    configuration("cpu+strict", AffinityScope::Cpu, true, false, true),
];

/// What is measured on a simulated machine: the same without helping, as in the kernel, where an idle worker of one
/// pool never takes the items of another; again with helping if that makes a difference; and the five of the document
/// on the kernel's own pools.
pub const SIMULATED: [Configuration; 18] = [
    configuration("system", AffinityScope::System, false, false, false),
    configuration("cache", AffinityScope::Cache, false, false, false),
    configuration("cache+strict", AffinityScope::Cache, true, false, false),
    configuration("system+local", AffinityScope::System, false, true, false),
    configuration("cache+local", AffinityScope::Cache, false, true, false),
    configuration("cache_shard", AffinityScope::CacheShard, false, false, false),
    configuration("cpu+strict", AffinityScope::Cpu, true, false, false),
    configuration("cache+helping", AffinityScope::Cache, false, false, true),
    configuration("cache+local+helping", AffinityScope::Cache, false, true, true),
    configuration("cache_shard+helping", AffinityScope::CacheShard, false, false, true),
    hinted("hinted: cache", AffinityScope::Cache, false),
    hinted("hinted: system+local", AffinityScope::System, true),
    hinted("hinted: cache+local", AffinityScope::Cache, true),
    kernel("kernel: system", AffinityScope::System, false, false),
    kernel("kernel: cache", AffinityScope::Cache, false, false),
    kernel("kernel: cache+strict", AffinityScope::Cache, true, false),
    kernel("kernel: system+local", AffinityScope::System, false, true),
    kernel("kernel: cache+local", AffinityScope::Cache, false, true),
];

/// What is measured on a machine.
pub fn configurations(machine: &Machine) -> &'static [Configuration] {
    if machine.model().is_some() { &SIMULATED } else { &CONFIGURATIONS }
}

/// A configuration on a machine: run, or the same as another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The configuration.
    pub configuration: Configuration,
    /// The name of the earlier configuration that it coincides with, and why.
    pub same_as: Option<(&'static str, String)>,
}

/// The effect of a configuration: equal keys place items in the same way.
type Key = (Policy, Vec<CpuSet>, [bool; 3]);

fn key(configuration: Configuration, machine: &Machine) -> Key {
    let placement = configuration.placement;
    let mut pods = machine.pods(placement.scope);
    pods.sort_by_key(CpuSet::first);
    // If there is only one pod, no worker can leave it; if there is only one CPU, every item runs on it.
    let strict = placement.strict && pods.len() > 1;
    let localize = placement.localize && machine.pods(AffinityScope::Cpu).len() > 1;
    let helping = placement.helping && !strict && pods.len() > 1;
    (configuration.policy, pods, [strict, localize, helping])
}

/// Determines for every configuration whether it is run or coincides with one that is run.
pub fn plan(machine: &Machine) -> Vec<Planned> {
    let mut run: Vec<(Key, Configuration)> = Vec::new();
    let planned = configurations(machine).iter().map(|&configuration| {
        let key = key(configuration, machine);
        let same = run.iter().find(|(earlier, _)| *earlier == key).map(|(_, earlier)| *earlier);
        if same.is_none() {
            run.push((key, configuration));
        }
        let same_as = same.map(|earlier| (earlier.name, reason(configuration, earlier, machine)));
        Planned { configuration, same_as }
    });
    planned.collect()
}

/// Why two configurations coincide.
fn reason(configuration: Configuration, earlier: Configuration, machine: &Machine) -> String {
    let (placement, other) = (configuration.placement, earlier.placement);
    if machine.pods(AffinityScope::Cpu).len() == 1 {
        return "one CPU here".into();
    }
    if placement.scope == other.scope {
        return format!(
            "strictness, localisation and helping change nothing: {}",
            machine.count(placement.scope)
        );
    }
    let counts = [placement.scope, other.scope].map(|scope| machine.count(scope));
    let [count, other_count] = counts;
    if placement.scope == AffinityScope::System || other.scope == AffinityScope::System {
        return if other.scope == AffinityScope::System { count } else { other_count };
    }
    format!("the same pods: {count}, {other_count}")
}

// The loads of the document, scaled to the machine, and the figures that the document published for them.

/// CPUs of the document's machine, a Ryzen 9 3900X.
const DOCUMENT_CPUS: f64 = 24.0;
/// Blocks that each of the document's issuers has in flight.
const DOCUMENT_IN_FLIGHT: f64 = 64.0;

/// A load: how many threads issue blocks, and how many each has in flight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// The document's name for it.
    pub name: String,
    /// What the document says about it.
    pub meaning: &'static str,
    /// Threads that generate and verify.
    pub issuers: usize,
    /// Blocks of each issuer that are in flight at any time.
    pub in_flight: usize,
}

/// A published result: mean and deviation of bandwidth (MiB/s) and of CPU use (%).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// Bandwidth in MiB/s.
    pub throughput: (f64, f64),
    /// CPU use in percent.
    pub cpu: (f64, f64),
}

/// Name, meaning, issuers.
const DOCUMENT: [(&str, &str, f64); 3] = [
    ("HIGH", "enough issuers and work spread across the machine", 24.0),
    ("MED", "fewer issuers, enough work for saturation", 8.0),
    ("LOW", "even fewer issuers, not enough work to saturate", 4.0),
];

/// The document's tables, in the order of [`CONFIGURATIONS`] (its first five).
const PUBLISHED: [[(f64, f64, f64, f64); 5]; 3] = [
    [
        (1159.40, 1.34, 99.31, 0.02),
        (1166.40, 0.89, 99.34, 0.01),
        (1166.00, 0.71, 99.35, 0.01),
        (1157.40, 1.67, 99.50, 0.01),
        (1160.40, 0.55, 99.50, 0.02),
    ],
    [
        (1155.40, 0.89, 97.41, 0.05),
        (1154.40, 1.14, 96.15, 0.09),
        (1112.00, 4.64, 93.26, 0.35),
        (1066.80, 2.17, 86.70, 0.10),
        (1034.60, 1.52, 83.00, 0.07),
    ],
    [
        (993.60, 1.82, 75.49, 0.06),
        (973.40, 1.52, 74.90, 0.07),
        (828.20, 4.49, 66.84, 0.29),
        (884.20, 18.39, 64.14, 1.12),
        (860.60, 4.72, 61.46, 0.24),
    ],
];

/// The document's three loads for a machine with `cpus`: the same number of blocks in flight for each CPU, from as
/// many issuers as that takes, at least one. If the number of issuers is rounded, the number in flight makes up for
/// it.
pub fn scaled(cpus: usize) -> Vec<Scenario> {
    let scale = cpus as f64 / DOCUMENT_CPUS;
    let scenario = |(name, meaning, issuers): (&str, &'static str, f64)| {
        let scaled = issuers * scale;
        let count = scaled.round().max(1.0);
        let in_flight = (scaled * DOCUMENT_IN_FLIGHT / count).round().max(1.0);
        Scenario {
            name: name.into(),
            meaning,
            issuers: count as usize,
            in_flight: in_flight as usize,
        }
    };
    DOCUMENT.map(scenario).into()
}

/// What the document published, if it has this scenario and configuration; the same for our pools and for the kernel's.
pub fn published(scenario: &str, configuration: &str) -> Option<Published> {
    let configuration = of_document(configuration);
    let row = DOCUMENT.iter().position(|(name, ..)| *name == scenario)?;
    let column = CONFIGURATIONS.iter().position(|known| known.name == configuration)?;
    let &(throughput, throughput_deviation, cpu, cpu_deviation) = PUBLISHED[row].get(column)?;
    Some(Published { throughput: (throughput, throughput_deviation), cpu: (cpu, cpu_deviation) })
}

#[cfg(test)]
#[path = "tests/configuration.rs"]
mod configuration_tests;

#[cfg(test)]
#[path = "tests/scenario.rs"]
mod scenario_tests;
