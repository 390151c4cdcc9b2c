//! `nearq sim`: short runs through the command.

use crate::common::{Folder, errors, nearq, prints};
use serde_json::Value;

#[test]
fn sensitivity_prints_a_table_and_writes_json_and_a_picture() {
    let folder = Folder::new("sensitivity");
    let (json, svg) = (folder.path("sensitivity.json"), folder.path("sensitivity.svg"));
    let output = nearq()
        .args(["sim", "sensitivity", "--on", "l3:2 core:2", "--experiment", "dispatch", "--quick"])
        .args(["--costs", "wake_up,other_llc", "--runs", "1", "--json", &json, "--svg", &svg])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", errors(&output));
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("wake_up = ") && text.contains("moves"), "{text}");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(json["experiment"], "sensitivity");
    let rows = json["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5, "as it is, and two costs less and more");
    assert!(rows.iter().all(|row| row["metric"] == "margin" && row["unit"] == "ratio"));
    assert!(std::fs::read_to_string(&svg).unwrap().contains("<svg"));
}

#[test]
fn the_help_lists_the_options() {
    let text = prints(&["sim", "sensitivity", "--help"]);
    for part in [
        "--on",
        "FILE.json",
        "docs/machines.md",
        "--experiment",
        "--costs",
        "--quick",
        "--json",
        "--svg",
        "Examples:",
    ] {
        assert!(text.contains(part), "{part} is missing from\n{text}");
    }
}

#[test]
fn calibrate_refuses_a_path_that_it_cannot_write_before_it_measures() {
    for (path, part) in [("/no such folder/my.machine", "/no such folder"), ("my.txt", ".machine")]
    {
        let output = nearq().args(["sim", "calibrate", "-o", path]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{path}");
        assert!(errors(&output).contains(part) && output.stdout.is_empty(), "{}", errors(&output));
    }
}

/// The folder of the recorded comparisons, and the page that is made of them.
const VALIDATION: [&str; 2] = [
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/validation"),
    concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results/validation.md"),
];

#[test]
fn the_page_of_comparisons_is_made_of_the_recorded_files() {
    let [folder, page] = VALIDATION;
    let recorded = std::fs::read_to_string(page).unwrap();
    assert_eq!(prints(&["sim", "score", folder]), recorded, "make it again, as its head says");
}

#[test]
fn a_folder_without_comparisons_is_refused() {
    let folder = Folder::new("score");
    let output = nearq().args(["sim", "score", &folder.path("none")]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = errors(&output);
    assert!(text.contains("none") && text.contains("comparisons"), "{text}");
}
