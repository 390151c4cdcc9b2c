//! Tests of the conclusions of `scopes`.

use super::*;
use crate::scopes::Policy;

#[test]
fn a_judgement_and_its_conclusion_agree() {
    let judgement = |gap: f64, published: Option<f64>| {
        let (scenario, shall) = ("LOW".into(), "do it".into());
        Judgement {
            scenario,
            row: "cache",
            policy: Policy::Ours,
            shall,
            gap,
            published,
            error_factor: None,
            margin: 0.0,
            met: false,
        }
    };
    let holds = |gap, published| {
        let one = conclusion(&judgement(gap, published));
        one.bound.margin(one.value) >= 0.0
    };
    assert!(holds(-3.0, Some(-2.0)) && !holds(3.0, Some(-2.0)));
    assert!(holds(3.0, Some(2.0)) && !holds(-3.0, Some(2.0)));
    assert!(holds(-0.1, None) && !holds(-0.3, None));
    assert_eq!(conclusion(&judgement(-3.0, None)).name, "LOW, cache shall do it");
}
