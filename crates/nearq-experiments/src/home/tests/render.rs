//! Tests of `render`: what the picture of `home` shows.

use super::*;

#[test]
fn the_picture_has_the_gains_of_the_table_and_the_published_ones() {
    let report = recorded("home-tx7-itanium2");
    let plans = [4, 8, 16, 32].map(|tasks| format!("{NUMA_TEST}, {tasks} tasks"));
    let plans: Vec<&str> = plans.iter().map(String::as_str).collect();
    let document = gained(&report, &plans, "", &[Row::Before, Row::After]).unwrap();
    let today = gained(&report, &plans, "", &TODAY).unwrap();
    for shown in [&document, &today] {
        for (plan, (_, dots)) in plans.iter().zip(&shown.rows) {
            assert_eq!(dots[0].measured.unwrap().value, 0.0, "all others are compared with it");
            for (row, dot) in shown.series.iter().zip(dots).skip(1) {
                let told = report.find(plan, row, metric::ELAPSED_GAIN).unwrap().summary.mean;
                let Bar { value, low, high } = dot.measured.unwrap();
                assert!((value - told).abs() < 1e-9 && low <= value && value <= high, "{plan}");
            }
        }
    }
    let published = |(_, dots): &(String, Vec<Dot>)| dots[1].published.map(|bar| bar.value);
    let of_document: Vec<_> = document.rows.iter().map(published).collect();
    assert_eq!(of_document, [4, 8, 16, 32].map(figures::gain));
    assert!(today.rows.iter().all(|row| published(row).is_none()), "they are another kernel's");
}

#[test]
fn a_row_that_did_not_run_is_left_out() {
    let report = recorded("home-opteron-2s");
    let plans = ["numa-test, 6 tasks"];
    let today = gained(&report, &plans, "", &TODAY).unwrap();
    assert_eq!(today.series, ["without homes", "homes", "dynamic homes", "oracle"]);
    let alone = gained(&report, &plans, "", &[Row::Without, Row::Scheduler]);
    assert!(alone.is_none(), "there is nothing to compare");
}

fn recorded(name: &str) -> Report {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let json = std::fs::read_to_string(format!("{folder}/{name}.json")).expect("it is recorded");
    Report::from_json(&json).expect("what was written is read")
}
