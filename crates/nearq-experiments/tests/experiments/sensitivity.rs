//! Conclusions under varied costs, on a machine small enough for a test.

use nearq_experiments::{SensitivityOptions, sensitivity};
use nearq_report::{Progress, Report, metric};

const CONCLUSION: &str = "dispatch: cache does at least as many items as system";

fn run() -> Report {
    let options = SensitivityOptions {
        machine: Some("l3:2 core:4".into()),
        experiment: Some("dispatch".into()),
        costs: ["other_llc", "far atomics", "SMT"].map(String::from).into(),
        quick: true,
        runs: Some(2),
        ..SensitivityOptions::default()
    };
    sensitivity(&options, &Progress::hidden()).expect("every run ends")
}

#[test]
fn costs_and_rules_give_a_table_that_names_the_unused_ones() {
    let report = run();
    assert_eq!((report.experiment, report.machine.as_str()), ("sensitivity", "l3:2 core:4"));
    for scenario in [
        "as it is",
        "other_llc -50 %",
        "other_llc +50 %",
        "far atomics: on",
        "SMT: a busy sibling costs nothing",
    ] {
        let row = report.find(scenario, CONCLUSION, metric::MARGIN);
        assert_eq!(row.map(|row| row.summary.runs), Some(2), "{scenario}");
    }
    let margin = |scenario| report.find(scenario, CONCLUSION, metric::MARGIN).unwrap().summary;
    assert_eq!(
        margin("SMT: a busy sibling costs nothing"),
        margin("as it is"),
        "a core has one CPU"
    );
    assert_ne!(margin("other_llc +50 %"), margin("as it is"));
    let experiment = &report.parameters["experiments"][0];
    assert_ne!(margin("far atomics: on"), margin("as it is"));
    assert_eq!(experiment["not_used"], serde_json::json!(["SMT"]));
    assert!(experiment["conclusions"][0]["holds"].is_boolean());
    assert!(report.text.contains("not used, the same run to the last event: SMT"));
    assert!(report.text.lines().any(|line| line.starts_with("other_llc = ")), "{}", report.text);
    assert!(report.svg.contains("other_llc"));

    // It does not matter which thread of the process did which run.
    let again = run();
    assert_eq!((report.rows, report.text), (again.rows, again.text));
}

#[test]
fn the_work_of_scopes_is_varied_like_a_cost() {
    let options = SensitivityOptions {
        machine: Some("l3:2 core:2".into()),
        experiment: Some("scopes".into()),
        costs: vec!["item_work".into(), "fork".into()],
        quick: true,
        runs: Some(1),
        ..SensitivityOptions::default()
    };
    let report = sensitivity(&options, &Progress::hidden()).expect("every block verifies");
    let row = "scopes: LOW, cache+helping shall reach 0.998 of system";
    let margin = |scenario| report.find(scenario, row, metric::MARGIN).map(|row| row.summary);
    assert!(margin("item_work -50 %").is_some() && margin("item_work +50 %").is_some());
    assert_ne!(margin("item_work +50 %"), margin("as it is"));
    assert_eq!(margin("fork -50 %"), margin("as it is"));
    assert!(report.text.contains("item_work (payload)"), "{}", report.text);
}
