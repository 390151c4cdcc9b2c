//! `nearq-scx metrics`: all counts in a format of Prometheus, for systems that store metrics.

use std::fmt;

use clap::Args;
use nearq_command::exposition::{Format, in_format};
use nearq_scx_policy::layout::Nq;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::output::{self, Failure};
use crate::pins::{self, Access};
use crate::state::{self, NodeNow, Now};
use crate::{decisions, status, weights};

const LEGEND: &str = "\
Counters start when the scheduler is loaded. Nodes have the system's numbers.
`nearq-scx status --help` describes the counts. For node exporter's folder of
text files, write to another name, and rename the complete file to one ending in
.prom.

Examples:
  nearq-scx metrics
  nearq-scx metrics --format openmetrics
  nearq-scx metrics > /var/lib/prometheus/node-exporter/nearq-scx.new";

/// The options of `nearq-scx metrics`.
#[derive(Args, Debug)]
#[command(after_help = LEGEND)]
pub(crate) struct Options {
    /// The output format: the text format of Prometheus, or OpenMetrics
    #[arg(long, value_enum, default_value_t = Format::Prometheus)]
    format: Format,
}

/// Runs the command.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    status::is_there()?;
    let nq = pins::machine(&pins::open(pins::STATE, Access::Read)?)?;
    let memory = decisions::read(&decisions::path());
    let sampling = memory["looks"].as_u64().zip(memory["cpu_seconds"].as_f64());
    output::print(&in_format(text(nq, sampling), options.format))
}

/// The whole text, with `# EOF` at its end.
fn text(nq: Box<Nq>, sampling: Option<(u64, f64)>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Counts { nq, sampling }));
    let mut text = String::new();
    // Writing into a string cannot fail.
    let _ = encode(&mut text, &registry);
    text
}

/// The text collected so far.
#[derive(Debug)]
struct Counts {
    nq: Box<Nq>,
    sampling: Option<(u64, f64)>,
}

type Gauge = (&'static str, &'static str, fn(&NodeNow) -> f64);

const GAUGES: [Gauge; 8] = [
    ("cpus", "Online CPUs", |node| node.cpus.len() as f64),
    ("homes", "Tasks that are at home there", |node| node.homes.into()),
    ("wanting", "Tasks at home there that run or wait, anywhere", |node| node.wanting.into()),
    ("waiting_away", "Tasks at home there that wait elsewhere", |node| node.waiting_away.into()),
    ("running", "Tasks that run there", |node| node.running.into()),
    ("guests", "Tasks that run there and are at home elsewhere", |node| node.guests.into()),
    ("waiting", "Tasks that wait there", |node| node.waiting.into()),
    ("load", "Tasks that run or wait there, per CPU, smoothed", |node| node.load as f64 / 1000.0),
];

impl Collector for Counts {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let now = Now::of(&self.nq);
        for (name, help, of) in GAUGES {
            let name = format!("nearq_scx_{name}");
            let mut family = encoder.encode_descriptor(&name, help, None, MetricType::Gauge)?;
            for node in &now.nodes {
                family.encode_family(&labels(node))?.encode_gauge(&of(node))?;
            }
        }
        let help = "CPU time on a node, of tasks that are at home there and of others";
        let mut family = encoder.encode_descriptor(
            "nearq_scx_cpu",
            help,
            Some(&Unit::Seconds),
            MetricType::Counter,
        )?;
        for node in &now.nodes {
            for (place, ns) in [("home", node.home_ns), ("away", node.away_ns)] {
                let mut labels = labels(node);
                labels.push(("place", place.to_owned()));
                let seconds = ns as f64 / 1e9;
                let mut one = family.encode_family(&labels)?;
                one.encode_counter::<NoLabelSet, f64, f64>(&seconds, None)?;
            }
        }
        for (at, (name, help)) in state::events().enumerate() {
            let (name, help) = (format!("nearq_scx_{name}"), capital(help));
            let mut family = encoder.encode_descriptor(&name, &help, None, MetricType::Counter)?;
            for node in &now.nodes {
                let labels = labels(node);
                let mut one = family.encode_family(&labels)?;
                one.encode_counter::<NoLabelSet, u64, f64>(&node.counts[at], None)?;
            }
        }
        let help = "The weights: times in nanoseconds, others as they are set";
        let mut family =
            encoder.encode_descriptor("nearq_scx_weight", help, None, MetricType::Gauge)?;
        for weight in &weights::ALL {
            let value = weight.get(&self.nq.weights) as f64;
            family.encode_family(&[("weight", weight.name)])?.encode_gauge(&value)?;
        }
        let Some((samples, seconds)) = self.sampling else { return Ok(()) };
        let help = "How often the memory of a process was checked";
        encoder
            .encode_descriptor("nearq_scx_memory_looks", help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, u64, f64>(&samples, None)?;
        let (help, unit) = ("CPU time that these checks have taken", Some(&Unit::Seconds));
        encoder
            .encode_descriptor("nearq_scx_memory_cpu", help, unit, MetricType::Counter)?
            .encode_counter::<NoLabelSet, f64, f64>(&seconds, None)
    }
}

fn labels(node: &NodeNow) -> Vec<(&'static str, String)> {
    vec![("node", node.id.to_string())]
}

/// The text with a capital first letter, as at the beginning of a sentence.
fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::made_up;

    #[test]
    fn every_metric_is_exported_under_its_name() {
        let text = text(made_up(), Some((12, 0.5)));
        for line in [
            "# TYPE nearq_scx_homes gauge",
            "nearq_scx_homes{node=\"2\"} 80.0",
            "# HELP nearq_scx_left Tasks that began to run away from home",
            "nearq_scx_left_total{node=\"2\"} 7",
            "nearq_scx_crossed_total{node=\"2\"} 9",
            "# UNIT nearq_scx_cpu_seconds seconds",
            "nearq_scx_cpu_seconds_total{node=\"0\",place=\"home\"} 8.0",
            "nearq_scx_weight{weight=\"imbalance\"} 1000.0",
            "nearq_scx_memory_looks_total 12",
            "nearq_scx_memory_cpu_seconds_total 0.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
    }

    /// The rules of the format that readers enforce: each metric is described once and before its values, and counters end in `_total`.
    #[test]
    fn the_prometheus_format_is_valid() {
        let text = text(made_up(), None);
        let mut families: Vec<(String, String)> = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').unwrap();
                assert!(
                    families.iter().all(|(known, _)| known != name),
                    "{name} is declared twice"
                );
                families.push((name.into(), kind.into()));
                continue;
            }
            let Some((name, kind)) = families.last().filter(|_| !line.starts_with('#')) else {
                continue;
            };
            let suffix = if kind == "counter" { "_total{" } else { "{" };
            assert!(line.starts_with(&format!("{name}{suffix}")), "{line} under {name}");
            let value: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
            assert!(value >= 0.0);
        }
        assert_eq!(families.len(), GAUGES.len() + 1 + state::events().count() + 1);
    }
}
