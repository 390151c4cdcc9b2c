//! Tests of `surface`: all combinations are run, the worst is judged, and the picture shows them.

use super::*;
use crate::Progress;
use nearq_report::Collector;

fn options(machine: &str) -> LockOptions {
    LockOptions { section: None, ..crate::lock::tests::short(machine, &[2, 6]) }
}

#[test]
fn every_combination_has_figures_and_the_picture_is_drawn_from_the_json() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let options = options("numa:2 l3:2 core:2");
    let machine = options.common.on().unwrap();
    let surface = Surface(&options);
    let job = Job {
        outsides: vec![0, 2000],
        duration: Duration::from_micros(300),
        ..surface.plan(&machine).unwrap()
    };
    let run = || harness::run_plan(&surface, &machine, job.clone(), &Progress::hidden()).unwrap();
    let (report, again) = (run(), run());
    assert_eq!(report.rows, again.rows);
    for cell in job.cells() {
        for measure in &MEASURES {
            let row = report.find(&cell.scenario(), AUTO, measure.metric);
            assert_eq!(row.unwrap().summary.runs, 2, "{cell:?}");
        }
    }
    assert_eq!(report.rows.len(), 2 * 2 * 2 * (MEASURES.len() + 1));
    assert_eq!(report.parameters["goals"].as_array().unwrap().len(), 3);
    assert!(crate::redraw::is_drawn_from_the_json(&report));
    for part in ["compact: gain over one queue", "6 writers", "2 us"] {
        assert!(report.svg.contains(part), "{part} is missing");
    }
    for part in ["spread: longest wait", "at the worst place"] {
        assert!(report.text.contains(part), "{part} is missing from {}", report.text);
    }
}

#[test]
fn a_place_has_more_runs_until_its_gain_is_certain() {
    let _judged = crate::harness::options::tests::AnySize::new();
    let options = LockOptions { writers: Some(vec![2, 4, 6]), ..options("numa:2 l3:2 core:2") };
    let machine = options.common.on().unwrap();
    let surface = Surface(&options);
    let job = Job {
        outsides: vec![0],
        duration: Duration::from_micros(300),
        runs: vec![2, 4, 6],
        ..surface.plan(&machine).unwrap()
    };
    let report = harness::run_plan(&surface, &machine, job.clone(), &Progress::hidden()).unwrap();
    let found: Vec<(usize, f64)> = job
        .cells()
        .map(|cell| {
            let row = |metric| report.find(&cell.scenario(), AUTO, metric).unwrap().summary;
            (row(metric::GAIN).runs, row(metric::GAIN_ERROR).mean)
        })
        .collect();
    for &(runs, error) in &found {
        assert!(runs == 6 || [2, 4].contains(&runs) && error <= ERROR, "{found:?}");
    }
    // Two writers always hand it over to each other; more do not.
    assert!(found.iter().any(|(runs, _)| *runs == 2), "{found:?}");
    assert!(found.iter().any(|(runs, _)| *runs > 2), "{found:?}");
}

#[test]
fn the_worst_place_decides_and_a_gain_is_that_of_the_mean() {
    let cells =
        [2, 8].map(|writers| Cell { place: CpuPlacement::Spread, outside_ns: 100, writers });
    let mut collector = Collector::default();
    for (cell, gains, ratio) in
        [(cells[0], [-1.0, -1.0, -1.0], 4.5), (cells[1], [-20.0, 2.0, 3.0], 1.0)]
    {
        for gain in gains {
            collector.add(&cell.scenario(), AUTO, metric::GAIN, gain);
            collector.add(&cell.scenario(), AUTO, metric::WAIT_RATIO_MAX, ratio);
        }
    }
    let rows = collector.rows();
    let judged = |which: usize| judge(&rows, cells.into_iter(), &MEASURES[which]);
    let gain = judged(0).unwrap();
    assert_eq!((gain.reached, gain.writers, gain.met), (-5.0, Some(8), true));
    let longest = judged(1).unwrap();
    assert_eq!((longest.reached, longest.writers, longest.met), (4.5, Some(2), false));
    assert_eq!(judged(2), None);
}

#[test]
fn a_surface_has_no_more_writers_than_cpus_and_no_other_load() {
    let plan = |options: &LockOptions| {
        let machine = options.common.on().unwrap();
        Surface(options).plan(&machine)
    };
    let job = plan(&LockOptions { writers: None, ..options("opteron-2s") }).unwrap();
    assert_eq!((job.writers, job.outsides.len()), (vec![2, 4, 8, 12], OUTSIDES.len()));
    let here = plan(&options("here")).unwrap_err().to_string();
    assert_eq!(here, "--surface: only on a simulated machine; give one with --on");
    let section = LockOptions { section: Some("long".into()), ..options("opteron-2s") };
    let refused = plan(&section).unwrap_err().to_string();
    assert!(refused.starts_with("--section: only a run without --surface uses it"), "{refused}");
}
