//! Homes of processes on a real kernel with several nodes: `nearq run` inside a virtual machine, checked by its jobs' reports on where they
//! have been (`examples/homebody.rs`).
//!
//! `nearq-command/tests/guest` lists the requirements; if something is missing, one line says so and nothing is tested.

#![cfg(target_arch = "x86_64")]

use crate::common::Folder;
use crate::guest::{boot_with, script, static_program};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The output of a job, and what was reported about it.
#[derive(Debug)]
struct Job {
    report: Value,
    json: Value,
}

/// Runs steps inside: each has a name, a shell command to run first, and the arguments of a `nearq run`.
fn steps(preset: &str, folder: &str, steps: &[[&str; 3]]) -> Option<BTreeMap<String, Vec<Job>>> {
    let machine = script()?;
    let nearq = static_program(&["--package", "nearq-cli", "--bin", "nearq"], "nearq")?;
    let arguments = ["--package", "nearq-cli", "--example", "homebody"];
    let homebody = static_program(&arguments, "examples/homebody")?;
    let folder = Folder::new(folder);
    let path = folder.path("steps.sh");
    let mut text = String::from("cd /job\n");
    for [name, first, arguments] in steps {
        // Each line of output belongs to a job, in the order of inputs; the JSON follows.
        text += &format!(
            "{first}\necho BEGIN {name}\n./nearq run -k --json /tmp/json {arguments} 2> /tmp/said || echo STATUS $?\n\
             echo TOLD\ncat /tmp/json\necho END\ncat /tmp/said >&2\n"
        );
    }
    fs::write(&path, text).unwrap();
    let files = [nearq.as_path(), homebody.as_path(), Path::new(&path)];
    let output = boot_with(&machine, preset, &files, Path::new("sh"), &["/job/steps.sh"])?;
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}\n{errors}", output.status);
    let mut all = BTreeMap::new();
    for part in text.split("BEGIN ").skip(1) {
        let parts = part.split_once('\n').and_then(|(name, rest)| {
            let (report, rest) = rest.split_once("TOLD\n")?;
            Some((name, report, rest.split_once("\nEND")?.0))
        });
        let (name, report, json) = parts.unwrap_or_else(|| panic!("{part}\n{errors}"));
        let json: Value =
            serde_json::from_str(json).unwrap_or_else(|e| panic!("{e}: {json}\n{errors}"));
        let jobs = report.lines().zip(json["jobs"].as_array().unwrap()).map(|(report, json)| {
            let report = serde_json::from_str(report)
                .unwrap_or_else(|error| panic!("{error}: {report}\n{errors}"));
            Job { report, json: json.clone() }
        });
        all.insert(name.trim().to_owned(), jobs.collect());
    }
    for [name, ..] in steps {
        assert!(all.contains_key(*name), "{name}\n{text}\n{errors}");
    }
    Some(all)
}

impl Job {
    fn home(&self) -> usize {
        self.json["home"].as_u64().unwrap_or_else(|| panic!("{self:?}")) as usize
    }

    /// The share of its memory on its home node, in percent.
    fn memory_at_home(&self) -> u64 {
        let kib = self.report["kib"].as_object().unwrap();
        let all: u64 = kib.values().filter_map(Value::as_u64).sum();
        kib.get(&self.home().to_string()).and_then(Value::as_u64).unwrap_or(0) * 100 / all.max(1)
    }

    /// The share of its time at home, in percent.
    fn time_at_home(&self) -> usize {
        let nodes = self.report["nodes"].as_str().unwrap();
        nodes.chars().filter(|node| self.is_home(*node)).count() * 100 / nodes.len()
    }

    /// Since when it was at home without interruption, in seconds after the machine's start.
    fn home_from(&self) -> f64 {
        let nodes = self.report["nodes"].as_str().unwrap();
        let away = nodes.rfind(|node| !self.is_home(node)).map_or(0, |last| last + 1);
        assert!(away < nodes.len(), "it ended away from home: {self:?}");
        self.report["begin"].as_f64().unwrap() + away as f64 * 0.02
    }

    fn is_home(&self, node: char) -> bool {
        node.to_digit(10) == Some(self.home() as u32)
    }

    fn count(&self, what: &str) -> u64 {
        self.json[what].as_u64().unwrap()
    }
}

/// How many jobs are at home on each node.
fn homes(jobs: &[Job], nodes: usize) -> Vec<usize> {
    (0..nodes).map(|node| jobs.iter().filter(|job| job.home() == node).count()).collect()
}

/// Four programs that spin on the CPUs of node 0.
const HOGS: &str = "for hog in 1 2 3 4; do taskset f sh -c 'while :; do :; done' & done; sleep 1";

#[test]
fn jobs_live_on_two_nodes_and_come_home() {
    let loaded = "-j2 ./homebody 1 0.3 ::: 1 2";
    let all = steps(
        "A",
        "homes-two",
        &[
            ["spread", "", "-j8 ./homebody 4 3 ::: 1 2 3 4 5 6 7 8"],
            ["strict", "", "-j2 --strict --home 1 ./homebody 8 1.2 ::: 1 2"],
            // Four CPUs at home, six jobs; two of them end early.
            ["crowded", "", "-j6 --home 0 ./homebody 2 ::: 4 4 14 14 14 14"],
            // Other programs keep node 0 busy.
            ["loaded-1", HOGS, loaded],
            ["loaded-2", "", loaded],
            ["loaded-3", "", loaded],
            ["loaded-4", "", loaded],
            ["loaded-5", "", loaded],
        ],
    );
    let Some(all) = all else { return };
    let spread = &all["spread"];
    // Exactly four each, except for other activity of the machine, or apparent activity if it stood still itself.
    assert!(homes(spread, 2).iter().all(|jobs| *jobs >= 1), "{spread:?}");
    // Each run looks at the nodes for 40 ms, and a busy host can stop the emulated CPUs for that long. So not each run must be right; if
    // nobody looked, half of the ten jobs would be on each node.
    let loaded: Vec<Vec<usize>> =
        (1..=5).map(|run| homes(&all[&format!("loaded-{run}")], 2)).collect();
    println!("jobs on each node, with node 0 busy: {loaded:?}");
    assert!(loaded.iter().map(|homes| homes[1]).sum::<usize>() >= 7, "{loaded:?}");
    for job in spread {
        let cpus = ["0-3", "4-7"][job.home()];
        assert_eq!(job.report["cpus"], cpus, "{job:?}");
        assert!(job.memory_at_home() >= 95, "{job:?}");
        assert!(
            job.report["policies"].to_string().contains(&format!("prefer:{}", job.home())),
            "{job:?}"
        );
        assert_eq!(job.json["last"].as_u64(), Some(job.home() as u64), "{job:?}");
        assert!(job.time_at_home() >= 95, "{job:?}");
    }
    // The reported memory is what the jobs saw themselves, if nearq had time for a sample: this machine is slow.
    let memory_at_home: Vec<u64> = spread
        .iter()
        .filter_map(|job| job.json["memory_bytes"][job.home().to_string()].as_u64())
        .collect();
    assert!(
        !memory_at_home.is_empty() && memory_at_home.iter().all(|bytes| *bytes >= 4 << 20),
        "{spread:?}"
    );
    for job in &all["strict"] {
        assert_eq!((job.home(), &job.report["cpus"]), (1, &"4-7".into()));
        assert!(job.report["policies"].to_string().contains("bind:1"), "{job:?}");
        assert!(job.memory_at_home() >= 95 && job.count("let_out") == 0, "{job:?}");
    }
    let crowded = &all["crowded"];
    assert_eq!(homes(crowded, 2), [6, 0]);
    let let_out: u64 = crowded.iter().map(|job| job.count("let_out")).sum();
    assert!(let_out >= 2, "six jobs and four CPUs: {crowded:?}");
    // The two jobs that end early leave, so there is room for the others.
    let ended = crowded[..2]
        .iter()
        .map(|job| job.json["elapsed_s"].as_f64().unwrap() + job.report["begin"].as_f64().unwrap());
    let ended = ended.fold(0.0, f64::max);
    let late: Vec<f64> = crowded[2..].iter().map(|job| job.home_from() - ended).collect();
    println!("seconds until they were at home for good: {late:.2?}");
    // How long that takes depends on the host, which emulates eight CPUs and may be busy: half a second on an idle host. This test only
    // checks that the jobs come home and stay.
    assert!(late.iter().all(|late| *late <= 8.0), "{late:.2?}: {crowded:?}");
    for job in &crowded[2..] {
        assert_eq!(job.count("let_out"), job.count("brought_home"), "{job:?}");
        assert!(job.memory_at_home() >= 95, "its memory left its home: {job:?}");
    }
}

#[test]
fn jobs_spread_over_four_nodes() {
    let jobs = "1 2 3 4 5 6 7 8";
    let all = steps(
        "C",
        "homes-four",
        &[
            ["spread", "", &format!("-j8 ./homebody 4 1.5 ::: {jobs}")],
            ["cache", "", &format!("-j8 --scope cache ./homebody 4 1.5 ::: {jobs}")],
        ],
    );
    let Some(all) = all else { return };
    for name in ["spread", "cache"] {
        let jobs = &all[name];
        // Exactly two each, except for other activity of the machine.
        assert!(homes(jobs, 4).iter().all(|jobs| *jobs >= 1), "{name}: {jobs:?}");
        for job in jobs {
            assert_eq!(job.report["cpus"], ["0-1", "2-3", "4-5", "6-7"][job.home()], "{job:?}");
            assert!(job.memory_at_home() >= 95, "{job:?}");
        }
    }
}
