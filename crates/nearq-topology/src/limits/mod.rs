//! What this process may use of the machine: affinity, online CPUs, cpuset and CPU quota; and which of its CPUs are isolated.

mod cgroup;

use crate::CpuSet;
use crate::files::{CPU_FOLDER, Files, Roots};
use crate::isolated;
use crate::unread::{self, Unread};
use std::path::{Path, PathBuf};

/// What this process may use of the machine, and why.
///
/// ```
/// # mod nearq { pub use nearq_topology as topology; }
/// use nearq::topology::{CpuSet, Limits, Quota};
///
/// let mut limits = Limits::unlimited(CpuSet::all(8));
/// limits.cpuset = Some("0-5".parse()?);
/// limits.quota = Some(Quota::new(2.5, "/sys/fs/cgroup/cpu.max"));
/// assert_eq!(limits.effective().to_list(), "0-5");
/// assert_eq!(limits.parallelism(), 3);
/// # Ok::<(), nearq::topology::ParseError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Limits {
    /// The affinity mask of the process. Empty if not known.
    pub affinity: CpuSet,
    /// The CPUs of the cpuset of the process's cgroup, if there is one.
    pub cpuset: Option<CpuSet>,
    /// The CPUs that are online. Empty if not known.
    pub online: CpuSet,
    /// The smallest CPU quota of the cgroup and all its visible parents, if there is one.
    pub quota: Option<Quota>,
    /// The CPUs that the system keeps free of work that is bound to no CPU: those of `isolcpus=` and `nohz_full=` on the kernel's command
    /// line, and those of cpuset partitions of the kind `isolated`, if they are visible. The process may use them:
    /// [`housekeeping`](Self::housekeeping) leaves them out.
    pub isolated: CpuSet,
    notes: Vec<String>,
    unread: Vec<Unread>,
}

/// A limit on CPU time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Quota {
    /// How many seconds of CPU time may be used in each second: 1.5 is as much as one and a half CPUs deliver.
    pub cpus: f64,
    /// The file that sets the limit.
    pub source: PathBuf,
}

impl Quota {
    /// A quota of `cpus` seconds of CPU time in each second, which the file `source` sets.
    pub fn new(cpus: f64, source: impl Into<PathBuf>) -> Self {
        Self { cpus, source: source.into() }
    }
}

impl Limits {
    /// The limits of a process that may use all of `cpus`, without a cpuset and without a quota.
    pub fn unlimited(cpus: CpuSet) -> Self {
        Self { affinity: cpus.clone(), online: cpus, ..Self::default() }
    }

    /// Reads the limits of this process from the files below `root`, the folder that holds `sys` and `proc`: `/` on a live machine.
    /// `affinity` is the process's mask as the kernel reports it, empty if not known. If files contradict the mask, the mask counts, and
    /// [`notes`](Self::notes) says so.
    ///
    /// This function does not fail: a limit that cannot be read is unknown, and [`notes`](Self::notes) says so; if a file exists and cannot
    /// be read, [`unread`](Self::unread) lists it too.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Limits};
    /// use std::path::Path;
    ///
    /// let limits = Limits::read(Path::new("/"), CpuSet::new());
    /// assert!(limits.parallelism() >= 1);
    /// ```
    pub fn read(root: &Path, affinity: CpuSet) -> Self {
        let roots = roots_of(root);
        let mut files = Files::default();
        let path = online_file(&roots);
        let online = files.list(&path).unwrap_or_default();
        if online.is_empty() {
            files.note(format!("{} does not say which CPUs are online", path.display()));
        }
        let found = cgroup::read(&roots, &mut files);
        let isolated = &isolated::of_machine(&roots.sys, &mut files) | &found.isolated;
        let mut limits = Self {
            affinity,
            cpuset: found.cpuset,
            online,
            quota: found.quota,
            isolated,
            unread: std::mem::take(&mut files.unread),
            notes: files.into_notes(),
        };
        limits.trust_affinity(&path);
        let (_, ignored) = limits.settle();
        limits.notes.extend(ignored);
        limits
    }

    /// The mask is the kernel's answer: its CPUs are online and in the cpuset, whatever the files say. The files may be made up for a
    /// container, or belong to another group.
    fn trust_affinity(&mut self, online: &Path) {
        let hidden = &self.affinity - &self.online;
        if !hidden.is_empty() && !self.online.is_empty() {
            self.notes.push(format!(
                "{} leaves out CPUs {hidden}, which the kernel allows this process: it is a container's own list",
                online.display()
            ));
            self.online = &self.online | &hidden;
        }
        if let Some(cpuset) = self.cpuset.take_if(|cpuset| !self.affinity.is_subset(cpuset)) {
            self.notes.push(format!(
                "the cpuset ({cpuset}) leaves out CPUs {}, which the kernel allows this process: the cpuset is ignored",
                &self.affinity - &cpuset
            ));
        }
    }

    /// Reads the limits again: `self` is the earlier reading. If a file that could be read then cannot be read now, the cpuset, the quota
    /// and the isolated CPUs stay as they were, and so do the online CPUs if their list is the file that cannot be read: a process that is temporarily
    /// short of descriptors must not conclude that it has no limits.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Limits};
    /// use std::path::Path;
    ///
    /// let before = Limits::read(Path::new("/"), CpuSet::new());
    /// let now = before.reread(Path::new("/"), CpuSet::new());
    /// assert!(now.parallelism() >= 1);
    /// ```
    #[must_use]
    pub fn reread(&self, root: &Path, affinity: CpuSet) -> Self {
        let new = Self::read(root, affinity);
        if unread::is_as_whole(&new.unread, &self.unread) {
            return new;
        }
        let online = if new.online.is_empty() { &self.online } else { &new.online };
        let mut kept = Self { affinity: new.affinity, online: online.clone(), ..self.clone() };
        kept.trust_affinity(&online_file(&roots_of(root)));
        kept
    }

    /// What exists and could not be read, by error number. If it is not empty, there may be limits that are not known.
    pub fn unread(&self) -> &[Unread] {
        &self.unread
    }

    /// The CPUs that the process may run on: those of the affinity mask that are online and in the cpuset.
    ///
    /// If that leaves none, because the files are older than the mask or come from elsewhere, the cpuset is
    /// ignored, then the online CPUs. Empty only if nothing at all is known.
    pub fn effective(&self) -> CpuSet {
        self.settle().0
    }

    /// The CPUs for work that is bound to no CPU: the [effective](Self::effective) CPUs that are not [isolated](Self::isolated). If all are
    /// isolated, all: the process was put there on purpose.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Limits};
    ///
    /// let mut limits = Limits::unlimited(CpuSet::all(8));
    /// limits.isolated = "4-7".parse()?;
    /// assert_eq!(limits.housekeeping().to_list(), "0-3");
    /// limits.affinity = "6-7".parse()?;
    /// assert_eq!(limits.housekeeping().to_list(), "6-7");
    /// # Ok::<(), nearq::topology::ParseError>(())
    /// ```
    pub fn housekeeping(&self) -> CpuSet {
        let effective = self.effective();
        let rest = &effective - &self.isolated;
        if rest.is_empty() { effective } else { rest }
    }

    /// The effective CPUs, and a line for each limit that had to be left out.
    fn settle(&self) -> (CpuSet, Vec<String>) {
        let mut effective = CpuSet::new();
        let mut ignored = Vec::new();
        let cpuset = self.cpuset.as_ref();
        let all = [
            ("affinity mask", Some(&self.affinity)),
            ("online CPUs", Some(&self.online)),
            ("cpuset", cpuset),
        ];
        for (what, limit) in all {
            let Some(limit) = limit.filter(|limit| !limit.is_empty()) else {
                continue;
            };
            let both = &effective & limit;
            if effective.is_empty() {
                effective = limit.clone();
            } else if both.is_empty() {
                ignored.push(format!(
                    "the {what} ({limit}) would leave no CPU of {effective}: it is ignored"
                ));
            } else {
                effective = both;
            }
        }
        (effective, ignored)
    }

    /// How many threads can run at once: the number of [effective](Self::effective) CPUs, or the CPU quota rounded up if that is less. At
    /// least 1.
    pub fn parallelism(&self) -> usize {
        let cpus = self.effective().len();
        let quota = self.quota.as_ref().map_or(usize::MAX, |quota| quota.cpus.ceil() as usize);
        cpus.min(quota).max(1)
    }

    /// What could not be read, and which limits contradict each other: a sentence for each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// What the process may use, and why: a line for each limit, then a line that says what follows from them. Isolated CPUs have a line if
    /// there are any.
    ///
    /// ```
    /// # mod nearq { pub use nearq_topology as topology; }
    /// use nearq::topology::{CpuSet, Limits};
    ///
    /// let lines = Limits::unlimited(CpuSet::all(2)).explain();
    /// assert_eq!(lines.last().unwrap(), "so this process may use CPUs 0-1 (2), 2 threads at once");
    /// ```
    pub fn explain(&self) -> Vec<String> {
        let set = |cpus: &CpuSet| match cpus.len() {
            0 => "not known".to_owned(),
            1 => format!("CPU {cpus}"),
            count => format!("CPUs {cpus} ({count})"),
        };
        let mut lines = vec![
            format!("affinity mask: {}", set(&self.affinity)),
            format!("online: {}", set(&self.online)),
        ];
        lines.push(format!("cpuset: {}", self.cpuset.as_ref().map_or("none".into(), set)));
        lines.push(match &self.quota {
            None => "CPU quota: none".into(),
            Some(quota) => {
                format!("CPU quota: {:.2} CPUs, by {}", quota.cpus, quota.source.display())
            }
        });
        if !self.isolated.is_empty() {
            lines.push(format!(
                "isolated: {}; unbound queues use {}",
                set(&self.isolated),
                set(&self.housekeeping())
            ));
        }
        let (effective, ignored) = self.settle();
        lines.extend(ignored);
        let threads = self.parallelism();
        let plural = if threads == 1 { "thread" } else { "threads" };
        lines.push(format!(
            "so this process may use {}, {threads} {plural} at once",
            set(&effective)
        ));
        lines
    }
}

fn roots_of(root: &Path) -> Roots {
    Roots::find(root).unwrap_or_else(|_| Roots::below(root))
}

/// The list of the CPUs that are online.
fn online_file(roots: &Roots) -> PathBuf {
    roots.sys.join(CPU_FOLDER).join("online")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(affinity: &str, online: &str, cpuset: Option<&str>, quota: Option<f64>) -> Limits {
        Limits {
            affinity: affinity.parse().unwrap(),
            online: online.parse().unwrap(),
            cpuset: cpuset.map(|list| list.parse().unwrap()),
            quota: quota.map(|cpus| Quota::new(cpus, "/sys/fs/cgroup/cpu.max")),
            ..Limits::default()
        }
    }

    #[test]
    fn effective_is_what_all_limits_leave() {
        for (affinity, online, cpuset, effective) in [
            ("0-7", "0-3", Some("2-9"), "2-3"),
            ("0-7", "0-3", None, "0-3"),
            ("0-7", "0-3", Some(""), "0-3"),
            ("0-1", "0-3", Some("2-3"), "0-1"),
            ("8-9", "0-3", None, "8-9"),
            ("", "0-3", Some("1"), "1"),
            ("", "", Some("1"), "1"),
            ("", "", None, ""),
        ] {
            let found = limits(affinity, online, cpuset, None).effective();
            assert_eq!(found.to_list(), effective, "{affinity} {online} {cpuset:?}");
        }
    }

    #[test]
    fn parallelism_is_the_smaller_of_cpus_and_quota_and_at_least_one() {
        for (quota, threads) in
            [(None, 4), (Some(1.5), 2), (Some(0.1), 1), (Some(64.0), 4), (Some(4.0), 4)]
        {
            assert_eq!(limits("0-3", "0-3", None, quota).parallelism(), threads, "{quota:?}");
        }
        assert_eq!(Limits::default().parallelism(), 1);
    }

    #[test]
    fn isolated_cpus_are_left_out_unless_nothing_would_be_left() {
        for (affinity, isolated, housekeeping) in [
            ("0-7", "4-9", "0-3"),
            ("4-5", "4-7", "4-5"),
            ("0-7", "", "0-7"),
            ("0-7", "0-63", "0-7"),
        ] {
            let mut limits = limits(affinity, "0-7", None, None);
            limits.isolated = isolated.parse().unwrap();
            assert_eq!(limits.housekeeping().to_list(), housekeeping, "{affinity} {isolated}");
            assert_eq!(limits.effective().to_list(), affinity, "they may be used");
        }
        let mut isolating = limits("0-7", "0-7", None, None);
        isolating.isolated = "7".parse().unwrap();
        let line = "isolated: CPU 7; unbound queues use CPUs 0-6 (7)";
        assert!(isolating.explain().contains(&line.to_owned()), "{:?}", isolating.explain());
    }

    #[test]
    fn every_limit_is_explained() {
        assert_eq!(
            limits("0-7", "0-3", Some("8"), Some(1.5)).explain(),
            [
                "affinity mask: CPUs 0-7 (8)",
                "online: CPUs 0-3 (4)",
                "cpuset: CPU 8",
                "CPU quota: 1.50 CPUs, by /sys/fs/cgroup/cpu.max",
                "the cpuset (8) would leave no CPU of 0-3: it is ignored",
                "so this process may use CPUs 0-3 (4), 2 threads at once",
            ]
        );
    }
}
