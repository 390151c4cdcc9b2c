//! The machine file and the table: what `nearq sim calibrate` writes and prints.

use super::costs::{self, Cost};
use super::shape;
use crate::Error;
use nearq_report::Table;
use nearq_sim::Calibration;
use nearq_topology::Topology;
use serde::Serialize;

/// JSON of one line.
fn line(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("texts and finite numbers")
}

/// A cost with its source.
fn figure(cost: &Cost) -> String {
    let Cost { value, unit, origin, source, .. } = cost;
    format!(
        "{{\"value\": {value}, \"unit\": {}, \"origin\": {}, \"source\": {}}}",
        line(unit),
        line(origin),
        line(source)
    )
}

/// What the machine is, in a line.
pub(super) fn about(topology: &Topology, noisy: bool) -> String {
    let counted =
        |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    format!(
        "{}: {}, {}, {}; measured by nearq sim calibrate{}",
        topology.model_name().unwrap_or("a machine of unknown make"),
        counted(topology.possible().len(), "CPU"),
        counted(topology.llcs().len(), "last-level cache"),
        counted(topology.nodes().len(), "node"),
        if noisy { " while it was noisy" } else { "" }
    )
}

/// The machine file: one line for each cost and for each measurement.
pub(super) fn text(topology: &Topology, calibration: &Calibration) -> Result<String, Error> {
    let described = shape::describe(topology).ok_or_else(|| {
        Error::run("no description in hwloc's forms has the same parts as this machine; give its costs to a shape of yours by --on SHAPE@FILE")
    })?;
    let mut fields = vec![
        ("about", line(&about(topology, !calibration.noisy.is_empty()))),
        ("shape", line(&described)),
    ];
    if let Some(model) = topology.model_name() {
        fields.push(("model", line(&model)));
    }
    let nodes = topology.nodes().len();
    if nodes > 1 {
        let row = |from| (0..nodes).map(|to| topology.distance(from, to)).collect::<Vec<_>>();
        fields.push(("distances", line(&(0..nodes).map(row).collect::<Vec<_>>())));
    }
    if !topology.isolated().is_empty() {
        fields.push(("isolated", line(&topology.isolated().to_list())));
    }
    let costs = costs::of(calibration, topology);
    let clock = costs.iter().find(|cost| cost.name == "clock_mhz");
    fields.push((
        "clock_mhz",
        figure(clock.ok_or_else(|| Error::run("the clock was not measured"))?),
    ));
    let costs = costs.iter().filter(|cost| cost.name != "clock_mhz");
    let costs: Vec<String> =
        costs.map(|cost| format!("    \"{}\": {}", cost.name, figure(cost))).collect();
    fields.push(("costs", format!("{{\n{}\n  }}", costs.join(",\n"))));
    let Calibration { nearq, kernel, seconds, noise, noisy, measurements } = calibration;
    let measurements: Vec<String> =
        measurements.iter().map(|one| format!("      {}", line(one))).collect();
    let calibration = [
        ("nearq", line(nearq)),
        ("kernel", line(kernel)),
        ("seconds", line(seconds)),
        ("noise", line(noise)),
        ("noisy", line(noisy)),
        ("measurements", format!("[\n{}\n    ]", measurements.join(",\n"))),
    ];
    let calibration = calibration.map(|(name, value)| format!("    \"{name}\": {value}"));
    fields.push(("calibration", format!("{{\n{}\n  }}", calibration.join(",\n"))));
    let fields: Vec<String> =
        fields.iter().map(|(name, value)| format!("  \"{name}\": {value}")).collect();
    Ok(format!("{{\n{}\n}}\n", fields.join(",\n")))
}

/// The measurements as a table for people.
pub(super) fn table(topology: &Topology, calibration: &Calibration) -> String {
    let mut table = Table::new(
        "",
        &["quantity", "first quartile", "median", "third quartile", "unit", "again %"],
    );
    for one in &calibration.measurements {
        let [first, median, third] = one.quartiles;
        let change = (one.medians[1] / one.medians[0] - 1.0) * 100.0;
        let mut cells = vec![one.name.clone()];
        cells.extend([first, median, third].map(|value| format!("{value:.1}")));
        cells.extend([one.unit.clone(), format!("{change:+.1}")]);
        table.row(cells);
    }
    let percent = |percent: Option<f64>| percent.map_or("unknown".into(), |p| format!("{p:.1} %"));
    let noise = &calibration.noise;
    format!(
        "{}\nLinux {}, {:.0} s\n\n{table}\nStolen by the host {}, used by other programs {}, threads waited for a CPU {}, samples disturbed {}.\n",
        about(topology, !calibration.noisy.is_empty()),
        calibration.kernel,
        calibration.seconds,
        percent(noise.steal_percent),
        percent(noise.others_percent),
        percent(noise.pressure_percent),
        percent(Some(noise.preempted_percent)),
    )
}
