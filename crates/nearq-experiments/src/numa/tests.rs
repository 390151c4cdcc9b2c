use super::*;
use crate::Progress;

fn options(machine: &str) -> NumaOptions {
    let machine = machine.to_owned();
    let common = Common { machine, quick: true, runs: Some(2), ..Common::default() };
    NumaOptions { common, files: Some(4), jobs: Some(2), ..NumaOptions::default() }
}

#[test]
fn a_job_is_done_and_compared_here() {
    let report = harness::run(&options(crate::HERE), &Progress::hidden()).unwrap();
    for row in [SYSTEM, NUMA, HOMES, WRITEBACK, WRITEBACK_NUMA] {
        let elapsed = report.find(SCENARIO, row, metric::ELAPSED).unwrap();
        assert_eq!(elapsed.summary.runs, 2);
        let user = report.find(SCENARIO, row, metric::USER).unwrap();
        assert!(user.summary.min > 0.0, "the processes used CPU time: {user:?}");
    }
    assert_eq!(report.parameters["differences"].as_array().unwrap().len(), 0);
    assert!(report.text.contains("Too small to judge: --runs 2. Give --runs 3, or more."));
    assert!(!report.text.contains("deviations"), "nothing is judged: {}", report.text);
    assert!(
        report.text.contains("Left out: tree") && report.text.contains("1397.3 ±1.6"),
        "{}",
        report.text
    );
    assert!(report.svg.contains("numa"));
    assert!(crate::redraw::is_drawn_from_the_json(&report));
}

#[test]
fn a_simulated_job_is_the_same_for_a_seed() {
    let run = || harness::run(&options("opteron-2s"), &Progress::hidden()).unwrap();
    let (one, two) = (run(), run());
    assert_eq!(one.rows, two.rows);
    let mut enough = options("opteron-2s");
    enough.common.runs = Some(3);
    let report = harness::run(&enough, &Progress::hidden()).unwrap();
    assert_eq!(report.parameters["differences"].as_array().unwrap().len(), 3);
    assert!(report.text.contains("What is gained") && !report.text.contains("Too small"));
    for row in [HOMES, WRITEBACK, WRITEBACK_NUMA] {
        assert!(one.find(SCENARIO, row, metric::ELAPSED).unwrap().summary.mean > 0.0, "{row}");
    }
}

#[test]
fn a_quick_run_ends_within_half_a_minute_and_has_a_file_for_each_cpu() {
    let common = Common { quick: true, ..Common::default() };
    let options = NumaOptions { common, ..NumaOptions::default() };
    let usual = options.plan(&Machine::here().unwrap()).unwrap();
    for cpus in [1, 2, 16, 128] {
        for one in [5, 100, 500, 900, 1000, 2800].map(Duration::from_millis) {
            let mut plan = Plan { files: FILES_PER_CPU[1] * cpus, ..usual.clone() };
            plan.shorten(one, cpus, true);
            let row = one * plan.files.div_ceil(cpus) as u32;
            let total = row * (ROWS * plan.runs) as u32;
            assert!(total <= QUICK && plan.files >= cpus, "{cpus} CPUs, {one:?}: {plan:?}");
            let mut plan = Plan { runs: 3, ..usual.clone() };
            plan.shorten(one, cpus, false);
            assert_eq!(plan.runs, 3, "the number of runs was given");
        }
    }
}

#[test]
fn impossible_options_are_refused() {
    let refused = |change: fn(&mut NumaOptions)| {
        let mut options = options("opteron-2s");
        change(&mut options);
        harness::run(&options, &Progress::hidden()).unwrap_err()
    };
    let errors = [
        refused(|options| options.kind = Some("compile".into())),
        refused(|options| options.jobs = Some(0)),
        refused(|options| options.files = Some(0)),
        refused(|options| options.common.duration = Some(Duration::from_secs(1))),
    ];
    for (error, text) in errors.iter().zip(["--kind", "--jobs 0", "--files 0", "--duration"]) {
        assert!(error.to_string().contains(text) && error.exit_status() == 2, "{error}");
    }
}

#[test]
fn a_difference_counts_if_it_exceeds_both_deviations() {
    let mut collector = Collector::default();
    for (row, runs) in [(SYSTEM, [10.0, 10.2]), (NUMA, [9.0, 9.2]), (HOMES, [10.1, 9.9])] {
        for run in runs {
            collector.add(SCENARIO, row, metric::ELAPSED, run);
        }
    }
    let differences = differences(&collector.rows());
    let found: Vec<_> = differences.iter().map(|one| (one.after, one.exceeds)).collect();
    assert_eq!(found, [(NUMA, true), (HOMES, false)]);
    assert!((differences[0].gain_percent - 9.9).abs() < 0.1);
    // The error of a mean of two is the deviation, 0.1414, by the root of two: 0.1; of a difference of two means 0.1414.
    assert!((differences[0].errors - 1.0 / 0.1414).abs() < 0.01, "{differences:?}");
}
