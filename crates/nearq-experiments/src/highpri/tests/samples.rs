//! Tests of `issuer`: the latencies of one row, and the figures that the document names.

use super::*;

fn of(milliseconds: impl IntoIterator<Item = u64>) -> Samples {
    let mut samples = Samples::default();
    for latency in milliseconds {
        samples.add(Duration::from_millis(latency), false);
    }
    samples
}

#[test]
fn known_latencies_give_known_figures() {
    // In an order that is not sorted.
    let figures = of((1..=1000).rev()).figures().unwrap();
    assert_eq!((figures.samples, figures.max, figures.p50), (1000, 1000.0, 500.0));
    assert_eq!((figures.p99, figures.p999), (990.0, 999.0));
    assert_eq!(figures.top, 990.5, "981 to 1000");
    // The sample deviation of twenty numbers in a row: the root of 20 * 21 / 12.
    assert!((figures.top_deviation - 35.0_f64.sqrt()).abs() < 1e-9);
    assert_eq!(Samples::default().figures(), None);
}

#[test]
fn few_samples_are_all_among_the_worst() {
    let figures = of([2, 4]).figures().unwrap();
    assert_eq!((figures.top, figures.p50, figures.p99), (3.0, 2.0, 4.0));
    assert_eq!(of([7]).figures().unwrap().top_deviation, 0.0);
}

#[test]
fn samples_with_stolen_time_are_counted_separately_and_kept() {
    let mut samples = of([1, 2]);
    samples.add(Duration::from_millis(90), true);
    let figures = samples.figures().unwrap();
    assert_eq!((figures.samples, figures.stolen), (3, 1));
    assert_eq!((figures.max, figures.max_unstolen), (90.0, 2.0));
}

#[test]
fn the_curve_falls_from_all_to_the_worst() {
    let curve = of(1..=10_000).curve();
    assert_eq!(curve.last(), Some(&(10_000.0, 1e-4)));
    assert!(curve.len() < 250, "{} points", curve.len());
    assert!(curve.windows(2).all(|two| two[0].0 <= two[1].0 && two[0].1 > two[1].1));
    assert!(curve[0].1 > 0.9, "{:?}", curve[0]);
    let worst = curve.iter().filter(|(_, share)| *share < 20.5e-4).count();
    assert_eq!(worst, TOP, "all of the worst samples are in the curve");
    assert!(Samples::default().curve().is_empty());
}
