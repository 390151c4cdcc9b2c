//! The experiment as a whole: a short run here, and simulated ones.

use super::*;
use crate::Progress;
use nearq_report::Environment;
use nearq_report::metric::Metric;
use serde_json::Value;

const ROWS_OF_OURS: [&str; 4] = ["normal", "high", "high+slice", "high delayed"];

fn short(machine: &str, threads: usize, milliseconds: u64) -> Report {
    let duration = Some(Duration::from_millis(milliseconds));
    let common = Common { machine: machine.into(), runs: Some(1), duration, ..Common::default() };
    let options = HighpriOptions { common, threads: Some(threads), interval: None };
    harness::run(&options, &Progress::hidden()).unwrap()
}

fn figure(report: &Report, row: &str, metric: Metric) -> f64 {
    let scenario = &report.rows[0].scenario;
    let found = report.find(scenario, row, metric);
    found.unwrap_or_else(|| panic!("no {} of {row}", metric.name)).summary.median
}

#[test]
fn a_short_run_here_has_every_row_and_column() {
    let report = short("here", 50, 100);
    let json: Value = serde_json::from_str(&report.to_json()).unwrap();
    assert_eq!((&json["experiment"], &json["machine"]), (&"highpri".into(), &"here".into()));
    assert_eq!(json["parameters"]["threads"], 50);
    let mut expected = ROWS_OF_OURS.to_vec();
    expected.extend(["head of one list", "high refused", "thread", "tokio", "rayon"]);
    if privilege::may(|| privilege::favour(privilege::MOST_FAVOURED)).is_ok() {
        expected.extend(["thread nice -20", "tokio nice -20", "rayon nice -20"]);
    }
    if privilege::may(privilege::real_time).is_ok() {
        expected.push("hiccup");
    }
    for row in expected {
        let samples = figure(&report, row, metric::SAMPLES);
        assert!((1.0..=26.0).contains(&samples), "{row}: {samples}");
        let [p50, p99, max] = [metric::LATENCY_P50, metric::LATENCY_P99, metric::LATENCY_MAX]
            .map(|metric| figure(&report, row, metric));
        assert!(0.0 < p50 && p50 <= p99 && p99 <= max, "{row}: {p50} {p99} {max}");
        assert!(figure(&report, row, metric::LATENCY_MAX_UNSTOLEN) <= max, "{row}");
        assert!(figure(&report, row, metric::SAMPLES_STOLEN) <= samples, "{row}");
        assert!(report.text.lines().any(|line| line.starts_with(&format!("{row} "))), "{row}");
        assert!(report.svg.contains(row), "{row} is not in the picture");
    }
    assert!(report.rows.iter().all(|row| row.published.is_none()), "not the document's load");
    assert!(report.text.contains("normal / high+slice"), "{}", report.text);
}

#[test]
fn a_row_that_is_left_out_has_a_reason() {
    // This runs in a thread that may favour no thread, like a user without the privilege.
    let report = std::thread::spawn(|| {
        let _limit = privilege::give_up().unwrap();
        short("here", 10, 30)
    });
    let report = report.join().unwrap();
    for row in ["thread nice -20", "rayon nice -20", "hiccup"] {
        assert!(report.rows.iter().all(|found| found.row != row), "{row}");
        let is_listed =
            report.text.lines().any(|line| line.starts_with("left out") && line.contains(row));
        assert!(is_listed, "{}", report.text);
    }
    assert!(report.text.contains("CAP_SYS_NICE") && report.text.contains("RLIMIT_RTPRIO"));
    assert!(
        figure(&report, "high+slice", metric::SAMPLES) >= 1.0,
        "our queue runs without the privilege too"
    );
}

#[test]
fn high_priority_wins_on_a_simulated_machine_reproducibly() {
    let report = short("core:2", 800, 150);
    assert_eq!(report.to_json(), short("core:2", 800, 150).to_json());
    for row in ROWS_OF_OURS {
        assert!(figure(&report, row, metric::SAMPLES) >= 10.0, "{row}");
    }
    for row in &ROWS_OF_OURS[1..] {
        let of = |row| figure(&report, row, metric::LATENCY_P99);
        let high = of(row);
        for low in ["normal", "head of one list"] {
            assert!(of(low) > 20.0 * high, "{row}: {high} ms, {low}: {} ms", of(low));
        }
    }
    assert_eq!(report.parameters["crowd_work_us"], 1.0);
    assert!(report.rows.iter().all(|row| row.row != "tokio"));
}

#[test]
fn the_documents_load_has_its_figures_beside_ours() {
    let report = short("core:2", THREADS, 30);
    let row = report.find("beside 3000 threads", "head of one list", metric::LATENCY_MAX).unwrap();
    assert_eq!(row.published, Some(1624.0));
    assert!(report.text.contains("9 July 2012"), "{}", report.text);
}

#[test]
fn a_quick_run_ends_within_half_a_minute() {
    let common = Common { quick: true, ..Common::default() };
    let options = HighpriOptions { common, ..HighpriOptions::default() };
    let task = options.plan(&Machine::here().unwrap()).unwrap();
    let all =
        [contestant::everywhere::<Linux>(), vec![contestant::refused()], contestant::others()]
            .concat();
    let rows = all.len() * task.runs;
    // A thread begins and ends in a tenth of a millisecond. On the crowded CPU, a row's thread waits for a turn of all the
    // others.
    let total = rows as f64 * (task.plan.duration.as_secs_f64() + 0.5) + task.threads as f64 * 2e-4;
    assert!(total < 25.0, "{total} s");
}

#[test]
fn the_picture_contains_the_warning() {
    let machine = Machine::named("core:2").unwrap();
    let duration = Some(Duration::from_millis(20));
    let common = Common { runs: Some(1), duration, ..Common::default() };
    let options = HighpriOptions { common, threads: Some(10), interval: None };
    let mut task = options.plan(&machine).unwrap();
    let progress = Progress::hidden();
    let found = options.measure(&mut Run::new(&machine, &progress), &mut task).unwrap();
    let quiet = Environment::simulated("a machine", 2);
    let loaded = Environment { others_percent: Some(50.0), ..quiet.clone() };
    let warning = loaded.warning().unwrap();
    let mut facts = Facts {
        experiment: &options,
        machine: &machine,
        plan: task,
        found,
        rows: Vec::new(),
        environment: loaded,
        too_small: None,
        verdict: Vec::new(),
    };
    assert!(render::picture(&facts).contains(&warning));
    facts.environment = quiet;
    assert!(!render::picture(&facts).contains(&warning));
}

#[test]
fn the_issuer_gets_a_core_of_its_own_if_possible() {
    let of = |machine: &str| places(&Machine::named(machine).unwrap());
    assert_eq!(of("core:2 pu:2"), (3, 0));
    assert_eq!(of("core:1 pu:2"), (1, 0));
    assert_eq!(of("core:1"), (0, 0));
    assert!(short("core:1", 100, 20).text.contains("There is one CPU"));
}

#[test]
fn impossible_options_are_refused_with_their_value() {
    let refused = |options: HighpriOptions| {
        let error = harness::run(&options, &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let threads = |threads| HighpriOptions { threads: Some(threads), ..HighpriOptions::default() };
    assert_eq!(refused(threads(0)), "--threads 0: give a number from 1 to 1000000");
    let interval =
        |interval| HighpriOptions { interval: Some(interval), ..HighpriOptions::default() };
    assert_eq!(refused(interval(Duration::ZERO)), "--interval 0: give 0.1 to 10000 milliseconds");
}
