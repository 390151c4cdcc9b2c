use super::published::Use;
use super::*;
use crate::calibrate;

fn on(machine: Option<&str>) -> Report {
    let options = LinesOptions { machine: machine.map(Into::into), ..LinesOptions::default() };
    lines(&options, &Progress::hidden()).unwrap()
}

#[test]
fn simulated_bounces_are_within_15_percent_of_the_published_ones_and_additions_within_25() {
    let report = on(None);
    let count: usize = ALL.iter().map(|of| of.bounces.len() + of.additions.len()).sum();
    assert_eq!(report.rows.len(), count, "each published figure has a simulated one");
    for row in &report.rows {
        let published = row.published.expect("all of them are published");
        let error = render::error_percent(row.summary.median, published);
        let what = format!("{} {}: {} ns", row.scenario, row.row, row.summary.median);
        let most = if row.metric == metric::BOUNCE.name { 15.0 } else { 25.0 };
        assert!(error.abs() < most, "{what}, {error:.1} %");
    }
    let bounces = ALL.iter().flat_map(|of| of.bounces).map(|of| of.3);
    let additions = ALL.iter().flat_map(|of| of.additions).map(|of| of.2);
    let predictions = bounces.chain(additions).filter(|used| *used == Use::Prediction).count();
    assert_eq!(report.text.matches("  prediction\n").count(), predictions, "{}", report.text);
    assert!(crate::redraw::is_drawn_from_the_json(&report));
}

#[test]
fn the_bounces_of_a_simulated_machine_give_its_costs_back() {
    let name = "epyc-7551-2s";
    let machine = Machine::named(name).unwrap();
    let model = machine.model().unwrap();
    let report = on(Some(name));
    let measurements = report.rows.iter().map(|row| (row.row.as_str(), row.summary.median));
    let found = calibrate::costs_of_lines(measurements, machine.topology());
    for (cost, value) in found {
        let held = model.costs().get(cost).unwrap();
        // A bounce has the read-modify-write in it.
        let bounced = !cost.starts_with("home_");
        let expected = held + if bounced { model.costs().read_modify_write } else { 0 };
        assert!(value.abs_diff(expected) <= 2, "{cost}: {value} instead of {expected}");
    }
}

#[test]
fn a_machine_without_published_figures_has_a_row_for_each_distance_and_home() {
    let report = on(Some("pack:2 numa:2 l3:2 core:2 pu:2"));
    let rows: Vec<&str> = report.rows.iter().map(|row| row.row.as_str()).collect();
    let of = |name: &str, homes: usize| {
        assert_eq!(rows.iter().filter(|row| row.contains(name)).count(), homes, "{rows:?}");
    };
    for (name, homes) in
        [("same_core", 3), ("same_llc", 3), ("other_llc", 3), ("bounce other_package", 2)]
    {
        of(name, homes);
    }
    of("bounce same_package", 2);
    assert!(report.rows.iter().all(|row| row.published.is_none()));
    assert!(!report.text.contains("published:"), "{}", report.text);
}

#[test]
fn this_machine_is_not_simulated_and_is_refused() {
    let options = LinesOptions { machine: Some("here".into()), ..LinesOptions::default() };
    let error = lines(&options, &Progress::hidden()).unwrap_err();
    assert_eq!(error.exit_status(), 2);
    assert!(error.to_string().contains("nearq sim calibrate"), "{error}");
}
