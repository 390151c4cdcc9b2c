//! Whether the machine was quiet enough: what disturbed the measurement, and when that is too much.
//!
//! Four signs are read: time that the host took (`/proc/stat`), time that other programs took (the same, less this process), time during which
//! threads waited for a CPU (`/proc/pressure/cpu`), and samples during which the measuring thread lost its CPU. The fifth is drift: the
//! difference of two measurements of a quantity, between which all other quantities are measured.

use nearq_report::{Environment, Watch};
use nearq_sim::{Measurement, Noise};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The most of any of these that a file may have which is not marked, in percent.
pub(super) const MOST_PERCENT: f64 = 5.0;
/// Differences of less than this do not count as drift, in nanoseconds: costs are whole numbers of them.
const LEAST_NS: f64 = 1.0;

/// Watches the machine during a measurement.
#[derive(Debug)]
pub(super) struct Watcher {
    root: PathBuf,
    watch: Watch,
    start: Instant,
    /// Time with a CPU for each thread that measured, and the waiting during it.
    roomy: Duration,
    waited: Option<Duration>,
}

impl Watcher {
    pub(super) fn start(root: &Path, cpus: usize) -> Self {
        Self {
            root: root.into(),
            watch: Watch::start_at(root, cpus),
            start: Instant::now(),
            roomy: Duration::ZERO,
            waited: pressure(root).map(|_| Duration::ZERO),
        }
    }

    /// Does a measurement that needs no more threads than there are CPUs. Then a thread that waits for a CPU is a sign of noise.
    pub(super) fn roomy<R>(&mut self, measure: impl FnOnce() -> R) -> R {
        let (start, before) = (Instant::now(), pressure(&self.root));
        let result = measure();
        self.roomy += start.elapsed();
        let waited =
            pressure(&self.root).zip(before).map(|(now, before)| now.saturating_sub(before));
        self.waited = self.waited.zip(waited).map(|(all, one)| all + one);
        result
    }

    /// Ends; `preempted` of `samples` samples were disturbed.
    pub(super) fn finish(self, preempted: usize, samples: usize) -> (Noise, Environment, Duration) {
        let environment = self.watch.finish();
        let share =
            |part: Duration| part.as_secs_f64() / self.roomy.as_secs_f64().max(1e-9) * 100.0;
        let noise = Noise {
            steal_percent: environment.steal_percent,
            others_percent: environment.others_percent,
            pressure_percent: self.waited.map(share),
            preempted_percent: preempted as f64 / samples.max(1) as f64 * 100.0,
        };
        (noise, environment, self.start.elapsed())
    }
}

/// How long some thread has waited for a CPU, since the machine was started.
fn pressure(root: &Path) -> Option<Duration> {
    let text = fs::read_to_string(root.join("proc/pressure/cpu")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let total = line.split_whitespace().find_map(|field| field.strip_prefix("total="))?;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// Why the machine was too noisy, a line for each reason; none if it was quiet. Of the measurements, those of `names` count.
pub(super) fn reasons(noise: &Noise, measurements: &[Measurement], names: &[&str]) -> Vec<String> {
    let signs = [
        (noise.steal_percent, "the host gave this share of the CPU time to others"),
        (noise.others_percent, "other programs used this share of the CPU time"),
        (noise.pressure_percent, "threads waited for a CPU during this share of the time"),
        (
            Some(noise.preempted_percent),
            "the measuring thread lost its CPU during this share of the samples",
        ),
    ];
    let mut reasons: Vec<String> = signs
        .into_iter()
        .filter_map(|(percent, what)| {
            Some((percent.filter(|percent| *percent > MOST_PERCENT)?, what))
        })
        .map(|(percent, what)| format!("{what}: {percent:.1} %"))
        .collect();
    let counted = measurements.iter().filter(|one| names.contains(&one.name.as_str()));
    reasons.extend(counted.filter(|one| has_drifted(one)).map(|measurement| {
        let ([first, again], unit) = (measurement.medians, &measurement.unit);
        let percent = measurement.drift_percent();
        format!(
            "{} drifted by {percent:.0} %: {first:.1} {unit}, then {again:.1} {unit}",
            measurement.name
        )
    }));
    reasons
}

/// Whether the two measurements of a quantity differ too much.
pub(super) fn has_drifted(measurement: &Measurement) -> bool {
    let [first, again] = measurement.medians;
    let counts = measurement.unit != "ns" || (again - first).abs() > LEAST_NS;
    counts && measurement.drift_percent() > MOST_PERCENT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measurement(name: &str, medians: [f64; 2]) -> Measurement {
        Measurement {
            name: name.into(),
            unit: "ns".into(),
            quartiles: [medians[0]; 3],
            medians,
            samples: 10,
        }
    }

    #[test]
    fn a_quiet_machine_has_no_reasons_and_each_sign_of_noise_is_one() {
        let quiet = Noise {
            steal_percent: Some(0.0),
            others_percent: Some(4.9),
            pressure_percent: None,
            preempted_percent: 5.0,
        };
        let steady = [measurement("a", [100.0, 104.0]), measurement("short", [2.0, 2.9])];
        assert_eq!(reasons(&quiet, &steady, &["a", "short"]), [""; 0]);
        let planted = [
            (Noise { steal_percent: Some(6.0), ..quiet }, "the host gave", "6.0 %"),
            (Noise { others_percent: Some(41.0), ..quiet }, "other programs", "41.0 %"),
            (Noise { pressure_percent: Some(9.5), ..quiet }, "waited for a CPU", "9.5 %"),
            (Noise { preempted_percent: 5.1, ..quiet }, "lost its CPU", "5.1 %"),
        ];
        for (noise, what, percent) in planted {
            let found = reasons(&noise, &steady, &["a"]);
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].contains(what) && found[0].contains(percent), "{found:?}");
        }
        let drifted = [measurement("a", [100.0, 106.0]), measurement("b", [100.0, 200.0])];
        let found = reasons(&quiet, &drifted, &["a"]);
        assert_eq!(found, ["a drifted by 6 %: 100.0 ns, then 106.0 ns"]);
    }

    #[test]
    fn the_readings_are_those_of_the_kernel() {
        let root = std::env::temp_dir().join(format!("nearq-noise-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let pressure = |total: u64| {
            write(
                "proc/pressure/cpu",
                &format!(
                    "some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\nfull avg10=0.00 total=7\n"
                ),
            );
        };
        write("proc/stat", "cpu  100 0 100 700 50 0 0 50 10 0\n");
        pressure(1_000_000);
        let mut watcher = Watcher::start(&root, 2);
        watcher.roomy(|| {
            std::thread::sleep(Duration::from_millis(20));
            pressure(1_000_000 + 10_000);
        });
        // What happens outside of it is not counted.
        pressure(90_000_000);
        write("proc/stat", "cpu  100 0 100 780 50 0 0 70 10 0\n");
        let (noise, ..) = watcher.finish(3, 60);
        fs::remove_dir_all(&root).unwrap();
        assert_eq!((noise.steal_percent, noise.preempted_percent), (Some(20.0), 5.0));
        let waited = noise.pressure_percent.unwrap();
        assert!((1.0..=50.0).contains(&waited), "10 ms of at least 20: {waited}");
    }
}
