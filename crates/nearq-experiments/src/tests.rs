//! What holds for every experiment: goals are shown if they are requested, runs that are too small are not judged, and pictures have their
//! warnings.

use crate::harness::options::tests::AnySize;
use crate::{
    BlockingOptions, Common, DispatchOptions, HighpriOptions, HomeOptions, JoinOptions,
    LockOptions, NumaOptions, RwlockOptions, ScopesOptions,
};
use nearq_report::{Error, Progress, Report};
use serde_json::Value;
use std::fs;
use std::time::Duration;

/// An experiment, as small as it can be.
type Small = fn(Common, &Progress) -> Result<Report, Error>;

/// Each with its machine, and the parameter that holds what is judged.
const EXPERIMENTS: [(&str, &str, Small); 9] = [
    ("l3:2 core:1", "judgements", |common, progress| {
        let (issuers, in_flight) = (Some(1), Some(1));
        let options = ScopesOptions { common, issuers, in_flight, ..Default::default() };
        crate::run(&options, progress)
    }),
    ("here", "targets", |common, progress| {
        let options = DispatchOptions { common, idle_samples: Some(1), items: Some(5) };
        crate::run(&options, progress)
    }),
    ("core:2", "targets", |common, progress| {
        let common = Common { duration: None, ..common };
        let options = BlockingOptions { common, items: Some(40), ..Default::default() };
        crate::blocking(&options, progress)
    }),
    ("here", "targets", |common, progress| {
        let scenario = Some("fib".into());
        crate::run(&JoinOptions { common, scenario, ..Default::default() }, progress)
    }),
    ("core:2", "ratios", |common, progress| {
        let options = HighpriOptions { common, threads: Some(20), ..Default::default() };
        crate::run(&options, progress)
    }),
    ("core:2", "goals", |common, progress| {
        let options = LockOptions { common, writers: Some(vec![1]), ..Default::default() };
        crate::run(&options, progress)
    }),
    ("core:2", "goals", |common, progress| {
        let (threads, writes) = (Some(vec![2]), Some(vec![10]));
        crate::run(&RwlockOptions { common, threads, writes, ..Default::default() }, progress)
    }),
    ("numa:2 core:1", "goals", |common, progress| {
        let common = Common { duration: None, ..common };
        let scenario = Some("overload".into());
        crate::run(&HomeOptions { common, scenario, ..Default::default() }, progress)
    }),
    ("core:2", "differences", |common, progress| {
        let common = Common { duration: None, ..common };
        crate::run(&NumaOptions { common, files: Some(2), ..Default::default() }, progress)
    }),
];

/// On a machine whose cache has shards, which takes a second.
const SHARDS: (&str, &str, Small) = ("l3:1 core:12", "shards", |common, progress| {
    let common = Common { duration: None, ..common };
    let options = DispatchOptions { common, idle_samples: Some(1), items: Some(1) };
    crate::run(&options, progress)
});

fn run((machine, _, small): &(&str, &str, Small), goals: bool) -> Report {
    let duration = Some(Duration::from_millis(10));
    let machine = (*machine).to_owned();
    let common =
        Common { machine, quick: true, goals, runs: Some(1), duration, ..Common::default() };
    small(common, &Progress::hidden()).expect("it ends")
}

/// Whether a text mentions goals.
fn has_goals(text: &str) -> bool {
    ["goal", "target", "missed"].iter().any(|word| text.to_lowercase().contains(word))
}

/// Whether a list of judgements is empty, or has only figures.
fn is_not_judged(judged: &Value) -> bool {
    match judged {
        Value::Array(all) => all.iter().all(|one| one["met"].is_null() && !one["ratio"].is_null()),
        one => one["met"].is_null(),
    }
}

#[test]
fn goals_are_shown_on_request() {
    let _judged = AnySize::new();
    for experiment in &EXPERIMENTS {
        let (with, without) = (run(experiment, true), run(experiment, false));
        let name = with.experiment;
        assert!(!has_goals(&without.text), "{name}: {}", without.text);
        assert!(!has_goals(&without.svg), "the picture of {name}");
        assert_eq!(has_goals(&with.text), name != "numa", "{name}: {}", with.text);
        let in_picture = (name, experiment.0) == ("dispatch", "here");
        assert_eq!(has_goals(&with.svg), in_picture, "the picture of {name}");
        assert!(!is_not_judged(&with.parameters[experiment.1]) || name == "numa", "{name}");
    }
    let shards = run(&SHARDS, false);
    assert!(
        !has_goals(&shards.text) && shards.text.contains("Shards of a cache"),
        "{}",
        shards.text
    );
    assert!(!is_not_judged(&shards.parameters[SHARDS.1]));
}

#[test]
fn a_run_that_is_too_small_says_so_and_judges_nothing() {
    const WHY: &str = "Too small to judge: --";
    for experiment in &EXPERIMENTS {
        let report = run(experiment, true);
        let (name, text) = (report.experiment, &report.text);
        assert!(text.contains(WHY), "{name}: {text}");
        assert!(!text.contains("missed") && !text.contains("reached by"), "{name}: {text}");
        let parameters = &report.parameters;
        assert!(is_not_judged(&parameters[experiment.1]), "{name}: {parameters}");
        let why = parameters["too_small"].as_str().expect("it is in the JSON");
        assert!(why.starts_with(WHY) && text.contains(why), "{name}: {why}");
    }
}

/// How many diagrams of a report's picture have the warning of a loaded machine.
pub(crate) fn warnings(mut report: Report) -> usize {
    report.environment.others_percent = Some(50.0);
    let warning = report.environment.warning().expect("the machine is loaded");
    let svg = crate::redraw(&report, false).expect("all is in the JSON");
    svg.matches(&format!(">{warning}<")).count()
}

/// Of `highpri` and `blocking --detection`, of which there is no JSON with a picture, beside them.
#[test]
fn every_diagram_has_the_warning_of_a_loaded_machine() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    for (name, diagrams) in [
        ("blocking", 1),
        ("dispatch", 3),
        ("join", 3),
        ("join-ryzen-3900x", 2),
        ("home-tx7-itanium2", 3),
        ("lock", 4),
        ("numa", 1),
        ("scopes", 3),
        ("scopes-ryzen-3900x", 4),
    ] {
        let json = fs::read_to_string(format!("{folder}/{name}.json")).expect("it is recorded");
        let report = Report::from_json(&json).expect("what was written is read");
        assert_eq!(warnings(report), diagrams, "{name}");
    }
}
