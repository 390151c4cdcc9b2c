//! `nearq topo`: a machine as text, JSON or a picture.

mod json;

use crate::output::{self, Failure, failed};
use clap::Args;
use nearq_report::drawing::{self, View};
use nearq_report::{HERE, Machine};
use nearq_topology::{AffinityScope, DEFAULT_SHARD_SIZE, MAX_CPU_COUNT};
use std::path::PathBuf;

const EXAMPLES: &str = "\
A scope groups CPUs into pods. A work queue with that scope keeps its items within a pod:
  cpu          every CPU is a pod of its own
  smt          the CPUs of a core
  cache_shard  whole cores of one last-level cache, about --shard-size of them
  cache        the CPUs that share a last-level cache
  numa         the CPUs of a NUMA node
  system       all CPUs

Devices are GPUs, network interfaces and disks, by the names that `nearq run --near`
takes, each at the node that it is near.

Examples:
  nearq topo
  nearq topo --json | jq .pods.cache
  nearq topo --svg machine.svg --scope numa
  nearq topo --on \"pack:2 numa:2 l3:2 core:4 pu:2\"
  nearq topo --on ryzen-3900x --costs
  nearq topo --on my-machine.json --costs
  nearq topo --on other-machine.xml";

/// The arguments of `nearq topo`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Options {
    /// The machine: `here`, a simulated one by name, a machine file (.json, .machine), an hwloc XML file, `sysfs:DIR`, or a synthetic description; --help says more
    #[arg(long, value_name = "MACHINE", default_value = HERE, long_help = Machine::help())]
    on: String,

    /// Print JSON: arrays of cpus, cores, llcs, nodes, distances and devices, the pods by scope, and the limits
    #[arg(long)]
    json: bool,

    /// Also print what a simulated machine is assumed to cost: cache lines, memory, the scheduler
    #[arg(long, conflicts_with = "json")]
    costs: bool,

    /// Also draw a picture (SVG) to this file
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,

    /// The scope whose pods the picture colours: cpu, smt, cache_shard, cache, numa or system
    #[arg(long, value_name = "SCOPE", default_value = AffinityScope::CacheShard.name(), value_parser = scope, requires = "svg")]
    scope: AffinityScope,

    /// How many cores a shard of a last-level cache should have
    #[arg(long, value_name = "N", default_value_t = DEFAULT_SHARD_SIZE, value_parser = shard_size, allow_negative_numbers = true)]
    shard_size: usize,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let machine = Machine::named(&options.on).map_err(failed)?.with_devices();
    let view = View {
        topology: machine.topology(),
        limits: machine.limits(),
        scope: options.scope,
        shard_size: options.shard_size,
    };
    let costs = options.costs.then(|| {
        machine.costs().ok_or_else(|| {
            Failure::input(format!(
                "--costs: costs are known only for simulated machines; give one with --on, such as --on ryzen-3900x, instead of `{}`",
                options.on
            ))
        })
    });
    let costs = costs.transpose()?;
    if let Some(path) = &options.svg {
        output::write("--svg", path, &drawing::svg(&view))?;
    }
    if options.json {
        return output::json(&json::Document::new(&view));
    }
    output::print_text(&format!(
        "{}{}",
        drawing::text(&view),
        costs.map_or_else(String::new, |costs| format!("\n{costs}"))
    ))
}

fn scope(text: &str) -> Result<AffinityScope, String> {
    // The parser's message also names the value, but clap already does that.
    text.parse().map_err(|_| format!("give one of {}", AffinityScope::names()))
}

fn shard_size(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| (1..=MAX_CPU_COUNT).contains(number));
    number.ok_or_else(|| format!("give a number of cores from 1 to {MAX_CPU_COUNT}"))
}
