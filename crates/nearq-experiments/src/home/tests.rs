//! Small runs of the whole experiment on simulated machines.

use super::*;
use crate::Progress;
use nearq_report::Report;
use nearq_report::metric;
use std::path::Path;

fn options(machine: &str, scenario: &str) -> HomeOptions {
    let common = Common {
        machine: machine.into(),
        runs: Some(2),
        quick: true,
        goals: true,
        ..Common::default()
    };
    HomeOptions { common, scenario: Some(scenario.into()), ..HomeOptions::default() }
}

fn run(options: &HomeOptions) -> Report {
    harness::run(options, &Progress::hidden()).unwrap()
}

fn refused(options: &HomeOptions) -> String {
    let error = harness::run(options, &Progress::hidden()).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    error.to_string()
}

#[test]
fn tasks_with_homes_are_done_before_tasks_without() {
    let with = |runs| {
        let mut options = options("tx7-itanium2", "numa-test");
        options.common.runs = Some(runs);
        HomeOptions {
            tasks: Some(vec![16]),
            problem_size: Some(1_000_000),
            passes: Some(15),
            ..options
        }
    };
    // Without homes, tasks are put well with some seeds and badly with others.
    let report = run(&with(4));
    assert!(crate::redraw::is_drawn_from_the_json(&report));
    let mean = |row, metric| report.find("numa-test, 16 tasks", row, metric).unwrap().summary.mean;
    let elapsed = |row| mean(row, metric::ELAPSED);
    assert!(elapsed("homes") < 0.99 * elapsed("without homes"), "{}", report.text);
    assert!(elapsed("dynamic homes") < 0.99 * elapsed("without homes"), "{}", report.text);
    assert!(elapsed("oracle") < elapsed("without homes"), "{}", report.text);
    assert!(mean("homes", metric::HOME_PERCENT) > mean("without homes", metric::HOME_PERCENT));
    assert_eq!(mean("oracle", metric::CROSSINGS), 0.0);
    assert!(mean("homes", metric::GAP_CLOSED) >= 70.0, "{}", report.text);
    // Tasks touch their memory and read their clocks.
    let [user, system] = [metric::USER, metric::SYSTEM].map(|metric| mean("oracle", metric));
    assert!(0.0 < system && system < user / 20.0, "{}", report.text);
    // A run is a function of its seed.
    assert_eq!(run(&with(1)).to_json(), run(&with(1)).to_json());
    let words =
        ["AverageUserTime", "iSched", "MSched", "dynamic homes", "PROBLEMSIZE 1000000 (as told"];
    for word in words {
        assert!(report.text.contains(word), "{word}: {}", report.text);
    }
}

#[test]
fn a_load_that_comes_again_and_again_disturbs_tasks_to_their_end() {
    let once = HomeOptions {
        tasks: Some(vec![8]),
        problem_size: Some(1_000_000),
        passes: Some(15),
        ..options("tx7-itanium2", "numa-test")
    };
    let again = HomeOptions { storm_every: Some(1), ..once.clone() };
    let [once, again] = [once, again].map(|options| run(&options));
    let mean = |report: &Report, metric| {
        report.find("numa-test, 8 tasks", "without homes", metric).unwrap().summary.mean
    };
    let elapsed = |report| mean(report, metric::ELAPSED);
    assert!(elapsed(&once) > 2.2, "there is time for more than one: {}", once.text);
    assert!(elapsed(&again) > elapsed(&once) + 0.01, "{}", again.text);
    let crossings = |report| mean(report, metric::CROSSINGS);
    assert!(crossings(&again) > crossings(&once), "{}\n{}", once.text, again.text);
    assert!(again.text.contains(", and again every 1 s until all tasks have ended"));
    assert_eq!(again.parameters["storm_every_s"], 1);
}

#[test]
fn tasks_displaced_by_overload_return_home_and_no_cpu_idles_meanwhile() {
    let _judged = crate::harness::options::tests::AnySize::new();
    for machine in ["numa:2 core:2", "opteron-2s", "numa:2 l3:2 core:4 pu:2"] {
        let report = run(&options(machine, "overload"));
        let title = report.rows[0].scenario.clone();
        let mean = |row, metric| report.find(&title, row, metric).unwrap().summary.mean;
        for row in ["homes", "dynamic homes"] {
            assert!(mean(row, metric::HOME_PERCENT) >= 95.0, "{machine}: {}", report.text);
            assert!(mean(row, metric::CPU_RATIO) >= 0.99, "{machine}: {}", report.text);
            assert_eq!(mean(row, metric::STRAYS), 0.0, "{machine}: {}", report.text);
            assert!(
                mean(row, metric::CROSSINGS) > 0.0,
                "tasks were let out of their home: {}",
                report.text
            );
        }
        let goals = report.parameters["goals"].as_array().unwrap();
        assert!(!goals.is_empty() && goals.iter().all(|goal| goal["met"] == true), "{goals:?}");
    }
}

#[test]
fn a_displaced_task_returns_home() {
    let report = run(&options("numa:2 core:4", "displace"));
    let home = |row| {
        let found = report.find("displace, 8 tasks", row, metric::HOME_PERCENT);
        found.unwrap().summary.mean
    };
    assert!(home("homes") >= 95.0, "{}", report.text);
    assert!(home("without homes") < 95.0, "the disturbance displaces tasks: {}", report.text);
}

#[cfg(feature = "home-scheduler")]
#[test]
fn under_the_home_scheduler_tasks_return_home_unsupervised() {
    let _judged = crate::harness::options::tests::AnySize::new();
    for (machine, scenario) in [("tx7-itanium2", "displace"), ("numa:2 core:2", "overload")] {
        let options = HomeOptions { scheduler: Some("home".into()), ..options(machine, scenario) };
        let report = run(&options);
        let title = report.rows[0].scenario.clone();
        let mean = |row, metric| report.find(&title, row, metric).unwrap().summary.mean;
        assert!(mean("without homes", metric::HOME_PERCENT) < 95.0, "{}", report.text);
        for row in ["home scheduler", "2003's rule"] {
            assert!(mean(row, metric::HOME_PERCENT) >= 95.0, "{machine}: {}", report.text);
            assert!(mean(row, metric::CROSSINGS_EACH) <= 4.0, "{machine}: {}", report.text);
            if scenario == "overload" {
                assert!(mean(row, metric::CPU_RATIO) >= 0.99, "{machine}: {}", report.text);
            }
        }
        assert!(report.find(&title, "homes", metric::HOME_PERCENT).is_none());
        let schedulers = &report.parameters["schedulers"];
        assert_eq!(schedulers["home scheduler"], "home");
        assert_eq!(schedulers["2003's rule"], "home, own_bonus=1000");
        assert_eq!(schedulers["without homes"], "stock");
        let goals = report.parameters["goals"].as_array().unwrap();
        assert!(goals.len() >= 2 && goals.iter().all(|goal| goal["met"] == true), "{goals:?}");
        assert_eq!(run(&options).to_json(), report.to_json(), "a run is a function of its seed");
    }
}

#[cfg(feature = "home-scheduler")]
#[test]
fn tasks_begin_and_stay_at_home_under_the_home_scheduler() {
    let options = HomeOptions {
        tasks: Some(vec![16]),
        problem_size: Some(200_000),
        passes: Some(10),
        scheduler: Some("both".into()),
        ..options("tx7-itanium2", "numa-test")
    };
    let report = run(&options);
    let mean = |row, metric| report.find("numa-test, 16 tasks", row, metric).unwrap().summary.mean;
    assert!(mean("home scheduler", metric::HOME_PERCENT) >= 95.0, "{}", report.text);
    let [ours, without] = ["home scheduler", "without homes"].map(|row| mean(row, metric::ELAPSED));
    assert!(ours < 1.03 * without, "{}", report.text);
    assert!(mean("homes", metric::HOME_PERCENT) > 0.0, "all rows are there");
}

#[test]
fn an_unavailable_scheduler_is_refused_with_the_available_ones() {
    let with = |machine, scheduler: &str| HomeOptions {
        scheduler: Some(scheduler.into()),
        program: Some("nearq".into()),
        ..options(machine, "overload")
    };
    let text = refused(&with("numa:2 core:2", "cfs"));
    assert_eq!(text, "--scheduler \"cfs\": give stock, home or both");
    // The missing part depends on the kernel, and on what is loaded and installed.
    if let Some(why) = real::scheduler::missing(Path::new("nearq")) {
        let text = refused(&with("here", "home"));
        let expected = format!("--scheduler home: {why}; or name a simulated machine with --on");
        assert_eq!(text, expected);
    }
    #[cfg(not(feature = "home-scheduler"))]
    assert!(refused(&with("numa:2 core:2", "home")).contains("--features home-scheduler"));
    #[cfg(feature = "home-scheduler")]
    assert!(refused(&with("numa:33 core:1", "home")).contains("33 nodes"));
}

#[test]
fn one_node_gains_and_loses_nothing() {
    let options = HomeOptions {
        tasks: Some(vec![8]),
        problem_size: Some(100_000),
        passes: Some(20),
        ..options("l3:1 core:4", "numa-test")
    };
    let report = run(&options);
    let gain = report.find("numa-test, 8 tasks", "homes", metric::ELAPSED_GAIN).unwrap();
    assert!(gain.summary.mean > -1.0, "{}", report.text);
    assert!(
        report.text.contains("nothing to gain")
            && report.text.contains("No goals: there is one node")
    );
}

#[test]
fn the_documents_load_has_the_documents_figures_beside_ours() {
    let machine = Machine::named("tx7-itanium2").unwrap();
    let full = HomeOptions::default().plan(&machine).unwrap();
    assert!(full.size.is_published(), "{}", full.size.why);
    assert_eq!(full.plans.len(), 4 + 2 + 1);
    assert_eq!(full.plans[3].tasks, 32);
    assert_eq!(full.plans[0].storm.unwrap().processes(), 800);
    let quick = options("tx7-itanium2", "numa-test").plan(&machine).unwrap();
    assert!(!quick.size.is_published());
    // Two machines whose caches are larger than the memory that the document's tasks walk over.
    let large = Machine::named("epyc-9654-2s").unwrap();
    let job = HomeOptions::default().plan(&large).unwrap();
    assert!(job.size.elements * task::ELEMENT >= 4 * 4 * 1024 * 1024, "{}", job.size.why);
}

#[test]
fn cpus_without_local_memory_use_other_nodes_and_the_report_says_so() {
    let root = std::env::temp_dir().join(format!("nearq-home-{}", std::process::id()));
    for (file, text) in [
        ("cpu/possible", "0-1"),
        ("cpu/present", "0-1"),
        ("cpu/online", "0-1"),
        ("node/node0/cpulist", "0-1"),
        ("node/node0/meminfo", "Node 0 MemTotal: 0 kB"),
        ("node/node1/cpulist", ""),
        ("node/node1/meminfo", "Node 1 MemTotal: 4194304 kB"),
    ] {
        let path = root.join("sys/devices/system").join(file);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let report = run(&HomeOptions {
        tasks: Some(vec![1]),
        problem_size: Some(1000),
        passes: Some(1),
        ..options(&format!("sysfs:{}", root.display()), "numa-test")
    });
    std::fs::remove_dir_all(&root).unwrap();
    assert!(report.text.contains("Memory was placed by first touch alone: "), "{}", report.text);
}

#[test]
fn a_quick_run_ends_within_half_a_minute() {
    let common = Common { quick: true, ..Common::default() };
    let options = HomeOptions { common, ..HomeOptions::default() };
    let machine = Machine::here().unwrap();
    let job = options.plan(&machine).unwrap();
    let (elements, _) = plan::usual_elements(1 << 30, true, false);
    assert!(job.size.elements <= elements, "no cache is larger");
    let cpus = machine.parallelism();
    let seconds = |plan: &Plan| match plan.end {
        Some(end) => end.as_secs_f64(),
        // An element takes a hundred nanoseconds if memory is slow; tasks in excess of the CPUs wait for CPUs.
        None => (plan.tasks.div_ceil(cpus) * job.size.passes * elements) as f64 * 100e-9,
    };
    let of_plan = |plan: &Plan| job.rows(plan).len() as f64 * seconds(plan);
    let total = job.runs as f64 * job.plans.iter().map(of_plan).sum::<f64>();
    assert!(total < 26.0, "{total} s");
    assert_eq!(plan::usual_elements(1 << 30, true, true).1, "as large as it must be");
}

#[test]
fn impossible_options_are_refused_with_the_possible_ones() {
    let numa = || options("tx7-itanium2", "numa-test");
    let text = refused(&HomeOptions { scenario: Some("numa".into()), ..numa() });
    assert_eq!(text, "--scenario \"numa\": give numa-test, displace or overload");
    let text = refused(&HomeOptions { tasks: Some(vec![4, 0]), ..numa() });
    assert_eq!(text, "--tasks 0: give a number from 1 to 4096");
    let text = refused(&HomeOptions { tasks: Some(vec![4, 4]), ..numa() });
    assert_eq!(text, "--tasks 4: give each number once");
    assert!(refused(&HomeOptions { passes: Some(0), ..numa() }).starts_with("--passes 0: "));
    assert!(
        refused(&HomeOptions { storm_every: Some(0), ..numa() }).starts_with("--storm-every 0: ")
    );
    assert!(
        refused(&HomeOptions { problem_size: Some(1), ..numa() }).starts_with("--problem-size 1: ")
    );
    let text = refused(&options("pu:513", "overload"));
    assert!(
        text.starts_with("this machine has 513 CPUs, but the experiment supports at most 512"),
        "{text}"
    );
    let mut timed = numa();
    timed.common.duration = Some(Duration::from_secs(1));
    assert!(refused(&timed).contains("give --passes"));
}
