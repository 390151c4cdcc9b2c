//! The format of a file that describes a machine: its shape, its clock, and its costs, each with its source. What a file
//! may leave out is derived. docs/machines.md describes it for users.

use nearq_topology::{CpuSet, Topology, TopologyError};
use serde::Deserialize;
use serde_json::{Number, Value};

use super::calibration::Calibration;
use super::derive;
use crate::costs::{Costs, Given};
use crate::machine::Machine;
use crate::source::{Origin, Source};

/// The contents of a file, as they are written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a machine's `about`, `shape`, `clock_mhz` and `costs`")]
struct File {
    about: String,
    /// A comment for readers of the file.
    #[serde(rename = "notes", default)]
    _notes: Vec<String>,
    /// May be missing if the user names another shape.
    shape: Option<String>,
    model: Option<String>,
    distances: Option<Vec<Vec<u32>>>,
    isolated: Option<String>,
    clock_mhz: Value,
    costs: Given,
    /// What `nearq sim calibrate` measured.
    calibration: Option<Calibration>,
}

/// What a file says about one cost.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "fields such as {\"value\": 40}")]
struct Figure {
    value: Number,
    unit: Option<String>,
    #[serde(default)]
    origin: Origin,
    #[serde(default = "given")]
    source: String,
}

fn given() -> String {
    "given".into()
}

/// A number of cycles of the machine's clock.
const CYCLES: &str = "cycles";

/// What the usual core-to-core benchmarks measure, in nanoseconds: two CPUs take one line in turn by a compare-exchange,
/// and half a round trip counts. The cost is the bounce less the compare-exchange.
const BOUNCE: &str = "bounce";

/// The costs that a bounce measures.
const BOUNCES: [&str; 5] = ["same_core", "same_llc", "other_llc", "same_package", "other_package"];

/// The largest number in a file, so that no sum of them overflows: a second, a petabyte a second, a gigabyte.
const MOST: u64 = 1_000_000_000;

/// The numbers of a machine that are known so far.
pub(super) struct Sheet {
    topology: Topology,
    sources: Vec<Source>,
}

impl Sheet {
    pub(super) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The cost of that name, if it is known yet.
    pub(super) fn get(&self, cost: &str) -> Option<u64> {
        self.sources.iter().find(|source| source.cost == cost).map(|source| source.value)
    }

    /// That many cycles in nanoseconds, rounded, at least one. The clock must be known.
    pub(super) fn cycles(&self, cycles: u64) -> u64 {
        let clock_mhz = self.get("clock_mhz").expect("the clock comes first");
        ((cycles * 1_000 + clock_mhz / 2) / clock_mhz).max(1)
    }

    /// The cost of the transfer of a line in a bounce of that many nanoseconds.
    fn transfer(&self, bounce: u64) -> u64 {
        let atomic = self.get("read_modify_write").unwrap_or(0);
        bounce.saturating_sub(atomic).max(self.get("own_line").unwrap_or(1))
    }

    /// Adds a cost that is not known yet.
    pub(super) fn put(&mut self, source: Source) {
        self.sources.push(source);
    }

    /// Reads a cost as a file gives it, unless it is known.
    pub(super) fn read(&mut self, cost: &'static str, given: Value) -> Result<(), String> {
        let figure: Figure =
            serde_json::from_value(given).map_err(|error| format!("{cost}: {error}"))?;
        let default_unit = Costs::unit(cost);
        let most = if default_unit == "%" { 100 } else { MOST };
        let number = figure.value.as_u64().filter(|number| (1..=most).contains(number));
        let number = number.ok_or_else(|| {
            format!("{cost}: value {}: give a whole number from 1 to {most}", figure.value)
        })?;
        let (is_time, is_line) = (default_unit == "ns", BOUNCES.contains(&cost));
        let value = match figure.unit.as_deref().unwrap_or(default_unit) {
            unit if unit == default_unit => number,
            CYCLES if is_time => self.cycles(number),
            BOUNCE if is_line => self.transfer(number),
            unit => {
                let count = 1 + usize::from(is_time) + usize::from(is_line);
                let allowed = [default_unit, CYCLES, BOUNCE][..count].join(" or ");
                return Err(format!("{cost}: unit {unit:?}: give {allowed}"));
            }
        };
        if self.get(cost).is_none() {
            self.put(Source { cost, value, origin: figure.origin, text: figure.source });
        }
        Ok(())
    }

    /// The machine; what is not known is derived.
    fn finish(mut self, name: &str) -> Result<Machine, String> {
        derive::complete(&mut self);
        let missing = |cost: &&&str| self.get(cost).is_none();
        let missing: Vec<&str> = Costs::NAMES.iter().filter(missing).copied().collect();
        if !missing.is_empty() {
            return Err(format!(
                "costs: on this machine no rule gives {}; give a value for each",
                missing.join(", ")
            ));
        }
        let mut machine =
            Machine::of(name, self.topology).map_err(|error| format!("shape: {error}"))?;
        for source in &mut machine.sources {
            let known = self.sources.iter().position(|known| known.cost == source.cost);
            *source = self.sources.swap_remove(known.expect("none is missing"));
            match machine.costs.get_mut(source.cost) {
                Some(cost) => *cost = source.value,
                None => machine.clock_mhz = source.value,
            }
        }
        Ok(machine)
    }
}

/// The machine that `text` describes; `shape` finds the shape that it names. An error says which field is wrong, and what
/// is allowed there.
pub(super) fn machine(
    name: &str,
    text: &str,
    shape: impl FnOnce(&str) -> Result<Topology, TopologyError>,
) -> Result<Machine, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let missing = "missing field `shape`: without it the file has costs only; give --on SHAPE@FILE, with an hwloc XML file or a description \
                   as the shape";
    let named = file.shape.as_deref().ok_or(missing)?;
    let mut topology = shape(named).map_err(|error| format!("shape: {error}"))?;
    if let Some(rows) = file.distances {
        topology = topology.with_distances(&rows).map_err(|error| format!("distances: {error}"))?;
    }
    if let Some(list) = file.isolated {
        let cpus = CpuSet::parse_list(&list).map_err(|error| format!("isolated: {error}"))?;
        topology = topology.with_isolated(&cpus);
    }
    if let Some(model) = file.model {
        topology = topology.with_model_name(&model);
    }
    let about = file.about;
    priced(name, about, topology, file.clock_mhz, file.costs, file.calibration)
}

/// A machine of that shape with the costs of the file `text`, whatever the file says about a shape.
pub(super) fn costs_for(name: &str, text: &str, topology: Topology) -> Result<Machine, String> {
    let file: File = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let about = format!("another shape, with the costs of: {}", file.about);
    priced(name, about, topology, file.clock_mhz, file.costs, file.calibration)
}

/// The machine of that shape with these costs.
fn priced(
    name: &str,
    about: String,
    topology: Topology,
    clock_mhz: Value,
    costs: Given,
    calibration: Option<Calibration>,
) -> Result<Machine, String> {
    let mut sheet = Sheet { topology, sources: Vec::new() };
    sheet.read("clock_mhz", clock_mhz)?;
    for (cost, given) in costs.each() {
        sheet.read(cost, given)?;
    }
    let mut machine = sheet.finish(name)?;
    machine.about = about;
    machine.calibration = calibration;
    Ok(machine)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::Simulation;
    use crate::{Sim, compute};
    use nearq_platform::{LockPlatform as _, Placement as _, ThreadSpec, Threads as _};
    use serde_json::json;
    use std::time::Duration;

    const PAGE: &str = include_str!("../../../../docs/machines.md");

    /// The example of docs/machines.md.
    fn example() -> Value {
        let (_, rest) = PAGE.split_once("```json\n").expect("an example");
        let (example, _) = rest.split_once("```").expect("its end");
        serde_json::from_str(example).expect("JSON")
    }

    fn read(text: &str) -> Result<Machine, String> {
        machine("some", text, Topology::from_synthetic)
    }

    /// Why the example is refused after a change.
    fn refused(change: impl FnOnce(&mut Value)) -> String {
        let mut file = example();
        change(&mut file);
        read(&file.to_string()).expect_err("the file is invalid")
    }

    #[test]
    fn costs_come_from_the_file_and_missing_ones_are_derived() {
        let machine = read(&example().to_string()).expect("an example");
        let costs = machine.costs();
        // 0.4 ns a cycle; a bounce holds one read-modify-write.
        assert_eq!((costs.own_line, costs.read_modify_write), (2, 7));
        assert_eq!((costs.same_llc, costs.other_llc, costs.other_package), (40, 100, 300));
        assert_eq!(costs.same_core, 2, "no SMT");
        assert_eq!(costs.same_package, 100, "one node a package");
        assert_eq!(costs.memory_same_package, 80);
        assert_eq!(costs.memory_other_package, 280, "80 and 300 less 100");
        assert_eq!(costs.smt_percent, 100);
        assert_eq!(costs.slice, 2_800_000, "8 CPUs");
        let source = |cost| machine.sources().iter().find(|source| source.cost == cost);
        let source_of = |cost| source(cost).map(|source| (source.origin, source.text.as_str()));
        assert_eq!(source_of("clock_mhz"), Some((Origin::Specified, "the vendor's page")));
        assert_eq!(source_of("memory"), Some((Origin::Given, "given")));
        assert_eq!(source_of("spawn").map(|(origin, _)| origin), Some(Origin::Derived));
        assert_eq!(
            (machine.name(), machine.about()),
            ("some", "2 packages, 8 cores, 4 L3 caches, 2 nodes")
        );
    }

    #[test]
    fn a_machine_may_have_isolated_cpus_and_a_simulated_process_sees_them() {
        let mut file = example();
        file["isolated"] = "6-9".into();
        let machine = read(&file.to_string()).expect("well formed");
        assert_eq!(machine.topology().isolated().to_list(), "6-7", "of 8 CPUs");
        let outcome = Simulation::on(&machine, 1).run(|| Sim::machine().expect("a machine"));
        assert_eq!(outcome.expect().limits.housekeeping().to_list(), "0-5");
    }

    #[test]
    fn cycles_round_to_at_least_a_nanosecond_and_a_bounce_to_own_line() {
        let mut file = example();
        for (cost, value) in [("own_line", 1), ("look", 10), ("same_llc", 8)] {
            file["costs"][cost]["value"] = value.into();
        }
        file["costs"]["look"]["unit"] = "cycles".into();
        let machine = read(&file.to_string()).expect("well formed");
        let costs = machine.costs();
        assert_eq!((costs.own_line, costs.look, costs.same_llc), (1, 4, 1));
    }

    #[test]
    fn the_page_has_a_row_for_each_cost() {
        for cost in Costs::NAMES {
            let row = format!("\n| `{cost}` | {} |", Costs::unit(cost));
            assert_eq!(PAGE.matches(&row).count(), 1, "docs/machines.md: {row}");
        }
        let rows = PAGE.split_once("| cost | unit |").expect("the table").1.matches("\n| `");
        assert_eq!(rows.count(), Costs::NAMES.len(), "docs/machines.md has another cost");
    }

    #[test]
    fn a_mistake_is_refused_with_its_field_and_what_is_allowed() {
        let costs =
            |cost: &'static str, figure: Value| refused(move |file| file["costs"][cost] = figure);
        let top = |field: &'static str, value: Value| refused(move |file| file[field] = value);
        let cases: &[(String, &[&str])] = &[
            (read("{").expect_err("no JSON"), &["line 1 column 1"]),
            (read("[]").expect_err("no fields"), &["`about`, `shape`, `clock_mhz`"]),
            (top("speed", 1.into()), &["`speed`", "`clock_mhz`", "`shape`", "line"]),
            (top("about", Value::Null), &["expected a string"]),
            (top("shape", "core:0".into()), &["shape: ", "core:0"]),
            (top("shape", "pack:8 core:1024".into()), &["shape: ", "4096"]),
            (top("distances", json!([[10]])), &["distances: ", "2 nodes", "one row"]),
            (top("isolated", "1-x".into()), &["isolated: ", "1-x", "a CPU list"]),
            (
                top("clock_mhz", json!({"value": 0})),
                &["clock_mhz: value 0: give a whole number from 1 to"],
            ),
            (top("clock_mhz", json!({"value": 1, "unit": "GHz"})), &["unit \"GHz\": give MHz"]),
            (costs("luck", json!({"value": 1})), &["`luck`", "`own_line`", "`slice`"]),
            (costs("look", 20.into()), &["look: ", "20", "{\"value\": 40}"]),
            (costs("look", json!({"value": 1.5})), &["look: value 1.5: give a whole"]),
            (costs("look", json!({"value": -1})), &["look: value -1: give a whole"]),
            (costs("look", json!({"value": "20"})), &["look: ", "\"20\"", "number"]),
            (costs("look", json!({"unit": "ns"})), &["look: missing field `value`"]),
            (costs("look", json!({"value": 1, "from": ""})), &["look: ", "`from`", "`source`"]),
            (costs("look", json!({"value": 1, "origin": "guess"})), &["`guess`", "`derived`"]),
            (costs("look", json!({"value": 1, "unit": "bounce"})), &["give ns or cycles"]),
            (costs("same_llc", json!({"value": 1, "unit": "s"})), &["give ns or cycles or bounce"]),
            (costs("l2_size", json!({"value": 1, "unit": "cycles"})), &["give bytes"]),
            (
                costs("smt_percent", json!({"value": 101})),
                &["smt_percent: value 101: give a whole number from 1 to 100"],
            ),
            (costs("fork", json!({"value": MOST + 1})), &["from 1 to 1000000000"]),
        ];
        for (text, parts) in cases {
            for part in *parts {
                assert!(text.contains(part), "{part} is missing from {text}");
            }
        }
        let twice = example().to_string().replace("\"same_llc\"", "\"other_llc\"");
        let text = read(&twice).expect_err("a field occurs twice");
        assert!(text.contains("duplicate field `other_llc`"), "{text}");
    }

    #[test]
    fn costs_that_no_rule_derives_are_required() {
        let text = refused(|file| {
            let costs = file["costs"].as_object_mut().expect("costs");
            costs.retain(|cost, _| !["link_bandwidth", "same_llc"].contains(&cost.as_str()));
        });
        let expected = "no rule gives same_llc, link_bandwidth; give a value for each";
        assert!(text.ends_with(expected), "a link that is not described is not made up: {text}");
    }

    #[test]
    fn the_smallest_and_the_largest_costs_can_be_simulated() {
        for value in [1, MOST] {
            let mut file = example();
            for cost in Costs::NAMES.iter().filter(|cost| **cost != "smt_percent") {
                file["costs"][cost] = json!({"value": value});
            }
            let machine = read(&file.to_string()).expect("within the limits");
            let run = || {
                Sim::write(&mut vec![0; 1 << 20]);
                let body = || compute(Duration::from_micros(100));
                let handle = Sim::spawn(ThreadSpec::default(), body).expect("a thread");
                Sim::sleep(Duration::from_micros(10));
                Sim::join(handle);
            };
            let outcome = Simulation::on(&machine, 1).run(run);
            outcome.expect();
        }
    }
}
