//! Tests of `load`: what one run of one lock gave.

use super::*;
use nearq_platform::Linux;
use nearq_sim::Sim;

#[test]
fn fairness_is_the_share_of_the_busier_half() {
    assert_eq!(fairness(&[5, 5, 5, 5]), Some(0.5));
    assert_eq!(fairness(&[0, 30, 0, 10]), Some(1.0));
    assert_eq!(fairness(&[1, 3]), Some(0.75));
    assert_eq!(fairness(&[7, 7, 7]), Some(0.5));
    assert_eq!(fairness(&[1, 2, 7]), Some(0.8));
    assert_eq!((fairness(&[9]), fairness(&[0, 0]), fairness(&[])), (None, None, None));
}

#[test]
fn long_waits_are_all_kept_and_short_ones_are_sampled() {
    let mut waits = Waits::new::<Linux>();
    let ticks = |us: f64| (us * 1000.0 / Linux::tick_ns()) as u64;
    // 9990 short ones; every one that is sampled stands for 16.
    for _ in 0..9984 {
        waits.note::<Linux>(ticks(1.0));
    }
    for _ in 0..16 {
        waits.note::<Linux>(ticks(5000.0));
    }
    assert_eq!((waits.nanoseconds.len(), waits.seen), (10_000, 10_000));
    let near = |found: f64, wanted: f64| (found / wanted - 1.0).abs() < 0.02;
    assert!(near(waits.quantile_us(0.5), 1.0) && near(waits.quantile_us(0.998), 1.0));
    assert!(near(waits.quantile_us(0.999), 5000.0) && near(waits.longest_us(), 5000.0));
}

#[test]
fn a_simulated_run_keeps_all_waits_and_threads_are_summed() {
    let tally = |waits: &[u64]| {
        let mut tally = Tally { entered: 3, counted: 2, waits: Waits::new::<Sim>() };
        for wait in waits {
            tally.waits.note::<Sim>(*wait);
        }
        tally
    };
    let sample =
        Sample::of::<Sim>(&[tally(&[10, 20]), tally(&[30, 40_000])], Duration::from_micros(2));
    assert_eq!((sample.waits.nanoseconds.len(), sample.waits.longest_us()), (4, 40.0));
    assert_eq!((sample.per_second(), sample.fairness()), (2e6, Some(0.5)));
}

#[test]
fn a_reading_costs_less_than_a_microsecond() {
    assert!(cost_of_reading::<nearq_platform::Linux>() < 1000.0);
}
