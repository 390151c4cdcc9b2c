use super::*;
use crate::harness::options::tests::AnySize;
use crate::harness::run_plan;
use nearq_report::{HERE, Progress, Report};

/// An experiment with the inputs of tests.
fn tiny(options: &JoinOptions) -> Result<Report, Error> {
    let machine = Machine::named(&options.common.machine)?;
    let plan = Plan { size: Size::Tiny, ..options.plan(&machine)? };
    run_plan(options, &machine, plan, &Progress::hidden())
}

fn short(machine: &str) -> JoinOptions {
    let duration = (machine == HERE).then_some(Duration::from_millis(10));
    let (machine, runs) = (machine.into(), Some(2));
    let common = Common { machine, runs, duration, goals: true, ..Common::default() };
    JoinOptions { common, ..JoinOptions::default() }
}

#[test]
fn every_pool_runs_every_program() {
    let _judged = AnySize::new();
    let report = tiny(&short(HERE)).unwrap();
    for scenario in &SCENARIOS {
        for row in ["nearq", "rayon", "chili", "sequential"] {
            let of = |metric| report.find(scenario.name, row, metric).map(|row| row.summary);
            let elapsed = of(metric::ELAPSED).unwrap();
            assert!(elapsed.runs == 2 && elapsed.min > 0.0, "{}, {row}", scenario.name);
            let judged = scenario.kind == Kind::Joins && row != "sequential";
            assert_eq!(of(metric::PER_JOIN).is_some(), judged, "{}, {row}", scenario.name);
        }
    }
    assert_eq!(report.parameters["scenarios"]["fib"]["joins"], 88);
    assert_eq!(report.parameters["targets"].as_array().map(Vec::len), Some(10));
    assert!(report.text.contains("Targets") && report.svg.contains("small-tree"));
    assert!(crate::redraw::is_drawn_from_the_json(&report));
}

#[test]
fn a_program_and_the_number_of_threads_can_be_selected() {
    let mut options = short(HERE);
    options.threads = Some(1);
    options.scenario = Some("sieve".into());
    let report = tiny(&options).unwrap();
    assert!(report.rows.iter().all(|row| row.scenario == "sieve"));
    assert_eq!(report.rows.len(), 2 * CONTESTANTS.len(), "elapsed and CPU time");
    assert_eq!((&report.parameters["threads"], report.svg.contains("fib")), (&1.into(), false));
}

#[test]
fn the_time_per_join_is_the_cpu_time_beyond_that_of_the_sequential_program() {
    let mut options = short(HERE);
    options.common.runs = Some(1);
    options.scenario = Some("fib".into());
    let report = tiny(&options).unwrap();
    let of = |row, metric| report.find("fib", row, metric).unwrap().summary.median;
    let beyond = of("rayon", metric::CPU_SECONDS) - of("sequential", metric::CPU_SECONDS);
    let expected = beyond / 88.0 * 1e9;
    assert!((of("rayon", metric::PER_JOIN) - expected).abs() < 1e-6);
}

#[test]
fn impossible_options_are_refused() {
    let refused = |change: fn(&mut JoinOptions), machine| {
        let mut options = short(machine);
        change(&mut options);
        let error = tiny(&options).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let text = refused(|options| options.threads = Some(0), HERE);
    assert!(text.starts_with("--threads 0: give a number from 1 to "), "{text}");
    let text = refused(|options| options.scenario = Some("hanoi".into()), HERE);
    assert!(text.starts_with("--scenario \"hanoi\": give fib, tree-sum, "), "{text}");
    for (option, change) in [
        ("--threads", (|options| options.threads = Some(2)) as fn(&mut JoinOptions)),
        ("--scenario", |options| options.scenario = Some("fib".into())),
        ("--duration", |options| options.common.duration = Some(Duration::from_secs(1))),
    ] {
        let text = refused(change, "core:2");
        assert!(text.starts_with(&format!("{option}: a simulated machine has one ")), "{text}");
    }
}

#[test]
fn a_quick_run_ends_within_thirty_seconds() {
    let programs = SCENARIOS.len() * CONTESTANTS.len() * ROUNDS[1];
    // An uncounted run before the time, and a counted one that begins at its end; and the inputs.
    let total = programs as u32 * TIME[1] * 3 + Duration::from_secs(5);
    assert!(total < Duration::from_secs(30), "{total:?}");
}

#[test]
fn a_simulated_run_is_a_function_of_the_seed() {
    let _judged = AnySize::new();
    let run = |machine| tiny(&short(machine)).unwrap();
    let (first, second) = (run("l3:2 core:2"), run("l3:2 core:2"));
    assert_eq!((&first.rows, first.text.contains("Targets")), (&second.rows, true));
    for row in [simulated::CACHE, simulated::SYSTEM, simulated::RANDOM] {
        let of = |metric| first.find(simulated::SCENARIO, row, metric).unwrap().summary;
        assert!(of(metric::ELAPSED).min > 0.0 && of(metric::STEALS).min >= 1.0, "{row}");
        assert!((0.0..=100.0).contains(&of(metric::STEALS_WITHIN_PERCENT).median), "{row}");
    }
    assert_eq!(first.parameters["targets"].as_array().map(Vec::len), Some(2));
    assert!(crate::redraw::is_drawn_from_the_json(&first));
    let one = run("core:2");
    assert!(one.find(simulated::SCENARIO, simulated::SYSTEM, metric::ELAPSED).is_none());
    let within = one.find(simulated::SCENARIO, simulated::CACHE, metric::STEALS_WITHIN_PERCENT);
    assert_eq!(within.unwrap().summary.min, 100.0, "there is one cache");
}

#[test]
fn the_arrays_are_as_large_as_the_caches() {
    let machine = Machine::named("ryzen-3900x").unwrap();
    let declared = Declared::on(machine.model().unwrap(), Size::Usual);
    assert_eq!(declared.pieces * declared.piece_bytes, 64 << 20);
    // 64 KiB in words of eight bytes, at 3.8 GHz.
    assert_eq!(declared.compute_ns, 2155);
}
