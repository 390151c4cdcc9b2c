//! Tests of `question`: what an experiment provides so that its conclusions can be examined.

use super::*;

#[test]
fn margins_are_positive_where_a_bound_is_kept() {
    assert_eq!(Bound::AtLeast(1.5).margin(2.0), 0.5);
    assert_eq!(Bound::AtLeast(1.5).margin(1.25), -0.25);
    assert_eq!(Bound::AtMost(1.0).margin(0.75), 0.25);
    assert_eq!(Bound::AtMost(1.0).margin(1.5), -0.5);
    assert_eq!(Bound::AtMost(1.0).to_string(), "at most 1");
    assert_ne!(joined([1, 2]), joined([2, 1]));
}
