//! Tests of `goals`: what the document of 2024 published for its lock.

use super::*;

#[test]
fn figures_are_found_by_load_and_writers() {
    assert_eq!(gain(Load::Short, 64), Some(90.83));
    assert_eq!(gain(Load::Short, 4), Some(-10.37));
    assert_eq!((gain(Load::Short, 3), gain(Load::Long, 64)), (None, None));
    assert_eq!((gain(Load::Dwom, 32), gain(Load::Mwum, 64)), (Some(128.86), Some(88.20)));
    assert_eq!(gain(Load::Mwrm, 16), None);
}
