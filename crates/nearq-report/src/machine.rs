//! The machine that is measured or shown, real or simulated: what `--on` means, the CPUs that may be used, and the pods of
//! every scope.

use crate::Error;
use nearq_platform::{Linux, Placement as _};
use nearq_sim::{MachineError, Simulation};
use nearq_topology::{AffinityScope, CpuSet, DEFAULT_SHARD_SIZE, Limits, Topology, TopologyError};
use std::io::ErrorKind;

/// The machine that the command runs on.
pub const HERE: &str = "here";

/// The machine that is measured or shown.
#[derive(Clone, Debug)]
pub struct Machine {
    name: String,
    topology: Topology,
    usable: CpuSet,
    parallelism: usize,
    limits: Option<Limits>,
    simulated: Option<nearq_sim::Machine>,
    set_up: fn(Simulation) -> Simulation,
}

/// Advice to a user who gave a path to `--on`.
fn remedy(error: &TopologyError) -> &'static str {
    match error {
        TopologyError::Unreadable { source, .. } => match source.kind() {
            ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                "; give a path that exists and that you may read"
            }
            ErrorKind::NotADirectory => {
                "; sysfs: takes a folder; give an hwloc XML file without sysfs:"
            }
            _ => {
                "; give an hwloc XML file, or sysfs:DIR with a folder into which a machine's /sys was unpacked"
            }
        },
        TopologyError::Packed { by: "bzip2" | "gzip" | "xz" | "zstd" | "tar", .. } => {
            "; unpack an archive (tar -xf FILE) and give sysfs:DIR with the folder that holds its sys; unpack a compressed XML file \
             (bunzip2, gunzip, unxz, unzstd) and give the XML file"
        }
        TopologyError::Packed { .. } => {
            "; unpack it and give sysfs:DIR with the folder that holds a machine's sys, or the XML file in it"
        }
        TopologyError::NotSysfs { inside: Some(_), .. } => "; give that folder",
        TopologyError::NotSysfs { .. } => {
            "; give sysfs:DIR with the folder into which a machine's /sys was unpacked (tar -xf FILE for an archive), or / for this machine"
        }
        TopologyError::Xml { .. } => "; such a file is written by `lstopo machine.xml`",
        _ => "",
    }
}

impl Machine {
    /// The names of the simulated machines that are built in.
    pub const NAMES: &'static [&'static str] = nearq_sim::Machine::NAMES;

    /// The machine that `--on` names: [`HERE`], or what [`nearq_sim::Machine::described`] takes.
    pub fn named(name: &str) -> Result<Self, Error> {
        if name.trim() == HERE {
            return Self::here();
        }
        let refused = |error: MachineError| match error {
            MachineError::Unknown { source: TopologyError::Description { text }, .. } => format!(
                "--on {text:?}: no such machine and no such file, and not a description of a machine; give {}",
                Self::allowed()
            ),
            MachineError::Unknown { source, .. } => {
                format!("--on {name:?}: {source}{}", remedy(&source))
            }
            error @ MachineError::File { .. } => format!("--on {error}"),
            error => format!("--on {name:?}: {error}"),
        };
        nearq_sim::Machine::described(name)
            .map(Self::simulated)
            .map_err(|error| Error::input(refused(error)))
    }

    /// This machine, with the CPUs that the process may use.
    pub fn here() -> Result<Self, Error> {
        let machine = Linux::machine()
            .map_err(|error| Error::input(format!("cannot read this machine: {error}")))?;
        let (topology, limits) = (machine.topology, machine.limits);
        let usable = limits.effective().intersection(topology.online());
        Ok(Self {
            name: HERE.into(),
            parallelism: limits.parallelism().min(usable.len()).max(1),
            topology,
            usable,
            limits: Some(limits),
            simulated: None,
            set_up: |simulation| simulation,
        })
    }

    /// The same machine with its devices, if it is this one. Other machines have theirs from their description.
    #[must_use]
    pub fn with_devices(mut self) -> Self {
        if self.name == HERE {
            self.topology = self.topology.with_devices_of("/".as_ref());
        }
        self
    }

    /// A simulated machine, all of whose CPUs that are online may be used.
    pub fn simulated(machine: nearq_sim::Machine) -> Self {
        let topology = machine.topology().clone();
        let usable = topology.online().clone();
        let simulated = Some(machine.clone());
        Self { simulated, name: machine.name().into(), ..Self::of(topology, usable) }
    }

    /// A machine for display only, whose CPUs `usable` may be used.
    pub fn of(topology: Topology, usable: CpuSet) -> Self {
        Self {
            name: "a machine to look at".into(),
            parallelism: usable.len().max(1),
            topology,
            usable,
            limits: None,
            simulated: None,
            set_up: |simulation| simulation,
        }
    }

    /// What `--on` takes, in one line, for messages.
    pub fn allowed() -> String {
        format!(
            "{HERE}, one of {}, the path of a machine file (.json, .machine) or of an hwloc XML file, sysfs:DIR with a folder that holds a \
             machine's /sys, or a synthetic description such as \"pack:2 numa:2 l3:2 core:4 pu:2\"",
            Self::NAMES.join(", ")
        )
    }

    /// What `--on` takes, as a paragraph for the help of a command.
    pub fn help() -> String {
        let names = Self::NAMES.iter().map(|name| format!("  {name}\n"));
        format!(
            "The machine:
  here          this machine
  FILE.json, FILE.machine
                a machine with your own costs, in the format of docs/machines.md;
                `nearq sim calibrate` writes one for this machine
  FILE          an hwloc XML file, as written by `lstopo FILE.xml`
  sysfs:DIR     a folder into which a machine's /sys was unpacked
  \"TYPE:N ...\"  a description in hwloc's synthetic form, outermost first,
                such as \"pack:2 numa:2 l3:2 core:4 pu:2\"
  SHAPE@FILE    one of these shapes with the costs of a machine file or of a
                machine below, such as core:1@opteron-2s
or one of these, simulated with the costs of the real machine:
{}All but `here` are simulated; they have 1 to 4096 CPUs.",
            names.collect::<String>()
        )
    }

    /// Its name: [`HERE`], or the value of `--on`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its shape.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// The CPUs of the machine that may be used.
    pub fn usable(&self) -> &CpuSet {
        &self.usable
    }

    /// The limits of the process, if the machine is the real one.
    pub fn limits(&self) -> Option<&Limits> {
        self.limits.as_ref()
    }

    /// The simulated machine; `None` for the real one.
    pub fn model(&self) -> Option<&nearq_sim::Machine> {
        self.simulated.as_ref()
    }

    /// The simulated machine, ready to run a program for a seed; `None` for the real one.
    pub fn simulation(&self, seed: u64) -> Option<Simulation> {
        let limits = Limits::unlimited(self.usable.clone());
        Some((self.set_up)(Simulation::on(self.simulated.as_ref()?, seed).limits(limits)))
    }

    /// The same machine, but each of its simulations is passed to `set_up` before it runs, for example to use another scheduler.
    #[must_use]
    pub fn setting_up(mut self, set_up: fn(Simulation) -> Simulation) -> Self {
        self.set_up = set_up;
        self
    }

    /// The same machine; if it is simulated, with the noise of [`nearq_sim::Machine::with_noise`].
    #[must_use]
    pub fn with_noise(mut self) -> Self {
        self.simulated = self.simulated.map(nearq_sim::Machine::with_noise);
        self
    }

    /// The same machine; if it is simulated, with the store buffers of [`nearq_sim::Machine::with_store_buffer`].
    #[must_use]
    pub fn with_store_buffer(mut self, entries: u64) -> Self {
        self.simulated = self.simulated.map(|machine| machine.with_store_buffer(entries));
        self
    }

    /// A description of the simulated machine for people: what it is, its clock, and the cost of each operation, one line each. `None` for
    /// the real one.
    pub fn costs(&self) -> Option<String> {
        let machine = self.simulated.as_ref()?;
        let costs = nearq_sim::Costs::NAMES.iter().filter_map(|name| {
            let cost = machine.costs().get(name)?;
            Some(format!("  {:<22} {cost:>12}\n", name.replace('_', " ")))
        });
        Some(format!(
            "Simulated: {}, {} MHz; what things cost (ns; rates in MB/s, sizes in bytes, shares in percent):\n{}",
            machine.about(),
            machine.clock_mhz(),
            costs.collect::<String>()
        ))
    }

    /// How many CPUs the process may keep busy: those it may run on, or fewer if a cgroup's quota is lower.
    pub fn parallelism(&self) -> usize {
        self.parallelism
    }

    /// The CPUs of each pod of `scope`, as far as they may be used.
    pub fn pods(&self, scope: AffinityScope) -> Vec<CpuSet> {
        let pods = self.topology.pods_within(scope, DEFAULT_SHARD_SIZE, &self.usable);
        pods.pods.into_iter().map(|pod| pod.cpus).collect()
    }

    /// Why the pods of a scope are formed as they are, in a few words: `one L3`, `no SMT`, ...
    pub fn count(&self, scope: AffinityScope) -> String {
        let (thing, things) = scope.pod_nouns();
        if scope == AffinityScope::System {
            return format!("the {thing}");
        }
        let pods = self.pods(scope);
        if pods.len() == 1 {
            format!("one {thing} here")
        } else {
            format!("{} {things} here", pods.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_as_many_cpus_as_the_standard_library_sees() {
        let expected = std::thread::available_parallelism().unwrap().get();
        let here = Machine::named("here").unwrap();
        assert_eq!(here.parallelism(), expected);
        assert!(here.limits().is_some() && here.model().is_none() && here.simulation(1).is_none());
        assert_eq!((here.name(), here.costs()), (HERE, None));
    }

    #[test]
    fn pods_hold_usable_cpus_only() {
        let topology = Topology::from_synthetic("l3:2 core:2 pu:2").unwrap();
        let machine = Machine::of(topology, CpuSet::parse_list("0-2").unwrap());
        let lists = |scope| machine.pods(scope).iter().map(CpuSet::to_list).collect::<Vec<_>>();
        assert_eq!(lists(AffinityScope::Cache), ["0-2"]);
        assert_eq!(lists(AffinityScope::Smt), ["0-1", "2"]);
        assert_eq!(machine.count(AffinityScope::Cache), "one last-level cache here");
        assert_eq!(machine.parallelism(), 3);
    }

    #[test]
    fn built_in_and_described_machines_can_be_simulated() {
        let ryzen = Machine::named("ryzen-3900x").unwrap();
        assert_eq!((ryzen.name(), ryzen.parallelism()), ("ryzen-3900x", 24));
        assert_eq!(ryzen.pods(AffinityScope::Cache).len(), 4);
        assert!(ryzen.limits().is_none() && ryzen.model().is_some());
        let costs = ryzen.costs().unwrap();
        assert!(costs.contains("Ryzen 9 3900X") && costs.contains("context switch"), "{costs}");
        let described = Machine::named("numa:2 l3:2 core:3").unwrap();
        assert_eq!((described.name(), described.parallelism()), ("numa:2 l3:2 core:3", 12));
        let cpus = described.simulation(7).unwrap().run(|| nearq_sim::Sim::machine().unwrap());
        assert_eq!(cpus.expect().limits.effective().len(), 12);
    }

    #[test]
    fn invalid_machines_are_refused_with_examples() {
        let refused = |name: &str| {
            let error = Machine::named(name).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            error.to_string()
        };
        for name in ["cray-1", "", "nosuch.xml"] {
            let text = refused(name);
            for part in [name, "here", "ryzen-3900x", "tx7-itanium2", "sysfs:DIR", "pack:2 numa:2"]
            {
                assert!(text.contains(part), "{part} is missing from {text}");
            }
        }
        let folder = std::env::temp_dir().join(format!("nearq-packed-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("inside/sys/devices/system/cpu")).unwrap();
        let path = folder.join("m.tar.bz2");
        std::fs::write(&path, "BZh91AY").unwrap();
        for name in [path.display().to_string(), format!("sysfs:{}", path.display())] {
            let text = refused(&name);
            for part in ["made by bzip2", "tar -xf", "sysfs:DIR", "XML"] {
                assert!(text.contains(part), "{part} is missing from {text}");
            }
            assert!(!text.contains("that exists and that you may read"), "{text}");
        }
        let text = refused(&folder.display().to_string());
        assert!(text.ends_with("inside does; give that folder"), "{text}");
        std::fs::remove_dir_all(&folder).unwrap();
        let text = refused("/dev/zero");
        assert!(
            text.contains("not a regular file; give an hwloc XML file, or sysfs:DIR"),
            "{text}"
        );
        assert!(refused("sysfs:/etc/passwd").contains("sysfs: takes a folder"));
        assert!(refused("/nonexistent").contains("that exists and that you may read"));
        assert!(refused("/dev/zero.json").contains("that exists and that you may read"));
        assert!(refused("pack:8 core:1024").contains("4096"));
        assert!(refused("core:0").contains("core:0"));
    }
}
