//! Tests of `judgement`: what a simulated run must show, and whether it did.

use super::*;
use crate::Machine;
use crate::scopes::{plan, scaled};
use nearq_report::Collector;

/// The rows in which every configuration has `bandwidth(scenario, configuration)`.
fn judged(bandwidth: impl Fn(&str, &str) -> f64) -> Vec<Judgement> {
    let machine = Machine::named("ryzen-3900x").unwrap();
    let (scenarios, planned) = (scaled(24), plan(&machine));
    let mut collector = Collector::default();
    for scenario in &scenarios {
        for plan in planned.iter().filter(|plan| plan.same_as.is_none()) {
            let row = plan.configuration.name;
            collector.add(&scenario.name, row, metric::THROUGHPUT, bandwidth(&scenario.name, row));
        }
    }
    judge(&collector.rows(), &scenarios, &planned, true)
}

#[test]
fn the_documents_figures_meet_the_goals() {
    let judgements = judged(|scenario, row| {
        published(scenario, row).map_or(1200.0, |figures| figures.throughput.0)
    });
    assert!(judgements.iter().all(|one| one.met), "{judgements:#?}");
    let clear: Vec<_> = judgements
        .iter()
        .filter_map(|one| Some((one.scenario.as_str(), one.row, (one.published? * 100.0).round())))
        .collect();
    let expected = [
        ("MED", "cache+strict", -376.0),
        ("MED", "system+local", -767.0),
        ("MED", "cache+local", -1046.0),
        ("LOW", "cache", -203.0),
        ("LOW", "cache+strict", -1665.0),
        ("LOW", "system+local", -1101.0),
        ("LOW", "cache+local", -1339.0),
    ];
    let (hinted, clear): (Vec<_>, Vec<_>) =
        clear.into_iter().partition(|(_, row, _)| row.starts_with("hinted: "));
    assert_eq!(hinted.len(), 6, "both localised rows under each load: {hinted:?}");
    let (kernel, ours): (Vec<_>, Vec<_>) =
        clear.into_iter().partition(|(_, row, _)| row.starts_with("kernel: "));
    let named: Vec<_> = kernel
        .iter()
        .map(|(scenario, row, gap)| (*scenario, row.trim_start_matches("kernel: "), *gap))
        .collect();
    assert_eq!(named, expected, "the kernel's policy is judged by the same questions");
    assert_eq!(ours, expected);
    assert_eq!(judgements.len(), 2 * expected.len() + hinted.len() + 3 * HELPED.len());
}

#[test]
fn localisation_by_hints_is_judged_by_size_on_both_sides() {
    let met = |off: f64| {
        let judgements = judged(|scenario, row| {
            let published = published(scenario, row).map_or(1000.0, |one| one.throughput.0);
            let base = super::published(scenario, "system").unwrap().throughput.0;
            if row.starts_with("hinted: ") { published + base * off / 100.0 } else { published }
        });
        let hinted = judgements.into_iter().filter(|one| one.row.starts_with("hinted: "));
        hinted.map(|one| one.met).collect::<Vec<_>>()
    };
    assert_eq!((met(4.9), met(-4.9)), (vec![true; 6], vec![true; 6]));
    assert_eq!((met(5.1), met(-5.1)), (vec![false; 6], vec![false; 6]));
}

#[test]
fn equal_results_are_no_loss_and_a_loss_is_no_tie() {
    let equal = judged(|_, _| 1000.0);
    let mut by_sign = equal.iter().filter(|one| !one.row.starts_with("hinted: "));
    assert!(by_sign.all(|one| one.met != one.published.is_some()), "{equal:#?}");
    let helped = judged(|_, row| if row == "cache+helping" { 997.0 } else { 1000.0 });
    let helped: Vec<_> = helped.iter().filter(|one| one.published.is_none()).collect();
    assert!(helped.iter().all(|one| !one.met && (one.margin + 0.1).abs() < 1e-9), "{helped:#?}");
    assert_eq!(helped.len(), 6, "the shards are the caches here");
}
