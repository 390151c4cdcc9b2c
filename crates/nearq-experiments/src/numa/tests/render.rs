//! Tests of `render`: what the picture of `numa` shows.

use super::*;

#[test]
fn the_picture_has_the_gains_of_the_table_with_their_errors() {
    let [before, after] = [PUBLISHED_BEFORE, PUBLISHED_AFTER].map(|runs| summary(&runs));
    let Bar { value, low, high } = gain(&before, &after);
    assert_eq!(format!("{value:.2} {:.2} {:.2}", value - low, high - value), "0.14 0.07 0.07");
    let errors = in_errors(&before, &after);
    assert!((value / (high - value) - errors).abs() < 1e-9, "the table counts in errors: {errors}");
}

#[test]
fn a_single_run_has_no_whisker() {
    let [before, after] = [[2.0], [1.0]].map(|runs| summary(&runs));
    assert_eq!(gain(&before, &after), Bar { value: 50.0, low: 50.0, high: 50.0 });
}
