//! `--on MACHINE`: which machine is meant.

use crate::output::Failure;
use nearq_platform::{Linux, Platform as _};
use nearq_topology::{Limits, Topology, TopologyError};

/// The machine that the command runs on.
pub(crate) const HERE: &str = "here";

/// What `--on` takes, for the help of a command.
pub(crate) const ON_HELP: &str = "\
The machine:
  here          this machine
  FILE          an hwloc XML file, as written by `lstopo FILE.xml`
  sysfs:DIR     a folder that a machine's /sys was unpacked into
  \"TYPE:N ...\"  a description in hwloc's synthetic form, outermost first,
                such as \"pack:2 numa:2 l3:2 core:4 pu:2\"";

/// What can be given, for messages.
const ALLOWED: &str = "here, the path of an hwloc XML file, sysfs:DIR with a folder that holds a machine's /sys, or a \
                       synthetic description such as \"pack:2 numa:2 l3:2 core:4 pu:2\"";

/// A machine, and what this process may use of it if it is this one.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) topology: Topology,
    pub(crate) limits: Option<Limits>,
}

impl Machine {
    /// The machine that `--on` names.
    pub(crate) fn named(name: &str) -> Result<Self, Failure> {
        if name == HERE {
            return Self::here();
        }
        match Topology::from_description(name) {
            Ok(topology) => Ok(Self { topology, limits: None }),
            Err(TopologyError::Description { text }) => Err(Failure::input(format!(
                "--on {text:?}: no such file, and not a description of a machine; give {ALLOWED}"
            ))),
            Err(error) => Err(Failure::input(format!("--on {name:?}: {error}"))),
        }
    }

    fn here() -> Result<Self, Failure> {
        let machine = Linux::machine()
            .map_err(|error| Failure::input(format!("this machine cannot be read: {error}")))?;
        Ok(Self { topology: machine.topology, limits: Some(machine.limits) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_has_limits() {
        assert!(Machine::named("here").unwrap().limits.is_some());
        assert!(Machine::named("core:4 pu:2").unwrap().limits.is_none());
    }
}
