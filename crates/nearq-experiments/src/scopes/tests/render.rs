//! Tests of `render`: the tables of `scopes`, beside the document's figures.

use super::*;

#[test]
fn differences_are_printed_as_the_document_prints_them() {
    // The document's own column "vs. SYSTEM BW (%)".
    assert_eq!(published_cells("HIGH", "system")[2], "0.00");
    assert_eq!(published_cells("HIGH", "cache")[2], "+0.60");
    assert_eq!(published_cells("MED", "cache+local")[2], "-10.46");
    assert_eq!(published_cells("LOW", "cache+strict"), ["828.20 ±4.49", "66.84 ±0.29", "-16.65"]);
    assert_eq!(published_cells("LOW", "cpu+strict")[0], "-");
}

#[test]
fn the_picture_has_the_differences_of_the_table_and_the_published_ones() {
    let report = recorded("scopes-ryzen-3900x");
    let judged = report.parameters["judgements"].as_array().unwrap().iter();
    let mut compared = 0;
    for one in judged.filter(|one| !one["published"].is_null()) {
        let [scenario, row] = ["scenario", "row"].map(|of| one[of].as_str().unwrap());
        let shown = differences(&report, String::new(), &[row]);
        let load = scenarios(&report).iter().position(|load| *load == scenario).unwrap();
        let dot = shown.rows[0].1[load];
        for (bar, figure) in [(dot.measured, "gap"), (dot.published, "published")] {
            assert!((bar.unwrap().value - one[figure].as_f64().unwrap()).abs() < 1e-9, "{one}");
        }
        compared += 1;
    }
    assert!(compared > 10, "{compared}");
}

#[test]
fn localised_rows_have_a_diagram_of_their_own_and_system_has_no_cross() {
    let svg = picture(&recorded("scopes-ryzen-3900x"));
    assert_eq!(svg.matches("rows far from it<").count(), 1);
    let report = recorded("scopes-ryzen-3900x");
    let shown = differences(&report, String::new(), &["kernel: system"]);
    assert!(shown.rows[0].1.iter().all(|dot| dot.published.is_none()), "it is zero by definition");
    let here = differences(&recorded("scopes"), String::new(), &["system+local"]);
    assert!(here.rows[0].1.iter().all(|dot| dot.published.is_none()), "another machine");
}

fn recorded(name: &str) -> Report {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let json = std::fs::read_to_string(format!("{folder}/{name}.json")).expect("it is recorded");
    Report::from_json(&json).expect("what was written is read")
}
