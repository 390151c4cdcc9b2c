//! `--on MACHINE`: what the help of the commands says about it.

use nearq_experiments::Machine;

/// What `--on` takes, for the help of a command.
pub(crate) fn on_help() -> String {
    let names = Machine::NAMES.iter().map(|name| format!("  {name}\n"));
    format!(
        "The machine:
  here          this machine
  FILE          an hwloc XML file, as written by `lstopo FILE.xml`
  sysfs:DIR     a folder that a machine's /sys was unpacked into
  \"TYPE:N ...\"  a description in hwloc's synthetic form, outermost first,
                such as \"pack:2 numa:2 l3:2 core:4 pu:2\"
or one of these, simulated with the costs of the real one:
{}All but `here` are simulated; they have 1 to 4096 CPUs.",
        names.collect::<String>()
    )
}
