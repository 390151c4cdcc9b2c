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
//! - A number is what the cited text states, or what the source says that follows from it. If only a summary was read, the source says so.
//! - The vendors' and the benchmarks' latency of an instruction includes that of a read; `read_modify_write` comes on top of it.
//! - Numbers that are not published follow from the rules in [`derive`].

pub(crate) mod calibration;
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

/// How the names of machine files end.
const ENDINGS: [&str; 2] = ["json", "machine"];

/// Whether that is the name of a machine file.
pub(crate) fn is_file(name: &str) -> bool {
    let ending = Path::new(name).extension();
    ending.is_some_and(|ending| ENDINGS.iter().any(|known| ending == *known))
}

/// `SHAPE@FILE` or `SHAPE@NAME`: the shape, and the machine file or the built-in machine whose costs it gets. None if the text is something
/// else, such as a file with such a name.
pub(crate) fn shape_and_costs(text: &str) -> Option<(&str, &str)> {
    let (shape, file) = text.rsplit_once('@')?;
    let has_costs = is_file(file) || NAMES.contains(&file);
    let is_both = !shape.is_empty() && has_costs && !Path::new(text).exists();
    is_both.then_some((shape, file))
}

fn text_of(file: &str) -> Result<String, MachineError> {
    nearq_topology::text_of(Path::new(file))
        .map_err(|source| MachineError::Unknown { text: file.into(), source })
}

fn refused(file: &str) -> impl FnOnce(String) -> MachineError {
    move |reason| MachineError::File { file: file.into(), reason }
}

/// The machine that a user's file describes. Its shape may be another file, named from the folder that holds this one, or hwloc's XML itself.
pub(crate) fn read(file: &str) -> Result<Machine, MachineError> {
    let text = text_of(file)?;
    let shape = |shape: &str| {
        if shape.starts_with('<') {
            return Topology::from_hwloc_xml(shape);
        }
        let beside = Path::new(file).with_file_name(shape);
        let beside = beside.to_str().filter(|path| Path::new(path).exists());
        Topology::from_description(beside.unwrap_or(shape))
    };
    file::machine(file, &text, shape).map_err(refused(file))
}

/// The machine that the text of a user's file describes.
pub(crate) fn of_text(name: &str, text: &str) -> Result<Machine, MachineError> {
    let shape = |shape: &str| {
        if shape.starts_with('<') {
            Topology::from_hwloc_xml(shape)
        } else {
            Topology::from_synthetic(shape)
        }
    };
    file::machine(name, text, shape).map_err(refused(name))
}

/// A machine of the shape `topology`, called `name`, with the costs of a user's file or of a built-in machine.
pub(crate) fn with_costs_of(
    name: &str,
    topology: Topology,
    file: &str,
) -> Result<Machine, MachineError> {
    let text = match NAMES.iter().position(|known| *known == file) {
        Some(built_in) => FILES[built_in].to_owned(),
        None => text_of(file)?,
    };
    file::costs_for(name, &text, topology).map_err(refused(file))
}
