//! Tests of `figures`: what the document of 2003 published.

use super::*;

#[test]
fn the_gains_are_those_of_the_tables() {
    assert_eq!([4, 8, 16, 32].map(gain), [Some(7.5), Some(1.4), Some(3.9), Some(2.7)]);
    assert_eq!((gain(5), line(Row::Oracle, 4)), (None, None));
}
