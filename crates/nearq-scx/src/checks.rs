//! Checks what a machine must have for the scheduler, before anything is done: one line says what is missing and what to do.

use std::fmt::Display;
use std::fs;
use std::path::Path;

use nearq_scx_policy::layout::Nq;
use nearq_topology::Topology;

use crate::load;
use crate::output::Failure;

const SCHED_EXT: &str = "sys/kernel/sched_ext";
const BTF: &str = "sys/kernel/btf/vmlinux";

/// Linux's numbers of capabilities.
const SYS_ADMIN: u32 = 21;
const PERFMON: u32 = 38;
const BPF: u32 = 39;

/// The name of the scheduler that is loaded into the kernel; `None` if the kernel's own scheduler runs.
pub(crate) fn loaded(root: &Path) -> Option<String> {
    let read = |name: &str| fs::read_to_string(root.join(SCHED_EXT).join(name)).ok();
    let state = read("state")?;
    if state.trim() == "disabled" {
        return None;
    }
    let name = read("root/ops").map(|name| name.trim().to_owned());
    Some(name.filter(|name| !name.is_empty()).unwrap_or_else(|| state.trim().to_owned()))
}

/// Whether our scheduler is loaded.
pub(crate) fn is_loaded(root: &Path) -> bool {
    loaded(root).is_some_and(|name| name.starts_with(load::NAME))
}

/// Whether the kernel below `root` can load a scheduler, and this process may.
pub(crate) fn kernel(root: &Path) -> Result<(), Failure> {
    let version = fs::read_to_string(root.join("proc/sys/kernel/osrelease")).unwrap_or_default();
    let version = version.trim();
    if !root.join(SCHED_EXT).is_dir() {
        return Err(Failure::input(format!(
            "this kernel ({version}) cannot load schedulers (/{SCHED_EXT} does not exist); boot Linux 6.12 or later, built with CONFIG_SCHED_CLASS_EXT=y"
        )));
    }
    if !root.join(BTF).exists() {
        return Err(Failure::input(format!(
            "this kernel ({version}) does not describe itself (/{BTF} does not exist); boot one that was built with CONFIG_DEBUG_INFO_BTF=y"
        )));
    }
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let lacking = lacking(effective(&status));
    if !lacking.is_empty() {
        return Err(Failure::input(format!(
            "loading a scheduler needs privileges: run it as root (this process lacks {})",
            lacking.join(" and ")
        )));
    }
    Ok(())
}

/// Whether no other scheduler is loaded. Our own scheduler does not count here: the process that has it loaded holds the lock.
pub(crate) fn is_free(root: &Path) -> Result<(), Failure> {
    match loaded(root) {
        Some(name) => Err(Failure::input(format!(
            "another scheduler is loaded: {name}; end the program that loaded it first"
        ))),
        None => Ok(()),
    }
}

/// The machine below `root`. An error if it cannot be read completely: the scheduler would place all tasks by guesses about the rest.
pub(crate) fn machine(root: &Path) -> Result<Topology, Failure> {
    let refused = |what: &dyn Display| {
        Failure::input(format!(
            "this machine can be read only in part: {what}; make the rest readable (mount /sys, raise the limit on open files with ulimit -n, \
             run it as root and outside of containers), and start it again"
        ))
    };
    let machine = Topology::from_sysfs(root).map_err(|error| refused(&error))?;
    match machine.warning() {
        None => Ok(machine),
        Some(warning) => Err(refused(&warning)),
    }
}

/// Checks that the scheduler can be of use on this machine.
pub(crate) fn nodes(nq: &Nq, anyway: bool) -> Result<(), Failure> {
    if nq.nodes > 1 || anyway {
        return Ok(());
    }
    Err(Failure::input(
        "this machine has one node: everything is at home already, and there is nothing to gain; --anyway loads the scheduler nevertheless",
    ))
}

/// The effective capabilities of a process, from its `/proc/PID/status`.
fn effective(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The capabilities that are missing.
fn lacking(mask: u64) -> Vec<&'static str> {
    let has = |bit: u32| mask >> bit & 1 != 0;
    // The older, general capability includes both.
    if has(SYS_ADMIN) {
        return Vec::new();
    }
    let needed = [(BPF, "CAP_BPF"), (PERFMON, "CAP_PERFMON")];
    needed.into_iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::Files;

    const ROOT: (&str, &str) = ("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
    const STATE: (&str, &str) = ("sys/kernel/sched_ext/state", "disabled\n");
    const TYPES: (&str, &str) = ("sys/kernel/btf/vmlinux", "");

    #[test]
    fn missing_kernel_features_are_named_with_a_remedy() {
        let old = Files::new("old", &[("proc/sys/kernel/osrelease", "6.1.0-49-amd64\n"), ROOT]);
        let text = kernel(&old.0).unwrap_err().to_string();
        assert!(text.contains("6.1.0-49-amd64") && text.contains("SCHED_CLASS_EXT=y"), "{text}");
        let bare = Files::new("bare", &[STATE, ROOT]);
        let text = kernel(&bare.0).unwrap_err().to_string();
        assert!(text.contains("CONFIG_DEBUG_INFO_BTF=y"), "{text}");
        let user = ("proc/self/status", "CapEff:\t0000000000000000\n");
        let user = Files::new("user", &[STATE, TYPES, user]);
        let text = kernel(&user.0).unwrap_err().to_string();
        assert!(text.contains("as root (this process lacks CAP_BPF and CAP_PERFMON)"), "{text}");
        let fine = Files::new("fine", &[STATE, TYPES, ROOT]);
        assert_eq!((kernel(&fine.0), is_free(&fine.0)), (Ok(()), Ok(())));
    }

    #[test]
    fn privilege_is_root_or_both_parts() {
        let mask = |bits: &[u32]| bits.iter().fold(0, |mask, bit| mask | 1 << bit);
        assert!(lacking(mask(&[SYS_ADMIN])).is_empty());
        assert!(lacking(mask(&[BPF, PERFMON])).is_empty());
        assert_eq!(lacking(mask(&[BPF])), ["CAP_PERFMON"]);
    }

    #[test]
    fn another_scheduler_is_named() {
        let name = ("sys/kernel/sched_ext/root/ops", "rusty_1.1.4_x86_64\n");
        let other = Files::new("other", &[("sys/kernel/sched_ext/state", "enabled\n"), name]);
        assert!(is_free(&other.0).unwrap_err().to_string().contains("rusty_1.1.4"));
        assert!(!is_loaded(&other.0));
        let name = ("sys/kernel/sched_ext/root/ops", "nearq_home\n");
        let ours = Files::new("ours", &[("sys/kernel/sched_ext/state", "enabled\n"), name]);
        assert!(is_loaded(&ours.0));
        let between = Files::new("between", &[("sys/kernel/sched_ext/state", "disabling\n")]);
        assert_eq!(loaded(&between.0), Some("disabling".to_owned()));
    }

    #[test]
    fn a_partly_unreadable_machine_is_refused_with_the_cause_and_a_remedy() {
        const CPUS: &str = "sys/devices/system/cpu";
        let files = ["possible", "present", "online"].map(|list| format!("{CPUS}/{list}"));
        let files = files.each_ref().map(|file| (file.as_str(), "0-1\n"));
        let whole = Files::new("whole", &files);
        assert_eq!(machine(&whole.0).map(|machine| machine.cpus().len()), Ok(2));
        // The file exists, and even root cannot read it: it is a link to itself.
        let part = Files::new("part", &files);
        let core = part.0.join(CPUS).join("cpu1/topology/core_cpus");
        fs::create_dir_all(core.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(&core, &core).unwrap();
        let text = machine(&part.0).unwrap_err().to_string();
        let expected = [
            "cpu1/topology/core_cpus: Too many levels of symbolic links",
            "make the rest readable",
        ];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
        let text = machine(Path::new("/nonexistent")).unwrap_err().to_string();
        let expected = ["/nonexistent: No such file", "mount /sys"];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn one_node_has_nothing_to_gain() {
        let machine = Topology::from_synthetic("core:2").unwrap();
        let nq = nearq_scx_policy::describe(&machine, machine.online()).unwrap();
        assert!(nodes(&nq, false).unwrap_err().to_string().contains("nothing to gain"));
        assert_eq!(nodes(&nq, true), Ok(()));
    }
}
