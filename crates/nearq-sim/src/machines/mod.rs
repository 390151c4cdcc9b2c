//! The machines that are built in, with costs from public measurements. They are files in the format that users write
//! for machines of their own, in the folder `machines` of this crate; docs/machines.md says how to write one.
//!
//! # Inputs and predictions
//! Inputs are single quantities of the hardware and of the kernel: the time to move one line from CPU to CPU, the rate at which one CPU
//! streams, the cost of a system call. Each has its source beside it, and [`Machine::sources`] lists them. Everything that an experiment
//! shows is a prediction: every throughput, every latency, every gap between two configurations, and above all which one wins. No cost was
//! fitted to a result of the documents whose experiments are simulated; of those, only what they say about their machines is used. **A cost
//! changes only with a new citation.**
//!
//! # How the numbers are made
//! - If a range was published, its middle is used, and the source says so.
//! - *Not re-read* marks a publication that was not available when the number was written down.
//! - Numbers that are not published follow from the rules in [`derive`].

mod derive;
mod file;

use std::path::Path;

use nearq_topology::Topology;

use crate::machine::{Machine, MachineError};

macro_rules! built_in {
    ($($name:literal),*) => {
        pub(crate) const NAMES: &[&str] = &[$($name),*];

        const FILES: &[&str] = &[$(include_str!(concat!("../../machines/", $name, ".json"))),*];
    };
}

built_in!(
    "ryzen-3900x",
    "epyc-7551-2s",
    "epyc-9654-2s",
    "kh-40000-2s",
    "grace-72",
    "tx7-itanium2",
    "opteron-2s",
    "strix-point"
);

/// The file that is the shape of a built-in machine.
const SHAPE_FILE: (&str, &str) =
    ("strix-point.xml", include_str!("../../machines/strix-point.xml"));

/// The machine that is built in under that name.
pub(crate) fn named(name: &str) -> Option<Machine> {
    let text = FILES[NAMES.iter().position(|known| *known == name)?];
    let shape = |shape: &str| {
        if shape == SHAPE_FILE.0 {
            Topology::from_hwloc_xml(SHAPE_FILE.1)
        } else {
            Topology::from_synthetic(shape)
        }
    };
    Some(file::machine(name, text, shape).unwrap_or_else(|wrong| panic!("{name}.json: {wrong}")))
}

/// The machine that a user's file describes. Its shape may be another file, named from the folder that holds this one.
pub(crate) fn read(file: &str) -> Result<Machine, MachineError> {
    let text = nearq_topology::text_of(Path::new(file))
        .map_err(|source| MachineError::Unknown { text: file.into(), source })?;
    let shape = |shape: &str| {
        let beside = Path::new(file).with_file_name(shape);
        let beside = beside.to_str().filter(|path| Path::new(path).exists());
        Topology::from_description(beside.unwrap_or(shape))
    };
    file::machine(file, &text, shape)
        .map_err(|reason| MachineError::File { file: file.into(), reason })
}
