use super::*;
use crate::Progress;
use nearq_report::Report;
use nearq_report::metric;
use std::sync::Arc;

pub(super) fn short(machine: &str, writers: &[usize]) -> LockOptions {
    let common = Common {
        machine: machine.into(),
        runs: Some(2),
        duration: Some(Duration::from_millis(10)),
        goals: true,
        ..Common::default()
    };
    let writers = Some(writers.to_vec());
    LockOptions { common, writers, section: Some("both".into()), ..LockOptions::default() }
}

/// The scenarios that a row is in.
fn scenarios(report: &Report, row: &str) -> Vec<String> {
    let of_row = report.rows.iter().filter(|found| found.row == row);
    let rates = of_row.filter(|found| found.metric == metric::ACQUISITIONS_PER_SECOND.name);
    rates.map(|found| found.scenario.clone()).collect()
}

/// A lock that excludes no thread.
struct Open;

impl Exclusive for Open {
    fn free(_: &Arc<Roster>) -> Self {
        Self
    }

    fn with<R>(&self, _: usize, section: impl FnOnce() -> R) -> R {
        section()
    }
}

#[test]
fn threads_start_in_an_order_that_the_seed_chooses() {
    let orders: Vec<Vec<usize>> = (0..20).map(|seed| load::shuffled(64, seed)).collect();
    assert_eq!(load::shuffled(64, 7), orders[7]);
    for (at, order) in orders.iter().enumerate() {
        assert!(!orders[..at].contains(order), "seed {at}");
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..64), "each starts once");
        let next = order.windows(2).filter(|pair| pair[1] == pair[0] + 1).count();
        assert!(next < 8, "the order of the CPUs: {order:?}");
    }
}

#[test]
fn a_lock_that_does_not_exclude_is_found_by_every_load() {
    let machine = Machine::named("numa:2 l3:2 core:2").unwrap();
    let cpus = CpuPlacement::Compact.order(&machine);
    for load in [Load::Short, Load::Long, Load::Epoll, Load::Dwom, Load::Mwrm, Load::Mwum] {
        let duration = Duration::from_micros(200);
        let (cpus, roster) = (cpus.clone(), Roster::new(8, &[], DEPTH));
        let plan = Plan { load, writers: 8, cpus, roster, outside: 10, duration, seed: 1 };
        let run = move || contestants::shaped::<Sim, Open>(&plan);
        let error = simulate(&machine, 1, SIMULATED_LIMIT, run).unwrap().result.unwrap_err();
        assert_eq!(error.exit_status(), 1);
        let text = error.to_string();
        assert!(
            text.contains("8 writers: the lock failed to exclude other threads: "),
            "{}: {text}",
            load.name()
        );
    }
}

// Every run here requires exclusion: `measure` counts again what was done under the locks, and fails if it does not
// match.

#[test]
fn every_lock_has_a_row_and_its_waiting_times() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let report = harness::run(&short("here", &[1, 2, 5]), &Progress::hidden()).unwrap();
    let mut acquired = false;
    for row in here().iter().map(|of| of.row) {
        let expected = ["short 1", "short 2", "short 5", "long 1", "long 2", "long 5"];
        assert_eq!(scenarios(&report, row), expected, "{row}");
        for scenario in expected {
            let of = |metric| report.find(scenario, row, metric).map(|row| row.summary);
            let rate = of(metric::ACQUISITIONS_PER_SECOND).unwrap();
            // If other programs use the CPUs, a few threads may not get a CPU within such a short run.
            assert!(rate.runs == 2 && rate.max.is_finite(), "{row}, {scenario}: {rate:?}");
            acquired |= rate.max > 0.0;
            let waits = [metric::WAIT_P50, metric::WAIT_P99, metric::WAIT_P9999, metric::WAIT_MAX];
            let waits = waits.map(|metric| of(metric).unwrap().min);
            // In a run in which no thread had the lock, no wait ended.
            let waited = waits[3] > 0.0 || rate.min == 0.0;
            assert!(waits[0] >= 0.0 && waited, "{row}, {scenario}: {waits:?}");
            let fairness = of(metric::FAIRNESS);
            assert!(fairness.is_none() || !scenario.ends_with(" 1"), "{row}, {scenario}");
            assert!(fairness.is_none_or(|of| of.min >= 0.5 && of.max <= 1.0), "{fairness:?}");
        }
    }
    assert!(acquired, "no lock was ever acquired");
    assert!(crate::redraw::is_drawn_from_the_json(&report));
    assert!(!report.parameters["goals"].as_array().unwrap().is_empty());
    for part in ["pthread adaptive", "Goals of nearq auto", "reached", "UnixBench", "CV (%)"] {
        assert!(report.text.contains(part), "{part} is missing from {}", report.text);
    }
    assert!(report.svg.contains("<svg") && report.svg.contains(MCS));
}

#[test]
fn every_shape_runs_on_this_machine_and_leaves_its_structures_whole() {
    let _judged = crate::harness::options::tests::AnySize::new();
    for (shape, loads) in
        [("epoll", &["epoll"][..]), ("shared-file", &["DWOM"]), ("shared-dir", &["MWRM", "MWUM"])]
    {
        let options = LockOptions {
            section: None,
            shape: Some(shape.into()),
            place: Some("spread".into()),
            outside_ns: Some(0),
            ..short("here", &[1, 3])
        };
        let report = harness::run(&options, &Progress::hidden()).unwrap();
        let expected: Vec<String> = loads
            .iter()
            .flat_map(|load| [1, 3].map(|writers| format!("{load} {writers}")))
            .collect();
        for row in here().iter().map(|of| of.row) {
            assert_eq!(scenarios(&report, row), expected, "{row}");
        }
        assert!(report.text.contains("No goals: they are about torture"), "{}", report.text);
        assert!(!report.text.contains("document,"), "the document's machine is another one");
    }
}

#[test]
fn a_simulated_machine_runs_our_locks_and_the_kernels_reproducibly() {
    let shapes = [None, Some("epoll"), Some("shared-file"), Some("shared-dir")];
    for shape in shapes.map(|shape| shape.map(str::to_owned)) {
        let section = shape.is_none().then(|| "both".to_owned());
        let options = LockOptions { section, shape, ..short("numa:2 l3:2 core:2", &[1, 11]) };
        let machine = options.common.on().unwrap();
        // Shorter than the options allow: the simulator is slow without optimisation.
        let job = Job {
            duration: Duration::from_micros(nearq_model::bound(60, 150)),
            ..options.plan(&machine).unwrap()
        };
        let run =
            || harness::run_plan(&options, &machine, job.clone(), &Progress::hidden()).unwrap();
        let (first, second) = (run(), run());
        assert_eq!(first.rows, second.rows, "{:?}", options.shape);
        let mut rows: Vec<&str> = first.rows.iter().map(|row| row.row.as_str()).collect();
        rows.sort_unstable();
        rows.dedup();
        let mut expected: Vec<&str> = simulated().iter().map(|of| of.row).collect();
        expected.sort_unstable();
        assert_eq!(rows, expected);
        assert!(first.text.contains("their rows are left out"));
    }
}

#[test]
fn the_documents_gains_appear_on_its_machine_only() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let of = |machine: &str, place: &str| {
        let mut options = LockOptions {
            section: Some("short".into()),
            place: Some(place.into()),
            ..short(machine, &[4])
        };
        options.common = Common { quick: true, duration: None, runs: Some(1), ..options.common };
        let machine = options.common.on().unwrap();
        let job = Job { duration: Duration::from_micros(300), ..options.plan(&machine).unwrap() };
        let report = harness::run_plan(&options, &machine, job, &Progress::hidden()).unwrap();
        let gain = report.find("short 4", AUTO, metric::GAIN).unwrap();
        (gain.published, report.parameters["goals"].as_array().unwrap().len())
    };
    assert_eq!(of("epyc-7551-2s", "compact"), (Some(-10.37), 1));
    assert_eq!(of("kh-40000-2s", "spread"), (None, 0));
    assert_eq!(of("l3:2 core:2", "compact"), (None, 1));
}

#[test]
fn impossible_options_are_refused() {
    let refused = |options: LockOptions| {
        let error = harness::run(&options, &Progress::hidden()).unwrap_err();
        assert_eq!(error.exit_status(), 2);
        error.to_string()
    };
    let text = refused(short("here", &[0]));
    assert_eq!(text, "--writers 0: give a number from 1 to 4096");
    assert!(refused(short("core:2", &[4097])).starts_with("--writers 4097: "));
    assert_eq!(refused(short("here", &[2, 4, 2])), "--writers 2: give each number once");
    assert!(refused(short("here", &[])).starts_with("--writers: give numbers from 1 to 4096"));
    let text = refused(LockOptions { section: Some("wide".into()), ..short("here", &[1]) });
    assert_eq!(text, "--section \"wide\": give short, long or both");
    let text = refused(LockOptions { place: Some("anywhere".into()), ..short("here", &[1]) });
    assert_eq!(text, "--place \"anywhere\": give compact or spread");
    let text = refused(LockOptions { outside_ns: Some(1_000_001), ..short("here", &[1]) });
    assert_eq!(text, "--outside 1000001: give a number from 0 to 1000000");
    let text = refused(LockOptions { depth: Some(33), ..short("here", &[1]) });
    assert_eq!(text, "--depth 33: give a number from 5 to 32");
    let text = refused(LockOptions { shape: Some("epoll".into()), ..short("here", &[1]) });
    assert!(text.contains("--shape epoll has no sections"), "{text}");
    assert!(refused(short("cray-1", &[1])).starts_with("--on \"cray-1\""));
}

#[test]
fn a_quick_run_ends_within_half_a_minute() {
    let common = Common { quick: true, ..Common::default() };
    let options = LockOptions { common, ..LockOptions::default() };
    let job = options.plan(&Machine::named("here").unwrap()).unwrap();
    let runs = job.runs * job.scenarios().count() * here().len();
    let total = job.duration.as_secs_f64() * runs as f64;
    // What is left is for starts, ends and the picture.
    assert!(total < 24.0, "{total} s");
}

#[test]
fn a_lock_that_takes_too_long_is_left_out_from_then_on() {
    let mut left_out = LeftOut::default();
    let plan = Plan::for_test(8);
    left_out.judge(STD, Load::Short, 8, plan.duration + OVERTIME, &plan);
    assert!(!left_out.contains(STD, Load::Short, 64));
    left_out.judge(MCS, Load::Short, 8, Duration::from_secs(3), &plan);
    assert!(left_out.contains(MCS, Load::Short, 8) && left_out.contains(MCS, Load::Short, 9));
    assert!(!left_out.contains(MCS, Load::Short, 4) && !left_out.contains(MCS, Load::Long, 8));
    assert!(left_out.messages()[0].starts_with("mcslock, short, 8 writers: a run took 3.0 s"));
}
