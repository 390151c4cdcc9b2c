//! `nearq bench`: short runs of the experiments through the command.

use crate::common::{Folder, errors, nearq, prints};
use serde_json::Value;

#[test]
fn scopes_prints_a_table_and_writes_json_and_a_picture() {
    let folder = Folder::new("scopes");
    let (json, svg) = (folder.path("scopes.json"), folder.path("scopes.svg"));
    let short = ["--runs", "1", "--duration", "0.05", "--issuers", "1", "--in-flight", "2"];
    let output = nearq()
        .args(["bench", "scopes", "--json", &json, "--svg", &svg])
        .args(short)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("cache+strict"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"scopes".into(), &"here".into()));
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["row"] == "system" && row["metric"] == "throughput_mib_s"));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn json_on_standard_output_is_pure_json() {
    let output = nearq()
        .args(["bench", "dispatch", "--runs", "1", "--duration", "0.01", "--idle-samples", "1"])
        .args(["--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["experiment"], "dispatch");
    assert!(errors(&output).contains("rayon"), "the table goes to standard error");
}

#[test]
fn join_prints_a_table_and_writes_json_and_a_picture() {
    let folder = Folder::new("join");
    let (json, svg) = (folder.path("join.json"), folder.path("join.svg"));
    let output = nearq()
        .args(["bench", "join", "--quick", "--runs", "1", "--duration", "0.01"])
        .args(["--scenario", "n-queens", "--json", &json, "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("n-queens, 10 queens"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"join".into(), &"here".into()));
    let rows = json["rows"].as_array().unwrap();
    assert!(rows.iter().any(|row| row["row"] == "chili" && row["metric"] == "per_join_ns"));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn dispatch_on_a_simulated_machine_has_the_published_figures_beside_ours() {
    let output = nearq()
        .args(["bench", "dispatch", "--on", "grace-72", "--runs", "1", "--items", "3"])
        .args(["--idle-samples", "2", "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["machine"], "grace-72");
    let rows = json["rows"].as_array().unwrap();
    let row = |scope: &str, metric: &str| {
        let found = rows.iter().find(|row| {
            row["scenario"] == "issuers" && row["row"] == scope && row["metric"] == metric
        });
        found.unwrap_or_else(|| panic!("no {metric} of {scope}"))
    };
    assert_eq!(row("cache_shard", "items_per_second")["published"], 3.63e6);
    assert_eq!(row("numa", "queue_latency_us_p50")["published"], 44.096);
    assert!(row("cpu", "queue_latency_us_p95")["median"].as_f64().unwrap() > 0.0);
    assert!(rows.iter().all(|row| row["row"] != "rayon"), "other pools do not run there");
    let text = errors(&output);
    assert!(text.contains("published items/s") && text.contains("rows are left out"), "{text}");
}

#[test]
fn a_simulated_machine_gives_the_same_figures_in_every_process() {
    let run = || {
        let output = nearq()
            .args(["bench", "scopes", "--on", "l3:2 core:2", "--json", "-"])
            .args(["--runs", "2", "--duration", "0.05"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", errors(&output));
        assert!(errors(&output).contains("cache+helping"), "{}", errors(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let first = run();
    assert_eq!(first, run());
    let json: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(json["machine"], "l3:2 core:2");
    assert_eq!(json["environment"]["kernel"], Value::Null);
    let rows = json["rows"].as_array().unwrap();
    let row = |name: &str| rows.iter().any(|row| row["row"] == name && row["scenario"] == "LOW");
    assert!(row("cache") && row("cache+helping") && row("cache+strict"));
}

#[test]
fn blocking_writes_the_ratio_of_every_row_to_the_ideal() {
    let folder = Folder::new("blocking");
    let (json, svg) = (folder.path("blocking.json"), folder.path("blocking.svg"));
    let output = nearq()
        .args(["bench", "blocking", "--runs", "1", "--items", "64", "--sleep-ms", "1"])
        .args(["--json", &json, "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("bare threads, no sleep"));
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"blocking".into(), &"here".into()));
    let ratio = |scenario: &str, row: &str| {
        let found = json["rows"].as_array().unwrap().iter().find(|found| {
            found["scenario"] == scenario
                && found["row"] == row
                && found["metric"] == "ratio_to_ideal"
        });
        found.unwrap_or_else(|| panic!("no {row} in {scenario}"))["median"].as_f64().unwrap()
    };
    for row in ["nearq", "nearq, blocking()", "rayon", "tokio", "async-executor", "threadpool"] {
        assert!(ratio("sleep", row) > 0.5, "{row}");
    }
    for scenario in ["sleep", "futex", "pipe"] {
        assert!(ratio(scenario, "tokio spawn_blocking, all") > 0.5, "{scenario}");
        assert!((ratio(scenario, "ideal") - 1.0).abs() < 1e-9, "{scenario}");
    }
    assert!(std::fs::read_to_string(&svg).unwrap().contains("block_in_place"));
}

#[test]
fn highpri_has_the_published_figures_beside_ours() {
    let folder = Folder::new("highpri");
    let svg = folder.path("highpri.svg");
    let output = nearq()
        .args(["bench", "highpri", "--on", "core:2", "--quick", "--json", "-", "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let row = |row: &str, metric: &str| {
        let found = rows.iter().find(|found| found["row"] == row && found["metric"] == metric);
        found.unwrap_or_else(|| panic!("no {metric} of {row}"))
    };
    assert_eq!(row("head of one list", "latency_ms_top20")["published"], 1268.0);
    assert_eq!(row("high", "latency_ms_max")["published"], 16.0);
    let ratios = json["parameters"]["ratios"].as_array().unwrap();
    assert!(ratios.iter().any(|ratio| ratio["fast"] == "high+slice" && ratio["met"] == true));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn lock_has_a_row_for_each_lock_and_says_that_it_is_too_small_to_judge() {
    let folder = Folder::new("lock");
    let (json, svg) = (folder.path("lock.json"), folder.path("lock.svg"));
    let output = nearq()
        .args(["bench", "lock", "--writers", "1,3", "--section", "short", "--runs", "2"])
        .args(["--goals", "--duration", "0.05", "--json", &json, "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["short, 3 writers", "fairness", "p99.99", "Too small to judge: ", "UnixBench"] {
        assert!(text.contains(part), "{part} is missing from {text}");
    }
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"lock".into(), &"here".into()));
    let rows = json["rows"].as_array().unwrap();
    for row in ["nearq plain", "nearq always-NUMA", "nearq auto", "OsqLock", "std", "parking_lot"]
        .into_iter()
        .chain(["pthread normal", "mcslock"])
    {
        let rate = rows.iter().find(|found| {
            found["row"] == row
                && found["scenario"] == "short 3"
                && found["metric"] == "acquisitions_per_second"
        });
        let rate = rate.unwrap_or_else(|| panic!("no rate of {row}"));
        // If other programs use the CPUs, some threads may not get a CPU within so short a run.
        assert!(rate["median"].as_f64().unwrap() >= 0.0 && rate["runs"] == 2, "{row}");
    }
    assert!(json["parameters"]["goals"].as_array().unwrap().is_empty());
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn lock_on_the_documents_machine_has_its_gains_beside_ours() {
    let output = nearq()
        .args(["bench", "lock", "--on", "epyc-7551-2s", "--quick", "--json", "-"])
        .args(["--writers", "1,16"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let gain = rows.iter().find(|found| {
        found["scenario"] == "short 16"
            && found["row"] == "nearq auto"
            && found["metric"] == "gain_percent"
    });
    assert_eq!(gain.expect("a gain")["published"], 72.39);
    assert!(rows.iter().all(|row| row["row"] != "std"), "other locks do not run there");
    let goals = json["parameters"]["goals"].as_array().unwrap();
    assert_eq!(goals.len(), 3, "{goals:?}");
    assert!(errors(&output).contains("their rows are left out"));
}

#[test]
fn home_runs_tasks_as_processes_and_reports_their_nodes() {
    let folder = Folder::new("home");
    let (json, svg) = (folder.path("home.json"), folder.path("home.svg"));
    let output = nearq()
        .args(["bench", "home", "--quick", "--scenario", "numa-test", "--tasks", "1,3"])
        .args(["--problem-size", "100000", "--passes", "2", "--json", &json, "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    for part in ["AverageUserTime", "iSched", "hackbench of 200 processes", "PROBLEMSIZE 100000"] {
        assert!(text.contains(part), "{part} is missing from {text}");
    }
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"home".into(), &"here".into()));
    let rows = json["rows"].as_array().unwrap();
    for row in ["without homes", "homes", "dynamic homes"] {
        for metric in ["elapsed_s", "user_s", "average_user_s", "system_s", "home_percent"] {
            let found = rows.iter().find(|found| {
                let of = (&found["row"], &found["metric"], &found["scenario"]);
                of == (&row.into(), &metric.into(), &"numa-test, 3 tasks".into())
            });
            let mean = found.unwrap_or_else(|| panic!("no {metric} of {row}"))["mean"].as_f64();
            assert!(mean.unwrap() >= 0.0, "{metric} of {row}");
        }
    }
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn home_on_the_documents_machine_has_its_table_beside_ours() {
    let output = nearq()
        .args(["bench", "home", "--on", "tx7-itanium2", "--scenario", "numa-test"])
        .args(["--tasks", "4", "--runs", "1", "--json", "-"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = json["rows"].as_array().unwrap();
    let elapsed = |row: &str| {
        let found = rows.iter().find(|found| found["row"] == row && found["metric"] == "elapsed_s");
        found.unwrap_or_else(|| panic!("no {row}"))["published"].as_f64()
    };
    let of_document = [elapsed("2.6.0-test1"), elapsed("2.6.0-test1, homes")];
    assert_eq!(of_document, [Some(61.30), Some(56.72)]);
    assert_eq!((elapsed("without homes"), elapsed("oracle")), (None, None));
    let goals = json["parameters"]["goals"].as_array().unwrap();
    assert!(goals.is_empty(), "one run is too few: {goals:?}");
    assert!(errors(&output).contains("The document's figures, and those of its kernel here"));
}

#[test]
fn a_limit_on_threads_is_named_with_how_many_could_be_started() {
    // Each thread takes address space for its stack.
    let command = format!(
        "ulimit -v 1500000; exec {} bench highpri --threads 200000 --duration 0.01",
        crate::PROGRAM
    );
    let output = std::process::Command::new("sh").args(["-c", &command]).output().unwrap();
    let line = errors(&output);
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.contains("--threads 200000: ") && line.contains("could be started"), "{line}");
    assert!(line.contains("RLIMIT_AS"), "{line}");
}

#[test]
fn help_and_version() {
    assert_eq!(prints(&["--version"]), concat!("nearq ", env!("CARGO_PKG_VERSION"), "\n"));
    let help = prints(&["bench", "scopes", "--help"]);
    let machines = ["here", "ryzen-3900x", "epyc-7551-2s", "grace-72", "sysfs:DIR", "4096"];
    for part in machines.iter().chain(&["Usage: nearq bench scopes", "Examples:"]) {
        assert!(help.contains(part), "{part} is missing from\n{help}");
    }
}
