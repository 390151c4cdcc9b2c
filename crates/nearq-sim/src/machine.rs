//! A machine to simulate: its shape and what things cost on it.

use std::fmt;

use nearq_topology::{Topology, TopologyError};

use crate::costs::Costs;
use crate::machines;
use crate::machines::calibration::Calibration;
use crate::source::{Origin, Source};

/// Most CPUs of a simulated machine.
pub const MOST_CPUS: usize = nearq_topology::MAX_CPU_COUNT;

/// A machine to simulate.
///
/// ```
/// use nearq_sim::Machine;
///
/// let ryzen = Machine::named("ryzen-3900x").expect("one of Machine::NAMES");
/// assert_eq!(ryzen.topology().possible().len(), 24);
/// let own = Machine::described("numa:2 l3:2 core:8 pu:2")?;
/// assert_eq!(own.topology().llcs().len(), 4);
/// # Ok::<(), nearq_sim::MachineError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) name: String,
    /// What it is, in a line.
    pub(crate) about: String,
    pub(crate) topology: Topology,
    pub(crate) costs: Costs,
    /// Clock of a core, in MHz: for work that is declared in cycles.
    pub(crate) clock_mhz: u64,
    /// Where each cost comes from, in the order of [`Costs::NAMES`], then the clock.
    pub(crate) sources: Vec<Source>,
    /// How it was measured, if `nearq sim calibrate` did that.
    pub(crate) calibration: Option<Calibration>,
}

/// Clock of a machine of which only the shape is known.
const DEFAULT_CLOCK_MHZ: u64 = 3_000;

/// The source given for the numbers of a machine of which only the shape is known.
const UNKNOWN_MAKE: &str = "round number: the order of magnitude on a large server of today";

impl Machine {
    /// The names of the machines that are built in.
    pub const NAMES: &'static [&'static str] = machines::NAMES;

    /// A machine that is built in: its costs are those of the real machine, from public measurements.
    pub fn named(name: &str) -> Option<Self> {
        machines::named(name)
    }

    /// A machine of this shape with default costs by distance.
    ///
    /// # Errors
    /// If it has no CPU, or more than [`MOST_CPUS`].
    pub fn of(name: impl Into<String>, topology: Topology) -> Result<Self, MachineError> {
        let cpus = topology.possible().len();
        let numbers = topology.possible().last().map_or(0, |last| last + 1);
        if cpus == 0 || numbers > MOST_CPUS {
            return Err(MachineError::Size { cpus: cpus.max(numbers) });
        }
        let about = topology.model_name().unwrap_or("costs by distance").to_owned();
        let (costs, clock_mhz) = (Costs::DEFAULT, DEFAULT_CLOCK_MHZ);
        let text = || UNKNOWN_MAKE.to_owned();
        let given = |cost, value| Source { cost, value, origin: Origin::Given, text: text() };
        let names = Costs::NAMES.iter();
        let mut sources: Vec<Source> =
            names.map(|name| given(*name, costs.get(name).unwrap_or_default())).collect();
        sources.push(given("clock_mhz", clock_mhz));
        Ok(Machine {
            name: name.into(),
            about,
            topology,
            costs,
            clock_mhz,
            sources,
            calibration: None,
        })
    }

    /// The machine that a text describes: the name of one that is built in; the path of a file that describes one, which
    /// ends in `.json` or `.machine` (docs/machines.md has the format); what [`Topology::from_description`] takes, with default
    /// costs by distance; or the same, `@` and such a name or file, with its costs.
    ///
    /// # Errors
    /// If it describes no machine, or a machine that is too large.
    pub fn described(text: &str) -> Result<Self, MachineError> {
        let text = text.trim();
        if let Some(machine) = Self::named(text) {
            return Ok(machine);
        }
        let shape = |shape: &str| {
            Topology::from_description(shape)
                .map_err(|source| MachineError::Unknown { text: shape.into(), source })
        };
        if let Some((named, file)) = machines::shape_and_costs(text) {
            let topology = match Self::named(named) {
                Some(machine) => machine.topology,
                None => shape(named)?,
            };
            return machines::with_costs_of(text, topology, file);
        }
        if machines::is_file(text) {
            return machines::read(text);
        }
        Self::of(text, shape(text)?)
    }

    /// The machine, called `name`, that the text of a machine file describes. Its shape is a description or hwloc's XML, and no other file.
    ///
    /// # Errors
    /// If the text is no machine file.
    pub fn of_file(name: &str, text: &str) -> Result<Self, MachineError> {
        machines::of_text(name, text)
    }

    /// The same machine with one other cost, and its source.
    pub(crate) fn with_cost(mut self, name: &'static str, value: u64, text: &str) -> Self {
        *self.costs.get_mut(name).expect("it is a cost") = value;
        if let Some(source) = self.sources.iter_mut().find(|source| source.cost == name) {
            *source = Source { cost: name, value, origin: Origin::Derived, text: text.into() };
        }
        self
    }

    /// The same machine with other costs.
    #[must_use]
    pub fn with_costs(mut self, costs: Costs) -> Self {
        self.costs = costs;
        for source in &mut self.sources {
            if let Some(value) = costs.get(source.cost).filter(|value| *value != source.value) {
                let (cost, origin) = (source.cost, Origin::Given);
                *source = Source { cost, value, origin, text: "given".into() };
            }
        }
        self
    }

    /// The same machine, whose CPUs have a store buffer with that many entries.
    #[must_use]
    pub fn with_store_buffer(self, entries: u64) -> Self {
        self.with_cost("store_buffer", entries, "given")
    }

    /// Its name, or its description.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What it is, in a line.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Its shape.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// What things cost on it.
    pub fn costs(&self) -> &Costs {
        &self.costs
    }

    /// Clock of its fastest cores, in MHz: for work that is declared in cycles.
    pub fn clock_mhz(&self) -> u64 {
        self.clock_mhz
    }

    /// How it was measured, if its file was written by `nearq sim calibrate`.
    pub fn calibration(&self) -> Option<&Calibration> {
        self.calibration.as_ref()
    }

    /// Where each of its costs comes from: one entry for each of [`Costs::NAMES`], in that order, and one for the
    /// clock (`clock_mhz`).
    ///
    /// ```
    /// use nearq_sim::{Machine, Origin};
    ///
    /// let ryzen = Machine::named("ryzen-3900x").expect("one of Machine::NAMES");
    /// let source = ryzen.sources().iter().find(|source| source.cost == "other_llc").expect("each has one");
    /// assert_eq!((source.value, source.origin), (ryzen.costs().other_llc, Origin::Measured));
    /// ```
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// The machine and where its costs come from, as a table for people.
    pub fn describe(&self) -> String {
        let topology = &self.topology;
        let mut text = format!(
            "{}: {}\nCPUs {}, cores {}, last-level caches {}, nodes {}, packages {}\n",
            self.name,
            self.about,
            topology.possible().len(),
            topology.cores().len(),
            topology.llcs().len(),
            topology.nodes().len(),
            topology.packages().len().max(1),
        );
        for Source { cost, value, origin, text: from } in &self.sources {
            let unit = Costs::unit(cost);
            text += &format!("{cost:<20} {value:>9} {unit:<5}  {origin:<9}  {from}\n");
        }
        text
    }
}

/// Why there is no such machine.
#[non_exhaustive]
pub enum MachineError {
    /// No built-in machine, no file that can be read, and no description.
    Unknown {
        /// The text that was given.
        text: String,
        /// Why it is not a description either.
        source: TopologyError,
    },
    /// A file that does not describe a machine.
    File {
        /// The file.
        file: String,
        /// What is wrong, where, and what is allowed there.
        reason: String,
    },
    /// No CPU, or too many.
    Size {
        /// How many CPUs.
        cpus: usize,
    },
}

impl fmt::Display for MachineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MachineError::Unknown { text, source } => write!(
                f,
                "{text:?} is not a machine: {source}; give one of {}, a machine file, an hwloc XML file, sysfs:DIR, or a \
                 description such as \"pack:2 l3:4 core:8 pu:2\"",
                Machine::NAMES.join(", ")
            ),
            MachineError::File { file, reason } => {
                write!(f, "{file}: {reason}; docs/machines.md describes such files")
            }
            MachineError::Size { cpus } => write!(
                f,
                "a simulated machine has 1 to {MOST_CPUS} CPUs, numbered below {MOST_CPUS}; this one has {cpus}"
            ),
        }
    }
}

nearq_topology::debug_as_display!(MachineError);

impl std::error::Error for MachineError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_name_gives_a_machine() {
        for name in Machine::NAMES {
            let machine = Machine::named(name).expect("listed");
            assert_eq!(machine.name(), *name);
            assert!(machine.topology().possible().len() > 1 && machine.clock_mhz() > 100);
        }
    }

    #[test]
    fn an_unknown_machine_is_refused_with_the_known_ones() {
        let unknown = Machine::described("cray-1").expect_err("never built in").to_string();
        assert!(unknown.contains("ryzen-3900x") && unknown.contains("tx7-itanium2"), "{unknown}");
        let large = Machine::described("pack:8 core:1024").expect_err("8192 CPUs").to_string();
        assert!(large.contains("4096"), "{large}");
        let largest = Machine::described("pack:8 core:512").expect("just small enough");
        assert_eq!(largest.topology().possible().len(), 4096);
    }
}
