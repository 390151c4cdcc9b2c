//! The conditions under which an experiment ran, without which its figures mean little.

use crate::usage::cpu_time_of_all;
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The conditions under which an experiment ran. What cannot be determined is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// The kernel's release.
    pub kernel: Option<String>,
    /// The name of the CPU.
    pub cpu_model: Option<String>,
    /// How many CPUs this process may use.
    pub cpus: usize,
    /// The frequency governor of the first CPU.
    pub governor: Option<String>,
    /// Whether the clock may go above its nominal rate.
    pub boost: Option<bool>,
    /// The share of all CPUs' time that the host gave to other guests during the run, in percent.
    pub steal_percent: Option<f64>,
    /// The share of all CPUs' time that other programs used during the run, in percent: above a few percent, the figures say as much about
    /// those programs.
    pub others_percent: Option<f64>,
    /// The load averages (1, 5 and 15 minutes) when the run began.
    pub load: Option<[f64; 3]>,
}

/// Reads the conditions at the start of a run and completes them at its end.
#[derive(Debug)]
pub struct Watch {
    root: PathBuf,
    environment: Environment,
    start: Option<CpuTime>,
    own_time: Duration,
}

impl Watch {
    /// Begins a run on this machine, which may use `cpus`.
    pub fn start(cpus: usize) -> Self {
        Self::start_at(Path::new("/"), cpus)
    }

    /// The same with a root other than `/`.
    pub fn start_at(root: &Path, cpus: usize) -> Self {
        let text = |path: &str| read(root, path);
        let environment = Environment {
            kernel: text("proc/sys/kernel/osrelease"),
            cpu_model: text("proc/cpuinfo").and_then(|text| cpu_model(&text)),
            cpus,
            governor: text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            boost: boost(root),
            steal_percent: None,
            others_percent: None,
            load: text("proc/loadavg").and_then(|text| load(&text)),
        };
        Self {
            root: root.into(),
            environment,
            start: CpuTime::read(root),
            own_time: cpu_time_of_all(),
        }
    }

    /// Ends the run.
    pub fn finish(self) -> Environment {
        let end = CpuTime::read(&self.root);
        let both = self.start.zip(end);
        let steal_percent = both.and_then(|(start, end)| end.steal_percent_since(&start));
        let own_time = cpu_time_of_all().saturating_sub(self.own_time);
        let others_percent =
            both.and_then(|(start, end)| end.others_percent_since(&start, own_time));
        Environment { steal_percent, others_percent, ..self.environment }
    }
}

fn read(root: &Path, path: &str) -> Option<String> {
    let text = fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// x86 gives a name; arm64 gives numbers, which are better than nothing.
fn cpu_model(cpuinfo: &str) -> Option<String> {
    let field = |name: &str| {
        let line = cpuinfo
            .lines()
            .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    };
    field("model name").or_else(|| {
        Some(format!("implementer {}, part {}", field("CPU implementer")?, field("CPU part")?))
    })
}

fn boost(root: &Path) -> Option<bool> {
    if let Some(boost) = read(root, "sys/devices/system/cpu/cpufreq/boost") {
        return Some(boost == "1");
    }
    read(root, "sys/devices/system/cpu/intel_pstate/no_turbo").map(|off| off == "0")
}

fn load(loadavg: &str) -> Option<[f64; 3]> {
    let mut fields = loadavg.split_whitespace().map(str::parse);
    Some([fields.next()?.ok()?, fields.next()?.ok()?, fields.next()?.ok()?])
}

/// The unit of `/proc/stat`, the same on every Linux machine.
const TICKS_PER_SECOND: f64 = 100.0;
/// Other programs that use more than this share of the CPUs are worth a warning, in percent.
const DISTURBING: f64 = 3.0;

/// Ticks of all CPUs together, from the first line of `/proc/stat`.
#[derive(Clone, Copy, Debug)]
struct CpuTime {
    total: u64,
    /// Waiting for disks is left out, because it leaves the CPU to others.
    idle: u64,
    steal: u64,
}

impl CpuTime {
    fn read(root: &Path) -> Option<Self> {
        let text = read(root, "proc/stat")?;
        // user nice system idle iowait irq softirq steal; guest time, which follows, is in user already.
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<u64> =
            line.split_whitespace().take(8).map_while(|field| field.parse().ok()).collect();
        Some(Self { total: ticks.iter().sum(), idle: ticks[3] + ticks[4], steal: *ticks.get(7)? })
    }

    /// The share of CPU time that other processes used: the share without this process, the host and idle time.
    fn others_percent_since(&self, start: &Self, own_time: Duration) -> Option<f64> {
        let total = self.total.checked_sub(start.total).filter(|&total| total > 0)?;
        let unused = self.idle.saturating_sub(start.idle) + self.steal.saturating_sub(start.steal);
        let own_time = own_time.as_secs_f64() * TICKS_PER_SECOND;
        Some(((total.saturating_sub(unused) as f64 - own_time) / total as f64 * 100.0).max(0.0))
    }

    fn steal_percent_since(&self, start: &Self) -> Option<f64> {
        let total = self.total.checked_sub(start.total).filter(|&total| total > 0)?;
        Some(self.steal.saturating_sub(start.steal) as f64 / total as f64 * 100.0)
    }
}

impl Environment {
    /// The conditions on a simulated machine, which are the same each time: the machine that it represents, and its CPUs.
    pub fn simulated(about: &str, cpus: usize) -> Self {
        Self {
            kernel: None,
            cpu_model: Some(format!("{about}, simulated")),
            cpus,
            governor: None,
            boost: None,
            steal_percent: None,
            others_percent: None,
            load: None,
        }
    }

    /// The disturbances of the run, if they were large enough to make the figures doubtful.
    pub fn warning(&self) -> Option<String> {
        let percent = self.others_percent.filter(|&percent| percent > DISTURBING)?;
        Some(format!("other programs used {percent:.0} % of the CPUs meanwhile"))
    }

    /// One or two lines for the top of a table.
    pub fn describe(&self) -> String {
        let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
        let boost = self.boost.map_or("unknown", |on| if on { "on" } else { "off" });
        let load = self
            .load
            .map_or_else(|| "unknown".into(), |[one, five, _]| format!("{one:.2} {five:.2}"));
        let steal = self
            .steal_percent
            .map_or_else(|| "unknown".into(), |percent| format!("{percent:.2} %"));
        let others = self.warning().map_or_else(String::new, |warning| {
            format!("\n{warning}: run it again when they do not")
        });
        format!(
            "{}, {} {}, Linux {}\ngovernor {}, boost {boost}, load before the run {load}, stolen by the host {steal}{others}",
            known(&self.cpu_model),
            self.cpus,
            if self.cpus == 1 { "CPU" } else { "CPUs" },
            known(&self.kernel),
            known(&self.governor),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A temporary root folder with the given files, removed at the end.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = Self(
                std::env::temp_dir()
                    .join(format!("nearq-environment-{name}-{}", std::process::id())),
            );
            for (path, text) in files {
                root.write(path, text);
            }
            root
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.0.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn the_environment_is_read_from_the_machine() {
        let root = Root::new(
            "full",
            &[
                ("proc/sys/kernel/osrelease", "6.18.44\n"),
                (
                    "proc/cpuinfo",
                    "processor\t: 0\nmodel\t\t: 2\nmodel name\t: AMD EPYC\n\nmodel name\t: other\n",
                ),
                ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "performance\n"),
                ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
                ("proc/loadavg", "0.50 1.25 2.00 1/86 4611\n"),
                ("proc/stat", "cpu  100 0 100 700 50 0 0 50 10 0\ncpu0 1 2 3\n"),
            ],
        );
        let watch = Watch::start_at(&root.0, 2);
        root.write("proc/stat", "cpu  150 0 110 720 50 0 0 70 10 0\n");
        let environment = watch.finish();
        assert_eq!(environment.kernel.as_deref(), Some("6.18.44"));
        assert_eq!(environment.cpu_model.as_deref(), Some("AMD EPYC"));
        assert_eq!(environment.governor.as_deref(), Some("performance"));
        assert_eq!(environment.boost, Some(false));
        assert_eq!(environment.load, Some([0.5, 1.25, 2.0]));
        assert_eq!(environment.steal_percent, Some(20.0));
    }

    #[test]
    fn others_time_excludes_own_idle_and_stolen_time() {
        let start = CpuTime { total: 1000, idle: 500, steal: 10 };
        let end = CpuTime { total: 1400, idle: 600, steal: 30 };
        let others = |own_time| end.others_percent_since(&start, Duration::from_millis(own_time));
        assert_eq!(others(1000), Some(45.0));
        assert_eq!(others(2900), Some(0.0), "clock differences give no negative share");
        let environment = Environment { others_percent: others(1000), ..Watch::start(1).finish() };
        assert!(environment.describe().contains("other programs used 45 %"));
    }

    #[test]
    fn an_unreadable_machine_is_described_as_unknown() {
        let root =
            Root::new("empty", &[("proc/stat", "intr 1 2 3\n"), ("proc/loadavg", "nonsense")]);
        let environment = Watch::start_at(&root.0, 1).finish();
        assert_eq!(
            (environment.steal_percent, environment.load, environment.boost),
            (None, None, None)
        );
        assert!(
            environment.describe().starts_with("unknown, 1 CPU, Linux unknown\n"),
            "{}",
            environment.describe()
        );
    }

    #[test]
    fn arm64_cpus_are_described_by_number() {
        let text = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd4f\n";
        assert_eq!(cpu_model(text).as_deref(), Some("implementer 0x41, part 0xd4f"));
    }
}
